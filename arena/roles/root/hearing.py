"""What the root hears: what the others say, one message after the other, and of those who hang that they do."""

from __future__ import annotations

from typing import Any

from arena.diagnostics.profile import Activity, RoleProfile, Stopwatch
from arena.roles.protocol import Failed
from arena.roles.root.watchdog import Watchdog
from arena.transport import ANYONE, Endpoint, Tag
from arena.transport.messages import unpack

LOOK_SECONDS = 0.25
"""For how long the root listens at a time; in between it looks after whoever hangs, and whether the run is to end."""


class Hearing:
    """The root's ear.

    Args:
        endpoint: the root's place in the world.
        watch: over all others.
        stopwatch: measures how long the root waits, and how long it works.
    """

    def __init__(self, endpoint: Endpoint, watch: Watchdog, stopwatch: Stopwatch) -> None:
        self._endpoint = endpoint
        self._watch = watch
        self._stopwatch = stopwatch

    def begin(self) -> None:
        """The root listens from now on; that it did not before is held against nobody."""
        self._watch.begin()

    def profile(self) -> RoleProfile | None:
        """Where the root's time has gone, if that is measured."""
        return self._stopwatch.profile()

    def hear(self) -> Any:
        """The next message; None if none comes for a moment; `Failed`, whoever says it, if the run is to end."""
        self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
        letter = self._endpoint.listen(ANYONE, Tag.TO_ROOT, min(self._watch.patience, LOOK_SECONDS))
        if letter is None:
            return self._watch.look()
        self._stopwatch.switch(Activity.RECORDING)
        source, data = letter
        message = unpack(data)
        if isinstance(message, Failed):
            return message
        self._watch.moved(source, message)
        return self._watch.look() or message
