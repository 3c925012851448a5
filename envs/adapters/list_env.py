"""The arena's own plain interface as a `LaneGame`: lists with one item per entity.

    class MyGame:
        observation_spaces = [...]                 one Gymnasium space per entity
        action_spaces = [...]
        def reset(self, *, seed=None, options=None): return [obs, ...]
        def step(self, actions): return [obs, ...], [reward, ...], done, [info, ...]

`done` is one bool, or a list with one per entity. An entity that is done is truncated if its info has a true
"TimeLimit.truncated", otherwise terminated. `reset` gets those of `seed` and `options` that it takes. Optional:
`entities` (names), `seed(seed)` (called before a reset that takes no seed), `render()` (an RGB array), `close()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game.context import begin
from arena.game.spaces import no_op
from envs.adapters.lane import LaneGame, LaneStep, flag, returned

TRUNCATED = "TimeLimit.truncated"
_OF_STEP = ("observations", "rewards", "done", "infos")
_REMEDY = f"in the interface of lists an entity that is done is truncated if its info has a true {TRUNCATED!r}"


class ListGame(LaneGame):
    """Plays an environment of the list interface; entities without names are `entity_0`, ..."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
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
        n = len(self.entities)
        result = begin(self._env, seed, options)
        infos = result[1] if isinstance(result, tuple) and len(result) == 2 else None
        listed = isinstance(infos, (list, tuple)) and bool(infos) and all(isinstance(one, Mapping) for one in infos)
        if listed or isinstance(infos, Mapping):
            raise ConfigError(
                f"reset() of {type(self._env).__name__} gave observations and infos; in the interface of lists it "
                "gives a list of observations, one per entity, and no infos"
            )
        observations = self._per_entity("observations", result)
        self._done = [False] * n
        return LaneStep(observations, [True] * n, [{}] * n, [0.0] * n, [False] * n, [False] * n)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One joint step; entities that are done get the no-op."""
        joint = [
            no_op(space) if action is None else action
            for space, action in zip(self.action_spaces, actions, strict=True)
        ]
        observations, rewards, done, infos = returned(self._env, "step", self._env.step(joint), _OF_STEP, _REMEDY)
        ended = [flag(done)] * len(joint) if np.ndim(done) == 0 else [flag(one) for one in done]
        parts = {"observations": observations, "rewards": rewards, "infos": infos, "values of done": ended}
        for what, part in parts.items():
            self._per_entity(what, part)
        cut = [
            over and isinstance(info, Mapping) and bool(info.get(TRUNCATED))
            for over, info in zip(ended, infos, strict=True)
        ]
        self._done = [before or now for before, now in zip(self._done, ended, strict=True)]
        return LaneStep(
            observations=observations,
            active=[not over for over in self._done],
            infos=infos,
            rewards=rewards,
            terminated=[over and not late for over, late in zip(ended, cut, strict=True)],
            truncated=cut,
        )

    def _per_entity(self, what: str, values: Sequence[Any]) -> Sequence[Any]:
        try:
            count = len(values)
        except TypeError:  # such as one float
            raise GameError(f"{values!r:.80} as {what}; expected a list, one per entity") from None
        if count != len(self.entities):
            found = f"a {type(values).__name__} of {count} {what} for {len(self.entities)} entities"
            raise GameError(f"{found}; expected a list, one per entity")
        return values

    def render(self) -> NDArray[np.uint8] | None:
        image = self._env.render() if hasattr(self._env, "render") else None
        return None if image is None else np.asarray(image, np.uint8)
