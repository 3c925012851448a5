"""`arena play`: a human takes a seat of a match, and all others play as `arena evaluate` would let them.

It is a run of one match in one lane and one process, with the algorithm `arena.cli.play.human` in the player's seats.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from arena.cli.arguments import non_negative_int, positive_int
from arena.cli.evaluate import weights_of
from arena.cli.play.human import configured
from arena.config import load_config
from arena.config.matches import MatchConfig, policy_of, reseated
from arena.config.schema import Config, PolicyConfig
from arena.errors import ConfigError, located, nearest, pluralize
from arena.preflight.external import refuse_external
from arena.records.folder import RunFolder
from arena.registry import import_plugins
from arena.roles.protocol import Failed
from arena.run.console import Output
from arena.run.loop import run_single_process
from arena.run.opponents import policy_at
from arena.run.prepare import prepare
from arena.terminal.display import silent_display

_HUMAN = "arena.cli.play.human:Human"
_NO_LIMIT = 31_536_000.0  # seconds: a human may think for a year
_SIGNALED = 128  # exit codes above it: ended by a signal
_AT_ONCE = (signal.SIGINT, signal.SIGTERM)


class _PlayerOutput(Output):
    """The output of a run in which a player who leaves is no failure."""

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        if failure.exit_code == 0:
            self.say(failure.message)
        elif failure.exit_code > _SIGNALED:
            self.complain(f"arena: {failure.message.partition(';')[0]}")  # the rest is about the records
        else:
            super().fail(failure)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Asks for each decision of a seat; all other seats play without learning, in this process."
    parser.add_argument("target", metavar="CONFIG_OR_RUN", help="a configuration file, or a run's folder")
    parser.add_argument(
        "--match", type=non_negative_int, default=0, metavar="M", help="a place in the list of matches (default: 0)"
    )
    parser.add_argument(
        "--seat",
        type=non_negative_int,
        action="append",
        metavar="S",
        help="a place in the match's seats; may be given several times (default: 0)",
    )
    parser.add_argument(
        "--advice", metavar="POLICY", help="show what this policy, as blue or blue@5000, thinks of the choices"
    )
    parser.add_argument(
        "--checkpoints", metavar="LABEL", help="of a run: first, last, best, or a number of ticks (default: last)"
    )
    parser.add_argument("--episodes", type=positive_int, default=1, metavar="N", help="play N episodes (default: 1)")
    parser.add_argument("--seed", type=non_negative_int, metavar="N", help="in place of the configuration's")
    parser.add_argument("--sample", action="store_true", help="the others sample their actions")
    parser.add_argument("--run-dir", metavar="DIR", help="keep the records in this folder (default: nothing is kept)")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays; returns the exit status."""
    folder = RunFolder.of_target(arguments.target)
    config = load_config(arguments.target if folder is None else folder.config)
    import_plugins(config.imports)
    if folder is None and arguments.checkpoints is not None:
        raise ConfigError(
            "a configuration has no checkpoints; name a run folder", path="--checkpoints", source=arguments.target
        )
    with located(source=arguments.target):
        label = "" if folder is None else arguments.checkpoints or "last"
        frozen = weights_of(config, folder, label).config
        refuse_external(frozen)
        advice, adviser = None, arguments.advice
        if adviser is not None and adviser in frozen.policies:
            advice = (adviser, frozen.policies[adviser])
        elif adviser is not None and "@" in adviser:
            advice = (adviser, policy_at(config, folder, adviser, path="--advice"))
        elif adviser is not None:
            raise ConfigError(f"no policy {adviser!r}; {nearest(adviser, frozen.policies)}", path="--advice")
        seats = arguments.seat or [0]
        played = _with_human(frozen, arguments.match, seats, episodes=arguments.episodes, advice=advice)
    if arguments.seed is not None:
        played = msgspec.structs.replace(played, seed=arguments.seed)
    with tempfile.TemporaryDirectory(prefix="arena-play-") as scratch:
        prepared = prepare(played, ranks=1, run_dir=arguments.run_dir or str(Path(scratch) / "run"))
        prepared = replace(prepared, episodes=arguments.episodes, greedy=not arguments.sample)
        return run_single_process(
            prepared,
            lambda _run, _scoreboard: None,
            silent_display(),
            output=_PlayerOutput(),
            watched=False,
            at_once=_AT_ONCE,
        )


def _with_human(
    config: Config, match: int, seats: Sequence[int], *, episodes: int, advice: tuple[str, PolicyConfig] | None
) -> Config:
    """The configuration of one match of one lane, in which a human has some seats; `advice`: name and policy."""
    entries = [entry for _, entry in config.entries()]
    if match >= len(entries):
        raise ConfigError(f"got {match}, but there are {len(entries)} matches; they count from 0", path="--match")
    entry = entries[match]
    for seat in seats:
        if seat >= len(entry.seats):
            raise ConfigError(
                f"got {seat}, but match {match} has {pluralize(len(entry.seats), 'seat')}; they count from 0",
                path="--seat",
            )
    free = ("human", *(f"human-{number}" for number in range(2, 1000)))
    name = next(name for name in free if name not in config.policies)
    options: dict[str, Any] = {"episodes": episodes, "named": len(set(seats)) > 1}
    if advice is not None:
        adviser, known = advice
        options["advice"] = {
            "name": adviser, "algorithm": known.algorithm, "options": dict(known.options), "load": known.load
        }  # fmt: skip
        configured(adviser, options["advice"])
    taken = tuple(reseated(seat, name) if place in seats else seat for place, seat in enumerate(entry.seats))
    alone: MatchConfig = msgspec.structs.replace(entry, seats=taken, lanes=1, copies=1, pipeline=1, env_kwargs={})
    others = {*map(policy_of, taken)} - {name}
    policies = {policy: config.policies[policy] for policy in config.policies if policy in others}
    env = config.envs[entry.env]
    wrappers = [[name, argument] for name, argument in env.wrapped_in]
    kwargs = {"make": env.make, "kwargs": {**env.kwargs, **entry.env_kwargs}, "wrappers": wrappers}
    return msgspec.structs.replace(
        config,
        policies={**policies, name: PolicyConfig(algorithm=_HUMAN, options=options)},
        matches=(alone,),
        envs={
            entry.env: msgspec.structs.replace(
                env, make="arena.cli.play.shown_game:RenderedGame", kwargs=kwargs, wrappers=()
            )
        },
        watchdog_s=_NO_LIMIT,
        env_timeout_s=None,
    )
