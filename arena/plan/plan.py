"""The plan of a run: which rank plays which roles.

    rank 0                       root
    then, match after match      its environment, followed by its workers in the order of the seats

Ranks only host roles: where there are fewer ranks than roles, `arena.plan.placement` says which rank hosts which, and
with `ranks=1` rank 0 hosts them all. The order of the roles is the same for every number of ranks, and so is everything
that follows from it: addresses, ranks in the groups, seeds. A plan is plain frozen data, which is pickled to every
rank: the configuration, and what planning adds to it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from arena.config.matches import Match
from arena.config.members import may_be_frozen
from arena.config.schema import Config, Env, Policy
from arena.errors import ConfigError

Entity = int | str
"""An entity as the configuration names it: its index in the environment, or its name."""

UNBOUNDED_TICKS = 2**40
"""Tick limit of a run that ends after a number of episodes."""
_RESULTS = 50  # of a run, about, where the configuration says nothing


class RoleKind(str, Enum):
    """What a role does for a run."""

    ROOT = "root"
    ENVIRONMENT = "environment"
    WORKER = "worker"


@dataclass(frozen=True)
class Role:
    """A part of a run: the root, the environment of a match, or the worker of a seat of a match."""

    kind: RoleKind
    match: int | None = None
    seat: int | None = None


ROOT = Role(RoleKind.ROOT)


@dataclass(frozen=True)
class SeatPlan:
    """The place of one worker in a match, and the entities that it drives together."""

    index: int
    policy: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True)
class MatchPlan:
    """One running game.

    `entry` counts the match descriptions after round robins are written out; all copies of a description share it.
    Seeds derive from (entry, copy), so they do not change when later descriptions are added or removed.
    """

    match: int
    entry: int
    copy: int
    config: Match  # the description
    game: Env  # of its environment; its `kwargs` have the description's `env_kwargs` in them
    seats: tuple[SeatPlan, ...]
    path: str = ""  # where in the configuration the description stands, as `matches[0]`

    @property
    def env(self) -> str:
        """The name of its environment in the configuration."""
        return self.config.env

    @property
    def lanes(self) -> int:
        return self.config.lanes

    @cached_property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """The seats of each side; empty: unknown."""
        return self.config.known_sides

    @property
    def blocks(self) -> tuple[range, ...]:
        """The lanes of each block; sizes differ by at most one, larger blocks come first."""
        ends = [-(-self.lanes * part // self.config.pipeline) for part in range(self.config.pipeline + 1)]
        return tuple(range(*edges) for edges in itertools.pairwise(ends))

    def team_of(self, seat: int) -> tuple[str, int | None, int | None]:
        """A key of the team of a seat's policy in this match, see `Plan.teams`."""
        side = next((place for place, side in enumerate(self.sides) if seat in side), None)
        return self.seats[seat].policy, side, seat if len(self.seats[seat].entities) > 1 else None

    def seat_path(self, seat: int) -> str:
        """Where in the configuration a seat stands; a generator lists no seats."""
        return f"{self.path}.seats[{seat}]" if self.path.endswith(("]", "evaluation")) else self.path


@dataclass(frozen=True)
class PolicyPlan:
    """A policy and its workers as (match, seat), in the order of their ranks in the group."""

    name: str
    config: Policy
    workers: tuple[tuple[int, int], ...] = ()


class Learner(NamedTuple):
    """A worker, or all workers of a team, whose samples are learned from together."""

    workers: tuple[int, ...]  # group ranks
    rows: int  # that it learns from on a tick


@dataclass(frozen=True)
class Plan:
    """Everything that the ranks have to agree on before a run.

    What follows from it is computed once and shared by all roles of a process: thousands of workers of one policy may
    share a process, and a copy as long as the plan for each of them would take more memory than all else.
    """

    config: Config  # that the run was planned from; what a later round plays is in `matches` and `policies`
    policies: dict[str, PolicyPlan]  # by name, those of this round
    matches: tuple[MatchPlan, ...]  # of this round
    ranks: tuple[tuple[Role, ...], ...]  # [world rank]
    round: int = 0
    hosts: tuple[str, ...] = ()  # [world rank] on which it runs; empty: all on one

    @property
    def ticks(self) -> int:
        """The last tick of this round. All rounds are equally long."""
        return self.config.ticks * (self.round + 1)

    @property
    def start(self) -> int:
        """The tick at which this round begins."""
        return self.config.ticks * self.round

    @property
    def horizon(self) -> int:
        """The ticks of all rounds together."""
        return self.config.ticks * self.config.round_count

    @cached_property
    def result_every(self) -> int:
        """The ticks between two results.

        By default about a fiftieth of the run, a divisor of a leg if one is near; at most a leg: each boundary has a
        result.
        """
        if self.config.results.every is not None:
            return self.config.results.every
        leg, about = min(self.config.checkpoint_every, self.config.ticks), max(1, self.horizon // _RESULTS)
        if about >= leg:
            return leg
        parts = min(range(1, 2 * _RESULTS), key=lambda parts: (leg % parts > 0, abs(math.log(leg / parts / about))))
        return leg // parts if 2 / 3 <= leg / parts / about <= 3 / 2 else about

    def acts(self, policy: PolicyPlan) -> bool:
        """Whether a policy plays without learning, always, when it is evaluated, or as a snapshot."""
        return policy.config.frozen or self.config.evaluation is not None or policy.name in self.snapshotted

    @cached_property
    def snapshotted(self) -> frozenset[str]:
        """The policies of which snapshots may play in later rounds."""
        return may_be_frozen(self.config)

    def evaluates_at(self, tick: int) -> bool:
        """Whether the policies are evaluated at a boundary: every `evaluate_every` ticks, and at the end."""
        evaluation = self.config.evaluation
        return evaluation is not None and tick > 0 and (tick % evaluation.every == 0 or tick >= self.horizon)

    def refuse_fragile(self, policies: Sequence[str]) -> None:
        """Refuses policies, at least one, whose learning state cannot be saved and loaded, if the run needs that."""
        needs = {
            "evaluation": self.config.evaluation is not None and "cannot be evaluated before the run's last tick",
            "curriculum": self.config.curriculum is not None and "cannot go on in another game",
            "rounds": self.config.round_count > 1 and "would end with a round",
        }
        for path, why in needs.items():
            if why:
                raise ConfigError(
                    f"is asked for, but what {' and '.join(map(repr, policies))} learns {why}: its algorithm has no "
                    "state_dict() and load_state_dict()",
                    path=path,
                )

    @property
    def processes(self) -> int:
        """How many ranks the plan has, idle ones included."""
        return len(self.ranks)

    @property
    def idle_ranks(self) -> tuple[int, ...]:
        """The ranks that have nothing to do."""
        return tuple(rank for rank, roles in enumerate(self.ranks) if not roles)

    @cached_property
    def environment_ranks(self) -> tuple[int, ...]:
        """The ranks that host environments."""
        kind = RoleKind.ENVIRONMENT
        return tuple(rank for rank, roles in enumerate(self.ranks) if any(role.kind is kind for role in roles))

    @property
    def packed(self) -> bool:
        """Whether some rank hosts several roles."""
        return any(len(roles) > 1 for roles in self.ranks)

    def roles(self, kind: RoleKind | None = None) -> tuple[Role, ...]:
        """All roles of a kind (or of every kind): the root, then match by match the environment and its workers."""
        return self._roles if kind is None else tuple(role for role in self._roles if role.kind is kind)

    def address(self, role: Role) -> int:
        """The address of a role on whatever rank it is: its index in `roles()`."""
        return self._addresses[role]

    def players(self) -> tuple[str, ...]:
        """The policies that play, frozen ones last: those with a seat, and in a run of several rounds all."""
        playing = [name for name, policy in self.policies.items() if policy.workers or self.config.round_count > 1]
        return tuple(sorted(playing, key=lambda name: self.policies[name].config.frozen))

    def rank_of(self, role: Role) -> int:
        """The world rank that hosts a role."""
        return self._rank_of[role]

    def place(self, rank: int) -> str:
        """A rank in words, for messages; of a run over several hosts with its host: `rank 5 on n1`."""
        return place(rank, self.hosts)

    @property
    def crossing(self) -> int:
        """How many matches have roles on several hosts: the steps of these matches go over the network."""
        found = {
            (role.match, self.hosts[rank]) for rank, roles in enumerate(self.ranks) for role in roles if self.hosts
        }
        return sum(count > 1 for match, count in Counter(match for match, _ in found).items() if match is not None)

    def seat(self, role: Role) -> SeatPlan:
        """The seat of a worker's role."""
        if role.match is None or role.seat is None:
            raise ValueError(f"{role} has no seat; only workers have one")
        return self.matches[role.match].seats[role.seat]

    @cached_property
    def _roles(self) -> tuple[Role, ...]:
        return all_roles(self.matches)

    @cached_property
    def _addresses(self) -> dict[Role, int]:
        return {role: address for address, role in enumerate(self._roles)}

    @cached_property
    def teams(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """By policy the ranks of its workers in their group, team by team, in the order of their seats.

        The workers on one side of a match that drive one entity each are a team; a worker that drives several entities
        is a team of its own.
        """
        found = {}
        for name, policy in self.policies.items():
            teams: dict[tuple[int, tuple[str, int | None, int | None]], list[int]] = {}
            for rank, (number, seat) in enumerate(policy.workers):
                teams.setdefault((number, self.matches[number].team_of(seat)), []).append(rank)
            found[name] = tuple(map(tuple, teams.values()))
        return found

    @cached_property
    def members(self) -> dict[str, tuple[int, ...]]:
        """By policy the addresses of its workers, in the order of their ranks in the group."""
        return {
            name: tuple(self.address(Role(RoleKind.WORKER, *worker)) for worker in policy.workers)
            for name, policy in self.policies.items()
        }

    @cached_property
    def learners(self) -> dict[tuple[str, bool], tuple[Learner, ...]]:
        """Learners by policy: true: its teams, with a row per lane; false: its workers, lanes x entities rows each."""
        found = {}
        for name, policy in self.policies.items():
            played = [(self.matches[match], seat) for match, seat in policy.workers]
            found[name, True] = tuple(Learner(team, played[team[0]][0].lanes) for team in self.teams[name])
            found[name, False] = tuple(
                Learner((rank,), match.lanes * len(match.seats[seat].entities))
                for rank, (match, seat) in enumerate(played)
            )
        return found

    @cached_property
    def _rank_of(self) -> dict[Role, int]:
        return {role: rank for rank, roles in enumerate(self.ranks) for role in roles}


def place(rank: int, hosts: Sequence[str]) -> str:
    """See `Plan.place`; `hosts`: see `Plan`."""
    return f"rank {rank}{f' on {hosts[rank]}' if hosts else ''}"


def roles_of(match: MatchPlan) -> tuple[Role, ...]:
    """The environment of a match, and its workers in the order of the seats."""
    workers = (Role(RoleKind.WORKER, match.match, seat.index) for seat in match.seats)
    return (Role(RoleKind.ENVIRONMENT, match.match), *workers)


def all_roles(matches: Iterable[MatchPlan]) -> tuple[Role, ...]:
    """The root, then match by match the environment and its workers."""
    return (ROOT, *(role for match in matches for role in roles_of(match)))
