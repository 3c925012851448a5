"""The events of a run, which report its progress to `arena.train`; rank 0 sends them as lines of its stderr.

start       a stage of the run begins: run_dir, round, tick
progress    ticks (of all matches together), total, policies: per policy the fields of `PolicyScore`
message     text: a line that the display of `arena train` would show
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.launch import mpirun

if TYPE_CHECKING:
    from arena.records.scoreboard import Score, Scoreboard
    from arena.run.run import Run

_PROGRESS_EVERY = 0.2  # seconds


class Event(NamedTuple):
    """One event of a run.

    Args:
        kind: `start`, `progress` or `message`.
        data: see the module's table.
    """

    kind: str
    data: Mapping[str, Any]


class PolicyScore(NamedTuple):
    """The results of one policy.

    Args:
        episodes: number of finished episodes.
        mean_return: over all episodes, of the mean over the policy's entities; None if there is no episode.
        last_return: the same over the last 100 episodes.
        win_rate: share of games won among the last 100 decided games; None if there are none.
    """

    episodes: int
    mean_return: float | None
    last_return: float | None
    win_rate: float | None


def policy_score(score: Score) -> PolicyScore:
    """The results of a policy, from its statistics."""
    return PolicyScore(score.episodes, score.returns.mean, score.returns.last_mean, score.win_rate)


class EventDisplay:
    """A display that shows nothing and emits events.

    Args:
        run: the stage that is shown.
        emit: takes the events.
        clock: seconds.
    """

    def __init__(self, run: Run, emit: Callable[[Event], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._emit, self._clock = run, emit, clock
        self._next = 0.0
        self._pending: tuple[int, Scoreboard] | None = None

    def start(self) -> None:
        """Emits `start`."""
        run = self._run
        self._next = self._clock() + _PROGRESS_EVERY
        self._emit(Event("start", {"run_dir": str(run.path), "round": run.plan.round, "tick": run.leg.start}))

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Emits `progress` if it is time."""
        self._pending = ticks_done, scoreboard
        if self._clock() >= self._next:
            self.stop()

    def message(self, text: str) -> None:
        """Emits `message`."""
        self._emit(Event("message", {"text": text}))

    def stop(self) -> None:
        """Emits the last `progress`, if it has not been emitted."""
        if self._pending is None:
            return
        (ticks, scoreboard), self._pending = self._pending, None
        self._next = self._clock() + _PROGRESS_EVERY
        policies = {name: policy_score(score)._asdict() for name, score in scoreboard.shown.items()}
        self._emit(Event("progress", {"ticks": ticks, "total": self._run.total_ticks, "policies": policies}))


def write_event(event: Event) -> None:
    """Writes an event to stderr, for the `arena.train` that has started the launcher."""
    sys.stderr.write(f"{mpirun.EVENT_MARK}{json.dumps(event._asdict())}\n")
    sys.stderr.flush()


def read_event(line: str) -> Event:
    """An event, from its line without the mark."""
    return Event(**json.loads(line))
