"""Simulators for tests of links, each a program of its own: `python link_programs.py KIND --memory-path PATH`."""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
import uuid
from pathlib import Path

import numpy as np

from arena.external.shared_memory import GroupSpec, PeerClosed, Rows, Simulator
from arena.external.shared_memory.messages import STATISTICS

WALKER = GroupSpec("walker", 3, ((3,), (2, 2)), 2)
CHOOSER = GroupSpec("chooser", 2, ((2,), (1,)), None, (3, 2))
ECHO = uuid.UUID("00000000-0000-0000-0000-00000000ec00")


def command(kind: str, *more: str) -> list[str]:
    """The command that starts a simulator of this kind."""
    return [sys.executable, __file__, kind, *more]


def environment() -> dict[str, str]:
    """The environment variables with which it finds the arena."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path}


def walkers(step: int, n: int = 3) -> Rows:
    """Rows of the group `walker`; no agent is ever done."""
    first = np.full((n, 3), step, np.float32)
    second = np.zeros((n, 2, 2), np.float32)
    flags = np.zeros(n, np.bool_)
    return Rows(np.arange(n, dtype=np.int32), (first, second), np.full(n, step, np.float32), flags, flags)


def choosers(step: int) -> Rows:
    """Rows of the group `chooser`, whose first and last choices are forbidden."""
    masks = np.tile([True, False, False, False, True], (2, 1))
    observations = (np.full((2, 2), step, np.float32), np.zeros((2, 1), np.float32))
    flags = np.zeros(2, np.bool_)
    return Rows(np.array([7, 9], np.int32), observations, np.ones(2, np.float32), flags, flags, masks)


def main(kind: str, *more: str) -> None:
    print("a line of output", flush=True)
    if kind == "silent":
        time.sleep(600)
    if kind == "late":
        time.sleep(float(more[0]))
    if kind == "ends at once":
        sys.exit(7)
    with Simulator(profile="release-0.2" if kind == "release-0.2" else "published") as simulator:
        for spec in (WALKER, CHOOSER):
            simulator.add(spec)
        simulator.begin()
        step = 0
        while True:
            if step == 5 and kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 5 and kind == "hangs":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
            if step == 5 and kind == "closes":
                return
            if step == 5 and kind == "cuts":
                os.truncate(simulator._file.path, int(more[0]))
                simulator._file.write(8, b"\0") if int(more[0]) > 8 else None
                time.sleep(600)
            for guid, data in simulator.received():
                simulator.send(guid, data[::-1])
            if kind == "reports":
                simulator.send(STATISTICS, struct.pack("<i5sfi", 5, b"speed", 2.0, 0))
            rows = {"walker": walkers(step)}
            if step % 3 == 0:
                rows["chooser"] = choosers(step)
            if step == 5 and kind == "nan":
                rows["walker"].rewards[1] = np.nan
            try:
                actions = simulator.ask(rows)
            except PeerClosed:
                return
            step = 0 if actions is None else step + 1


if __name__ == "__main__":
    options = [text for text in sys.argv[1:] if text != "--memory-path"]
    main(options[0], *options[1:-1])
