"""Two populations that only meet each other, such as predators and prey: two tables of ratings with one scale.

Games between the two cannot separate the worth of the first side from the strength of the first population. So their
sum is one number, the **gap**, and each player is rated within its population: `elo` is its distance from the mean of
its own population, plus half of the gap for the first and minus half of it for the second. A player of the first side
then scores a half against one of the second side with the same Elo. Intervals are of distances within a population.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.config.members import Sides, apart
from arena.config.schema import Config
from arena.league.ratings.ranking import RESOLUTION, Standings
from arena.league.results import Results


def populations_of(config: Config, players: Sequence[str], *, tournament: bool = False) -> Sides | None:
    """The players of each of two populations that only meet each other; None without such.

    Args:
        config: of a league; or of a tournament, in which players of one population meet on both sides.
        players: the players to assign, snapshots too.
        tournament: whether it is a tournament.
    """
    sides = apart(config, told=not tournament)
    if sides is None:
        return None
    return Sides(*(tuple(name for name in players if _policy(name, config) in side) for side in sides))


def _policy(player: str, config: Config) -> str:
    return player if player in config.policies else player.rpartition("@")[0]


def separate_standings(results: Results, sides: Sides, *, elo: float = RESOLUTION) -> list[Standings]:
    """The order within each population of two or more players."""
    return [Standings(results, side, elo=elo) for side in sides if len(side) > 1]


def every_meeting(sides: Sides) -> list[tuple[str, str]]:
    """All pairs of players of the two sides, ordered so that all players meet early and about equally often."""
    first, second = sides
    places = range(max(len(first), len(second)))
    pairs = ((place % len(first), (place + shift) % len(second)) for shift in range(len(second)) for place in places)
    return [(first[one], second[other]) for one, other in dict.fromkeys(pairs)]
