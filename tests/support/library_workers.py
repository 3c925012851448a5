"""Algorithms of another library as the bodies of workers: unmodified, against the gym face."""

from __future__ import annotations

from typing import Any

import stable_baselines3

from arena.errors import BudgetReached
from in_process import NOTES
from workers import Player


class StableBaselines(Player):
    """One of Stable-Baselines3's algorithms, as its own documentation uses it."""

    def __init__(self, env: Any, group: Any, *, ticks: int, algorithm: str, options: Any) -> None:
        super().__init__(env, group, ticks=ticks)
        make = getattr(stable_baselines3, algorithm)
        self.model = make("MlpPolicy", env, seed=group.seed % 2**31, device="cpu", **options)

    def run(self) -> None:
        before = {name: value.clone() for name, value in self.model.get_parameters()["policy"].items()}
        try:
            self.model.learn(total_timesteps=10**9)
        except BudgetReached:
            after = self.model.get_parameters()["policy"]
            moved = max(float((after[name] - before[name]).abs().max()) for name in before)
            NOTES.append((type(self.model).__name__, self.model.num_timesteps, self.model._n_updates, moved))
            raise
