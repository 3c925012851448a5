"""The arena's vector environment as a `VecEnv` of Stable-Baselines3: a row is what the library calls an environment.

Both reset ended rows on the same step. Where the arena says `terminated` and `truncated`, the library wants one `done`
and, in the row's info, `terminal_observation` and `TimeLimit.truncated`: bootstrap from the last observation.

The library acts in all rows on all ticks and knows no action masks. So a row that may not act, in a turn-based game or
after an entity has ended before the others, is an error, and so is a mask: what it would learn there is wrong.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from arena.errors import ConfigError
from arena.game.infos import fields_of

_REMEDY = "use an algorithm of the arena's own, such as ppo, or a worker of your own with the gym face"


_TURN = threading.RLock()  # locked by the worker whose streams are the global ones


class GlobalStreams:
    """Streams of numpy and torch (CPU) that can take the place of the global ones; another key has other streams.

    Stable-Baselines3 draws from numpy's and torch's global streams. Workers that share a process would draw from the
    same ones, and the draws of each would depend on the others. So a worker has its streams, and exchanges them with
    the process's ones whenever it takes its turn:

        with streams:                      the worker's are the global ones
            ...
            with streams.left():           while it waits: others draw from the process's
                env.step(actions)

    One worker at a time has its turn; the roles of a process take turns anyway, and other threads wait here. Python's
    `random`, which the library seeds and does not draw from, is restored at the end.
    """

    def __init__(self, *key: int) -> None:
        numpy_seed, torch_seed = np.random.SeedSequence(key).spawn(2)
        self._numpy: np.random.BitGenerator = np.random.MT19937(numpy_seed)  # the kind that the library can seed
        self._torch = torch.Generator().manual_seed(int(torch_seed.generate_state(1, np.uint32)[0])).get_state()
        self._python: object = None

    def __enter__(self) -> None:
        _TURN.acquire()
        self._python = random.getstate()
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()
        random.setstate(self._python)  # type: ignore[arg-type]
        _TURN.release()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Inside of `with streams`: the process's streams are back for a while."""
        self._exchange()
        _TURN.release()
        try:
            yield
        finally:
            _TURN.acquire()
            self._exchange()

    def _exchange(self) -> None:
        """Swaps the global streams and those kept here; a normal number that numpy has drawn ahead is dropped."""
        others = np.random.get_bit_generator(), torch.get_rng_state()  # type: ignore[attr-defined]
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        torch.set_rng_state(self._torch)
        self._numpy, self._torch = others


class Rows(VecEnv):
    """What the library steps; while the environment is stepped, others may use the global random streams.

    Raises:
        ConfigError: from `reset` and `step`, where a row may not act or a mask forbids an action.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], streams: GlobalStreams) -> None:
        mode = env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP)
        if mode != AutoresetMode.SAME_STEP:
            raise ConfigError(f"Stable-Baselines3 needs a vector environment that resets on the same step, not {mode}")
        self.env, self._streams = env, streams
        self._actions: Any = None
        observation_space = copy.deepcopy(env.single_observation_space)  # the library seeds and draws from its spaces
        super().__init__(env.num_envs, observation_space, from_zero(env.single_action_space))

    def reset(self) -> Any:
        with self._streams.left():
            observations, infos = self.env.reset()
        check_infos(infos)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = to_env(self.env.single_action_space, actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations [B, ...], rewards [B], dones [B] and the infos of all rows."""
        with self._streams.left():
            observations, rewards, terminated, truncated, infos = self.env.step(self._actions)
        check_infos(infos)
        done = terminated | truncated
        row_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done):
            row_infos[row]["terminal_observation"] = fields_of(infos).final_obs[row]
            row_infos[row]["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
        with np.errstate(over="ignore"):  # what float32 does not hold makes the gradient infinite, which is reported
            return observations, rewards.astype(np.float32), done, row_infos

    def close(self) -> None:
        """The arena closes its environments itself."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"{attr_name!r} cannot be set: the game runs in another process")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name!r} cannot be called: the game runs in another process")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]  # whatever wraps the game runs in another process


class UnplayedVectorEnv(VectorEnv[Any, Any, Any]):
    """A vector environment of two rows that has spaces, and is never played: for trying a library's class out."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = observation_space, action_space


def check_infos(infos: Mapping[str, Any]) -> None:
    """Refuses games with action masks, and rows that may not act."""
    check_no_masks(infos)
    active = fields_of(infos).active
    if active is not None and not active.all():
        raise ConfigError(
            f"row {int(np.argmin(active))} of the seat may not act on this tick, in a game with turns or in which an "
            f"entity can end before the others, and Stable-Baselines3 acts in all rows on all ticks; {_REMEDY}"
        )


def check_no_masks(infos: Mapping[str, Any]) -> None:
    """Refuses a game with action masks."""
    if fields_of(infos).action_mask is not None:
        raise masks_refused()


def masks_refused() -> ConfigError:
    """The error for a game with action masks."""
    return ConfigError(f"this game has action masks, and Stable-Baselines3 would play what they forbid; {_REMEDY}")


def from_zero(space: Space[Any]) -> Space[Any]:
    """An action space as the library takes it, a copy: choices are counted from 0."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)
    return copy.deepcopy(space)


def to_env(space: Space[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Actions [B, ...] as the library gives them, as the environment takes them: its first choice and its dtype."""
    typed = actions.astype(space.dtype, copy=False)
    return typed + space.start if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else typed


def check_counted_from_zero(space: Space[Any]) -> None:
    """Refuses observations whose choices begin elsewhere: the library makes indices of them."""
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    for part in parts:
        if isinstance(part, (spaces.Discrete, spaces.MultiDiscrete)) and np.any(part.start):
            raise ConfigError(f"Stable-Baselines3 counts observed choices from 0, not from {part.start}")
