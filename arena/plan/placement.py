"""Packing: which rank hosts which roles when there are fewer ranks than roles.

All roles stand in one row, match after match, and the row is cut into as many pieces as there are ranks. So the roles
of a match are on one rank or on neighboring ones, and copies spread evenly. The criteria, in this order:

1. Balance. A role weighs what it costs per tick: about 1 for an environment or a worker that only acts, 3 for one
   that learns, nothing for the root. The cuts minimize the load of the heaviest rank.
2. Whole matches. A match within one rank needs no messages, and within one host no network. So matches are not cut if
   this makes the heaviest rank at most a quarter heavier; else they are not divided between hosts, if this does: the
   row is cut at the ends of matches that are nearest to the cuts between hosts, then each host's part into ranks.
3. Memory. Ranks that host no worker that needs torch never import it: matches without such workers come first in the
   row, and within a match the environment and the workers that do not need it come before those that do. Of two equally
   balanced packings, the one with fewer ranks that import torch is taken. Learners are not separated from their
   environments to save more imports: that would cost two messages per worker and tick.

The number of lanes of a match does not count: it raises the cost of all its roles alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, TypeVar

Role = TypeVar("Role")

_WHOLE_MATCHES_AT_MOST = 1.25  # times the load of the heaviest rank when matches may be cut, also between hosts


class Load(NamedTuple):
    """What a role costs the rank that hosts it."""

    weight: int
    torch: bool = False  # whether it needs torch, which a process imports once for all its roles


def pack(
    root: Role, matches: Sequence[Sequence[Role]], hosts: Sequence[int], *, load: Callable[[Role], Load]
) -> list[list[Role]]:
    """The roles of every rank; each rank has at least one, and rank 0 has the root, which costs nothing.

    `hosts`: how many ranks each host has, in the order of the ranks.
    """

    def needs_torch(roles: Sequence[Role]) -> bool:
        return any(load(role).torch for role in roles)

    def weights(units: Sequence[Sequence[Role]]) -> list[int]:
        return [sum(load(role).weight for role in unit) for unit in units]

    def packed(whole: Sequence[Sequence[Role]], ranks: int) -> list[list[Role]]:
        units = [[role] for match in whole for role in match]
        heaviest = lightest_maximum(weights(units), ranks)
        if len(whole) >= ranks and lightest_maximum(weights(whole), ranks) <= _WHOLE_MATCHES_AT_MOST * heaviest:
            units = list(map(list, whole))
        cuts = (cut(weights(units), ranks, evenly=evenly) for evenly in (True, False))
        packings = [[list(chain(*units[start:stop])) for start, stop in pieces] for pieces in cuts]
        return min(packings, key=lambda found: sum(map(needs_torch, found)))

    row = sorted((sorted(match, key=lambda role: load(role).torch) for match in matches), key=needs_torch)
    whole = [[root], *row]
    found = packed(whole, sum(hosts))
    ends = [0, *accumulate(map(len, whole))]  # of the matches, in roles
    first = [0, *accumulate(hosts)]  # the first rank of each host, and the end
    cuts = [sum(map(len, found[:rank])) for rank in first]
    if all(place in ends for place in cuts):
        return found
    near = [min(range(len(ends)), key=lambda number: abs(ends[number] - place)) for place in cuts]
    parts = [whole[start:stop] for start, stop in pairwise(near)]
    if any(sum(map(len, part)) < ranks for part, ranks in zip(parts, hosts, strict=True)):
        return found
    divided = [roles for part, ranks in zip(parts, hosts, strict=True) for roles in packed(part, ranks)]
    return divided if max(weights(divided)) <= _WHOLE_MATCHES_AT_MOST * max(weights(found)) else found


def lightest_maximum(weights: Sequence[int], parts: int) -> int:
    """The least load of the heaviest part when a row is cut into at most `parts` pieces."""
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        if pieces_needed(weights, middle)[-1] <= parts:
            high = middle
        else:
            low = middle + 1
    return low


def pieces_needed(weights: Sequence[int], capacity: int) -> list[int]:
    """The least number of pieces of at most `capacity` into which the first 0, 1, 2, ... items of a row can be cut."""
    needed, load = [0], 0
    for weight in weights:
        fits = needed[-1] > 0 and load + weight <= capacity
        load = load + weight if fits else weight
        needed.append(needed[-1] + (not fits))
    return needed


def cut(weights: Sequence[int], parts: int, *, evenly: bool) -> list[tuple[int, int]]:
    """Cuts a row into pieces, none empty, so that the heaviest is as light as possible; where each starts and stops.

    `evenly`: each piece gets an equal share of the remaining weight; otherwise the last pieces are filled first.
    """
    capacity = lightest_maximum(weights, parts)
    needed = pieces_needed(weights, capacity)
    left, stop, pieces = sum(weights), len(weights), []
    for part in reversed(range(parts)):
        share = left / (part + 1)
        start, load = stop - 1, weights[stop - 1]
        while start > part:
            weight = weights[start - 1]
            welcome = load + weight <= capacity and (not evenly or load + weight / 2 <= share)
            if needed[start] <= part and not welcome:
                break  # the rest can do without this piece
            start, load = start - 1, load + weight
        pieces.append((start, stop))
        left, stop = left - load, start
    return pieces[::-1]
