"""The root's pen: the one writer of a run's episodes, metrics and TensorBoard files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from arena.records.folder import RunFolder
from arena.records.journal import Journal
from arena.records.lines import EpisodeRecord, UpdateRecord, episode_line, update_line
from arena.records.scoreboard import Score, Scoreboard
from arena.records.tensorboard import ScalarFile

FLUSH_EVERY = 1.0  # seconds


@dataclass
class _Means:
    """The mean of each logged value since the last flush, and the newest ticks."""

    ticks: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, ticks: int, values: Mapping[str, float]) -> None:
        self.ticks = max(self.ticks, ticks)
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
            self.counts[name] = self.counts.get(name, 0) + 1

    def scalars(self) -> dict[str, float]:
        return {f"update/{name}": total / self.counts[name] for name, total in self.sums.items()}


class Recorder:
    """Writes what happens into a run folder; used as a context manager, by one thread.

    Lines reach the files at least every second as long as somebody calls `episode`, `update` or `poll`. TensorBoard
    gets one point per policy and second, the mean of what happened in it, so its cost does not grow with the games.

    Args:
        folder: where to; files that are there are continued.
        resumed_at: the tick from which a resumed run goes on; TensorBoard forgets later points of the earlier run.
        clock: seconds, for the flushes.
        now: wall time in seconds, for TensorBoard.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        resumed_at: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._resumed_at = resumed_at
        self._clock, self._now = clock, now
        self._episodes = Journal(folder.episodes)
        self._metrics = Journal(folder.metrics)
        self._scalar_files: dict[str, ScalarFile] = {}
        self._recent = Scoreboard()
        self._means: dict[str, _Means] = {}
        self._tick = 0
        self._flushed = clock()
        self._closed = False

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def episode(self, record: EpisodeRecord) -> None:
        """Records a finished episode."""
        self._episodes.append(episode_line(record))
        self._recent.episode(record)
        self._tick = max(self._tick, record.tick)
        self.poll()

    def update(self, record: UpdateRecord) -> None:
        """Records an update of a policy."""
        self._metrics.append(update_line(record))
        self._means.setdefault(record.policy, _Means()).add(record.ticks, record.values)
        self.poll()

    def poll(self) -> None:
        """Flushes if a second has passed since the last time; to be called now and then while nothing happens."""
        if self._clock() - self._flushed >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Brings everything recorded so far into the files."""
        self._flushed = self._clock()
        self._episodes.flush()
        self._metrics.flush()
        self._write_scalars()

    def close(self) -> None:
        """Flushes and closes all files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            self._episodes.close()
            self._metrics.close()
            for file in self._scalar_files.values():
                file.close()

    def _write_scalars(self) -> None:
        recent, self._recent = self._recent, Scoreboard()
        means, self._means = self._means, {}
        for policy, score in recent.policies.items():
            self._scalars(policy).add(self._tick, _episode_scalars(score))
        for policy, mean in means.items():
            if mean.sums:
                self._scalars(policy).add(mean.ticks, mean.scalars())
        for file in self._scalar_files.values():
            file.flush()

    def _scalars(self, policy: str) -> ScalarFile:
        if policy not in self._scalar_files:
            folder = self._folder.tensorboard / policy
            self._scalar_files[policy] = ScalarFile(folder, first_step=self._resumed_at, now=self._now)
        return self._scalar_files[policy]


def _episode_scalars(score: Score) -> dict[str, float]:
    means = {
        "episode/return": score.returns.mean,
        "episode/length": score.lengths.mean,
        "episode/win_rate": score.games.mean,
    }
    return {tag: value for tag, value in means.items() if value is not None}
