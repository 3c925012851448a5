"""Games, worker algorithms and callbacks that hang or are slow."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import threading
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from workers import Player


def spin() -> None:
    """An endless loop in Python."""
    while True:
        pass


def sleep() -> None:
    """An endless sleep that no alarm interrupts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    while True:
        time.sleep(3600)


def hold_lock() -> None:
    """C code that holds the GIL: a regular expression that tries 2**40 ways."""
    re.match(r"(a+)+$", "a" * 40 + "b")


def burn() -> None:
    """C code that releases the GIL."""
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)


def among_threads() -> None:
    """The same sleep, beside threads with deep stacks."""

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        time.sleep(3600)

    for _ in range(3):
        threading.Thread(target=deep, args=(8,), daemon=True).start()
    sleep()


WAYS = {"spin": spin, "sleep": sleep, "among_threads": among_threads, "hold_lock": hold_lock, "burn": burn}


class Hangs(gymnasium.Env[Any, Any]):
    """Hangs at one of its calls: `make`, `reset` or `step`; the latter after some steps."""

    def __init__(self, way: str = "spin", where: str = "step", after: int = 5) -> None:
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.hang, self.where, self.after = WAYS[way], where, after
        self.steps = 0
        self.at("make")

    def at(self, where: str) -> None:
        if self.where == where:
            self.hang()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > self.after:
            self.at("step")
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Slow(Hangs):
    """Sleeps in some of its steps."""

    def __init__(self, seconds: float = 0.5, often: int = 4) -> None:
        super().__init__(where="never")
        self.seconds, self.often = seconds, often

    def step(self, action: Any) -> Any:
        if self.steps < self.often:
            time.sleep(self.seconds)
        return super().step(action)


class LeavesProcess(Hangs):
    """Starts a process in a folder that keeps this one's output open, and writes a file there if it ends by itself."""

    def __init__(self, folder: str) -> None:
        super().__init__(where="never")
        subprocess.Popen(["sh", "-c", "sleep 1000; touch ended"], cwd=folder)


class HangingPlayer(Player):
    """Plays some steps, then hangs."""

    def __init__(self, env: Any, group: Any, *, ticks: int, way: str = "spin", after: int = 5) -> None:
        super().__init__(env, group, ticks=ticks)
        self.hang, self.after = WAYS[way], after

    def run(self) -> None:
        self.env.reset()
        for _ in range(self.after):
            if any(self.env.step(0)[2:4]):
                self.env.reset()
        self.hang()


class SlowPlayer(Player):
    """The whole group computes for long before some of its steps."""

    def __init__(self, env: Any, group: Any, *, ticks: int, seconds: float = 0.5, often: int = 4) -> None:
        super().__init__(env, group, ticks=ticks)
        self.seconds, self.often = seconds, often

    def run(self) -> None:
        self.env.reset()
        for step in range(self.ticks):
            if step < self.often:
                time.sleep(self.seconds)
                self.group.mean(1.0)
            if any(self.env.step(0)[2:4]):
                self.env.reset()


class HangingCallback:
    """A callback that hangs when the run begins."""

    def __init__(self, *, way: str) -> None:
        self.hang = WAYS[way]

    def on_start(self, run: Any) -> None:
        self.hang()
