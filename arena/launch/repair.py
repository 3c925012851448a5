"""Continues a run after some of its processes have died: with the survivors, from the newest boundary.

agree        every survivor is released from what it waits for, and knows of the death
gather       the survivors exchange their ranks, whether the run has begun, and requests to stop it
roll back    the first survivor finds the newest boundary, as `--resume` does, and sends the others the run from there;
             roles of dead processes move to survivors, all others stay where they are

Another death meanwhile restarts these steps. Only the run folder says where the run continues, so a run that loses
processes gives the same results as one that does not: the ticks since the boundary are played again, with the same
random streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from arena.plan.plan import Role
from arena.plan.rehosting import rehosted
from arena.records import boundary
from arena.run.process_state import ProcessState
from arena.run.run import Repair, Run
from arena.transport.pickling import pack, unpack

if TYPE_CHECKING:
    from arena.transport.mpi import World

DEATHS_AT_MOST = 5
"""How many deaths of a role's process within one leg end the run."""


class Known(NamedTuple):
    """The state of one survivor, as the others need it."""

    rank: int  # in the plan that was played
    begun: bool  # a role has begun to play, so there is a boundary
    concluded: bool  # the result was shown
    asked_to_stop: int | None  # by this signal
    tick: int  # the farthest tick that it has seen


def repaired(team: World, run: Run, memory: ProcessState, lost_at: float) -> tuple[World, Run]:
    """The survivors, and the run as they continue it. A collective of the survivors.

    Args:
        team: all processes; every survivor knows that some have died.
        run: what was played; the same at every rank.
        memory: the state of this process.
        lost_at: when this process noticed the death, by its monotonic clock.
    """
    rank = team.rank
    while True:
        team = team.survivors()
        found = None
        try:
            found = _agree_on_rollback(team, run, rank, memory, lost_at)
        except BaseException as error:
            if not team.is_peer_failure(error):
                raise
            team.revoke()
        if team.agree(found is not None):
            assert found is not None
            memory.roll_back()
            return found


def _agree_on_rollback(team: World, run: Run, rank: int, memory: ProcessState, lost_at: float) -> tuple[World, Run]:
    own = Known(rank, memory.begun, memory.concluded, memory.stop.number, memory.tick)
    known = [Known(*unpack(told)) for told in team.gather(pack(tuple(own)))]
    alive = [told.rank for told in known]
    decided = b""
    if team.rank == 0:
        # A spare does not know whether play has begun, but it leaves a boundary.
        begun = run.begun or any(told.begun for told in known) or boundary.newest_tick(run.folder) is not None
        decided = pack(_rolled_back(run, alive) if begun else _from_the_start(run, alive))
    following, order = unpack(team.broadcast(decided))
    memory.stop.number = next((told.asked_to_stop for told in known if told.asked_to_stop is not None), None)
    if order != alive:
        team = team.in_order(order.index(rank))
    dead = tuple(sorted(set(range(run.plan.processes)) - set(alive)))
    orphans = {role for lost in dead for role in run.plan.ranks[lost]}
    homes = tuple(number for number, roles in enumerate(following.plan.ranks) if not orphans.isdisjoint(roles))
    start = following.leg.start
    replayed = max(0, max(told.tick for told in known) - start)
    repair = Repair(dead, run.plan, homes, start, replayed, lost_at)
    concluded = following.concluded or any(told.concluded for told in known)
    return team, replace(following, concluded=concluded, repairs=(*run.repairs, repair))


def _from_the_start(run: Run, alive: Sequence[int]) -> tuple[Run, list[int]]:
    """A run that has not begun, on the survivors, and for each of their ranks its number in the old plan."""
    plan, order = rehosted(run.plan, alive)
    return replace(run, plan=plan), order


def _rolled_back(run: Run, alive: Sequence[int]) -> tuple[Run, list[int]]:
    """The run as it continues from its newest boundary, on the survivors, and their order as in `_from_the_start`."""
    from arena.run.resume import rolled_back  # imports the configuration, which other processes do not need

    idle = [rank for rank in run.plan.idle_ranks if rank in alive]
    spares = max(0, len(idle) + len(alive) - run.plan.processes)  # spares that did not replace a dead process
    found = rolled_back(run, ranks=len(alive), spares=spares)
    if found.plan.round != run.plan.round:  # another round has other roles: the new plan has placed them
        return found, list(alive)
    plan, order = rehosted(run.plan, alive)
    return replace(found, plan=plan), order


def often_dead(run: Run) -> Role | None:
    """A role whose process has died `DEATHS_AT_MOST` times in one leg; None if there is none."""
    now = run.plan.round, run.leg.start
    repairs = [repair for repair in run.repairs if (repair.plan.round, repair.leg) == now]
    deaths = Counter(role for repair in repairs for rank in repair.died for role in repair.plan.ranks[rank])
    return next((role for role, count in deaths.items() if count >= DEATHS_AT_MOST), None)
