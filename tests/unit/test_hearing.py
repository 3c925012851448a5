"""What the root hears: messages, or that somebody hangs; and what each of them tells the watch."""

from __future__ import annotations

from typing import Any

import pytest

from arena.diagnostics.profile import Stopwatch
from arena.plan.plan import Role, RoleKind
from arena.roles.protocol import Failed, Ready
from arena.roles.root.hearing import LOOK_SECONDS, Hearing
from arena.transport.messages import pack

READY = Ready(Role(RoleKind.ENVIRONMENT, 0))
BROKEN = Failed("environment of match 0", "it broke", exit_code=1)
HANGS = Failed("worker", "not come back from a call", exit_code=1)


class Letters:
    """An endpoint that has heard one message, or none."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.waited: list[float] = []

    def listen(self, source: int, tag: Any, seconds: float) -> tuple[int, bytes] | None:
        self.waited.append(seconds)
        return None if self.message is None else (7, pack(self.message))


class Watching:
    """A watch that has something to say, or nothing."""

    def __init__(self, failure: Failed | None, patience: float) -> None:
        self.failure, self.patience = failure, patience
        self.seen: list[Any] = []

    def moved(self, source: int, message: Any) -> None:
        self.seen.append((source, message))

    def look(self) -> Failed | None:
        return self.failure


@pytest.mark.parametrize(
    ("message", "failure", "heard", "seen"),
    [
        (READY, None, READY, [(7, READY)]),
        (None, None, None, []),
        (BROKEN, None, BROKEN, []),
        (None, HANGS, HANGS, []),
        (READY, HANGS, HANGS, [(7, READY)]),
        (BROKEN, HANGS, BROKEN, []),
    ],
    ids=["said", "silence", "failed", "hangs", "said while another hangs", "failed while another hangs"],
)
def test_a_message_is_heard_and_a_failure_first(message: Any, failure: Any, heard: Any, seen: Any) -> None:
    endpoint: Any = Letters(message)
    watch: Any = Watching(failure, 9.0)
    assert Hearing(endpoint, watch, Stopwatch()).hear() == heard
    assert watch.seen == seen


@pytest.mark.parametrize(("patience", "waited"), [(0.0, 0.0), (0.1, 0.1), (9.0, LOOK_SECONDS)])
def test_nobody_waits_longer_than_until_the_next_look(patience: float, waited: float) -> None:
    endpoint: Any = Letters(None)
    watch: Any = Watching(None, patience)
    Hearing(endpoint, watch, Stopwatch()).hear()
    assert endpoint.waited == [waited]
