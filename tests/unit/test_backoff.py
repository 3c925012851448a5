"""`wait_until` tests often at first, then with pauses that grow to a limit; no clock is read here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from arena.transport import backoff
from arena.transport.backoff import wait_until


def true_after(tests: int) -> Callable[[], bool]:
    """A condition that is false this many times."""
    remaining = iter([False] * tests)
    return lambda: next(remaining, True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The requested pauses; none of them is made."""
    asked: list[float] = []
    monkeypatch.setattr(backoff, "time", SimpleNamespace(sleep=asked.append))  # other threads sleep as ever
    return asked


@pytest.mark.parametrize("tests", [0, 29])
def test_wait_until_does_not_sleep_in_a_short_wait(tests: int, pauses: list[float]) -> None:
    asked: list[bool] = []
    done = true_after(tests)
    wait_until(lambda: asked.append(found := done()) or found)
    assert (asked, pauses) == ([False] * tests + [True], [])


def test_wait_until_pauses_longer_and_longer_up_to_the_limit(pauses: list[float]) -> None:
    wait_until(true_after(100), longest_pause=2e-3)
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < 1e-4
    assert pauses[-1] == 2e-3
    assert pauses.count(2e-3) > 1


def test_wait_until_raises_errors_of_the_condition(pauses: list[float]) -> None:
    def fails() -> bool:
        raise OSError("the other end has ended")

    with pytest.raises(OSError, match="has ended"):
        wait_until(fails)
