"""The plan of a run: which rank plays which roles.

    rank 0                       root
    then, match after match      its environment, followed by its workers in the order of the seats

Ranks only host roles: where there are fewer ranks than roles, `arena.plan.placement` says which rank hosts which, and
with `ranks=1` rank 0 hosts them all. The order of the roles is the same for every number of ranks, and so is everything
that follows from it: addresses, ranks in the groups, seeds. A plan is plain frozen data: it is pickled to every rank,
and holding one needs neither the configuration's modules nor MPI.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal

from arena.errors import ConfigError

Entity = int | str
"""An entity as the configuration names it: its index in the environment, or its name."""

OutcomeRule = Literal["info", "zero_sum", "higher_return", "none"]
"""How the winner of an episode is determined: see `arena.records.outcome`."""

ONLY_ACT = frozenset(
    {"random", "scripted", "arena.cli.play.human:Human"}
)  # algorithms that never learn and need no torch
MOST_ROLES = 50_000
"""The most roles, and the most processes, of a run: larger plans are typing errors, and take long to build."""


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
class TickRules:
    """When a tick is formed and when a game is given up: the key `external` of an entry of `envs`. Times in seconds.

    Args:
        max_delay_s: a tick is formed at the latest this long after the first message that belongs to it.
        min_asking: a tick is formed sooner only if at least so many games ask.
        idle_s: a game that owes a request is lost after this silence.
        answer_s: a request without an answer ends its game after this time.
        idle_tick_s: an empty tick is played after this time without a message; None: never.
        close_s: how long games may take to leave at the end.
    """

    max_delay_s: float = 0.002
    min_asking: int = 1
    idle_s: float = 60.0
    answer_s: float = 30.0
    idle_tick_s: float | None = None
    close_s: float = 5.0


@dataclass(frozen=True)
class MatchPlan:
    """One running game.

    `entry` counts the match descriptions after round robins are written out; all copies of a description share it.
    Seeds derive from (entry, copy), so they do not change when later descriptions are added or removed.
    """

    match: int
    entry: int
    copy: int
    env: str
    make: str
    env_kwargs: dict[str, Any]
    lanes: int
    seats: tuple[SeatPlan, ...]
    idle_action: Any = None
    wrappers: tuple[tuple[str, Any], ...] = ()  # name and argument of each, the innermost first; None: no argument
    path: str = ""  # where in the configuration the description stands, as `matches[0]`
    pipeline: int = 1  # number of blocks in which the lanes are stepped, one after the other
    sides: tuple[tuple[int, ...], ...] = ()  # the seats of each side; empty: unknown
    outcome: OutcomeRule | None = None  # how the winner is determined
    external: TickRules | None = None  # of external games; None: the rules by default, if the games are external
    screen: str | None = None  # the kind of virtual screen that the game needs; None: none

    @property
    def blocks(self) -> tuple[range, ...]:
        """The lanes of each block; sizes differ by at most one, larger blocks come first."""
        ends = [-(-self.lanes * part // self.pipeline) for part in range(self.pipeline + 1)]
        return tuple(range(*edges) for edges in itertools.pairwise(ends))

    def seat_path(self, seat: int) -> str:
        """Where in the configuration a seat stands; a generator lists no seats."""
        return f"{self.path}.seats[{seat}]" if self.path.endswith(("]", "evaluation")) else self.path


@dataclass(frozen=True)
class PolicyPlan:
    """A policy and its workers as (match, seat), in the order of their ranks in the group."""

    name: str
    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)
    color: str | None = None
    frozen: bool = False
    load: str | None = None
    sync: str = "gradients"
    reduce: str = "ordered"
    max_lag: int = 2
    workers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CallbackPlan:
    """A callback class, `package.module:Class`, or a logger, which may have a short name, and its options."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StopRule:
    """A bound of a number of the results: the run ends when a result meets it.

    Args:
        key: a path through a result, with `/`.
        bound: the number.
        at_least: whether values from the bound on meet it; else values up to the bound.
    """

    key: str
    bound: float
    at_least: bool = True

    @property
    def words(self) -> str:
        """The rule, as `ticks >= 500`."""
        return f"{self.key} {self._sign} {self.bound:.15g}"

    def met_words(self, value: float) -> str:
        """That a value meets the rule, as `ticks 512 >= 500`."""
        return f"{self.key} {value:.6g} {self._sign} {self.bound:.15g}"

    @property
    def _sign(self) -> str:
        return ">=" if self.at_least else "<="

    def is_met(self, value: float) -> bool:
        """Whether a value meets the rule; NaN never does."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class BestPlan:
    """The number in the results by which the best boundary is kept, and whether the highest is the best."""

    metric: str
    highest: bool = True

    def is_better(self, value: float, before: float) -> bool:
        """Whether a value is better than an earlier one; equal values are not."""
        return value > before if self.highest else value < before


@dataclass(frozen=True)
class ResultsPlan:
    """When a result is made, in ticks, and the least number of episodes in its means."""

    every: int = 10_000
    smoothing: int = 100


@dataclass(frozen=True)
class Plan:
    """Everything that the ranks have to agree on before a run. `ranks[r]` are the roles of world rank r."""

    name: str
    seed: int
    ticks: int
    checkpoint_every: int
    transport: str
    policies: dict[str, PolicyPlan]
    matches: tuple[MatchPlan, ...]
    ranks: tuple[tuple[Role, ...], ...]
    watchdog_s: float = 60.0
    env_timeout_s: float | None = None
    on_env_error: str = "stop"
    fault_tolerance: str = "auto"
    spares: int = 0
    record: str = "nothing"
    evaluate_every: int | None = None  # ticks
    imports: tuple[str, ...] = ()  # modules that register names
    callbacks: tuple[CallbackPlan, ...] = ()
    loggers: tuple[CallbackPlan, ...] = ()
    stop: tuple[StopRule, ...] = ()
    best: BestPlan | None = None
    curriculum: CallbackPlan | None = None
    results: ResultsPlan = field(default_factory=ResultsPlan)
    round: int = 0
    rounds: int = 1
    snapshotted: frozenset[str] = frozenset()  # policies of which snapshots may play in later rounds

    @property
    def horizon(self) -> int:
        """The ticks of all rounds together; `ticks` is the last tick of this round. All rounds are equally long."""
        return self.ticks // (self.round + 1) * self.rounds

    @property
    def start(self) -> int:
        """The tick at which this round begins."""
        return self.ticks // (self.round + 1) * self.round

    @property
    def staged(self) -> bool:
        """Whether the run is played in several parts over the same processes: rounds, or evaluations between legs.

        A run with stop rules or a curriculum counts too: between two parts it may end, or its configuration may change.
        """
        return self.rounds > 1 or self.evaluate_every is not None or bool(self.stop) or self.curriculum is not None

    def acts(self, policy: PolicyPlan) -> bool:
        """Whether a policy plays without learning, always, when it is evaluated, or as a snapshot."""
        return policy.frozen or self.evaluate_every is not None or policy.name in self.snapshotted

    def evaluates_at(self, tick: int) -> bool:
        """Whether the policies are evaluated at a boundary: every `evaluate_every` ticks, and at the end."""
        return (
            self.evaluate_every is not None and tick > 0 and (tick % self.evaluate_every == 0 or tick >= self.horizon)
        )

    def refuse_fragile(self, policies: Sequence[str]) -> None:
        """Refuses policies whose learning state cannot be saved and loaded, if a key of the run needs that.

        Args:
            policies: the policies without such a state, at least one.

        Raises:
            ConfigError: with the key that needs it.
        """
        asked = {
            "fault_tolerance": self.fault_tolerance == "on" and "would be lost with its process",
            "evaluation": self.evaluate_every is not None and "cannot be evaluated before the run's last tick",
            "curriculum": self.curriculum is not None and "cannot go on in another game",
            "rounds": self.rounds > 1 and "would end with a round",
        }
        for path, why in asked.items():
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

    @property
    def packed(self) -> bool:
        """Whether some rank hosts several roles."""
        return any(len(roles) > 1 for roles in self.ranks)

    def roles(self, kind: RoleKind | None = None) -> tuple[Role, ...]:
        """All roles of a kind (or of every kind): the root, then match by match the environment and its workers."""
        return tuple(role for role in self._roles if kind is None or role.kind is kind)

    def players(self) -> tuple[str, ...]:
        """The policies that play: those with a seat, and in a run of several rounds all."""
        return tuple(name for name, policy in self.policies.items() if policy.workers or self.rounds > 1)

    def teams(self, policy: PolicyPlan) -> tuple[tuple[int, ...], ...]:
        """The ranks in the group of a policy's workers, team by team, in the order of their seats.

        The workers on one side of a match that drive one entity each are a team; a worker that drives several entities
        is a team of its own.
        """
        teams: dict[tuple[int, int | None, int | None], list[int]] = {}
        for rank, (number, seat) in enumerate(policy.workers):
            match = self.matches[number]
            side = next((place for place, side in enumerate(match.sides) if seat in side), None)
            several = len(match.seats[seat].entities) > 1
            teams.setdefault((number, side, seat if several else None), []).append(rank)
        return tuple(map(tuple, teams.values()))

    def rank_of(self, role: Role) -> int:
        """The world rank that hosts a role."""
        return self._rank_of[role]

    def seat(self, role: Role) -> SeatPlan:
        """The seat of a worker's role."""
        if role.match is None or role.seat is None:
            raise ValueError(f"{role} has no seat; only workers have one")
        return self.matches[role.match].seats[role.seat]

    @cached_property
    def _roles(self) -> tuple[Role, ...]:
        return all_roles(self.matches)

    @cached_property
    def _rank_of(self) -> dict[Role, int]:
        return {role: rank for rank, roles in enumerate(self.ranks) for role in roles}


def roles_of(match: MatchPlan) -> tuple[Role, ...]:
    """The environment of a match, and its workers in the order of the seats."""
    workers = (Role(RoleKind.WORKER, match.match, seat.index) for seat in match.seats)
    return (Role(RoleKind.ENVIRONMENT, match.match), *workers)


def all_roles(matches: Iterable[MatchPlan]) -> tuple[Role, ...]:
    """The root, then match by match the environment and its workers."""
    return (ROOT, *(role for match in matches for role in roles_of(match)))
