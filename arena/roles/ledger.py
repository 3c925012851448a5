"""The root's ledger: how far each match and each policy has come, of which all is on record and in the score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from arena.memory import Standing
from arena.messages import Progress
from arena.records import boundary as boundaries
from arena.records.episode_line import episode_of, unsettled
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader, kept_lines
from arena.records.lines import EpisodeRow, UpdateRecord, column
from arena.records.outcome import Winners
from arena.records.recorder import Recorder
from arena.records.results import in_parts
from arena.records.scoreboard import Scoreboard
from arena.run import Run

_match, _lane, _episode, _tick = column("match"), column("lane"), column("episode"), column("tick")
_round = column("round")


class Ledger:
    """What is known of a run's progress while it is recorded.

    Args:
        run: the run.
        recorder: writes the run folder.
        scoreboard: is told of all that is recorded.
        counting: whether episodes are counted, which is of use to a repair alone.

    Attributes:
        ticks: per match how far it has come.
        updates: per policy that has any how many updates.
        seconds: per policy that has updates the `seconds` of its last one.
        counts: per match and lane how many episodes have ended.
        without_winner: games that have shown that they have no winners, and of which nothing has been said yet.
    """

    def __init__(self, run: Run, recorder: Recorder, scoreboard: Scoreboard, *, counting: bool) -> None:
        self._run = run
        self._recorder = recorder
        self._scoreboard = scoreboard
        self._counting = counting
        self._told: Mapping[str, int] = {}  # per policy an update up to which all are on record
        self.ticks = run.first_ticks
        self.without_winner: list[str] = []
        self.updates, self.seconds = dict(run.leg.updates), dict(run.leg.seconds)
        self.counts = {
            match.match: [run.leg.episodes.get((match.match, lane), 0) for lane in range(match.lanes)]
            for match in run.plan.matches
        }

    @property
    def done(self) -> int:
        """Ticks of all matches together, those of earlier rounds as well."""
        begun = self._run.plan.start if self._run.episodes is None else 0
        return self._run.ticks_before + sum(tick - begun for tick in self.ticks.values())

    def recall(self, counts: Mapping[int, list[int]]) -> None:
        """Takes over what was counted before, in this process; the score has it."""
        self.counts |= {match: list(found) for match, found in counts.items()}
        self._recorder.winners = Winners(self._scoreboard.winners.without)

    def read(self) -> None:
        """Scores and counts what is on record."""
        self.counts = {match: [0] * len(counts) for match, counts in self.counts.items()}
        before = kept_lines(self._run.folder.episodes, keep=lambda _: True)
        for part in in_parts(episode_of(line) for _, line in before):
            self.without_winner += self._scoreboard.take(part)
            self._count(row for row in part if self._goes_on(row))
        self._recorder.winners = Winners(self._scoreboard.winners.without)

    def found(self) -> Iterator[Progress]:
        """What a repair has found that is not on record, one episode after the other; each is to be noted at once."""
        for row in sorted(self._run.leg.recent, key=_tick):
            match, lane, number = _place(row)
            if number >= self.counts[match][lane]:
                yield Progress(match, self.ticks[match], (row,))

    def pass_over(self, told: Mapping[str, int]) -> None:
        """Updates up to these, per policy, are on record: when they are made again, nothing is written."""
        self._told = told

    def progress(self, told: Progress) -> None:
        """Records that a match has moved."""
        self.ticks[told.match] = told.tick
        if self._counting:
            self._count(told.episodes)
        self._scoreboard.add(self._recorder.episodes(told.match, told.tick, told.episodes, last=told.last))
        self.without_winner += self._scoreboard.winners.see(unsettled(told.episodes))

    def update(self, record: UpdateRecord) -> None:
        """Records that a policy has learnt once more."""
        if record.update > self._told.get(record.policy, 0):
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

    def standings(self) -> dict[int, Standing]:
        """Per match how far it has come."""
        return {match: Standing(self.ticks[match], tuple(counts)) for match, counts in self.counts.items()}

    def _count(self, episodes: Iterable[EpisodeRow]) -> None:
        for row in episodes:
            match, lane, number = _place(row)
            self.counts[match][lane] = number + 1

    def _goes_on(self, row: EpisodeRow) -> bool:
        """Whether the lane of an episode plays on: it is of this round, and its copy and lane are still there."""
        lanes = self.counts.get(_match(row), ())
        return bool(_round(row) == self._run.plan.round and _lane(row) < len(lanes))


def updates_on_record(folder: RunFolder) -> dict[str, int]:
    """Per policy the newest update that is written down; of a run whose metrics were never written none."""
    found = boundaries.last(folder)
    if found is None or not folder.metrics.exists():
        return {}
    written = JournalReader(folder.metrics, start=found.journals[folder.metrics.name])
    return {**found.updates, **{line["policy"]: line["update"] for line in written}}


def _place(row: EpisodeRow) -> tuple[int, int, int]:
    """Match, lane and number of an episode."""
    return _match(row), _lane(row), _episode(row)
