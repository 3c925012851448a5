"""A rating that follows game after game, by a library: beside the one by maximum likelihood, which is fitted at once.

The model is openskill's `BradleyTerryFull`: algorithm 1 of Weng and Lin 2011, "A Bayesian approximation method for
online ranking". It knows teams of any size, and players that grow better: later games weigh more. Its numbers are not
Elo, and its deviations are no intervals that cover the truth in 95 of 100 leagues.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import NamedTuple

from openskill.models import BradleyTerryFull, BradleyTerryFullRating

from arena.league.results import Encounter, Team
from arena.records.outcome import Outcome

_RANKS: dict[Outcome, list[float]] = {"win": [1, 2], "draw": [1, 1], "loss": [2, 1]}


class Skill(NamedTuple):
    """What is thought of one player.

    Args:
        mean: 25 for somebody who has never played.
        deviation: of what is thought.
        ordinal: mean - 3 deviations, by which players are sorted: nobody stands high for lack of games.
        games: how many it has played.
    """

    mean: float
    deviation: float
    ordinal: float
    games: int


class _Normal(NamedTuple):
    mean: float
    deviation: float


class OnlineRatings:
    """Ratings of all players that have been seen, in the order in which they came."""

    def __init__(self) -> None:
        self._model = BradleyTerryFull()
        self._unknown = _Normal(self._model.mu, self._model.sigma)
        self._ratings: dict[str, _Normal] = {}
        self._games: dict[str, int] = {}

    @property
    def players(self) -> tuple[str, ...]:
        """Everybody who has played, the first to come first."""
        return tuple(self._ratings)

    def add(self, encounter: Encounter) -> None:
        """Takes a game; one of a team against itself leaves no trace."""
        if encounter.first == encounter.second:
            return
        teams = (encounter.first, encounter.second)
        rated = self._model.rate([self._team(team) for team in teams], ranks=_RANKS[encounter.outcome])
        self._keep(teams, rated)
        for name in {*encounter.first, *encounter.second}:
            self._games[name] = self._games.get(name, 0) + 1

    def extend(self, encounters: Iterable[Encounter]) -> None:
        """Takes games in the order in which they were played."""
        for encounter in encounters:
            self.add(encounter)

    def of(self, player: str) -> Skill:
        """What is thought of one player.

        Raises:
            KeyError: it has never played.
        """
        mean, deviation = self._ratings[player]
        return Skill(mean, deviation, mean - 3 * deviation, self._games[player])

    def _team(self, team: Team) -> list[BradleyTerryFullRating]:
        """A rating for each seat: to the library the same rating on two seats would be one player that moves twice."""
        seats = (self._ratings.get(name, self._unknown) for name in team)
        return [self._model.rating(mu=mean, sigma=deviation) for mean, deviation in seats]

    def _keep(self, teams: tuple[Team, Team], rated: list[list[BradleyTerryFullRating]]) -> None:
        """A player that sat on several seats gets the mean of what each of them brought it."""
        seats: dict[str, list[BradleyTerryFullRating]] = {}
        for team, ratings in zip(teams, rated, strict=True):
            for name, rating in zip(team, ratings, strict=True):
                seats.setdefault(name, []).append(rating)
        for name, found in seats.items():
            self._ratings[name] = _Normal(fmean(one.mu for one in found), fmean(one.sigma for one in found))
