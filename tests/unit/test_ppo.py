"""PPO: the maths against slow formulas, groups against one worker, state, known optima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena.errors import ConfigError
from arena.run.api import untouched_process
from fakes import (
    ACTIONS,
    OBSERVATIONS,
    ScriptedEnv,
    ThreadGroup,
    all_equal,
    final_observations,
    flat_weights,
    random_rewards,
    solo_group,
    together,
)
from learning_steps import learn, rollout_of, run
from policies.a2c import A2C
from policies.common.columns import to_leaves
from policies.common.rollout import Batch
from policies.hppo import HPPO
from policies.ppo import PPO

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {"n_steps": 8, "minibatch_size": 16, "hidden_sizes": (8,)}


def worker(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> PPO:
    return PPO(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


# ------------------------------------------------------------------------------------------------------- the maths


STRICT = {"clip_range": 0.1, "clip_range_vf": 0.2, "vf_coef": 0.7, "ent_coef": 0.3}


def random_batch(ppo: PPO, *, count: int = 50, masked: bool = False) -> Batch:
    """Transitions of a policy and a critic that have moved since by more than the ranges of `STRICT`."""
    draw = torch.Generator().manual_seed(3)
    space = batch_space(ppo.env.single_observation_space, count)
    space.seed(4)
    leaves = to_leaves(ppo.env.single_observation_space, space.sample())
    mask = torch.rand(count, ppo.head.mask_size, generator=draw) < 0.7 if masked else None
    with torch.no_grad():
        for weight in ppo.network.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
        policy, values = ppo.network.policy_and_value(leaves, mask)
        actions = policy.sample(ppo.head.noise(1, count, draw)[0])
        return Batch(
            observations=tuple(leaves),
            masks=mask,
            actions=actions,
            log_probs=policy.log_prob(actions) + 0.2 * torch.randn(count, generator=draw),
            values=values + 0.3 * torch.randn(count, generator=draw),
            advantages=torch.randn(count, generator=draw),
            returns=values + torch.randn(count, generator=draw),
        )


def test_metrics_are_the_terms_of_equation_9() -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE), **STRICT)
    batch = random_batch(ppo)
    measured = ppo.backward(batch)
    with torch.no_grad():
        policy, values = ppo.network.policy_and_value(batch.observations)
    probs, total = torch.softmax(policy.logits, -1), np.zeros(5)
    for i in range(batch.size):
        log_ratio = float(torch.log(probs[i, batch.actions[i]]) - batch.log_probs[i])
        ratio, advantage = np.exp(log_ratio), float(batch.advantages[i])
        new, old, target = float(values[i]), float(batch.values[i]), float(batch.returns[i])
        near = old + min(max(new - old, -0.2), 0.2)
        total += (
            -min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage),
            max((new - target) ** 2, (near - target) ** 2),
            -sum(float(p) * np.log(float(p)) for p in probs[i]),
            ratio - 1 - log_ratio,
            not 0.9 <= ratio <= 1.1,
        )
    np.testing.assert_allclose(measured.numpy(), total / batch.size, rtol=1e-4, atol=1e-5)
    assert 0.1 < measured[4] < 0.9


@pytest.mark.parametrize("cut", [True, False])
def test_truncated_episode_bootstraps_from_its_last_observation(cut: bool) -> None:
    env = ScriptedEnv(VECTOR, CHOICE, rows=2, length=3, cut=cut)
    ppo = worker(env, gamma=1.0, gae_lambda=0.0, n_steps=7)
    finals = final_observations(env)
    batch = rollout_of(ppo)
    for t in (2, 5):
        last = ppo.network.value([torch.tensor(np.stack(list(finals[t])))]).detach()
        expected = last if cut else torch.zeros(2)
        torch.testing.assert_close(batch.returns.view(7, 2)[t], expected)


@pytest.mark.parametrize("recurrent", [None, "gru"])
@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_complete_episodes_are_learned_once_with_their_whole_returns(
    cut: bool, in_turns: bool, recurrent: str | None
) -> None:
    """Episodes are shorter and longer than a rollout; their returns are sums of rewards, of cut ones with V beyond."""
    rng, rewards, learned = np.random.default_rng(0), [], []

    def reward(observations: Any, actions: Any) -> Any:
        rewards.append(rng.normal(size=4))
        return rewards[-1]

    lengths: Any = np.array([3, 5, 11, 31])
    more: Any = {"active": lambda tick: (np.arange(4) + tick) % 2 == 0} if in_turns else {}
    env = ScriptedEnv(VECTOR, CHOICE, rows=4, ticks=66, length=lengths, cut=cut, reward=reward, **more)
    memory: Any = {"recurrent": recurrent, "sequence_length": 4} if recurrent else {}
    settings = {"batch_mode": "complete_episodes", "gamma": 1.0, "gae_lambda": 1.0, "n_steps": 6, "learning_rate": 0.0}
    ppo = worker(env, **settings, **memory)
    with torch.no_grad():
        for weight in ppo.network.critic.parameters():
            weight.zero_()  # V is 0, and stays so
    learn_from = ppo.learn_from

    def watched(batch: Batch) -> Any:
        learned.append(batch.returns)
        return learn_from(batch)

    ppo.learn_from = watched  # type: ignore[method-assign]
    run(ppo)
    expected = []
    for row, length in enumerate(lengths):
        for begin in range(0, 66 - length + 1, length):
            acted = [t for t in range(begin, begin + length) if not in_turns or (row + t) % 2 == 0]
            expected += [sum(rewards[later][row] for later in range(t, begin + length)) for t in acted]
    np.testing.assert_allclose(np.sort(torch.cat(learned).numpy()), np.sort(expected), atol=1e-5)


@pytest.mark.slow
def test_all_parts_of_a_dict_action_learn_their_best_values() -> None:
    """The best action of the only state is choice 2 of 4, both flags, and the number 1.2 of -0.5 to 2."""
    number = spaces.Box(-0.5, 2.0, (1,), np.float32)
    space = spaces.Dict(choice=CHOICE, rest=spaces.Tuple((number, spaces.MultiBinary(2))))

    def reward(observations: Any, actions: Any) -> Any:
        value, flags = actions["rest"]
        return (actions["choice"] == 2) - np.square(value[:, 0] - 1.2) + 0.5 * flags.sum(1)

    env = ScriptedEnv(VECTOR, space, rows=16, ticks=1600, length=1, cut=False, reward=reward)
    ppo = run(worker(env, n_steps=16, minibatch_size=64, learning_rate=5e-3, learning_rate_schedule="linear"))
    best = ppo.actor(greedy=True)(env.observation_space.sample(), {})
    assert (best["choice"] == 2).all() and best["rest"][1].all()
    np.testing.assert_allclose(best["rest"][0], 1.2, atol=0.15)


def test_a_linear_schedule_falls_to_zero_at_the_end_of_the_run() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, ticks=32)
    rates = [
        logged["learning_rate"]
        for logged in run(worker(env, learning_rate=0.1, learning_rate_schedule="linear")).group.logged
    ]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


# ---------------------------------------------------------------------------------------- spaces, masks, who is active


@pytest.mark.slow
@pytest.mark.parametrize(("observation_space", "action_space"), list(zip(OBSERVATIONS, ACTIONS, strict=True)), ids=str)
def test_plays_and_learns_with_every_kind_of_space(observation_space: Any, action_space: Any) -> None:
    PPO.check(observation_space, action_space)
    env = ScriptedEnv(observation_space, action_space, ticks=8, reward=random_rewards(0))
    before = flat_weights(worker(env).network)
    ppo = run(worker(env))
    assert ppo.updates == 1
    assert all(env.action_space.contains(actions) for actions in env.actions)
    after = flat_weights(ppo.network)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)


# ------------------------------------------------------------------------------------------------------------ groups


def unequal_env(group: ThreadGroup, **more: Any) -> ScriptedEnv:
    """Workers with 3, 5, ... rows that see different things."""
    rank = group.rank
    return ScriptedEnv(VECTOR, CHOICE, rows=3 + 2 * rank, seed=rank, length=7, reward=random_rewards(rank), **more)


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_stop_early_on_the_divergence_of_the_group(sync: str) -> None:
    """On one full batch they equal one worker with the samples of both."""
    options = {"minibatch_size": 999, "n_epochs": 5, "learning_rate": 2e-3, "target_kl": 2e-5, "ent_coef": 0.01}

    def work(group: ThreadGroup) -> tuple[Batch, Any]:
        ppo = worker(unequal_env(group), group, **options)
        batch = rollout_of(ppo)
        figures = learn(ppo, batch)
        return batch, (flat_weights(ppo.network), figures)

    (first, mine), (second, yours) = together(2, work, sync=sync)
    alone = worker(ScriptedEnv(VECTOR, CHOICE), **options)
    expected = learn(alone, Batch.cat([first, second]))
    assert np.array_equal(mine[0], yours[0])
    np.testing.assert_allclose(mine[0], flat_weights(alone.network), atol=1e-6, rtol=0)
    assert mine[1] == yours[1] == pytest.approx(expected, abs=1e-5)
    assert alone.early_stops == 1


def test_every_update_is_logged_and_offered_for_saving() -> None:
    ppo = run(worker(ScriptedEnv(VECTOR, CHOICE, ticks=30, reward=random_rewards(0))))
    assert ppo.updates == len(ppo.group.logged) == len(ppo.group.saved) == 3
    assert set(ppo.group.logged[0]) == {
        *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "early_stops"),
        *("explained_variance", "learning_rate"),
    }


# ---------------------------------------------------------------------------------------------------- seeds and state


def test_loaded_workers_have_separate_random_streams() -> None:
    stored = run(worker(ScriptedEnv(VECTOR, CHOICE, ticks=8))).state_dict()

    def work(group: ThreadGroup) -> Any:
        ppo = worker(ScriptedEnv(VECTOR, CHOICE), group)
        ppo.load_state_dict(stored)
        return ppo.state_dict(), ppo.generator.get_state().numpy().tobytes()

    found = together(3, work)
    assert all(all_equal(state["network"], stored["network"]) for state, _ in found)
    assert len({stream for _, stream in found}) == 3


# ------------------------------------------------------------------------------------------------------------ options


def test_a_rollout_longer_than_the_run_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="set n_steps to 5 or less, or ticks to 8 or more"):
        PPO.sizes(SMALL, rows=4, ticks=5, workers=1)


# ---------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("algorithm", [PPO, A2C, HPPO])
def test_update_from_one_transition_learns(algorithm: type[PPO]) -> None:
    """A single advantage minus its mean would be 0."""
    env = ScriptedEnv(CHOICE, CHOICE, rows=1, ticks=3, reward=matching)
    options = {"n_steps": 1, "hidden_sizes": (8,), **({"option_ticks": 1} if algorithm is HPPO else {})}
    made = algorithm(env, solo_group(), ticks=3, normalize_advantage=True, ent_coef=0.0, **options)
    before = flat_weights(made.network.actor)
    run(made)
    assert not np.array_equal(flat_weights(made.network.actor), before)


@pytest.mark.slow
def test_action_far_from_zero_is_found() -> None:
    env = ScriptedEnv(VECTOR, spaces.Box(0, 100, (2,)), rows=16, ticks=480, length=50, reward=near_70)
    options = {"n_steps": 16, "learning_rate": 3e-3, "n_epochs": 6, "minibatch_size": 64, "gamma": 0.0}
    found = run(worker(env, **options, hidden_sizes=(16,))).actor(greedy=True)(*env.reset())
    assert np.abs(found - 70).mean() < 12


def test_torch_optimizer_replaces_adam_and_is_saved() -> None:
    class OwnOptimizer(PPO):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.optimizer = torch.optim.RMSprop(self.network.parameters(), momentum=0.5)

        def shape_gradient(self, gradient: torch.Tensor) -> dict[str, float]:
            gradient *= 0.5
            return {"shaped": float(gradient.square().sum())}

    def work(group: ThreadGroup) -> Any:
        own = OwnOptimizer(ScriptedEnv(VECTOR, CHOICE, ticks=40), group, ticks=40, **SMALL)
        before = {name: weight.clone() for name, weight in own.network.state_dict().items()}
        run(own)
        assert any(not torch.equal(before[name], weight) for name, weight in own.network.state_dict().items())
        again = OwnOptimizer(ScriptedEnv(VECTOR, CHOICE, ticks=40), solo_group(), ticks=40, **SMALL)
        again.load_state_dict(own.state_dict())
        torch.testing.assert_close(again.optimizer.state_dict(), own.optimizer.state_dict(), rtol=0, atol=0)
        return own.state_dict()["network"]

    first, second = together(2, work)
    assert all_equal(first, second)
    with pytest.raises(ConfigError, match="is no RMSprop"):
        OwnOptimizer(ScriptedEnv(VECTOR, CHOICE), solo_group(), ticks=40, **SMALL).load_state_dict(
            run(worker(ScriptedEnv(VECTOR, CHOICE, ticks=8))).state_dict()
        )


def test_groups_of_parameters_of_an_own_optimizer_keep_their_ratios() -> None:
    class TwoRates(PPO):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            slow, fast = [*self.network.critic.parameters()], [*self.network.actor.parameters()]
            self.optimizer = torch.optim.SGD([{"params": slow, "lr": 0.1}, {"params": fast, "lr": 0.4}])

    def rates(made: Any) -> list[float]:
        run(made)
        return [group["lr"] for group in made.optimizer.param_groups]

    options = {**SMALL, "learning_rate": 0.02}
    made = TwoRates(ScriptedEnv(VECTOR, CHOICE, ticks=40), solo_group(), ticks=40, **options)
    assert rates(made) == pytest.approx([0.005, 0.02])
    again = TwoRates(ScriptedEnv(VECTOR, CHOICE, ticks=40), solo_group(), ticks=80, **options)
    again.load_state_dict(made.state_dict())
    assert rates(again) == pytest.approx([0.005, 0.02]), "also after a resume"


def matching(observations: Any, actions: Any) -> Any:
    return (observations == actions).astype(np.float64)


def near(observations: Any, actions: Any) -> Any:
    return -np.abs(actions - observations).mean(axis=1).astype(np.float64)


def near_70(observations: Any, actions: Any) -> Any:
    return -np.abs(actions - 70).mean(axis=1).astype(np.float64)


def test_missing_device_is_refused_with_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    PPO.check_options({"device": "auto"})
    with pytest.raises(ConfigError, match=r"options\.device: got 'cuda', .* torch finds no CUDA device"):
        PPO.check_options({"device": "cuda"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with untouched_process():  # torch's settings are those of the process
        PPO.check_options({"device": "cuda"})


@pytest.mark.parametrize("space", ACTIONS[:3], ids=lambda space: type(space).__name__)
def test_log_prob_of_played_actions_equals_that_of_the_rollout(space: Any) -> None:
    masks = None if not isinstance(space, spaces.Discrete) else lambda tick: np.array([[1, 1, 0]] * 4, np.int8)
    ppo = worker(ScriptedEnv(VECTOR, space, masks=masks))
    batch = rollout_of(ppo)
    held = None if batch.masks is None else batch.masks.numpy().astype(np.int8)
    found = ppo.log_prob(batch.observations[0].numpy(), np.concatenate(ppo.env.actions), held)
    assert found.dtype == np.float64
    assert found == pytest.approx(batch.log_probs.double().numpy(), abs=1e-6)
