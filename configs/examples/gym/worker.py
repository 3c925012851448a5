"""The gym face: tabular Q-learning by several workers that share one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from arena.group.group import Group


class QLearner:
    """Tabular Q-learning (Watkins 1989) with epsilon-greedy exploration.

    Every `meet_every` steps all workers of the group replace their tables by the mean table.

    Args:
        env: an ordinary Gymnasium environment, Discrete in and Discrete out.
        group: all workers of this policy.
        ticks: of the whole run.
        rate: step size.
        discount: of the next state's value.
        explore: initial probability of a random action; it decreases linearly to 0 at the end of the run.
        meet_every: steps between two means over the group.
    """

    face = "gym"

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        group: Group,
        *,
        ticks: int,
        rate: float = 0.2,
        discount: float = 0.95,
        explore: float = 0.5,
        meet_every: int = 100,
    ) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        self.rate, self.discount, self.explore, self.meet_every = rate, discount, explore, meet_every
        self.random = np.random.default_rng(group.seed)
        self.values = np.zeros((env.observation_space.n, env.action_space.n))  # type: ignore[attr-defined]
        self.steps = 0

    def run(self) -> None:
        """Plays episode after episode until the environment raises `BudgetReached`."""
        while True:
            state, _ = self.env.reset()
            over = False
            while not over:
                action = self.choose(state)
                seen, reward, terminated, truncated, _ = self.env.step(action)
                future = 0.0 if terminated else self.values[seen].max()  # a truncated episode would have continued
                self.values[state, action] += self.rate * (reward + self.discount * future - self.values[state, action])
                state, over = seen, terminated or truncated
                self.steps += 1
                if self.steps % self.meet_every == 0:
                    self.meet()

    def choose(self, state: int) -> int:
        """A best action, or a random one with the probability of exploration."""
        if self.random.random() < self.explore * (1 - self.steps / self.ticks):
            return int(self.random.integers(self.values.shape[1]))
        return int(self.random.choice(np.flatnonzero(self.values[state] == self.values[state].max())))

    def meet(self) -> None:
        """Called by all workers at the same step: one table for all, a line of metrics, perhaps a checkpoint."""
        self.values = np.mean(self.group.pool(self.values), axis=0)
        self.group.log(best_value=float(self.values[0].max()))
        self.group.save(self.state_dict)

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint."""
        return {"values": self.values, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.values, self.steps = state["values"].copy(), int(state["steps"])

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Any], int]:
        """The policy without learning, for frozen policies and evaluation."""
        return lambda state, info: int(self.values[state].argmax())
