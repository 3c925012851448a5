"""Advantages against a slow version that is shaped like the formulas, and chains whose values are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.common.rollout import Trajectories, advantages_of
from trajectories import random_trajectories


def chain(rewards: list[float], **more: list[float] | float) -> Trajectories:
    """One row that acts on every tick; values are 0 and nothing ends unless said otherwise."""
    count = len(rewards)

    def column(name: str, kind: type, default: float) -> NDArray[np.generic]:
        return np.array(more.get(name, [default] * count), kind)[:, None]

    return Trajectories(
        rewards=np.array(rewards, float)[:, None],
        values=column("values", float, 0),
        terminated=column("terminated", bool, 0),
        truncated=column("truncated", bool, 0),
        final_values=column("final_values", float, 0),
        active=column("active", bool, 1),
        last_values=np.array([more.get("last_value", 0.0)], float),
        last_active=np.array([more.get("last_active", True)], bool),
    )


def slow_advantages(seen: Trajectories, gamma: float, lam: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Row by row: first the transitions, then A_k = sum over l of (gamma * lambda)^l * delta_{k + l}, eq. (16)."""
    advantages, valid = np.zeros(seen.rewards.shape), np.zeros(seen.rewards.shape, bool)
    for b in range(seen.rewards.shape[1]):
        acted = [t for t in range(len(seen.rewards)) if seen.active[t, b]]
        deltas: list[tuple[int, float, bool]] = []  # tick, delta, whether the episode goes on
        for k, t in enumerate(acted):
            until = acted[k + 1] if k + 1 < len(acted) else len(seen.rewards)
            end = next((u for u in range(t, until) if seen.terminated[u, b] or seen.truncated[u, b]), None)
            reward = seen.rewards[t : (until if end is None else end + 1), b].sum()
            if end is not None:
                following = 0.0 if seen.terminated[end, b] else seen.final_values[end, b]
            elif until < len(seen.rewards):
                following = seen.values[until, b]
            elif seen.last_active[b]:
                following = seen.last_values[b]
            else:
                continue  # still waiting for the others
            over = until - 1 if end is None else end
            void = seen.void is not None and seen.void[t : over + 1, b].any()
            deltas.append((t, np.nan if void else reward + gamma * following - seen.values[t, b], end is None))
        for k, (t, own, _) in enumerate(deltas):
            if np.isnan(own) or (seen.given is not None and seen.given[t, b]):
                continue
            valid[t, b] = True
            for later, (_, delta, goes_on) in enumerate(deltas[k:]):
                if np.isnan(delta):
                    break
                advantages[t, b] += (gamma * lam) ** later * delta
                if not goes_on:
                    break
    return advantages, valid


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    acting=st.sampled_from([0.2, 0.5, 0.9, 1.1]),
    ending=st.sampled_from([0.0, 0.1, 0.4]),
    outside=st.sampled_from([0.0, 0.2]),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
)
def test_equals_the_slow_formula_with_and_without_turns(
    seed: int, acting: float, ending: float, outside: float, gamma: float, lam: float
) -> None:
    seen = random_trajectories(seed, acting=acting, ending=ending, outside=outside)
    found = advantages_of(seen, gamma=gamma, gae_lambda=lam)
    advantages, valid = slow_advantages(seen, gamma, lam)
    np.testing.assert_array_equal(found.valid, valid)
    np.testing.assert_allclose(found.advantages, advantages, atol=1e-12)
    np.testing.assert_allclose(found.returns, np.where(valid, advantages + seen.values, 0), atol=1e-12)


def test_rewards_of_the_others_turns_belong_to_the_last_own_action() -> None:
    seen = chain([1, 10, 100, 1000], active=[1, 0, 0, 1], terminated=[0, 0, 0, 1], values=[0, 9, 9, 5])
    found = advantages_of(seen, gamma=0.5, gae_lambda=0.0)
    np.testing.assert_array_equal(found.valid[:, 0], [True, False, False, True])
    assert found.returns[0, 0] == 111 + 0.5 * 5  # one discount per own turn
    assert found.returns[3, 0] == 1000
