"""Detects games that were all alike: without chance, more games say no more than the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from arena.errors import pluralize
from arena.records.metrics import EpisodeRecord

_ENOUGH = 8  # repetitions, at least, before games are called all alike


def repeated(lines: Iterable[EpisodeRecord], *, random: Collection[str] = ()) -> list[tuple[str, ...]]:
    """The players that have only repeated one game: the same length and returns in each arrangement of seats.

    Games of a single policy that were truncated do not count: one that balances a pole until the last tick does so in
    each of many different games.

    Args:
        lines: of `episodes.jsonl`.
        random: the players that act at random; their games are never called alike.

    Returns:
        the line-ups, sorted: those with at least eight repetitions; or all, if all their games were repetitions, at
        least eight together.
    """
    games: dict[tuple[str, ...], Counter[tuple[float | None, ...]]] = {}
    chance: set[tuple[str, ...]] = set()
    for line in lines:
        if line.cut:
            continue
        seats = tuple(seat.policy for seat in line.seats)
        ended = (line.length, *(seat.return_ for seat in line.seats))
        games.setdefault(seats, Counter())[ended] += 1
        if not {*random}.isdisjoint(seats) or (len(set(seats)) == 1 and line.truncated):
            chance.add(seats)
    repetitions: Counter[tuple[str, ...]] = Counter()
    alike: dict[tuple[str, ...], bool] = {}
    for seats, found in games.items():
        players = tuple(sorted(set(seats)))
        repetitions[players] += found.total() - 1
        alike[players] = alike.get(players, True) and len(found) == 1 and seats not in chance
    everything = all(alike.values()) and repetitions.total() >= _ENOUGH
    return sorted(
        players for players, same in alike.items() if same and (everything or repetitions[players] >= _ENOUGH)
    )


def repetition_words(alike: Sequence[Sequence[str]], *, remedy: str) -> list[str]:
    """A line on games that were all alike, if there were any.

    Args:
        alike: their players, see `repeated`.
        remedy: what makes them play with chance.
    """
    if not alike:
        return []
    who = f"between {' and '.join(alike[0])}" if len(alike[0]) > 1 else f"of {alike[0][0]} alone"
    more = f", and {pluralize(len(alike) - 1, 'more line-up')}," if len(alike) > 1 else ""
    return [
        f"all games {who}{more} were alike, in each order of seats: where nothing is left to chance, more games say no "
        f"more than the first, and the intervals are too narrow; {remedy} plays with chance"
    ]
