"""A policy as it was learnt, without a game: out of a run folder, to ask it for actions or probabilities.

    blue = restored("runs/duel", "blue", observation_space, action_space)
    act = blue.actor(greedy=True)                    as a frozen policy plays, see `arena.proxy.play`
    blue.log_prob(observations, actions, masks)      where its algorithm has that

The algorithm is made as in a run, on an environment that has spaces and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from gymnasium.spaces import Space

from arena import registry
from arena.config.load import load_config
from arena.config.schema import Config, PolicyConfig
from arena.errors import ConfigError, nearest
from arena.league import rounds_file
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import checkpoint as checkpoints
from arena.records.checkpoint import Checkpoint
from arena.records.folder import RunFolder


def load_policy(
    run: Path | str,
    policy: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    *,
    boundary: int | None = None,
) -> Any:
    """A policy of a run: its algorithm, with what it had learnt.

    Args:
        run: the run's folder.
        policy: its name there.
        observation_space: of the entities that it is asked about, such as recorded samples name.
        action_space: of the same.
        boundary: the tick of the checkpoint, or of a league's snapshot; None: the newest, or what a frozen policy was
            loaded with.

    Returns:
        an instance of its algorithm's class; its `run` cannot be called.

    Raises:
        ConfigError: no such run, policy or checkpoint; or the weights are not for these spaces.
    """
    folder = RunFolder(Path(run))
    config = load_config(folder.config)
    if policy not in config.policies:
        raise ConfigError(f"no policy {policy!r} in this run; {nearest(policy, config.policies)}", source=str(run))
    given = _as_learnt(folder, policy, config, boundary)
    cls, options = registry.configured_algorithm(
        given.algorithm, given.options, acts=given.frozen, path=f"policies.{policy}"
    )
    if spec_of(cls).checks_spaces:
        cls.check(observation_space, action_space)
    env = SpecVectorEnv(observation_space, action_space)
    algorithm = from_spaces(cls, env, _group(config, policy), ticks=config.ticks, options=options)
    found = _checkpoint(folder, policy, given, boundary)
    if found is not None:
        algorithm.load_state_dict(found.state)
    return algorithm


def _group(config: Config, policy: str) -> StubGroup:
    return StubGroup(policy, config.policies[policy].sync, seed=config.seed, shared_seed=config.seed)


def _as_learnt(folder: RunFolder, policy: str, config: Config, boundary: int | None) -> PolicyConfig:
    """With the options of the round in which that was learnt: who has become a copy of another one has that one's."""
    given, own = config.policies[policy], checkpoints.list_checkpoints(folder.checkpoints_path(policy))
    if boundary is None and not own:
        return given
    tick = checkpoints.ticks_of(own[-1]) if boundary is None else boundary
    options = rounds_file.options_at(rounds_file.read_played(folder, config), tick).get(policy, given.options)
    return msgspec.structs.replace(given, options=options)


def _checkpoint(folder: RunFolder, policy: str, given: PolicyConfig, boundary: int | None) -> Checkpoint | None:
    """What the policy had learnt; None if it learns nothing."""
    home = folder.checkpoints_path(policy)
    if boundary is not None:
        snapshot = folder.snapshot_path(policy, boundary)
        return checkpoints.load(snapshot if snapshot.exists() else checkpoints.path_of(home, boundary))
    if checkpoints.list_checkpoints(home):
        return checkpoints.load(home)
    if given.load is not None:
        return checkpoints.load(checkpoints.find(given.load, policy))
    return None
