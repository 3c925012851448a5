"""One lane of somebody else's game, in the form that `lanes` packs.

    moment = game.reset(seed, options)       an episode begins
    moment = game.step(actions)              one tick; None is the action of an entity that is not to act

A `LaneGame` translates and nothing more: that an entity's end is told once, that the ended are not active, and what
happens to lanes that are over, is seen to by `envs.adapters.batch.BatchedLanes` for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.game.api import Info

MASK = "action_mask"  # the key under which Gymnasium's and PettingZoo's games give it


class LaneStep(NamedTuple):
    """What a game says after a reset or a step; each has one item per entity."""

    observations: Sequence[Any]  # None: what was seen before still holds
    active: Sequence[bool]  # who is to act next
    infos: Sequence[Info]  # with the key "action_mask" where the entity has a mask
    rewards: Sequence[Any]  # as the game gives them
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    over: bool = False  # nobody is left: whose end was not told is truncated


class LaneGame(Protocol):
    """A single instance of a game with `E` entities."""

    entities: tuple[str, ...]
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    mask_sizes: tuple[int, ...]  # as far as the spaces tell; infos may show more

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep: ...

    def step(self, actions: Sequence[Any]) -> LaneStep: ...

    def render(self) -> NDArray[np.uint8] | str | None: ...

    def close(self) -> None: ...


def picture(env: Any) -> NDArray[np.uint8] | str | None:
    """What the instance renders, if it was made with the `render_mode` "rgb_array" or "ansi"; else None, no warning."""
    if getattr(env, "render_mode", None) not in ("rgb_array", "ansi"):
        return None
    image = env.render()
    return image if image is None or isinstance(image, str) else np.asarray(image, np.uint8)
