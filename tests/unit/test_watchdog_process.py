"""The external watcher counts only time in which the watched process could run, and ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.run.watchdog_process import HeartbeatTimer
from run_cli import wait_for

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
program = "from arena.run.watchdog_process import main; main(%d, %d, 2.0)" % (os.getpid(), exit_signal.number)
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
