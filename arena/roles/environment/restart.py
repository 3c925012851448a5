"""The game of a block of lanes, watched: what it says is checked, and where it fails it may be made anew.

playing    `reset` and `step` pass on what the game says
failed     the game has raised, or has said what its interface does not allow: with `on_env_error: stop` the error goes
           on to whoever called; with `restart` the call returns None
anew       `renew` closes the game, whatever that does, makes another one, and begins an episode in every lane

A game that fails when it is made, or in its first reset, would do so again: that always ends the run.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.api import BatchedEnv, Frame, Step
from arena.plan import seeding
from arena.roles.environment.validate import StepValidator

MOST_RESTARTS = 5  # of one match
WINDOW = 60.0  # seconds within which they are counted

_log = logging.getLogger(__name__)

Lanes = NDArray[np.bool_]


class RestartLimit:
    """Tells a game that fails now and then from one that cannot be played.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque()

    def allows(self) -> bool:
        """Whether one restart more is within the limit; it is counted if so."""
        now = self._clock()
        while self._times and now - self._times[0] >= WINDOW:
            self._times.popleft()
        if len(self._times) >= MOST_RESTARTS:
            return False
        self._times.append(now)
        return True


class Fault(NamedTuple):
    """Why a game was made anew."""

    error: str  # the exception's type and message
    trace: str
    began: float  # when it failed, in seconds of the monotonic clock


class Opening(NamedTuple):
    """How episodes were begun."""

    seeds: Sequence[int | None] | None  # of all lanes; None: random streams go on
    options: Mapping[str, Any] | None
    anew: bool  # whether the game was made for it


class RestartingGame:
    """The game of some lanes of one match.

    Args:
        make: makes the game.
        lanes: the lanes' numbers in the match.
        seeds: of the lanes' first games.
        limit: of the match's restarts; None: a game that fails ends the run.

    Attributes:
        fault: why `step` or `reset` has last returned None.
        opening: how the episodes were begun that were begun last.
        restarts: how often the game was made anew.

    Raises:
        Exception: whatever `make` raises.
    """

    def __init__(
        self, make: Callable[[], BatchedEnv], *, lanes: range, seeds: Sequence[int], limit: RestartLimit | None
    ) -> None:
        self._make = make
        self._lanes = lanes
        self._seeds = seeds
        self._limit = limit
        self._game = make()
        self.interface = self._game.interface
        self._referee = StepValidator(self.interface, len(lanes))
        self.fault: Fault | None = None
        self.opening = Opening(seeds, None, anew=True)
        self.restarts = 0

    def begin(self) -> Frame:
        """Begins the first episode of every lane.

        Raises:
            Exception: whatever the game raises.
            GameError: the game shows what its interface does not allow.
        """
        return self._first(self._seeds, None)

    def reset(
        self, lanes: Lanes, seeds: Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> Frame | None:
        """As `BatchedEnv.reset`; None: the game has failed, and `renew` is to be called.

        Raises:
            Exception, GameError: as `begin`, where the game is not to be made anew.
        """
        try:
            frame = self._game.reset(lanes, seeds, options)
            self._referee.see_frame(frame, lanes)
            self.opening = Opening(seeds, options, anew=False)
            return frame
        except Exception as error:
            if not self._forgives(error):
                raise
            return None

    def step(self, actions: Sequence[Any]) -> Step | None:
        """As `BatchedEnv.step`; None and errors as `reset`."""
        try:
            step = self._game.step(actions)
            self._referee.see_step(step)
            return step
        except Exception as error:
            if isinstance(error, GameError):
                error.found += self._referee.wild_action(actions)
            if not self._forgives(error):
                raise
            return None

    def renew(self, seeds: Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None) -> Frame:
        """Makes another game in the place of the one that has failed and begins an episode in every lane.

        Args:
            seeds: per lane, where somebody has asked for one; other lanes get seeds that no game has had before.
            options: of the reset.

        Raises:
            Exception, GameError: as `begin`.
        """
        self.close_quietly()
        self._game = self._make()
        if self._game.interface != self.interface:
            raise GameError("another interface when it was made anew; every game of a match must have the same one")
        self.restarts += 1
        fresh = [seeding.seed_anew(seed, restarts=self.restarts) for seed in self._seeds]
        asked = seeds or [None] * len(fresh)
        return self._first([new if seed is None else seed for seed, new in zip(asked, fresh, strict=True)], options)

    def close(self) -> None:
        """Closes the game; where games may fail, this may fail too, and is written into the log."""
        if self._limit is None:
            self._game.close()
        else:
            self.close_quietly()

    def close_quietly(self) -> None:
        """Closes the game and writes into the log that it cannot be closed, if so."""
        try:
            self._game.close()
        except Exception:
            _log.exception("a game that is given up cannot be closed")

    def _first(self, seeds: Sequence[int], options: Mapping[str, Any] | None) -> Frame:
        lanes = np.ones(len(self._lanes), np.bool_)
        try:
            frame = self._game.reset(lanes, seeds, options)
            self._referee.see_frame(frame, lanes)
            self.opening = Opening(seeds, options, anew=True)
            return frame
        except GameError as error:
            self._place(error)
            raise

    def _forgives(self, error: Exception) -> bool:
        """Whether the game may be made anew after this error."""
        if isinstance(error, GameError):
            self._place(error)
        if self._limit is None:
            return False
        if not self._limit.allows():
            words = f"the match's games have failed more than {MOST_RESTARTS} times in {WINDOW:.0f} seconds"
            _log.error("%s", words)
            if sys.version_info >= (3, 11):
                error.add_note(words)
            return False
        # As text, for the exception holds all that the game was doing, and so the game itself.
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.fault = Fault(f"{type(error).__name__}: {error}", trace, time.monotonic())
        return True

    def _place(self, error: GameError) -> None:
        """The game counts its own lanes from 0."""
        if error.lane is not None:
            error.lane = self._lanes[error.lane]
