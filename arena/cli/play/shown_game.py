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
        has_sides: whether entities see different pictures.
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
        self._drawer: Any = self._game  # within its wrappers
        while hasattr(self._drawer, "game"):
            self._drawer = self._drawer.game
        self.has_sides = hasattr(self._drawer, "seen_by")

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
        pictures = self.seen() if self._draws_text else [None]
        self._draws_text = isinstance(pictures[0], str)
        if not self._draws_text:
            return frame
        infos = frame.infos or [[{} for _ in self.interface.entities] for _ in range(self.lanes)]
        shown = [{**info, PICTURE: picture} for info, picture in zip(infos[0], pictures, strict=True)]
        return frame._replace(infos=[shown, *infos[1:]])

    def seen(self) -> list[NDArray[np.uint8] | str | None]:
        """What each entity sees; a game with `seen_by`, the index of an entity, is drawn from the side of each."""
        entities, found = range(len(self.interface.entities)), []
        if not self.has_sides:
            return [self._game.render()] * len(entities)
        for self._drawer.seen_by in entities:
            found.append(self._game.render())
        self._drawer.seen_by = 0
        return found

    def render(self) -> NDArray[np.uint8] | str | None:
        """The game's own picture, or text."""
        return self._game.render()

    def close(self) -> None:
        """Closes the game."""
        self._game.close()
