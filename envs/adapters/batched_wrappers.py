"""Wrappers around games of several lanes and entities: each is a `BatchedEnv` with another one in it.

Transformed    rewards become a function of themselves
Limited        every episode is truncated after so many ticks
PerEntity      a Gymnasium wrapper around each entity of each lane, as if it were an environment of its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game import spaces
from arena.game.api import BatchedEnv, Frame, Info, Step

Flags = NDArray[np.bool_]
Env: TypeAlias = gymnasium.Env[Any, Any]


class BatchedWrapper:
    """A game around another one, which it passes on as it is."""

    def __init__(self, game: BatchedEnv) -> None:
        self.game = game
        self.lanes, self.interface = game.lanes, game.interface

    def reset(
        self,
        lanes: Flags,
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """Begins an episode in the lanes of the mask."""
        return self.game.reset(lanes, seeds, options)

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick."""
        return self.game.step(actions)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The game's own picture, or text."""
        return self.game.render()

    def close(self) -> None:
        """Closes the game."""
        self.game.close()


class Transformed(BatchedWrapper):
    """Rewards [L, E] become a function of themselves."""

    def __init__(self, game: BatchedEnv, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        super().__init__(game)
        self._function = function

    def step(self, actions: Sequence[Any]) -> Step:
        step = self.game.step(actions)
        return step._replace(rewards=self._function(step.rewards))


class Limited(BatchedWrapper):
    """All entities that are left in a lane are truncated on the last tick that its episode may have."""

    def __init__(self, game: BatchedEnv, ticks: int) -> None:
        super().__init__(game)
        self._limit = ticks
        self._played = np.zeros(self.lanes, np.int64)
        self._ended = np.ones((self.lanes, len(self.interface.entities)), np.bool_)

    def reset(
        self,
        lanes: Flags,
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
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


class Shown(gymnasium.Env[Any, Any]):
    """What one entity of one lane sees and earns, as a Gymnasium environment: it plays what has been played already.

    Args:
        observation_space: of the entity.
        action_space: of the entity.
        word: the wrapper around it, for messages.
    """

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], word: str) -> None:
        self.observation_space, self.action_space, self._word = observation_space, action_space, word
        self._first: tuple[Any, Info] | None = None
        self._next: tuple[Any, ...] | None = None
        self._action: Any = None

    def begin(self, observation: Any, info: Info) -> None:
        """Says what the next `reset` gives."""
        self._first = (observation, info)

    def advance(self, action: Any, *moment: Any) -> None:
        """Says what the next `step` gives, and the action that has led to it."""
        self._action, self._next = action, moment

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        first, self._first = self._first, None
        if first is None:
            raise RuntimeError(f"the wrapper {self._word} resets the game by itself, {_ALONE}")
        return first

    def step(self, action: Any) -> Any:
        moment, self._next = self._next, None
        if moment is None:
            raise RuntimeError(f"the wrapper {self._word} steps the game more than once per tick, {_ALONE}")
        if action is not self._action:
            raise RuntimeError(f"the wrapper {self._word} changes actions, {_ALONE}")
        return moment


_ALONE = "which it can do around a Gymnasium environment alone: here other entities play in the same game"


class PerEntity(BatchedWrapper):
    """Wraps each entity of each lane by itself; observations lie in buffers that hold until the next call.

    A wrapper's step is the entity's: in a game in turns it is made where the entity may act again or its episode is
    over, with the rewards that have come in between.

    Args:
        game: the game.
        wrap: puts a wrapper around an environment.
        word: what the configuration calls the wrapper, for messages.

    Raises:
        ConfigError: the wrapper changes the space of actions.
    """

    def __init__(self, game: BatchedEnv, wrap: Callable[[Env], Env], word: str) -> None:
        super().__init__(game)
        self._word = word
        entities, seen, done = game.interface.entities, game.interface.observation_spaces, game.interface.action_spaces
        self._shown = [[Shown(*pair, word) for pair in zip(seen, done, strict=True)] for _ in range(self.lanes)]
        self._envs = [[wrap(env) for env in lane] for lane in self._shown]
        for entity, env, space in zip(entities, self._envs[0], done, strict=True):
            if env.action_space != space:
                raise ConfigError(f"it turns the actions of {entity!r} from {space} into {env.action_space}, {_ALONE}")
        self.interface = replace(game.interface, observation_spaces=tuple(e.observation_space for e in self._envs[0]))
        self._observations = [spaces.empty_batch(space, self.lanes) for space in self.interface.observation_spaces]
        shape = (self.lanes, len(entities))
        self._active, self._ended = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
        self._owed = np.zeros(shape)  # rewards that a waiting entity has earned
        self._actions: list[list[Any]] = [[None] * len(entities) for _ in range(self.lanes)]  # of its own last tick

    def reset(
        self,
        lanes: Flags,
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        frame, infos = self.game.reset(lanes, seeds, options), self._no_infos()
        asked = None if options is None else dict(options)
        for lane in np.flatnonzero(lanes).tolist():
            seed = None if seeds is None else seeds[lane]
            self._ended[lane], self._owed[lane] = False, 0.0
            for entity, env in enumerate(self._envs[lane]):
                self._shown[lane][entity].begin(*self._seen(frame, lane, entity))
                observation, infos[lane][entity] = env.reset(seed=_own_seed(seed, entity), options=asked)
                self._observe(lane, entity, observation)
        self._active = frame.active & ~self._ended
        return self._frame(frame, infos)

    def step(self, actions: Sequence[Any]) -> Step:
        self._keep_actions(actions)
        step, infos = self.game.step(actions), self._no_infos()
        going, ends = ~self._ended, step.terminated | step.truncated
        self._owed += np.where(going, step.rewards, 0.0)
        rewards, flags = np.zeros_like(self._owed), np.stack([step.terminated & going, step.truncated & going])
        for lane, entity in np.argwhere(going & (step.frame.active | ends)).tolist():
            observation, info = self._seen(step.frame, lane, entity)
            action, (over, cut) = self._actions[lane][entity], flags[:, lane, entity].tolist()
            self._shown[lane][entity].advance(action, observation, float(self._owed[lane, entity]), over, cut, info)
            observation, reward, over, cut, infos[lane][entity] = self._envs[lane][entity].step(action)
            self._observe(lane, entity, observation)
            rewards[lane, entity], self._owed[lane, entity] = float(reward), 0.0
            flags[:, lane, entity] |= (bool(over), bool(cut))
        self._ended |= flags.any(0)
        self._active = step.frame.active & ~self._ended
        return Step(self._frame(step.frame, infos), rewards, flags[0], flags[1])

    def _keep_actions(self, actions: Sequence[Any]) -> None:
        for lane, entity in np.argwhere(self._active).tolist():
            space = self.interface.action_spaces[entity]
            self._actions[lane][entity] = spaces.row(space, actions[entity], lane)

    def _seen(self, frame: Frame, lane: int, entity: int) -> tuple[Any, Info]:
        """A copy of what the game shows an entity: a wrapper may keep it."""
        space = self.game.interface.observation_spaces[entity]
        info = {} if frame.infos is None else frame.infos[lane][entity]
        return spaces.row(space, frame.observations[entity], lane), info

    def _observe(self, lane: int, entity: int, observation: Any) -> None:
        space = self.interface.observation_spaces[entity]
        try:
            spaces.write_sample(space, observation, self._observations[entity], lane)
        except (TypeError, ValueError) as error:
            name = self.interface.entities[entity]
            found = f"an observation in the wrapper {self._word} that its space does not hold: {error}"
            raise GameError(found, entity=name, lane=lane) from error

    def _no_infos(self) -> list[list[Info]]:
        return [[{} for _ in self.interface.entities] for _ in range(self.lanes)]

    def _frame(self, frame: Frame, infos: Sequence[Sequence[Info]]) -> Frame:
        told = any(info for lane in infos for info in lane)
        return Frame(self._observations, self._active.copy(), frame.masks, infos if told else None, frame.final_masks)


def _own_seed(seed: int | None, entity: int) -> int | None:
    """For an entity's wrappers: no two of a lane draw the same."""
    return None if seed is None else int(np.random.SeedSequence((int(seed), entity)).generate_state(1)[0])
