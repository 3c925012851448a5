"""Tables of rated players: a row per player with its Elo and interval; and the bias by games that were cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from arena.config.members import Sides, players, policy_of_player, separate_populations
from arena.config.schema import Config
from arena.league.metagame.measures import in_matrix
from arena.league.metagame.meetings import meetings
from arena.league.ratings import davidson
from arena.league.ratings.contradictions import Contradiction, contradictions, head_to_head
from arena.league.ratings.ranking import RESOLUTION, OrderUncertainty, equals
from arena.league.ratings.ratings import Ratings, comparable, fit
from arena.league.results import Results, Score
from arena.league.timeline import PolicyReset, Timeline, together

ENOUGH = 30
"""Finished games per game that the end of a leg has cut, from which on a rating is taken for unbiased.

Games that have begun are an unbiased sample. The games that count are these without those that were cut, which are
mostly long. So between equal players, the share of points of the one that loses the long games is too large, by at most
half of cut / finished: 347 Elo times that, 12 Elo at 30. A game that ends with its leg is not cut, and adds no bias.
"""


_FEW, _NEARLY_ALL = 2, 0.95  # opponents of a leader, and the share of its games that they have

POPULATIONS = ("first side", "second side")
NONE_BEGUN: Mapping[str, PolicyReset] = {}


class Row(msgspec.Struct, frozen=True):
    """A row of a table: a player with its rating and its results."""

    rank: int  # 1 is the strongest, by `elo`
    player: str
    elo: float  # its distance from the mean of its table, but for guests; of two populations see `populations_of`
    low: float  # where the 95 % interval of `elo` begins
    high: float  # where it ends
    score: Score  # of the sides on which it sat
    population: str = ""  # `first side` or `second side`, where there are two that only meet each other
    scale: int = 0  # players can be compared where these numbers are the same, as games connect them
    began: PolicyReset | None = None  # when it started over, as a copy of another policy or from its first weights
    games: int = 0  # that count

    @property
    def share(self) -> float | None:
        """The points of a game, in [0, 1]; None without a game."""
        return self.score.points / self.score.games if self.score.games else None


class Narrow(NamedTuple):
    """A leader that has met few of the others: its place rests on their ratings, not on games against the rest."""

    player: str  # the leader
    opponents: tuple[str, ...]  # that it has met in nearly all of its games, the most frequent one first
    others: int  # the number of the other players in its table


class CutGamesBias(NamedTuple):
    """The bias by games that were cut: the player of whose games the largest share was cut."""

    player: str
    games: float  # finished games per game that was cut: about as many as a lane plays between two cuts
    by: str  # what has cut them by its end: a `leg`, a `round`, or the `run`
    key: str  # the key of the configuration that makes these longer


class LeagueTable(NamedTuple):
    """The tables of a league, see `tables`, and what qualifies them."""

    tables: list[list[Row]]
    prior: bool  # whether the strengths have a weak prior: see `Ratings`
    curtailed: CutGamesBias | None  # None if the bias is small
    # Neighbors that have proved to be as good as each other; none where policies learn.
    equal: Sequence[OrderUncertainty] = ()
    without_winner: Sequence[str] = ()  # a line for each game without winners: why it is not rated
    narrow: Narrow | None = None  # the leader of the first table, where its rating rests on few opponents
    contradictions: Sequence[Contradiction] = ()  # pairs whose lower player beats the upper one
    # Whether every player has kept to one side, so that strength and the worth of a side cannot be separated.
    one_side: bool = False
    unmet: Sequence[str] = ()  # policies of the configuration that have not met any other in a game that counts
    external: bool = False  # whether games come from outside, so that no tournament can be played


def league_table(timeline: Timeline, cut: Mapping[str, int], config: Config) -> LeagueTable:
    """The standings of a league at its end, see `standings_at`."""
    return standings_at(timeline, timeline, cut, config)


def standings_at(
    timeline: Timeline, counted: Timeline, cut: Mapping[str, int], config: Config, *, at: int | None = None
) -> LeagueTable:
    """The standings of a run.

    Args:
        timeline: all games.
        counted: the games up to the tick: their players are listed, with the scores of these games.
        cut: as in `ResultSet`.
        config: of the run.
        at: the tick at which the players are rated, by all games; None: the end.
    """
    now = counted if at is None else counted.until(at)
    if not now.players:
        return LeagueTable([], prior=False, curtailed=None)
    ratings = fit(timeline, now=now, at=at)
    sides, guests = populations_of(config, now.players), guests_of(config, now.players)
    found = tables(ratings, timeline, sides=sides, guests=guests, now=now, at=at)
    equal = (
        [] if timeline.learns else [one for each in found for one in equals(now.results, [row.player for row in each])]
    )
    narrow = narrow_leader(now, [row.player for row in found[0]])
    against = contradicted(ratings, now, found, config)
    prior = ratings.prior and (at is None or fit(now).prior)  # not if only later players need one, such as people
    met = [pair for pair in timeline.results.by_side() if pair[0] != pair[1]]
    kept = {*chain(*(one for one, _ in met))}.isdisjoint(chain(*(other for _, other in met)))
    one_side = bool(met) and kept and sides is None and not timeline.results.without_sides()
    unmet = [name for name in players(config) if name not in now.players]
    return LeagueTable(found, prior, curtailed(ratings, cut, config), equal, (), narrow, against, one_side, unmet)


def contradicted(
    ratings: Ratings, timeline: Timeline, tables: Sequence[Sequence[Row]], config: Config
) -> list[Contradiction]:
    """The pairs of a table whose lower player beats the upper one, among the players of the payoff matrix.

    Games of policies that learn count less the older they are, as in that matrix. All intervals together hold at 95 %
    (Bonferroni): of the 66 pairs of 12 equal players some would contradict their order in one league of five.
    """
    found: list[Contradiction] = []
    for rows in tables:
        shown = in_matrix([row.player for row in rows], config.policies)
        played = {pair: met for pair, met in head_to_head(timeline.results).items() if {*pair} <= {*shown}}
        if timeline.learns:
            places, counts = {name: place for place, name in enumerate(shown)}, meetings(timeline).counts(shown)
            for (one, other), met in [*played.items()]:  # on each side as often as ever
                played[one, other] = np.outer(met.sum(axis=1) / met.sum(), counts[places[one], places[other]])
            played = {pair: met for pair, met in played.items() if met.sum() >= 1}
        strengths = [ratings.of(name).elo / davidson.ELO for name in shown]
        error = 0.05 / max(1, len(tables) * len(played) // 2)  # `played` has each pair twice
        found += contradictions(played, shown, strengths, ratings.fitted, elo=RESOLUTION, error=error)
    return [one for one in found if one.beats]


def narrow_leader(timeline: Timeline, order: Sequence[str]) -> Narrow | None:
    """The best player of a table, if one or two others had nearly all of its games, though there are more; else None.

    Of a policy that learns, newer games count more, see `metagame.meetings`. A snapshot also has the games of its
    policy in the periods before and after it. Games of teams of several players do not count.
    """
    leader, others = order[0], list(order[1:])
    if len(others) <= _FEW:
        return None
    games = meetings(timeline).counts_of(leader, others).sum(axis=1)
    policy, _, tick = leader.partition("@")
    for group in timeline.groups() if tick else ():
        if group[0].start <= int(tick) <= group[-1].end:
            played = together(period.results for period in group)
            games += [played.between(policy, other).games for other in others]
    most = np.argsort(-games, kind="stable")
    needed = 1 + int(np.searchsorted(np.cumsum(games[most]), _NEARLY_ALL * games.sum()))
    if not games.any() or needed > _FEW:
        return None
    return Narrow(leader, tuple(others[place] for place in most[:needed]), len(others))


def curtailed(ratings: Ratings, cut: Mapping[str, int], config: Config) -> CutGamesBias | None:
    """The player whose rating is biased most by games that were cut, see `ResultSet`; None if the bias is small.

    Not for tournaments, in which each lane plays a fixed number of games.
    """
    found = {player: ratings.of(player).games / cut[player] for player in ratings.players if cut.get(player)}
    fewest = min(found, key=found.__getitem__, default=None)
    if fewest is None or found[fewest] >= ENOUGH:
        return None
    if config.checkpoint_every < config.ticks:
        return CutGamesBias(fewest, found[fewest], "leg", "checkpoint_every")
    return CutGamesBias(fewest, found[fewest], "round" if config.round_count > 1 else "run", "ticks")


def populations_of(config: Config, players: Sequence[str], *, tournament: bool = False) -> Sides | None:
    """The players of each of two populations that only meet each other, such as predators and prey; None without such.

    In a tournament players of one population meet on both sides.

    Games between the two cannot separate the worth of the first side from the strength of the first population. So
    their sum is one number, the **gap**, and each player is rated within its population: its Elo is its distance from
    the mean of its population, plus half of the gap for the first and minus half of it for the second. A player of the
    first side then scores a half against one of the second side with the same Elo. Intervals are of distances within a
    population.
    """
    sides = separate_populations(config, declared=not tournament)
    if sides is None:
        return None
    return Sides(*(tuple(name for name in players if policy_of_player(name, config) in side) for side in sides))


def guests_of(config: Config, players: Sequence[str]) -> set[str]:
    """The players that are no policies of the run: people, and who else has played with them."""
    return {name for name in players if policy_of_player(name, config) is None}


def tables(
    ratings: Ratings,
    played: Results | Timeline,
    *,
    sides: Sides | None = None,
    guests: Collection[str] = (),
    now: Timeline | None = None,
    at: int | None = None,
) -> list[list[Row]]:
    """The tables of all rated players: one, or of two populations two, for each set of players that games connect.

    Players of one set can be compared; the largest set comes first, and in a table the best player. `now` are the games
    that count at the tick `at`; None: all. The mean of a table is that of its players but for the `guests`, of which
    there is often one game alone: it must not move all others.
    """
    current = now or played
    scores, begun = current.tallies(), current.newest_beginnings if isinstance(current, Timeline) else {}
    found: list[list[Row]] = []
    for scale, names in enumerate(comparable(played, ratings.players, at=at)):
        if sides is None:
            found.append(rows(ratings.among(names, guests=guests), scores, scale=scale, begun=begun))
            continue
        members = [[name for name in names if name in side] for side in sides]
        means = [float(np.mean([ratings.of(name).elo for name in of_side])) for of_side in members if of_side]
        half = (means[0] - means[1] + ratings.side.value) / 2 if all(members) else 0.0
        found += [
            rows(ratings.among(of_side), scores, middle=middle, population=title, scale=scale, begun=begun)
            for of_side, middle, title in zip(members, (half, -half), POPULATIONS, strict=True)
            if of_side
        ]
    return found


def rows(
    ratings: Ratings,
    scores: Mapping[str, Score],
    *,
    middle: float = 0.0,
    population: str = "",
    scale: int = 0,
    begun: Mapping[str, PolicyReset] = NONE_BEGUN,
) -> list[Row]:
    """The rows of one table, the best player first; `middle` is the Elo of their mean."""
    found = []
    for rank, player in enumerate(ratings.order(), start=1):
        elo = [middle + number for number in ratings.of(player)[:3]]
        score, began = scores.get(player, Score()), begun.get(player)
        games = ratings.of(player).games
        found.append(Row(rank, player, elo[0], elo[1], elo[2], score, population, scale, began, games))
    return found
