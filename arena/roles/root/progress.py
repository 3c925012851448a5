"""Progress of a run: ticks per match and updates per policy, recorded and added to the scoreboard."""

from __future__ import annotations

from arena.records.episode import episode_of, unsettled
from arena.records.episode_stats import in_parts
from arena.records.formats import EpisodeLine, GamesLine
from arena.records.journal import JournalReader
from arena.records.metrics import UpdateRecord
from arena.records.outcome import Winners
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Progress
from arena.run.run import Run


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
        without_winner: games found to have no winners that are not reported to the user yet.
    """

    def __init__(self, run: Run, recorder: Recorder, scoreboard: Scoreboard) -> None:
        self._run = run
        self._recorder = recorder
        self._scoreboard = scoreboard
        self.ticks = run.first_ticks
        self.without_winner: list[str] = []
        recorder.winners = Winners(scoreboard.winners.without)
        self.updates, self.seconds = dict(run.leg.updates), dict(run.leg.seconds)

    @property
    def done(self) -> int:
        """Ticks of all matches together, including earlier rounds."""
        start = self._run.plan.start if self._run.episodes is None else 0
        return self._run.ticks_before + sum(tick - start for tick in self.ticks.values())

    def load_scores(self) -> None:
        """Adds the recorded episodes to the scoreboard."""
        lines = JournalReader(self._run.folder.episodes).lines(EpisodeLine, missing_ok=True)
        for part in in_parts(map(episode_of, lines)):
            self.without_winner += self._scoreboard.take(part)
        self._recorder.winners = Winners(self._scoreboard.winners.without)

    def advance(self, report: Progress) -> None:
        """Records the ticks and episodes that an environment reports."""
        self.ticks[report.match] = report.tick
        self._scoreboard.add(self._recorder.episodes(report.match, report.tick, report.episodes, last=report.last))
        self.without_winner += self._scoreboard.winners.see(unsettled(report.episodes))

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
