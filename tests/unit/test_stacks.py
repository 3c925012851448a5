"""Stacks are parsed from the output of faulthandler, and shortened to the frames that matter."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.diagnostics.stacks import (
    StackFrame,
    killed_report,
    read_dump,
    running_stack,
    shortened,
    stack_lines,
    stack_of,
    waits,
)
from arena.run.watchdog_process import read_lines

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


def test_a_role_waits_in_the_scheduler() -> None:
    assert waits((START, STAGE, PLAY, PLAYER, PROXY, HOST)) and not waits((START, STAGE, PLAY, GAME))


def test_lines_show_the_source_where_there_is_one() -> None:
    here = StackFrame(__file__, 1, "module")
    assert stack_lines((here, GAME)) == [
        f'  File "{__file__}", line 1, in module',
        f"    {Path(__file__).read_text().splitlines()[0]}",
        '  File "/home/user/game.py", line 7, in step',
    ]


def test_the_role_that_has_the_turn_is_the_one_that_does_not_wait() -> None:
    assert running_stack({1: (PLAY, HOST), 2: (PLAY, GAME), 3: (START,)}) == (2, (PLAY, GAME))
    assert running_stack({1: (PLAY, HOST)}) is None
    assert running_stack({1: (GAME,), 2: (GAME,)}) is None, "it cannot be said"


DUMP = """Timeout (0:00:05)!
Thread 0x00000000000000aa (most recent call first):
  File "/x/arena/transport/scheduler.py", line 240 in sleep
  File "/x/arena/roles/root/root.py", line 90 in record

Thread 0x00000000000000bb (most recent call first):
  File "/home/user/game.py", line 7 in step
  File "/x/arena/roles/perform.py", line 60 in _act
"""


def test_hang_report_names_the_hanging_and_waiting_roles() -> None:
    said = killed_report("nothing moves", DUMP, {0xAA: "root", 0xBB: "environment"})
    assert said.splitlines() == [
        "nothing moves",
        "environment has not come back from one call",
        '  File "/home/user/game.py", line 7, in step',
        "root waits for a message, or for its turn",
    ]
    assert '  File "/home/user/game.py", line 7, in step' in killed_report("too early for names", DUMP, {})


def test_json_lines_are_separated_from_stacks() -> None:
    assert read_lines('{"heading": "a"}\n{"12": "root"}\n' + DUMP) == ({"heading": "a", "12": "root"}, DUMP)
    assert read_lines('{"heading": "a"}\n') == ({"heading": "a"}, "")
