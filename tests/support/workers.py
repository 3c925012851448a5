"""Worker algorithms that tests put into seats. They append their findings to `in_process.NOTES`."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

from arena.errors import BudgetReached
from in_process import NOTES


class Player:
    """Keeps its arguments."""

    face: ClassVar[str | tuple[str, ...]] = "gym"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self.env = env
        self.group = group
        self.ticks = ticks


class CheckGymnasium(Player):
    """Gymnasium's own conformance check, its warnings as errors."""

    def run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Features may be any number.
            warnings.filterwarnings("ignore", ".*Box observation space m(in|ax)imum value is -?infinity")
            check_env(self.env, skip_render_check=True)
        NOTES.append("conforms")


class CheckParallel(Player):
    """PettingZoo's own conformance check."""

    face = "parallel"

    def run(self) -> None:
        parallel_api_test(self.env, num_cycles=200)
        NOTES.append("conforms")


class Stepper(Player):
    """Plays a fixed action and records every step."""

    def __init__(self, env: Any, group: Any, *, ticks: int, action: Any = 0, name: str = "") -> None:
        super().__init__(env, group, ticks=ticks)
        self.action = action
        self.name = name

    def run(self) -> None:
        while True:
            observation, info = self.env.reset()
            NOTES.append((self.name, "reset", observation, info))
            over = False
            while not over:
                observation, reward, terminated, truncated, info = self.env.step(self.action)
                NOTES.append((self.name, "step", observation, reward, terminated, truncated, info))
                over = terminated or truncated


class SteppedRows(Player):
    """Plays a fixed action in all rows."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int, action: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.action = action

    def run(self) -> None:
        self.env.reset()
        while True:
            self.env.step(np.full(self.env.num_envs, self.action))


class Uniform(Player):
    """Uniform actions from the proxy's own action space, which the arena has seeded."""

    face = ("vector", "gym")

    def run(self) -> None:
        env = self.env
        env.reset()
        while True:
            step = env.step(env.action_space.sample())
            if env.action_space is not getattr(env, "single_action_space", env.action_space):
                continue
            if not isinstance(env, gymnasium.vector.VectorEnv) and (step[2] or step[3]):
                env.reset()


class MatchesSync(Player):
    """Steps Gymnasium's SyncVectorEnv beside the proxy, with the same seeds and actions, and compares everything."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int, env_id: str, steps: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.steps = steps
        self.reference = gymnasium.vector.SyncVectorEnv(
            [lambda: self.make(env_id) for _ in range(env.num_envs)],
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )

    def make(self, env_id: str) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(env_id)

    def actions(self, step: int) -> tuple[Any, Any]:
        """The same actions for the proxy and for the reference."""
        drawn = self.reference.action_space.sample()
        return drawn, drawn

    def run(self) -> None:
        self.reference.action_space.seed(3)
        same(self.env.reset(seed=5), self.reference.reset(seed=5))
        ends = 0
        for step in range(self.steps):
            own, actions = self.actions(step)
            mine, theirs = self.env.step(own), self.reference.step(actions)
            same(mine, theirs)
            ends += int((theirs[2] | theirs[3]).sum())
            if step == self.steps // 2:
                same(self.env.reset(seed=[9] * self.env.num_envs), self.reference.reset(seed=[9] * self.env.num_envs))
        NOTES.append(ends)
        self.reference.close()


def same(mine: Any, theirs: Any, where: str = "result") -> None:
    """Equality to the bit and the dtype through tuples, dicts and object arrays; the arena's `active` is its own."""
    if isinstance(theirs, dict):
        extra = set(mine) - set(theirs) - {"active", "action_mask", "_action_mask"}
        assert not extra, f"{where} has {extra}"
        for key in theirs:
            same(mine[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs), where
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            same(a, b, f"{where}[{index}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        same(list(mine), list(theirs), where)
    elif isinstance(theirs, np.ndarray):
        if where.startswith("result[4]") and mine.dtype == np.float64 and theirs.dtype == np.int64:
            mine = mine.astype(np.int64)  # Gymnasium truncates floats where the first row has an integer
        assert mine.dtype == theirs.dtype, f"{where}: {mine.dtype}, not {theirs.dtype}"
        np.testing.assert_array_equal(mine, theirs, err_msg=where)
    else:
        assert mine == theirs, f"{where}: {mine}, not {theirs}"


class NotesLastMasks(Player):
    """Plays allowed actions, and records every last observation and its action mask."""

    def run(self) -> None:
        while True:
            _, info = self.env.reset()
            over = False
            while not over:
                observation, _, terminated, truncated, info = self.env.step(int(info["action_mask"].argmax()))
                over = terminated or truncated
            NOTES.append((int(observation[0]), info["action_mask"]))


class NotesLastMasksOfAgents(Player):
    """Does the same with the parallel face."""

    face = "parallel"

    def run(self) -> None:
        while True:
            _, infos = self.env.reset()
            while self.env.agents:
                actions = {agent: int(infos[agent]["action_mask"].argmax()) for agent in self.env.agents}
                observations, *_, infos = self.env.step(actions)
            NOTES.extend((int(seen[0]), infos[agent]["action_mask"]) for agent, seen in observations.items())


class LeavesEarly(Player):
    """Plays some steps, then its `run` returns."""

    def __init__(self, env: Any, group: Any, *, ticks: int, steps: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.steps = steps

    def run(self) -> None:
        self.env.reset()
        for _ in range(self.steps):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()


class ResetsOften(Player):
    """Calls reset in mid-episode every few steps."""

    def run(self) -> None:
        while True:
            self.env.reset()
            for _ in range(3):
                _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                if terminated or truncated:
                    break
            NOTES.append(self.env.ticks)


class IgnoresBudget(Player):
    """Catches BudgetReached several times before it gives up."""

    def run(self) -> None:
        self.env.reset()
        for _ in range(3):
            try:
                while True:
                    _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                    if terminated or truncated:
                        self.env.reset()
            except BudgetReached:
                NOTES.append(self.env.ticks)


class LogsWithoutState(Player):
    """Logs at every tick, and has no state."""

    face = "vector"

    def run(self) -> None:
        self.env.reset()
        while True:
            self.env.step(self.env.action_space.sample())
            self.group.log(played=1.0)


class LeavesTheWriter(LogsWithoutState):
    """Logs at every tick in the writer of its group; all others leave after ten ticks."""

    def run(self) -> None:
        if self.group.is_writer:
            super().run()
        self.env.reset()
        for _ in range(10):
            self.env.step(self.env.action_space.sample())


class Counts(Player):
    """Counts its ticks; has a state, an actor, and a group that adds up.

    Args:
        fails_at: the count at which it raises.
        leave: per group rank the count at which `run` returns; 0: never.
    """

    face = "vector"
    schedule = "ticks"

    def __init__(
        self, env: Any, group: Any, *, ticks: int, every: int = 10, fails_at: int = 0, leave: Sequence[int] = ()
    ) -> None:
        super().__init__(env, group, ticks=ticks)
        self.every, self.fails_at = every, fails_at
        self.leave_at = leave[group.rank] if leave else 0
        self.count = 0

    def run(self) -> None:
        self.env.reset()
        while not self.leave_at or self.count < self.leave_at:
            self.env.step(np.zeros_like(self.env.action_space.sample()))
            self.count += 1
            if self.count == self.fails_at:
                raise ZeroDivisionError("brittle")
            if self.count % self.every == 0:
                mean = self.group.mean(float(self.group.rank))
                self.group.log(count=self.count, mean=mean)
                self.group.save(self.state_dict)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "array": np.arange(3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        NOTES.append(("loaded", self.count))

    def actor(self, *, greedy: bool = False) -> Any:
        return lambda observations, infos: np.zeros_like(self.env.action_space.sample())


class ActorWithoutState(Uniform):
    """Has an actor but no state."""

    def actor(self) -> Any:
        return lambda observations, infos: np.zeros_like(self.env.action_space.sample())


class GymActorWithoutState(ActorWithoutState):
    """The same in the gym face."""

    face = "gym"


class NanActions(Player):
    """Acts with nan on its third step."""

    def run(self) -> None:
        self.env.reset()
        for step in range(1, 4):
            self.env.step(np.full(1, np.nan if step == 3 else 0.5, np.float32))


class KeepsThread(Player):
    """Plays actions from a database of its thread, steps in another thread if asked to, and notes the two threads."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, elsewhere: bool = False) -> None:
        super().__init__(env, group, ticks=ticks)
        self.elsewhere = elsewhere
        self.made_in = threading.get_ident()

    def run(self) -> None:
        if not self.elsewhere:
            self.play()
            return
        stepping = threading.Thread(target=self.play_elsewhere)
        stepping.start()
        stepping.join()

    def play_elsewhere(self) -> None:
        with suppress(BudgetReached):
            self.play()

    def play(self) -> None:
        NOTES.append((self.made_in, threading.get_ident()))
        with closing(sqlite3.connect(":memory:")) as database:  # refuses other threads
            self.env.reset()
            while True:
                (action,) = database.execute("select ? % 3", (self.env.ticks + self.group.rank,)).fetchone()
                self.env.step(np.full(self.env.action_space.shape, action, self.env.action_space.dtype))


class SharesThread(KeepsThread):
    """The same in the thread of all roles."""

    dedicated_thread = False
