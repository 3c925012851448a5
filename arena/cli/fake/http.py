"""`arena fake actor` and `arena fake game`: the two sides of `POST /step`; both need the extra `http`."""

from __future__ import annotations

import argparse
import inspect
import json
import signal
from pathlib import Path
from typing import Any

from arena.cli.arguments import Parser, non_negative_int, port, positive_int
from arena.config import overrides, yaml
from arena.errors import ConfigError, nearest
from arena.terminal.output import complain, say

_SLOTS = 256
_ACTOR = "arena.external.fake_actor:FakeActor"


def add_sides(sides: argparse._SubParsersAction[Parser]) -> None:
    """Adds `actor` and `game`."""
    actor = sides.add_parser("actor", help="a server that answers the same bytes to all games")
    actor.description = "Answers until it is ended by Ctrl-C or SIGTERM; then running games may go on for a while."
    actor.add_argument("--port", type=port, default=8000, help="0: any free one (default: 8000)")
    actor.add_argument(
        "--tick-reply",
        default="fake_actor_tick_return",
        metavar="TEXT",
        help="the answer to a tick (default: fake_actor_tick_return)",
    )
    actor.add_argument(
        "--end-reply",
        default="fake_actor_end_return",
        metavar="TEXT",
        help="the answer to an end (default: fake_actor_end_return)",
    )
    actor.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other key of `make: http`, such as drain_s=30; may be given many times",
    )
    actor.set_defaults(command=_run_actor, plays=True)
    game = sides.add_parser("game", help="games that call a server; also a load generator")
    game.description = (
        "So many games side by side, each with one start, its ticks and one end. A server that is down is tried again "
        "for 30 s. Prints what was answered, requests per second, and times from request to answer; exit code 1 if a "
        "request has failed. Ctrl-C ends the games."
    )
    game.add_argument(
        "--url", default="http://localhost:8000/step", help="of the server (default: http://localhost:8000/step)"
    )
    game.add_argument("--games", type=positive_int, default=2, metavar="N", help="side by side (default: 2)")
    game.add_argument(
        "--ticks", type=non_negative_int, default=1_000_000, metavar="N", help="of each game (default: 1000000)"
    )
    game.add_argument(
        "--pause", type=_seconds, default=0.5, metavar="S", help="between two ticks of a game (default: 0.5)"
    )
    game.add_argument(
        "--start-data", metavar="TEXT", help="the body of a start (default: fake_gamecore_step_start_data)"
    )
    body = game.add_mutually_exclusive_group()
    body.add_argument("--tick-data", metavar="TEXT", help="the body of a tick (default: fake_gamecore_step_tick_data)")
    body.add_argument("--body-file", metavar="FILE", help="the body of a tick is what this file holds")
    body.add_argument("--random", action="store_true", help="random observations, for the actors json and raw")
    game.add_argument("--end-data", metavar="TEXT", help="the body of an end (default: fake_gamecore_step_end_data)")
    game.add_argument("--actor", choices=("json", "raw"), help="with --random: the server's (default: json)")
    seen = game.add_mutually_exclusive_group()
    seen.add_argument("--like", metavar="GAME", help="with --random: observations of this game, named as in `make`")
    seen.add_argument(
        "--entities",
        metavar="FILE",
        help="with --random: observations of these entities, as the key `entities` has them",
    )
    game.add_argument(
        "--connections", choices=("keep", "new"), default="keep", help="one for each game, or for each request"
    )
    game.add_argument("--json", action="store_true", help="print one JSON object")
    game.set_defaults(command=_run_games, plays=True)


def _run_actor(arguments: argparse.Namespace) -> int:
    """Answers until a signal comes; returns the exit status."""
    from arena.external.connection import Connection
    from arena.external.http import HttpGames
    from arena.plan.plan import MatchPlan, SeatPlan
    from arena.serving.server import Server

    options = overrides.apply({}, arguments.overrides).data
    known = [
        key
        for key in inspect.signature(HttpGames).parameters
        if key not in ("port", "actor", "config", "entities", "like")
    ]
    for key in options:
        if key not in known:
            raise ConfigError(f"there is no {key!r}; {nearest(key, known)}", path="--set")
    replies = {"tick": arguments.tick_reply.encode(), "end": arguments.end_reply.encode()}
    games = HttpGames(**{**options, "port": arguments.port, "actor": _ACTOR, "config": replies})
    seat = SeatPlan(0, "fake", games.interface.entities)
    match = MatchPlan(0, 0, 0, "fake", "http", {}, _SLOTS, (seat,), path="--port")
    connection = Connection(lambda: games, match, 0)
    server = Server(connection, match, (), drain_s=games.drain_s, games=None, records=None, say=say)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        server.run()
    finally:
        server.close()
    return 0


def _run_games(arguments: argparse.Namespace) -> int:
    """Plays, and prints what was answered; returns the exit status."""
    from arena.external.http import check_installed

    check_installed()
    import uvloop

    from arena.external.fake_game import FakeGames

    bodies = _bodies(arguments)
    new = arguments.connections == "new"
    signals: list[int] = []
    loop = uvloop.new_event_loop()
    try:
        games = FakeGames(arguments.url, arguments.games, arguments.ticks, arguments.pause, bodies, new_connections=new)

        def stop(number: int) -> None:
            signals.append(number)
            loop.remove_signal_handler(number)  # the next one ends the program
            games.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        loop.run_until_complete(games.play())
    finally:
        loop.close()
    found = games.outcome
    p50, p99 = found.milliseconds(0.5), found.milliseconds(0.99)
    if arguments.json:
        counts = {key: getattr(found, key) for key in ("starts", "ticks", "ends", "errors", "seconds")}
        speed = {"requests_per_second": found.requests_per_second, "p50_ms": p50, "p99_ms": p99}
        say(json.dumps({**counts, **speed, "statuses": dict(sorted(found.statuses.items()))}))
    else:
        times = "" if p50 is None else f", p50 {p50:.2f} ms, p99 {p99:.2f} ms"
        say(f"{found.requests_per_second:.1f} requests/s{times}")
        say(", ".join(f"{status}: {count}" for status, count in sorted(found.statuses.items())))
        say(f"{found.starts} starts, {found.ticks} ticks, {found.ends} ends, {found.errors} errors")
    if found.errors:
        complain(f"arena: failed: {found.first_error}\n")
        return 1
    return 128 + signals[0] if signals else 0


def _bodies(arguments: argparse.Namespace) -> Any:
    """What the games send.

    Raises:
        ConfigError: an argument does not fit the others, or a file cannot be read.
    """
    from arena.external.declaration import declared_interface
    from arena.external.fake_game import Bodies, drawn_bodies

    start, end = arguments.start_data, arguments.end_data
    if arguments.random:
        if arguments.like is None and arguments.entities is None:
            raise ConfigError("needs the observations: give --like or --entities", path="--random")
        entities = None
        if arguments.entities is not None:
            entities = yaml.load(_content(arguments.entities, "--entities").decode(), source=arguments.entities)
        like = None if arguments.like is None else {"make": arguments.like}
        drawn = drawn_bodies(declared_interface(entities, like), arguments.actor or "json")
        return drawn._replace(
            start=drawn.start if start is None else start.encode(), end=drawn.end if end is None else end.encode()
        )
    for option in ("actor", "like", "entities"):
        if getattr(arguments, option) is not None:
            raise ConfigError("is for --random; leave it out", path=f"--{option}")
    tick = "fake_gamecore_step_tick_data" if arguments.tick_data is None else arguments.tick_data
    body = tick.encode() if arguments.body_file is None else _content(arguments.body_file, "--body-file")
    return Bodies(
        ("fake_gamecore_step_start_data" if start is None else start).encode(),
        [body],
        ("fake_gamecore_step_end_data" if end is None else end).encode(),
    )


def _content(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", path=option) from error


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return found
