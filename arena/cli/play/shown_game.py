"""A game whose infos hold its own picture, for a player in another role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.game.api import BatchedEnv, Frame, Step
from arena.replay.verify import PICTURES, drawer_of, rendering_of, without_screen

PICTURE = "picture of arena play"
"""The key in the infos, which no game has: uint8 [height, width, 3], or text; absent where the game draws neither."""


class RenderedGame:
    """Another game, with a picture of lane 0, or its text, in the infos of all its entities.

    `modes` are the render modes that are looked for, the best one first. A game that is drawn with `seen_by`, the index
    of an entity, is drawn from the side of each.
    """

    batched = True

    def __init__(
        self,
        *,
        lanes: int,
        make: str,
        kwargs: Mapping[str, Any],
        modes: Sequence[str],
        wrappers: Sequence[tuple[str, Any]] = (),
    ) -> None:
        without_screen()
        known = rendering_of(make, kwargs).modes
        mode = next((mode for mode in modes if mode in known), None)
        kwargs = kwargs if mode is None else {**kwargs, "render_mode": mode}
        self._game: BatchedEnv = registry.adapt_environment(make, kwargs, lanes, [*map(tuple, wrappers)])
        self.lanes, self.interface = self._game.lanes, self._game.interface
        self._kinds = (str, np.ndarray) if PICTURES in modes else str
        self._draws = True  # until it has drawn something else
        self._picture: NDArray[np.uint8] | str | None = None  # as the first entity sees it
        self._drawer = drawer_of(self._game, "seen_by")

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
        if not self._draws:
            return frame
        entities = range(len(self.interface.entities))
        has_sides = self._drawer is not None
        infos = frame.infos or [[{} for _ in entities] for _ in range(self.lanes)]
        picture, shown = None, []
        for entity in entities:
            if has_sides:
                self._drawer.seen_by = entity
            if has_sides or not entity:
                picture = self._game.render()
            shown.append({**infos[0][entity], PICTURE: picture})
        if has_sides:
            self._drawer.seen_by = 0
        self._draws, self._picture = isinstance(picture, self._kinds), shown[0][PICTURE]
        return frame._replace(infos=[shown, *infos[1:]]) if self._draws else frame

    def render(self) -> NDArray[np.uint8] | str | None:
        """The game's own picture, or text."""
        return self._picture if self._draws else self._game.render()

    def close(self) -> None:
        """Closes the game."""
        self._game.close()
