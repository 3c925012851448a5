"""The end of a leg: from what all have said last follow the boundary that is written down, and how the run goes on.

Nothing here touches the disk, or anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from arena.errors import ConfigError
from arena.plan.plan import Plan, Role, RoleKind
from arena.records.checkpoint import ticks_of
from arena.records.folder import RunFolder
from arena.records.formats import Boundary
from arena.roles.protocol import Done
from arena.run.handover import seats_of
from arena.run.leg import Leg, leg_at


class NextStep(NamedTuple):
    """How a run goes on when a leg has ended; with nothing of this, it does not."""

    leg: Leg | None = None  # the same roles play on
    following: Leg | None = None  # others do, after an evaluation or in the next round
    stopped_at: int | None = None  # nobody does: it was asked to end, and can be taken up again from this tick


class IdlePolicy(NamedTuple):
    """The checkpoint of a policy that has learned in earlier rounds and does not play in this one."""

    boundary: int  # that it stands for
    taken_from: Path | None = None  # another policy's, of which it has become a copy, and which will be forgotten


def next_boundary(plan: Plan, start: int) -> int:
    """The tick at which a leg ends, by rights, that begins at another one."""
    return min((start // plan.checkpoint_every + 1) * plan.checkpoint_every, plan.ticks)


def next_step(plan: Plan, leg: Leg, *, stopping: bool) -> NextStep:
    """How a run goes on from a boundary.

    Args:
        plan: that is played.
        leg: begins there.
        stopping: whether the run was asked to end.
    """
    if stopping and leg.start < plan.horizon:
        return NextStep(stopped_at=leg.start)
    if plan.evaluates_at(leg.start) or plan.ticks <= leg.start < plan.horizon:
        return NextStep(following=leg)
    return NextStep(leg if leg.start < plan.ticks else None)


def next_step_after_games(plan: Plan, leg: Leg, *, stopping: bool) -> NextStep:
    """As `next_step`, where nobody learns: all games of a round are played, and another one may begin with `leg`."""
    if stopping:
        return NextStep(stopped_at=leg.start)
    return NextStep(following=leg if plan.round + 1 < plan.rounds else None)


def boundary_at(
    tick: int,
    plan: Plan,
    done: Mapping[Role, Done],
    *,
    updates: Mapping[str, int],
    seconds: Mapping[str, float],
    resting: Mapping[str, IdlePolicy],
    journals: Mapping[str, int],
) -> Boundary:
    """The state of the run at the end of a leg.

    Args:
        tick: at which it has ended.
        plan: that is played.
        done: what everybody has said last.
        updates: per policy how many updates are on record.
        seconds: per policy the `seconds` of its last update.
        resting: the checkpoints of those who do not play.
        journals: per journal how many bytes are written.
    """
    saved = _saved(tick, plan, done)
    return Boundary(
        tick=tick,
        episodes=[
            (role.match, lane, count)
            for role, word in done.items()
            for lane, count in enumerate(word.episodes)
            if role.match is not None and count
        ],
        updates=dict(updates),
        seconds=dict(seconds),
        left=sorted(
            (role.match, role.seat)
            for role, word in done.items()
            if role.match is not None and role.seat is not None and word.returned
        ),
        seats=seats_of(plan),
        checkpoints={**{name: rests.boundary for name, rests in resting.items()}, **saved},
        journals=dict(journals),
    )


def _saved(tick: int, plan: Plan, done: Mapping[Role, Done]) -> dict[str, int]:
    """Per policy the boundary whose checkpoint has its newest state.

    Who has left a leg that ends early has written its checkpoint for the end that it knew of.
    """
    saved: dict[str, list[int]] = {}
    for role, word in done.items():
        if word.saved is not None:
            saved.setdefault(plan.seat(role).policy, []).append(word.saved)
    return {name: tick if tick in written else max(written) for name, written in saved.items()}


def refuse_loss(tick: int, plan: Plan, done: Mapping[Role, Done], left: Collection[tuple[int, int]]) -> None:
    """Refuses to go on where the workers of a policy have learned different things and have not met.

    A checkpoint has the state of one of them; the others would begin the next leg with it.

    Args:
        tick: at which the leg has ended.
        plan: that is played.
        done: what everybody has said last.
        left: the workers, as (match, seat), that have not played in the leg.

    Raises:
        ConfigError: with the policy's place.
    """
    for name, policy in plan.policies.items():
        playing = [worker for worker in policy.workers if worker not in left]
        states = {done[Role(RoleKind.WORKER, *worker)].alone for worker in playing}
        if len(states) > 1 and None not in states:
            raise ConfigError(
                f"its {len(policy.workers)} workers have not met their group before tick {tick} and have learned "
                "different things, of which only the first worker's would be kept; let the algorithm call its group, "
                "as `group.average_gradients(...)`, or set `independent: true`, and each worker is a policy of its own",
                path=f"policies.{name}",
            )


def resting_at(tick: int, plan: Plan, leg: Leg, folder: RunFolder) -> dict[str, IdlePolicy]:
    """By policy the checkpoints of those who have learned in earlier rounds and do not play in this one.

    Args:
        tick: at which the leg has ended: a copy's checkpoint is to stand for it.
        plan: that is played.
        leg: that has ended.
        folder: of the run. Checkpoints of other runs are not kept here.
    """
    found = {}
    for name, path in leg.restore.items():
        if not plan.policies[name].workers and path.parent.parent == folder.checkpoints:
            own = path.parent == folder.checkpoints_path(name)
            found[name] = IdlePolicy(ticks_of(path)) if own else IdlePolicy(tick, path)
    return found


def leg_from(boundary: Boundary, plan: Plan, leg: Leg, folder: RunFolder) -> Leg:
    """The leg that begins at a boundary, after another one; frozen policies have what they had in that."""
    given = {name: path for name, path in leg.restore.items() if plan.policies[name].frozen}
    following = leg_at(boundary, folder)
    return replace(following, restore={**given, **following.restore})
