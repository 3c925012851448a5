"""`arena plan --probe`: measures two seconds of a plan's first match, and predicts the speed and memory of the plan.

    game      seconds that the game takes for one tick of all lanes
    step      seconds that one worker's step takes with random actions: its proxy, its action, its messages
    memory    MiB that a process has for itself, measured in a fresh one: see `Memory`

The time of the algorithms, to act or to learn, is not measured: two seconds are too short to be typical.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena import registry
from arena.config.fields import ONLY_ACT
from arena.config.schema import Policy
from arena.diagnostics.profile import Activity
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, Deadlock, pluralize
from arena.plan.plan import MatchPlan, Plan, PolicyPlan, RoleKind, all_roles
from arena.records.folder import RunFolder
from arena.records.formats import ProfileFile, read_document
from arena.roles.protocol import RoleFailed
from arena.roles.run import Run
from arena.run.loop import in_one_process
from arena.terminal.display import SilentDisplay
from arena.transport.pickling import pack, unpack

_FIRST_TICKS = 50
_SECONDS = 1.5  # of play, after the first ticks
_SMAPS = Path("/proc/self/smaps_rollup")


class Memory(NamedTuple):
    """MiB of a process that it shares with no other process, without the memory of MPI."""

    arena: float  # every process
    game: float  # more where a match's environment is
    further_game: float  # more for each further environment
    algorithms: float  # more where workers with an algorithm that may need torch are


class Probe(NamedTuple):
    """The measurements; times in seconds."""

    match: MatchPlan
    ticks: int
    game: float
    step: float
    memory: Memory


class Prediction(NamedTuple):
    """The prediction for a plan."""

    ticks_per_second: float  # of all matches together
    memory: tuple[float, ...]  # [rank] MiB


class _PlayClock(SilentDisplay):
    """A display that shows nothing and measures how long the match plays."""

    def start(self) -> None:
        self._begun = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._begun


def probe(plan: Plan) -> Probe:
    """Plays the first match of a plan in this process, with random actions in all seats."""
    match = plan.matches[0]
    if registry.external_kind(match.game.make) is not None:
        text = f"the games of {match.env!r} come from outside: how fast they are cannot be measured here"
        raise ConfigError(text, path="--probe")
    seconds, _ = _play(plan, match, _FIRST_TICKS)
    ticks = max(_FIRST_TICKS, int(_FIRST_TICKS * _SECONDS / seconds))
    seconds, in_game = _play(plan, match, ticks)
    algorithms = {policy.config.algorithm for policy in plan.policies.values() if policy.workers}
    if not _SMAPS.exists():
        raise ConfigError(f"the probe reads {_SMAPS}, which this system does not have", path="--probe")
    done = subprocess.run(
        [sys.executable, "-c", "from arena.cli.probe import weigh_here; weigh_here()"],
        input=pack((match, sorted(algorithms - ONLY_ACT))),
        cwd=anchored("."),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(f"the probe's process failed: {done.stderr.decode(errors='replace')}", path="--probe")
    memory = Memory(*json.loads(done.stdout.splitlines()[-1]))
    return Probe(match, ticks, in_game / ticks, (seconds - in_game) / ticks / len(match.seats), memory)


def _play(plan: Plan, match: MatchPlan, ticks: int) -> tuple[float, float]:
    """Seconds that a match took, and those of them in which its game ran."""
    seats = {name: tuple((0, seat.index) for seat in match.seats if seat.policy == name) for name in plan.policies}
    policies = {name: PolicyPlan(name, Policy(algorithm="random"), workers) for name, workers in seats.items()}
    config = msgspec.structs.replace(plan.config.games_alone(), ticks=ticks, loggers=(), rounds=1)
    small = Plan(config, policies, (match,), ranks=(all_roles([match]),))
    clock = _PlayClock()
    with tempfile.TemporaryDirectory() as home:
        folder = RunFolder.open(Path(home) / "probe", named=True)
        try:
            in_one_process(Run(small, folder.path, profile=True), clock)
        except (RoleFailed, Deadlock) as error:
            raise ConfigError(f"the first match cannot be played: {error}", path="--probe") from error
        profiles = read_document(folder.profile, ProfileFile).roles
    in_game = sum(profile.seconds.get(Activity.ENVIRONMENT.value, 0.0) for profile in profiles)
    return clock.seconds, in_game


def weigh_here() -> None:
    """The program of the fresh process: reads a match and algorithms from stdin, writes the fields of `Memory`."""

    def unshared() -> float:
        """MiB that this process has written to: every further process like it needs as much."""
        rows = (line.split() for line in _SMAPS.read_text().splitlines())
        return sum(int(row[1]) for row in rows if row[0] == "Private_Dirty:") / 1024

    match, algorithms = unpack(sys.stdin.buffer.read())
    sizes, games = [unshared()], []
    for _ in range(2):
        games.append(
            registry.adapt_environment(
                match.game.make, match.game.kwargs, match.lanes, match.game.wrapped_in, screen=match.game.screen
            )
        )
        sizes.append(unshared())
    for name in algorithms:
        registry.algorithm(name)
    sizes.append(unshared())
    parts = [sizes[0], *(after - before for before, after in pairwise(sizes))]
    sys.stdout.write(f"\n{json.dumps(parts)}\n")


def predict(plan: Plan, found: Probe, *, cores: int) -> Prediction:
    """The speed and memory of a plan, if all its matches are like the measured one.

    A round, one tick of every match, cannot be shorter than the work of the busiest rank, than all work shared by
    the cores, or than a game's tick and one worker's step after it.
    """
    seconds = {RoleKind.ROOT: 0.0, RoleKind.ENVIRONMENT: found.game, RoleKind.WORKER: found.step}
    busy = [sum(seconds[role.kind] for role in roles) for roles in plan.ranks]
    longest = max(max(busy), sum(busy) / cores, found.game + found.step)
    memory = []
    for roles in plan.ranks:
        games = sum(role.kind is RoleKind.ENVIRONMENT for role in roles)
        policies = {plan.seat(role).policy for role in roles if role.kind is RoleKind.WORKER}
        learns = {plan.policies[name].config.algorithm for name in policies} - ONLY_ACT
        size = found.memory.arena + (found.memory.game + (games - 1) * found.memory.further_game if games else 0.0)
        memory.append(size + (found.memory.algorithms if learns else 0.0))
    return Prediction(len(plan.matches) / longest, tuple(memory))


def probe_text(plan: Plan, found: Probe) -> str:
    """The measurements, the prediction for this machine, and its assumptions."""
    cores = len(os.sched_getaffinity(0))
    expected = predict(plan, found, cores=cores)
    low, high, total = min(expected.memory), max(expected.memory), sum(expected.memory)
    each = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    processes = pluralize(plan.processes, "process", "processes")
    again = min(plan.config.checkpoint_every, plan.ticks)
    return "\n".join(
        [
            f"probe: {found.ticks} ticks of match {found.match.match} ({found.match.env}) with random actions in one "
            f"process: {1e6 * found.game:.0f} us per tick of the game, {1e6 * found.step:.0f} us per step of a worker",
            f"predicted for {processes} on {pluralize(cores, 'core')}: at most "
            f"{expected.ticks_per_second:.0f} match ticks/s; {each} MiB of unshared memory per process, "
            f"{total:.0f} MiB in all",
            f"after the death of a process at most {pluralize(again, 'tick')} are played again, for at least "
            f"{again * len(plan.matches) / expected.ticks_per_second:.1f} s: `checkpoint_every` bounds them",
            "the model: all matches are like this one; a tick of them all takes as long as the busiest process works "
            "for it, or all work on all cores. On top come networks that act and learn, MPI's own memory, and messages "
            "between processes: many more processes than cores reach half of it or less",
        ]
    )
