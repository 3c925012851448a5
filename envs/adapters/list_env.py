"""The arena's own plain interface as a `LaneGame`: lists with one item per entity.

    class MyGame:
        observation_spaces = [...]                 one Gymnasium space per entity
        action_spaces = [...]
        def reset(self): return [obs, ...]
        def step(self, actions): return [obs, ...], [reward, ...], done, [info, ...]

`done` is one bool, or a list with one per entity. An entity that is done is truncated if its info has a true
"TimeLimit.truncated", otherwise terminated. Optional: `entities` (names), `seed(seed)` (called before the reset;
without it seeds are not used), `render()` (an RGB array), `close()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import no_op
from envs.adapters.lane import LaneStep

TRUNCATED = "TimeLimit.truncated"


class ListGame:
    """Plays an environment of the list interface; entities without names are `entity_0`, ..."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.observation_spaces: tuple[Space[Any], ...] = tuple(env.observation_spaces)
        self.action_spaces: tuple[Space[Any], ...] = tuple(env.action_spaces)
        names = getattr(env, "entities", None) or [f"entity_{i}" for i in range(len(self.action_spaces))]
        self.entities = tuple(str(name) for name in names)
        self.mask_sizes = (0,) * len(self.entities)
        sizes = (len(self.entities), len(self.observation_spaces), len(self.action_spaces))
        if len(set(sizes)) > 1:
            raise ConfigError(
                "{} has {} entities, {} observation_spaces and {} action_spaces; their numbers must be equal".format(
                    type(env).__name__, *sizes
                )
            )
        self._done = [False] * len(self.entities)

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode; this interface has no `options`."""
        if seed is not None and hasattr(self._env, "seed"):
            self._env.seed(seed)
        n = len(self.entities)
        observations = self._per_entity("observations", self._env.reset())
        self._done = [False] * n
        return LaneStep(observations, [True] * n, [{}] * n, [0.0] * n, [False] * n, [False] * n)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One joint step; entities that are done get the no-op."""
        joint = [
            no_op(space) if action is None else action
            for space, action in zip(self.action_spaces, actions, strict=True)
        ]
        observations, rewards, done, infos = self._env.step(joint)
        self._per_entity("observations", observations)
        self._per_entity("rewards", rewards)
        self._per_entity("infos", infos)
        ended = [bool(done)] * len(joint) if np.ndim(done) == 0 else [bool(one) for one in done]
        self._per_entity("values of done", ended)
        cut = [over and bool(info.get(TRUNCATED)) for over, info in zip(ended, infos, strict=True)]
        self._done = [before or now for before, now in zip(self._done, ended, strict=True)]
        return LaneStep(
            observations=observations,
            active=[not over for over in self._done],
            infos=infos,
            rewards=rewards,
            terminated=[over and not late for over, late in zip(ended, cut, strict=True)],
            truncated=cut,
        )

    def _per_entity(self, what: str, given: Sequence[Any]) -> Sequence[Any]:
        if len(given) != len(self.entities):
            raise ValueError(f"the game gave {len(given)} {what} for {len(self.entities)} entities")
        return given

    def render(self) -> NDArray[np.uint8] | None:
        """The environment's picture, if it has `render`."""
        image = self._env.render() if hasattr(self._env, "render") else None
        return None if image is None else np.asarray(image, np.uint8)

    def close(self) -> None:
        """Closes the environment, if it has `close`."""
        if hasattr(self._env, "close"):
            self._env.close()
