"""A look into another process: its roles' stacks, even while it keeps Python's lock; nothing of one that has gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from arena.comm.peeking import Process, delays, note_role, peek, starved_seconds, this_process

LOCKED = """
import os, re, sys
from arena.comm.peeking import note_role, this_process
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
    assert delays(2**30) == {}


def test_starving_counts_from_the_first_look_on_and_is_that_of_the_thread_that_starved_most() -> None:
    assert starved_seconds({1: 5.0, 2: 1.0}, {1: 5.5, 2: 3.0, 3: 0.25}) == 2.0
    assert starved_seconds({}, {}) == 0.0
    assert all(seconds >= 0.0 for seconds in delays(os.getpid()).values())
