"""Pools of EnvPool as vector environments of Gymnasium whose sub-environments are reset, and seeded, one by one."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arena.errors import ConfigError, GameError
from arena.game import spaces

_OF_ARENA = ("seed", "env_seed", "batch_size", "env_type", "max_num_players")
_NOT_OF_GAME = {"env_id", "players", "elapsed_step"}  # infos of the pool: which sub-environment a row is of


class EnvPoolEnv(VectorEnv[Any, Any, Any]):
    """A pool of `num_envs` sub-environments of a game of EnvPool, made at the first reset, with a seed for each.

    Infos are given of ticks on which an episode ends. A sub-environment plays the same in a pool of any size and number
    of threads.

    Raises:
        ConfigError: an argument that the arena sets itself, or a game of several players.
        Exception: raised by EnvPool for arguments that it does not take.
    """

    def __init__(self, task: str, num_envs: int = 1, **kwargs: Any) -> None:
        if taken := next((key for key in _OF_ARENA if key in kwargs), None):
            raise ConfigError("the arena itself sets this argument of a pool; leave it out", path=taken)
        self.metadata, self.render_mode = {"autoreset_mode": AutoresetMode.DISABLED}, kwargs.get("render_mode")
        self.num_envs, self._task, self._kwargs = num_envs, task, kwargs
        self._pool: Any = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # bounds of float64 for a space of float32
            spec = importlib.import_module("envpool").make_spec(task, num_envs=num_envs, **kwargs)
            self.single_observation_space, self.single_action_space = spec.observation_space, spec.action_space
        if spec.config.max_num_players > 1:
            raise ConfigError(f"{task} of EnvPool has {spec.config.max_num_players} players, and rows for some of them")
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(  # type: ignore[override]
        self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes where `options["reset_mask"]` is set, in other rows nothing; seeds make a new pool.

        Raises:
            GameError: other options, or seeds for some sub-environments alone.
        """
        others = dict(options or {})
        mask = others.pop("reset_mask", None)
        if others:
            raise GameError(f"the reset options {', '.join(others)}: the games of EnvPool take none")
        if seed is not None:
            if mask is not None:
                raise GameError("a seed for some lanes alone: EnvPool takes seeds when a pool is made; give all a seed")
            numbers = [number % 2**31 for number in seed]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # as above; the pool makes its space at the first use
                make = importlib.import_module("envpool").make_gymnasium
                self._pool = make(self._task, num_envs=self.num_envs, seed=numbers, **self._kwargs)
                _ = self._pool.observation_space
        assert self._pool is not None, "the first reset has seeds"
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        observations, infos = self._pool.reset(rows.astype(np.int32))
        if not np.array_equal(infos["env_id"], rows):
            raise GameError(
                f"rows of the sub-environments {infos['env_id']}; expected {rows}: the pool has another order"
            )
        if mask is None:
            return observations, {}
        whole = spaces.empty_batch(self.single_observation_space, self.num_envs)
        space = self.single_observation_space
        for all_rows, some in zip(spaces.flatten(space, whole), spaces.flatten(space, observations), strict=True):
            all_rows[rows] = some
        return whole, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One tick of all sub-environments."""
        assert self._pool is not None, "reset() was called"
        observations, rewards, terminated, truncated, infos = self._pool.step(actions)
        shown: dict[str, Any] = {}
        if infos.keys() - _NOT_OF_GAME and (ended := terminated | truncated).any():
            shown = {key: value for key, value in infos.items() if key not in _NOT_OF_GAME}
            shown.update({f"_{key}": ended for key in shown})
        return observations, rewards, terminated, truncated, shown

    def render(self) -> Any:
        """A picture of the first sub-environment [1, height, width, 3]."""
        return None if self._pool is None else self._pool.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads of the pool."""
        self._pool = None
