"""Tables of rated players: a row per player with its Elo and interval; and the bias by games that were cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arena.config.members import Sides
from arena.config.schema import Config
from arena.league.metagame.meetings import meetings
from arena.league.populations import populations_of
from arena.league.ratings.ranking import Doubt, equals
from arena.league.ratings.ratings import Ratings, comparable, fit
from arena.league.results import Results, Score
from arena.league.timeline import Beginning, Timeline, together

ENOUGH = 30
"""Finished games per game that the end of a leg has cut, from which on a rating is taken for unbiased.

Games that have begun are an unbiased sample. The games that count are these without those that were cut, which are
mostly long. So between equal players, the share of points of the one that loses the long games is too large, by at most
half of cut / finished: 347 Elo times that, 12 Elo at 30. A game that ends with its leg is not cut, and adds no bias.
"""


_FEW, _NEARLY_ALL = 2, 0.95  # opponents of a leader, and the share of its games that they have

POPULATIONS = ("first side", "second side")
NONE_BEGUN: Mapping[str, Beginning] = {}


class Row(NamedTuple):
    """A row of a table: a player with its rating and its results.

    Args:
        rank: 1 is the strongest, by `elo`.
        player: its name.
        elo: its distance from the mean of its table; of two populations see `arena.league.populations`.
        low: where the 95 % interval of `elo` begins.
        high: where it ends.
        score: of the sides on which it sat.
        population: `first side` or `second side`, where there are two that only meet each other; else empty.
        scale: players can be compared where these numbers are the same, as games connect them.
        began: when it began anew, as a copy of another policy or from its first weights; None: it did not.
    """

    rank: int
    player: str
    elo: float
    low: float
    high: float
    score: Score
    population: str = ""
    scale: int = 0
    began: Beginning | None = None

    @property
    def share(self) -> float | None:
        """The points of a game, in [0, 1]; None without a game."""
        return self.score.points / self.score.games if self.score.games else None


class LeagueTable(NamedTuple):
    """The tables of a league, and what qualifies them.

    Args:
        tables: see `tables`.
        prior: whether the strengths have a weak prior: see `Ratings`.
        curtailed: the player whose rating is biased most by games that were cut; None if the bias is small.
        equal: the neighbors that have proved to be as good as each other; none where policies learn.
        without_winner: a line for each game without winners: why it is not rated.
        narrow: the leader of the first table, where its rating rests on few opponents; None: it does not.
    """

    tables: list[list[Row]]
    prior: bool
    curtailed: Curtailed | None
    equal: Sequence[Doubt] = ()
    without_winner: Sequence[str] = ()
    narrow: Narrow | None = None


class Narrow(NamedTuple):
    """A leader that has met few of the others: its place rests on their ratings rather than on games against the rest.

    Args:
        player: the leader.
        opponents: that it has met in nearly all of its games, the most frequent one first.
        others: the number of the other players in its table.
    """

    player: str
    opponents: tuple[str, ...]
    others: int


class Curtailed(NamedTuple):
    """The bias by games that were cut: the player of whose games the largest share was cut.

    Args:
        player: its name.
        games: finished games per game that was cut: about as many as a lane plays between two cuts.
        by: what has cut them by its end: a `leg`, a `round`, or the `run`.
        key: the key of the configuration that makes these longer.
    """

    player: str
    games: float
    by: str
    key: str


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
        cut: per player the games that do not count because they were cut: see `ResultSet`.
        config: of the run.
        at: the tick at which the players are rated, by all games; None: the end.
    """
    now = counted if at is None else counted.until(at)
    if not now.players:
        return LeagueTable([], prior=False, curtailed=None)
    ratings = fit(timeline, now=now, at=at)
    found = tables(ratings, timeline, sides=populations_of(config, now.players), now=now, at=at)
    equal = (
        [] if timeline.learns else [one for own in found for one in equals(now.results, [row.player for row in own])]
    )
    narrow = narrow_leader(now, [row.player for row in found[0]])
    return LeagueTable(found, ratings.prior, curtailed(ratings, cut, config), equal, narrow=narrow)


def narrow_leader(timeline: Timeline, order: Sequence[str]) -> Narrow | None:
    """The best player, if one or two others had nearly all of its games, though there are more; else None.

    Of a policy that learns, newer games count more, see `metagame.meetings`. A snapshot also has the games of its
    policy in the periods before and after it. Games of teams of several players do not count.

    Args:
        timeline: the games.
        order: the players of a table, the best first.
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


def curtailed(ratings: Ratings, cut: Mapping[str, int], config: Config) -> Curtailed | None:
    """The player whose rating is biased most by games that were cut; None if the bias is small.

    Not for tournaments, in which each lane plays a fixed number of games.

    Args:
        ratings: of the games that count.
        cut: per player the games that do not count because they were cut: see `ResultSet`.
        config: of the run, in which the number of ticks is fixed.
    """
    found = {player: ratings.of(player).games / cut[player] for player in ratings.players if cut.get(player)}
    fewest = min(found, key=found.__getitem__, default=None)
    if fewest is None or found[fewest] >= ENOUGH:
        return None
    if config.checkpoint_every < config.ticks:
        return Curtailed(fewest, found[fewest], "leg", "checkpoint_every")
    return Curtailed(fewest, found[fewest], "round" if config.rounds > 1 else "run", "ticks")


def tables(
    ratings: Ratings,
    played: Results | Timeline,
    *,
    sides: Sides | None = None,
    now: Timeline | None = None,
    at: int | None = None,
) -> list[list[Row]]:
    """The tables of all rated players: one, or of two populations two, for each set of players that games connect.

    Players of one set can be compared; the largest set comes first, and in a table the best player.

    Args:
        ratings: fitted to the results.
        played: the games.
        sides: the two populations that only meet each other, if there are two.
        now: the games that count at a tick; None: all.
        at: the tick.
    """
    current = now or played
    scores, begun = current.tallies(), current.newest_beginnings if isinstance(current, Timeline) else {}
    found: list[list[Row]] = []
    for scale, names in enumerate(comparable(played, ratings.players, at=at)):
        if sides is None:
            found.append(rows(ratings.among(names), scores, scale=scale, begun=begun))
            continue
        members = [[name for name in names if name in side] for side in sides]
        means = [float(np.mean([ratings.of(name).elo for name in own])) for own in members if own]
        half = (means[0] - means[1] + ratings.side.value) / 2 if all(members) else 0.0
        found += [
            rows(ratings.among(own), scores, middle=middle, population=title, scale=scale, begun=begun)
            for own, middle, title in zip(members, (half, -half), POPULATIONS, strict=True)
            if own
        ]
    return found


def rows(
    ratings: Ratings,
    scores: Mapping[str, Score],
    *,
    middle: float = 0.0,
    population: str = "",
    scale: int = 0,
    begun: Mapping[str, Beginning] = NONE_BEGUN,
) -> list[Row]:
    """The rows of one table, the best player first.

    Args:
        ratings: of the players.
        scores: what they have scored; none: nothing.
        middle: the Elo of their mean.
        population: of all of them, as in `Row`; also `scale`.
        begun: the newest beginning of each policy that has begun anew.
    """
    found = [(player, ratings.of(player)) for player in ratings.order()]
    return [
        Row(
            rank,
            player,
            middle + own.elo,
            middle + own.low,
            middle + own.high,
            scores.get(player, Score()),
            population,
            scale,
            begun.get(player),
        )
        for rank, (player, own) in enumerate(found, start=1)
    ]
