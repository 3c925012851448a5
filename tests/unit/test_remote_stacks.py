"""Reading the stacks of another process's roles, also while it holds the GIL; an empty result once it has ended."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
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


def test_peek_reads_the_stack_of_a_process_that_holds_the_gil() -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", LOCKED]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        process = Process("here", child.pid, int(child.stdout.readline()))
        while not (seen := peek(process)) or seen[7][-1].function != "match":
            assert child.poll() is None
        child.kill()
    assert [frame.function for frame in seen[7]] == ["<module>", "in_a_game", "match"]
    assert peek(process) == {}, "the process has ended"


DEEP = """
import threading
def deep(calls):
    deep(calls - 1) if calls else threading.Event().wait()
for _ in range(60):
    threading.Thread(target=deep, args=(80,), daemon=True).start()
"""  # so that writing its stacks takes some time


def continue_after_looks(patch: pytest.MonkeyPatch, pid: int, looks: int = 20) -> None:
    """Continues a stopped process after this number of checks by `peek`, independent of time."""
    remaining, sleep = iter(range(looks)), time.sleep

    def look_again(seconds: float) -> None:
        sleep(seconds)
        if next(remaining, None) == looks - 1:
            os.kill(pid, signal.SIGCONT)

    patch.setattr(remote_stacks.time, "sleep", look_again)


@pytest.mark.slow
def test_peek_waits_for_a_process_that_is_stopped_while_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    root, kill = str(Path(__file__).parents[2]), os.kill

    def stop_while_writing(pid: int, number: int) -> None:
        """Stops the process as soon as it has begun to write."""
        file = Path(f"/proc/{pid}/fd/{process.descriptor}")
        before = file.stat().st_size
        kill(pid, number)
        while file.stat().st_size == before:
            pass
        kill(pid, signal.SIGSTOP)
        patch.setattr(os, "kill", kill)
        continue_after_looks(patch, pid)

    monkeypatch.setattr(remote_stacks, "_ANSWER_SECONDS", math.inf)
    with subprocess.Popen([sys.executable, "-c", DEEP + LOCKED], cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        process = Process("here", child.pid, int(child.stdout.readline()))
        while not (seen := peek(process)) or seen[7][-1].function != "match":
            assert child.poll() is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", stop_while_writing)
            seen_later = peek(process)
        child.kill()
    assert seen_later == seen


def test_peek_gives_a_threads_stack_to_its_newest_role() -> None:
    process, begun, free = this_process("here"), threading.Event(), threading.Event()

    def play_role() -> None:
        note_role(3)
        begun.set()
        free.wait()

    note_role(0)
    note_role(1)
    thread = threading.Thread(target=play_role)
    thread.start()
    begun.wait()
    seen = peek(process)
    free.set()
    thread.join()
    assert any(frame.function == "play_role" for frame in seen[3])
    assert any(frame.function.startswith("test_peek_gives") for frame in seen[1])
