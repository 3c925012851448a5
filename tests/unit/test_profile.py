"""The stopwatch attributes every second to one activity."""

from __future__ import annotations

from arena.diagnostics.profile import Activity, Stopwatch
from clock import Clock


def watch() -> tuple[Stopwatch, Clock]:
    clock = Clock()
    return Stopwatch(clock), clock


def spend(stopwatch: Stopwatch, clock: Clock, *activities: tuple[Activity, float]) -> None:
    for activity, seconds in activities:
        stopwatch.switch(activity)
        clock.now += seconds


def test_the_shares_add_up_to_the_wall_time() -> None:
    stopwatch, clock = watch()
    clock.now += 2
    spend(stopwatch, clock, (Activity.COMMUNICATION, 1), (Activity.ENVIRONMENT, 5), (Activity.COMMUNICATION, 0.5))
    profile = stopwatch.profile()
    assert profile is not None
    assert profile.seconds == {"starting": 2, "communication": 1.5, "environment": 5}
    assert profile.wall == sum(profile.seconds.values()) == 8.5


def test_time_between_ticks_with_an_update_is_learning() -> None:
    stopwatch, clock = watch()
    stopwatch.begin_inference()
    clock.now += 1  # inference
    spend(stopwatch, clock, (Activity.WAITING_FOR_MATCH, 10))
    stopwatch.begin_inference()
    clock.now += 3  # learning
    spend(stopwatch, clock, (Activity.WAITING_FOR_GROUP, 20), (Activity.INFERENCE, 4))  # and back, still learning
    stopwatch.count_update()
    clock.now += 5  # such as a checkpoint: still learning
    spend(stopwatch, clock, (Activity.COMMUNICATION, 0.25))
    profile = stopwatch.profile()
    assert profile is not None
    assert profile.seconds == {
        "communication": 0.25,
        "waiting for the match": 10,
        "waiting for the group": 20,
        "inference": 1,
        "learning": 12,
    }
