"""The parallel face: one worker drives all entities of a team and learns the values of their joint actions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv

    from arena.group.group import Group


class JointQLearner:
    """Q-learning over joint actions: one value for every combination of the entities' actions.

    Args:
        env: a PettingZoo parallel environment whose action spaces are Discrete.
        group: all workers of this policy.
        ticks: of the whole run.
        rate: step size.
        discount: of the next state's value.
        explore: initial probability of a random joint action; it decreases linearly to 0 at the end of the run.
    """

    face = "parallel"

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        group: Group,
        *,
        ticks: int,
        rate: float = 0.2,
        discount: float = 0.99,
        explore: float = 1.0,
    ) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        self.rate, self.discount, self.explore = rate, discount, explore
        self.random = np.random.default_rng(group.seed)
        choices = [range(env.action_space(agent).n) for agent in env.possible_agents]  # type: ignore[attr-defined]
        self.joint_actions = list(itertools.product(*choices))
        self.values: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(len(self.joint_actions)))
        self.steps = 0

    def run(self) -> None:
        """Plays episode after episode until the environment raises `BudgetReached`."""
        while True:
            observations, _ = self.env.reset()
            while self.env.agents:
                values = self.values[self.state_of(observations)]
                index = self.choose(values)
                observations, rewards, terminated, _, _ = self.env.step(self.actions_of(index))
                # The team shares its reward, and its entities end together.
                future = 0.0 if all(terminated.values()) else self.values[self.state_of(observations)].max()
                values[index] += self.rate * (
                    sum(rewards.values()) / len(rewards) + self.discount * future - values[index]
                )
                self.steps += 1
                if self.steps % 100 == 0:
                    self.group.log(states=float(len(self.values)), best=float(values.max()))
                    self.group.save(self.state_dict)

    def choose(self, values: NDArray[np.float64]) -> int:
        """The best joint action, or a random one with the probability of exploration."""
        if self.random.random() < self.explore * (1 - self.steps / self.ticks):
            return int(self.random.integers(len(values)))
        return int(values.argmax())

    def state_of(self, observations: Mapping[str, Any]) -> str:
        """The observations of the whole team, as a key of the table."""
        return " ".join(str(observations[agent].tolist()) for agent in self.env.possible_agents)

    def actions_of(self, index: int) -> dict[str, int]:
        """A joint action, by entity."""
        return dict(zip(self.env.possible_agents, self.joint_actions[index], strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint."""
        return {"values": dict(self.values), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.values.update({key: value.copy() for key, value in state["values"].items()})
        self.steps = int(state["steps"])

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Any], dict[str, int]]:
        """The policy without learning, for frozen policies and evaluation."""
        return lambda observations, infos: self.actions_of(int(self.values[self.state_of(observations)].argmax()))
