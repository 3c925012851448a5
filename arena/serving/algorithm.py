"""The algorithm of a policy of a run, without the run, for `arena export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gymnasium.spaces import Space

from arena import registry
from arena.config.load import load_config
from arena.errors import ConfigError, located, nearest
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import boundary
from arena.records import checkpoint as checkpoints
from arena.records.folder import RunFolder
from arena.serving.policy import first_seat, with_learned_options


class LoadedAlgorithm(NamedTuple):
    """An algorithm in its first seat, with what it has learned; it cannot play."""

    algorithm: Any
    name: str  # of the algorithm, as configured
    observation_space: Space[Any]  # of one entity
    checkpoint: Path
    tick: int  # of the checkpoint


def load_algorithm(run: Path | str, policy: str, checkpoint: str) -> LoadedAlgorithm:
    """The algorithm of a policy of a run, for `arena export`; also one that learns as a team.

    Raises:
        ConfigError: no such run, policy or checkpoint; no `exported()`; or the algorithm cannot be made.
    """
    folder = RunFolder.existing(run)
    config = load_config(folder.config)
    registry.import_plugins(config.imports)
    if policy not in config.policies:
        raise ConfigError(f"no policy {policy!r} in this run; {nearest(policy, config.policies)}", source=str(run))
    own = boundary.checkpoints_of(folder, policy)
    files, load, file = list(own), config.policies[policy].load, None
    if not files and load is not None:  # without checkpoints of its own in this run, the one that it was loaded from
        found = checkpoints.find(load, policy)
        files = checkpoints.list_checkpoints(found)[-1:] if found.is_dir() else [found]
    if files:
        every = [*folder.snapshots_path(policy).glob("*.ckpt"), *files]
        ticks = (checkpoints.ticks_of(one) if one.stem.isdecimal() else checkpoints.load(one).boundary for one in every)
        known = dict(zip(map(str, ticks), every, strict=True)) | {"first": files[0], "last": files[-1]}
        if checkpoint not in known:
            raise ConfigError(
                f"there is no checkpoint {checkpoint!r} of {policy!r}; {nearest(checkpoint, known)}",
                path="--checkpoint",
                source=str(folder.path),
            )
        file = known[checkpoint]
    tick = checkpoints.ticks_of(file) if own and file is not None else None
    given = with_learned_options(folder, policy, config, tick)
    cls, options = registry.configured_algorithm(
        given.algorithm, given.options, acts=given.frozen, any_device=True, path=f"policies.{policy}"
    )
    if not spec_of(cls).exports:
        raise ConfigError(
            f"the algorithm {given.algorithm!r} of {policy!r} cannot be exported: it has no exported()", path="--policy"
        )
    if file is None:
        raise ConfigError(f"there is no checkpoint of {policy!r}", source=str(run))
    seat = first_seat(config, policy)
    entities = seat.interface.entities if spec_of(cls).checks_team else ("alone",)
    observation_space, action_space = seat.interface.observation_spaces[0], seat.interface.action_spaces[0]
    env = SpecVectorEnv(observation_space, action_space, rows=len(entities), entities=entities)
    workers = len(seat.teams) * len(seat.teams[0])
    group = StubGroup(policy, given.sync, config.seed, config.seed, size=workers, team=seat.teams[0], teams=seat.teams)
    algorithm = from_spaces(cls, env, group, ticks=config.ticks, options=options)
    held = checkpoints.load_to_act(file)
    if held.algorithm != given.algorithm:
        raise ConfigError(
            f"is of the algorithm {held.algorithm!r}, the policy {policy!r} uses {given.algorithm!r}", source=str(file)
        )
    with located(source=str(file)):
        algorithm.load_state_dict(held.state)
    return LoadedAlgorithm(algorithm, given.algorithm, observation_space, file, held.boundary)
