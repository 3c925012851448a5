"""From a configuration to a plan: the matches of a round with their seeds, and the ranks that host their roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from arena.config.fields import MOST_ROLES, ONLY_ACT
from arena.config.matches import Match, policy_of
from arena.config.schema import Config, Env
from arena.errors import ConfigError
from arena.plan.placement import Load, pack
from arena.plan.plan import ROOT, MatchPlan, Plan, PolicyPlan, Role, SeatPlan, roles_of

_ACTS, _LEARNS = 1, 3  # loads: what a tick costs a role, as a multiple of what it costs an environment


def make_plan(
    config: Config,
    *,
    ranks: int | None = None,
    number: int = 0,
    places: Sequence[str] = (),
    whole: Config | None = None,
) -> Plan:
    """Lays the matches of a round out over ranks.

    Args:
        config: a checked configuration; of a later round its matches, see `arena.league.next_round.round_config`.
        ranks: None: one for each role. Fewer than roles: they host several each, see `arena.plan.placement`. More: the
            rest is idle, or with `scale: true` all matches are repeated as often as they fit.
        number: of the round, from 0.
        places: per match description the entry of the user's configuration that it was made from, for messages.
        whole: the configuration that `config` was made from; None: it is the user's.

    Raises:
        ConfigError: no rank at all, or an absurd number of them.
    """
    if ranks is not None and not 1 <= ranks <= MOST_ROLES:
        raise ConfigError(f"a run has from 1 to {MOST_ROLES} processes, got {ranks}")
    repetitions = max(1, (ranks - 1) // config.roles) if config.scale and ranks is not None else 1
    entries = config.entries()
    if places:
        entries = tuple((place, entry) for place, (_, entry) in zip(places, entries, strict=True))
    matches: list[MatchPlan] = []
    workers: dict[str, list[tuple[int, int]]] = {name: [] for name in config.policies}
    for repetition in range(repetitions):
        for index, (path, entry) in enumerate(entries):
            game, seats = game_of(config, entry), _seats(entry)
            for copy in range(repetition * entry.copies, (repetition + 1) * entry.copies):
                for seat in seats:
                    workers[seat.policy].append((len(matches), seat.index))
                matches.append(MatchPlan(len(matches), index, copy, entry, game, seats, path))
    policies = {name: PolicyPlan(name, policy, tuple(workers[name])) for name, policy in config.policies.items()}
    plan = Plan(whole or config, policies, tuple(matches), ranks=(), round=number)
    return replace(plan, ranks=_layout(plan, ranks, hosts=()))


def game_of(config: Config, description: Match) -> Env:
    """The environment of a match, with the arguments that the match's description adds."""
    env = config.envs[description.env]
    return msgspec.structs.replace(env, kwargs={**env.kwargs, **description.env_kwargs})


def _seats(description: Match) -> tuple[SeatPlan, ...]:
    seats: list[SeatPlan] = []
    taken = 0
    for index, entry in enumerate(description.seats):
        places = range(taken, taken + (1 if isinstance(entry, str) else len(entry)))
        entities = places if description.entities is None else (description.entities[place] for place in places)
        seats.append(SeatPlan(index, policy_of(entry), tuple(entities)))
        taken = places.stop
    return tuple(seats)


def _layout(plan: Plan, ranks: int | None, hosts: Sequence[str]) -> tuple[tuple[Role, ...], ...]:
    roles = plan.roles()
    if ranks is None or ranks >= len(roles):
        idle: list[tuple[Role, ...]] = [()] * ((ranks or len(roles)) - len(roles))
        return (*((role,) for role in roles), *idle)
    place = {role: number for number, role in enumerate(roles)}
    row = [roles_of(match) for match in plan.matches]
    on_host = [len(list(same)) for _, same in groupby(hosts)] or [ranks]
    packed = pack(ROOT, row, on_host, load=lambda role: load_of(plan, role))
    return tuple(tuple(sorted(hosted, key=place.__getitem__)) for hosted in packed)


def on_hosts(plan: Plan, hosts: Sequence[str]) -> Plan:
    """The same matches on other ranks; `hosts`: where each rank runs."""
    several = tuple(hosts) if len(set(hosts)) > 1 else ()
    if len(hosts) == plan.processes and several == plan.hosts:
        return plan
    return replace(plan, ranks=_layout(plan, len(hosts), several), hosts=several)


def load_of(plan: Plan, role: Role) -> Load:
    """What a role costs the rank that hosts it."""
    if role.match is None or role.seat is None:
        return Load(0 if role.match is None else _ACTS)
    policy = plan.policies[plan.seat(role).policy].config
    torch = policy.algorithm not in ONLY_ACT
    return Load(_LEARNS if policy.learns else _ACTS, torch=torch)
