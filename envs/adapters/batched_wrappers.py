"""Wrappers around batched games: each is a `BatchedEnv` that holds another one."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game import spaces
from arena.game.api import BatchedEnv, Flags, Frame, ResetOptions, Seeds, Step
from arena.game.arrays import lost_value
from arena.game.isolation import Isolation

Array = NDArray[Any]

_MAX_CHANNELS = 4  # of a picture: RGBA


class BatchedWrapper:
    """Passes all calls to another game."""

    wraps_game = True

    def __init__(self, game: BatchedEnv) -> None:
        self.game = game
        self.lanes, self.interface = game.lanes, game.interface

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        return self.game.reset(lanes, seeds, options)

    def step(self, actions: Sequence[Any]) -> Step:
        return self.game.step(actions)

    def render(self) -> NDArray[np.uint8] | str | None:
        return self.game.render()

    def close(self) -> None:
        self.game.close()


class IsolatedGame(BatchedWrapper):
    """Keeps the settings of the process that a game changes from all else in it, see `arena.game.isolation`."""

    def __init__(self, game: BatchedEnv, isolation: Isolation) -> None:
        super().__init__(game)
        self._run = isolation.run

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        return self._run(self.game.reset, lanes, seeds, options)

    def step(self, actions: Sequence[Any]) -> Step:
        return self._run(self.game.step, actions)

    def render(self) -> NDArray[np.uint8] | str | None:
        return self._run(self.game.render)

    def close(self) -> None:
        self._run(self.game.close)


class StateObservation(BatchedWrapper):
    """Adds the state of the whole game to what each entity observes: `{"observation": ..., "state": ...}`.

    The game says it by `state_space`, a Box, and `state()`, [L, ...]. It goes around the game itself.

    Raises:
        ConfigError: the game has no state, or one that is no Box.
    """

    def __init__(self, game: BatchedEnv) -> None:
        super().__init__(game)
        space = getattr(game, "state_space", None)
        if not isinstance(space, Box):
            raise ConfigError(
                f"its state_space is {space}; expected a Box, of what its method state() returns, as many games of "
                "PettingZoo have them; let this wrapper be the first"
            )
        observed = tuple(Dict({"observation": own, "state": space}) for own in game.interface.observation_spaces)
        labels = tuple(replace(one, observations=()) for one in game.interface.labels)
        self.interface = replace(game.interface, observation_spaces=observed, labels=labels)

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        return self._with_state(self.game.reset(lanes, seeds, options))

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        return step._replace(frame=self._with_state(step.frame))

    def _with_state(self, frame: Frame) -> Frame:
        state = self.game.state()  # type: ignore[attr-defined]  # of games with a `state_space`
        return frame._replace(observations=[{"observation": own, "state": state} for own in frame.observations])


class TransformedReward(BatchedWrapper):
    """Applies a function to the rewards [L, E]."""

    def __init__(self, game: BatchedEnv, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        super().__init__(game)
        self._function = function

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        return step._replace(rewards=self._function(step.rewards))


class TimeLimited(BatchedWrapper):
    """Truncates the remaining entities of a lane at the last tick of its episode."""

    def __init__(self, game: BatchedEnv, ticks: int) -> None:
        super().__init__(game)
        self._limit = ticks
        self._played = np.zeros(self.lanes, np.int64)
        self._ended = np.ones((self.lanes, len(self.interface.entities)), np.bool_)

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        frame = self.game.reset(lanes, seeds, options)
        self._played[lanes], self._ended[lanes] = 0, False
        return frame._replace(active=frame.active & ~self._ended)

    def step(self, actions: Sequence[Any]) -> Step:
        step, going = self.game.step(actions), ~self._ended
        self._played += 1
        late = (self._played >= self._limit)[:, None]
        terminated, truncated = step.terminated & going, (step.truncated | late) & going
        self._ended |= terminated | truncated
        frame = step.frame._replace(active=step.frame.active & ~self._ended)
        return Step(frame, np.where(going, step.rewards, 0.0), terminated, truncated)


class WithoutTermination(BatchedWrapper):
    """Truncates where the game terminates."""

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        return step._replace(terminated=np.zeros_like(step.terminated), truncated=step.terminated | step.truncated)


class SoftlyTimeLimited(BatchedWrapper):
    """Truncates each episode after a number of ticks; the next one goes on where the game is, without a reset.

    A lane whose entities have all ended in the game is reset. An entity that has ended in the game before its lane was
    truncated takes no part in the following episodes until the game is reset; each ends for it as for the last other
    entity.
    """

    def __init__(self, game: BatchedEnv, ticks: int) -> None:
        super().__init__(game)
        self._limit = ticks
        self._played = np.zeros(self.lanes, np.int64)  # of the lane's episode
        shape = (self.lanes, len(self.interface.entities))
        self._over = np.ones(shape, np.bool_)  # entities that have ended in the game
        self._ended = np.ones(shape, np.bool_)  # entities that have ended in the episode
        self._last: Frame | None = None  # of the tick at which lanes were truncated; without infos

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        forced = np.array([seed is not None for seed in seeds or [None] * self.lanes]) | bool(options)
        real: Flags = lanes & (self._over.all(axis=1) | forced)
        soft = lanes & ~real
        self._played[lanes], self._over[real], self._ended[lanes] = 0, False, False
        if not soft.any():
            return self.game.reset(lanes, seeds, options)
        last = self._last
        assert last is not None, "these lanes were truncated"
        if not real.any():
            return last
        frame = self.game.reset(real, seeds, options)
        spaces_of = self.interface.observation_spaces
        return frame._replace(
            observations=[
                spaces.replace_rows(space, before, now, real)
                for space, before, now in zip(spaces_of, last.observations, frame.observations, strict=True)
            ],
            active=np.where(real[:, None], frame.active, last.active),
            masks=[
                now if now is None or before is None else np.where(real[:, None], now, before)
                for before, now in zip(last.masks, frame.masks, strict=True)
            ],
        )

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        self._played += 1
        self._over |= step.terminated | step.truncated
        going = ~self._ended
        late = self._played >= self._limit
        # Entities that were over before this episode end with the last of the others.
        last = late | self._over.all(axis=1)
        terminated = step.terminated & going
        truncated = (step.truncated | last[:, None] & ~step.terminated) & going
        self._ended |= terminated | truncated
        if late.any():
            self._last = copy.deepcopy(step.frame._replace(infos=None, final_masks=None))
        frame = step.frame._replace(active=step.frame.active & ~self._ended)
        return Step(frame, np.where(going, step.rewards, 0.0), terminated, truncated)


class ObservationWrapper(BatchedWrapper, ABC):
    """Changes observations; the results are in buffers that are valid until the next call.

    A row changes at a reset of its lane, and at a tick after which its entity is to act or at which its episode ends.
    All other rows keep their last observation.
    """

    def __init__(self, game: BatchedEnv, observation_spaces: Sequence[Space[Any]]) -> None:
        super().__init__(game)
        labels = tuple(replace(one, observations=()) for one in game.interface.labels)  # they are of other numbers
        self.interface = replace(game.interface, observation_spaces=tuple(observation_spaces), labels=labels)
        self._observations = [spaces.empty_batch(space, self.lanes) for space in observation_spaces]

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        frame = self.game.reset(lanes, seeds, options)
        for entity, batch in enumerate(frame.observations):
            self._observe(entity, self._checked(entity, batch, lanes), np.flatnonzero(lanes), first=True)
        return frame._replace(observations=self._observations)

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        shown = step.frame.active | step.terminated | step.truncated
        for entity, batch in enumerate(step.frame.observations):
            # A slice instead of an array of all row numbers: NumPy makes no copy to read it.
            if (rows := shown[:, entity]).any():
                batch = self._checked(entity, batch, rows)
                self._observe(entity, batch, slice(None) if rows.all() else np.flatnonzero(rows))
        return step._replace(frame=step.frame._replace(observations=self._observations))

    def _checked(self, entity: int, batch: Any, lanes: Flags) -> Any:
        """The batch, whose values in these lanes [L] survive the conversion to the buffers."""
        space = self.game.interface.observation_spaces[entity]
        for leaf, array in zip(spaces.leaves_of(space), spaces.flatten(space, batch), strict=True):
            if array.dtype != leaf.dtype and (lost := lost_value(array[lanes], leaf.dtype)) is not None:
                found = f"an observation{leaf.place} with the value {lost}; its space {space} has {leaf.dtype}"
                raise GameError(found, entity=self.interface.entities[entity])
        return batch

    @abstractmethod
    def _observe(self, entity: int, batch: Any, rows: Any, *, first: bool = False) -> None:
        """Adds the (`first`) observations of an entity's episodes in the lanes `rows`; `batch` has all lanes."""


class TransformedObservation(ObservationWrapper):
    """Applies a function to the observations."""

    def __init__(self, game: BatchedEnv, transforms: Sequence[tuple[Box, Callable[[Array], Array]]]) -> None:
        super().__init__(game, [space for space, _ in transforms])
        self._functions = [function for _, function in transforms]

    def _observe(self, entity: int, batch: Any, rows: Any, *, first: bool = False) -> None:
        self._observations[entity][rows] = self._functions[entity](batch[rows])


class StackedObservation(ObservationWrapper):
    """Stacks each entity's last observations along a new first axis, the oldest first; pictures along their channels.

    `zeros`: pads the beginning of an episode with zeros, else with copies of its first observation.
    """

    def __init__(self, game: BatchedEnv, size: int, *, zeros: bool) -> None:
        observed = game.interface.observation_spaces
        super().__init__(game, [stacked_space(space, size) for space in observed])
        self._padding = [spaces.flatten(space, create_zero_array(space)) if zeros else None for space in observed]
        self._frames: list[list[Array]] = []  # per entity and leaf: views [L, size, ...] of the observations
        for space, batch in zip(observed, self._observations, strict=True):
            # By path: a Dict space of Gymnasium may have its keys in another order after batching.
            leaves = [reduce(getitem, leaf.path, batch) for leaf in spaces.leaves_of(space)]
            if (axis := channel_axis(space)) is not None:  # [L, h, w, size * c] is [L, h, w, size, c]
                shape = space.shape or ()
                split = batch.reshape(self.lanes, *shape[:axis], size, *shape[axis:])
                leaves = [np.moveaxis(split, 1 + axis, 1)]
            self._frames.append(leaves)

    def _observe(self, entity: int, batch: Any, rows: Any, *, first: bool = False) -> None:
        space, padding = self.game.interface.observation_spaces[entity], self._padding[entity]
        for index, (frames, leaf) in enumerate(zip(self._frames[entity], spaces.flatten(space, batch), strict=True)):
            if not first and channel_axis(space) == 2:
                # A lane's bytes as one row: moving it by one frame moves every pixel's channels, but for the newest.
                flat, channels = self._observations[entity].reshape(self.lanes, -1), leaf.shape[-1]
                flat[rows, :-channels] = flat[rows, channels:]
            elif not first:
                frames[rows, :-1] = frames[rows, 1:]
            else:
                frames[rows] = leaf[rows][:, None] if padding is None else padding[index]
            frames[rows, -1] = leaf[rows]


def stacked_space(space: Space[Any], size: int) -> Space[Any]:
    """The space of `size` stacked observations: along a new first axis, for pictures along their channels."""
    axis = channel_axis(space)
    if axis is None:
        return batch_space(space, size)
    assert isinstance(space, Box), "pictures are boxes"
    low, high = (np.concatenate([bound] * size, axis) for bound in (space.low, space.high))
    return Box(low, high, dtype=np.uint8)


def channel_axis(space: Space[Any]) -> int | None:
    """The axis of a picture's channels; None if there is none, or the space has no pictures."""
    if not (isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    return next((axis for axis in (2, 0) if space.shape[axis] <= _MAX_CHANNELS), None)
