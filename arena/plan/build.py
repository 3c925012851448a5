"""From a configuration to a plan: the matches of a round with their seeds, and the ranks that host their roles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from arena.errors import ConfigError
from arena.plan.placement import Load, pack
from arena.plan.plan import (
    MOST_ROLES,
    ONLY_ACT,
    ROOT,
    BestPlan,
    CallbackPlan,
    Entity,
    MatchPlan,
    Plan,
    PolicyPlan,
    ResultsPlan,
    Role,
    SeatPlan,
    TickRules,
    all_roles,
    roles_of,
)

if TYPE_CHECKING:
    from arena.config.matches import MatchConfig
    from arena.config.schema import CallbackConfig, Config

_RESULTS = 50  # of a run, about, where the configuration says nothing
_ACTS, _LEARNS = 1, 3  # loads: what a tick costs a role, as a multiple of what it costs an environment


def make_plan(config: Config, *, ranks: int | None = None, number: int = 0, places: Sequence[str] = ()) -> Plan:
    """Lays the matches of a round out over ranks.

    Args:
        config: a checked configuration; of a later round its matches, see `arena.league.next_round.round_config`.
        ranks: how many there are. None: one for each role. Fewer than roles: they host several each, see
            `arena.plan.placement`. More: the rest is idle, or with `scale: true` all matches are repeated as often as
            they fit.
        number: of the round, from 0.
        places: per match description the entry of the user's configuration that it was made from, for messages; ():
            the descriptions are the user's own.

    Raises:
        ConfigError: no rank at all, or an absurd number of them.
    """
    if ranks is not None and not 1 <= ranks <= MOST_ROLES:
        raise ConfigError(f"a run has from 1 to {MOST_ROLES} processes, got {ranks}")
    repetitions = max(1, (ranks - 1) // config.roles) if config.scale and ranks is not None else 1
    matches = _matches(config, repetitions, places)
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
        imports=config.imports,
        callbacks=_listeners(config.callbacks),
        loggers=_listeners(config.loggers),
        stop=config.stop_rules,
        best=None if config.best is None else BestPlan(config.best.metric, config.best.mode == "max"),
        curriculum=_curriculum(config),
        results=ResultsPlan(config.results.every or _result_every(config), config.results.smoothing),
        round=number,
        rounds=config.rounds,
        snapshotted=config.snapshotted,
    )


def _result_every(config: Config) -> int:
    """About a fiftieth of the run, a divisor of a leg if one is near; at most a leg: each boundary has a result."""
    leg, wanted = min(config.checkpoint_every, config.ticks), max(1, config.ticks * config.rounds // _RESULTS)
    if wanted >= leg:
        return leg
    parts = min(range(1, 2 * _RESULTS), key=lambda parts: (leg % parts > 0, abs(math.log(leg / parts / wanted))))
    return leg // parts if 2 / 3 <= leg / parts / wanted <= 3 / 2 else wanted


def _matches(config: Config, repetitions: int, places: Sequence[str]) -> tuple[MatchPlan, ...]:
    entries = config.entries()
    if places:
        entries = tuple((place, match) for place, (_, match) in zip(places, entries, strict=True))
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
        screen=env.screen,
        external=None if env.external is None else TickRules(**msgspec.structs.asdict(env.external)),
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
            max_lag=policy.max_lag,
            workers=tuple(workers[name]),
        )
        for name, policy in config.policies.items()
    }


def _curriculum(config: Config) -> CallbackPlan | None:
    found = config.curriculum
    return None if found is None else CallbackPlan(found.class_, dict(found.options))


def _listeners(entries: Iterable[str | CallbackConfig]) -> tuple[CallbackPlan, ...]:
    return tuple(
        CallbackPlan(entry) if isinstance(entry, str) else CallbackPlan(entry.class_, dict(entry.options))
        for entry in entries
    )


def _layout(
    matches: Sequence[MatchPlan], policies: dict[str, PolicyPlan], ranks: int | None, spares: int
) -> tuple[tuple[Role, ...], ...]:
    roles = all_roles(matches)
    if ranks == 1:
        spares = 0  # one process hosts everything: no spare could replace it
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
    packed = pack(ROOT, [roles_of(match) for match in matches], ranks - spares, load=load)
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
