"""Worker algorithms for matches with failing games, and algorithms that fail themselves."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from in_process import NOTES
from workers import Counts, Player


class Rows(Player):
    """Records of every tick: rewards, terminated, truncated, and the last observations of ended rows."""

    face = "vector"

    def run(self) -> None:
        env = self.env
        env.reset()
        while True:
            _, rewards, terminated, truncated, infos = env.step(np.ones(env.num_envs, np.int64))
            ends = terminated | truncated
            final = [float(seen[0]) for seen in infos["final_obs"][ends]] if ends.any() else []
            NOTES.append((rewards.tolist(), terminated.tolist(), truncated.tolist(), final))


class ResetsWithSeed(Player):
    """Requests an episode with its own seed, then plays."""

    def __init__(self, env: Any, group: Any, *, ticks: int, seed: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.seed = seed

    def run(self) -> None:
        self.env.reset()
        self.env.step(0)
        self.env.reset(seed=self.seed)
        while True:
            _, _, terminated, truncated, _ = self.env.step(0)
            if terminated or truncated:
                self.env.reset()


class UnprintableError(Exception):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class FailsAt(Player):
    """Raises in one method of an algorithm: a subclass per method, as some are class methods."""

    face = "vector"
    where = ""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.states = 0
        self.fail("init")

    @classmethod
    def fail(cls, where: str) -> None:
        if cls.where == where:
            raise ZeroDivisionError(f"fails at {where}")

    @classmethod
    def sizes(cls, options: Any, *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        cls.fail("sizes")
        return {}

    def run(self) -> None:
        self.fail("run")
        self.env.reset()
        for step in range(12 if self.where == "leave" else self.ticks):
            self.env.step(np.zeros(self.env.num_envs, np.int64))
            if step == 7:
                self.fail("step")
                self.group.mean(1.0)
                self.fail("update")
                self.group.log(loss=1.0)
        self.fail("leave")

    def state_dict(self) -> dict[str, Any]:
        self.states += 1
        self.fail("first checkpoint" if self.states == 1 else "checkpoint")
        return {"w": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.fail("load")

    def worker_state_dict(self) -> dict[str, Any]:
        self.fail("own checkpoint")
        return {"w": 1}

    def load_worker_state_dict(self, state: dict[str, Any]) -> None:
        self.fail("own load")

    def actor(self) -> Any:
        self.fail("actor")

        def act(observations: Any, infos: Any) -> Any:
            self.fail("act")
            return np.zeros(self.env.num_envs, np.int64)

        return act


WORKER_PLACES = (
    "sizes", "init", "run", "step", "update", "leave", "first checkpoint", "checkpoint", "own checkpoint", "load",
    "own load",
)  # fmt: skip
ACTOR_PLACES = ("actor", "act")


def name_of(where: str) -> str:
    """The class of this module that fails in this method."""
    return "FailsAt" + where.title().replace(" ", "")


for _where in (*WORKER_PLACES, *ACTOR_PLACES, ""):
    globals()[name_of(_where)] = type(name_of(_where), (FailsAt,), {"where": _where, "__module__": __name__})


class Ends(Player):
    """Ends its process or thread in mid-run: `exit`, `unprintable`, `_exit`, `_exit 0`, `segv`."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int, how: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.how = how

    def run(self) -> None:
        self.env.reset()
        for _ in range(5):
            self.env.step(np.zeros(self.env.num_envs, np.int64))
        self.end()

    def end(self) -> None:
        if self.how == "exit":
            sys.exit(5)
        if self.how == "unprintable":
            raise UnprintableError
        if self.how.startswith("_exit"):
            os._exit(0 if self.how.endswith("0") else 7)
        os.kill(os.getpid(), signal.SIGSEGV)


class GrowingState(Counts):
    """Counts; its state grows by `by` numbers per tick."""

    def __init__(self, env: Any, group: Any, *, ticks: int, by: int = 5) -> None:
        super().__init__(env, group, ticks=ticks)
        self.by = by

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "weight": np.zeros(self.by * self.count)}


class Deletes(Counts):
    """Counts; deletes the run folder when its state is requested after tick 200."""

    def __init__(self, env: Any, group: Any, *, ticks: int, folder: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.folder = folder

    def state_dict(self) -> dict[str, Any]:
        if self.count > 200:
            shutil.rmtree(self.folder, ignore_errors=True)
        return super().state_dict()


class SmallDisk:
    """A callback: no file of its process, the root's, may have more than 40,000 bytes."""

    def on_start(self, run: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class GrowingStateOnSmallDisk(GrowingState):
    """As `GrowingState`, in a process with such a limit."""

    def run(self) -> None:
        SmallDisk().on_start(None)
        super().run()


class KillsItself(Counts):
    """Counts; its process is killed after some ticks of a leg."""

    def run(self) -> None:
        self.env.reset()
        for _ in range(20):
            self.env.step(np.zeros_like(self.env.action_space.sample()))
        os.kill(os.getpid(), signal.SIGKILL)


class FailsWhileFileExists(Counts):
    """Counts; raises at its start as long as a file is there."""

    def __init__(self, env: Any, group: Any, *, ticks: int, path: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.path = Path(path)

    def run(self) -> None:
        if self.path.exists():
            raise RuntimeError("the file is still there")
        super().run()
