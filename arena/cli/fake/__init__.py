"""`arena fake`: stand-ins for each side of a connection to external games, to test the other side alone.

actor       a server of `POST /step` without a policy
driver, simulator
            the two sides of a file that a simulator shares with the arena
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from arena import registry
from arena.cli.arguments import Parser, add_overrides, non_negative_int, port, positive_int
from arena.config import overrides, yaml
from arena.errors import ConfigError, nearest
from arena.terminal.output import say

_PROFILES = ("published", "release-0.2")
_SLOTS = 256
_ACTOR = "arena.external.builtin_actors:FakeActor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "No side needs a policy or a run. `actor` needs the extra `http`."
    sides = parser.add_subparsers(title="sides", required=True, metavar="SIDE", parser_class=Parser)
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
    driver = sides.add_parser("driver", help="plays random actions with a simulator that shares a file")
    driver.description = (
        "Starts the program, or waits for one that is started by hand; plays hand-overs with random allowed actions; "
        "closes. Prints the `groups` for a configuration. Exit code 1 if the program breaks a rule, which is named."
    )
    driver.add_argument("--attach", metavar="NAME", help="wait for a program that uses the file of this name")
    driver.add_argument("--profile", choices=_PROFILES, default=_PROFILES[0], help="(default: published)")
    driver.add_argument(
        "--handovers", type=positive_int, default=1000, metavar="N", help="with rows, to play (default: 1000)"
    )
    driver.add_argument("--seed", type=non_negative_int, default=0, metavar="N", help="of the actions (default: 0)")
    driver.add_argument("--json", action="store_true", help="print one JSON object")
    driver.add_argument("program", nargs="*", metavar="COMMAND", help="after `--`: the program and its arguments")
    driver.set_defaults(command=_run_driver, plays=True)
    simulator = sides.add_parser("simulator", help="any environment as a simulator that shares a file")
    simulator.description = (
        "Instances side by side: a group for each entity, an agent for each instance. Ends when the driver closes the "
        "link. Observations are Box spaces of float32; actions are Box, Discrete or MultiDiscrete."
    )
    simulator.add_argument(
        "--memory-path", metavar="FILE", help="the first file (default: ml-agents/default in the temporary folder)"
    )
    simulator.add_argument("--make", default="gymnasium:CartPole-v1", help="the game (default: gymnasium:CartPole-v1)")
    simulator.add_argument("--kwargs", default="{}", metavar="YAML", help="of the game")
    simulator.add_argument("--agents", type=positive_int, default=4, metavar="N", help="instances (default: 4)")
    simulator.add_argument("--seed", type=non_negative_int, default=0, metavar="N", help="of the first (default: 0)")
    simulator.add_argument("--profile", choices=_PROFILES, default=_PROFILES[0], help="(default: published)")
    simulator.set_defaults(command=_run_simulator, plays=True)


def _run_actor(arguments: argparse.Namespace) -> int:
    """Answers until a signal comes; returns the exit status."""
    from arena.config.matches import Match
    from arena.config.schema import Env
    from arena.external.connection import Connection
    from arena.plan.plan import MatchPlan, SeatPlan
    from arena.serving.server import Server

    http_games: Any = registry.environment_factory("http")
    options = overrides.apply({}, arguments.overrides)[0]
    known = set(http_games.Options.__struct_fields__) - {"port", "actor", "config", "entities", "like"}
    for key in options:
        if key not in known:
            raise ConfigError(f"there is no {key!r}; {nearest(key, known)}", path="--set")
    replies = {"tick": arguments.tick_reply.encode(), "end": arguments.end_reply.encode()}
    games = http_games(**{**options, "port": arguments.port, "actor": _ACTOR, "config": replies})
    seat = SeatPlan(0, "fake", games.interface.entities)
    described = Match(env="fake", seats=("fake",), lanes=_SLOTS)
    match = MatchPlan(0, 0, 0, described, Env(make="http"), (seat,), path="--port")
    connection = Connection(lambda: games, match, 0)
    server = Server(connection, match, (), drain_s=games.drain_s, games=None, records=None, say=say)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        server.run()
    finally:
        server.close()
    return 0


def _run_driver(arguments: argparse.Namespace) -> int:
    """Plays hand-overs; returns the exit status."""
    from arena.external.shared_memory import Driver
    from arena.external.shared_memory.fake_driver import groups_data, groups_text, play

    if bool(arguments.program) == (arguments.attach is not None):
        raise ConfigError("exactly one of --attach and a COMMAND after `--` is needed")
    with Driver(
        arguments.program or None,
        attach=arguments.attach,
        profile=arguments.profile,
        environment={"PYTHONUNBUFFERED": "1"},
    ) as driver:
        if arguments.attach is not None:
            print(f"waiting at {driver.path}", file=sys.stderr)
        found = play(driver, arguments.handovers, arguments.seed)
        groups = dict(driver.groups)
    if arguments.json:
        say(json.dumps({**found._asdict(), "faults": 0, "groups": groups_data(groups)}))
    else:
        say(groups_text(groups))
        times = f"median {found.median_us:.0f} us"
        say(f"{found.handovers} hand-overs, {found.lives} lives, {found.rows} rows, {times}, 0 faults")
    return 0


def _run_simulator(arguments: argparse.Namespace) -> int:
    """Plays until the driver closes the link; returns the exit status."""
    from arena.external.shared_memory.fake_simulator import FakeSimulator

    kwargs = yaml.load(arguments.kwargs, source="--kwargs")
    if not isinstance(kwargs, dict):
        raise ConfigError(f"found {arguments.kwargs!r}; expected a mapping", path="--kwargs")
    simulator = FakeSimulator(arguments.make, kwargs, arguments.agents, arguments.seed)
    simulator.play(None if arguments.memory_path is None else Path(arguments.memory_path), arguments.profile)
    return 0
