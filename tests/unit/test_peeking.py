"""A look into another process: its roles' stacks, even while it keeps Python's lock; nothing of one that has gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from arena.diagnostics import remote_stacks
from arena.diagnostics.remote_stacks import Process, note_role, peek, this_process

LOCKED = """
import os, re, sys
from arena.diagnostics.remote_stacks import note_role, this_process
def in_a_game():
    print(this_process("here").descriptor, flush=True)
    note_role(7)
    re.match(r"(a+)+$", "a" * 40 + "b")
in_a_game()
"""


def test_a_process_that_keeps_python_s_lock_shows_its_stack() -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", LOCKED]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        process = Process("here", child.pid, int(child.stdout.readline()))
        while not (seen := peek(process)) or seen[7][-1].function != "match":
            assert child.poll() is None
        child.kill()
    assert [frame.function for frame in seen[7]] == ["<module>", "in_a_game", "match"]
    assert peek(process) == {}, "it has gone"


DEEP = """
import threading
def deep(calls):
    deep(calls - 1) if calls else threading.Event().wait()
for _ in range(60):
    threading.Thread(target=deep, args=(80,), daemon=True).start()
"""  # so that its stacks take some time to be written


def test_a_process_that_is_interrupted_while_it_writes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    root, kill = str(Path(__file__).parents[2]), os.kill

    def interrupted(pid: int, number: int) -> None:
        """The process is stopped for a while as soon as it has begun to write."""
        file = Path(f"/proc/{pid}/fd/{process.descriptor}")
        before = file.stat().st_size
        kill(pid, number)
        while file.stat().st_size == before:
            pass
        kill(pid, signal.SIGSTOP)
        goes_on.start()

    monkeypatch.setattr(remote_stacks, "_ANSWER_SECONDS", 60.0)
    with subprocess.Popen([sys.executable, "-c", DEEP + LOCKED], cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        process = Process("here", child.pid, int(child.stdout.readline()))
        goes_on = threading.Timer(0.3, kill, (child.pid, signal.SIGCONT))
        while not (seen := peek(process)) or seen[7][-1].function != "match":
            assert child.poll() is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", interrupted)
            seen_later = peek(process)
        goes_on.join()
        child.kill()
    assert seen_later == seen


NOTED = """
import os, sys
from arena.diagnostics.remote_stacks import note_role, this_process
descriptor = this_process("here").descriptor
note_role(7)
if os.fork() == 0:  # shares the place in the file, so that it writes where its parent would
    sys.stdin.readline()
    note_role(0)
    os._exit(0)
print(descriptor, flush=True)
os.wait()
sys.stdin.readline()
"""


def test_a_note_before_the_stacks_are_written_is_not_taken_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    root, kill, pipe = str(Path(__file__).parents[2]), os.kill, subprocess.PIPE

    def delayed(pid: int, number: int) -> None:
        """The process is stopped before it takes the signal, and meanwhile a note of a role is written."""
        kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        kill(pid, number)
        file = Path(f"/proc/{pid}/fd/{process.descriptor}")
        before = file.stat().st_size
        child.stdin.write("\n")
        child.stdin.flush()
        while file.stat().st_size == before:
            pass
        goes_on.start()

    with subprocess.Popen([sys.executable, "-c", NOTED], cwd=root, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        process = Process("here", child.pid, int(child.stdout.readline()))
        goes_on = threading.Timer(0.3, kill, (child.pid, signal.SIGCONT))
        with monkeypatch.context() as patch:
            patch.setattr(remote_stacks, "_ANSWER_SECONDS", 60.0)
            patch.setattr(os, "kill", delayed)
            seen = peek(process)
        goes_on.join()
        child.kill()
    assert [frame.function for frame in seen[7]] == ["<module>"]


def test_each_thread_s_stack_is_told_under_the_address_of_its_newest_role() -> None:
    process, begun, free = this_process("here"), threading.Event(), threading.Event()

    def in_its_turn() -> None:
        note_role(3)
        begun.set()
        free.wait()

    note_role(0)
    note_role(1)
    thread = threading.Thread(target=in_its_turn)
    thread.start()
    begun.wait()
    seen = peek(process)
    free.set()
    thread.join()
    assert any(frame.function == "in_its_turn" for frame in seen[3])
    assert any(frame.function.startswith("test_each_thread") for frame in seen[1])


def test_what_cannot_be_looked_into_shows_nothing() -> None:
    assert peek(Process("here", os.getpid(), -1)) == {}
