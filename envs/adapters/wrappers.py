"""The entries of `wrappers` in a configuration: built-in wrappers by name, Gymnasium's wrappers by class.

    wrappers:
      - grayscale                                      # a name
      - resize: [84, 84]                               # with its argument
      - frame_stack: {stack_size: 4}                   # or with several, by name
      - "gymnasium.wrappers:RescaleObservation": {min_obs: 0, max_obs: 1}     # any other class

The first is the innermost. Each lane of a Gymnasium environment is wrapped by itself, with any wrapper class. Games of
other interfaces take only the built-in wrappers, which work on all lanes and entities at once: see
`envs.adapters.batched_wrappers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv
from arena.game.arrays import lost_value
from arena.game.infos import MASK
from arena.game.spaces import flatten, leaves_of, unflatten
from envs.adapters.batched_wrappers import (
    SoftlyTimeLimited,
    StackedObservation,
    StateObservation,
    TimeLimited,
    TransformedObservation,
    TransformedReward,
    WithoutTermination,
    channel_axis,
    stacked_space,
)
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

    def wrap_env(self, env: Env) -> Env: ...

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        """Wraps a batched game, made from any interface but Gymnasium's."""
        ...


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

    def wrap_env(self, env: Env) -> Env:
        env = _checked(env)  # refuses parts with any number of items
        stacked = wrappers.FrameStackObservation(env, self.stack_size, padding_type=self.padding_type)
        space = env.observation_space
        if (axis := channel_axis(space)) is None:
            return stacked
        space = stacked_space(space, self.stack_size)
        return wrappers.TransformObservation(stacked, lambda frames: np.concatenate([*frames], axis=axis), space)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return StackedObservation(game, self.stack_size, zeros=self.padding_type == "zero")


def _checked(env: Env) -> Env:
    """An environment that gives observations in the dtypes of its space: wrappers would cast them without a check."""
    space = env.observation_space
    layout = leaves_of(space)

    def check(observation: Any) -> Any:
        arrays = flatten(space, observation)
        if all(array.dtype == leaf.dtype for leaf, array in zip(layout, arrays, strict=True)):
            return observation
        for leaf, array in zip(layout, arrays, strict=True):
            if (lost := lost_value(array, leaf.dtype)) is not None:
                raise GameError(f"an observation{leaf.place} with the value {lost}; its space {space} has {leaf.dtype}")
        return unflatten(space, [array.astype(leaf.dtype) for leaf, array in zip(layout, arrays, strict=True)])

    return wrappers.TransformObservation(env, check, space)


@dataclass(frozen=True)
class Grayscale:
    """Pictures [height, width, 3] become [height, width], or with `keep_dim` [height, width, 1]."""

    keep_dim: bool = False  # true: [height, width, 1]; false: [height, width]

    def __post_init__(self) -> None:
        options.switch("keep_dim", self.keep_dim)

    def wrap_env(self, env: Env) -> Env:
        space, function = self._transform(env.observation_space)
        return wrappers.TransformObservation(_checked(env), function, space)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return TransformedObservation(game, [*map(self._transform, game.interface.observation_spaces)])

    def _transform(self, space: Space[Any]) -> tuple[Box, Callable[[Pictures], Pictures]]:
        if not (isinstance(space, Box) and space == Box(0, 255, (*space.shape[:2], 3), np.uint8)):
            raise TypeError("pictures are bytes [height, width, 3]")
        shape = (*space.shape[:2], 1) if self.keep_dim else space.shape[:2]

        def gray(pictures: Pictures) -> Pictures:  # of one picture, or a batch
            grays: NDArray[np.float64] = np.sum(pictures * _LUMA, axis=-1, keepdims=self.keep_dim)
            return grays.astype(np.uint8)

        return Box(0, 255, shape, np.uint8), gray


@dataclass(frozen=True)
class Resize:
    """Pictures of another size: `shape` is their new height and width."""

    shape: Sequence[int]  # [height, width]

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (list, tuple)) or len(self.shape) != 2:
            raise ConfigError(f"got {self.shape!r}, expected height and width, as [84, 84]", path="shape")
        for side in self.shape:
            options.count("shape", side, most=_MAX_PIXELS)

    def wrap_env(self, env: Env) -> Env:
        resize = AreaResize(env.observation_space, (self.shape[0], self.shape[1]))
        return wrappers.TransformObservation(_checked(env), resize, resize.space)

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

    def wrap_env(self, env: Env) -> Env:
        if self.bound == "sign":
            return wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward))))
        return wrappers.ClipReward(env, -float(self.bound), float(self.bound))

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

    def wrap_env(self, env: Env) -> Env:
        return wrappers.TimeLimit(env, self.max_episode_steps)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return TimeLimited(game, self.max_episode_steps)


@dataclass(frozen=True)
class SoftTimeLimit(TimeLimit):
    """Episodes are truncated after `max_episode_steps` ticks, and the next one goes on where the game is."""

    def wrap_env(self, env: Env) -> Env:
        return _SoftlyTimeLimitedEnv(env, self.max_episode_steps)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return SoftlyTimeLimited(game, self.max_episode_steps)


class _SoftlyTimeLimitedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that is reset only after its own end, or with a seed or options."""

    def __init__(self, env: Env, ticks: int) -> None:
        super().__init__(env)
        self._limit, self._played = ticks, 0
        self._last: tuple[Any, dict[str, Any]] | None = None  # the first result of the next episode; None: a reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        last, self._last, self._played = self._last, None, 0
        if last is None or seed is not None or options:
            return super().reset(seed=seed, options=options)
        return last

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._played += 1
        if self._played < self._limit or terminated or truncated:
            return observation, reward, terminated, truncated, info
        self._last = observation, {MASK: info[MASK]} if MASK in info else {}
        return observation, reward, terminated, True, info


@dataclass(frozen=True)
class NoTermination:
    """Terminations are recorded and learned as truncations: the values of the states after them count."""

    def wrap_env(self, env: Env) -> Env:
        return _EnvWithoutTermination(env)

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return WithoutTermination(game)


@dataclass(frozen=True)
class State:
    """Observations are `{observation: ..., state: ...}`, with the state of the whole game, from its `state()`.

    All policies of the match see it. `qmix` with the option `state: state` learns from it and plays without it.
    """

    def wrap_env(self, env: Env) -> Env:
        raise ConfigError("a gymnasium.Env has one entity; the state is for games of several, such as of PettingZoo")

    def wrap_lanes(self, game: BatchedEnv) -> BatchedEnv:
        return StateObservation(game)


class _EnvWithoutTermination(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that truncates where it would terminate."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, False, bool(terminated or truncated), info


@dataclass(frozen=True)
class _WrapperClass:
    """Any other Gymnasium wrapper, with the arguments of the configuration."""

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
            found.append((name, make(*args, **kwargs) if built_in else _WrapperClass(make, args, kwargs)))
        except ConfigError as error:
            where = f"{name}: {error.path}: " if error.path else ""
            raise ConfigError(f"{where}{error.message}", path=f"wrappers[{index}]") from error
    return found


def wrapped(game: Any, around: Iterable[tuple[str, WrapperSpec]], *, lanes: bool) -> Any:
    """A Gymnasium environment, or (`lanes`) a batched game that was made from any other interface, in its wrappers.

    Raises:
        ConfigError: a wrapper cannot go around it; the path is that of the entry, `wrappers[0]`.
    """
    for index, (name, spec) in enumerate(around):
        try:
            game = spec.wrap_lanes(game) if lanes else spec.wrap_env(game)
        except Exception as error:  # any error of its constructor means that a wrapper does not fit
            what = (
                "entities that observe " + ", ".join(dict.fromkeys(map(str, game.interface.observation_spaces)))
                if lanes
                else f"observations {game.observation_space}"
            )
            text = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} cannot go around {what}: {text}", path=f"wrappers[{index}]") from error
    return game
