"""Runs the game of a block of lanes, validates its results, and replaces a game that has failed.

A game fails when it raises an exception or returns something that its interface does not allow. With
`on_env_error: stop` the exception is raised to the caller. With `restart`, `step` and `reset` return None, and the
caller calls `new_game`.

A game that fails in its constructor or in its first reset would fail again, so this always ends the run.
"""

from __future__ import annotations

import copy
import logging
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv, Frame, Step
from arena.plan import seeding
from arena.roles.environment.validate import StepValidator

MOST_RESTARTS = 5  # of one match
WINDOW = 60.0  # seconds within which they are counted

_log = logging.getLogger(__name__)

Lanes = NDArray[np.bool_]


class RestartLimit:
    """Limits how often the games of a match may be restarted: `MOST_RESTARTS` within `WINDOW` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque()

    def allows(self) -> bool:
        """Whether another restart is within the limit; counts it if so."""
        now = self._clock()
        while self._times and now - self._times[0] >= WINDOW:
            self._times.popleft()
        if len(self._times) >= MOST_RESTARTS:
            return False
        self._times.append(now)
        return True


class Fault(NamedTuple):
    """A failure of a game that is restarted."""

    error: str  # type and message of the exception
    trace: str
    time: float  # of the failure, seconds of the monotonic clock


class Reset(NamedTuple):
    """The arguments of a reset."""

    seeds: Sequence[int | None] | None  # per lane; None: the game continues its random streams
    options: Mapping[str, Any] | None
    new_game: bool  # whether this is the first reset of a game object


class RestartingGame:
    """The game of some lanes of one match, by their numbers; `seeds` are of the first reset.

    Attributes:
        fault: the failure because of which `step` or `reset` returned None.
        last_reset: the arguments of the newest reset.
    """

    def __init__(
        self, make: Callable[[], BatchedEnv], *, lanes: range, seeds: Sequence[int], limit: RestartLimit | None
    ) -> None:
        self._make, self._lanes, self._seeds, self._limit = make, lanes, seeds, limit
        self._game = make()
        self.interface = self._game.interface
        self._validator = StepValidator(self.interface, len(lanes))
        self.fault: Fault | None = None
        self.last_reset = Reset(seeds, None, new_game=True)
        self.restarts = 0

    def begin(self) -> Frame:
        """Begins the first episode of every lane.

        Raises:
            Exception: as raised by the game.
            GameError: the game returns something that its interface does not allow.
        """
        return self._reset(np.ones(len(self._lanes), np.bool_), Reset(self._seeds, None, new_game=True))

    def reset(
        self, lanes: Lanes, seeds: Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> Frame | None:
        """As `BatchedEnv.reset`; None: the game has failed, and the caller must call `new_game`.

        Raises:
            Exception, GameError: as `begin`, if the game must not be restarted.
        """
        try:
            return self._reset(lanes, Reset(seeds, options, new_game=False))
        except Exception as error:
            if not self._may_restart(error):
                raise
            return None

    def _reset(self, lanes: Lanes, reset: Reset) -> Frame:
        try:
            frame = self._game.reset(lanes, reset.seeds, reset.options)
            self._validator.check_frame(frame, lanes)
        except GameError as error:
            self._set_lane(error)
            raise
        self.last_reset = reset
        return frame

    def step(self, actions: Sequence[Any]) -> Step | None:
        """As `BatchedEnv.step`; None and exceptions as for `reset`."""
        try:
            step = self._game.step(actions)
            self._validator.check_step(step)
            frame = step.frame
            if frame.infos is not None and (ended := step.terminated | step.truncated).any():
                # The game may change them in place when it is reset, before they are sent.
                infos = [copy.deepcopy(i) if rows.any() else i for i, rows in zip(frame.infos, ended, strict=True)]
                step = step._replace(frame=frame._replace(infos=infos))
            return step
        except Exception as error:
            if isinstance(error, GameError):
                error.found += self._validator.describe_nonfinite_action(actions)
                self._set_lane(error)
            if not self._may_restart(error):
                raise
            return None

    def new_game(self, seeds: Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None) -> Frame:
        """Replaces the game that has failed by a new one and begins an episode in every lane; raises as `begin`.

        Lanes without a seed, which a worker has set, get a new one.
        """
        self.close_quietly()
        self._game = self._make()
        if self._game.interface != self.interface:
            raise GameError("another interface after a restart; all games of a match must have the same one")
        self.restarts += 1
        fresh = [seeding.reseed(seed, restarts=self.restarts) for seed in self._seeds]
        used = [new if seed is None else seed for seed, new in zip(seeds or [None] * len(fresh), fresh, strict=True)]
        return self._reset(np.ones(len(self._lanes), np.bool_), Reset(used, options, new_game=True))

    def close(self) -> None:
        """Closes the game; an exception is only logged if games may be restarted."""
        if self._limit is None:
            self._game.close()
        else:
            self.close_quietly()

    def close_quietly(self) -> None:
        """Closes the game; an exception is only logged."""
        try:
            self._game.close()
        except Exception:
            _log.exception("a game that is given up cannot be closed")

    def _may_restart(self, error: Exception) -> bool:
        """Whether the game may be restarted after this exception; keeps the fault if so."""
        if self._limit is None or isinstance(error, ConfigError):  # a game of another interface would fail again
            return False
        if not self._limit.allows():
            text = f"the games of the match have failed more than {MOST_RESTARTS} times in {WINDOW:.0f} seconds"
            _log.error("%s", text)
            if sys.version_info >= (3, 11):
                error.add_note(text)
            return False
        # As text: the traceback of the exception refers to the game, which must be freed.
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.fault = Fault(f"{type(error).__name__}: {error}", trace, time.monotonic())
        return True

    def _set_lane(self, error: GameError) -> None:
        """Translates the lane of an error: the game counts its lanes from 0."""
        if error.lane is not None:
            error.lane = self._lanes[error.lane]
