"""A match with people: one tab, or several, take seats; policies take the others.

GET  /play/RUN             who is to play; `/play/?config=FILE` of a configuration in the folder of the start
POST /play-begin/RUN       makes the table, and shows it
GET  /play-game/NUMBER     the table
POST /play-join/NUMBER     takes a seat: a stream of messages as in `arena.board.games`, which gives the page its token
POST /play-answer/NUMBER   the choices of a turn

The match is played in a process of its own (`arena.cli.board_games.played`), from the moment at which all seats of
people are taken until one of these pages is closed.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arena.board.board import Tab, board_of, folder_of, is_run, posted
from arena.board.games import KIND, Games, message
from arena.board.trust import trust, trusted
from arena.config import load_config
from arena.config.schema import Config
from arena.diagnostics.start_folder import anchored
from arena.records.folder import RunFolder
from arena.run.opponents import policy_versions

_PROGRAM = "arena.cli.board_games.played"
_PERSON = "person"  # what the form says of a seat that a tab takes
_MOST_TABLES = 64
_MOST_CONFIGS = 200

tab = Tab("Play", "/play/", is_run)


@dataclass
class Table:
    """A match, and the pages that sit at it.

    Attributes:
        number: names it, and its process.
        arguments: of `arena play`.
        people: the seats of people.
        back: the address at which another match can be made.
        folder: of the run; None: of a configuration.
        pages: by seat the messages for the page that has it; None ends its stream.
        tokens: the seat of each page.
        game: plays the match, once it has begun.
    """

    number: str
    arguments: list[str]
    people: list[int]
    back: str
    folder: Path | None
    pages: dict[int, asyncio.Queue[bytes | None]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    game: asyncio.Task[None] | None = None

    def tell(self, said: bytes | None, seat: int | None = None) -> None:
        """Sends the page of a seat, or all pages, a message; None is the last one."""
        for place, page in self.pages.items():
            if seat in (None, place):
                page.put_nowait(said)

    def free(self) -> list[int]:
        """The seats of people that no page has."""
        return [seat for seat in self.people if seat not in self.pages]

    async def play(self, games: Games) -> None:
        """Plays the match: what the process says goes to the page of a seat, or to all."""
        try:
            async with aclosing(games.play(self.number, _PROGRAM, *self.arguments)) as messages:
                async for one in messages:
                    self.tell(one, msgspec.json.decode(one, type=_Addressed).seat)
        finally:
            self.tell(None)


class _Addressed(msgspec.Struct):
    """A message of a game."""

    seat: int | None = None  # whose page gets it; None: all


def _tables(request: Request) -> dict[str, Table]:
    state = request.app.state
    if not hasattr(state, "tables"):
        state.tables = {}
    found: dict[str, Table] = state.tables
    return found


def _table(request: Request) -> Table:
    if (table := _tables(request).get(request.path_params["number"])) is None:
        raise HTTPException(404, "This game is over, or was never begun.")
    return table


def _configs() -> dict[str, Path]:
    """The configurations of the folder of the start and its `configs`, by their names."""
    home = anchored(".")
    found = sorted({*home.glob("*.yaml"), *(home / "configs").glob("**/*.yaml")})
    return {str(path.relative_to(home)): path for path in found[:_MOST_CONFIGS]}


def _target(request: Request) -> tuple[Path, Path, str]:
    """What is asked for whether its code may be run; the run or configuration; its name.

    A configuration stands for itself: its folder often has runs of others below it.
    """
    if (name := request.query_params.get("config")) is None:
        folder = folder_of(request)
        return folder, folder, board_of(request).name(folder)
    if (path := _configs().get(name)) is None:
        raise HTTPException(404, f"There is no configuration {name!r:.200} where the board was started.")
    return path, path, name


def _page(request: Request) -> Response:
    board, configs = board_of(request), _configs()
    of_config = "config" in request.query_params
    if not of_config and not is_run(folder_of(request)):
        return board.page("play.html", configs=list(configs), config=None, name="", matches=[])
    home, target, name = _target(request)
    config = load_config(target / "config.yaml" if target.is_dir() else target)
    entries = [entry for _, entry in config.entries()]
    chosen = request.query_params.get("match", "0")
    match = int(chosen) if chosen.isascii() and chosen.isdigit() and int(chosen[:9]) < len(entries) else 0
    return board.page(
        "play.html",
        folder=None if of_config else target,
        configs=list(configs),
        config=name if of_config else None,
        name=name,
        matches=[f"{place}: {entry.env}, {', '.join(entry.names)}" for place, entry in enumerate(entries)],
        match=match,
        seats=list(entries[match].names),
        policies=list(config.policies),
        ticks=[] if of_config else _ticks(RunFolder(target), config),
        trusted=trusted(home),
        home=str(home),
        query=f"?{request.url.query}" if request.url.query else "",
        address=request.url.path.removeprefix("/play/"),
    )


def _ticks(folder: RunFolder, config: Config) -> list[int]:
    """The ticks of all checkpoints and snapshots."""
    return sorted({tick for policy in config.policies for tick in policy_versions(folder, policy)}, reverse=True)


async def _trust(request: Request) -> Response:
    """Trusts a configuration; the folder of a run has `arena.board.trust`."""
    home, _, _ = _target(request)
    trust(home)
    return RedirectResponse(f"/play/{request.path_params['path']}?{request.url.query}", 303)


async def _begin(request: Request) -> Response:
    home, target, _ = _target(request)
    if not trusted(home):
        raise HTTPException(403, "This plays the folder's own games: the page asks first whether its code may be run.")
    form = await posted(request)
    seats = {int(key[5:]): form[key] for key in form if re.fullmatch(r"seat-\d{1,4}", key, re.ASCII)}
    people = sorted(seat for seat, who in seats.items() if who == _PERSON)
    if not people:
        raise HTTPException(422, "No seat is for a person: give yourself one.")
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
    tables, number = _tables(request), secrets.token_urlsafe(9)
    for unused in [key for key, table in tables.items() if not table.pages][: max(0, len(tables) - _MOST_TABLES + 1)]:
        del tables[unused]
    back = f"/play/{request.path_params['path']}" + (f"?{request.url.query}" if request.url.query else "")
    tables[number] = Table(number, arguments, people, back, target if target.is_dir() else None)
    return RedirectResponse(f"/play-game/{number}?seat={people[0]}", 303)


def _game_page(request: Request) -> Response:
    number = request.path_params["number"]
    table = _tables(request).get(number)
    back, folder = ("/play/", None) if table is None else (table.back, table.folder)
    return board_of(request).page("play-game.html", folder=folder, number=number, back=back, known=table is not None)


async def _join(request: Request) -> Response:
    table, wanted = _table(request), (await posted(request)).get("seat", "")
    if not (free := table.free()):
        raise HTTPException(409, "All seats of this game are taken.")
    if table.game is not None:
        raise HTTPException(409, "A player of this game has closed the page: it is over.")
    if wanted and wanted not in map(str, table.people):
        raise HTTPException(409, f"Seat {wanted:.20} is not for a person; {_seats(table.people)}.")
    if wanted and wanted not in map(str, free):
        raise HTTPException(409, f"Seat {wanted} is taken; still free: {_seats(free)}.")
    return board_of(request).stream(_messages(request, table, int(wanted or free[0])), kind=KIND)


def _seats(numbers: list[int]) -> str:
    return f"seat{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


async def _messages(request: Request, table: Table, seat: int) -> AsyncIterator[bytes]:
    """The stream of a page; with it ends the game, if it is under way, or else the page's right to the seat."""
    if seat in table.pages:  # another page was faster
        yield message("error", text=f"Seat {seat} is taken.")
        return
    token = secrets.token_urlsafe(12)
    page = table.pages[seat] = asyncio.Queue[bytes | None]()
    table.tokens[token] = seat
    try:
        yield message("opened", token=token, seat=seat)
        if free := table.free():
            table.tell(message("waits", seats=free))
        else:
            table.tell(message("begins"))
            table.game = asyncio.create_task(table.play(Games.of(request)))
        while (one := await page.get()) is not None:
            yield one
    finally:
        del table.pages[seat], table.tokens[token]
        if table.game is None:
            table.tell(message("waits", seats=table.free()))
        elif not table.game.done():
            table.game.cancel()
            table.tell(message("error", text=f"The player of seat {seat} has closed the page: the game ends."))
        if table.game is not None and not table.pages:
            _tables(request).pop(table.number, None)


async def _answer(request: Request) -> Response:
    table, form = _table(request), await posted(request)
    if (seat := table.tokens.get(form.get("token", ""))) is None:
        raise HTTPException(403, "This page has no seat in this game.")
    try:
        turn, choices = int(form["turn"]), [float(one) for one in json.loads(form["choices"])]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise HTTPException(400, "These are no choices.") from error
    Games.of(request).say(table.number, {"seat": seat, "turn": turn, "choices": choices})
    return Response(status_code=204)


routes = [
    Route("/play/{path:path}", _page),
    Route("/play-trust/{path:path}", _trust, methods=["POST"]),
    Route("/play-begin/{path:path}", _begin, methods=["POST"]),
    Route("/play-game/{number}", _game_page),
    Route("/play-join/{number}", _join, methods=["POST"]),
    Route("/play-answer/{number}", _answer, methods=["POST"]),
]
