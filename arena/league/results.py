"""Who has won against whom: wins, draws and losses for every pair of teams that has met.

A team is the players that share a side, as a sorted tuple of their names: `("a", "a")` are two seats of the same
player, and another team than `("a",)`. Player names are those of policies; a snapshot's has a `@`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from arena.records.outcome import Outcome, compared

Team: TypeAlias = tuple[str, ...]
Played: TypeAlias = "Sequence[Mapping[int, Sequence[Encounter]]]"
"""Per round and match the games that count, however old, in the order in which they ended."""


class Score(NamedTuple):
    """Games between two sides, as the first of them sees it."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def games(self) -> int:
        """How many there were."""
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        """One for a win, a half for a draw."""
        return self.wins + 0.5 * self.draws

    @property
    def reversed(self) -> Score:
        """The same games, as the second side sees them."""
        return Score(self.losses, self.draws, self.wins)

    def plus(self, other: Score) -> Score:
        """The sum of both."""
        return Score(self.wins + other.wins, self.draws + other.draws, self.losses + other.losses)


class Encounter(NamedTuple):
    """One finished game: the teams of the first and the second side, and how it ended for the first."""

    first: Team
    second: Team
    outcome: Outcome

    @property
    def score(self) -> Score:
        """The game, as the first sees it."""
        return _ONE[self.outcome]


_NOTHING = Score()
_ONE: Mapping[Outcome, Score] = {"win": Score(wins=1), "draw": Score(draws=1), "loss": Score(losses=1)}


class Results:
    """Games of any number of players.

    Args:
        encounters: games to begin with.
    """

    def __init__(self, encounters: Iterable[Encounter] = ()) -> None:
        self._scores: dict[tuple[Team, Team], Score] = {}
        self._by_side: dict[tuple[Team, Team], Score] = {}
        self._without: dict[tuple[Team, Team], Score] = {}
        for encounter in encounters:
            self.add(*encounter)

    def add(self, first: Team, second: Team, outcome: Outcome, *, count: int = 1) -> None:
        """Adds games with the same outcome; games of a team against itself only tell what the first side is worth.

        Args:
            first: the team on the first side, its names in any order.
            second: the team on the other side.
            outcome: for the first.
            count: how many games.
        """
        won, drawn, lost = _ONE[outcome]
        self.add_score(first, second, Score(won * count, drawn * count, lost * count), sided=True)

    def add_score(self, first: Team, second: Team, score: Score, *, sided: bool = False) -> None:
        """Adds the games of a score, as `add`; unless they are `sided`, no team has had the first side."""
        first, second = tuple(sorted(first)), tuple(sorted(second))
        if sided:
            _count(self._by_side, first, second, score)
        if first > second:
            first, second, score = second, first, score.reversed
        if first != second:
            _count(self._scores, first, second, score)
            if not sided:
                _count(self._without, first, second, score)

    def update(self, other: Results) -> None:
        """Takes all games of other results."""
        for first, second, score, sided in other.scores():
            self.add_score(first, second, score, sided=sided)

    def pairs(self) -> Mapping[tuple[Team, Team], Score]:
        """Every pair of teams that has met, in sorted order, each once and with the smaller team first."""
        return dict(sorted(self._scores.items()))

    def by_side(self) -> Mapping[tuple[Team, Team], Score]:
        """The games with sides, the team on the first one first; also those of teams with themselves."""
        return dict(sorted(self._by_side.items()))

    def without_sides(self) -> Mapping[tuple[Team, Team], Score]:
        """The other games, as `pairs`."""
        return dict(sorted(self._without.items()))

    def without(self, players: Collection[str]) -> Results:
        """The games in which none of these players took part."""
        found = Results()
        for first, second, score, sided in self.scores():
            if not {*first, *second} & {*players}:
                found.add_score(first, second, score, sided=sided)
        return found

    def renamed(self, old: str, new: str) -> Results:
        """The games of one player, as if they were another one's."""
        found = Results()
        for first, second, score, sided in self.scores():
            if old in (*first, *second):
                found.add_score(_renamed(first, old, new), _renamed(second, old, new), score, sided=sided)
        return found

    def scores(self) -> Iterator[tuple[Team, Team, Score, bool]]:
        """Two teams, what they have played, and whether the first one had the first side."""
        for scores, sided in ((self._by_side, True), (self._without, False)):
            for (first, second), score in scores.items():
                yield first, second, score, sided

    @property
    def players(self) -> tuple[str, ...]:
        """All players that have played, sorted."""
        return tuple(sorted({name for pair in self._scores for team in pair for name in team}))

    def taken_part(self) -> Mapping[str, int]:
        """In how many games each player took part."""
        found: dict[str, int] = {}
        for (first, second), score in self._scores.items():
            for player in {*first, *second}:
                found[player] = found.get(player, 0) + score.games
        return found

    def tallies(self) -> Mapping[str, Score]:
        """The games of each player, by side: a game in which it is on both sides counts for both."""
        found: dict[str, Score] = {}
        for teams, score in self.pairs().items():
            for team, seen in zip(teams, (score, score.reversed), strict=True):
                for player in {*team}:
                    found[player] = found.get(player, _NOTHING).plus(seen)
        return found

    @property
    def games(self) -> int:
        """How many there were."""
        return sum(score.games for score in self._scores.values())

    def between(self, first: str, second: str) -> Score:
        """The games in which each of the two players alone filled a side, of whatever size."""
        total = _NOTHING
        for teams, score in self._scores.items():
            alone = [set(team) for team in teams]
            if alone == [{first}, {second}]:
                total = total.plus(score)
            elif alone == [{second}, {first}]:
                total = total.plus(score.reversed)
        return total


def encounters_of(
    players: Sequence[str],
    sides: Sequence[Sequence[int]],
    outcomes: Sequence[Outcome | None],
    returns: Sequence[float | None] = (),
) -> tuple[Encounter, ...]:
    """The encounters of a finished game; () if it says nothing about the strength of its players.

    A game of two sides says nothing where a seat has no outcome, where those of one side differ, or where the two sides
    contradict each other. A game of more sides says nothing unless the higher return decides: then each pair of sides
    is an encounter.

    Args:
        players: the player of each seat.
        sides: the seat indices of each side.
        outcomes: per seat.
        returns: per side, if the higher return decides; else (): the outcomes decide.
    """
    teams = [tuple(sorted(players[seat] for seat in side)) for side in sides]
    if len(sides) != 2:
        return tuple(
            Encounter(first, second, outcome)
            for (first, mine), (second, theirs) in combinations(zip(teams, returns, strict=False), 2)
            if (outcome := compared(mine, theirs)) is not None
        )
    found = [{outcomes[seat] for seat in side} for side in sides]
    if any(len(said) != 1 for said in found):
        return ()
    (mine,), (theirs,) = found
    if mine is None or _OTHER[mine] != theirs:
        return ()
    first, second = teams
    return (Encounter(first, second, mine),)


def _renamed(team: Team, old: str, new: str) -> Team:
    return tuple(new if name == old else name for name in team)


def _count(scores: dict[tuple[Team, Team], Score], first: Team, second: Team, score: Score) -> None:
    if score.games:
        scores[first, second] = scores.get((first, second), _NOTHING).plus(score)


_OTHER: Mapping[Outcome, Outcome] = {"win": "loss", "draw": "draw", "loss": "win"}
