"""What every role of a run holds: the plan, the folder, and where the run begins. Pure data, sent to every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from arena import seeding
from arena.plan import MatchPlan, Plan, Role
from arena.records.folder import RunFolder


@dataclass(frozen=True)
class Past:
    """What a resumed run has on record from before; empty for a new one.

    Args:
        episodes: per (match, lane) that has any, how many episodes.
        updates: per policy that has any, how many updates.
        seconds: per policy that has updates, the `seconds` of the last one.
        words: what the user should know about going on, a line each.
    """

    episodes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One run of a plan.

    Args:
        plan: who plays whom.
        path: the run folder.
        source: the configuration file, for messages.
        config: the whole configuration as YAML, for the folder.
        made_folder: whether the folder was made for this run, so that it may be removed if the run cannot begin.
        start_tick: 0, or the tick at which a resumed run goes on.
        past: what a resumed run has on record from before that tick.
        restore: per policy the checkpoint whose state it takes on before it begins.
        episodes: each lane plays so many episodes, and the match ends when all have; None: the ticks decide.
        greedy: whether frozen policies take their best action rather than a random one.
        profile: whether every role measures where its time goes.
    """

    plan: Plan
    path: Path
    source: str = ""
    config: str = ""
    made_folder: bool = False
    start_tick: int = 0
    past: Past = field(default_factory=Past)
    restore: Mapping[str, Path] = field(default_factory=dict)
    episodes: int | None = None
    greedy: bool = False
    profile: bool = False

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """All roles; a role's address is its place here, whichever rank hosts it."""
        return self.plan.roles()

    @cached_property
    def _addresses(self) -> dict[Role, int]:
        return {role: address for address, role in enumerate(self.roles)}

    def address(self, role: Role) -> int:
        return self._addresses[role]

    def environment_seed(self, match: MatchPlan, lane: int) -> int:
        """The seed of a lane's game."""
        seed = seeding.environment_seed(self.plan.seed, entry=match.entry, copy=match.copy, lane=lane)
        return self._from_here(seed)

    def worker_seed(self, role: Role) -> int:
        """The seed of a worker's own stream: exploration, shuffling."""
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        match = self.plan.matches[role.match]
        policy = match.seats[role.seat].policy
        seed = seeding.worker_seed(self.plan.seed, policy=policy, entry=match.entry, copy=match.copy, seat=role.seat)
        return self._from_here(seed)

    def policy_seed(self, policy: str) -> int:
        """The seed that all workers of a policy share: initial weights."""
        return seeding.policy_seed(self.plan.seed, policy=policy)

    def _from_here(self, seed: int) -> int:
        """A resumed run must not see the games of its beginning again."""
        if self.start_tick == 0:
            return seed
        return int(np.random.SeedSequence([seed, self.start_tick]).generate_state(1)[0])

    def describe(self, role: Role) -> str:
        """A role in words, for messages: `worker of policy 'blue' in seat 0 of match 3`."""
        if role.match is None:
            return role.kind.value
        if role.seat is None:
            return f"{role.kind.value} of match {role.match} ({self.plan.matches[role.match].env!r})"
        return f"{role.kind.value} of policy {self.plan.seat(role).policy!r} in seat {role.seat} of match {role.match}"
