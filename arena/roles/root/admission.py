"""Checks, when all roles are ready, that a leg can be played to its end.

fragility    the run needs states that can be saved and loaded, but a policy that learns has none
deadlock     matches can wait for each other, given when each algorithm's workers synchronize
"""

from __future__ import annotations

from collections.abc import Collection

from arena.errors import ConfigError
from arena.plan.deadlock import waiting_words
from arena.plan.plan import Plan
from arena.roles.protocol import Ready
from arena.roles.run import Run


def is_resumable(ready: Collection[Ready]) -> bool:
    """Whether the state of every role can be saved and loaded, so that the run can have several legs."""
    return all(message.resumable for message in ready)


def schedules_of(plan: Plan, ready: Collection[Ready]) -> dict[str, str]:
    """Per policy that learns: when its workers synchronize, as reported in their Ready messages."""
    workers = ((plan.seat(message.role).policy, message.schedule) for message in ready if message.role.seat is not None)
    return {name: schedule for name, schedule in workers if not plan.policies[name].config.frozen}


def check_playable(run: Run, ready: Collection[Ready]) -> None:
    """Rejects a leg that cannot be played to its end.

    Args:
        run: the run.
        ready: the Ready messages of all environments and workers.

    Raises:
        ConfigError: with the file, and the key if there is one.
    """
    if not is_resumable(ready):
        fragile = sorted({run.plan.seat(message.role).policy for message in ready if not message.resumable})
        with run.origin.located():
            run.plan.refuse_fragile(fragile)
    words, refused = waiting_words(run.plan, schedules_of(run.plan, ready))
    if refused:
        raise ConfigError(f"the run {words}", source=run.origin.source)
