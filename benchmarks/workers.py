"""Workers for benchmarks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np


class Constant:
    """Always plays action 0: the cost of a tick without a policy."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self.env = env

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        env = self.env
        actions = np.zeros(env.action_space.shape, env.action_space.dtype)
        env.reset()
        while True:
            env.step(actions)


class ConstantUnits(Constant):
    """The same in a game that always shows the same units."""

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        env = self.env
        observations, _ = env.reset()
        actions = env.single_action_space.first_allowed(observations["actions"])
        while True:
            env.step(actions)


class Keeps(Constant):
    """The same, with weights that it logs and saves after every thousand ticks."""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self._group = group
        self._weights = np.zeros(10_000, np.float32)

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        env = self.env
        actions = np.zeros(env.action_space.shape, env.action_space.dtype)
        env.reset()
        for tick in itertools.count(1):
            env.step(actions)
            if tick % 1000 == 0:
                self._group.mean(1.0)
                self._group.log(tick=tick)
                self._group.save(self.state_dict)

    def state_dict(self) -> dict[str, Any]:
        """The weights."""
        return {"weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the weights."""
        self._weights[:] = state["weights"]


class Thinks:
    """Sleeps for a time per row, and plays action 0; block by block if the lanes move in blocks.

    Args:
        env: the game.
        group: not used.
        ticks: not used.
        seconds_per_row: of sleep.
    """

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, seconds_per_row: float) -> None:
        self._blocks = env.blocks
        self._env, self._seconds_per_row = env, seconds_per_row

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        actions = [np.zeros(block.num_envs, np.int64) for block in self._blocks]
        self._env.reset()
        for tick in itertools.count():
            for block, chosen in zip(self._blocks, actions, strict=True):
                if tick > 0:
                    block.step_wait()
                time.sleep(self._seconds_per_row * block.num_envs)
                block.step_async(chosen)


class GroupUpdate:
    """Times gradients of three kinds in turns, and logs the seconds of each kind.

        alone      every worker keeps its gradients
        met        the same, with a barrier after every gradient
        averaged   the same, and every gradient is averaged over the group

    All workers begin a turn together and end it together, so all kinds include the same waiting for the slowest worker.

    Args:
        env: stepped once after a turn of each kind, so that the run has ticks.
        group: the workers.
        ticks: number of turns of each kind.
        updates: gradients per turn.
        minibatch: transitions per gradient.
        hidden: width of the two hidden layers; 280 gives 101,376 parameters.
    """

    face = "vector"
    schedule = "ticks"

    def __init__(
        self, env: Any, group: Any, *, ticks: int, updates: int = 20, minibatch: int = 1024, hidden: int = 280
    ) -> None:
        import torch  # only here: the other workers of this module do not need it

        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(1)
        self._env, self._group, self._updates = env, group, updates
        self._network = torch.nn.Sequential(
            torch.nn.Linear(64, hidden),
            torch.nn.Tanh(),
            torch.nn.Linear(hidden, hidden),
            torch.nn.Tanh(),
            torch.nn.Linear(hidden, 16),
        )
        self._batch = torch.randn(minibatch, 64, generator=generator)
        self._target = torch.randn(minibatch, 16, generator=generator)
        self._parameters = list(self._network.parameters())

    def run(self) -> None:
        """Plays turns until the environment raises `BudgetReached`."""
        actions = np.zeros(self._env.action_space.shape, self._env.action_space.dtype)
        kinds: dict[str, Callable[[], Any]] = {
            "alone": lambda: None,
            "met": lambda: self._group.mean(0.0),
            "averaged": lambda: self._group.average_gradients(self._parameters),
        }
        self._env.reset()
        self._group.broadcast(self._network)
        for after in kinds.values():  # the first call of each kind is slow
            self._turn(after)
        while True:
            figures: dict[str, float] = {"parameters": sum(parameter.numel() for parameter in self._parameters)}
            for kind, after in kinds.items():
                wall, cpu = self._turn(after)
                figures |= {f"{kind}_wall": wall, f"{kind}_cpu": self._group.mean(cpu)}
            self._group.log(**figures)
            self._env.step(actions)

    def _turn(self, after: Callable[[], Any]) -> tuple[float, float]:
        """Seconds per gradient: wall time of the group, and CPU time of this worker."""
        self._group.mean(0.0)
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(self._updates):
            self._network.zero_grad(set_to_none=False)
            (self._network(self._batch) - self._target).square().mean().backward()
            after()
        cpu = time.process_time() - used
        self._group.mean(0.0)
        return (time.perf_counter() - begun) / self._updates, cpu / self._updates
