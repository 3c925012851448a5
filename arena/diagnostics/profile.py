"""Where a role's time goes: one activity at a time, so that the shares add up to the whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

Clock = Callable[[], float]


class Activity(str, Enum):
    """What a role can be doing."""

    STARTING = "starting"
    COMMUNICATION = "communication"  # reading and writing messages; a proxy's copies count as the algorithm's
    ENVIRONMENT = "environment"  # the game itself
    WAITING_FOR_ACTIONS = "waiting for actions"
    WAITING_FOR_MATCH = "waiting for the match"
    WAITING_FOR_GROUP = "waiting for the group"  # exchanging with it included
    INFERENCE = "inference"  # the algorithm, between two ticks
    LEARNING = "learning"  # the algorithm, between two ticks with an update between them
    RECORDING = "recording"
    WAITING_FOR_NEWS = "waiting for news"


class RoleProfile(NamedTuple):
    """What one role did with its time."""

    wall: float  # seconds from its start to its end
    cpu: float  # seconds of processor time of its process meanwhile
    seconds: dict[str, float]  # by activity

    def plus(self, other: RoleProfile) -> RoleProfile:
        """What it did in two legs of a run."""
        activities = {**self.seconds, **other.seconds}
        seconds = {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in activities}
        return RoleProfile(self.wall + other.wall, self.cpu + other.cpu, seconds)


class Stopwatch:
    """Adds up the seconds of each activity.

    An algorithm does not say when it learns. It tells its group of each update, though: what it did since the last tick
    until then, and until the next tick, was learning.

    Attributes:
        runs: whether it measures anything.
    """

    runs = True

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._activity = Activity.STARTING
        self._begun = self._since = clock()
        self._cpu_begun = time.process_time()
        self._thought = 0.0  # seconds of INFERENCE since the last tick
        self.seconds = dict.fromkeys(Activity, 0.0)

    def switch(self, activity: Activity) -> Activity:
        """Begins an activity; returns the one that ends."""
        now, before = self._clock(), self._activity
        passed = now - self._since
        self.seconds[before] += passed
        if before is Activity.INFERENCE:
            self._thought += passed
        self._activity, self._since = activity, now
        return before

    def think(self) -> None:
        """The algorithm goes on, with what the last tick has shown it."""
        self.switch(Activity.INFERENCE)
        self._thought = 0.0

    def learnt(self) -> None:
        """The algorithm has made an update."""
        self.switch(Activity.LEARNING)
        self.seconds[Activity.INFERENCE] -= self._thought
        self.seconds[Activity.LEARNING] += self._thought
        self._thought = 0.0

    def profile(self) -> RoleProfile | None:
        """What was measured until now."""
        self.switch(self._activity)
        now = self._clock()
        spent = {activity.value: seconds for activity, seconds in self.seconds.items() if seconds}
        return RoleProfile(now - self._begun, time.process_time() - self._cpu_begun, spent)


class StoppedWatch(Stopwatch):
    """For runs that are not profiled: it measures nothing and costs nothing."""

    runs = False

    def switch(self, activity: Activity) -> Activity:
        """Returns the activity that was asked for: to switch back to it later does nothing either."""
        return activity

    def think(self) -> None:
        pass

    def learnt(self) -> None:
        pass

    def profile(self) -> RoleProfile | None:
        return None


def stopwatch(profile: bool) -> Stopwatch:
    """A stopwatch that runs, or one that costs nothing."""
    return Stopwatch() if profile else StoppedWatch()
