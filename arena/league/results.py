"""Who has won against whom: wins, draws and losses for every pair of teams that has met.

A team is the players that share a side, as a sorted tuple of their names: `("a", "a")` are two seats of the same
player, and another team than `("a",)`. Player names are those of policies; a snapshot's has a `@`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Games of any number of players."""

    def __init__(self, encounters: Iterable[Encounter] = ()) -> None:
        self._scores: dict[
            tuple[Team, Team, bool], Score
        ] = {}  # by two teams, and whether the first has the first side
        for encounter in encounters:
            self.add(*encounter)

    def add(self, first: Team, second: Team, outcome: Outcome, *, count: int = 1) -> None:
        """Adds games with the same outcome for the team on the first side; names are in any order.

        Games of a team against itself only tell what the first side is worth.
        """
        won, drawn, lost = _ONE[outcome]
        self.add_score(first, second, Score(won * count, drawn * count, lost * count), sided=True)

    def add_score(self, first: Team, second: Team, score: Score, *, sided: bool = False) -> None:
        """Adds the games of a score, as `add`; unless they are `sided`, no team has had the first side."""
        first, second = tuple(sorted(first)), tuple(sorted(second))
        if not sided and first > second:
            first, second, score = second, first, score.reversed
        if score.games and (sided or first != second):
            key = first, second, sided
            self._scores[key] = self._scores.get(key, _NOTHING).plus(score)

    def update(self, other: Results) -> None:
        """Takes all games of other results."""
        for first, second, score, sided in other.scores():
            self.add_score(first, second, score, sided=sided)

    def pairs(self) -> Mapping[tuple[Team, Team], Score]:
        """Every pair of teams that has met, in sorted order, each once and with the smaller team first."""
        found: dict[tuple[Team, Team], Score] = {}
        for first, second, score, _ in self._met():
            pair, ordered = ((first, second), score) if first < second else ((second, first), score.reversed)
            found[pair] = found.get(pair, _NOTHING).plus(ordered)
        return dict(sorted(found.items()))

    def by_side(self) -> Mapping[tuple[Team, Team], Score]:
        """The games with sides, the team on the first one first; also those of teams with themselves."""
        return {(first, second): score for (first, second, sided), score in sorted(self._scores.items()) if sided}

    def without_sides(self) -> Mapping[tuple[Team, Team], Score]:
        """The other games, as `pairs`."""
        return {(first, second): score for (first, second, sided), score in sorted(self._scores.items()) if not sided}

    def scores(self) -> Iterator[tuple[Team, Team, Score, bool]]:
        """Two teams, what they have played, and whether the first one had the first side."""
        return ((first, second, score, sided) for (first, second, sided), score in self._scores.items())

    def _met(self) -> Iterator[tuple[Team, Team, Score, bool]]:
        """The `scores` without those of teams with themselves."""
        return (one for one in self.scores() if one[0] != one[1])

    @property
    def players(self) -> tuple[str, ...]:
        """All players that have played, sorted."""
        return tuple(sorted({name for first, second, *_ in self._met() for name in (*first, *second)}))

    def taken_part(self) -> Mapping[str, int]:
        """In how many games each player took part."""
        found: dict[str, int] = {}
        for first, second, score, _ in self._met():
            for player in {*first, *second}:
                found[player] = found.get(player, 0) + score.games
        return found

    def duels(self) -> Iterator[tuple[str, str, Score, bool]]:
        """The games of which each side, of whatever size, was filled by one player alone; as `scores`."""
        for first, second, score, sided in self.scores():
            if len({*first}) == len({*second}) == 1 and first[0] != second[0]:
                yield first[0], second[0], score, sided

    def tallies(self) -> Mapping[str, Score]:
        """The games of each player, by side: a game in which it is on both sides counts for both."""
        found: dict[str, Score] = {}
        for first, second, score, _ in self._met():
            for team, of_team in ((first, score), (second, score.reversed)):
                for player in {*team}:
                    found[player] = found.get(player, _NOTHING).plus(of_team)
        return found

    @property
    def games(self) -> int:
        """How many there were."""
        return sum(score.games for _, _, score, _ in self._met())

    def between(self, first: str, second: str) -> Score:
        """The games in which each of the two players alone filled a side, of whatever size."""
        total = _NOTHING
        for one, other, score, _ in self.duels():
            if {one, other} == {first, second}:
                total = total.plus(score if one == first else score.reversed)
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
        players: the player of each seat; likewise `outcomes`.
        sides: the seats of each side.
        returns: per side, if the higher return decides; else ().
    """
    teams = [tuple(sorted(players[seat] for seat in side)) for side in sides]
    if len(sides) != 2:
        return tuple(
            Encounter(first, second, outcome)
            for (first, mine), (second, theirs) in combinations(zip(teams, returns, strict=False), 2)
            if (outcome := compared(mine, theirs)) is not None
        )
    found = [{outcomes[seat] for seat in side} for side in sides]
    if any(len(stated) != 1 for stated in found):
        return ()
    (mine,), (theirs,) = found
    if mine is None or _OTHER[mine] != theirs:
        return ()
    first, second = teams
    return (Encounter(first, second, mine),)


_OTHER: Mapping[Outcome, Outcome] = {"win": "loss", "draw": "draw", "loss": "win"}
