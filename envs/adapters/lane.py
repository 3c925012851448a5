"""`LaneGame`: a single instance of a game, one lane of `envs.adapters.batch.BatchedLanes`.

    lane_step = game.reset(seed, options)       an episode begins
    lane_step = game.step(actions)              one tick; None is the action of an entity that is not to act

A `LaneGame` only translates. `BatchedLanes` ensures that an end is reported once, that ended entities are not active,
and that lanes that are over are not stepped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.game.api import Info

MASK = "action_mask"  # the key of action masks in Gymnasium and PettingZoo


class LaneStep(NamedTuple):
    """The result of a reset or a step; each field has one item per entity."""

    observations: Sequence[Any]  # None: the last observation is still valid
    active: Sequence[bool]  # true for entities that are to act next
    infos: Sequence[Info]  # with the key "action_mask" if the entity has a mask
    rewards: Sequence[Any]  # as the game returns them
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    over: bool = False  # the episode is over: remaining entities are truncated


class LaneGame(Protocol):
    """A single instance of a game with `E` entities."""

    entities: tuple[str, ...]
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    mask_sizes: tuple[int, ...]  # as far as known from the spaces; infos may have more

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep: ...

    def step(self, actions: Sequence[Any]) -> LaneStep: ...

    def render(self) -> NDArray[np.uint8] | str | None: ...

    def close(self) -> None: ...


def picture(env: Any) -> NDArray[np.uint8] | str | None:
    """The instance's picture or text, if its `render_mode` is "rgb_array" or "ansi"; else None, without a warning."""
    if getattr(env, "render_mode", None) not in ("rgb_array", "ansi"):
        return None
    image = env.render()
    return image if image is None or isinstance(image, str) else np.asarray(image, np.uint8)
