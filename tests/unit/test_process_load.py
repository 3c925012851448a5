"""Whether a process gets to run, as the system reports it; unknown for one that has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from arena.diagnostics.process_load import delays, starved_seconds, stopped


def test_starved_seconds_is_the_maximum_over_threads() -> None:
    assert starved_seconds({1: 5.0, 2: 1.0}, {1: 5.5, 2: 3.0, 3: 0.25}) == 2.0
    assert starved_seconds({}, {}) == 0.0
    assert all(seconds >= 0.0 for seconds in delays(os.getpid()).values())


def test_process_is_stopped_until_continued() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert stopped(child.pid)
        child.send_signal(signal.SIGCONT)
        os.waitpid(child.pid, os.WCONTINUED)
        assert not stopped(child.pid)
        child.kill()


def test_a_process_that_has_ended_is_unknown() -> None:
    assert delays(2**30) == {}
    assert not stopped(2**30)
