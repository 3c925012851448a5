"""A tournament: every pair meets, then those pairs play whose games say most about the order, until it is decided.

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

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec

from arena.config.matches import MatchConfig, SeatEntry
from arena.config.members import Sides
from arena.league.populations import every_meeting, separate_standings
from arena.league.ratings.contradictions import Contradiction, unmet
from arena.league.ratings.ranking import Doubt, Standings, doubts, is_settled, most_informative, open_doubts
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import Row, tables
from arena.league.results import Results

_LANES = 16  # lanes, which frozen players play nearly as fast as one
_PART = 4  # a batch has a quarter of the games before it


class Rule(NamedTuple):
    """When a tournament is over.

    Args:
        games: the most games that are played.
        error: how probable it may be that some two of the players are in the wrong order.
        elo: the difference that the games are to resolve.
    """

    games: int
    error: float
    elo: float


class Batch(NamedTuple):
    """What is played next.

    Args:
        matches: who meets whom.
        episodes: how many each lane plays.
    """

    matches: tuple[MatchConfig, ...]
    episodes: int


class Table(NamedTuple):
    """The state of a tournament.

    Args:
        tables: of all players, see `standings.tables`.
        doubts: about every two neighbors, the best ones first.
        error: how large all doubts together may be.
        prior: whether the strengths have a weak prior: see `Ratings`.
        contradictions: the pairs whose own games contradict the order, those with the highest players first.
        unmet: the pairs that have not met in a game that counts.
    """

    tables: list[list[Row]]
    doubts: list[Doubt]
    error: float
    prior: bool
    contradictions: Sequence[Contradiction] = ()
    unmet: Sequence[tuple[str, str]] = ()

    @property
    def rows(self) -> list[Row]:
        """All players, table by table."""
        return [row for rows in self.tables for row in rows]

    @property
    def decided(self) -> bool:
        """Whether the order of all players is decided."""
        return self.settled and not self.contradictions

    @property
    def settled(self) -> bool:
        """Whether the order would be decided if no pair contradicted it."""
        return is_settled(self.doubts, self.error)

    @property
    def open(self) -> list[Doubt]:
        """The neighbors whose doubts keep the order from being decided, the best ones first; none if none does."""
        return open_doubts(self.doubts, self.error)

    @property
    def equal(self) -> list[Doubt]:
        """The neighbors that have proved to be equal."""
        return [doubt for doubt in self.doubts if doubt.equal and doubt not in self.open]


def table(results: Results, players: Sequence[str], rule: Rule, *, sides: Sides | None = None) -> Table:
    """The state of a tournament after these games.

    Args:
        results: all games so far.
        players: at least one.
        rule: when the tournament is over.
        sides: the two populations that only meet each other, if there are two.
    """
    ratings = fit(results, players=players)
    found = tables(ratings, results, sides=sides)
    if sides is not None:
        within = separate_standings(results, sides, elo=rule.elo)
        met = {*results.pairs()}
        missing = [pair for pair in every_meeting(sides) if not any({*a, *b} == {*pair} for a, b in met)]
        neighbors = [doubt for standings in within for doubt in doubts(standings)]
        return Table(found, neighbors, rule.error, ratings.prior, (), missing)
    standings = Standings(results, players, elo=rule.elo)
    return Table(
        found,
        doubts(standings),
        rule.error,
        ratings.prior,
        standings.contradictions(),
        unmet(results, players),
    )


def widened(settings: Sequence[MatchConfig], players: int, rule: Rule) -> tuple[MatchConfig, ...]:
    """The settings with up to `_LANES` lanes, fewer if the budget is small.

    Each player can have at least 8 meetings, and at least half of the budget is left when every pair has met, if one
    lane allows that.

    Args:
        settings: as their configuration has them.
        players: how many there are.
        rule: with the budget.
    """
    lanes = min(_LANES, rule.games // (max(8, 2 * (players - 1)) * players * len(settings)))
    return tuple(msgspec.structs.replace(setting, lanes=max(setting.lanes, lanes)) for setting in settings)


def games_of_a_meeting(settings: Sequence[MatchConfig], *, sides: Sides | None = None) -> int:
    """How many games two players play when they meet: on both sides, or each on the side of its population."""
    return (2 if sides is None else 1) * sum(setting.lanes for setting in settings)


def next_batch(
    settings: Sequence[MatchConfig],
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
    wanted = min(left, max(len(players), played // (_PART * meeting)))
    count = min(wanted, len(players))
    episodes = wanted // count
    if circles := [pair.circle for pair in found.contradictions if pair.circle]:
        pairs = _seldom_met(circles, results, count=count, games=meeting * episodes)
    else:
        games = meeting * episodes
        again = [(pair.upper, pair.lower) for pair in found.contradictions for _ in range(-(-pair.games // games))]
        pairs = again[:count]
        if not found.settled and len(pairs) < count:
            pairs += most_informative(results, players, count=count - len(pairs), games=games, elo=rule.elo)
    return Batch(tuple(_meetings(settings, pairs)), episodes)


def every_pair(players: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs in the order of their first meetings: after every P pairs, the P players have had equally many."""
    count = len(players)
    pairs = [(place, (place + apart) % count) for apart in range(1, count // 2 + 1) for place in range(count)]
    distinct = dict[frozenset[int], tuple[int, int]]()
    for pair in pairs:
        distinct.setdefault(frozenset(pair), pair)  # of an even number the last round has each pair twice
    return [(players[one], players[other]) for one, other in distinct.values()]


def _seldom_met(circles: Sequence[Sequence[str]], results: Results, *, count: int, games: int) -> list[tuple[str, str]]:
    """The pairs within circles with the fewest games, chosen in turn; each choice adds `games` to its pair."""
    played = {pair: results.between(*pair).games for circle in circles for pair in combinations(sorted(circle), 2)}
    found = []
    for _ in range(count):
        found.append(min(played, key=played.__getitem__))
        played[found[-1]] += games
    return found


def _meetings(settings: Sequence[MatchConfig], pairs: Sequence[tuple[str, str]]) -> Iterator[MatchConfig]:
    for (one, other), copies in Counter(pairs).items():
        for setting in settings:
            for players in ((one, other), (other, one)):
                yield seated(setting, players, copies=copies)


def seated(setting: MatchConfig, players: tuple[str, str], *, copies: int = 1) -> MatchConfig:
    """A setting with a player on each side.

    Args:
        setting: with two sides.
        players: of the first side and of the second.
        copies: of the match.
    """
    assert setting.sides is not None and len(setting.sides) == 2, setting
    at = {seat: player for side, player in zip(setting.sides, players, strict=True) for seat in side}
    seats: list[SeatEntry] = [
        at[place] if isinstance(entry, str) else (at[place],) * len(entry) for place, entry in enumerate(setting.seats)
    ]
    return msgspec.structs.replace(setting, seats=tuple(seats), copies=copies)


def distinct_settings(matches: Sequence[MatchConfig]) -> tuple[MatchConfig, ...]:
    """The settings of which a batch was made: its matches without their players, each once."""
    found: dict[str, MatchConfig] = {}
    for match in matches:
        setting = msgspec.structs.replace(match, copies=1)
        found.setdefault(repr(seated(setting, ("", ""))), setting)
    return tuple(found.values())
