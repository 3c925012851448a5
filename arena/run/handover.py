"""Who goes on with what a worker alone had, such as a replay or half a rollout, where the seats are other ones now.

What another worker had is of use to one whose seat is of the same policy in the same kind of game, and to no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from arena.plan.plan import Plan
from arena.records.boundary import SeatKey, Worker


def seats_of(plan: Plan, *policies: str) -> list[SeatKey]:
    """The seats of some policies of a plan; of all where none is named."""
    return [
        SeatKey(
            match.match, seat.index, seat.policy, _words(match.env, match.env_kwargs, match.lanes, len(seat.entities))
        )
        for match in plan.matches
        for seat in match.seats
        if not policies or seat.policy in policies
    ]


def _words(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True, default=repr)


def match_workers(seats: Sequence[SeatKey], last: Sequence[SeatKey]) -> Iterator[tuple[Worker, Worker]]:
    """The workers of a policy, and whose place each of them takes: one of the last ones in a seat like its own.

    They take them in their order; where they are more than before, the last one of its kind has several successors.
    If somebody finds nobody, nobody takes over anything: who goes on with half a rollout meets its group at other ticks
    than who begins with none, and they would wait for each other.

    Args:
        seats: of the policy, as they are now.
        last: as they were, those of the policy or of another one.
    """
    places: dict[str, list[Worker]] = {}
    for seat in last:
        places.setdefault(seat.game, []).append(seat.worker)
    if any(seat.game not in places for seat in seats):
        return
    for seat in seats:
        left = places[seat.game]
        yield seat.worker, left.pop(0) if len(left) > 1 else left[0]
