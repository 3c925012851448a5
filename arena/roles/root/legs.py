"""Whether a leg can be played, and what follows at its end: the boundary that is saved and the next step of the run.

The functions use the plan and the roles' messages; they send no messages and touch no files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from arena import registry
from arena.errors import ConfigError
from arena.plan.deadlock import waiting_text
from arena.plan.plan import Plan, Role, RoleKind
from arena.records.folder import RunFolder
from arena.records.formats import Boundary, SeatKey, Worker
from arena.roles.protocol import Done, Ready
from arena.roles.run import Leg, Run, leg_at


class NextStep(NamedTuple):
    """How a run continues after a leg; one of the fields is set."""

    leg: Leg | None = None  # the next leg of the same roles
    following: Leg | None = None  # the next leg, of new roles if there is one: the roles end
    stopped_at: int | None = None  # a stop was requested: the run ends and can be resumed from this tick


def check_playable(run: Run, ready: Collection[Ready]) -> None:
    """Rejects a leg that cannot be played to its end, given the Ready messages of all environments and workers."""
    workers = [(run.plan.seat(message.role).policy, message) for message in ready if message.role.seat is not None]
    fragile = sorted({policy for policy, message in workers if not message.resumable})
    if fragile:
        with run.origin.located():
            run.plan.refuse_fragile(fragile)
    text, refused = waiting_text(run.plan, {policy: message.schedule for policy, message in workers})
    if refused:
        raise ConfigError(f"the run {text}", source=run.origin.source)


def planned_end(run: Run, start: int, *, resumable: bool) -> int:
    """The planned last tick of a leg from `start`: the run's if it counts episodes, or if some role cannot be saved."""
    plan, every, resumable = run.plan, run.plan.config.checkpoint_every, resumable or run.tried
    return plan.ticks if run.episodes is not None or not resumable else min((start // every + 1) * every, plan.ticks)


def check_synchronized(tick: int, plan: Plan, done: Mapping[Role, Done], left: Collection[tuple[int, int]]) -> None:
    """Rejects a policy whose workers have learned different states without any synchronization.

    A checkpoint has the state of one worker; all other workers would begin the next leg with that state. The workers
    `left`, as (match, seat), have not played in the leg that has ended at `tick`.
    """
    for name, policy in plan.policies.items():
        states = {done[Role(RoleKind.WORKER, *worker)].alone for worker in policy.workers if worker not in left}
        if len(states) > 1 and None not in states:
            raise ConfigError(
                f"its {len(policy.workers)} workers have not synchronized before tick {tick} and have learned "
                "different states, of which only the first worker's would be kept; let the algorithm call its group, "
                "e.g. `group.average_gradients(...)`, or set `independent: true` to train a separate policy per worker",
                path=f"policies.{name}",
            )


def idle_checkpoints(plan: Plan, leg: Leg, folder: RunFolder) -> dict[str, Path]:
    """By policy that does not play or learn in `leg`: its checkpoint in this run folder, maybe of another policy."""
    return {
        name: path
        for name, path in leg.restore.items()
        if (not plan.policies[name].workers or plan.policies[name].config.frozen)
        and path.parent.parent == folder.checkpoints
    }


def boundary_at(
    tick: int,
    plan: Plan,
    done: Mapping[Role, Done],
    *,
    episodes: Mapping[tuple[int, int], int],
    updates: Mapping[str, int],
    seconds: Mapping[str, float],
    idle: Mapping[str, int],
    journals: Mapping[str, int],
) -> Boundary:
    """The state of the run at the end of a leg at a tick; `done` are the messages of all roles.

    There are per lane the number of `episodes` before the leg, per policy the number of recorded `updates` and the
    `seconds` of the last one, per journal the bytes written. `idle` has, per policy that does not play, the boundary
    of its checkpoint.
    """
    # A worker that left a leg before it was cut short has written its checkpoint for the planned end.
    written: dict[str, list[int]] = {}
    for role, message in done.items():
        if message.saved is not None:
            written.setdefault(plan.seat(role).policy, []).append(message.saved)
    newest = {name: tick if tick in saved else max(saved) for name, saved in written.items()}
    played = {
        (role.match, lane): count
        for role, message in done.items()
        for lane, count in enumerate(message.episodes)
        if role.match is not None and count
    }
    return Boundary(
        tick=tick,
        episodes=[(*place, count) for place, count in {**episodes, **played}.items()],
        updates=dict(updates),
        seconds=dict(seconds),
        left=sorted(
            (role.match, role.seat)
            for role, message in done.items()
            if role.match is not None and role.seat is not None and message.returned
        ),
        seats=seats_of(plan),
        checkpoints={**idle, **newest},
        journals=dict(journals),
    )


def leg_from(boundary: Boundary, plan: Plan, leg: Leg, folder: RunFolder, done: Mapping[Role, Done]) -> Leg:
    """The leg that begins at the boundary after `leg`; frozen policies keep the checkpoints that they had in `leg`."""
    frozen = dict[str, Path]()
    for name, path in leg.restore.items():
        if (policy := plan.policies[name].config).frozen:
            copy = folder.loaded_path(name, policy.load or "")  # the run that it comes from may remove its file
            frozen[name] = copy if folder.path not in path.parents and copy.is_file() else path
    following = leg_at(boundary, folder)
    workers = (worker for policy in plan.policies.values() for worker in policy.workers)
    places = ((worker, done[Role(RoleKind.WORKER, *worker)].worker_state) for worker in workers)
    # A worker that left a leg before it was cut short has written its state for the planned end.
    states = {worker: place for worker, place in places if place is not None and place.boundary == boundary.tick}
    return replace(following, restore={**frozen, **following.restore}, private_states=states)


def parts(leg: Leg | None, roles: Iterable[Role]) -> Iterator[Leg | None]:
    """The leg as each role gets it: with the episodes of its match and its own state only, as there may be many."""
    episodes: dict[int | None, dict[tuple[int, int], int]] = {}
    for (match, lane), count in leg.episodes.items() if leg is not None else ():
        episodes.setdefault(match, {})[match, lane] = count
    for role in roles:
        worker = role.match or 0, -1 if role.seat is None else role.seat
        states = {worker: leg.private_states[worker]} if leg and worker in leg.private_states else {}
        yield leg and replace(leg, episodes=episodes.get(role.match, {}), private_states=states)


def next_step(run: Run, leg: Leg, *, stopping: bool) -> NextStep:
    """How a run continues from the boundary at which `leg` begins; `stopping`: whether a stop was requested."""
    plan = run.plan
    if run.episodes is not None:  # a round without learning, whose games are complete
        return NextStep(stopped_at=leg.start) if stopping else NextStep(following=leg)
    if stopping and leg.start < plan.horizon:
        return NextStep(stopped_at=leg.start)
    comes_back = (run.controlled or run.tried or plan.config.curriculum is not None) and leg.start < plan.ticks
    if comes_back or plan.evaluates_at(leg.start) or plan.ticks <= leg.start < plan.horizon:
        return NextStep(following=leg)
    return NextStep(leg) if leg.start < plan.ticks else NextStep(following=leg)


def seats_of(plan: Plan, *policies: str) -> list[SeatKey]:
    """The seats of some policies of a plan; of all policies if none is named."""
    found = []
    for match in plan.matches:
        for seat in match.seats:
            if not policies or seat.policy in policies:
                arguments = registry.game_arguments(match.game.make, match.game.kwargs)
                game = (match.env, arguments, match.lanes, len(seat.entities))
                text = json.dumps(game, sort_keys=True, default=repr)
                found.append(SeatKey(match.match, seat.index, seat.policy, text))
    return found


def match_workers(seats: Sequence[SeatKey], last: Sequence[SeatKey]) -> Iterator[tuple[Worker, Worker]]:
    """Pairs each worker of a policy with an earlier worker whose state it takes over, in a seat of the same kind.

    They are paired in order; if there are more workers than before, several of them copy the last one of their kind. If
    one worker has no counterpart, none takes over a state: a worker with half a rollout meets its group at other ticks
    than a worker with an empty one, and they would wait for each other. The `last` seats may be of another policy.
    """
    places: dict[str, list[Worker]] = {}
    for seat in last:
        places.setdefault(seat.game, []).append(seat.worker)
    if any(seat.game not in places for seat in seats):
        return
    for seat in seats:
        left = places[seat.game]
        yield seat.worker, left.pop(0) if len(left) > 1 else left[0]
