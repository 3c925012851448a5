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
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from arena.errors import ConfigError, listed, nearest
from arena.plan.placement import Load, pack

if TYPE_CHECKING:
    from arena.config.matches import MatchConfig
    from arena.config.schema import Config
    from arena.game.api import Interface

Entity = int | str
"""An entity as the configuration names it: its index in the environment, or its name."""

FACES = ("gym", "vector", "parallel")
OutcomeRule = Literal["info", "zero_sum", "higher_return", "none"]
"""How it is decided who has won an episode of a game: see `arena.records.outcome`."""

ONLY_ACT = frozenset({"random", "scripted"})  # algorithms that never learn and need no torch
MOST_ROLES = 50_000
"""Of a run, and processes of it: larger plans are typing errors, and building them takes long."""
_ACTS, _LEARNS = 1, 3  # loads: what a tick costs a role, as a multiple of what it costs an environment


class RoleKind(str, Enum):
    """What a rank does for a run."""

    ROOT = "root"
    ENVIRONMENT = "environment"
    WORKER = "worker"


@dataclass(frozen=True)
class Role:
    """One thing to do: the root, the environment of a match, or the worker of a seat in a match."""

    kind: RoleKind
    match: int | None = None
    seat: int | None = None


_ROOT = Role(RoleKind.ROOT)


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
    Seeds derive from (entry, copy), so they stay when other matches come or go behind.
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
    pipeline: int = 1  # in how many blocks the lanes move, one after the other
    sides: tuple[tuple[int, ...], ...] = ()  # the seats that play together, against the others; none: nobody knows
    outcome: OutcomeRule | None = None  # how it is decided who has won

    @property
    def blocks(self) -> tuple[range, ...]:
        """The lanes of each block, as equal in number as can be; the first ones are the larger ones."""
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
    workers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CallbackPlan:
    """A class of a user's own, `package.module:Class`, that is told what happens, and its options."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)


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
    callbacks: tuple[CallbackPlan, ...] = ()
    round: int = 0
    rounds: int = 1
    snapshotted: frozenset[str] = frozenset()  # policies of which snapshots may play in later rounds

    @property
    def horizon(self) -> int:
        """The ticks of all rounds together; `ticks` is the last one of this round. All rounds have equally many."""
        return self.ticks // (self.round + 1) * self.rounds

    @property
    def start(self) -> int:
        """The tick at which this round begins."""
        return self.ticks // (self.round + 1) * self.round

    @property
    def staged(self) -> bool:
        """Whether the run is played in several parts over the same processes: rounds, or evaluations between legs."""
        return self.rounds > 1 or self.evaluate_every is not None

    def acts(self, policy: PolicyPlan) -> bool:
        """Whether a policy plays without learning, always, when it is evaluated, or as a snapshot."""
        return policy.frozen or self.evaluate_every is not None or policy.name in self.snapshotted

    def evaluates_at(self, tick: int) -> bool:
        """Whether the policies are evaluated at a boundary: every so many ticks, and at the end."""
        return (
            self.evaluate_every is not None and tick > 0 and (tick % self.evaluate_every == 0 or tick >= self.horizon)
        )

    def refuse_fragile(self, policies: Sequence[str]) -> None:
        """Refuses policies whose learning cannot be saved and loaded, if the run is asked for what needs that.

        Args:
            policies: those that learn so, at least one.

        Raises:
            ConfigError: with the key that asks for it.
        """
        asked = {
            "fault_tolerance": self.fault_tolerance == "on" and "would be lost with its process",
            "evaluation": self.evaluate_every is not None and "cannot be evaluated before the run's last tick",
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
        """The policies that play: who has no seat in any match may have one in another round, or in an evaluation."""
        return tuple(name for name, policy in self.policies.items() if policy.workers or self.rounds > 1)

    def teams(self, policy: PolicyPlan) -> tuple[tuple[int, ...], ...]:
        """The ranks in the group of a policy's workers, team by team, in the order of their seats.

        Those who drive one entity each are one team with all others on their side of their match; a seat of several is
        one by itself.
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
        return _all_roles(self.matches)

    @cached_property
    def _rank_of(self) -> dict[Role, int]:
        return {role: rank for rank, roles in enumerate(self.ranks) for role in roles}


def make_plan(config: Config, *, ranks: int | None = None, number: int = 0) -> Plan:
    """Lays the matches of a round out over ranks.

    Args:
        config: a checked configuration; of a later round its matches, see `arena.league.next_round.round_config`.
        ranks: how many there are. None: one for each role. Fewer than roles: they host several each, see
            `arena.plan.placement`. More: the rest is idle, or with `scale: true` all matches are repeated as often as
            whole repetitions fit.
        number: of the round, from 0.

    Raises:
        ConfigError: no rank at all, or an absurd number of them.
    """
    if ranks is not None and not 1 <= ranks <= MOST_ROLES:
        raise ConfigError(f"a run has from 1 to {MOST_ROLES} processes, got {ranks}")
    repetitions = max(1, (ranks - 1) // config.roles) if config.scale and ranks is not None else 1
    matches = _matches(config, repetitions)
    policies = _policies(config, matches)
    return Plan(
        name=config.name,
        seed=config.seed,
        ticks=config.ticks * (number + 1),
        checkpoint_every=config.checkpoint_every,
        transport=config.transport,
        policies=policies,
        matches=matches,
        ranks=_layout(matches, policies, ranks, config.spares),
        watchdog_s=config.watchdog_s,
        env_timeout_s=config.env_timeout_s,
        on_env_error=config.on_env_error,
        fault_tolerance=config.fault_tolerance,
        spares=config.spares,
        record=config.record,
        evaluate_every=None if config.evaluation is None else config.evaluation.every,
        callbacks=_callbacks(config),
        round=number,
        rounds=config.rounds,
        snapshotted=config.snapshotted,
    )


def _matches(config: Config, repetitions: int) -> tuple[MatchPlan, ...]:
    entries = config.entries()
    matches = [
        _match(config, entry=index, copy=repetition * entry.copies + copy, path=path, description=entry)
        for repetition in range(repetitions)
        for index, (path, entry) in enumerate(entries)
        for copy in range(entry.copies)
    ]
    return tuple(replace(match, match=number) for number, match in enumerate(matches))


def _match(config: Config, *, entry: int, copy: int, path: str, description: MatchConfig) -> MatchPlan:
    env = config.envs[description.env]
    return MatchPlan(
        match=-1,  # numbered when all are known
        entry=entry,
        copy=copy,
        env=description.env,
        make=env.make,
        env_kwargs={**env.kwargs, **description.env_kwargs},
        lanes=description.lanes,
        seats=_seats(description),
        idle_action=env.idle_action,
        wrappers=env.wrapped_in,
        path=path,
        pipeline=description.pipeline,
        sides=description.known_sides,
        outcome=env.outcome,
    )


def _seats(description: MatchConfig) -> tuple[SeatPlan, ...]:
    seats: list[SeatPlan] = []
    taken = 0
    for index, entry in enumerate(description.seats):
        count, policy = (1, entry) if isinstance(entry, str) else (len(entry), entry[0])
        places = range(taken, taken + count)
        entities: Iterable[Entity] = places
        if description.entities is not None:
            entities = (description.entities[place] for place in places)
        seats.append(SeatPlan(index, policy, tuple(entities)))
        taken += count
    return tuple(seats)


def _policies(config: Config, matches: Sequence[MatchPlan]) -> dict[str, PolicyPlan]:
    workers: dict[str, list[tuple[int, int]]] = {name: [] for name in config.policies}
    for match in matches:
        for seat in match.seats:
            workers[seat.policy].append((match.match, seat.index))
    return {
        name: PolicyPlan(
            name=name,
            algorithm=policy.algorithm,
            options=dict(policy.options),
            color=policy.color,
            frozen=policy.frozen,
            load=policy.load,
            sync=policy.sync,
            reduce=policy.reduce,
            workers=tuple(workers[name]),
        )
        for name, policy in config.policies.items()
    }


def _callbacks(config: Config) -> tuple[CallbackPlan, ...]:
    return tuple(
        CallbackPlan(entry) if isinstance(entry, str) else CallbackPlan(entry.class_, dict(entry.options))
        for entry in config.callbacks
    )


def roles_of(match: MatchPlan) -> tuple[Role, ...]:
    """The environment of a match, and its workers in the order of the seats."""
    workers = (Role(RoleKind.WORKER, match.match, seat.index) for seat in match.seats)
    return (Role(RoleKind.ENVIRONMENT, match.match), *workers)


def _all_roles(matches: Iterable[MatchPlan]) -> tuple[Role, ...]:
    return (_ROOT, *(role for match in matches for role in roles_of(match)))


def _layout(
    matches: Sequence[MatchPlan], policies: dict[str, PolicyPlan], ranks: int | None, spares: int
) -> tuple[tuple[Role, ...], ...]:
    roles = _all_roles(matches)
    if ranks == 1:
        spares = 0  # everything in one process: there is nobody to take its place
    elif ranks is not None and ranks <= spares:
        raise ConfigError(
            f"found {spares}, but there are only {ranks} processes: none is left to play; ask for more processes, or "
            "for fewer spares",
            path="spares",
        )
    if ranks is None or ranks - spares >= len(roles):
        idle: list[tuple[Role, ...]] = [()] * ((ranks or len(roles) + spares) - len(roles))
        return (*((role,) for role in roles), *idle)

    def load(role: Role) -> Load:
        return _load(matches, policies, role)

    place = {role: number for number, role in enumerate(roles)}
    packed = pack(_ROOT, [roles_of(match) for match in matches], ranks - spares, load=load)
    return (*(tuple(sorted(hosted, key=place.__getitem__)) for hosted in packed), *[()] * spares)


def load_of(plan: Plan, role: Role) -> Load:
    """What a role costs the rank that hosts it."""
    return _load(plan.matches, plan.policies, role)


def _load(matches: Sequence[MatchPlan], policies: dict[str, PolicyPlan], role: Role) -> Load:
    if role.match is None or role.seat is None:
        return Load(0 if role.match is None else _ACTS)
    policy = policies[matches[role.match].seats[role.seat].policy]
    torch = policy.algorithm not in ONLY_ACT
    return Load(_LEARNS if torch and not policy.frozen else _ACTS, torch=torch)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as `arena plan --json` prints it and as the run folder's `plan.json` holds it."""
    return {
        "name": plan.name,
        "processes": plan.processes,
        "matches": [_match_json(match) for match in plan.matches],
        "ranks": [
            {"rank": rank, "roles": [_role_json(plan, role) for role in roles]} for rank, roles in enumerate(plan.ranks)
        ],
    }


def _match_json(match: MatchPlan) -> dict[str, Any]:
    return {
        "match": match.match,
        "env": match.env,
        "env_kwargs": match.env_kwargs,
        "lanes": match.lanes,
        "seats": [{"policy": seat.policy, "entities": list(seat.entities)} for seat in match.seats],
        "sides": [list(side) for side in match.sides],
    }


def _role_json(plan: Plan, role: Role) -> dict[str, Any]:
    seat = plan.seat(role) if role.kind is RoleKind.WORKER else None
    return {
        "role": role.kind.value,
        "match": role.match,
        "policy": seat.policy if seat else None,
        "entities": list(seat.entities) if seat else [],
    }


def check_seats(match: MatchPlan, interface: Interface) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat of a match.

    Raises:
        ConfigError: the seats do not cover the environment's entities exactly once; names the match's place.
    """
    try:
        return resolve_entities(match.seats, interface.entities)
    except ConfigError as error:
        raise ConfigError(f"environment {match.env!r}: {error.message}", path=match.path) from error


def resolve_entities(seats: Sequence[SeatPlan], interface_entities: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat.

    Args:
        seats: of one match; they name entities by index or by name.
        interface_entities: the names of the environment's entities, in its order.

    Raises:
        ConfigError: the seats do not cover the entities exactly once.
    """
    known: dict[Entity, int] = {}
    for index, name in enumerate(interface_entities):
        known[index] = known[name] = index
    asked = [entity for seat in seats for entity in seat.entities]
    unknown = [entity for entity in asked if entity not in known]
    counts = Counter(known[entity] for entity in asked if entity in known)
    missing = [name for name in interface_entities if not counts[known[name]]]
    doubled = [name for name in interface_entities if counts[known[name]] > 1]
    if unknown or missing or doubled:
        raise ConfigError(_cover_message(interface_entities, len(asked), unknown, missing, doubled))
    return tuple(tuple(known[entity] for entity in seat.entities) for seat in seats)


def _cover_message(
    names: tuple[str, ...], asked: int, unknown: Sequence[Entity], missing: Sequence[str], doubled: Sequence[str]
) -> str:
    faults = []
    if missing:
        faults.append(f"nobody plays {listed(missing)}")
    if doubled:
        faults.append(f"more than one seat plays {listed(doubled)}")
    if unknown:
        hint = next((f"; {nearest(entity, names)}" for entity in unknown if isinstance(entity, str)), "")
        what = "is no entity" if len(unknown) == 1 else "are no entities"
        faults.append(f"there {what} {listed([repr(entity) for entity in unknown])}{hint}")
    numbered = listed([f"{index} {name}" for index, name in enumerate(names)])
    return f"the seats must cover its {len(names)} entities ({numbered}) exactly once; they name {asked}: " + "; ".join(
        faults
    )


def choose_face(
    faces: str | tuple[str, ...], *, lanes: int, entities: int, uniform_spaces: bool, path: str = ""
) -> str:
    """The first of an algorithm's faces that a seat can give.

    Args:
        faces: what the algorithm asks for: `gym`, `vector`, `parallel`, or several in the order of preference.
        lanes: of the match.
        entities: how many the seat drives.
        uniform_spaces: whether all entities of the seat have equal spaces, and all or none of them have masks.

    Raises:
        ConfigError: none of them fits; says why and what helps.
    """
    wanted = (faces,) if isinstance(faces, str) else tuple(faces)
    reasons = []
    for face in wanted:
        if face not in FACES:
            raise ConfigError(f"the algorithm asks for the face {face!r}; {nearest(str(face), FACES)}", path=path)
        reason = _obstacle(face, lanes, entities, uniform_spaces)
        if not reason:
            return face
        reasons.append(f"{face!r} {reason}")
    raise ConfigError("the seat cannot give the face that the algorithm wants: " + "; ".join(reasons), path=path)


def _obstacle(face: str, lanes: int, entities: int, uniform_spaces: bool) -> str:
    """Why a seat cannot give a face, with a remedy; empty when it can."""
    if face == "vector" and not uniform_spaces:
        return (
            "needs equal spaces of all entities of the seat, and masks of all or of none: give each entity a seat of "
            "its own"
        )
    if face != "vector" and lanes > 1:
        return f"needs one lane, the match has {lanes}: set `lanes: 1` (and more `copies`)"
    if face == "gym" and entities > 1:
        return f"needs one entity, the seat has {entities}: give each entity a seat of its own"
    return ""
