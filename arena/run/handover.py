"""Handover of private state, such as a replay buffer or half a rollout, between workers when seats have changed.

A worker can continue with the state of another one if both seats are of the same policy in the same kind of game.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from arena.plan.plan import Plan
from arena.records.formats import SeatKey, Worker


def seats_of(plan: Plan, *policies: str) -> list[SeatKey]:
    """The seats of some policies of a plan; of all policies if none is named."""
    return [
        SeatKey(
            match.match, seat.index, seat.policy, _words(match.env, match.game.kwargs, match.lanes, len(seat.entities))
        )
        for match in plan.matches
        for seat in match.seats
        if not policies or seat.policy in policies
    ]


def _words(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True, default=repr)


def match_workers(seats: Sequence[SeatKey], last: Sequence[SeatKey]) -> Iterator[tuple[Worker, Worker]]:
    """Pairs each worker of a policy with an earlier worker whose state it takes over, in a seat of the same kind.

    They are paired in order; if there are more workers than before, several of them copy the last one of their kind. If
    one worker has no counterpart, none takes over a state: a worker with half a rollout meets its group at other ticks
    than a worker with an empty one, and they would wait for each other.

    Args:
        seats: of the policy, as they are now.
        last: the earlier seats, of the same policy or of another one.
    """
    places: dict[str, list[Worker]] = {}
    for seat in last:
        places.setdefault(seat.game, []).append(seat.worker)
    if any(seat.game not in places for seat in seats):
        return
    for seat in seats:
        left = places[seat.game]
        yield seat.worker, left.pop(0) if len(left) > 1 else left[0]
