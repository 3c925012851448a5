"""A run as all its roles get it: the plan, the folder, and the leg that is played. Pure data, sent to every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.config.schema import Config
from arena.diagnostics.profile import StoppedWatch, Stopwatch
from arena.errors import Origin, OverriddenPlace
from arena.plan import seeding
from arena.plan.plan import MatchPlan, Plan, Role
from arena.records.folder import RunFolder
from arena.transport import Endpoint

if TYPE_CHECKING:
    from arena.records.checkpoint import StatePlace
    from arena.records.formats import Boundary


@dataclass(frozen=True)
class Leg:
    """A part of a run, from one tick at which everything is saved to the next.

    At its end every match has played the same number of ticks, unfinished episodes are cut, and all roles end; the next
    leg creates them again from what was saved. So a run that is resumed, or rolled back to its newest boundary after
    the death of a process, is the same as an uninterrupted run. Workers are named as (match, seat).
    """

    start: int = 0  # the tick at which it begins
    episodes: Mapping[tuple[int, int], int] = field(default_factory=dict)  # on record, per (match, lane) that has any
    updates: Mapping[str, int] = field(default_factory=dict)  # how many, per policy that has any
    seconds: Mapping[str, float] = field(default_factory=dict)  # the `seconds` of the last update of each policy
    left: frozenset[tuple[int, int]] = frozenset()  # the workers whose `run` has returned: their seats idle
    restore: Mapping[str, Path] = field(default_factory=dict)  # per policy the checkpoint that it is loaded from
    private_states: Mapping[tuple[int, int], StatePlace] = field(default_factory=dict)  # of the workers that have one


@dataclass(frozen=True)
class Run:
    """One run of a plan. Not to be confused with its state in a process, which changes: `RunState`."""

    plan: Plan
    path: Path  # the run folder
    source: str = ""  # the configuration file, for messages
    changed: str = ""  # the file, and what has changed the configuration since, for messages; empty: nothing has
    changed_config: Config | None = None  # the whole configuration with all that has changed it; None: nothing has
    recorded_change: Mapping[str, Any] | None = None  # on record at the boundary of a resumed run; None: no line
    renewed: Mapping[str, Any] = field(default_factory=dict)  # all options of policies of another algorithm than before
    made_folder: str = ""  # the outermost one made for this run, to be removed if it cannot begin; empty: none
    resumed: bool = False  # the folder holds an earlier part of this run
    leg: Leg = field(default_factory=Leg)  # what is played now
    begun: bool = False  # the folder has the run's configuration: a role has played, before an evaluation or a restart
    concluded: bool = False  # nothing is left to play
    text: tuple[str, ...] = ()  # lines for the user about a run that is resumed
    ticks_before: int = 0  # of all matches of earlier rounds together
    #: The number of episodes that each lane plays, after which the match ends; None: the ticks decide. A round of
    #: episodes leaves nothing but its games: the next one begins at the tick that it has reached.
    episodes: int | None = None
    greedy: bool = False  # frozen policies take their best action rather than a random one
    seeded: bool = False  # every episode has a seed of its own, whatever was played before it
    sampled: frozenset[str] = frozenset()  # frozen policies that sample their actions even if `greedy`
    profile: bool = False  # every role measures its time
    tried: bool = False  # by `arena check`: it ends at the first boundary, and refuses actions that masks forbid
    has_resume: bool = True  # the command that plays it has a `--resume`
    controlled: bool = False  # by a program, which gets the run back at each boundary
    evaluated: Run | None = None  # the run whose policies are evaluated; None: this is no evaluation
    overridden: tuple[OverriddenPlace, ...] = ()  # the places that `--set` filled, for messages

    def after(self, leg: Leg) -> Run:
        """The run as it continues from a boundary; an evaluation before the first tick does not make it begun."""
        moves, last = leg.start > self.leg.start, self.plan.round + 1 >= self.plan.config.round_count
        concluded = leg.start >= self.plan.horizon or (self.episodes is not None and last)
        recorded = None if moves else self.recorded_change
        return replace(self, leg=leg, begun=self.begun or moves, concluded=concluded, recorded_change=recorded)

    @property
    def origin(self) -> Origin:
        """What errors in the configuration are blamed on: the newest change, else the overrides and the file."""
        return Origin(self.changed) if self.changed else Origin(self.source, self.overridden)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def total_ticks(self) -> int:
        """Of all matches together at the end, if later rounds have as many as this one, or as few as a resume asks."""
        plan, here = self.plan, len(self.plan.matches)
        later = min(here, sum(match.copies for _, match in plan.config.entries()))
        return self.ticks_before + here * (plan.ticks - plan.start) + later * (plan.horizon - plan.ticks)

    @property
    def first_ticks(self) -> dict[int, int]:
        """Per rank that hosts environments the tick at which its matches begin."""
        return dict.fromkeys(self.plan.environment_ranks, self.leg.start)

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles; a role's address is its index here, on whatever rank it is."""
        return self.plan.roles()

    def address(self, role: Role) -> int:
        return self.plan.address(role)

    def environment_seed(self, match: MatchPlan, lane: int) -> int:
        """The seed of a lane's game."""
        seed = seeding.environment_seed(self.plan.config.seed, entry=match.entry, copy=match.copy, lane=lane)
        return self._from_here(seed)

    def worker_seed(self, role: Role) -> int:
        """The seed of a worker's own stream: exploration, shuffling."""
        seat = self.plan.seat(role)
        match = self.plan.matches[role.match or 0]
        seed = seeding.worker_seed(
            self.plan.config.seed, policy=seat.policy, entry=match.entry, copy=match.copy, seat=seat.index
        )
        return self._from_here(seed)

    def policy_seed(self, policy: str) -> int:
        """The seed that all workers of a policy share: initial weights."""
        return seeding.policy_seed(self.plan.config.seed, policy=policy)

    def _from_here(self, seed: int) -> int:
        """Every leg has its own streams: it does not repeat the games of another leg."""
        tick = self.leg.start
        return seed if tick == 0 else int(np.random.SeedSequence([seed, tick]).generate_state(1)[0])

    def stopwatch(self, endpoint: Endpoint) -> Stopwatch:
        """Measures the time of a role; measures nothing unless the run is profiled.

        A role that has its process for itself owns also the CPU time of the other threads, such as torch's.
        """
        return Stopwatch(processor=endpoint.cpu_time) if self.profile else StoppedWatch()

    def describe(self, role: Role) -> str:
        """A role in words, for messages: `worker of policy 'blue' in seat 0 of match 3`."""
        if role.match is None:
            return role.kind.value
        if role.seat is None:
            return f"{role.kind.value} of match {role.match} ({self.plan.matches[role.match].env!r})"
        return f"{role.kind.value} of policy {self.plan.seat(role).policy!r} in seat {role.seat} of match {role.match}"

    def names(self, roles: Iterable[Role]) -> dict[int, str]:
        """The descriptions of roles, by their addresses."""
        return {self.address(role): self.describe(role) for role in roles}

    def resume_hint(self, place: str = "", *, resumable: bool = True) -> str:
        """How the run can be continued after an early end, from its newest boundary if no `place` is given.

        `resumable`: whether all algorithms can be saved.
        """
        if not self.has_resume:
            return "it cannot be resumed"
        if not resumable:
            return "it cannot be resumed: what some algorithm has learned cannot be saved and loaded"
        from arena.records.boundary import newest_tick  # slow to import, and seldom needed

        return f"--resume goes on from {place or f'tick {newest_tick(self.folder) or 0}'}"


def leg_at(boundary: Boundary, folder: RunFolder) -> Leg:
    """The leg that begins at a boundary of a run."""
    return Leg(
        start=boundary.tick,
        episodes={(match, lane): count for match, lane, count in boundary.episodes},
        updates=boundary.updates,
        seconds=boundary.seconds,
        left=frozenset(boundary.left),
        restore={name: boundary.checkpoint(folder, name) for name in boundary.checkpoints},
    )
