"""Progress of a run: ticks per match and updates per policy, recorded and added to the scoreboard."""

from __future__ import annotations

from arena.records.formats import GamesLine
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Progress
from arena.roles.run import Run


class RunProgress:
    """Records progress and keeps the current counts.

    Args:
        run: the run.
        recorder: writes the run folder.
        scoreboard: receives everything that is recorded.

    Attributes:
        ticks: per match, the tick that it has reached.
        updates: per policy that has any, the number of updates.
        seconds: per policy that has updates, the `seconds` of the last update.
    """

    def __init__(self, run: Run, recorder: Recorder, scoreboard: Scoreboard) -> None:
        self._run = run
        self._recorder = recorder
        self._scoreboard = scoreboard
        self.ticks = run.first_ticks
        self.updates, self.seconds = dict(run.leg.updates), dict(run.leg.seconds)

    @property
    def done(self) -> int:
        """Ticks of all matches together, including earlier rounds."""
        start = self._run.plan.start if self._run.episodes is None else 0
        return self._run.ticks_before + sum(tick - start for tick in self.ticks.values())

    def load_scores(self) -> None:
        """Adds the recorded episodes to the scoreboard."""
        self._scoreboard.take(JournalReader(self._run.folder.episodes).lines(EpisodeRecord, missing_ok=True))

    def advance(self, report: Progress) -> None:
        """Records the ticks and episodes that an environment reports."""
        self.ticks[report.match] = report.tick
        self._scoreboard.add(self._recorder.episodes(report.match, report.tick, report.episodes, last=report.last))

    def update(self, record: UpdateRecord) -> None:
        """Records an update of a policy."""
        self._recorder.update(record)
        self._scoreboard.update(record)
        self.updates[record.policy] = record.update
        self.seconds[record.policy] = record.seconds

    def take_measured(self) -> None:
        """Records what callbacks have measured at a boundary."""
        self._recorder.take_measured()

    def draw_reported(self, line: GamesLine, env: str) -> None:
        """Draws what the simulators of an environment have reported."""
        self._recorder.draw_reported(line, env)

    def poll(self) -> None:
        """Flushes the records to the files if the flush interval has passed."""
        self._recorder.poll()

    def sync(self) -> None:
        """Flushes all records to disk."""
        self._recorder.sync()
