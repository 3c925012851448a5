"""Reading the stacks of another process's roles, also while it holds the GIL; an empty result once it has ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

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
