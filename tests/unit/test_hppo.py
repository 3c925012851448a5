"""Hierarchical PPO: options and their rewards by hand, the gradient against autograd, groups, state, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from fakes import ScriptedEnv, ThreadGroup, all_equal, solo_group, together
from learning_steps import evaluate, play
from policies.hppo import HPPO

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {"n_steps": 12, "minibatch_size": 16, "hidden_sizes": (8,), "n_options": 3, "option_ticks": 4}
ROWS = 4


def game(*, seed: int = 0, **more: Any) -> ScriptedEnv:
    rng = np.random.default_rng(seed)
    more = {"reward": lambda observations, actions: rng.normal(size=len(actions)), "length": 6, **more}
    return ScriptedEnv(VECTOR, CHOICE, seed=seed, **more)


def worker(env: Any = None, group: ThreadGroup | None = None, **options: Any) -> HPPO:
    env = env or game()
    return HPPO(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def played(hppo: HPPO) -> HPPO:
    """A worker after one rollout, before learning."""
    hppo.rollout.begin(*hppo.env.reset())
    play(hppo)
    return hppo


def disturbed(hppo: HPPO) -> HPPO:
    for weight in hppo.network.parameters():
        weight.data.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return hppo


# -------------------------------------------------------------------------------------------------------------- options


def test_an_option_lasts_for_its_ticks_or_until_its_episode_ends() -> None:
    """Episodes of 6 ticks, options of 4: decisions on ticks 0, 4, 6, 10."""
    rollout = played(worker()).rollout
    decides = np.isin(np.arange(12), (0, 4, 6, 10))
    assert (rollout.decides[:-1] == decides[:, None]).all()
    for t in np.flatnonzero(~decides):
        assert (rollout.options[t] == rollout.options[t - 1]).all()
    assert len(set(rollout.options.ravel())) == 3


# ----------------------------------------------------------------------------------------------------- option returns


def valued(hppo: HPPO, value: float) -> HPPO:
    """Sets all values of the manager to the same number."""
    with torch.no_grad():
        for weight in hppo.network.manager.critic.parameters():
            weight.zero_()
        hppo.network.manager.critic[-1].bias.fill_(value)
    return hppo


def returns_of(hppo: HPPO) -> dict[int, float]:
    """The returns of the first row's finished options, by the index of their first own action."""
    made = evaluate(hppo).decisions.view(-1, ROWS, 5)[:, 0]
    return {t: float(made[t, 4]) for t in range(len(made)) if made[t, 0]}


ONES = {"reward": lambda observations, actions: np.ones(len(actions))}
BY_HAND = {"gamma": 0.5, "hidden_sizes": (8,), "n_steps": 12, "option_ticks": 4}


def test_option_returns_of_a_chain_by_hand() -> None:
    """Episodes of 6, gamma 1/2, all values 16: 1 + 1/2 + 1/4 + 1/8 + 16/16, and 1 + 1/2 + 16/4 where one is cut."""
    cut = played(valued(worker(game(**ONES), **BY_HAND, gae_lambda=0.0), 16.0))
    assert returns_of(cut) == pytest.approx({0: 2.875, 4: 5.5, 6: 2.875, 10: 5.5})
    over = played(valued(worker(game(**ONES, cut=False), **BY_HAND, gae_lambda=0.0), 16.0))
    assert returns_of(over) == pytest.approx({0: 2.875, 4: 1.5, 6: 2.875, 10: 1.5})
    longest = played(valued(worker(game(**ONES, length=99), **BY_HAND, gae_lambda=0.0), 16.0))
    assert returns_of(longest) == pytest.approx({0: 2.875, 4: 2.875, 8: 2.875})


def test_waiting_row_discounts_options_by_its_own_actions() -> None:
    """It acts on every other tick: 2 + 2/2 in an option of 2, and 1/4 of 16 after it; 2 + 1/2 before an end."""
    alternating = {**ONES, "active": lambda tick: np.full(ROWS, tick % 2 == 0)}
    hppo = worker(game(**alternating, length=7), **{**BY_HAND, "option_ticks": 2}, gae_lambda=0.0)
    assert returns_of(played(valued(hppo, 16.0))) == pytest.approx({0: 7.0, 2: 6.5, 4: 7.0})


def test_worker_value_is_of_its_option_or_the_mean() -> None:
    hppo = disturbed(worker(game(length=5), gamma=1.0, gae_lambda=0.0, n_steps=8))
    rollout = played(hppo).rollout
    returns = evaluate(hppo).returns.view(8, ROWS).numpy()
    network = hppo.network

    def value(leaves: Any, option: Any) -> Any:
        picks = torch.as_tensor(option).expand(ROWS)
        return network.value([*leaves, picks]).detach().numpy()

    def mean(leaves: Any) -> Any:
        likely = network.manager.policy(leaves).logits.softmax(-1).detach().numpy()
        return sum(likely[:, option] * value(leaves, option) for option in range(3))

    np.testing.assert_allclose(returns[1], rollout.rewards[1] + value(rollout.leaves(2), rollout.options[2]), rtol=1e-4)
    cut = value(rollout.final_leaves(), rollout.options[4])  # on tick 4 a new option has just begun
    np.testing.assert_allclose(returns[4], rollout.rewards[4] + cut, rtol=1e-4, atol=1e-5)
    last = value(rollout.leaves(8), rollout.options[7])
    np.testing.assert_allclose(returns[7], rollout.rewards[7] + last, rtol=1e-4, atol=1e-5)
    whole = disturbed(worker(game(length=99), gamma=1.0, gae_lambda=0.0, n_steps=8))
    network, rollout = whole.network, played(whole).rollout
    returns = evaluate(whole).returns.view(8, ROWS).numpy()
    np.testing.assert_allclose(returns[7], rollout.rewards[7] + mean(rollout.leaves(8)), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------- the maths


def test_closed_form_gradient_equals_autograd() -> None:
    hppo = worker(ent_coef=0.3)
    batch = evaluate(played(hppo))
    disturbed(hppo)
    hppo.optimizer.zero_grad()

    def loss(network: Any, leaves: Any, actions: Any, old: Any, advantages: Any, returns: Any) -> Any:
        policy, values = network.policy_and_value(leaves)
        ratio = (policy.log_prob(actions) - old).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return -gain + 0.5 * (values - returns).square() - 0.3 * policy.entropy()

    *leaves, options = batch.observations
    own = loss(hppo.network, batch.observations, batch.actions, batch.log_probs, batch.advantages, batch.returns)
    made, log_probs, _, advantages, returns = batch.decisions.unbind(1)
    # rows without a decision are computed as well; `made` leaves them out of the sum
    managers = loss(hppo.network.manager, leaves, options, log_probs, advantages, returns)
    (own.mean() + 4 * (managers * made).sum() / batch.size).backward()
    expected = hppo.optimizer.gradient.clone()
    hppo.optimizer.zero_grad()
    measured = hppo.backward(batch)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(hppo.optimizer.gradient, expected, atol=3e-6, rtol=1e-4)
    assert len(measured) == len(hppo.metric_names)


def test_a_minibatch_without_a_decision_moves_the_worker_alone() -> None:
    hppo = worker()
    batch = evaluate(played(hppo))
    batch = batch.take((batch.decisions[:, 0] == 0).nonzero().squeeze(1))
    hppo.optimizer.zero_grad()
    assert hppo.backward(batch)[-3:].tolist() == [0.0] * 3
    assert all(not weight.grad.any() for weight in hppo.network.manager.parameters())
    assert any(weight.grad.any() for weight in hppo.network.actor.parameters())


def test_managers_divergence_is_the_mean_over_all_decisions() -> None:
    """Two workers with different numbers of rows and of decisions."""

    def work(group: ThreadGroup) -> tuple[float, float, float]:
        ticks = None if group.rank == 0 else lambda tick: np.full(3, tick % 2 == 0)
        hppo = worker(
            game(seed=group.rank, rows=5 - 2 * group.rank, active=ticks), group, minibatch_size=999, n_epochs=1
        )
        batch = evaluate(played(hppo))
        disturbed(hppo)
        made = batch.decisions[:, 0] > 0
        *leaves, options = (leaf[made] for leaf in batch.observations)
        with torch.no_grad():
            log_ratio = hppo.network.manager.policy(leaves).log_prob(options) - batch.decisions[made, 1]
        figures = hppo.update(batch, batch.size)
        return float((log_ratio.exp() - 1 - log_ratio).sum()), float(made.sum()), figures["option_approx_kl"]

    (first, some, found), (second, others, same) = together(2, work)
    assert some != others
    assert found == same == pytest.approx((first + second) / (some + others), rel=1e-4)
    assert found > 0.01


# ------------------------------------------------------------------------------------------------------------- memory

MEMORY = {"recurrent": "gru", "hidden_size": 6, "sequence_length": 5}


def taking_turns(tick: int) -> Any:
    return np.array([True, tick % 2 == 0, tick % 2 == 1, tick % 3 == 0])


def test_memories_of_both_levels_advance_on_every_own_tick() -> None:
    """Unrolled sequences have the features of single ticks, for the manager also between its decisions."""
    hppo = disturbed(worker(game(active=taking_turns, length=7), **MEMORY, n_steps=23))
    rollout = played(hppo).rollout
    batch, network = evaluate(hppo), hppo.network
    memory = torch.stack([rollout.leaves(t)[-1] for t in range(rollout.ticks + 1)])  # [T + 1, B, M]
    assert memory.shape[-1] == hppo.memory_size == 4 * 6
    for part in memory.chunk(2, -1):  # the worker's, then the manager's
        for t in range(23):
            moved = (part[t + 1] != part[t]).any(-1).tolist()
            assert moved == ([True] * ROWS if (t + 1) % 7 == 0 else taking_turns(t).tolist())
            assert not part[t + 1].any() or (t + 1) % 7
    seen, _ = network.parted(batch.observations)
    for level, leaves in ((network, batch.observations), (network.manager, seen)):
        with torch.no_grad():
            stepped, unrolled = level.encoder(leaves), level.encoder.unrolled(leaves, batch.lengths)
            forgetful = level.encoder([*leaves[:-1], torch.zeros_like(leaves[-1])])
        torch.testing.assert_close(unrolled, stepped, atol=1e-5, rtol=0)
        assert (stepped - forgetful).abs().max() > 0.1


def test_managers_gradient_with_memory_is_that_of_its_decisions() -> None:
    hppo = worker(ent_coef=0.3, **MEMORY)
    batch = evaluate(played(hppo))
    disturbed(hppo)
    made = batch.decisions[:, 0] > 0
    seen, options = hppo.network.parted(batch.observations)
    policy, values = hppo.network.manager.policy_and_value(seen, None, batch.lengths)
    _, old, _, advantages, returns = batch.decisions.unbind(1)
    ratio = (policy.log_prob(options) - old).exp()
    gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    losses = -gain + 0.5 * (values - returns).square() - 0.3 * policy.entropy()
    weights = list(hppo.network.manager.parameters())
    expected = torch.autograd.grad(4 * losses[made].sum() / batch.size, weights)
    hppo.optimizer.zero_grad()
    measured = dict(zip(hppo.metric_names, hppo.backward(batch).tolist(), strict=True))
    for weight, gradient in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, atol=1e-6, rtol=1e-4)
    assert measured["option_decisions"] == pytest.approx(float(made.float().mean()))
    assert max(float(gradient.abs().max()) for gradient in expected) > 0.01


def test_actor_remembers_as_the_worker_does() -> None:
    """On the worker's own observations the actor's features are those of the rollout."""
    hppo = disturbed(worker(game(active=taking_turns), **MEMORY, option_ticks=1))
    env, seen = game(active=taking_turns), []
    manager = hppo.network.manager
    act, play = hppo.actor(greedy=True), manager.act
    manager.act = lambda leaves, mask=None: (seen.append(leaves[-1].clone()), play(leaves, mask))[1]
    hppo.rollout.begin(*env.reset())
    observations, infos = env._seen, env._infos()
    for tick in range(12):
        actions = act(observations, infos)
        step = env.step(actions)
        leaves = hppo.rollout.leaves(tick)
        assert torch.equal(seen[-1], leaves[-1])
        picked = play(leaves)[0].mode()
        hppo.rollout.decide(tick, picked.numpy(), slice(None))
        with torch.no_grad():
            after = hppo.network.act(hppo.network.joined(leaves, picked, play(leaves)[1]))[1]
        hppo.rollout.remember(tick, after)
        hppo.rollout.add(tick, actions, *step)
        observations, infos = step[0], step[-1]
    assert seen[-1].any()


# -------------------------------------------------------------------------------------------------------------- state


def test_actor_keeps_its_option_and_has_no_side_effects() -> None:
    hppo = disturbed(worker(game(rows=2), n_options=3, option_ticks=3))
    observations, _ = hppo.env.reset()
    before = hppo.state_dict()
    asked: list[Any] = []
    play = hppo.network.act
    hppo.network.act = lambda leaves, mask=None: (asked.append(leaves[-1].tolist()), play(leaves, mask))[1]
    act = hppo.actor()
    for tick in range(60):
        act(observations, {"_final_obs": np.array([False, tick == 1])})
    first, second = np.array(asked).T
    assert (first.reshape(-1, 3) == first[::3, None]).all()
    assert (second[1:58].reshape(-1, 3) == second[1:58:3, None]).all()
    assert len(set(first)) == 3
    assert all_equal(before, hppo.state_dict())


# ----------------------------------------------------------------------------------------------------------- learning
