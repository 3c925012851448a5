"""Worker algorithms of the vector face for matches that overlap two blocks of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arena.errors import BudgetReached
from in_process import NOTES
from policies.ppo import PPO
from workers import Player


class Rows(Player):
    """Acts with zeros."""

    face = "vector"

    def still(self, env: Any = None) -> Any:
        env = env or self.env
        return np.zeros(env.num_envs, env.single_action_space.dtype)


class ResetsOften(Rows):
    """Resets everything after three steps."""

    def run(self) -> None:
        while True:
            self.env.reset()
            for _ in range(3):
                self.env.step(self.still())
            NOTES.append(self.env.ticks)


class ResetsSome(Rows):
    """Plays two steps and resets one lane, repeatedly; records the observations of all lanes."""

    def run(self) -> None:
        self.env.reset()
        mask = np.arange(self.env.num_envs) == 2
        while True:
            for _ in range(2):
                self.env.step(self.still())
            observations, _ = self.env.reset(options={"reset_mask": mask})
            NOTES.append(observations[:, 0].tolist())


class LeavesEarly(Rows):
    """Plays some steps, then its `run` returns."""

    def __init__(self, env: Any, group: Any, *, ticks: int, steps: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.steps = steps

    def run(self) -> None:
        self.env.reset()
        for _ in range(self.steps):
            self.env.step(self.still())


class LeavesPending(Rows):
    """Plays a tick, then steps so many blocks in an order, and its `run` returns without asking for the results."""

    def __init__(self, env: Any, group: Any, *, ticks: int, order: Sequence[int], pending: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.order, self.pending = order, pending

    def run(self) -> None:
        self.env.reset()
        self.env.step(self.still())
        for index in self.order[: self.pending]:
            block = self.env.blocks[index]
            block.step_async(self.still(block))


class IgnoresBudget(Rows):
    """Catches BudgetReached several times before it gives up."""

    def run(self) -> None:
        self.env.reset()
        for _ in range(3):
            try:
                while True:
                    self.env.step(self.still())
            except BudgetReached:
                NOTES.append(self.env.ticks)


class IgnoresBudgetPerBlock(Rows):
    """Steps both blocks in turns up to the budget, then tries to step the first one, all rows and the second one."""

    def run(self) -> None:
        first, second = self.env.blocks
        self.env.reset()
        for tick in range(self.ticks):
            for block in (first, second):
                if tick > 0:
                    block.step_wait()
                block.step_async(self.still(block))
        first.step_wait()
        self.is_over(first)
        self.is_over(self.env)
        second.step_wait()
        self.is_over(second)
        NOTES.append(self.env.ticks)

    def is_over(self, env: Any) -> None:
        try:
            env.step_async(self.still(env))
        except BudgetReached:
            NOTES.append("over")


class Calls(Rows):
    """Calls what its option lists: `s0` and `w0` are step_async and step_wait of block 0, `step` a step of all."""

    def __init__(self, env: Any, group: Any, *, ticks: int, calls: Sequence[str]) -> None:
        super().__init__(env, group, ticks=ticks)
        self.calls = calls

    def run(self) -> None:
        self.env.reset()
        for call in self.calls:
            self.call(call)
        NOTES.append(self.env.ticks)

    def call(self, call: str) -> None:
        if call == "step":
            self.env.step(self.still())
            return
        block = self.env.blocks[int(call[-1])]
        if call[:-1] == "reset":
            block.reset()
        elif call[0] == "s":
            block.step_async(self.still(block))
        else:
            block.step_wait()


class TooManyActions(Rows):
    """Gives one action too many."""

    def run(self) -> None:
        self.env.reset()
        self.env.step(np.append(self.still(), 0))


class Draws(Rows):
    """Records an action drawn from each block's own action space."""

    def run(self) -> None:
        self.env.reset()
        NOTES.extend(block.action_space.sample().tolist() for block in self.env.blocks)


class NotesCallsOfPPO(PPO):
    """PPO that records when each block, named by its first row, is stepped and waited for."""

    def __init__(self, env: Any, group: Any, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        for block in env.blocks:
            for word in ("async", "wait"):
                _note_calls(block, word)


def _note_calls(block: Any, word: str) -> None:
    call = getattr(block, f"step_{word}")

    def noted(*arguments: Any) -> Any:
        NOTES.append((word, block.rows.start))
        return call(*arguments)

    setattr(block, f"step_{word}", noted)
