"""A game whose infos hold its own text picture, for a player in another role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.game.api import BatchedEnv, Frame, Step
from arena.replay.verify import TEXT, rendering_of, without_screen

PICTURE = "text picture of arena play"
"""The key in the infos, which no game has; absent where the game renders no text."""


class RenderedGame:
    """Another game, with a text picture of lane 0 in the infos of all its entities.

    Attributes:
        modes: the render modes that are looked for, the best one first.
    """

    batched = True
    modes: Sequence[str] = (TEXT,)

    def __init__(
        self, *, lanes: int, make: str, kwargs: Mapping[str, Any], wrappers: Sequence[tuple[str, Any]] = ()
    ) -> None:
        around = [(name, argument) for name, argument in wrappers]
        without_screen()
        known = rendering_of(make, kwargs).modes
        kwargs = {**kwargs, **next(({"render_mode": mode} for mode in self.modes if mode in known), {})}
        self._game: BatchedEnv = registry.adapt_environment(make, kwargs, lanes, around)
        self.lanes, self.interface = self._game.lanes, self._game.interface
        self._draws_text = True  # until it has drawn something else

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """Begins an episode in these lanes."""
        return self._shown(self._game.reset(lanes, seeds, options))

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick."""
        step = self._game.step(actions)
        return step._replace(frame=self._shown(step.frame))

    def _shown(self, frame: Frame) -> Frame:
        picture = self._game.render() if self._draws_text else None
        if not isinstance(picture, str):
            self._draws_text = False
            return frame
        infos = frame.infos or [[{} for _ in self.interface.entities] for _ in range(self.lanes)]
        return frame._replace(infos=[[{**info, PICTURE: picture} for info in infos[0]], *infos[1:]])

    def render(self) -> NDArray[np.uint8] | str | None:
        """The game's own picture, or text."""
        return self._game.render()

    def close(self) -> None:
        """Closes the game."""
        self._game.close()
