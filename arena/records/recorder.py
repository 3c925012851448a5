"""Writes a run's episodes, metrics and TensorBoard files; only the root uses it."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush, heapreplace
from types import TracebackType
from typing import TYPE_CHECKING

from arena.errors import WriteError
from arena.records.atomic import make_folder
from arena.records.figures import Results, results_of
from arena.records.folder import RunFolder
from arena.records.formats import GamesLine, update_line
from arena.records.iterations import NO_UPDATES
from arena.records.journal import Journal, as_read
from arena.records.metrics import EpisodeRecord, UpdateRecord, place_of
from arena.records.tensorboard import ScalarFile

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.records.results import RunResults

FLUSH_EVERY = 1.0  # seconds

_log = logging.getLogger(__name__)


class InOrder:
    """Holds episodes of several ranks until their places in one order are certain: by tick, then by match and lane.

    Ranks report the episodes of their matches at different times, but the file is to be the same in every run of the
    same configuration. So an episode waits here until no rank can report an earlier one. The `ticks` are those that all
    matches of a rank have played. A report costs a few microseconds, however many ranks there are.
    """

    def __init__(self, ticks: Mapping[int, int]) -> None:
        self._ticks: dict[int, float] = dict(ticks)
        #: A heap with one entry per rank that plays, of which the first one is brought up to date.
        self._slowest: list[tuple[float, int]] = sorted((tick, rank) for rank, tick in ticks.items())
        self._waiting: dict[int, list[EpisodeRecord]] = {}  # by tick
        self._waiting_ticks: list[int] = []  # a heap: the keys of `_waiting`

    @property
    def reached(self) -> float:
        """The tick up to which all episodes have been added; inf if no rank holds up the others."""
        slowest = self._slowest
        while slowest and slowest[0][0] < (tick := self._ticks[slowest[0][1]]):
            if tick == math.inf:
                heappop(slowest)
            else:
                heapreplace(slowest, (tick, slowest[0][1]))
        return slowest[0][0] if slowest else math.inf

    def add(
        self, rank: int, tick: int, episodes: Sequence[EpisodeRecord], *, last: bool = False
    ) -> list[EpisodeRecord]:
        """Adds episodes of a rank; returns the waiting episodes whose places in the order are certain now.

        The rank has reached a tick: all its later episodes end after it. With `last` it no longer holds up the others,
        as it has ended early or has played all that an evaluation asks for; a later call for it revokes this.
        """
        before, self._ticks[rank] = self._ticks[rank], math.inf if last else tick
        if self._ticks[rank] < before:
            heappush(self._slowest, (tick, rank))
        for episode in episodes:
            if episode.tick not in self._waiting:
                self._waiting[episode.tick] = []
                heappush(self._waiting_ticks, episode.tick)
            self._waiting[episode.tick].append(episode)
        return self.up_to(self.reached)

    def up_to(self, reached: float = math.inf) -> list[EpisodeRecord]:
        """The waiting episodes up to a tick, or all, if no others will come."""
        ripe: list[EpisodeRecord] = []
        while self._waiting_ticks and self._waiting_ticks[0] <= reached:
            ripe += sorted(self._waiting.pop(heappop(self._waiting_ticks)), key=place_of)
        return ripe


class Recorder:
    """Writes what happens into a run folder, whose files are continued; a context manager, used by one thread.

    Lines reach the files at least every second while `episodes`, `update` or `poll` are called. TensorBoard gets one
    point per policy and second, the mean of what happened in it, so its cost does not grow with the games.

    Args:
        ticks: per rank that reports episodes, how many ticks its matches have played before.
        resumed_at: the tick from which a resumed run goes on; TensorBoard forgets later points of the earlier run.
        callbacks: receive every line; `results`: everything that was recorded, and are flushed with the journals.
        scalars: whether TensorBoard files are written.
    """

    def __init__(
        self,
        folder: RunFolder,
        ticks: Mapping[int, int],
        *,
        resumed_at: int | None = None,
        callbacks: Callbacks | None = None,
        results: RunResults | None = None,
        scalars: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._resumed_at = resumed_at
        self._on_episode = callbacks.episode if callbacks is not None and callbacks.needs_episodes else None
        self._on_update = callbacks.update if callbacks is not None and callbacks.needs_updates else None
        self._callbacks, self._results = callbacks, results
        self._has_scalars = scalars
        self._clock = clock
        self._episodes = Journal(folder.episodes)
        self._order = InOrder(ticks)
        self._metrics = Journal(folder.metrics)
        self._measures: Journal | None = None  # opened when something is measured
        self._scalar_files: dict[str, ScalarFile] = {}
        self._tick = 0
        self._updated: dict[str, int] = {}  # by policy, the newest tick of its updates
        #: By policy and group of curves (`episode`, `update`): the values of each curve since the last flush.
        self._drawn: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._flushed = clock()
        self._closed = False

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except WriteError as unwritable:
            if error is None:
                raise
            _log.error("%s", unwritable)  # the run ends with the other error, which came first

    def episodes(
        self,
        rank: int,
        tick: int,
        finished: Sequence[EpisodeRecord],
        logged: Mapping[str, int] = NO_UPDATES,
        *,
        last: bool = False,
    ) -> dict[str, Results]:
        """Records the episodes of a rank whose matches have all played so many ticks, in the order of their places.

        `logged`: see `Iterations.reach`.

        They count at once; they are written when no other rank can report earlier ones. After the `last` ones of a leg
        episodes of other ranks do not wait for this rank, until it reports again. Returns their results by policy.
        Raises ValueError if the recorder is closed, and CallbackFailed.
        """
        found = results_of(finished)
        records = self._order.add(rank, tick, finished, last=last)
        self._episodes.extend(records)
        self._tick = max(self._tick, tick)
        for policy, results in found.items() if self._has_scalars else ():
            drawn = self._drawn[policy, "episode"]
            drawn["return"] += results.returns
            drawn["length"] += results.lengths
            drawn["win_rate"] += results.won
        self.poll()
        if self._on_episode is not None:
            for record in records:
                self._on_episode(as_read(record))
            self.take_measured()
        if self._results is not None:
            # When no rank plays any more, results reach as far as the farthest match.
            self._results.episodes(min(self._order.reached, self._tick), records, logged)
        return found

    def update(self, record: UpdateRecord) -> None:
        """Records an update of a policy; raises CallbackFailed if a callback that received it has raised."""
        line = update_line(record)
        self._metrics.append(line)
        if self._has_scalars:
            self._updated[record.policy] = max(self._updated.get(record.policy, 0), record.ticks)
            for name, value in record.values.items():
                self._drawn[record.policy, "update"][name].append(value)
        self.poll()
        if self._on_update is not None:
            self._on_update(as_read(line))
            self.take_measured()
        if self._results is not None:
            self._results.update(record)

    def take_measured(self) -> None:
        """Records what callbacks have measured."""
        if self._callbacks is None or not self._callbacks.measured:
            return
        measured, self._callbacks.measured = self._callbacks.measured, []
        self._measures = self._measures or Journal(self._folder.measures)
        self._measures.extend(measured)
        if self._results is not None:
            self._results.measured(measured)

    def draw_reported(self, line: GamesLine, env: str) -> None:
        """Draws what simulators of an environment have reported: `tensorboard/<environment>/`."""
        if isinstance(line.reported, dict) and self._has_scalars:
            values = {
                f"match {line.match} simulator {number}/{key}": value
                for number, values in line.reported.items()
                for key, value in values.items()
            }
            self._scalars(env).add(line.tick, values)

    def poll(self) -> None:
        """Flushes if a second has passed since the last flush; to be called now and then while nothing is recorded."""
        if self._clock() - self._flushed >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Brings everything recorded so far into the files."""
        self._flushed = self._clock()
        for journal in self._journals:
            journal.flush()
        drawn = [*self._drawn.items()]
        self._drawn.clear()
        for (policy, group), values in drawn:
            means = {f"{group}/{name}": float(sum(found)) / len(found) for name, found in values.items() if found}
            self._scalars(policy).add(self._tick if group == "episode" else self._updated[policy], means)
        for file in self._scalar_files.values():
            file.flush()

    def sync(self) -> None:
        """Flushes, and brings the journals to the disk."""
        self.flush()
        for journal in self._journals:
            journal.sync()

    @property
    def _journals(self) -> list[Journal | RunResults]:
        return [one for one in (self._episodes, self._metrics, self._measures, self._results) if one is not None]

    def close(self) -> None:
        """Flushes and closes all files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._episodes.extend(self._order.up_to())
            self.flush()
        finally:
            with ExitStack() as stack:
                journals = (one.close for one in self._journals if isinstance(one, Journal))
                for close in (*journals, *(file.close for file in self._scalar_files.values())):
                    stack.callback(close)

    def _scalars(self, policy: str) -> ScalarFile:
        if policy not in self._scalar_files:
            make_folder(self._folder.tensorboard)
            folder = self._folder.tensorboard / policy
            first = None if self._resumed_at is None else self._resumed_at + 1  # points at the boundary itself stay
            self._scalar_files[policy] = ScalarFile(folder, first_step=first)
        return self._scalar_files[policy]
