"""Who is ready for a leg, and what is refused then: nobody begins what cannot be played to its end.

fragility    the run is asked for what needs states that can be saved and loaded, and somebody who learns has none
deadlock     matches can wait for each other, as the algorithms have said when their workers meet
standstill   the same in a later round of a league; by then everybody who may play in one has said it

What everybody has said before the first leg, in rehearsals too, is known to one process alone, that of the root. If it
dies before anybody has played, another root rehearses them all again, and hears it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from arena.errors import ConfigError, located
from arena.plan.deadlock import EPISODES, prove
from arena.plan.plan import Plan
from arena.roles.protocol import Ready
from arena.run.run import Run


def is_resumable(ready: Collection[Ready]) -> bool:
    """Whether all that is learnt can be saved and loaded, so that legs may end before the run does."""
    return all(one.resumable for one in ready)


def schedules_of(plan: Plan, ready: Collection[Ready]) -> dict[str, str]:
    """By policy that learns when its workers meet, as they have said."""
    workers = ((plan.seat(one.role).policy, one.schedule) for one in ready if one.role.seat is not None)
    return {name: schedule for name, schedule in workers if not plan.policies[name].frozen}


def refuse_unplayable(run: Run, ready: Collection[Ready], schedules: Mapping[str, str], *, begins: bool) -> None:
    """Refuses a leg that cannot be played to its end, or what the run would come to after it.

    Args:
        run: the run.
        ready: everybody.
        schedules: by policy when its workers meet, of those too who have said it before and have no seat now.
        begins: whether nobody has played before. Of a run that goes on somebody may have no seat now who could bring
            about a standstill; it has been asked when the run began.

    Raises:
        ConfigError: with the file, and the key where there is one.
    """
    if not is_resumable(ready):
        _refuse_fragility(run, ready)
    if not run.allow_unproved:
        _refuse_deadlock(run, ready)
        if begins:
            _refuse_standstill(run, schedules)


def _refuse_fragility(run: Run, ready: Collection[Ready]) -> None:
    names = sorted({run.plan.seat(one.role).policy for one in ready if not one.resumable})
    with located(source=run.source):
        run.plan.refuse_fragile(names)


def _refuse_deadlock(run: Run, ready: Collection[Ready]) -> None:
    proof = prove(run.plan, schedules_of(run.plan, ready))
    if proof.circle is not None:
        raise ConfigError(proof.refusal, source=run.source)


def _refuse_standstill(run: Run, schedules: Mapping[str, str]) -> None:
    if run.plan.rounds == 1 or EPISODES not in schedules.values():
        return
    from arena.config import parse_config, yaml
    from arena.plan.outlook import refuse_standstill

    with located(source=run.source):
        config = parse_config(yaml.load(run.config, source=run.source), source=run.source)
        refuse_standstill(config, schedules, processes=run.plan.processes)
