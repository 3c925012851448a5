"""The results of finished episodes by policy, for the scoreboard and TensorBoard.

Thousands of episodes may end in a second, and the root reads them all. So the episodes of a message are processed
together, column by column, and the loops over episodes run in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, groupby, islice
from operator import attrgetter, mul
from typing import Any, NamedTuple

from arena.records.merge_order import Place, place_of
from arena.records.metrics import EpisodeRecord
from arena.records.outcome import Outcome

Shares = tuple[float, float, float]
"""Of one decided game, the shares that a policy won, drew and lost; their sum is 1."""

_WHOLE: dict[Outcome, Shares] = {"win": (1.0, 0.0, 0.0), "draw": (0.0, 1.0, 0.0), "loss": (0.0, 0.0, 1.0)}
_seats, _length = attrgetter("seats"), attrgetter("length")
_policy, _entities, _return, _outcome = map(attrgetter, ("policy", "entities", "return_", "outcome"))


class Results(NamedTuple):
    """One policy's results; an episode counts once, even if the policy had several seats.

    Args:
        returns: per episode, the mean over the policy's entities of their return; NaN: none of them took part.
        lengths: per episode, its ticks.
        games: per decided game, the shares of it that the policy won, drew and lost: 1 of one and 0 of the others,
            or something between the two where it sat on both sides.
        places: per episode, its place in the order of all episodes.
        decided: likewise per decided game.
    """

    returns: Sequence[float]
    lengths: Sequence[int]
    games: Sequence[Shares]
    places: Sequence[Place]
    decided: Sequence[Place]

    @property
    def won(self) -> list[float]:
        """Per decided game, the share that was won."""
        return [won for won, _, _ in self.games]


def results_of(episodes: Sequence[EpisodeRecord]) -> dict[str, Results]:
    """The results of episodes of one match, by policy, in the order of the seats; cut episodes do not count.

    Seats may differ between external games, as not all entities take part in each.
    """
    episodes = [episode for episode in episodes if not episode.cut]
    all_seats = list(map(_seats, episodes))
    if not any(all_seats):
        return {}
    seats = list(chain.from_iterable(all_seats))
    policies, entities, outcomes = (list(map(read, seats)) for read in (_policy, _entities, _outcome))
    count = len(all_seats[0])
    if policies != policies[:count] * len(episodes) or entities != entities[:count] * len(episodes):
        return _joined(map(results_of, in_parts(episodes)))
    returns = list(map(_return, seats))
    if None in returns:
        returns = [math.nan if value is None else value for value in returns]
    lengths, places = list(map(_length, episodes)), list(map(place_of, episodes))
    sides: dict[str, list[int]] = {}
    for seat, policy in enumerate(policies[:count]):
        sides.setdefault(policy, []).append(seat)
    sizes = [len(names) for names in entities[:count]]
    found = {}
    for policy, own_seats in sides.items():
        own = [sizes[seat] for seat in own_seats]
        means = _means([returns[seat::count] for seat in own_seats], own)
        ends = list(zip(*(outcomes[seat::count] for seat in own_seats), strict=True))
        shares = {end: _shares(end, own) for end in set(ends)}  # there are few ways in which a game can end
        found[policy] = Results(
            returns=means,
            lengths=lengths,
            games=[game for end in ends if (game := shares[end]) is not None],
            places=places,
            decided=list(compress(places, [shares[end] is not None for end in ends])),
        )
    return found


def _joined(parts: Iterable[dict[str, Results]]) -> dict[str, Results]:
    """The results of several parts of a match, in their order."""
    found: dict[str, list[Results]] = {}
    for part in parts:
        for policy, results in part.items():
            found.setdefault(policy, []).append(results)
    return {policy: _chained(results) for policy, results in found.items()}


def _chained(results: Sequence[Results]) -> Results:
    def all_of(read: Callable[[Results], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(map(read, results)))

    return Results(
        returns=all_of(lambda part: part.returns),
        lengths=all_of(lambda part: part.lengths),
        games=all_of(lambda part: part.games),
        places=all_of(lambda part: part.places),
        decided=all_of(lambda part: part.decided),
    )


def in_parts(episodes: Iterable[EpisodeRecord], most: int = 1000) -> Iterator[list[EpisodeRecord]]:
    """Episodes of several matches in parts for `results_of`: `most` consecutive ones with the same seats, or fewer."""
    for _, alike in groupby(episodes, key=_line_up):
        while part := list(islice(alike, most)):
            yield part


def _line_up(episode: EpisodeRecord) -> list[tuple[str, tuple[int | str, ...]]]:
    return [(seat.policy, seat.entities) for seat in episode.seats]


def _means(returns: Sequence[Sequence[float]], sizes: Sequence[int]) -> Sequence[float]:
    """Per episode the mean over the entities of all seats that took part; `returns` are per seat and episode."""
    if len(sizes) == 1:
        return returns[0]
    entities = sum(sizes)
    return [
        mean if not math.isnan(mean := sum(map(mul, values, sizes)) / entities) else _mean_of_present(values, sizes)
        for values in zip(*returns, strict=True)
    ]


def _mean_of_present(values: Sequence[float], sizes: Sequence[int]) -> float:
    """NaN if no seat took part."""
    present = [(value, size) for value, size in zip(values, sizes, strict=True) if not math.isnan(value)]
    return sum(value * size for value, size in present) / sum(size for _, size in present) if present else math.nan


def _shares(outcomes: Sequence[Outcome | None], sizes: Sequence[int]) -> Shares | None:
    """The shares of entities that won, drew and lost; None if the game has no winner for one of the seats."""
    totals = [0.0, 0.0, 0.0]
    for outcome, size in zip(outcomes, sizes, strict=True):
        if outcome is None:
            return None
        totals = [total + part * size / sum(sizes) for total, part in zip(totals, _WHOLE[outcome], strict=True)]
    won, drawn, lost = totals
    return won, drawn, lost
