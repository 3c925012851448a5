"""The sentry ends the root's process if a role in it hangs, and not otherwise."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.roles.run import Run
from arena.run import watchdog
from arena.run.watchdog import RootWatchdog
from arena.transport import ANY_SOURCE, Tag
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from clock import Clock
from run_cli import PATIENCE

CONFIG = {
    "name": "test",
    "ticks": 5,
    "watchdog_s": 8.0,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "blue"]}],
}


def run_of(**changes: Any) -> Run:
    return Run(make_plan(parse_config({**CONFIG, **changes}, source="test"), ranks=1), Path("nowhere"))


def in_game(run: Run, body: Callable[[RoleScheduler], None]) -> None:
    """Calls `body` in the environment's turn, while all other roles wait."""
    host = RoleScheduler(run.names(run.roles))

    def environment(endpoint: RoleEndpoint) -> None:
        endpoint.receive(2, Tag.GROUP)
        body(host)
        for address in (0, 2, 3):
            endpoint.send(address, Tag.TO_ROOT if address == 0 else Tag.REPLY, b"")

    def worker(endpoint: RoleEndpoint) -> None:
        endpoint.send(1, Tag.GROUP, b"")
        endpoint.receive(1, Tag.REPLY)

    def root(endpoint: RoleEndpoint) -> None:
        endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)

    host.run({0: root, 1: environment, 2: worker, 3: worker})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(watchdog, "delays", lambda pid: {})
    return Clock()


def test_time_while_stopped_or_starved_is_not_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of()

    def body(host: RoleScheduler) -> None:
        watching = RootWatchdog(host, run, clock=clock)
        watching.check()
        clock.now += 1000.0
        assert watching.check() is None, "time in which the process was stopped does not count"
        monkeypatch.setattr(watchdog, "delays", lambda pid: {pid: 100.0})
        for _ in range(8):
            clock.now += 2.0
            assert watching.check() is None

    in_game(run, body)


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge, who ends the process that runs the tests, leaves the thread all the time that it may need."""
    monkeypatch.setattr(watchdog, "_SLACK", 200.0)


@pytest.mark.usefixtures("_patient")
def test_hang_is_reported_and_exits_with_1() -> None:
    run = run_of(watchdog_s=0.2)
    console, ended, free = io.StringIO(), [], threading.Event()

    def end(status: int) -> None:
        ended.append(status)
        free.set()

    def body(host: RoleScheduler) -> None:
        with RootWatchdog(host, run, console=console, end=end):
            assert free.wait(PATIENCE)

    in_game(run, body)
    assert ended[0] == 1
    assert "environment of match 0 ('game') (rank 0) has not come back from a call" in console.getvalue()
    assert "assert free.wait(PATIENCE)" in console.getvalue()


@pytest.mark.usefixtures("_patient")
def test_a_run_that_ends_well_leaves_no_thread_and_no_process() -> None:
    run = run_of()
    host = RoleScheduler(run.names(run.roles))
    watching = RootWatchdog(host, run)
    with watching:
        pass
    assert watching._process is not None and watching._process.poll() is not None
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())
