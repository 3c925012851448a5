"""The results of a run, read from its folder: finished games, and which of them say who is better.

    config.yaml                    which policies learn
    rounds.jsonl, or plan.json     the sides of each match; in a league also who has begun anew, and when
    episodes.jsonl                 how the games ended

A game does not count if it has no winner, if it has not two sides (unless its record ranks them), if it was not played
to its end, or if a seat was idle. A line that a kill has left incomplete is counted and skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from arena.config import Config, load_config
from arena.errors import ConfigError
from arena.league.results import Encounter, Results, encounters_of
from arena.league.timeline import Beginning, Period, Timeline
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import PlanFile, Round, read_document, round_of
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import side_returns, without_winner_words

_PARTS = 8  # of a round in which policies learn; with few rounds, ratings have a node for each part


class ResultSet(NamedTuple):
    """The games of a run, as read from its folder.

    Args:
        timeline: the games that count, with the ticks at which they ended.
        encounters: these games, in the order in which they ended; a game of several sides is one for each pair of them.
        first: the tick at which the first game ended; None without a game.
        episodes: how many games there were: those that count, and the two kinds below.
        unrated: games without a winner, or not of two sides.
        aborted: games that were cut, or in which a seat was idle.
        unfinished: lines that a kill has left incomplete: 0 or 1.
        cut: per player the games with others that would have counted if the end of a leg had not cut them; none where
            all games that count have one length, as then cuts favor no player.
        without_winner: a line for each game of which no episode had a winner: why, and what helps.
    """

    timeline: Timeline
    encounters: Sequence[Encounter]
    first: int | None
    episodes: int
    unrated: int
    aborted: int
    unfinished: int
    cut: Mapping[str, int]
    without_winner: Sequence[str] = ()

    @property
    def results(self) -> Results:
        """The games that count, whenever they were played."""
        return self.timeline.results


def read(
    folder: RunFolder,
    *,
    last: int | None = None,
    until: int | None = None,
    journal: Callable[[Path], JournalReader] = JournalReader,
) -> ResultSet:
    """Reads the games of a run.

    Args:
        folder: of a run, which may be under way; without `episodes.jsonl` there are no games.
        last: the newest round to look at, which is over. None: the newest one of which a game is on record; a round
            that is only planned changes no player.
        until: the tick until which games count; None: all do.
        journal: opens a journal file; of a run under way, up to where it is to be read.

    Raises:
        ConfigError: a file is missing, damaged, or of another version of the arena.
    """
    config, rounds = load_config(folder.config), _rounds(folder, journal)
    rounds = rounds if last is None else rounds[: 1 + last]
    referee = _Referee(rounds, config)
    reader = journal(folder.episodes)
    newest, newest_tick = 0, 0
    games: dict[str, bool] = {}  # per game that was played, whether an episode had a winner or was drawn
    encounters: list[Encounter] = []
    timed: dict[tuple[int, int], Results] = {}  # by round and part of the round
    dropped: Counter[_Dropped] = Counter()
    counted = 0
    first: int | None = None
    cut: dict[str, Counter[str]] = {}  # per game and player
    lengths: set[int] = set()
    parts = _PARTS if config.learners else 1
    for episode in reader.lines(EpisodeRecord, missing_ok=True):
        newest, newest_tick = max(newest, episode.round), max(newest_tick, episode.tick)
        has_winner = any(seat.outcome is not None for seat in episode.seats)
        games[episode.env] = games.get(episode.env, False) or has_winner or len(episode.seats) < 2
        if episode.round >= len(rounds) or (until is not None and episode.tick > until):
            continue
        found = referee.judge(episode)
        first = episode.tick if first is None else min(first, episode.tick)
        if isinstance(found, _Dropped):
            dropped[found] += 1
        else:
            counted += 1
            lengths.add(episode.length)
            encounters.extend(found)
            place = episode.round, _part_of(episode, rounds, parts, config.ticks)
            results = timed.setdefault(place, Results())
            for one in found:
                results.add(*one)
        if episode.cut:
            cut.setdefault(episode.env, Counter()).update(referee.missed_by(episode))
    if last is None:
        rounds = rounds[: 1 + newest]
    reached = rounds[-1].start + config.ticks if rounds else 0
    if last is None:  # the newest round may be under way
        reached = min(reached, max(newest_tick, boundary.newest_tick(folder) or 0))
    rules = {env: config.envs[env].outcome for env, decided in games.items() if not decided and env in config.envs}
    missed: Counter[str] = sum((own for env, own in cut.items() if games[env]), Counter())
    return ResultSet(
        _timeline(config, rounds, timed, parts, reached),
        encounters,
        first=first,
        episodes=counted + dropped.total(),
        unrated=dropped[_Dropped.UNRATED],
        aborted=dropped[_Dropped.ABORTED],
        unfinished=reader.unfinished,
        cut={} if len(lengths) == 1 else missed,
        without_winner=without_winner_words(rules),
    )


def _timeline(
    config: Config, rounds: Sequence[Round], timed: Mapping[tuple[int, int], Results], parts: int, reached: int
) -> Timeline:
    """The games of these rounds, up to a tick."""
    beginnings: dict[str, list[Beginning]] = {}
    for line in rounds:
        for name in line.resets:
            beginnings.setdefault(name, []).append(Beginning(line.start, None))
        for name, fork in line.forks.items():
            beginnings.setdefault(name, []).append(Beginning(line.start, fork.source))
    periods = [
        Period(start, min(end, max(reached, start + 1)), timed.get((line.number, part), Results()), playing)
        for line in rounds
        for playing in [frozenset(name for match in line.planned for name in match.players)]
        for part in range(parts)
        for start, end in [[line.start + place * config.ticks // parts for place in (part, part + 1)]]
        if start < reached or (line.number, part) in timed
    ]
    snapshots = [name for line in rounds for name in line.snapshots]
    prior = {} if config.league is None else config.league.prior
    return Timeline(periods, config.ticks, config.learners, beginnings, snapshots, prior)


class GamesSoFar:
    """The games of a league's rounds that are over, each read once: late rounds take no longer than early ones.

    Args:
        folder: of the run.
        config: of the league.
        keeps_played: whether `played` is wanted.

    Attributes:
        returns: per policy the returns of its finished episodes in the newest round, in the order in which they ended.
            A return is the mean over the policy's entities; episodes that were cut have none.
        played: the games of each round; empty: they are not kept.
    """

    def __init__(self, folder: RunFolder, config: Config, *, keeps_played: bool) -> None:
        self.config = config
        self._folder, self._keeps_played = folder, keeps_played
        self._parts = _PARTS if config.learners else 1
        self._position, self._newest = 0, -1
        self._timed: dict[tuple[int, int], Results] = {}
        self.returns: dict[str, list[float]] = {}
        self.played: list[dict[int, list[Encounter]]] = []

    def read(self, last: int) -> Timeline:
        """The games that count, up to the end of a round, which is the newest one.

        Raises:
            ConfigError: a file is missing, damaged, or of another version of the arena.
        """
        rounds = _rounds(self._folder)[: last + 1]
        if last != self._newest:
            self._newest, self.returns = last, {}
        if self._keeps_played:
            self.played += ({} for _ in rounds[len(self.played) :])
        referee = _Referee(rounds, self.config)
        for episode, position in self._lines(last):
            self._position = position
            found = referee.judge(episode)
            if episode.round == last and not episode.cut:
                for policy, value in _returns(episode.seats).items():
                    self.returns.setdefault(policy, []).append(value)
            if isinstance(found, _Dropped):
                continue
            place = episode.round, _part_of(episode, rounds, self._parts, self.config.ticks)
            results = self._timed.setdefault(place, Results())
            for one in found:
                results.add(*one)
            if self._keeps_played:
                self.played[episode.round].setdefault(episode.match, []).extend(found)
        return _timeline(self.config, rounds, self._timed, self._parts, rounds[-1].start + self.config.ticks)

    def _lines(self, last: int) -> Iterator[tuple[EpisodeRecord, int]]:
        """The lines that follow, to the end of a round, and the byte after each; later rounds may be played anew."""
        reader = JournalReader(self._folder.episodes, start=self._position)
        for line in reader.lines(EpisodeRecord, missing_ok=True):
            if line.round > last:
                return
            yield line, reader.position


def _part_of(episode: EpisodeRecord, rounds: Sequence[Round], parts: int, ticks: int) -> int:
    """The part of its round in which an episode has ended."""
    part = (episode.tick - 1 - rounds[episode.round].start) * parts // ticks
    return min(max(part, 0), parts - 1)


def _returns(seats: Sequence[SeatRecord]) -> dict[str, float]:
    """Per policy its return in one episode, the mean over its entities; NaN if that of a seat was not finite."""
    totals: dict[str, float] = {}
    sizes: Counter[str] = Counter()
    for seat in seats:
        brought = math.nan if seat.return_ is None else seat.return_
        totals[seat.policy] = totals.get(seat.policy, 0.0) + brought * len(seat.entities)
        sizes[seat.policy] += len(seat.entities)
    return {policy: total / sizes[policy] for policy, total in totals.items()}


def _rounds(folder: RunFolder, journal: Callable[[Path], JournalReader] = JournalReader) -> list[Round]:
    """All rounds that have begun; a run without rounds is one, whose matches are in the plan."""
    if folder.rounds.exists():
        path, rounds = folder.rounds, list(journal(folder.rounds).made(round_of))
    else:
        path = folder.plan
        rounds = [Round(number=0, start=0, planned=read_document(path, PlanFile).matches)]
    if any(match.sides is None for line in rounds for match in line.planned):
        raise ConfigError("is damaged, or of another version of the arena: a match lacks `sides`", source=str(path))
    return rounds


class _Dropped(Enum):
    """Why a game does not count."""

    UNRATED = "unrated"
    ABORTED = "aborted"


class _Referee:
    """Decides which games count, and as which encounters."""

    def __init__(self, rounds: Sequence[Round], config: Config) -> None:
        self._matches = {line.number: line.planned for line in rounds}
        self._config = config
        self._known: dict[Any, tuple[Encounter, ...] | _Dropped] = {}

    def missed_by(self, episode: EpisodeRecord) -> frozenset[str]:
        """The players that a cut game would have rated if the first side had won; empty if it would not count."""
        first = next(iter(self._sides(episode)), ())
        seats = tuple(
            msgspec.structs.replace(seat, outcome="win" if number in first else "loss", return_=float(number in first))
            for number, seat in enumerate(episode.seats)
        )
        found = self.judge(msgspec.structs.replace(episode, seats=seats, cut=False))
        if isinstance(found, _Dropped):
            return frozenset()
        return frozenset(name for one in found if one.first != one.second for name in (*one.first, *one.second))

    def judge(self, episode: EpisodeRecord) -> tuple[Encounter, ...] | _Dropped:
        """The encounters of a finished game; cached, as the games of a match end in few ways."""
        if episode.cut or any(seat.idle_ticks for seat in episode.seats):
            return _Dropped.ABORTED
        players, outcomes = tuple(seat.policy for seat in episode.seats), tuple(seat.outcome for seat in episode.seats)
        key = (episode.round, episode.match, episode.env, players, outcomes)
        if key in self._known:
            return self._known[key]
        sides, returns = self._sides(episode), list[float | None]()
        if sorted(seat for side in sides for seat in side) != list(range(len(players))):
            return _Dropped.UNRATED
        if self._ranks(episode) and any(outcomes):
            earned, entities = zip(*((seat.return_, len(seat.entities)) for seat in episode.seats), strict=True)
            returns = side_returns(earned, entities, sides)
        found = encounters_of(players, sides, outcomes, returns) or _Dropped.UNRATED
        if not returns:
            self._known[key] = found
        return found

    def _ranks(self, episode: EpisodeRecord) -> bool:
        """Whether the higher return decides between more than two sides; earlier versions did not record it."""
        env = self._config.envs.get(episode.env)
        return episode.ranked or (len(episode.seats) > 2 and env is not None and env.outcome == "higher_return")

    def _sides(self, episode: EpisodeRecord) -> tuple[tuple[int, ...], ...]:
        """The sides of its match.

        With `scale: true` a plan repeats its matches. After a resume on fewer processes, the plan on record has fewer
        repetitions than were played before: matches with higher numbers have the sides of those that they repeat.
        After a resume with other copies, a number may be that of another match: then the sides are those of a match of
        the same game with the same policies in its seats.
        """
        matches = self._matches[episode.round]
        if not matches:
            return ()
        match = matches[episode.match % len(matches)]
        line_up = (episode.env, tuple(seat.policy for seat in episode.seats))
        if (match.env, match.players) != line_up:
            match = next((other for other in matches if (other.env, other.players) == line_up), match)
        if not match.sides and self._ranks(episode):
            return tuple((seat,) for seat in range(len(episode.seats)))
        return match.sides or ()
