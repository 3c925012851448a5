"""The root's ledger: how far each match and each policy has come, of which all is on record and in the score."""

from __future__ import annotations

from arena.records.episode import episode_of, unsettled
from arena.records.episode_stats import in_parts
from arena.records.formats import EpisodeLine
from arena.records.journal import JournalReader
from arena.records.metrics import UpdateRecord
from arena.records.outcome import Winners
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Progress
from arena.run.run import Run


class RunProgress:
    """What is known of a run's progress while it is recorded.

    Args:
        run: the run.
        recorder: writes the run folder.
        scoreboard: is told of all that is recorded.

    Attributes:
        ticks: per match how far it has come.
        updates: per policy that has any how many updates.
        seconds: per policy that has updates the `seconds` of its last one.
        without_winner: games that have shown that they have no winners, and of which nothing has been said yet.
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
        """Ticks of all matches together, those of earlier rounds as well."""
        begun = self._run.plan.start if self._run.episodes is None else 0
        return self._run.ticks_before + sum(tick - begun for tick in self.ticks.values())

    def read(self) -> None:
        """Scores what is on record."""
        before = JournalReader(self._run.folder.episodes).lines(EpisodeLine, missing_ok=True)
        for part in in_parts(map(episode_of, before)):
            self.without_winner += self._scoreboard.take(part)
        self._recorder.winners = Winners(self._scoreboard.winners.without)

    def progress(self, told: Progress) -> None:
        """Records that a match has moved."""
        self.ticks[told.match] = told.tick
        self._scoreboard.add(self._recorder.episodes(told.match, told.tick, told.episodes, last=told.last))
        self.without_winner += self._scoreboard.winners.see(unsettled(told.episodes))

    def update(self, record: UpdateRecord) -> None:
        """Records that a policy has learned once more."""
        self._recorder.update(record)
        self._scoreboard.update(record)
        self.updates[record.policy] = record.update
        self.seconds[record.policy] = record.seconds

    def poll(self) -> None:
        """Lets what was recorded reach the files if it is time."""
        self._recorder.poll()

    def sync(self) -> None:
        """Brings all that was recorded onto the disk."""
        self._recorder.sync()
