"""A run, as every role holds it: the plan, the folder, and where the run begins. Pure data, sent to every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.config.schema import Config
from arena.errors import Origin, OverriddenPlace
from arena.plan import seeding
from arena.plan.plan import MatchPlan, Plan, Role
from arena.records.folder import RunFolder
from arena.run.leg import Leg


@dataclass(frozen=True)
class Run:
    """One run of a plan.

    Args:
        plan: its matches, policies and ranks.
        path: the run folder.
        source: the configuration file, for messages.
        changed: the file, and what has changed the configuration since, for messages; empty: nothing has.
        changed_config: the whole configuration with all that has changed it; None: nothing has.
        recorded_change: what the resumed run has on record as changed at its boundary, by key path; None: no line.
        overridden: the places that `--set` filled, for messages.
        made_folder: whether the folder was made for this run, so that it may be removed if the run cannot begin.
        resumed: whether the folder holds an earlier part of this run.
        leg: what is played now.
        begun: whether the folder has the run's configuration: a role has played, before an evaluation or a restart.
        concluded: whether nothing is left to play.
        words: lines for the user about a run that is resumed.
        ticks_before: of all matches of earlier rounds together.
        episodes: the number of episodes that each lane plays, after which the match ends; None: the ticks decide. A
            round of episodes leaves nothing but its games: the next one begins at the tick that it has reached.
        greedy: whether frozen policies take their best action rather than a random one.
        sampled: frozen policies that sample their actions even if `greedy`.
        profile: whether every role measures its time.
        has_resume: whether the command that plays it has a `--resume`.
        held: whether a program holds the run, which gets it back at each boundary.
    """

    plan: Plan
    path: Path
    source: str = ""
    changed: str = ""
    changed_config: Config | None = None
    recorded_change: Mapping[str, Any] | None = None
    made_folder: bool = False
    resumed: bool = False
    leg: Leg = field(default_factory=Leg)
    begun: bool = False
    concluded: bool = False
    words: tuple[str, ...] = ()
    ticks_before: int = 0
    episodes: int | None = None
    greedy: bool = False
    sampled: frozenset[str] = frozenset()
    profile: bool = False
    has_resume: bool = True
    held: bool = False
    overridden: tuple[OverriddenPlace, ...] = ()

    def after(self, leg: Leg) -> Run:
        """The run as it continues from a boundary; an evaluation before the first tick does not make it begun."""
        moves, concluded = leg.start > self.leg.start, leg.start >= self.plan.horizon
        recorded = None if moves else self.recorded_change
        return replace(self, leg=leg, begun=self.begun or moves, concluded=concluded, recorded_change=recorded)

    @property
    def staged(self) -> bool:
        """Whether it is played in several parts over the same processes, see `Plan.staged`."""
        return self.held or self.plan.staged

    @property
    def origin(self) -> Origin:
        """What errors in the configuration are blamed on: the newest change, else the overrides and the file."""
        return Origin(self.changed) if self.changed else Origin(self.source, self.overridden)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def total_ticks(self) -> int:
        """Of all matches together at the end, if later rounds have as many matches as this one; none has more."""
        return self.ticks_before + len(self.plan.matches) * (self.plan.horizon - self.plan.start)

    @property
    def first_ticks(self) -> dict[int, int]:
        """Per match the tick at which it begins."""
        return {match.match: self.leg.start for match in self.plan.matches}

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """All roles; a role's address is its index here, on whatever rank it is."""
        return self.plan.roles()

    @cached_property
    def _addresses(self) -> dict[Role, int]:
        return {role: address for address, role in enumerate(self.roles)}

    def address(self, role: Role) -> int:
        return self._addresses[role]

    def environment_seed(self, match: MatchPlan, lane: int) -> int:
        """The seed of a lane's game."""
        seed = seeding.environment_seed(self.plan.config.seed, entry=match.entry, copy=match.copy, lane=lane)
        return self._from_here(seed)

    def worker_seed(self, role: Role) -> int:
        """The seed of a worker's own stream: exploration, shuffling."""
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        match = self.plan.matches[role.match]
        policy = match.seats[role.seat].policy
        seed = seeding.worker_seed(
            self.plan.config.seed, policy=policy, entry=match.entry, copy=match.copy, seat=role.seat
        )
        return self._from_here(seed)

    def policy_seed(self, policy: str) -> int:
        """The seed that all workers of a policy share: initial weights."""
        return seeding.policy_seed(self.plan.config.seed, policy=policy)

    def _from_here(self, seed: int) -> int:
        """Every leg has its own streams: it does not repeat the games of another leg."""
        tick = self.leg.start
        return seed if tick == 0 else int(np.random.SeedSequence([seed, tick]).generate_state(1)[0])

    def describe(self, role: Role) -> str:
        """A role in words, for messages: `worker of policy 'blue' in seat 0 of match 3`."""
        if role.match is None:
            return role.kind.value
        if role.seat is None:
            return f"{role.kind.value} of match {role.match} ({self.plan.matches[role.match].env!r})"
        return f"{role.kind.value} of policy {self.plan.seat(role).policy!r} in seat {role.seat} of match {role.match}"


class Stage(NamedTuple):
    """A part of a run that is played over the same processes as the parts before.

    Args:
        run: as it continues.
        evaluation: what is played before that, if anything.
    """

    run: Run
    evaluation: Run | None = None
