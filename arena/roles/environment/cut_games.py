"""Copies of the games that the end of a leg cuts, played to their ends after the leg.

The copies must not change the game itself, which begins new episodes on the last tick. So a copy is made after that
tick and before those episodes, and the random streams of the process are restored after each call of the copy. The
results of short and of long games then count alike; without the copies mostly long ones would be lost.
"""

from __future__ import annotations

import copy
import copyreg
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from arena.game.api import Frame, Step
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.episodes import EpisodeTracker
from arena.roles.environment.restart import RestartingGame
from arena.roles.process import kept_streams

_DRAWN_ON = ("pygame", "Surface"), ("pygame.font", "Font"), ("pygame.freetype", "Font"), ("pygame.time", "Clock")
"""Module and name of classes whose objects cannot be copied, and hold no state of a game."""


class Moved(NamedTuple):
    """One tick of copied games.

    Args:
        step: its result.
        ends: whether any entity has ended.
        over: [L] the lanes whose episodes are over.
        begun: the first observations of the next episodes there; None if there are none.
        records: of the cut episodes that have ended.
        failed: whether the game has failed.
    """

    step: Step
    ends: bool
    over: NDArray[np.bool_]
    begun: Frame | None
    records: Sequence[EpisodeRecord]
    failed: bool


class CutGames:
    """The lanes of a game in mid-episode, as they are after the last tick of a leg.

    A game steps all of its lanes, so lanes whose episodes have ended play further ones, which are not recorded.

    Args:
        game: of the leg; it is copied.
        tracker: of its episodes, before that tick is added; it is copied.
        step: the result of that tick.

    Attributes:
        open: [L] the lanes whose cut episodes have not ended.
        ticks: how many were played.
        reason: why the game cannot be copied; empty if it can.
    """

    def __init__(self, game: RestartingGame, tracker: EpisodeTracker, step: Step) -> None:
        self._tracker = copy.deepcopy(tracker)
        over, _ = self._tracker.tick(step)
        self.open: NDArray[np.bool_] = ~over
        self.ticks = 0
        self.reason = ""
        self._step = step._replace(frame=copy.deepcopy(step.frame))  # a game may reuse its arrays
        self._game: RestartingGame | None = None
        if self.open.any():
            try:
                with kept_streams(), _copied_with_their_state():
                    self._game = copy.deepcopy(game)
            except Exception as error:  # any: classes define how they are copied
                self.reason = f"its games cannot be copied ({type(error).__name__}: {error})"

    def begin(self) -> tuple[Frame, Frame | None]:
        """What the entities observe, and the first observations of lanes that are not open; None if all are."""
        assert self._game is not None, "there are open lanes, and the game was copied"
        over = ~self.open
        if not over.any():
            return self._step.frame, None
        self._tracker.restart(np.flatnonzero(over))
        with kept_streams():
            begun = self._game.reset(over)
        if begun is not None:
            self._tracker.begin(begun, over)
        return self._step.frame, begun

    def move(self, actions: Sequence[Any], tick: int) -> Moved:
        """Plays one tick.

        Args:
            actions: per entity [L, ...].
            tick: of the leg's end, at which the episodes count.
        """
        assert self._game is not None, "there are open lanes, and the game was copied"
        self.ticks += 1
        with kept_streams():
            step = self._game.step(actions)
            if step is None:
                return Moved(self._step, False, np.zeros_like(self.open), None, (), failed=True)
            over, ends = self._tracker.tick(step)
            if not over.any():
                return Moved(step, ends, over, None, (), failed=False)
            step = step._replace(frame=copy.deepcopy(step.frame))
            begun = self._game.reset(over)
        wanted = set(np.flatnonzero(over & self.open).tolist())
        places = np.flatnonzero(over).tolist()
        ended = self._tracker.finish(over, tick)
        if begun is not None:
            self._tracker.begin(begun, over)
        records = [
            record._replace(late=self.ticks) for place, record in zip(places, ended, strict=True) if place in wanted
        ]
        self.open &= ~over
        return Moved(step, ends, over, begun, records, failed=begun is None)

    def close(self) -> None:
        """Closes the copied game."""
        if self._game is not None:
            self._game.close_quietly()


@contextmanager
def _copied_with_their_state() -> Iterator[None]:
    """Lets copies of `EzPickle` objects keep their state, and share what games draw on.

    Most games of Gymnasium and PettingZoo are such objects. Pickling, and so copying, keeps only the arguments of their
    constructor: the copy would be a new game. Surfaces, fonts and clocks of pygame cannot be copied; games create them
    even when nothing is rendered.
    """

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        memo[id(self)] = found = object.__new__(type(self))
        vars(found).update(copy.deepcopy(vars(self), memo))
        return found

    kinds = [getattr(sys.modules.get(module), name, None) for module, name in _DRAWN_ON]
    drawn_on = [kind for kind in kinds if isinstance(kind, type) and kind not in copyreg.dispatch_table]
    EzPickle.__deepcopy__ = copied  # type: ignore[attr-defined]
    copyreg.dispatch_table.update(dict.fromkeys(drawn_on, lambda _: "the object itself"))
    try:
        yield
    finally:
        del EzPickle.__deepcopy__  # type: ignore[attr-defined]
        for kind in drawn_on:
            del copyreg.dispatch_table[kind]


def median_by_ticks(lengths: Counter[int]) -> int:
    """The median over all ticks of the length of the episode under way: half of all ticks are in longer episodes.

    The end of a leg cuts the episode under way at its last tick. The median over episodes would be too low where many
    are short.

    Args:
        lengths: the number of episodes of each length; a cut episode counts with the ticks that were played.
    """
    total, passed = sum(length * count for length, count in lengths.items()), 0
    for length in sorted(lengths):
        passed += length * lengths[length]
        if 2 * passed >= total:
            return length
    return 1
