"""`arena fake actor`: a server of `POST /step` without a policy; needs the extra `http`."""

from __future__ import annotations

import argparse
import inspect
import signal

from arena.cli.arguments import Parser, add_overrides, port
from arena.config import overrides
from arena.errors import ConfigError, nearest
from arena.terminal.output import say

_SLOTS = 256
_ACTOR = "arena.external.builtin_actors:FakeActor"


def add_side(sides: argparse._SubParsersAction[Parser]) -> None:
    """Adds `actor`."""
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
    add_overrides(
        actor, "any other key of `make: http`, such as drain_s=30; may be given many times", metavar="KEY=VALUE"
    )
    actor.set_defaults(command=_run_actor, plays=True)


def _run_actor(arguments: argparse.Namespace) -> int:
    """Answers until a signal comes; returns the exit status."""
    from arena.config.matches import MatchConfig
    from arena.config.schema import EnvConfig
    from arena.external.connection import Connection
    from arena.external.http import HttpGames
    from arena.plan.plan import MatchPlan, SeatPlan
    from arena.serving.server import Server

    options = overrides.apply({}, arguments.overrides)[0]
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
    described = MatchConfig(env="fake", seats=("fake",), lanes=_SLOTS)
    match = MatchPlan(0, 0, 0, described, EnvConfig(make="http"), (seat,), path="--port")
    connection = Connection(lambda: games, match, 0)
    server = Server(connection, match, (), drain_s=games.drain_s, games=None, records=None, say=say)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        server.run()
    finally:
        server.close()
    return 0
