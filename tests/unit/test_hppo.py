"""Hierarchical PPO: options and their rewards by hand, the gradient against autograd, groups, state, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena.errors import BudgetReached, ConfigError
from arena.records.state import decode, encode
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, solo_group, together
from policies.hppo import HPPO, UNDECIDED
from policies.rollout import Batch, from_samples, to_samples

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


def trained(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> HPPO:
    hppo = worker(env, group, **options)
    with pytest.raises(BudgetReached):
        hppo.run()
    return hppo


def played(hppo: HPPO) -> HPPO:
    """After one rollout, which is not learnt from yet."""
    hppo.rollout.begin(*hppo.env.reset())
    hppo.collect(hppo.rollout)
    return hppo


def disturbed(hppo: HPPO) -> HPPO:
    for weight in hppo.network.parameters():
        weight.data.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return hppo


# --------------------------------------------------------------------------------------------------- which option it is


def test_an_option_lasts_for_its_ticks_or_until_its_episode_ends() -> None:
    """Episodes of 6 ticks, options of 4: decisions on ticks 0, 4, 6, 10."""
    rollout = played(worker()).rollout
    decides = np.isin(np.arange(12), (0, 4, 6, 10))
    assert (rollout.decides[:-1] == decides[:, None]).all()
    for t in np.flatnonzero(~decides):
        assert (rollout.options[t] == rollout.options[t - 1]).all()
    assert len(set(rollout.options.ravel())) == 3


def test_an_option_counts_the_rows_own_actions() -> None:
    hppo = played(worker(game(length=99, active=lambda tick: np.arange(ROWS) % 2 == tick % 2), option_ticks=2))
    even, odd = np.flatnonzero(hppo.rollout.decides[:-1, 0]), np.flatnonzero(hppo.rollout.decides[:-1, 1])
    assert even.tolist() == [0, 4, 8]
    assert odd.tolist() == [1, 5, 9]


def test_an_option_goes_on_in_the_next_rollout() -> None:
    hppo = played(worker(game(length=99), n_steps=6))
    before = hppo.rollout.options[-1].copy()
    hppo.rollout.go_on()
    hppo.collect(hppo.rollout)
    assert (hppo.rollout.options[:2] == before).all()
    assert np.flatnonzero(hppo.rollout.decides[:, 0]).tolist() == [2, 6]


# -------------------------------------------------------------------------------------------------- what it was worth


@pytest.mark.parametrize("cut", [True, False])
def test_an_option_is_worth_the_sum_of_its_rewards_and_what_comes_after_it_discounted_once(cut: bool) -> None:
    hppo = disturbed(worker(game(cut=cut), gamma=0.9, gae_lambda=0.0, n_steps=11))
    rollout = played(hppo).rollout
    batch = hppo.judge(rollout)
    decisions = batch.decisions.view(11, ROWS, 5)
    manager, rewards = hppo.network.manager, rollout.rewards
    with torch.no_grad():
        values = [manager.value(rollout.leaves(t)).numpy() for t in range(12)]
        finals = manager.value(rollout.final_leaves()).numpy() if cut else np.zeros(ROWS)
        policies = [manager.policy(rollout.leaves(t)) for t in range(11)]
    after = {0: (4, values[4]), 4: (6, finals), 6: (10, values[10])}  # the last option, of tick 10, is not over
    assert decisions[..., 0].nonzero()[:, 0].unique().tolist() == [0, 4, 6]
    for begin, (end, worth) in after.items():
        expected = rewards[begin:end].sum(0) + 0.9 * worth
        np.testing.assert_allclose(decisions[begin, :, 4], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(decisions[begin, :, 3], expected - values[begin], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(decisions[begin, :, 2], values[begin], rtol=1e-5, atol=1e-6)
        picked = torch.from_numpy(rollout.options[begin])
        np.testing.assert_allclose(decisions[begin, :, 1], policies[begin].log_prob(picked), rtol=1e-5)


def test_the_worker_values_the_option_that_it_plays_and_before_one_is_picked_the_mean_over_all() -> None:
    hppo = disturbed(worker(game(length=5), gamma=1.0, gae_lambda=0.0, n_steps=8))
    rollout = played(hppo).rollout
    returns = hppo.judge(rollout).returns.view(8, ROWS).numpy()
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
    returns = whole.judge(rollout).returns.view(8, ROWS).numpy()
    np.testing.assert_allclose(returns[7], rollout.rewards[7] + mean(rollout.leaves(8)), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------- the maths


def test_the_gradient_by_hand_is_autograds() -> None:
    hppo = worker(ent_coef=0.3)
    batch = hppo.judge(played(hppo).rollout)
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
    # that nobody decides there makes no difference to what is computed, only to what is counted
    managers = loss(hppo.network.manager, leaves, options, log_probs, advantages, returns)
    (own.mean() + 4 * (managers * made).sum() / batch.size).backward()
    expected = hppo.optimizer.gradient.clone()
    hppo.optimizer.zero_grad()
    measured = hppo.backward(batch)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(hppo.optimizer.gradient, expected, atol=3e-6, rtol=1e-4)
    assert len(measured) == len(hppo.measured)


def test_a_minibatch_without_a_decision_moves_the_worker_alone() -> None:
    hppo = worker()
    batch = hppo.judge(played(hppo).rollout)
    batch = batch.take((batch.decisions[:, 0] == 0).nonzero().squeeze(1))
    hppo.optimizer.zero_grad()
    assert hppo.backward(batch)[-3:].tolist() == [0.0] * 3
    assert all(not weight.grad.any() for weight in hppo.network.manager.parameters())
    assert any(weight.grad.any() for weight in hppo.network.actor.parameters())


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_on_one_full_batch_equal_one_worker_on_the_pooled_data(sync: str) -> None:
    options = {"minibatch_size": 999, "learning_rate": 2e-3}

    def work(group: ThreadGroup) -> tuple[Batch, Any]:
        hppo = worker(game(seed=group.rank, rows=3 + 2 * group.rank), group, **options)
        batch = hppo.judge(played(hppo).rollout)
        hppo.learn(batch)
        return batch, flat_weights(hppo.network)

    (first, mine), (second, yours) = together(2, work, sync=sync)
    alone = worker(**options)
    alone.learn(from_samples([to_samples(first), to_samples(second)]))
    assert np.array_equal(mine, yours)
    np.testing.assert_allclose(mine, flat_weights(alone.network), atol=1e-6, rtol=0)


# -------------------------------------------------------------------------------------------------------------- state


def test_a_stored_state_goes_on_to_the_same_bits() -> None:
    def more(hppo: HPPO) -> Any:
        hppo.env = game(seed=5, ticks=24)
        hppo.generator, hppo.rollout = worker().generator, worker().rollout
        with pytest.raises(BudgetReached):
            hppo.run()
        return hppo.state_dict()

    hppo = trained(game(ticks=24))
    fresh = worker()
    fresh.load_state_dict(decode(*encode(hppo.state_dict())))
    assert all_equal(more(fresh), more(hppo))


def test_a_part_of_a_rollout_is_kept_with_its_options() -> None:
    parted = trained(game(ticks=18))
    own = decode(*encode(parted.own_state_dict()))
    fresh = worker()
    fresh.load_own_state_dict(own)
    assert fresh.rollout.played == 6
    for mine, theirs in (
        (fresh.rollout.options, parted.rollout.options),
        *zip(fresh.rollout.course, parted.rollout.course, strict=True),
    ):
        assert (mine[:6] == theirs[:6]).all()
    assert (fresh.rollout.course.options[6] == UNDECIDED).all()


def test_an_actor_keeps_its_option_until_it_is_over_and_disturbs_nothing() -> None:
    hppo = disturbed(worker(game(rows=2), n_options=3, option_ticks=3))
    observations, _ = hppo.env.reset()
    before = hppo.state_dict()
    asked: list[Any] = []
    policy = hppo.network.policy
    hppo.network.policy = lambda leaves, mask=None: (asked.append(leaves[-1].tolist()), policy(leaves, mask))[1]
    act = hppo.actor()
    for tick in range(60):
        act(observations, {"_final_obs": np.array([False, tick == 1])})
    first, second = np.array(asked).T
    assert (first.reshape(-1, 3) == first[::3, None]).all()
    assert (second[1:58].reshape(-1, 3) == second[1:58:3, None]).all()
    assert len(set(first)) == 3
    assert all_equal(before, hppo.state_dict())


def test_wrong_options_are_refused() -> None:
    for options, message in (
        ({"n_options": 0}, r"options\.n_options"),
        ({"n_steps": 4, "option_ticks": 5}, r"options\.option_ticks: got 5, expected 4 at most"),
        ({"recurrent": "lstm"}, r"options\.recurrent"),
    ):
        with pytest.raises(ConfigError, match=message):
            HPPO.Options(**options)
    with pytest.raises(ConfigError, match="importance sampling needs a policy without options"):
        worker().log_prob(None, None, None)


# ----------------------------------------------------------------------------------------------------------- learning


def test_learns_to_pick_and_to_play() -> None:
    """One who sees its own row can play it; the manager has nothing to add, and must not be in the way."""

    def matching(observations: Any, actions: Any) -> Any:
        return (observations == actions).astype(np.float64)

    def env(ticks: int) -> ScriptedEnv:
        return ScriptedEnv(CHOICE, CHOICE, rows=16, ticks=ticks, length=50, reward=matching)

    options = {"n_steps": 16, "minibatch_size": 64, "learning_rate": 0.01, "gamma": 0.0, "n_epochs": 6}
    hppo = trained(env(16 * 20), **options, hidden_sizes=(32,))
    fresh = env(20)
    act, (observations, infos) = hppo.actor(greedy=True), fresh.reset(seed=9)
    rewards = []
    for _ in range(20):
        observations, reward, _, _, infos = fresh.step(act(observations, infos))
        rewards.append(reward.mean())
    assert np.mean(rewards) >= 0.95


def test_the_manager_learns_which_option_pays() -> None:
    """The worker's weights stand still, and it plays a choice of its own in each option; choice 2 pays."""
    reward = lambda observations, actions: (actions == 2).astype(np.float64)  # noqa: E731
    options = {"n_steps": 32, "minibatch_size": 64, "learning_rate": 0.01, "n_epochs": 6, "hidden_sizes": (8,)}
    hppo = worker(game(rows=16, ticks=32 * 12, length=8, reward=reward), **options)
    backward = hppo.backward

    def of_the_manager_alone(batch: Batch) -> torch.Tensor:
        measured = backward(batch)
        for part in (hppo.network.actor, hppo.network.critic):
            for weight in part.parameters():
                weight.grad.zero_()
        return measured

    hppo.backward = of_the_manager_alone  # type: ignore[method-assign]
    with torch.no_grad():
        first, last = hppo.network.actor[0], hppo.network.actor[-1]
        for weight in (*first.parameters(), *last.parameters()):
            weight.zero_()
        first.weight[:3, 3:] = 3 * torch.eye(3)
        last.weight[:3, :3] = 9 * torch.eye(3)
    with pytest.raises(BudgetReached):
        hppo.run()
    policy = hppo.network.manager.policy([torch.from_numpy(game().reset()[0])])
    assert policy.logits.softmax(-1)[:, 2].min() > 0.9


def test_sizes_take_its_own_options() -> None:
    sizes = HPPO.sizes(SMALL, rows=4, ticks=48, workers=2)
    assert sizes == {"samples per update": 96, "updates per run": 4, "gradient steps per update": 12}
