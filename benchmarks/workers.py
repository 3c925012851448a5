"""Workers for benchmarks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from arena.errors import BudgetReached


class Constant:
    """Plays action 0 always: what a tick costs when nobody thinks."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self.env = env

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        env = self.env
        actions = np.zeros(env.action_space.shape, env.action_space.dtype)
        env.reset()
        while True:
            env.step(actions)


class GroupUpdate:
    """Times gradients with and without averaging them over the group, in turns, and logs the seconds of each turn.

    All workers begin a turn together and end it together, so both kinds of turns hold the same waiting for the
    slowest one; what is left between them is the price of the averages.

    Args:
        env: stepped once per turn, so that the run has ticks.
        group: the workers.
        ticks: as many turns are played, half of them of each kind.
        updates: gradients per turn.
        minibatch: transitions per gradient.
        hidden: width of the two hidden layers; 280 gives 101,376 parameters.
    """

    face = "vector"

    def __init__(
        self, env: Any, group: Any, *, ticks: int, updates: int = 20, minibatch: int = 1024, hidden: int = 280
    ) -> None:
        import torch  # here alone: other workers of this module do not pay for it

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
        self._env.reset()
        self._group.broadcast(self._network)
        self._turn(together=True)  # the first of everything is slow
        try:
            while True:
                figures = {"alone": self._turn(together=False), "together": self._turn(together=True)}
                size = sum(parameter.numel() for parameter in self._parameters)
                self._group.log(parameters=size, **{f"{name}_seconds": found for name, found in figures.items()})
                self._env.step(actions)
        except BudgetReached:
            return

    def _turn(self, *, together: bool) -> float:
        """Seconds per gradient of the whole group."""
        self._group.mean(0.0)
        begun = time.perf_counter()
        for _ in range(self._updates):
            self._network.zero_grad(set_to_none=False)
            (self._network(self._batch) - self._target).square().mean().backward()
            if together:
                self._group.average_gradients(self._parameters)
        self._group.mean(0.0)
        return (time.perf_counter() - begun) / self._updates
