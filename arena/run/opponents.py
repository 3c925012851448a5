"""Matches of a policy against one opponent, which takes the seats of all others."""

from __future__ import annotations

import msgspec

from arena import registry
from arena.config.matches import MatchConfig, SeatEntry
from arena.config.schema import Config, PolicyConfig
from arena.errors import ConfigError, nearest

_OPPONENT = "opponent"


def opposed(config: Config, policy: str, against: str) -> Config | None:
    """The matches of a policy with others, all others' seats taken by one opponent; None if there is no such match."""
    opponent = _opponent(config, against)
    names = (_OPPONENT, *(f"{_OPPONENT}-{number}" for number in range(2, len(config.policies) + 2)))
    name = next(name for name in names if name not in config.policies)
    matches: list[MatchConfig] = []
    for _, entry in config.entries():
        if 0 < seats_of(entry, policy) < len(entry.seats):
            seats = tuple(seat if policy in _names(seat) else _replaced(seat, name) for seat in entry.seats)
            changed = msgspec.structs.replace(entry, seats=seats)
            if changed not in matches:
                matches.append(changed)
    if not matches:
        return None
    policies = {policy: config.policies[policy], name: opponent}
    return msgspec.structs.replace(config, policies=policies, matches=tuple(matches))


def _opponent(config: Config, against: str) -> PolicyConfig:
    if against in config.policies:
        return config.policies[against]
    if against not in registry.ALGORITHMS and ":" not in against:
        known = [*config.policies, *registry.ALGORITHMS]
        raise ConfigError(f"{against!r} is no policy and no algorithm; {nearest(against, known)}", path="--against")
    try:
        registry.worker_class(against, {}, acts=True, path="")
    except ConfigError as error:
        raise ConfigError(
            f"the algorithm {against!r} cannot take the other seats without options: {error.message}; make it a policy "
            "of the configuration, with its options, and name that one",
            path="--against",
        ) from error
    return PolicyConfig(algorithm=against, frozen=True)


def _names(seat: SeatEntry) -> tuple[str, ...]:
    return (seat,) if isinstance(seat, str) else seat


def _replaced(seat: SeatEntry, name: str) -> SeatEntry:
    return name if isinstance(seat, str) else (name,) * len(seat)


def seats_of(entry: MatchConfig, policy: str) -> int:
    """How many seats of a match a policy has."""
    return sum(policy in _names(seat) for seat in entry.seats)
