"""Hierarchical PPO: options and their rewards by hand, the gradient against autograd, groups, state, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena import registry
from arena.errors import BudgetReached, ConfigError
from arena.records.state_codec import decode, encode
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, solo_group, together
from learning_steps import evaluate, learn, play
from policies.common.rollout import Batch
from policies.hppo import HPPO, UNDECIDED

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


def test_an_option_counts_the_rows_own_actions() -> None:
    hppo = played(worker(game(length=99, active=lambda tick: np.arange(ROWS) % 2 == tick % 2), option_ticks=2))
    even, odd = np.flatnonzero(hppo.rollout.decides[:-1, 0]), np.flatnonzero(hppo.rollout.decides[:-1, 1])
    assert even.tolist() == [0, 4, 8]
    assert odd.tolist() == [1, 5, 9]


def test_option_continues_in_the_next_rollout() -> None:
    hppo = played(worker(game(length=99), n_steps=6))
    before = hppo.rollout.options[-1].copy()
    hppo.rollout.advance()
    play(hppo)
    assert (hppo.rollout.options[:2] == before).all()
    assert np.flatnonzero(hppo.rollout.decides[:, 0]).tolist() == [2, 6]


# ----------------------------------------------------------------------------------------------------- option returns


@pytest.mark.parametrize("cut", [True, False])
def test_option_return_is_discounted_by_its_duration(cut: bool) -> None:
    hppo = disturbed(worker(game(cut=cut), gamma=0.9, gae_lambda=0.0, n_steps=11))
    rollout = played(hppo).rollout
    batch = evaluate(hppo)
    decisions = batch.decisions.view(11, ROWS, 5)
    manager, rewards = hppo.network.manager, rollout.rewards
    with torch.no_grad():
        values = [manager.value(rollout.leaves(t)).numpy() for t in range(12)]
        finals = manager.value(rollout.final_leaves()).numpy() if cut else np.zeros(ROWS)
        policies = [manager.policy(rollout.leaves(t)) for t in range(11)]
    after = {0: (4, values[4]), 4: (6, finals), 6: (10, values[10])}  # the last option, of tick 10, is not over
    assert decisions[..., 0].nonzero()[:, 0].unique().tolist() == [0, 4, 6]
    for begin, (end, worth) in after.items():
        lasted = end - begin  # 4, then 2 as the episode ends, then 4
        inside = sum(0.9**j * rewards[begin + j] for j in range(lasted))
        expected = inside + 0.9**lasted * worth
        np.testing.assert_allclose(decisions[begin, :, 4], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(decisions[begin, :, 3], expected - values[begin], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(decisions[begin, :, 2], values[begin], rtol=1e-5, atol=1e-6)
        picked = torch.from_numpy(rollout.options[begin])
        np.testing.assert_allclose(decisions[begin, :, 1], policies[begin].log_prob(picked), rtol=1e-5)


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


def test_with_lambda_1_option_return_is_the_discounted_sum() -> None:
    hppo = played(disturbed(worker(game(cut=False), gamma=0.9, gae_lambda=1.0)))
    rewards, found = hppo.rollout.rewards[:, 0], returns_of(hppo)
    sums = {t: sum(0.9 ** (u - t) * rewards[u] for u in range(t, 6 if t < 6 else 12)) for t in (0, 4, 6, 10)}
    assert found == pytest.approx(sums, abs=1e-5)
    worker_alone = evaluate(hppo).returns.view(12, ROWS)[:, 0]
    assert found == pytest.approx({t: float(worker_alone[t]) for t in sums}, abs=1e-5), "both levels mean the same"


def test_waiting_row_discounts_options_by_its_own_actions() -> None:
    """It acts on every other tick: 2 + 2/2 in an option of 2, and 1/4 of 16 after it; 2 + 1/2 before an end."""
    alternating = {**ONES, "active": lambda tick: np.full(ROWS, tick % 2 == 0)}
    hppo = worker(game(**alternating, length=7), **{**BY_HAND, "option_ticks": 2}, gae_lambda=0.0)
    assert returns_of(played(valued(hppo, 16.0))) == pytest.approx({0: 7.0, 2: 6.5, 4: 7.0})


def test_option_cut_by_a_leg_keeps_its_duration() -> None:
    """The leg ends after 6 ticks, which cuts all episodes; the rest of the rollout is played in the next leg."""
    first = valued(worker(game(**ONES, ticks=6), **BY_HAND, gae_lambda=0.0), 16.0)
    with pytest.raises(BudgetReached):
        played(first)
    second = valued(worker(game(**ONES, length=99), **BY_HAND, gae_lambda=0.0), 16.0)
    second.load_worker_state_dict(decode(*encode(first.worker_state_dict())))
    assert second.rollout.played == 6
    assert returns_of(played(second)) == pytest.approx({0: 2.875, 4: 5.5, 6: 2.875})


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


def test_update_stops_on_the_managers_divergence() -> None:
    def learned(target_kl: float | None) -> HPPO:
        hppo = worker(target_kl=target_kl, minibatch_size=999, n_epochs=6)
        batch = evaluate(played(hppo))
        with torch.no_grad():
            hppo.network.manager.actor[-1].bias += torch.tensor([1.0, -1.0, 0.0])
        learn(hppo, batch)
        return hppo

    assert learned(None).early_stops == 0
    assert learned(0.01).early_stops == 1
    assert np.array_equal(flat_weights(learned(0.01).network.actor), flat_weights(worker().network.actor))


def test_rollout_without_completed_decisions_has_no_divergence() -> None:
    env = game(length=99, ticks=8)
    figures = trained(env, n_steps=4, option_ticks=4, gamma=0.9).group.logged
    assert all(np.isfinite(each["option_approx_kl"]) for each in figures)
    assert "option_decisions" not in figures[0]
    waiting = game(length=99, ticks=8, active=lambda tick: np.full(ROWS, tick < 2))
    (first, *_) = trained(waiting, n_steps=4, option_ticks=4).group.logged
    assert np.isnan(first["option_approx_kl"])
    assert first["option_policy_loss"] == 0


# -------------------------------------------------------------------------------------------------------------- state


def test_partial_rollout_is_kept_with_its_options() -> None:
    parted = trained(game(ticks=18))
    own = decode(*encode(parted.worker_state_dict()))
    fresh = worker()
    fresh.load_worker_state_dict(own)
    assert fresh.rollout.played == 6
    for mine, theirs in (
        (fresh.rollout.options, parted.rollout.options),
        *zip(fresh.rollout.course, parted.rollout.course, strict=True),
    ):
        assert (mine[:6] == theirs[:6]).all()
    assert (fresh.rollout.course.options[6] == UNDECIDED).all()


def test_actor_keeps_its_option_and_has_no_side_effects() -> None:
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
            registry.decode_options(HPPO, options, path="")
    with pytest.raises(ConfigError, match="importance sampling needs a policy without options"):
        worker().log_prob(None, None, None)


# ----------------------------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_options_and_actions() -> None:
    """The worker's observation suffices; the manager has nothing to add, and must not hinder learning."""

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


@pytest.mark.slow
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
