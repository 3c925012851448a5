"""A match with people: one tab, or several, take seats; policies take the others.

GET  /play/RUN             who is to play; `/play/?config=FILE` of a configuration in the folder of the start
POST /play-begin/RUN       makes the table, and shows it
GET  /play-game/NUMBER     the table
POST /play-join/NUMBER     takes a seat: a stream of messages as in `arena.board.games`, which gives the page its token
POST /play-answer/NUMBER   the choices of a turn
POST /trust/RUN            a person allows that the code of the folder, or of a configuration, is run

The match is played in a process of its own (`arena.cli.board_games.played`), from the moment at which all seats of
people are taken until one of these pages is closed. A page that is loaded again has a moment to take its seat back.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arena.board.board import address_of, board_of, folder_of, is_evaluation, is_run, posted
from arena.board.games import KIND, Games, message
from arena.config import load_config
from arena.config.members import seats_by_policy
from arena.diagnostics.start_folder import anchored
from arena.league.sources import Source
from arena.records.folder import RunFolder
from arena.report.recorded import is_shown

_PROGRAM = "arena.cli.board_games.played"
_PERSON = "person"  # what the form says of a seat that a tab takes
_MOST_TABLES, _MOST_CONFIGS = 64, 200
_POLICIES = re.compile(rb"policies[\"']?\s*:")  # a key of each configuration, but not of experiments
_GRACE_S = 2.5  # from the end of a page's stream until its game ends; the process takes 2 s at most
# Messages of these kinds a page needs when it is loaded again.
_REPLAYED = ("match", "state", "turn", "told", "moves", "over", "error")


def configs() -> dict[str, Path]:
    """The configurations of the folder of the start and its `configs`, by their names; no experiments."""
    home, found = anchored("."), dict[str, Path]()
    for path in sorted({*home.glob("*.yaml"), *(home / "configs").glob("**/*.yaml")}):
        name = str(path.relative_to(home))
        with suppress(OSError):  # it may not be read
            if len(found) < _MOST_CONFIGS and is_shown(path.name) and is_shown(name) and path.is_file():
                found |= {name: path} if _POLICIES.search(path.read_bytes()) else {}
    return found


def config_of(name: str) -> Path:
    """The configuration of this name; HTTPException 404: there is none."""
    if (path := configs().get(name)) is None:
        raise HTTPException(404, f"There is no configuration {name!r:.200} where the board was started.")
    return path


@dataclass
class Chair:
    """A seat of a person at a table; the message None is the last one, `said` the newest of the kinds `_REPLAYED`."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    page: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    said: dict[tuple[str, Any], bytes] = field(default_factory=dict)  # by kind and entity


@dataclass
class Table:
    """A match, and the pages that sit at it.

    Attributes:
        number: names it, and its process.
        arguments: of `arena play`.
        people: the seats of people.
        back: the address at which another match can be made.
        target: the folder of the run, or the configuration.
        form: what was chosen.
        chairs: the seats that are taken.
        game: plays the match, once it has begun.
    """

    number: str
    arguments: list[str]
    people: list[int]
    back: str
    target: Path
    form: dict[str, str]
    chairs: dict[int, Chair] = field(default_factory=dict)
    game: asyncio.Task[None] | None = None

    def tell(self, said: bytes | None, to: _Addressed | None = None) -> None:
        """Sends the page of a seat, or all pages, a message; None is the last one."""
        for place, chair in self.chairs.items():
            if to is None or to.seat in (None, place):
                chair.page.put_nowait(said)
                if said is not None and to is not None and to.kind in _REPLAYED:
                    chair.said.pop((to.kind, to.entity), None)
                    chair.said[to.kind, to.entity] = said

    @property
    def is_over(self) -> bool:
        """Whether the match was played to its end: then its result stays."""
        return any(("over", None) in chair.said for chair in self.chairs.values())

    def free(self) -> list[int]:
        """The seats of people that no page has."""
        return [seat for seat in self.people if seat not in self.chairs]

    def seat_of(self, token: str, wanted: str = "") -> int | None:
        """The seat of a page; of a match that is over, the one that is wanted."""
        shown = wanted if self.is_over else None
        return next((seat for seat, chair in self.chairs.items() if chair.token == token or str(seat) == shown), None)

    async def play(self, games: Games) -> None:
        """Plays the match: what the process says goes to the page of a seat, or to all."""
        try:
            async with aclosing(games.play(self.number, _PROGRAM, *self.arguments)) as messages:
                async for one in messages:
                    self.tell(one, msgspec.json.decode(one, type=_Addressed))
        finally:
            self.tell(None)


class _Addressed(msgspec.Struct):
    """A message of a game."""

    kind: str
    seat: int | None = None  # whose page gets it; None: all
    entity: int | str | None = None  # that sees the picture


async def _trust(request: Request) -> Response:
    """Trusts a folder, or the configuration `config`, then shows the page that has asked: `back`, of this server."""
    board, folder, fields = board_of(request), folder_of(request), await posted(request)
    back, config = fields.get("back", ""), fields.get("config")
    board.trusts.add(folder if config is None else config_of(config))
    own = back.startswith("/") and not back.startswith(("//", "/\\"))
    return RedirectResponse(back if own else f"/run/{board.path(folder)}", 303)


def _table(request: Request) -> Table:
    table: Table | None = board_of(request).tables.get(request.path_params["number"])
    if table is None:
        raise HTTPException(404, "This game is over, or was never begun.")
    return table


def _target(request: Request) -> Path:
    """The folder of the run, or the configuration, that is asked for. It is what has to be trusted, too.

    A configuration stands for itself: its folder often has runs of others below it.
    """
    name = request.query_params.get("config")
    return folder_of(request) if name is None else config_of(name)


def _page(request: Request) -> Response:
    board, name = board_of(request), request.query_params.get("config")
    if name is None and (not is_run(folder := folder_of(request)) or is_evaluation(folder)):
        return board.page("play.html", configs=list(configs()), config=None, name="", matches=[])
    home = _target(request)
    config = load_config(home / "config.yaml" if home.is_dir() else home)
    entries = [entry for _, entry in config.entries()]
    chosen = request.query_params.get("match", "0")
    match = int(chosen) if re.fullmatch(r"\d{1,9}", chosen, re.ASCII) and int(chosen) < len(entries) else 0
    names, learners = list(entries[match].names), config.learners
    return board.page(
        "play.html",
        folder=None if name else home,
        config=name,
        name=name or board.name(home),
        matches=[f"{place}: {entry.env}, {', '.join(entry.names)}" for place, entry in enumerate(entries)],
        match=match,
        seats=names,
        mine=next((seat for seat, own in enumerate(names) if learners & {*names} - {own}), 0),  # others have learned
        policies=list(config.policies),
        advisers={name: seats for name, seats in seats_by_policy(config).items() if name in learners},
        ticks=[]
        if name
        else sorted(
            {tick for policy in config.policies for tick in Source(config, RunFolder(home)).files(policy)}, reverse=True
        ),
        trusted=board.trusted(home),
        home=str(home),
        back=address_of(request),
    )


async def _begin(request: Request) -> Response:
    target = _target(request)
    if not board_of(request).trusted(target):
        raise HTTPException(403, "This plays the folder's own games: the page asks first whether its code may be run.")
    form = await posted(request)
    seats = {int(key[5:]): form[key] for key in form if re.fullmatch(r"seat-\d{1,4}", key, re.ASCII)}
    people = sorted(seat for seat, who in seats.items() if who == _PERSON)
    if not people:
        raise HTTPException(422, "No seat is for a person: give yourself one.")
    if "rated" in form and len(people) > 1:
        raise HTTPException(422, "A rated game has one person: give the other seats to policies.")
    if any(":" in who for who in seats.values()):
        raise HTTPException(422, "Opponents are policies, random or best: a page names no code.")
    versions = {seat: f"@{form[f'tick-{seat}']}" if form.get(f"tick-{seat}") else "" for seat in seats}
    arguments = [
        str(target),
        f"--match={form.get('match') or 0}",
        *(f"--seat={seat}" for seat in people),
        *(f"--against={seat}={who}{versions[seat]}" for seat, who in seats.items() if who != _PERSON),
        *([f"--advice={form['advice']}"] if form.get("advice") else []),
        f"--seed={form.get('seed') or secrets.randbelow(2**31)}",
        *(f"--{key}" for key in ("sample", "rated") if key in form),
    ]
    tables, number = board_of(request).tables, secrets.token_urlsafe(9)
    unused = [key for key, table in tables.items() if table.is_over or not table.chairs]
    for key in unused[: max(0, len(tables) - _MOST_TABLES + 1)]:
        del tables[key]
    back = address_of(request).replace("/play-begin/", "/play/", 1)
    tables[number] = Table(number, arguments, people, back, target, form)
    return RedirectResponse(f"/play-game/{number}?seat={people[0]}", 303)


def _game_page(request: Request) -> Response:
    table = board_of(request).tables.get(request.path_params["number"])
    folder = table.target if table is not None and table.target.is_dir() else None
    return board_of(request).page("play-game.html", folder=folder, table=table)


async def _join(request: Request) -> Response:
    table, form = _table(request), await posted(request)
    if (mine := table.seat_of(form.get("token", ""), form.get("seat", ""))) is not None:
        return board_of(request).stream(_messages(request, table, mine, again=True), kind=KIND)
    wanted = form.get("seat", "")
    if not (free := table.free()):
        raise HTTPException(409, "All seats of this game are taken.")
    if table.game is not None:
        raise HTTPException(409, "A player of this game has closed the page: it is over.")
    if wanted and wanted not in map(str, free):
        why = "is taken" if wanted in map(str, table.people) else "is not for a person"
        raise HTTPException(409, f"Seat {wanted:.20} {why}; still free: seat {', '.join(map(str, free))}.")
    return board_of(request).stream(_messages(request, table, int(wanted or free[0])), kind=KIND)


async def _messages(request: Request, table: Table, seat: int, *, again: bool = False) -> AsyncIterator[bytes]:
    """The stream of a page; with it ends the game, if it is under way, or else the page's right to the seat.

    `again`: the page had this seat before.
    """
    if seat in table.chairs and not again:  # another page was faster
        yield message("error", text=f"Seat {seat} is taken.")
        return
    chair = table.chairs.setdefault(seat, Chair())
    before, page = chair.page, asyncio.Queue[bytes | None]()
    before.put_nowait(message("error", text="Another page has this seat now."))
    before.put_nowait(None)
    chair.page = page

    def leave() -> None:
        if chair.page is not page or table.is_over:  # it was loaded again, or its result stays
            return
        del table.chairs[seat]
        if table.game is None:
            table.tell(message("waits", seats=table.free()))
        elif not table.game.done():
            table.game.cancel()
            table.tell(message("error", text=f"The player of seat {seat} has closed the page: the game ends."))
        if table.game is not None and not table.chairs:
            board_of(request).tables.pop(table.number, None)

    try:
        known = [*chair.said.values()]
        yield message("opened", token=chair.token, seat=seat)
        if table.game is not None:
            for one in known:
                yield one
            if table.game.done():
                return
        elif free := table.free():
            table.tell(message("waits", seats=free))
        else:
            table.tell(message("begins"))
            table.game = asyncio.create_task(table.play(board_of(request).games))
        while (said := await page.get()) is not None:
            yield said
    finally:
        if table.game is None or table.game.done():
            leave()
        else:
            asyncio.get_running_loop().call_later(_GRACE_S, leave)


async def _answer(request: Request) -> Response:
    table, form = _table(request), await posted(request)
    if (seat := table.seat_of(form.get("token", ""))) is None:
        raise HTTPException(403, "This page has no seat in this game.")
    try:
        turn, choices = int(form["turn"]), [float(one) for one in json.loads(form["choices"])]
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise HTTPException(400, "These are no choices.") from error
    board_of(request).games.say(table.number, {"seat": seat, "turn": turn, "choices": choices})
    return Response(status_code=204)


routes = [
    Route("/play/{path:path}", _page),
    Route("/play-begin/{path:path}", _begin, methods=["POST"]),
    Route("/play-game/{number}", _game_page),
    Route("/play-join/{number}", _join, methods=["POST"]),
    Route("/play-answer/{number}", _answer, methods=["POST"]),
    Route("/trust/{path:path}", _trust, methods=["POST"]),
]
