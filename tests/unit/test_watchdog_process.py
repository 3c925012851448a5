"""The external watcher counts only time in which the watched process could run, and ends with it."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
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
from arena.run.watchdog_process import HeartbeatTimer
from arena.transport import ANY_SOURCE, Tag
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from clock import Clock
from run_cli import PATIENCE, wait_for

ROOT = str(Path(__file__).parents[2])


def test_only_time_in_which_the_process_could_run_is_silence() -> None:
    silence = HeartbeatTimer(100.0, look=1.0)
    assert [silence.look(now, stopped=False) for now in (101.0, 102.0, 102.5)] == [1.0, 2.0, 2.5]
    silence.seconds = 0.0  # it has moved
    assert silence.look(103.5, stopped=False) == 1.0
    assert [silence.look(now, stopped=True) for now in (104.0, 105.0, 900.0)] == [1.0] * 3
    assert silence.look(901.0, stopped=False) == 1.0, "it may have gone on only just now"
    assert silence.look(902.0, stopped=False) == 2.0
    assert silence.look(2000.0, stopped=False) == 4.0, "of time that was not watched two looks count at most"


WATCHED = """
import os, re, signal, subprocess, sys, time
signal.signal(signal.SIGHUP, hangup)
from arena.run.watchdog import ExitSignal
exit_signal = ExitSignal()
program = "from arena.run.watchdog_process import main; main(%d, %d, 2.0, None)" % (os.getpid(), exit_signal.number)
judge = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, start_new_session=True)
judge.stdin.write(b'{"heading": "it hangs", "ending": "that is all"}\\n')
judge.stdin.flush()
exit_signal.arm(judge.stdin.fileno())
print(judge.pid, flush=True)
def in_a_game():
    re.match(r"(a+)+$", "a" * 40 + "b")
"""


def watched(program: str, hangup: str = "SIG_DFL") -> tuple[subprocess.Popen[str], int]:
    """A watched process, and the pid of its watcher; with a handler of SIGHUP, as `nohup` sets."""
    command = [sys.executable, "-c", WATCHED.replace("hangup", f"signal.{hangup}") + program]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, int(child.stdout.readline())


@pytest.mark.slow
@pytest.mark.parametrize("hangup", ["SIG_IGN", pytest.param("SIG_DFL", marks=pytest.mark.long)])
def test_process_that_holds_the_gil_exits_with_1_and_a_stack(hangup: str) -> None:
    child, _ = watched("in_a_game()", hangup)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 1
    assert err.startswith("it hangs\n") and err.endswith("\nthat is all\n")
    assert "in in_a_game" in err


@pytest.mark.slow
@pytest.mark.parametrize("way", ["os.kill(os.getpid(), 9)", pytest.param("os._exit(3)", marks=pytest.mark.long)])
def test_ends_silently_with_its_process_though_a_child_keeps_the_pipe_open(way: str) -> None:
    child, judge = watched(f"subprocess.Popen(['sleep', '5'], pass_fds=[judge.stdin.fileno()])\n{way}")
    _, err = child.communicate()
    assert child.returncode in (3, -9)
    assert err == ""
    wait_for(lambda: not Path(f"/proc/{judge}").exists())


@pytest.mark.slow
def test_signal_handler_is_restored() -> None:
    child, _ = watched("exit_signal.disarm(); judge.kill(); os.kill(os.getpid(), exit_signal.number)")
    child.communicate()
    assert child.returncode == -(signal.SIGRTMAX - 6)


# The sentry ends the root's process if a role in it hangs, and not otherwise


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


def test_long_call_is_reported_with_its_stack_and_waits(clock: Clock) -> None:
    run = run_of()

    def body(host: RoleScheduler) -> None:
        watching = RootWatchdog(host, run, clock=clock)
        found = []
        for _ in range(6):
            found.append(watching.check())
            clock.now += 2.0
        assert found[:5] == [None] * 5
        failure = found[5]
        assert failure is not None and failure.exit_code == 1
        assert failure.who == (
            "nothing has moved for 8 s: environment of match 0 ('game') (rank 0) has not come back from a call"
        )
        first, *lines = failure.message.splitlines()
        assert first == "environment of match 0 ('game') (rank 0) has not come back from one call for 10 s"
        assert any(f'File "{__file__}"' in line and "in body" in line for line in lines)
        assert sum("waits for the answer of the environment of match 0" in line for line in lines) == 2

    in_game(run, body)


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
