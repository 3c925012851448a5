"""The whole run of an algorithm, and the steps of an on-policy one: play a rollout, evaluate it, learn from it."""

from __future__ import annotations

from typing import Any

import pytest

from arena.errors import BudgetReached
from policies.common.algorithm import Metrics
from policies.common.on_policy import collect
from policies.common.rollout import Batch


def play(algorithm: Any) -> None:
    """Plays the remaining ticks of the algorithm's rollout."""
    rollout = algorithm.rollout
    noise = algorithm.draw_noise(rollout.ticks - rollout.played)
    collect(algorithm.env, algorithm.head, rollout, algorithm.act, noise)


def evaluate(algorithm: Any) -> Batch:
    """The complete transitions of the algorithm's rollout."""
    recurrent = algorithm.options.recurrent is not None
    return algorithm.evaluate().complete(algorithm.options.sequence_length if recurrent else None)  # type: ignore[no-any-return]


def learn(algorithm: Any, batch: Batch) -> Metrics:
    """One update of the group's weights from one batch per worker."""
    metrics: Metrics = algorithm.learn_from(batch)
    return metrics


def rollout_of(algorithm: Any) -> Batch:
    """Begins a game, plays one rollout, and evaluates it."""
    algorithm.rollout.begin(*algorithm.env.reset())
    play(algorithm)
    return evaluate(algorithm)


def run(algorithm: Any) -> Any:
    """The algorithm after its whole run."""
    with pytest.raises(BudgetReached):
        algorithm.run()
    return algorithm
