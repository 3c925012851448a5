"""Matches of a policy against one opponent, which takes the seats of all others."""

from __future__ import annotations

from pathlib import Path

import msgspec

from arena import registry
from arena.config.matches import MatchConfig, policy_of, reseated
from arena.config.schema import Config, PolicyConfig
from arena.errors import ConfigError, nearest
from arena.league import rounds_file
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder, numbered

_OPPONENT = "opponent"
_MOST_DIGITS = 18  # of a tick


def opposed(config: Config, policy: str, opponent: PolicyConfig) -> Config | None:
    """The matches of a policy with others, all others' seats taken by one opponent; None if there is no such match."""
    name = next(name for name in numbered(_OPPONENT) if name not in config.policies)
    matches: list[MatchConfig] = []
    for _, entry in config.entries():
        if 0 < entry.names.count(policy) < len(entry.seats):
            seats = tuple(seat if policy_of(seat) == policy else reseated(seat, name) for seat in entry.seats)
            changed = msgspec.structs.replace(entry, seats=seats)
            if changed not in matches:
                matches.append(changed)
    if not matches:
        return None
    policies = {policy: config.policies[policy], name: opponent}
    return msgspec.structs.replace(config, policies=policies, matches=tuple(matches))


def policy_versions(folder: RunFolder, policy: str) -> dict[int, Path]:
    """The checkpoints and snapshots of a policy of a run, by tick."""
    best = [file] if (file := folder.checkpoints_path(policy) / checkpoint.BEST).exists() else []
    snapshots = checkpoint.list_checkpoints(folder.snapshots_path(policy))
    files = [*best, *snapshots, *boundary.checkpoints_of(folder, policy)]
    return {checkpoint.ticks_of(file): file for file in files}


def labeled_versions(folder: RunFolder, policy: str) -> dict[str, Path]:
    """The same by their labels: `first`, `last`, `best` if there is one, and ticks; empty without a checkpoint."""
    if not (kept := boundary.checkpoints_of(folder, policy)):
        return {}
    best = {"best": file} if (file := folder.checkpoints_path(policy) / checkpoint.BEST).exists() else {}
    ticks = {str(tick): file for tick, file in sorted(policy_versions(folder, policy).items())}
    return {"first": kept[0], "last": kept[-1], **best, **ticks}


def policy_at(config: Config, folder: RunFolder | None, version: str, *, path: str) -> PolicyConfig:
    """A policy of a run as it was at a tick, frozen; `path` is the option, for errors.

    `version` is as `blue@5000`, the policy and the tick of a checkpoint or snapshot in the folder. Raises ConfigError
    if there is no such policy or checkpoint.
    """
    if version in config.policies:  # a snapshot that the configuration loads, as `--continue` writes it
        return config.policies[version]
    name, _, tick = version.partition("@")
    files = {} if folder is None or name not in config.policies else policy_versions(folder, name)
    if folder is None or not (tick.isascii() and tick.isdecimal() and len(tick) <= _MOST_DIGITS and int(tick) in files):
        known = [f"{name}@{found}" for found in sorted(files)] or [*config.policies]
        raise ConfigError(f"there is no player {version!r}; {nearest(version, known)}", path=path)
    policy = config.policies[name]
    options = rounds_file.options_at(rounds_file.read_played(folder, config), int(tick)).get(name, policy.options)
    return msgspec.structs.replace(policy, frozen=True, load=str(files[int(tick)].resolve()), options=options)


def opponent_of(config: Config, against: str) -> PolicyConfig:
    """A policy of a configuration, or an algorithm as a policy.

    Raises:
        ConfigError: it is neither, or the algorithm cannot act without options.
    """
    if against in config.policies:
        return config.policies[against]
    added = registry.target_of(against, "algorithm")
    if against not in registry.ALGORITHMS and ":" not in against and added is None:
        known = [*config.policies, *registry.ALGORITHMS]
        raise ConfigError(f"{against!r} is no policy and no algorithm; {nearest(against, known)}", path="--against")
    try:
        registry.configured_algorithm(against, {}, acts=True, path="")
    except ConfigError as error:
        raise ConfigError(
            f"the algorithm {against!r} cannot take the other seats without options: {error.message}; make it a policy "
            "of the configuration, with its options, and name that one",
            path="--against",
        ) from error
    return PolicyConfig(algorithm=against, frozen=True)
