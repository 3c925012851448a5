"""Measures a role's time by activity: one activity at a time, so that the shares add up to 100 %."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

Clock = Callable[[], float]


class Activity(str, Enum):
    """What a role does."""

    STARTING = "starting"
    COMMUNICATION = "communication"  # reading and writing messages; a proxy's copies count as the algorithm's
    ENVIRONMENT = "environment"  # the game itself
    WAITING_FOR_ACTIONS = "waiting for actions"
    WAITING_FOR_MATCH = "waiting for the match"
    WAITING_FOR_GROUP = "waiting for the group"  # including the exchange itself
    INFERENCE = "inference"  # the algorithm between two ticks, without an update
    LEARNING = "learning"  # the algorithm between two ticks, with an update
    RECORDING = "recording"
    WAITING_FOR_NEWS = "waiting for news"


class RoleProfile(NamedTuple):
    """One role's time by activity."""

    wall: float  # seconds from its start to its end
    cpu: float  # its CPU seconds in this time
    seconds: dict[str, float]  # by activity

    def plus(self, other: RoleProfile) -> RoleProfile:
        """The sum of the profiles of two legs."""
        activities = {**self.seconds, **other.seconds}
        seconds = {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in activities}
        return RoleProfile(self.wall + other.wall, self.cpu + other.cpu, seconds)


class Stopwatch:
    """Adds up the seconds of each activity.

    An algorithm does not report when it learns, but then it averages gradients, broadcasts or publishes weights, or
    logs metrics. So the time between two ticks counts as learning if it has done one of these between them.

    `processor` returns CPU seconds: of the role's process, or of its thread if the process hosts other roles, too.

    Attributes:
        runs: whether it measures anything.
    """

    runs = True

    def __init__(self, clock: Clock = time.perf_counter, *, processor: Clock = time.process_time) -> None:
        self._clock, self._processor = clock, processor
        self._activity = Activity.STARTING
        self._begun = self._since = clock()
        self._cpu_begun = processor()
        self._since_tick = 0.0  # INFERENCE seconds since the last tick
        self.seconds = dict.fromkeys(Activity, 0.0)

    def switch(self, activity: Activity) -> Activity:
        """Begins an activity; returns the one that ends."""
        now, before = self._clock(), self._activity
        passed = now - self._since
        self.seconds[before] += passed
        if before is Activity.INFERENCE:
            self._since_tick += passed
        self._activity, self._since = activity, now
        return before

    def begin_inference(self) -> None:
        """The algorithm continues after a tick."""
        self.switch(Activity.INFERENCE)
        self._since_tick = 0.0

    def count_update(self) -> None:
        """The algorithm makes an update, or has made one; does nothing while the role starts."""
        if self._activity is Activity.STARTING:
            return
        self.switch(Activity.LEARNING)
        self.seconds[Activity.INFERENCE] -= self._since_tick
        self.seconds[Activity.LEARNING] += self._since_tick
        self._since_tick = 0.0

    def profile(self) -> RoleProfile | None:
        """The profile up to now."""
        self.switch(self._activity)
        now = self._clock()
        spent = {activity.value: seconds for activity, seconds in self.seconds.items() if seconds}
        return RoleProfile(now - self._begun, self._processor() - self._cpu_begun, spent)


class StoppedWatch(Stopwatch):
    """Measures nothing, for runs that are not profiled."""

    runs = False

    def __init__(self) -> None:
        pass  # no clocks: the kernel adds up the CPU time of all threads, 2 ms for 10,000 roles in one process

    def switch(self, activity: Activity) -> Activity:
        """Does nothing; returns `activity`."""
        return activity

    def begin_inference(self) -> None:
        pass

    def count_update(self) -> None:
        pass

    def profile(self) -> RoleProfile | None:
        return None
