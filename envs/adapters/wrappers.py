"""The entries of `wrappers` in a configuration: built-in wrappers by name, Gymnasium's wrappers by class.

    wrappers:
      - grayscale                                      # a name
      - resize: [84, 84]                               # with its argument
      - frame_stack: {stack_size: 4}                   # or with several, by name
      - "gymnasium.wrappers:RescaleObservation": {min_obs: 0, max_obs: 1}     # any other class

The first is the innermost. The built-in wrappers work on all lanes and entities of any game at once, see
`envs.adapters.batched_wrappers`. A wrapper class wraps each lane of a Gymnasium environment by itself, with what comes
before it; other games take no wrapper classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError
from arena.game.api import BatchedEnv, Frame
from arena.game.infos import MASK
from arena.game.spaces import row, stack
from envs.adapters.batch import BatchedLanes
from envs.adapters.batched_wrappers import (
    SoftlyTimeLimited,
    StackedObservation,
    TimeLimited,
    TransformedObservation,
    TransformedReward,
    WithoutTermination,
)
from envs.adapters.gymnasium_env import GymnasiumGame
from envs.adapters.sources import check_call
from envs.common import options

Env: TypeAlias = gymnasium.Env[Any, Any]
Pictures: TypeAlias = NDArray[np.uint8]

_MAX_FRAMES = 256
_MAX_REWARD = 1e100
_MAX_TICKS = 2**53
_MAX_PIXELS = 4096  # of a side
_LUMA = np.array([0.2125, 0.7154, 0.0721])  # of red, green and blue, as in gymnasium.wrappers.GrayscaleObservation
_EXACT = 2**24  # below this, float32 represents every whole number


class WrapperSpec(Protocol):
    """One entry of `wrappers`, with checked arguments."""

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        """Wraps a batched game."""


@dataclass(frozen=True)
class FrameStack:
    """The last `stack_size` observations along a new first axis; copies of an episode's first one precede it.

    Pictures [height, width, channels], or [channels, height, width], are stacked along their channels.
    """

    stack_size: int  # how many observations
    padding_type: str = "reset"  # what precedes an episode's first observation: reset, copies of it; or zero

    def __post_init__(self) -> None:
        options.count("stack_size", self.stack_size, most=_MAX_FRAMES)
        options.choice("padding_type", self.padding_type, ("reset", "zero"))

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return StackedObservation(game, self.stack_size, zeros=self.padding_type == "zero")


@dataclass(frozen=True)
class Grayscale:
    """Pictures [height, width, 3] become [height, width], or with `keep_dim` [height, width, 1]."""

    keep_dim: bool = False  # true: [height, width, 1]; false: [height, width]

    def __post_init__(self) -> None:
        options.switch("keep_dim", self.keep_dim)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        def gray(pictures: Pictures) -> Pictures:
            grays: NDArray[np.float64] = np.sum(pictures * _LUMA, axis=-1, keepdims=self.keep_dim)
            return grays.astype(np.uint8)

        transforms = []
        for space in game.interface.observation_spaces:
            if not (isinstance(space, Box) and space == Box(0, 255, (*space.shape[:2], 3), np.uint8)):
                raise TypeError("pictures are bytes [height, width, 3]")
            shape = (*space.shape[:2], 1) if self.keep_dim else space.shape[:2]
            transforms.append((Box(0, 255, shape, np.uint8), gray))
        return TransformedObservation(game, transforms)


@dataclass(frozen=True)
class Resize:
    """Pictures of another size: `shape` is their new height and width."""

    shape: Sequence[int]  # [height, width]

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (list, tuple)) or len(self.shape) != 2:
            raise ConfigError(f"got {self.shape!r}, expected height and width, as [84, 84]", path="shape")
        for side in self.shape:
            options.count("shape", side, most=_MAX_PIXELS)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        resizes = [AreaResize(space, (self.shape[0], self.shape[1])) for space in game.interface.observation_spaces]
        return TransformedObservation(game, [(resize.space, resize) for resize in resizes])


@dataclass(frozen=True)
class ClipReward:
    """Rewards from -`bound` to `bound`; or their sign: -1, 0 or 1."""

    bound: float | str  # a number: rewards from -bound to bound; or sign

    def __post_init__(self) -> None:
        number = isinstance(self.bound, (int, float)) and not isinstance(self.bound, bool)
        if self.bound != "sign" and not (number and 0 < self.bound <= _MAX_REWARD):  # type: ignore[operator]
            raise ConfigError(f"got {self.bound!r}, expected 'sign' or a number above 0", path="bound")

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        if self.bound == "sign":
            return TransformedReward(game, np.sign)
        return TransformedReward(game, partial(np.clip, a_min=-float(self.bound), a_max=float(self.bound)))


@dataclass(frozen=True)
class TimeLimit:
    """Episodes are truncated after `max_episode_steps` ticks; a game in turns plays one turn per tick."""

    max_episode_steps: int  # ticks

    def __post_init__(self) -> None:
        options.count("max_episode_steps", self.max_episode_steps, most=_MAX_TICKS)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return TimeLimited(game, self.max_episode_steps)


@dataclass(frozen=True)
class SoftTimeLimit(TimeLimit):
    """Episodes are truncated after `max_episode_steps` ticks, and the next one goes on where the game is."""

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return SoftlyTimeLimited(game, self.max_episode_steps)


@dataclass(frozen=True)
class NoTermination:
    """Terminations are recorded and learned as truncations: the values of the states after them count."""

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return WithoutTermination(game)


@dataclass(frozen=True)
class WrapperClass:
    """Any other Gymnasium wrapper, with the arguments of the configuration; it wraps each lane by itself."""

    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def wrap_env(self, env: Env) -> Env:
        wrapped = self.make(env, *self.args, **self.kwargs)
        if not isinstance(wrapped, gymnasium.Env):
            raise ConfigError(f"it is no Gymnasium wrapper: it made a {type(wrapped).__name__}, not a gymnasium.Env")
        return wrapped

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        raise ConfigError(
            "a wrapper class wraps a gymnasium.Env, and this game has another interface; use the built-in wrappers "
            f"({', '.join(registry.WRAPPERS)}) or change the game itself"
        )


class _WrappedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment in a built-in wrapper, for a wrapper class to go around it."""

    def __init__(self, env: Env, spec: WrapperSpec) -> None:
        super().__init__(env)
        self._game = spec.wrap_lanes(BatchedLanes([GymnasiumGame(env)]))
        self.observation_space = self._game.interface.observation_spaces[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._shown(self._game.reset(np.ones(1, np.bool_), [seed], options))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        step = self._game.step([stack(self.action_space, [action])])
        observation, info = self._shown(step.frame)
        reward, *ends = (column[0, 0] for column in step[1:])
        return observation, reward, bool(ends[0]), bool(ends[1]), info

    def _shown(self, frame: Frame) -> tuple[Any, dict[str, Any]]:
        (mask,), infos = frame.final_masks or frame.masks, {} if frame.infos is None else frame.infos[0][0]
        observation = row(self.observation_space, frame.observations[0], 0)
        return observation, infos if mask is None else {**infos, MASK: mask[0].copy()}


class AreaResize:
    """Pictures of bytes [height, width] or [height, width, channels]: each new pixel is the mean of what it covers.

    Gymnasium's wrapper uses OpenCV for the same (INTER_AREA). Here it is two matrix products of whole numbers, exact in
    any order of summation, so the pictures are bit-equal on every machine; a half rounds up.
    """

    def __init__(self, observed: Space[Any], shape: tuple[int, int]) -> None:
        if not (isinstance(observed, Box) and observed.dtype == np.uint8 and len(observed.shape) in (2, 3)):
            raise TypeError("pictures are bytes [height, width] or [height, width, channels]")
        self._height, self._width = observed.shape[:2]
        self._area = self._height * self._width
        dtype = np.dtype(np.float32 if 255 * self._area < _EXACT else np.float64)
        overlaps: list[NDArray[Any]] = []  # [cells, pixels] of rows and of columns, in units of 1 / `pixels` of a cell
        for pixels, cells in zip(observed.shape[:2], shape, strict=True):
            pixel, cell = np.arange(pixels) * cells, np.arange(cells)[:, None] * pixels  # their first positions
            overlap: NDArray[np.int64] = np.minimum(pixel + cells, cell + pixels) - np.maximum(pixel, cell)
            overlaps.append(overlap.clip(0).astype(dtype))
        self._rows, self._columns = overlaps
        self.space = Box(0, 255, (*shape, *observed.shape[2:]), np.uint8)

    def __call__(self, pictures: Pictures) -> Pictures:
        """Resizes one picture, or a batch."""
        batch = pictures.shape[: pictures.ndim - len(self.space.shape)]
        lines = pictures.reshape(*batch, self._height, -1).astype(self._rows.dtype)
        lines = self._rows @ lines  # [..., h, width * channels]
        sums: NDArray[Any] = self._columns @ lines.reshape(*batch, len(self._rows), self._width, -1)  # [..., h, w, c]
        means: NDArray[np.int64] = (2 * sums.astype(np.int64) + self._area) // (2 * self._area)
        return means.astype(np.uint8).reshape(*batch, *self.space.shape)


def wrapper_specs(entries: Sequence[tuple[str, Any]]) -> list[tuple[str, WrapperSpec]]:
    """The wrappers of a configuration by name; the argument of an entry: None, one argument, or a mapping of several.

    Raises:
        ConfigError: a wrapper is unknown, or does not take its argument; the path is that of the entry, `wrappers[0]`.
    """
    found: list[tuple[str, WrapperSpec]] = []
    for index, (name, argument) in enumerate(entries):
        kwargs = {str(key): value for key, value in argument.items()} if isinstance(argument, dict) else {}
        args = () if argument is None or isinstance(argument, dict) else (argument,)
        try:
            make = registry.wrapper(name)
            built_in = name in registry.WRAPPERS
            if not built_in and isinstance(make, type) and not issubclass(make, gymnasium.Env):
                raise ConfigError(f"{name} is no Gymnasium wrapper: a wrapper class derives from gymnasium.Wrapper")
            check_call(make, kwargs, args if built_in else (None, *args), name=name)
            found.append((name, make(*args, **kwargs) if built_in else WrapperClass(make, args, kwargs)))
        except ConfigError as error:
            where = f"{name}: {error.path}: " if error.path else ""
            raise ConfigError(f"{where}{error.message}", path=f"wrappers[{index}]") from error
    return found


def wrap_gymnasium(env: Env, around: Sequence[tuple[str, WrapperSpec]]) -> Env:
    """Wraps a Gymnasium environment.

    Raises:
        ConfigError: a wrapper cannot go around it; the path is that of the entry, `wrappers[0]`.
    """
    for index, (name, spec) in enumerate(around):
        try:
            env = spec.wrap_env(env) if isinstance(spec, WrapperClass) else _WrappedEnv(env, spec)
        except Exception as error:  # any error of its constructor means that a wrapper does not fit
            raise _does_not_fit(index, name, f"observations {env.observation_space}", error) from error
    return env


def wrap_batched(game: BatchedEnv, around: Sequence[tuple[str, WrapperSpec]], *, first: int = 0) -> BatchedEnv:
    """Wraps a batched game in the wrappers from the one numbered `first` on; raises as `wrap_gymnasium`."""
    for index, (name, spec) in enumerate(around[first:], start=first):
        try:
            game = spec.wrap_lanes(game)
        except Exception as error:
            spaces = ", ".join(map(str, dict.fromkeys(map(str, game.interface.observation_spaces))))
            raise _does_not_fit(index, name, f"entities that observe {spaces}", error) from error
    return game


def _does_not_fit(index: int, name: str, what: str, error: Exception) -> ConfigError:
    text = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return ConfigError(f"{name} cannot go around {what}: {text}", path=f"wrappers[{index}]")
