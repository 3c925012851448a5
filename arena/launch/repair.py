"""Taking up a run again after some of its processes have died.

mourning   everybody is let out of what it waits for, and agrees that somebody has died
meeting    those who live tell each other what they know: the newest state of each policy, how far matches have come
planning   the same everywhere, from what was told: who hosts what, and the leg that is played now
handing    who has the newest state of a policy writes it to a file, as for any other leg

Another death meanwhile begins all of it anew. What is lost is what nobody who lives has known: at most the unfinished
update of each policy, unfinished episodes, and records that had not left a dead root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arena.leg import Leg
from arena.memory import Learnt, Memory, Standing
from arena.messages import pack, unpack
from arena.plan import Role
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.records.checkpoint import Checkpoint
from arena.records.journal import JournalReader
from arena.rehosting import rehosted
from arena.roles.leg_end import leg_from, next_boundary
from arena.run import Repair, Run

if TYPE_CHECKING:
    from arena.comm.mpi import Team

DEATHS_AT_MOST = 5
"""How often a role may die with its process within one leg."""


class Known(NamedTuple):
    """What one process tells the others."""

    rank: int  # in the plan that was played
    policies: Mapping[str, tuple[int, int, float]]  # update, ticks and seconds of the states that it has
    matches: Mapping[int, Standing]
    left: frozenset[tuple[int, int]]
    leg: Leg | None  # the newest one that it has heard of
    begun: bool
    concluded: bool  # the result was shown
    asked_to_stop: int | None  # by which signal
    boundary: Leg | None = None  # of the first process: the leg that begins from the newest boundary, if that is newer


def repaired(team: Team, run: Run, memory: Memory, lost_at: float) -> tuple[Team, Run]:
    """The team of those who live, and the run as they take it up again; a collective of theirs.

    Args:
        team: all processes, all of whom know that somebody has died.
        run: what was played.
        memory: what this process knows.
        lost_at: when it has heard of the death, by its monotonic clock.
    """
    rank = team.rank
    while True:
        team = team.survivors()
        found = None
        try:
            found = _meet(team, run, rank, memory, lost_at)
        except BaseException as error:
            if not team.mourns(error):
                raise
            team.revoke()
        if team.agree(found is not None):
            assert found is not None
            return found


def _meet(team: Team, run: Run, rank: int, memory: Memory, lost_at: float) -> tuple[Team, Run]:
    alive = [unpack(told) for told in team.gather(pack(rank))]
    boundary = None
    if team.rank == 0:
        boundary = _newer_boundary(run, memory)
        if 0 not in alive:  # the root has taken its counts along; what it has written is there
            for match, standing in on_record(run).items():
                memory.note(match, standing)
    known = [Known(*unpack(told)) for told in team.gather(pack(tuple(_known(rank, memory, boundary))))]
    plan, order = rehosted(run.plan, alive)
    leg, owners = leg_after(run, known)
    for name, (owner, path) in owners.items():
        if owner == rank:
            _hand_over(run, name, memory.policies[name], path)
    if leg is known[0].boundary:  # it has everything that was known of the leg before
        memory.policies.clear()
        memory.matches.clear()
    memory.stop.number = next((told.asked_to_stop for told in known if told.asked_to_stop is not None), None)
    team.gather(b"")  # nobody begins before everything is written
    if order != alive:
        team = team.in_order(order.index(rank))
    dead = tuple(sorted(set(range(run.plan.processes)) - set(alive)))
    homes = tuple(sorted({plan.rank_of(role) for rank in dead for role in run.plan.ranks[rank]}))
    return team, replace(
        run,
        plan=plan,
        leg=leg,
        begun=run.begun or any(told.begun for told in known),
        concluded=any(told.concluded for told in known) or leg.start >= run.plan.horizon,
        rehearsals=0,  # the last one may have been interrupted, and a dead root has taken along what it heard in them
        repairs=(*run.repairs, Repair(dead, run.plan, homes, leg.start, lost_at)),
    )


def _known(rank: int, memory: Memory, boundary: Leg | None) -> Known:
    return Known(
        rank=rank,
        policies={name: (held.update, held.ticks, held.seconds) for name, held in memory.policies.items()},
        matches=memory.matches,
        left=frozenset(memory.left),
        leg=memory.leg,
        begun=memory.begun,
        concluded=memory.concluded,
        asked_to_stop=memory.stop.number,
        boundary=boundary,
    )


def _newer_boundary(run: Run, memory: Memory) -> Leg | None:
    """The leg that begins from a boundary of which nobody may have heard: its root has died before it could tell."""
    found = boundaries.last(run.folder)
    known = max(run.leg.start, -1 if memory.leg is None else memory.leg.start)
    if found is None or found.tick <= known:
        return None
    return leg_from(found, run.plan, run.leg, run.folder)


def _hand_over(run: Run, name: str, held: Learnt, path: Path) -> None:
    algorithm = run.plan.policies[name].algorithm
    checkpoint.write(path, Checkpoint(held.load(), name, algorithm, held.ticks, held.update, run.leg.start))


def leg_after(run: Run, known: Sequence[Known]) -> tuple[Leg, dict[str, tuple[int, Path]]]:
    """The leg that is played after a death, and for each policy that somebody knows: who, and where it belongs."""
    legs = [run.leg, *(told.leg for told in known if told.leg is not None)]
    leg = max(legs, key=lambda leg: leg.start)  # of equal ones the run's own, which a repair may have made
    if not (run.begun or any(told.begun for told in known)):
        return leg, {}  # whatever boundaries there are, they are of an earlier part of the run
    newest = known[0].boundary
    if newest is not None and newest.start > leg.start:
        return newest, {}
    if leg.start >= run.plan.ticks:
        return leg, {}  # all is played; its last evaluation may not be
    until = next_boundary(run.plan, leg.start)
    standings = {match.match: _standing(leg, match.match, match.lanes, until, known) for match in run.plan.matches}
    owners = {}
    updates, seconds = dict(leg.updates), dict(leg.seconds)
    for name, policy in run.plan.policies.items():
        tellers = [told for told in known if told.policies.get(name, (-1,))[0] >= leg.updates.get(name, 0)]
        if policy.frozen or not tellers:
            continue
        best = max(tellers, key=lambda told: (told.policies[name][:2], -told.rank))
        owners[name] = best.rank, run.folder.checkpoints_path(name) / "repair.ckpt"
        updates[name], _, seconds[name] = best.policies[name]
    after = replace(
        leg,
        ticks={match: standing.tick for match, standing in standings.items()},
        episodes={
            (match, lane): count
            for match, standing in standings.items()
            for lane, count in enumerate(standing.episodes)
            if count
        },
        updates=updates,
        seconds=seconds,
        left=leg.left.union(*(told.left for told in known)),
        restore={**leg.restore, **{name: path for name, (_, path) in owners.items()}},
        recent=tuple(row for standing in standings.values() for row in standing.recent),
    )
    return after, owners


def _standing(leg: Leg, match: int, lanes: int, until: int, known: Sequence[Known]) -> Standing:
    """How far a match has come, as far as somebody knows."""
    found = Standing(leg.tick_of(match), tuple(leg.episodes.get((match, lane), 0) for lane in range(lanes)))
    for told in known:
        found = found.merged(told.matches.get(match, found))
    return found._replace(tick=min(found.tick, until - 1))  # the last tick tells everybody that it is the last


def on_record(run: Run) -> dict[int, Standing]:
    """How far the matches have come by the run's own records."""
    found = boundaries.last(run.folder)
    start = found.journals[run.folder.episodes.name] if found is not None else 0
    standings: dict[int, Standing] = {}
    for line in JournalReader(run.folder.episodes, start=start) if run.folder.episodes.exists() else ():
        counts = (0,) * line["lane"] + (line["episode"] + 1,)
        known = standings.get(line["match"], Standing(0))
        standings[line["match"]] = known.merged(Standing(line["tick"], counts))
    return standings


def often_dead(run: Run) -> Role | None:
    """A role that has died with its process too often in one leg for an accident; None if there is none."""
    now = run.plan.round, run.leg.start
    repairs = [repair for repair in run.repairs if (repair.plan.round, repair.leg) == now]
    deaths = Counter(role for repair in repairs for rank in repair.died for role in repair.plan.ranks[rank])
    return next((role for role, count in deaths.items() if count >= DEATHS_AT_MOST), None)
