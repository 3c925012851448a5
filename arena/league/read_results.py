"""The results of a run, read from its folder: finished games, and which of them say who is better.

    config.yaml                    which policies learn
    rounds.jsonl, or plan.json     the sides of each match; in a league also who has started over, and when
    episodes.jsonl                 how the games ended
    human_games.jsonl              games of people, which count for ratings that are shown, and not for matchmaking

A game does not count if it has no winner, if it has not two sides (unless its record ranks them), if it was not played
to its end, or if a seat was idle. A line that a kill has left incomplete is counted and skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.config import Config, load_config
from arena.config.matches import Nash
from arena.config.members import matchmaking_of
from arena.errors import ConfigError
from arena.league.results import Encounter, Results, encounters_of
from arena.league.timeline import Margin, Period, PolicyReset, Timeline
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import HumanGameLine, PlanFile, Round, read_document, round_of, rules_of
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.outcome import contradicting_text, contradicts, side_returns, without_winner_text

_PARTS = 8  # of a round in which policies learn; with few rounds, ratings have a node for each part


class ResultSet(NamedTuple):
    """The games of a run, as read from its folder."""

    timeline: Timeline  # the games that count, with the ticks at which they ended
    first: int | None  # the tick at which the first game ended; None without a game
    episodes: int  # how many games there were: those that count, and the two kinds below
    unrated: int  # games without a winner, or not of two sides
    aborted: int  # games that were cut, or in which a seat was idle
    unfinished: int  # lines that a kill has left incomplete: 0 or 1
    cut: Mapping[str, int]
    """Per player the games with others that would have counted if the planned end of a leg had not cut them (Ctrl-C and
    stop rules cut others); none where all games that count have one length, as then cuts favor no player."""
    without_winner: Sequence[str]  # a line for each game with episodes that are not rated: why, and what helps

    @property
    def results(self) -> Results:
        """The games that count, whenever they were played."""
        return self.timeline.results


def read(
    folder: RunFolder,
    *,
    last: int | None = None,
    until: int | None = None,
    people: bool = False,
    journal: Callable[[Path], JournalReader] = JournalReader,
) -> ResultSet:
    """Reads the games of a run, which may be under way; without `episodes.jsonl` there are none.

    Args:
        folder: of the run.
        last: the newest round to look at, which is over. None: the newest one of which a game is on record; a round
            that is only planned changes no player.
        until: the tick until which games count; None: all do.
        people: whether games of people count.
        journal: opens a journal file; of a run under way, up to where it is to be read.

    Raises:
        ConfigError: a file is missing, damaged, or of another version of the arena.
    """
    return GameReader(folder, load_config(folder.config), until=until, people=people, journal=journal).read(last)


class GameReader:
    """The games of a run, each read once, however often `read` is called: late rounds take no longer than early ones.

    `until`, `people` and `journal` are those of the function `read`; `played` is filled if `keeps_played`.

    Attributes:
        returns: per policy the returns of its finished episodes in the newest round, in the order in which they ended.
            A return is the mean over the policy's entities; episodes that were cut have none.
        played: per round and match the games that count, in the order in which they ended.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        *,
        keeps_played: bool = False,
        until: int | None = None,
        people: bool = False,
        journal: Callable[[Path], JournalReader] = JournalReader,
    ) -> None:
        self.config = config
        self.returns: dict[str, list[float]] = {}
        self.played: list[dict[int, list[Encounter]]] = []
        self._folder, self._keeps_played, self._until, self._journal = folder, keeps_played, until, journal
        self._parts, self._people = _PARTS if config.learners else 1, people
        self._rounds: list[Round] = []
        self._rounds_at = self._episodes_at = self._people_at = 0  # the bytes after the lines that were read
        self._last: int | None = None
        self._newest = self._newest_tick = 0
        self._decided: dict[str, bool] = {}  # per game that was played, whether an episode had a winner or was drawn
        self._timed: dict[tuple[int, int], Results] = {}  # by round and part of the round
        self._counts = Counter[str]()  # unrated, aborted, and all episodes
        self._contradicting = Counter[str]()  # per game, episodes whose outcomes do not fit
        self._first: int | None = None
        self._cut: dict[str, Counter[str]] = {}  # per game and player
        self._lengths: set[int] = set()
        self._margins: dict[tuple[int, str, str], Margin] = {}
        self._needs_margins = any(isinstance(entry.rule, Nash) for _, entry in matchmaking_of(config))
        self._known: dict[Any, tuple[Encounter, ...]] = {}  # the games of a match end in few ways

    def read(self, last: int | None = None) -> ResultSet:
        """The games up to the end of a round, which is over; None: up to the newest game on record.

        Raises:
            ConfigError: a file is missing, damaged, or of another version of the arena.
        """
        rounds = self._rounds_until(last)
        self._known = {}
        if last != self._last:
            self._last, self.returns = last, {}
        if self._keeps_played:
            self.played += ({} for _ in rounds[len(self.played) :])
        reader = self._reader(self._folder.episodes, self._episodes_at)
        for episode in reader.lines(EpisodeRecord, missing_ok=True):
            if last is not None and episode.round > last:  # it may be played again
                break
            self._episodes_at = reader.position
            self._take(episode, rounds, last)
        return self._result_set(rounds, last, reader.unfinished)

    def read_also(self, episodes: Sequence[EpisodeRecord], alike: NDArray[np.int64]) -> None:
        """Takes episodes that were read elsewhere, the next ones of the file; `so_far` has the games up to them.

        Those with the same number in `alike`, [E], are taken for one game that was played several times: they differ at
        most in lane, number, tick, length and returns.
        """
        rounds, self._known = self._rounds_until(None), {}
        tick, number, length = (
            np.fromiter(map(attrgetter(of), episodes), np.int64, len(episodes)) for of in ("tick", "round", "length")
        )
        starts = np.array([0, *(line.start for line in rounds)])[np.minimum(number + 1, len(rounds))]
        part = np.clip((tick - 1 - starts) * self._parts // self.config.ticks, 0, self._parts - 1)
        kinds = (alike * self._parts + part) * 2 + self._ends_leg(tick, starts)
        _, firsts, games, counts = np.unique(kinds, return_index=True, return_inverse=True, return_counts=True)
        if self._needs_margins or any(self._ranks(episodes[first]) for first in firsts):  # returns count, too
            firsts, counts = np.arange(len(episodes)), np.ones(len(episodes), np.int64)
            games = firsts
        longest = np.zeros(len(firsts), np.int64)
        np.maximum.at(longest, games, length)
        shortest = longest.copy()
        np.minimum.at(shortest, games, length)
        for place in np.argsort(firsts):  # in the order of the file
            lengths = int(shortest[place]), int(longest[place])
            self._take(episodes[firsts[place]], rounds, None, count=int(counts[place]), lengths=lengths)
        self._newest_tick = max(self._newest_tick, int(tick.max(initial=0)))

    def so_far(self) -> ResultSet:
        """The games that `read_also` has taken."""
        return self._result_set(self._rounds_until(None), None, 0)

    def _take(
        self,
        episode: EpisodeRecord,
        rounds: Sequence[Round],
        last: int | None,
        *,
        count: int = 1,
        lengths: Sequence[int] = (),
    ) -> None:
        """Takes an episode that was played `count` times, with these shortest and longest `lengths`."""
        self._newest, self._newest_tick = max(self._newest, episode.round), max(self._newest_tick, episode.tick)
        has_winner = any(seat.outcome is not None for seat in episode.seats) or len(episode.seats) < 2
        self._decided[episode.env] = self._decided.get(episode.env, False) or has_winner
        if episode.round >= len(rounds) or (self._until is not None and episode.tick > self._until):
            return
        self._counts["episodes"] += count
        self._first = episode.tick if self._first is None else min(self._first, episode.tick)
        if episode.round == last and not episode.cut:
            for policy, value in _returns(episode).items():
                self.returns.setdefault(policy, []).append(value)
        idle = any(seat.idle_ticks for seat in episode.seats)
        if episode.cut:
            ended = self._ends_leg(episode.tick, rounds[episode.round].start)
            missed = self._missed_by(episode) if ended and not idle else ()
            self._cut.setdefault(episode.env, Counter()).update(dict.fromkeys(missed, count))
        if episode.cut or idle:
            self._counts["aborted"] += count
            return
        if self._needs_margins:
            self._add_margin(episode)
        if not (found := self._encounters(episode)):
            self._counts["unrated"] += count
            if contradicts([seat.outcome for seat in episode.seats], self._sides(episode)):
                self._contradicting[episode.env] += count
            return
        self._lengths.update(lengths or (episode.length,))
        results = self._results_at(episode.tick, rounds[episode.round])
        for one in found:
            results.add(*one, count=count)
        if self._keeps_played:
            self.played[episode.round].setdefault(episode.match, []).extend(found)

    def _result_set(self, rounds: Sequence[Round], last: int | None, unfinished: int) -> ResultSet:
        """The games of these rounds, up to the end of the last one; as `read`."""
        config, parts = self.config, self._parts
        of_people = self._reader(self._folder.human_games, self._people_at)
        for game in of_people.lines(HumanGameLine, missing_ok=True) if self._people and rounds else ():
            self._people_at = of_people.position
            if self._until is None or game.tick <= self._until:
                begun = [one for one in rounds if one.start < game.tick] or rounds[:1]
                self._results_at(game.tick, begun[-1]).add(game.first, game.second, game.outcome)
                self._counts["episodes"] += 1
        if last is None:
            rounds = rounds[: 1 + self._newest]
        reached = rounds[-1].start + config.ticks if rounds else 0
        if last is None:  # the newest round may be under way
            reached = min(reached, max(self._newest_tick, boundary.newest_tick(self._folder) or 0))
        beginnings: dict[str, list[PolicyReset]] = {}
        for line in rounds:
            for name in line.resets:
                beginnings.setdefault(name, []).append(PolicyReset(line.start, None))
            for name, fork in line.forks.items():
                beginnings.setdefault(name, []).append(PolicyReset(line.start, fork.source))
        periods = [
            Period(start, min(end, max(reached, start + 1)), self._timed.get((line.number, part), Results()), playing)
            for line in rounds
            for playing in [frozenset(name for match in line.planned for name in match.players)]
            for part in range(parts)
            for start, end in [[line.start + place * config.ticks // parts for place in (part, part + 1)]]
            if start < reached or (line.number, part) in self._timed
        ]
        snapshots = [name for line in rounds for name in line.snapshots]
        prior = {} if config.league is None else config.league.prior
        rated = self._people_at > 0 and len(self._decided) < 2  # people have had a winner in the one game
        undecided = [env for env, won in self._decided.items() if not (won or rated)]
        declared = rules_of(self._folder) if undecided else {}
        rules = {env: config.envs[env].outcome or declared.get(env) for env in undecided if env in config.envs}
        missed: Counter[str] = sum((counted for env, counted in self._cut.items() if self._decided[env]), Counter())
        return ResultSet(
            Timeline(periods, config.ticks, config.learners, beginnings, snapshots, prior, {**self._margins}),
            first=self._first,
            episodes=self._counts["episodes"],
            unrated=self._counts["unrated"],
            aborted=self._counts["aborted"],
            unfinished=unfinished,
            cut={} if len(self._lengths) == 1 else missed,
            without_winner=[*without_winner_text(rules), *contradicting_text(self._contradicting)],
        )

    def _ends_leg(self, tick: Any, start: Any) -> Any:
        """Whether a leg of the round that begins at `start` ends at a tick by plan; for numbers and arrays."""
        return (tick % self.config.checkpoint_every == 0) | (tick - start == self.config.ticks)

    def _results_at(self, tick: int, round: Round) -> Results:
        """The games of the part of a round in which a tick is."""
        part = (tick - 1 - round.start) * self._parts // self.config.ticks
        return self._timed.setdefault((round.number, min(max(part, 0), self._parts - 1)), Results())

    def _rounds_until(self, last: int | None) -> list[Round]:
        """The rounds that have begun, up to `last`; a run without rounds is one, whose matches are in the plan."""
        path = self._folder.rounds
        if not path.exists():
            path, self._rounds = self._folder.plan, []
            self._rounds.append(Round(number=0, start=0, planned=read_document(path, PlanFile).matches))
        elif last is None or len(self._rounds) <= last:
            reader = self._reader(path, self._rounds_at)
            for line in reader.made(round_of):
                if last is not None and line.number > last:
                    break
                self._rounds.append(line)
                self._rounds_at = reader.position
        rounds = self._rounds if last is None else self._rounds[: 1 + last]
        if any(match.sides is None for line in rounds for match in line.planned):
            raise ConfigError("is damaged, or of another version of the arena: a match lacks `sides`", source=str(path))
        return rounds

    def _reader(self, path: Path, start: int) -> JournalReader:
        return JournalReader(path, start=start) if start else self._journal(path)

    def _add_margin(self, episode: EpisodeRecord) -> None:
        """Counts a finished game of two sides, each filled by one player alone."""
        sides = self._sides(episode)
        teams = [{episode.seats[seat].policy for seat in side} for side in sides]
        if len(sides) != 2 or any(len(team) != 1 for team in teams):
            return
        earned, entities = zip(*((seat.return_, len(seat.entities)) for seat in episode.seats), strict=True)
        first, second = side_returns(earned, entities, sides)
        if first is not None and second is not None and math.isfinite(first - second):
            (one,), (other,) = teams
            key = episode.round, one, other
            before = self._margins.get(key, Margin(0, 0.0))
            self._margins[key] = Margin(before.games + 1, before.total + (first - second) / 2)

    def _missed_by(self, episode: EpisodeRecord) -> frozenset[str]:
        """The players that a cut game would have rated if the first side had won; empty if it would not count."""
        first = next(iter(self._sides(episode)), ())
        seats = tuple(
            msgspec.structs.replace(seat, outcome="win" if number in first else "loss", return_=float(number in first))
            for number, seat in enumerate(episode.seats)
        )
        found = self._encounters(msgspec.structs.replace(episode, seats=seats))
        return frozenset(name for one in found if one.first != one.second for name in (*one.first, *one.second))

    def _encounters(self, episode: EpisodeRecord) -> tuple[Encounter, ...]:
        """The encounters of a finished game; () if it does not count."""
        players, outcomes = tuple(seat.policy for seat in episode.seats), tuple(seat.outcome for seat in episode.seats)
        key = (episode.round, episode.match, episode.env, players, outcomes)
        if key in self._known:
            return self._known[key]
        sides, returns = self._sides(episode), list[float | None]()
        if sorted(seat for side in sides for seat in side) != list(range(len(players))):
            return ()
        if self._ranks(episode) and any(outcomes):
            earned, entities = zip(*((seat.return_, len(seat.entities)) for seat in episode.seats), strict=True)
            returns = side_returns(earned, entities, sides)
        found = encounters_of(players, sides, outcomes, returns)
        if not returns:
            self._known[key] = found
        return found

    def _ranks(self, episode: EpisodeRecord) -> bool:
        """Whether the higher return decides between more than two sides; earlier versions did not record it."""
        env = self.config.envs.get(episode.env)
        return episode.ranked or (len(episode.seats) > 2 and env is not None and env.outcome == "higher_return")

    def _sides(self, episode: EpisodeRecord) -> tuple[tuple[int, ...], ...]:
        """The sides of its match.

        With `scale: true` a plan repeats its matches. After a resume on fewer processes, the plan on record has fewer
        repetitions than were played before: matches with higher numbers have the sides of those that they repeat.
        After a resume with other copies, a number may be that of another match: then the sides are those of a match of
        the same game with the same policies in its seats.
        """
        matches = self._rounds[episode.round].planned
        if not matches:
            return ()
        match = matches[episode.match % len(matches)]
        line_up = (episode.env, tuple(seat.policy for seat in episode.seats))
        if (match.env, match.players) != line_up:
            match = next((other for other in matches if (other.env, other.players) == line_up), match)
        if not match.sides and self._ranks(episode):
            return tuple((seat,) for seat in range(len(episode.seats)))
        return match.sides or ()


def _returns(episode: EpisodeRecord) -> dict[str, float]:
    """Per policy its return in one episode, the mean over its entities; NaN if that of a seat was not finite."""
    totals: dict[str, float] = {}
    sizes: Counter[str] = Counter()
    for seat in episode.seats:
        earned = math.nan if seat.return_ is None else seat.return_
        totals[seat.policy] = totals.get(seat.policy, 0.0) + earned * len(seat.entities)
        sizes[seat.policy] += len(seat.entities)
    return {policy: total / sizes[policy] for policy, total in totals.items()}
