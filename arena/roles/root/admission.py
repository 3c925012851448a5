"""Whether a leg can be played to its end, once all roles are ready for it.

fragility    the run is asked for what needs states that can be saved and loaded, and a policy that learns has none
deadlock     matches can wait for each other, as the algorithms say when their workers synchronize
"""

from __future__ import annotations

from collections.abc import Collection

from arena.errors import ConfigError, located
from arena.plan.deadlock import prove
from arena.plan.plan import Plan
from arena.roles.protocol import Ready
from arena.run.run import Run


def is_resumable(ready: Collection[Ready]) -> bool:
    """Whether all that is learned can be saved and loaded, so that legs may end before the run does."""
    return all(one.resumable for one in ready)


def schedules_of(plan: Plan, ready: Collection[Ready]) -> dict[str, str]:
    """By policy that learns: when its workers synchronize, as they report."""
    workers = ((plan.seat(one.role).policy, one.schedule) for one in ready if one.role.seat is not None)
    return {name: schedule for name, schedule in workers if not plan.policies[name].frozen}


def check_playable(run: Run, ready: Collection[Ready]) -> None:
    """Refuses a leg that cannot be played to its end.

    Args:
        run: the run.
        ready: of all other roles.

    Raises:
        ConfigError: with the file, and the key where there is one.
    """
    if not is_resumable(ready):
        _check_fragility(run, ready)
    if not run.allow_unproved:
        _check_deadlock(run, ready)


def _check_fragility(run: Run, ready: Collection[Ready]) -> None:
    names = sorted({run.plan.seat(one.role).policy for one in ready if not one.resumable})
    with located(source=run.source):
        run.plan.refuse_fragile(names)


def _check_deadlock(run: Run, ready: Collection[Ready]) -> None:
    proof = prove(run.plan, schedules_of(run.plan, ready))
    if proof.circle is not None:
        raise ConfigError(proof.refusal, source=run.source)
