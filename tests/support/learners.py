"""Learners of every face whose weights depend on all their observations, draws and collectives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in_process import NOTES
from workers import Player

MEETS_EVERY = 7  # ticks: no divisor of the legs' lengths
_DECAY = 0.97


class Learner(Player):
    """Plays at random, and synchronizes with its group every few ticks.

    `weights` is the policy's state; the data since the last synchronization is the worker's own state.

    Args:
        leaves: per group rank the number of meetings after which `run` returns; 0: never.
    """

    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, leaves: tuple[int, ...] = ()) -> None:
        super().__init__(env, group, ticks=ticks)
        self.weights: NDArray[np.float64] = np.zeros(3)
        self.seen: list[float] = []
        self.meetings = 0
        self.rng = np.random.default_rng(group.seed)
        self.leaves = leaves[group.rank] if leaves else 0

    @property
    def has_left(self) -> bool:
        return 0 < self.leaves <= self.meetings

    def learn(self, *seen: Any) -> None:
        """Updates from one tick."""
        self.seen.append(float(sum(np.sum(np.asarray(item, np.float64)) for item in seen)))
        if len(self.seen) == MEETS_EVERY:
            mine = np.array([np.mean(self.seen), self.seen[-1], self.rng.random()])
            self.weights = _DECAY * self.weights + [self.group.mean(float(value)) for value in mine]
            self.seen.clear()
            self.meetings += 1
            self.group.log(first=self.weights[0], last=self.weights[2], drawn=mine[2])
            self.group.save(self.state_dict)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "meetings": self.meetings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.meetings = state["weights"], state["meetings"]
        NOTES.append(("loaded", self.meetings))

    def worker_state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen} if self.seen else {}

    def load_worker_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class GymLearner(Learner):
    """Of the Gymnasium face."""

    face = "gym"

    def run(self) -> None:
        observation, _ = self.env.reset()
        while not self.has_left:
            action = self.env.action_space.start + self.rng.integers(self.env.action_space.n)
            observation, reward, terminated, truncated, _ = self.env.step(action)
            self.learn(observation, reward, terminated, 2 * truncated)
            if terminated or truncated:
                self.env.reset()


class VectorLearner(Learner):
    """Of the vector face."""

    face = "vector"

    def run(self) -> None:
        self.env.reset()
        space = self.env.single_action_space
        while not self.has_left:
            actions = space.start + self.rng.integers(space.n, size=self.env.num_envs)
            observations, rewards, terminated, truncated, infos = self.env.step(actions)
            self.learn(observations, rewards, terminated, 2 * truncated, infos["active"])


class ParallelLearner(Learner):
    """Of the PettingZoo face."""

    face = "parallel"

    def run(self) -> None:
        while True:
            self.env.reset()
            while self.env.agents:
                actions = {agent: self.rng.integers(self.env.action_space(agent).n) for agent in self.env.agents}
                told = self.env.step(actions)
                self.learn(*(value for part in told[:4] for value in part.values()))
                if self.has_left:
                    return


class HoldsDescriptors(VectorLearner):
    """Records the open descriptors of its process at the beginning of each leg."""

    def run(self) -> None:
        NOTES.append(len(os.listdir("/proc/self/fd")))
        super().run()


class UnsynchronizedLearner(VectorLearner):
    """Learns during play and never calls its group.

    Args:
        after: how many ticks it plays before it begins to learn.
    """

    def __init__(self, env: Any, group: Any, *, ticks: int, after: int = 0) -> None:
        super().__init__(env, group, ticks=ticks)
        self.after = after

    def learn(self, *seen: Any) -> None:
        self.seen.append(float(sum(np.sum(np.asarray(item, np.float64)) for item in seen)))
        if len(self.seen) == MEETS_EVERY and self.env.ticks > self.after:
            self.weights = _DECAY * self.weights + [np.mean(self.seen), self.seen[-1], self.rng.random()]
            self.group.log(first=self.weights[0])
            self.group.save(self.state_dict)
        if len(self.seen) == MEETS_EVERY:
            self.seen.clear()


class DeclaresIndependent(UnsynchronizedLearner):
    """The same, with `independent` in its class."""

    independent = True


class NotesFirstTicks(VectorLearner):
    """Records the ticks of its proxy in each leg, at construction and after the first reset."""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.begins = env.ticks

    def run(self) -> None:
        before = self.env.ticks
        self.env.reset()
        NOTES.append((self.begins, before, self.env.ticks))
        super().run()


class LearnerWithActor(VectorLearner):
    """A learner with an actor, whose actions depend on the weights."""

    def actor(self, *, greedy: bool = False) -> Any:
        space, choice = self.env.single_action_space, int(abs(self.weights).sum() * 1e6)
        return lambda observations, infos: np.full(len(observations), space.start + choice % space.n)


class RenamedLearner(LearnerWithActor):
    """The same under another name: checkpoints are loaded only by the algorithm that saved them."""
