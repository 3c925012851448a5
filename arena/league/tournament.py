"""A tournament: every pair meets, then those pairs play whose games say most about the order, until it is decided.

Where there are no opponents, all players play the same games alone: see `rows_of_returns`.

Two players **meet** in every setting, on both sides, once in each lane. A batch has as many meetings as there are
players, fewer where the budget ends, and grows with what was played before: so there are few batches to wait for, and
at most about a quarter of all games are played after the order was decided.

**Coverage first.** The first batches let every pair meet once, as far as the budget reaches; only then are games
concentrated on the pairs that say most. A circle, as of rock, paper and scissors, cannot be seen without the games of
the pair that closes it, and where these are missing the strengths of its players are arbitrary.

**Contradictions.** No order is decided while the own games of a pair contradict it, see `contradictions`. Such a pair
plays next, as many games again as it has had, whatever else is open: its games are few, and either a circle, or chance,
which more of them show. While players beat each other in a circle, all pairs of the circle play, those with the fewest
games first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, NamedTuple

import msgspec

from arena.config.matches import Match, SeatEntry, reseated
from arena.config.members import Sides
from arena.league.ratings.contradictions import Contradiction, unmet
from arena.league.ratings.intervals import half_of_mean
from arena.league.ratings.ranking import OrderUncertainty, Standings, most_informative, open_doubts
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import Row, tables
from arena.league.results import Results
from arena.records import checksums
from arena.records.folder import RunFolder
from arena.records.formats import Terms, read_document

LANES = 16  # lanes, which frozen players play nearly as fast as one
_PART = 4  # a batch has a quarter of the games before it


class Rule(NamedTuple):
    """When a tournament is over."""

    games: int  # the most games that are played
    error: float  # how probable it may be that some two of the players are in the wrong order
    elo: float  # the difference that the games are to resolve


class Batch(NamedTuple):
    """What is played next."""

    matches: tuple[Match, ...]
    episodes: int  # how many each lane plays


class Table(NamedTuple):
    """The state of a tournament."""

    tables: list[list[Row]]  # of all players, see `standings.tables`
    doubts: list[OrderUncertainty]  # about every two neighbors, the best ones first
    error: float  # how large all doubts together may be
    prior: bool  # whether the strengths have a weak prior: see `Ratings`
    contradictions: Sequence[Contradiction] = ()  # pairs whose own games contradict the order, the highest first
    unmet: Sequence[tuple[str, str]] = ()  # the pairs that have not met in a game that counts

    @property
    def rows(self) -> list[Row]:
        """All players, table by table."""
        return [row for rows in self.tables for row in rows]

    @property
    def decided(self) -> bool:
        """Whether the order of all players is decided."""
        return not self.open and not self.contradictions

    @property
    def open(self) -> list[OrderUncertainty]:
        """The neighbors whose doubts keep the order from being decided, the best ones first; none if none does."""
        return open_doubts(self.doubts, self.error)

    @property
    def equal(self) -> list[OrderUncertainty]:
        """The neighbors that have proved to be equal."""
        left_open = self.open
        return [doubt for doubt in self.doubts if doubt.equal and doubt not in left_open]


def rows_of_returns(returns: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each player, the best first, from the returns of the same games, which each has played alone.

    `difference` is the mean of the differences from the returns of the best player, game by game. Their intervals are
    those of all pairs of players together (Bonferroni), since which player is the best is itself estimated.
    """
    mean = {player: fmean(values) for player, values in returns.items()}
    order = sorted(returns, key=mean.__getitem__, reverse=True)
    games, pairs = len(returns[order[0]]), math.comb(len(order), 2)

    def interval(values: Sequence[float], error: float) -> tuple[float | None, float | None]:
        half = half_of_mean(games, stdev(values), error=error) if games > 1 else None
        return (None, None) if half is None else (fmean(values) - half, fmean(values) + half)

    rows = []
    for rank, player in enumerate(order, 1):
        row: dict[str, Any] = {"rank": rank, "player": player, "games": games, "return": mean[player]}
        row["return_low"], row["return_high"] = interval(returns[player], 0.05)
        differences = [value - best for value, best in zip(returns[player], returns[order[0]], strict=True)]
        row["difference"] = None if rank == 1 else fmean(differences)
        row["difference_low"], row["difference_high"] = (
            (None, None) if rank == 1 else interval(differences, 0.05 / pairs)
        )
        rows.append(row)
    return rows


def not_behind(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The players that may be as good as the best one, by the rows of `rows_of_returns`."""
    return [row["player"] for row in rows[1:] if row["difference_high"] is None or row["difference_high"] >= 0]


def write_terms(folder: RunFolder, terms: Terms) -> None:
    """Writes `tournament.json`, atomically: how a tournament is played and when it is over."""
    checksums.replace(folder.tournament, msgspec.json.encode(terms) + b"\n")


def read_terms(folder: RunFolder) -> Terms | None:
    """The terms; None if the run is no tournament, or an older arena has played its first batch only.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena.
    """
    return read_document(folder.tournament, Terms) if folder.tournament.exists() else None


def table(results: Results, players: Sequence[str], rule: Rule, *, sides: Sides | None = None) -> Table:
    """The state of a tournament of at least one player after these games.

    The players can be of two populations that only meet each other, the `sides`: each has an order of its own.
    """
    ratings = fit(results, players=players)
    found = tables(ratings, results, sides=sides)
    if sides is None:
        standings = Standings(results, players, elo=rule.elo)
        contradictions, missing = standings.contradictions(), unmet(results, players)
        doubts = standings.doubts_within(rule.error / max(1, len(players) - 1))
        return Table(found, doubts, rule.error, ratings.prior, contradictions, missing)
    within = [Standings(results, side, elo=rule.elo) for side in sides if len(side) > 1]
    met = {*results.pairs()}
    missing = [pair for pair in every_meeting(sides) if not any({*a, *b} == {*pair} for a, b in met)]
    share = rule.error / max(1, sum(len(standings.doubts) for standings in within))
    neighbors = [doubt for standings in within for doubt in standings.doubts_within(share)]
    return Table(found, neighbors, rule.error, ratings.prior, (), missing)


def widened(settings: Sequence[Match], players: int, rule: Rule) -> tuple[Match, ...]:
    """The settings with up to `LANES` lanes, fewer if the budget of the rule is small for so many players.

    Each player can have at least 8 meetings, and at least half of the budget is left when every pair has met, if one
    lane allows that.
    """
    return in_lanes(settings, min(LANES, rule.games // (max(8, 2 * (players - 1)) * players * len(settings))))


def in_lanes(settings: Sequence[Match], lanes: int) -> tuple[Match, ...]:
    """The settings with at least so many lanes."""
    return tuple(msgspec.structs.replace(setting, lanes=max(setting.lanes, lanes)) for setting in settings)


def games_of_a_meeting(settings: Sequence[Match], *, sides: Sides | None = None) -> int:
    """How many games two players play when they meet: on both sides, or each on the side of its population."""
    return (2 if sides is None else 1) * sum(setting.lanes for setting in settings)


def next_batch(
    settings: Sequence[Match],
    players: Sequence[str],
    results: Results,
    rule: Rule,
    *,
    played: int,
    sides: Sides | None = None,
) -> Batch | None:
    """What is played next; None if the order is decided, after every pair has met, or the budget is used.

    Args:
        settings: in which players meet: descriptions with two sides, with any players.
        players: at least two.
        results: all games so far that count.
        rule: when the tournament is over.
        played: the number of all games so far, including those that do not count.
        sides: two populations that only meet each other: all pairs meet in turn until both orders are decided.
    """
    meeting = games_of_a_meeting(settings, sides=sides)
    left = (rule.games - played) // meeting  # meetings
    if left < 1:
        return None
    if sides is not None:
        pairs = every_meeting(sides)
        begun = played // meeting
        if begun >= len(pairs) and table(results, players, rule, sides=sides).decided:
            return None
        count = min(left, len(players), len(pairs))
        episodes = max(1, min(left // count, begun // (_PART * count)))
        due = [pairs[(begun + place) % len(pairs)] for place in range(count)]
        return Batch(tuple(seated(setting, pair) for pair in due for setting in settings), episodes)
    if due := every_pair(players)[played // meeting :]:
        return Batch(tuple(_meetings(settings, due[: min(left, len(players))])), episodes=1)
    found = table(results, players, rule)
    if found.decided:
        return None
    meetings = min(left, max(len(players), played // (_PART * meeting)))
    count = min(meetings, len(players))
    episodes = meetings // count
    games = meeting * episodes
    if circles := [pair.circle for pair in found.contradictions if pair.circle]:
        # The pairs within circles with the fewest games, chosen in turn.
        had = {pair: results.between(*pair).games for circle in circles for pair in combinations(sorted(circle), 2)}
        pairs = []
        for _ in range(count):
            pairs.append(min(had, key=had.__getitem__))
            had[pairs[-1]] += games
    else:
        again = [(pair.upper, pair.lower) for pair in found.contradictions for _ in range(-(-pair.games // games))]
        pairs = again[:count]
        if found.open and len(pairs) < count:
            pairs += most_informative(results, players, count=count - len(pairs), games=games, elo=rule.elo)
    return Batch(tuple(_meetings(settings, pairs)), episodes)


def every_pair(players: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs in the order of their first meetings: after every P pairs, the P players have had equally many."""
    count = len(players)
    pairs = [(place, (place + distance) % count) for distance in range(1, count // 2 + 1) for place in range(count)]
    distinct = dict[frozenset[int], tuple[int, int]]()
    for pair in pairs:
        distinct.setdefault(frozenset(pair), pair)  # of an even number the last round has each pair twice
    return [(players[one], players[other]) for one, other in distinct.values()]


def every_meeting(sides: Sides) -> list[tuple[str, str]]:
    """All pairs of players of the two sides, ordered so that all players meet early and about equally often."""
    first, second = sides
    places = range(max(len(first), len(second)))
    pairs = ((place % len(first), (place + shift) % len(second)) for shift in range(len(second)) for place in places)
    return [(first[one], second[other]) for one, other in dict.fromkeys(pairs)]


def _meetings(settings: Sequence[Match], pairs: Sequence[tuple[str, str]]) -> Iterator[Match]:
    for (one, other), copies in Counter(pairs).items():
        for setting in settings:
            for players in ((one, other), (other, one)):
                yield seated(setting, players, copies=copies)


def in_all_seats(setting: Match, player: str) -> Match:
    """A setting of one team with a player in all seats."""
    return msgspec.structs.replace(setting, seats=tuple(reseated(entry, player) for entry in setting.seats))


def seated(setting: Match, players: tuple[str, str], *, copies: int = 1) -> Match:
    """A setting of two sides with a player on each."""
    assert setting.sides is not None and len(setting.sides) == 2, setting
    at = {seat: player for side, player in zip(setting.sides, players, strict=True) for seat in side}
    seats: list[SeatEntry] = [
        at[place] if isinstance(entry, str) else (at[place],) * len(entry) for place, entry in enumerate(setting.seats)
    ]
    return msgspec.structs.replace(setting, seats=tuple(seats), copies=copies)


def distinct_settings(matches: Sequence[Match]) -> tuple[Match, ...]:
    """The settings of which a batch was made: its matches without their players, each once."""
    found: dict[str, Match] = {}
    for match in matches:
        setting = msgspec.structs.replace(match, copies=1)
        found.setdefault(repr(seated(setting, ("", ""))), setting)
    return tuple(found.values())
