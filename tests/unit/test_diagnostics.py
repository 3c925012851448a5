"""Stacks, of another process too, the stopwatch of activities, and whether a process gets to run."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.diagnostics.process_load import delays, starved_seconds, stopped
from arena.diagnostics.profile import Activity, Stopwatch
from arena.diagnostics.remote_stacks import Process, as_role, peek, this_process
from arena.diagnostics.stacks import (
    StackFrame,
    killed_report,
    read_dump,
    shortened,
    stack_of,
)
from clock import Clock

HOST = StackFrame("/x/arena/transport/scheduler.py", 240, "sleep")
STAGE = StackFrame("/x/arena/roles/perform.py", 60, "_act")
PLAY = StackFrame("/x/arena/roles/environment/environment.py", 50, "play")
PROXY = StackFrame("/x/arena/seat/client.py", 241, "_listen")
GAME = StackFrame("/home/user/game.py", 7, "step")
PLAYER = StackFrame("/x/policies/ppo.py", 120, "run")
START = StackFrame("/lib/threading.py", 1000, "_bootstrap")


def in_thread(body: Callable[[], None]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def test_faulthandler_output_is_parsed_exactly() -> None:
    own: list[tuple[StackFrame, ...]] = []
    with tempfile.TemporaryFile() as file:

        def body() -> None:
            own.append(stack_of(sys._getframe()))
            faulthandler.dump_traceback(file)

        in_thread(body)
        file.seek(0)
        stacks = read_dump(file.read().decode())
    (told,) = own
    assert len(stacks) >= 2
    found = [stack for stack in stacks.values() if stack[-1].function == "body"]
    assert [[frame[::2] for frame in stack] for stack in found] == [[frame[::2] for frame in told]]


@pytest.mark.parametrize(
    ("stack", "shown"),
    [
        ((START, STAGE, PLAY, GAME, GAME), (GAME, GAME)),
        ((START, STAGE, PLAY, PLAYER, PROXY, HOST), (PLAYER,)),
        ((START, STAGE, PLAY, HOST), (PLAY,)),
        ((START, STAGE, PLAY, PROXY), (PLAY, PROXY)),
        ((GAME, STAGE, HOST), (STAGE,)),  # it waits for the next leg
        ((STAGE, *[GAME] * 100), (GAME,) * 8),
        ((START,), (START,)),
        ((), ()),
    ],
)
def test_shortened_shows_the_frames_that_matter(stack: Any, shown: Any) -> None:
    assert shortened(stack) == shown


DUMP = """Timeout (0:00:05)!
Thread 0x00000000000000aa (most recent call first):
  File "/home/user/learner.py", line 9 in fit
  File "/x/arena/diagnostics/remote_stacks.py", line 60 in role 5

Thread 0x00000000000000bb (most recent call first):
  File "/x/arena/transport/dedicated_thread.py", line 40 in run
  File "/x/arena/roles/perform.py", line 60 in run_role
  File "/x/arena/diagnostics/remote_stacks.py", line 60 in role 5
"""


def test_hang_report_names_the_hanging_and_waiting_roles() -> None:
    said = killed_report("nothing moves", DUMP, {0: "root", 5: "worker"})
    assert said.splitlines() == [
        "nothing moves",
        "worker has not come back from one call",
        '  File "/home/user/learner.py", line 9, in fit',
        "root waits for a message, or for its turn",
    ]
    early = DUMP.replace("role 5", "before any role")
    assert '  File "/home/user/learner.py", line 9, in fit' in killed_report("too early for roles", early, {})


# Reading the stacks of another process's roles, also while it holds the GIL; an empty result once it has ended


LOCKED = """
import os, re, sys
from arena.diagnostics.remote_stacks import as_role, this_process
def in_a_game():
    print(this_process("here").descriptor, flush=True)
    re.match(r"(a+)+$", "a" * 40 + "b")
as_role(7, in_a_game)()
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
    assert [frame.function for frame in seen[7]] == ["<module>", "role 7", "in_a_game", "match"]
    assert peek(process) == {}, "the process has ended"


def test_peek_reads_the_running_roles_of_all_threads() -> None:
    process, begun, free = this_process("here"), threading.Event(), threading.Event()

    def play_role() -> None:
        begun.set()
        free.wait()

    thread = threading.Thread(target=as_role(3, play_role))
    thread.start()
    begun.wait()
    seen = as_role(-1, peek)(process)
    free.set()
    thread.join()
    assert seen.keys() == {3, -1}
    assert any(frame.function == "play_role" for frame in seen[3])
    assert any(frame.function == "peek" for frame in seen[-1])


# The stopwatch attributes every second to one activity


def watch() -> tuple[Stopwatch, Clock]:
    clock = Clock()
    return Stopwatch(clock), clock


def spend(stopwatch: Stopwatch, clock: Clock, *activities: tuple[Activity, float]) -> None:
    for activity, seconds in activities:
        stopwatch.switch(activity)
        clock.now += seconds


def test_the_shares_add_up_to_the_wall_time() -> None:
    stopwatch, clock = watch()
    clock.now += 2
    spend(stopwatch, clock, (Activity.COMMUNICATION, 1), (Activity.ENVIRONMENT, 5), (Activity.COMMUNICATION, 0.5))
    profile = stopwatch.profile()
    assert profile is not None
    assert profile.seconds == {"starting": 2, "communication": 1.5, "environment": 5}
    assert profile.wall == sum(profile.seconds.values()) == 8.5


def test_time_between_ticks_with_an_update_is_learning() -> None:
    stopwatch, clock = watch()
    stopwatch.begin_inference()
    clock.now += 1  # inference
    spend(stopwatch, clock, (Activity.WAITING_FOR_MATCH, 10))
    stopwatch.begin_inference()
    clock.now += 3  # learning
    spend(stopwatch, clock, (Activity.WAITING_FOR_GROUP, 20), (Activity.INFERENCE, 4))  # and back, still learning
    stopwatch.count_update()
    clock.now += 5  # such as a checkpoint: still learning
    spend(stopwatch, clock, (Activity.COMMUNICATION, 0.25))
    profile = stopwatch.profile()
    assert profile is not None
    assert profile.seconds == {
        "communication": 0.25,
        "waiting for the match": 10,
        "waiting for the group": 20,
        "inference": 1,
        "learning": 12,
    }


# Whether a process gets to run, as the system reports it; unknown for one that has ended


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
