"""A worker on the vector face that reads ragged arrays: it learns by REINFORCE how much a unit's features are worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from arena import Ragged

if TYPE_CHECKING:
    from arena.group.group import Group

Floats = NDArray[np.float64]


class Pairs(NamedTuple):
    """Each actor with each unit that it may select: P pairs of D decisions."""

    features: Floats  # [P, F] of the unit
    decision: NDArray[np.int64]  # [P] which of the D decisions a pair belongs to
    row: NDArray[np.int64]  # [D] of each decision


def pairs_of(observations: Mapping[str, Any], action: str, unit: str) -> Pairs:
    """All pairs of a `Select` action whose actees are the units of one type, in their order."""
    shown, units = observations["actions"][action], observations["units"][unit]
    actors: Ragged = shown["actors"]
    choices = np.repeat(shown["actees"].lengths, actors.lengths)  # [D]
    first = np.repeat(units.offsets, actors.lengths)  # [D] where the units of the decision's row begin
    place = np.arange(choices.sum()) - np.repeat(np.cumsum(choices) - choices, choices)
    values = units.values[np.repeat(first, choices) + place].astype(np.float64)
    return Pairs(values, np.repeat(np.arange(len(choices)), choices), actors.rows())


class Linear:
    """The score of a unit is w . features; an actor selects by a softmax over the scores.

    Each update follows the gradient of the mean reward (Williams 1992): (r - mean r) * (features of what was selected -
    their expectation), over the decisions of all workers.

    Args:
        env: a vector environment; each episode has one tick.
        group: all workers of this policy.
        ticks: not used; the environment says when the run ends.
        action: the `Select` action.
        unit: the type of the units that are selected.
        rate: step size.
    """

    face = "vector"
    schedule = "ticks"  # all workers use the group after each tick

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        group: Group,
        *,
        ticks: int,
        action: str = "Take",
        unit: str = "Fruit",
        rate: float = 0.3,
    ) -> None:
        self.env, self.group = env, group
        self.action, self.unit, self.rate = action, unit, rate
        self.random = np.random.default_rng(group.seed)
        self.weights = np.zeros(len(env.single_observation_space.types[unit]))

    def run(self) -> None:
        """Plays and learns until the environment raises `BudgetReached`."""
        observations, _ = self.env.reset()
        while True:
            pairs = pairs_of(observations, self.action, self.unit)
            chances = self.chances(pairs)
            noise = self.random.gumbel(size=len(chances))
            actions = self.selected(observations, pairs, np.log(chances) + noise)
            before, (observations, rewards, *_) = actions[self.action], self.env.step(actions)
            self.learn(pairs, chances, before, rewards)

    def learn(self, pairs: Pairs, chances: Floats, chosen: Ragged, rewards: Floats) -> None:
        """One step along the gradient of all workers."""
        begin = np.searchsorted(pairs.decision, np.arange(chosen.total))
        expected = np.zeros((chosen.total, len(self.weights)))
        np.add.at(expected, pairs.decision, chances[:, None] * pairs.features)
        better = (rewards - rewards.mean())[pairs.row]
        gradient = (better[:, None] * (pairs.features[begin + chosen.values] - expected)).mean(axis=0)
        self.weights = self.weights + self.rate * np.mean(self.group.pool(gradient), axis=0)
        self.group.log(reward=float(rewards.mean()))
        self.group.save(self.state_dict)

    def chances(self, pairs: Pairs) -> Floats:
        """The probability of each pair [P]; those of a decision add up to 1."""
        weights = np.exp(np.clip(pairs.features @ self.weights, -30, 30))
        total: Floats = weights / np.bincount(pairs.decision, weights)[pairs.decision]
        return total

    def selected(self, observations: Mapping[str, Any], pairs: Pairs, scores: Floats) -> dict[str, Ragged]:
        """For each decision the place of the pair with the highest score."""
        order = np.lexsort((scores, pairs.decision))  # within a decision the best is the last
        decisions = np.arange(len(pairs.row))
        best = order[np.searchsorted(pairs.decision, decisions, side="right") - 1]
        places = best - np.searchsorted(pairs.decision, decisions)
        return {self.action: Ragged(places, observations["actions"][self.action]["actors"].lengths)}

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint."""
        return {"weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.weights = state["weights"].copy()

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Any], dict[str, Ragged]]:
        """The best unit for each actor, for frozen policies and evaluation."""

        def act(observations: Any, infos: Any) -> dict[str, Ragged]:
            pairs = pairs_of(observations, self.action, self.unit)
            return self.selected(observations, pairs, pairs.features @ self.weights)

        return act
