"""What `wrappers` in a configuration puts around a game: Gymnasium's own wrappers, by short names or by their classes.

    wrappers:
      - grayscale                                      # a name
      - resize: [84, 84]                               # with its argument
      - frame_stack: {stack_size: 4}                   # or with several, by name
      - "gymnasium.wrappers:RescaleObservation": {min_obs: 0, max_obs: 1}     # any other one, or your own

The first is the innermost. A Gymnasium environment is wrapped itself, each lane by itself, so anything can be done to
it. In games of another kind a wrapper goes around each entity (`envs.adapters.batched_wrappers`): it may change what
the entity sees and earns and end its episode, but neither its actions nor when the game is stepped. Rewards are
clipped, and episodes limited, for all lanes at once there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError
from arena.game.api import BatchedEnv
from envs.adapters.batched_wrappers import Env, Limited, PerEntity, Transformed
from envs.adapters.signatures import check_call
from envs.common import options

_MOST_FRAMES = 256
_MOST_REWARD = 1e100
_MOST_TICKS = 2**53
_MOST_PIXELS = 4096  # of a side
_MOST_CHANNELS = 4  # of a picture: colours, and what can be seen through
_EXACT = 2**24  # below this, float32 holds every whole number


class Wrapping(Protocol):
    """One entry of `wrappers`, its arguments checked."""

    def of_env(self, env: Env) -> Env:
        """The wrapped environment."""
        ...

    def of_lanes(self, game: BatchedEnv, word: str) -> BatchedEnv:
        """The wrapped game of any kind; `word` stands for the wrapper in the messages of what goes wrong later."""
        ...


class _ForEntities(ABC):
    """A wrapping that goes around each entity of a game by itself."""

    @abstractmethod
    def of_env(self, env: Env) -> Env:
        """The wrapped environment."""

    def of_lanes(self, game: BatchedEnv, word: str) -> BatchedEnv:
        return PerEntity(game, self.of_env, word)


@dataclass(frozen=True)
class FrameStack(_ForEntities):
    """The last `stack_size` observations along a new first axis; before an episode's first there is a copy of it.

    Pictures [height, width, channels], or [channels, height, width], are stacked along their channels.
    """

    stack_size: int  # how many observations
    padding_type: str = "reset"  # what comes before an episode's first: reset, copies of that; or zero

    def __post_init__(self) -> None:
        options.count("stack_size", self.stack_size, most=_MOST_FRAMES)
        options.choice("padding_type", self.padding_type, ("reset", "zero"))

    def of_env(self, env: Env) -> Env:
        stacked = wrappers.FrameStackObservation(env, self.stack_size, padding_type=self.padding_type)
        axis = _channels(env.observation_space)
        return stacked if axis is None else JoinedChannels(stacked, axis)


@dataclass(frozen=True)
class Grayscale(_ForEntities):
    """Pictures [height, width, 3] become [height, width], or with `keep_dim` [height, width, 1]."""

    keep_dim: bool = False  # true: [height, width, 1]; false: [height, width]

    def __post_init__(self) -> None:
        options.switch("keep_dim", self.keep_dim)

    def of_env(self, env: Env) -> Env:
        return wrappers.GrayscaleObservation(env, keep_dim=self.keep_dim)


@dataclass(frozen=True)
class Resize(_ForEntities):
    """Pictures of another size: `shape` is their new height and width."""

    shape: Sequence[int]  # [height, width]

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (list, tuple)) or len(self.shape) != 2:
            raise ConfigError(f"got {self.shape!r}, expected height and width, as [84, 84]", path="shape")
        for side in self.shape:
            options.count("shape", side, most=_MOST_PIXELS)

    def of_env(self, env: Env) -> Env:
        return AreaResize(env, (self.shape[0], self.shape[1]))


@dataclass(frozen=True)
class ClipReward:
    """Rewards from -`bound` to `bound`; or their sign: -1, 0 or 1."""

    bound: float | str  # a number: rewards from -bound to bound; or sign

    def __post_init__(self) -> None:
        number = isinstance(self.bound, (int, float)) and not isinstance(self.bound, bool)
        if self.bound != "sign" and not (number and 0 < self.bound <= _MOST_REWARD):  # type: ignore[operator]
            raise ConfigError(f"got {self.bound!r}, expected 'sign' or a number above 0", path="bound")

    def of_env(self, env: Env) -> Env:
        if self.bound == "sign":
            return wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward))))
        return wrappers.ClipReward(env, -float(self.bound), float(self.bound))

    def of_lanes(self, game: BatchedEnv, word: str) -> BatchedEnv:
        if self.bound == "sign":
            return Transformed(game, np.sign)
        return Transformed(game, partial(np.clip, a_min=-float(self.bound), a_max=float(self.bound)))


@dataclass(frozen=True)
class TimeLimit:
    """Episodes are truncated after so many ticks; a game in turns plays one turn per tick."""

    max_episode_steps: int  # ticks

    def __post_init__(self) -> None:
        options.count("max_episode_steps", self.max_episode_steps, most=_MOST_TICKS)

    def of_env(self, env: Env) -> Env:
        return wrappers.TimeLimit(env, self.max_episode_steps)

    def of_lanes(self, game: BatchedEnv, word: str) -> BatchedEnv:
        return Limited(game, self.max_episode_steps)


@dataclass(frozen=True)
class _Own(_ForEntities):
    """Any other wrapper, with the arguments of the configuration."""

    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def of_env(self, env: Env) -> Env:
        wrapped = self.make(env, *self.args, **self.kwargs)
        if not isinstance(wrapped, gymnasium.Env):
            raise ConfigError(f"it is no Gymnasium wrapper: it made a {type(wrapped).__name__}, not a gymnasium.Env")
        return wrapped


def _channels(space: Space[Any]) -> int | None:
    """The axis of a picture's channels; None where there is none, or it is no picture."""
    if not (isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    return next((axis for axis in (2, 0) if space.shape[axis] <= _MOST_CHANNELS), None)


class JoinedChannels(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Stacked pictures [frames, ...] as one, which has the channels of all, the oldest first.

    Args:
        env: whose observations are stacked pictures.
        axis: of the channels, in a single picture.
    """

    def __init__(self, env: Env, axis: int) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box), "pictures are"
        self._axis = axis
        self.observation_space = Box(self.observation(space.low), self.observation(space.high), dtype=np.uint8)

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.concatenate(list(observation), axis=self._axis)


class AreaResize(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Pictures of bytes [height, width] or [height, width, channels] by the mean of what each new pixel covers.

    Gymnasium's own asks OpenCV for the same (INTER_AREA). Here it is two matrix products of whole numbers, exact in
    any order, so that the pictures are the same to the bit on every machine; a half rounds up.
    """

    def __init__(self, env: Env, shape: tuple[int, int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not (isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)):
            raise TypeError("pictures are bytes [height, width] or [height, width, channels]")
        height, width = space.shape[:2]
        dtype = np.dtype(np.float32 if 255 * height * width < _EXACT else np.float64)
        self._rows, self._columns = _cover(height, shape[0], dtype), _cover(width, shape[1], dtype)
        self._area = height * width
        self.observation_space = Box(0, 255, (*shape, *space.shape[2:]), np.uint8)

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = observation.shape[:2]
        lines: NDArray[Any] = self._rows @ observation.reshape(height, -1).astype(
            self._rows.dtype
        )  # [h, width * channels]
        sums: NDArray[Any] = self._columns @ lines.reshape(len(lines), width, -1)  # [h, w, channels]
        means: NDArray[np.int64] = (2 * sums.astype(np.int64) + self._area) // (2 * self._area)
        return np.reshape(means.astype(np.uint8), self.observation_space.shape or ())


def _cover(pixels: int, cells: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """How much of each cell each pixel covers [cells, pixels], in parts of which a cell has `pixels`."""
    pixel, cell = np.arange(pixels) * cells, np.arange(cells)[:, None] * pixels  # where they begin
    overlap: NDArray[np.int64] = np.minimum(pixel + cells, cell + pixels) - np.maximum(pixel, cell)
    return overlap.clip(0).astype(dtype)


def wrappings(entries: Sequence[tuple[str, Any]]) -> list[tuple[str, Wrapping]]:
    """What a configuration asks for, with the names for messages.

    Args:
        entries: name and argument of each: None, one argument, or a mapping of several.

    Raises:
        ConfigError: there is no such wrapper, or it does not take its argument; the path is `wrappers[0]`.
    """
    found: list[tuple[str, Wrapping]] = []
    for index, (name, argument) in enumerate(entries):
        try:
            found.append((name, _wrapping(name, argument)))
        except ConfigError as error:
            words = f"{name}: {error.path}: " if error.path else ""
            raise ConfigError(f"{words}{error.message}", path=f"wrappers[{index}]") from error
    return found


def _wrapping(name: str, argument: Any) -> Wrapping:
    make = registry.wrapper(name)
    kwargs = {str(key): value for key, value in argument.items()} if isinstance(argument, dict) else {}
    args = () if argument is None or isinstance(argument, dict) else (argument,)
    if name not in registry.WRAPPERS:
        if isinstance(make, type) and not issubclass(make, gymnasium.Env):
            raise ConfigError(f"{name} is no Gymnasium wrapper: a class that is one derives from gymnasium.Wrapper")
        check_call(make, kwargs, (None, *args), name=name)
        return _Own(make, args, kwargs)
    check_call(make, kwargs, args, name=name)
    made: Wrapping = make(*args, **kwargs)
    return made


def wrapped_env(env: Env, around: Iterable[tuple[str, Wrapping]]) -> Env:
    """A Gymnasium environment in its wrappers.

    Raises:
        ConfigError: one of them cannot go around it; the path is `wrappers[0]`.
    """
    for index, (name, wrapping) in enumerate(around):
        try:
            env = wrapping.of_env(env)
        except Exception as error:  # whatever a wrapper raises when it is made says that it does not fit
            raise _misfit(index, name, f"observations {env.observation_space}", error) from error
    return env


def wrapped_lanes(game: BatchedEnv, around: Iterable[tuple[str, Wrapping]]) -> BatchedEnv:
    """A game of any other kind in its wrappers.

    Raises:
        ConfigError: as `wrapped_env`.
    """
    for index, (name, wrapping) in enumerate(around):
        try:
            game = wrapping.of_lanes(game, f"{name!r} (wrappers[{index}])")
        except Exception as error:
            spaces = ", ".join(map(str, dict.fromkeys(map(str, game.interface.observation_spaces))))
            raise _misfit(index, name, f"entities that observe {spaces}", error) from error
    return game


def _misfit(index: int, name: str, what: str, error: Exception) -> ConfigError:
    words = error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return ConfigError(f"{name} cannot go around {what}: {words}", path=f"wrappers[{index}]")
