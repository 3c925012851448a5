"""Predators and prey: simple_tag of mpe2 with a winner, the predators if they catch the prey often enough."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils.wrappers import BaseParallelWrapper

_CATCHES = 10.0  # the reward of the predators for a catch


class Winner(BaseParallelWrapper):
    """States the outcome of each episode at its end.

    Args:
        env: simple_tag.
        catches: how many the predators need to win.
    """

    def __init__(self, env: Any, catches: int = 1) -> None:
        super().__init__(env)
        self._needed = catches
        self._caught = 0.0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._caught = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._caught += max(rewards[name] for name in rewards if "adversary" in name) / _CATCHES
        for name in infos:
            if terminations[name] or truncations[name]:
                won = (self._caught >= self._needed) == ("adversary" in name)
                infos[name] = {**infos[name], "outcome": "win" if won else "loss"}
        return observations, rewards, terminations, truncations, infos


def simple_tag(*, max_cycles: int = 25, catches: int = 1) -> Winner:
    """Three predators and one prey."""
    from mpe2 import simple_tag_v3

    return Winner(simple_tag_v3.parallel_env(max_cycles=max_cycles), catches)
