"""Advantages against a slow version that is shaped like the formulas, and chains whose values are known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.errors import ConfigError
from fakes import ScriptedEnv, solo_group
from learning_steps import play
from minibatches import disturb
from policies.a2c import A2C
from policies.common.rollout import Evaluation, Trajectories, advantages_of, evaluate_network, values_of
from policies.hppo import HPPO
from policies.impala import IMPALA
from policies.mappo import MAPPO
from policies.ppo import PPO
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


# Importance weights of stale samples: V-trace against its definition, and what a learner makes of it


KINDS = [PPO, A2C, MAPPO, HPPO]
GAMMA, LAMBDA = 0.9, 0.8


def v_trace(
    rewards: Any, values: Any, following: Any, ratios: Any, *, lam: float = LAMBDA, rho: float = 1.0, c: float = 1.0
) -> list[float]:
    """v_s of transitions that follow each other, by equation (1); `following` is the value after the last one."""
    after, found = [*values[1:], following], []
    for s in range(len(rewards)):
        total = values[s]
        for t in range(s, len(rewards)):
            traces = np.prod([lam * min(c, ratio) for ratio in ratios[s:t]])
            delta = min(rho, ratios[t]) * (rewards[t] + GAMMA * after[t] - values[t])
            total += GAMMA ** (t - s) * traces * delta
        found.append(total)
    return found


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.5, 1.0), (2.5, 1.5)], ids=str)
@pytest.mark.parametrize("turns", [False, True])
def test_returns_are_v_trace_by_its_definition(turns: bool, bounds: tuple[float, float]) -> None:
    rho, c = bounds
    for seed in range(20):
        seen = random_trajectories(seed, acting=0.6 if turns else 1.1, ending=0.1)
        ratios = np.random.default_rng(seed).lognormal(size=seen.rewards.shape)
        found = advantages_of(seen, gamma=GAMMA, gae_lambda=LAMBDA, ratios=ratios, rho_bar=rho, c_bar=c)
        for row in range(ratios.shape[1]):
            begun: list[int] = []  # ticks of the transitions of this episode
            rewards: list[float] = []

            def compare(following: float, row: int = row, begun: list[int] = begun, rewards: Any = rewards) -> None:
                values, weights = seen.values[begun, row], ratios[begun, row]  # noqa: B023
                expected = v_trace(rewards, values, following, weights, rho=rho, c=c)
                np.testing.assert_allclose(found.returns[begun, row], expected, rtol=1e-10)  # noqa: B023
                np.testing.assert_allclose(found.advantages[begun, row], expected - values, atol=1e-12)  # noqa: B023
                gains = np.array(rewards) + GAMMA * np.array([*expected[1:], following]) - values
                np.testing.assert_allclose(found.gains[begun, row], gains, atol=1e-12)  # noqa: B023
                assert found.valid[begun, row].all()  # noqa: B023

            for t in range(len(ratios)):
                if seen.active[t, row]:
                    begun.append(t)
                    rewards.append(0.0)
                if rewards:
                    rewards[-1] += seen.rewards[t, row]
                if seen.terminated[t, row] or seen.truncated[t, row]:
                    compare(0.0 if seen.terminated[t, row] else seen.final_values[t, row])
                    begun.clear()
                    rewards.clear()
            if begun and not seen.last_active[row]:  # the last one is open: those before look ahead to its beginning
                following = seen.values[begun.pop(), row]
                rewards.pop()
                compare(following)
            elif begun:
                compare(seen.last_values[row])


def stale(kind: Any, actions: Any, **options: Any) -> tuple[Any, Evaluation]:
    env = ScriptedEnv(spaces.Box(-1, 1, (3,)), actions, ticks=60)
    env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
    learner = kind(env, solo_group(), ticks=60, n_steps=12, hidden_sizes=(8,), **options)
    learner.rollout.begin(*env.reset())
    play(learner)
    learner.group.async_samples = True  # else no loss of A2C would read log-probabilities
    evaluation = Evaluation.from_samples(learner.evaluate().to_samples())
    learner.group.async_samples = None
    return learner, evaluation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=["choice", "numbers"])
@pytest.mark.parametrize("memory", [{}, {"recurrent": "gru", "hidden_size": 4, "sequence_length": 4}])
def test_samples_of_the_same_weights_stay_as_they_are(kind: Any, actions: Any, memory: dict[str, Any]) -> None:
    learner, evaluation = stale(kind, actions, **memory)
    found = learner.corrected(evaluation)
    for name in ("log_probs", "values", "advantages", "returns"):
        torch.testing.assert_close(getattr(found.batch, name), getattr(evaluation.batch, name), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_stale_samples_are_weighted_by_their_own_ratios(kind: Any) -> None:
    learner, evaluation = stale(kind, spaces.Discrete(3), gae_lambda=0.0)
    disturb(learner.network)
    old, new = evaluation.batch, learner.corrected(evaluation).batch
    ratios = (new.log_probs - old.log_probs).exp().clamp(max=1.0)
    assert ratios.min() < 0.9
    policy, values = learner.network.policy_and_value(old.observations, old.masks)
    torch.testing.assert_close(new.log_probs, policy.log_prob(old.actions))
    torch.testing.assert_close(new.values, values)
    after = torch.cat([values, learner.network.value(evaluation.last)])[evaluation.valid.shape[1] :]
    seen = evaluation.trajectories
    ended = torch.from_numpy(seen.terminated | seen.truncated).flatten()
    rewards = torch.from_numpy(seen.rewards).float().flatten()
    expected = ratios * (rewards + 0.99 * after - values)
    assert (~ended).sum() > 10
    torch.testing.assert_close(new.advantages[~ended], expected[~ended].detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(new.returns, new.values + new.advantages)


# IMPALA: the same targets with bounds of its own, and their fixed points


@pytest.mark.parametrize("lam", [1.0, 0.7])
def test_targets_of_fresh_samples_are_n_step_and_lambda_returns(lam: float) -> None:
    """The mean of the n-step returns with weights (1 - lambda) lambda^(n-1), of which the last has the rest."""
    rng = np.random.default_rng(1)
    rewards, values, last = rng.normal(size=6), rng.normal(size=6), 0.4
    seen = chain(list(rewards), values=list(values), last_value=last)
    found = advantages_of(seen, gamma=GAMMA, gae_lambda=lam, ratios=np.ones((6, 1)), rho_bar=9.0, c_bar=9.0)
    after = [*values[1:], last]
    for s in range(6):
        n_step = [
            sum(GAMMA**k * rewards[s + k] for k in range(n)) + GAMMA**n * after[s + n - 1] for n in range(1, 7 - s)
        ]
        weights = [(1 - lam) * lam**n for n in range(len(n_step) - 1)]
        assert found.returns[s, 0] == pytest.approx(np.dot([*weights, 1 - sum(weights)], n_step), abs=1e-12)


@pytest.mark.parametrize("rho_bar", [1.0, 1.5, 100.0])
def test_fixed_point_is_the_value_of_the_clipped_policy(rho_bar: float) -> None:
    """One state, two actions that pay 1 and 3, for ever: all sequences of four actions, weighed by their probability.

    Section 4.1: V-trace learns the values of the policy proportional to min(rho_bar mu, pi).
    """
    pays, mu, pi = np.array([1.0, 3.0]), np.array([0.8, 0.2]), np.array([0.3, 0.7])
    clipped = np.minimum(rho_bar * mu, pi)
    value = float(pays @ clipped / clipped.sum()) / (1 - GAMMA)
    actions = np.array(list(itertools.product((0, 1), repeat=4))).T  # [4, 16]
    chances = mu[actions].prod(axis=0)

    def target(guess: float) -> float:
        flags = np.zeros(actions.shape, bool)
        values, row = np.full(actions.shape, guess), np.full(16, guess)
        seen = Trajectories(pays[actions], values, flags, flags, 0 * values, ~flags, row, np.ones(16, bool))
        found = advantages_of(seen, gamma=GAMMA, gae_lambda=1.0, ratios=(pi / mu)[actions], rho_bar=rho_bar, c_bar=1.0)
        return float(found.returns[0] @ chances)

    assert target(value) == pytest.approx(value, abs=1e-12)
    guess = 0.0
    for _ in range(1000):
        guess = target(guess)
    assert guess == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (1.2, 1.1)], ids=str)
def test_impala_learns_from_v_trace_of_stale_samples(bounds: tuple[float, float]) -> None:
    rho, c = bounds
    learner, evaluation = stale(IMPALA, spaces.Discrete(3), gamma=GAMMA, gae_lambda=0.9, rho_bar=rho, c_bar=c)
    disturb(learner.network)
    old, new = evaluation.batch, learner.corrected(evaluation).batch
    with torch.no_grad():
        network, device = learner.network, learner.device
        log_probs, values = evaluate_network(network, old.observations, old.masks, old.actions, device)
        finals = iter(values_of(network, evaluation.finals, device).tolist())
        last = values_of(network, evaluation.last, device).tolist()
    shape, seen = evaluation.valid.shape, evaluation.trajectories
    ratios = (log_probs - old.log_probs).double().exp().view(shape).numpy()
    ended, value = seen.terminated | seen.truncated, values.view(shape)
    after = {at: next(finals) for at in zip(*np.nonzero(seen.truncated & ~seen.terminated), strict=True)}
    assert ratios.max() > 1.3 and ended.any() and after
    returns, gains = np.zeros(shape), np.zeros(shape)
    for row in range(shape[1]):
        begins = [0, *(np.flatnonzero(ended[:-1, row]) + 1), shape[0]]
        for begin, end in itertools.pairwise(begins):
            part = slice(begin, end), row
            final = after.get((end - 1, row), 0.0) if ended[end - 1, row] else last[row]
            rewards, mine = seen.rewards[part], value[part].numpy()
            found = v_trace(rewards, mine, final, ratios[part], lam=0.9, rho=rho, c=c)
            returns[part] = found
            gains[part] = np.minimum(rho, ratios[part]) * (rewards + GAMMA * np.array([*found[1:], final]) - mine)
    np.testing.assert_allclose(new.returns.view(shape), returns, atol=1e-5)
    np.testing.assert_allclose(new.advantages.view(shape), gains, atol=1e-5)


@pytest.mark.parametrize(("lam", "same"), [(1.0, True), (0.7, False)])
def test_impala_is_a2c_with_lambda_1_and_fresh_samples(lam: float, same: bool) -> None:
    of_impala, of_a2c = (stale(kind, spaces.Discrete(3), gae_lambda=lam)[1].batch for kind in (IMPALA, A2C))
    torch.testing.assert_close(of_impala.returns, of_a2c.returns)
    assert torch.allclose(of_impala.advantages, of_a2c.advantages, atol=1e-5) == same


@pytest.mark.parametrize("kind", [A2C, IMPALA])
@pytest.mark.parametrize("old", [False, True])
def test_explained_variance_is_that_of_returns_by_values(kind: Any, old: bool) -> None:
    learner, evaluation = stale(kind, spaces.Discrete(3), gae_lambda=0.3)
    if old:
        disturb(learner.network)
        evaluation = learner.corrected(evaluation)
    batch = evaluation.complete(None)
    errors, returns = (numbers.double().numpy().var() for numbers in (batch.returns - batch.values, batch.returns))
    assert learner.learn_from(batch)["explained_variance"] == pytest.approx(1 - errors / returns, abs=1e-5)


def test_bounds_that_the_paper_excludes_are_refused() -> None:
    IMPALA.Options(rho_bar=3.0, c_bar=2.0)
    with pytest.raises(ConfigError, match=r"got 2\.0, expected 1\.5 at most, which is rho_bar") as caught:
        IMPALA.Options(rho_bar=1.5, c_bar=2.0)
    assert caught.value.path == "options.c_bar"
