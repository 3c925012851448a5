"""Waiting tests often at first, then with pauses that grow to a limit; nobody looks at a clock here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arena.transport import backoff
from arena.transport.backoff import wait_until


def true_after(tests: int) -> Callable[[], bool]:
    """A condition that is false so many times."""
    remaining = iter([False] * tests)
    return lambda: next(remaining, True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are asked for; none of them is made."""
    asked: list[float] = []
    monkeypatch.setattr(backoff.time, "sleep", asked.append)
    return asked


def test_what_is_true_already_is_asked_once_and_not_waited_for(pauses: list[float]) -> None:
    asked: list[int] = []
    wait_until(lambda: asked.append(1) is None)
    assert (len(asked), pauses) == (1, [])


def test_a_short_wait_never_sleeps(pauses: list[float]) -> None:
    wait_until(true_after(29))
    assert pauses == []


def test_the_pauses_of_a_long_wait_grow_up_to_the_limit(pauses: list[float]) -> None:
    wait_until(true_after(100), longest_pause=2e-3)
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < 1e-4
    assert pauses[-1] == 2e-3
    assert pauses.count(2e-3) > 1


def test_an_error_of_the_condition_ends_the_wait(pauses: list[float]) -> None:
    def fails() -> bool:
        raise OSError("the other end has gone")

    with pytest.raises(OSError, match="has gone"):
        wait_until(fails)
