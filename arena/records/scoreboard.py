"""Running statistics by policy: the numbers of the live display and of the last lines of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter, mul

from arena.records.figures import Results, in_parts, results_of
from arena.records.folder import RunFolder
from arena.records.formats import update_of
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, Place, UpdateRecord

WINDOW = 100  # how many of the first and of the last values are kept
_COLLECTED = 10 * WINDOW  # so many are collected before they are sorted, so that sorting costs little for each


@dataclass
class Total:
    """The mean and standard deviation of many numbers."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Takes more numbers."""
        self.count += len(values)
        self.total += sum(values)
        self.squares += sum(map(mul, values, values))

    @property
    def mean(self) -> float | None:
        """Over all; None when there are none."""
        return self.total / self.count if self.count else None

    @property
    def deviation(self) -> float:
        """The standard deviation of the sample (n - 1), over all; 0 when there are fewer than two."""
        if self.count < 2:
            return 0.0
        return math.sqrt(max(0.0, self.squares - self.total**2 / self.count) / (self.count - 1))

    @property
    def equal(self) -> bool:
        """Whether there are several numbers, all equal but for rounding."""
        return self.count > 1 and math.isclose(self.count * self.squares, self.total**2, rel_tol=1e-12)


@dataclass
class Series(Total):
    """Statistics over the episodes of a run, with those of its first and last episodes.

    First and last are by the order of the files, so they do not depend on the order in which matches report.
    """

    _first: list[tuple[Place, float]] = field(default_factory=list)
    _last: list[tuple[Place, float]] = field(default_factory=list)

    def extend(self, places: Sequence[Place], values: Sequence[float]) -> None:
        """Adds numbers of one match, with the places of their episodes among all, in ascending order."""
        self.add(values)
        if places and (len(self._first) < WINDOW or places[0] < self._first[-1][0]):
            added = [*self._first, *zip(places, values, strict=True)]
            self._first = sorted(added, key=itemgetter(0))[:WINDOW]
        self._last.extend(zip(places[-WINDOW:], values[-WINDOW:], strict=True))
        if len(self._last) > _COLLECTED:
            self._last = sorted(self._last, key=itemgetter(0))[-WINDOW:]

    @property
    def first(self) -> list[float]:
        """The first 100, or fewer, in their order."""
        return [value for _, value in self._first]

    @property
    def last(self) -> list[float]:
        """The last 100, or fewer, in their order."""
        self._last = sorted(self._last, key=itemgetter(0))[-WINDOW:]
        return [value for _, value in self._last]

    @property
    def last_mean(self) -> float | None:
        """Over the last 100, or fewer."""
        values = self.last
        return sum(values) / len(values) if values else None

    def before_and_after(self) -> tuple[int, float, float] | None:
        """A number n, the mean of the first n and the mean of the last n; the two do not overlap.

        None with fewer than 20 numbers, which say nothing about a change.
        """
        if self.count < 20:
            return None
        size = min(WINDOW, self.count // 2)
        return size, sum(self.first[:size]) / size, sum(self.last[-size:]) / size


@dataclass
class Score:
    """The statistics of one policy. One that plays against itself wins and loses half a game."""

    returns: Series = field(default_factory=Series)  # per episode, the mean over the policy's entities of their return
    lengths: Total = field(default_factory=Total)  # per episode, its ticks
    games: Series = field(default_factory=Series)
    """Per decided game, the share of it that the policy won: 1, or 0 for a loss or a draw, or between the two where it
    sat on both sides."""
    drawn: Series = field(default_factory=Series)  # likewise, the share that was drawn
    wins: float = 0.0  # games won
    draws: float = 0.0
    losses: float = 0.0
    absent: int = 0  # episodes in which none of its entities took part; they count nowhere else
    values: Mapping[str, float] = field(default_factory=dict)  # what the last update logged
    updates: int = 0  # how many it has logged

    @property
    def episodes(self) -> int:
        """How many episodes it has finished, of those in which it took part."""
        return self.returns.count

    @property
    def win_rate(self) -> float | None:
        """Won games among the last 100 decided ones, draws counted as games; None when there are none."""
        return self.games.last_mean

    def add(self, results: Results) -> None:
        """Adds the results of finished episodes."""
        places, returns, lengths = results.places, results.returns, results.lengths
        if math.isnan(sum(returns)):
            took_part = [not math.isnan(value) for value in returns]
            places, returns = list(compress(places, took_part)), list(compress(returns, took_part))
            lengths = list(compress(lengths, took_part))
            self.absent += took_part.count(False)
        self.returns.extend(places, returns)
        self.lengths.add(lengths)
        if results.games:
            won, drawn, lost = zip(*results.games, strict=True)
            self.games.extend(results.decided, won)
            self.drawn.extend(results.decided, drawn)
            self.wins += sum(won)
            self.draws += sum(drawn)
            self.losses += sum(lost)


class Scoreboard:
    """Running statistics of all policies, in the order in which they were named or first seen.

    With `snapshots` these are shown too, as in a tournament, whose players they are; a league may have many. `games`
    has, by match of external games, the newest line about them.
    """

    def __init__(self, policies: Iterable[str] = (), *, snapshots: bool = False) -> None:
        self.policies: dict[str, Score] = {name: Score() for name in policies}
        self.games: dict[int, str] = {}
        self._snapshots = snapshots

    @property
    def shown(self) -> dict[str, Score]:
        """The policies of the configuration."""
        return {name: score for name, score in self.policies.items() if self._snapshots or "@" not in name}

    def add(self, results: Mapping[str, Results]) -> None:
        """Adds the results of finished episodes by policy."""
        for policy, found in results.items():
            (self.policies.get(policy) or self.policies.setdefault(policy, Score())).add(found)

    def take(self, episodes: Iterable[EpisodeRecord]) -> None:
        """Adds recorded episodes."""
        for part in in_parts(episodes):
            self.add(results_of(part))

    def read(self, folder: RunFolder) -> None:
        """Adds the recorded episodes and updates of a run."""
        self.take(JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True))
        for record in JournalReader(folder.metrics).made(update_of, missing_ok=True):
            self.update(record)

    def update(self, record: UpdateRecord) -> None:
        """Takes an update of a policy."""
        score = self.policies.setdefault(record.policy, Score())
        score.updates, score.values = record.update, record.values
