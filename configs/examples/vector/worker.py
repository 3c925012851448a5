"""The vector face: the cross-entropy method, one candidate per row, over all workers of the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

if TYPE_CHECKING:
    from arena.group.group import Group

Floats = NDArray[np.float64]


class CrossEntropy:
    """The cross-entropy method (Rubinstein 1999) on linear policies for two actions: act 1 if w . observation > 0.

    Each row of the vector environment plays a candidate of its own for `generation` ticks. Then the group pools all
    candidates and their scores, and the next ones are drawn around the best.

    Args:
        env: a vector environment with B rows; an ended row starts its next episode on the same step.
        group: all workers of this policy.
        ticks: not used; the environment says when the run ends.
        generation: ticks that a candidate plays.
        elite: share of the candidates from which the next ones are drawn.
        noise: standard deviation that is added to the spread of the elite.
    """

    face = "vector"
    schedule = "ticks"  # all workers use the group after each generation, which has a fixed number of ticks

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        group: Group,
        *,
        ticks: int,
        generation: int = 200,
        elite: float = 0.2,
        noise: float = 0.05,
    ) -> None:
        self.env, self.group = env, group
        self.generation, self.elite, self.noise = generation, elite, noise
        self.random = np.random.default_rng(group.seed)
        size = int(np.prod(env.single_observation_space.shape or ()))
        self.mean, self.spread = np.zeros(size), np.ones(size)

    def run(self) -> None:
        """Plays generation after generation until the environment raises `BudgetReached`."""
        observations, _ = self.env.reset()
        while True:
            drawn = self.random.standard_normal((self.env.num_envs, len(self.mean)))
            candidates = self.mean + self.spread * drawn  # [B, size]
            observations, scores = self.play(candidates, observations)
            self.learn(candidates, scores)

    def play(self, candidates: Floats, observations: Any) -> tuple[Any, Floats]:
        """A generation: the last observations, and per candidate the mean length of its episodes [B]."""
        falls = np.zeros(len(candidates))
        for _ in range(self.generation):
            # On the step that ends an episode the observation is already the first of the next one.
            observations, _, terminated, _, _ = self.env.step(chosen(candidates, observations))
            falls += terminated
        return observations, self.generation / (1 + falls)

    def learn(self, candidates: Floats, scores: Floats) -> None:
        """Moves mean and spread to the elite of all workers' candidates; the result is the same at every worker."""
        pooled = self.group.pool((candidates, scores))
        all_candidates = np.concatenate([part for part, _ in pooled])
        all_scores = np.concatenate([part for _, part in pooled])
        count = max(2, round(self.elite * len(all_candidates)))
        best = all_candidates[np.argsort(-all_scores, kind="stable")[:count]]
        self.mean, self.spread = best.mean(axis=0), best.std(axis=0) + self.noise
        self.group.log(score=float(all_scores.mean()), spread=float(self.spread.mean()))
        self.group.save(self.state_dict)

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint."""
        return {"mean": self.mean, "spread": self.spread}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.mean, self.spread = state["mean"].copy(), state["spread"].copy()

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Any], NDArray[np.int64]]:
        """The mean of all candidates, for frozen policies and evaluation."""
        return lambda observations, infos: chosen(self.mean[None], observations)


def chosen(weights: Floats, observations: Any) -> NDArray[np.int64]:
    """The actions [B] of linear policies [B, size] (or [1, size]: one for all) on observations [B, size]."""
    actions: NDArray[np.int64] = ((weights * observations).sum(axis=1) > 0).astype(np.int64)
    return actions
