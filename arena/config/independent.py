"""Policies whose workers learn independently of each other: each worker becomes a policy of its own.

    policies: {blue: {algorithm: ppo, independent: true}}       policies: {"blue#0": {algorithm: ppo}, "blue#1": ...}
    matches: [{env: game, seats: [blue, red], copies: 2}]       matches: [{env: game, seats: ["blue#0", red]},
                                                                          {env: game, seats: ["blue#1", red]}]

The configuration on the left means the one on the right, so weights, checkpoints, logs and ratings of the workers are
separate without further rules. Workers are numbered in the order of the matches, their copies and their seats. The
only worker of a policy keeps the policy's name.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from arena.config.matches import Match, SeatEntry, policy_of, reseated
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.config.schema import Config, Policy


def check_independent(config: Config) -> None:
    """Refuses `independent` together with keys that need one policy of several workers."""
    seats = () if config.evaluation is None else config.evaluation.seats or ()
    for name, count in _workers(config).items():
        policy, reason = config.policies[name], ""
        if policy.sync == "samples":
            reason = "independent workers pool no samples, but `sync` is `samples`; leave out one of the two"
        elif not policy.learns:
            reason = "a policy that does not learn has nothing that its workers could keep apart; leave it out"
        elif config.round_count > 1:
            reason = "in a run of several rounds a policy is one player; give each worker a policy of its own"
        elif config.scale:
            reason = "with `scale: true` the number of workers is not known; set `copies` instead of `scale`"
        if reason:
            raise ConfigError(f"is not allowed here: {reason}", path=f"policies.{name}.independent")
        for worker in (f"{name}#{number}" for number in range(count if count > 1 else 0)):
            if worker in config.policies:
                text = f"is the name of a worker of the independent policy {name!r}; use another name"
                raise ConfigError(text, path=f"policies.{worker}")
        if count > 1 and name in map(policy_of, seats):
            raise ConfigError(
                f"{name!r} has {count} independent workers, and it is not known which of them is meant; leave `seats` "
                "out, and each is evaluated in its own matches",
                path="evaluation.seats",
            )


def expanded(config: Config) -> Config:
    """The configuration in which each worker of an independent policy is a policy of its own."""
    workers = {name: count for name, count in _workers(config).items() if count > 1}
    policies: dict[str, Policy] = {}
    for name, policy in config.policies.items():
        names = [f"{name}#{number}" for number in range(workers[name])] if name in workers else [name]
        policies |= dict.fromkeys(names, msgspec.structs.replace(policy, independent=False))
    numbers = {name: itertools.count() for name in workers}

    def renamed(seat: SeatEntry) -> SeatEntry:
        policy = policy_of(seat)
        return reseated(seat, f"{policy}#{next(numbers[policy])}") if policy in workers else seat

    matches: list[Match] = []
    for _, match in config.entries() if workers else ():
        if not workers.keys() & {*match.names}:
            matches.append(match)
            continue
        for _ in range(match.copies):
            seats, sides = tuple(map(renamed, match.seats)), match.known_sides or None
            matches.append(msgspec.structs.replace(match, seats=seats, sides=sides, copies=1))
    if not matches:
        return msgspec.structs.replace(config, policies=policies)
    return msgspec.structs.replace(config, policies=policies, matches=tuple(matches), rounds=config.round_count)


def _workers(config: Config) -> dict[str, int]:
    """How many workers each independent policy has in the first round."""
    found = {name: 0 for name, policy in config.policies.items() if policy.independent}
    for _, match in config.entries() if found else ():
        for policy in match.names:
            if policy in found:
                found[policy] += match.copies
    return found
