"""PPO: the maths against slow formulas, groups against one worker, state, known optima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from arena import registry
from arena.errors import BudgetReached, ConfigError
from arena.records.state_codec import decode, encode
from fakes import (
    ScriptedEnv,
    ThreadGroup,
    all_equal,
    flat_weights,
    hide_idle_rows,
    random_rewards,
    solo_group,
    together,
)
from learning_steps import evaluate, learn, play
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


def trained(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> PPO:
    """A worker after its whole run."""
    ppo = worker(env, group, **options)
    with pytest.raises(BudgetReached):
        ppo.run()
    return ppo


def seen(ppo: PPO) -> Batch:
    """The batch of one rollout."""
    ppo.rollout.begin(*ppo.env.reset())
    play(ppo)
    return evaluate(ppo)


OBSERVATIONS = [
    VECTOR,
    spaces.Box(0, 255, (12, 12, 3), np.uint8),
    spaces.Discrete(5, start=2),
    spaces.Dict(a=VECTOR, b=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])])),
]
ACTIONS = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3]], start=[[4, 0]]),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-0.1, 0.1, (2, 1), np.float64),
]


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
    finals: list[Any] = []
    step = env.step

    def watched(actions: Any) -> Any:
        result = step(actions)
        finals.append(result[4].get("final_obs"))
        return result

    env.step = watched  # type: ignore[method-assign]
    batch = seen(ppo)
    for t in (2, 5):
        last = ppo.network.value([torch.tensor(np.stack(list(finals[t])))]).detach()
        expected = last if cut else torch.zeros(2)
        torch.testing.assert_close(batch.returns.view(7, 2)[t], expected)


def test_stored_log_probs_belong_to_the_played_actions() -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE))
    batch = seen(ppo)
    played = np.concatenate(ppo.env.actions)
    assert played.tolist() == batch.actions.tolist()
    log_probs = ppo.network.policy(batch.observations).log_prob(torch.tensor(played))
    torch.testing.assert_close(batch.log_probs, log_probs.detach())


def test_a_linear_schedule_falls_to_zero_at_the_end_of_the_run() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, ticks=32)
    rates = [
        logged["learning_rate"]
        for logged in trained(env, learning_rate=0.1, learning_rate_schedule="linear").group.logged
    ]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


# ---------------------------------------------------------------------------------------- spaces, masks, who is active


@pytest.mark.slow
@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
@pytest.mark.parametrize("observation_space", OBSERVATIONS, ids=str)
def test_plays_and_learns_with_every_kind_of_space(observation_space: Any, action_space: Any) -> None:
    PPO.check(observation_space, action_space)
    env = ScriptedEnv(observation_space, action_space, ticks=8, reward=random_rewards(0))
    before = flat_weights(worker(env).network)
    ppo = trained(env)
    assert ppo.updates == 1
    assert all(env.action_space.contains(actions) for actions in env.actions)
    after = flat_weights(ppo.network)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("size", ["observation", "action"])
def test_check_refuses_spaces_that_ppo_cannot_take(size: str) -> None:
    bad = spaces.Text(3)
    pair = (bad, CHOICE) if size == "observation" else (VECTOR, bad)
    with pytest.raises(ConfigError):
        PPO.check(*pair)


def test_idle_rows_have_no_gradient() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, rows=3, ticks=24, active=lambda tick: (np.arange(3) + tick) % 2 == 0)
    ppo = trained(hide_idle_rows(env))
    assert ppo.updates == 3
    assert np.isfinite(flat_weights(ppo.network)).all()
    assert all(np.isfinite(list(logged.values())).all() for logged in ppo.group.logged)


def test_transitions_are_counted_per_own_turn() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, rows=2, length=99, active=lambda tick: np.array([True, tick % 2 == 0]))
    batch = seen(worker(env, n_steps=7))
    assert batch.size == 7 + 3  # the second row acts on 4 ticks, and on the last of them it waits for what follows


def test_update_without_transitions_logs_nothing() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, ticks=16, active=lambda tick: np.zeros(4, np.bool_))
    ppo = trained(env)
    assert ppo.group.logged == [{}, {}]
    assert np.array_equal(flat_weights(ppo.network), flat_weights(worker(env).network))


# ------------------------------------------------------------------------------------------------------------ groups


def unequal_env(group: ThreadGroup, **more: Any) -> ScriptedEnv:
    """Workers with 3, 5, ... rows that see different things."""
    rank = group.rank
    return ScriptedEnv(VECTOR, CHOICE, rows=3 + 2 * rank, seed=rank, length=7, reward=random_rewards(rank), **more)


@pytest.mark.parametrize("target_kl", [None, 2e-5])
@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_on_one_full_batch_equal_one_worker(sync: str, target_kl: float | None) -> None:
    options = {"minibatch_size": 999, "n_epochs": 5, "learning_rate": 2e-3, "target_kl": target_kl, "ent_coef": 0.01}

    def work(group: ThreadGroup) -> tuple[Batch, Any]:
        ppo = worker(unequal_env(group), group, **options)
        batch = seen(ppo)
        figures = learn(ppo, batch)
        return batch, (flat_weights(ppo.network), figures)

    (first, mine), (second, yours) = together(2, work, sync=sync)
    alone = worker(ScriptedEnv(VECTOR, CHOICE), **options)
    expected = learn(alone, Batch.cat([first, second]))
    assert np.array_equal(mine[0], yours[0])
    np.testing.assert_allclose(mine[0], flat_weights(alone.network), atol=1e-6, rtol=0)
    assert mine[1] == yours[1] == pytest.approx(expected, abs=1e-5)
    assert (alone.early_stops == 1) == (target_kl is not None)


def test_an_update_stops_early_on_the_groups_divergence() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, ticks=8, reward=random_rewards(0))
    ppo = trained(env, target_kl=1e-5, learning_rate=0.1, n_epochs=10)
    assert ppo.early_stops == 1
    assert ppo.group.called.count("average") < 10 * 2


@pytest.mark.parametrize("longest", [None, 0.5])
def test_non_finite_gradient_with_finite_metrics_stops(longest: float | None) -> None:
    env = ScriptedEnv(spaces.Box(-np.inf, np.inf, (3,), np.float32), CHOICE, ticks=8, reward=random_rewards(0))
    sample = env.observation_space.sample

    def spoilt() -> Any:
        seen = sample()
        seen[0, 0] = np.inf  # tanh makes 1 of it, and its derivative is 0 * inf
        return seen

    env.observation_space.sample = spoilt  # type: ignore[method-assign]
    ppo = worker(env, max_grad_norm=longest)
    before = flat_weights(ppo.network)
    with pytest.raises(FloatingPointError, match=r"policy 'blue': update 1 measured \{'gradient_length': nan\}"):
        ppo.run()
    assert np.array_equal(flat_weights(ppo.network), before)


def test_every_update_is_logged_and_offered_for_saving() -> None:
    ppo = trained(ScriptedEnv(VECTOR, CHOICE, ticks=30, reward=random_rewards(0)))
    assert ppo.updates == len(ppo.group.logged) == len(ppo.group.saved) == 3
    assert set(ppo.group.logged[0]) == {
        *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "early_stops"),
        *("explained_variance", "learning_rate"),
    }


# ---------------------------------------------------------------------------------------------------- seeds and state


def test_loaded_workers_have_separate_random_streams() -> None:
    stored = trained(ScriptedEnv(VECTOR, CHOICE, ticks=8)).state_dict()

    def work(group: ThreadGroup) -> Any:
        ppo = worker(ScriptedEnv(VECTOR, CHOICE), group)
        ppo.load_state_dict(stored)
        return ppo.state_dict(), ppo.generator.get_state().numpy().tobytes()

    found = together(3, work)
    assert all(all_equal(state["network"], stored["network"]) for state, _ in found)
    assert len({stream for _, stream in found}) == 3


def test_rollout_split_by_a_leg_is_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parted = trained(ScriptedEnv(VECTOR, CHOICE, ticks=13, reward=random_rewards(0)))
    assert parted.updates == 1
    own = parted.worker_state_dict()
    assert len(own["rewards"]) == 5
    fresh = worker(ScriptedEnv(VECTOR, CHOICE, ticks=13, seed=7, reward=random_rewards(1)))
    fresh.env.ticks = 3  # that are left
    fresh.load_state_dict(parted.state_dict())
    fresh.load_worker_state_dict(decode(*encode(own)))
    learned: list[Batch] = []

    def learn_from(batch: Batch) -> dict[str, float]:
        learned.append(batch)
        return {}

    monkeypatch.setattr(fresh, "learn_from", learn_from)
    with pytest.raises(BudgetReached):
        fresh.run()
    (batch,) = learned
    rows = fresh.env.num_envs
    assert batch.actions[: 5 * rows].numpy().tolist() == own["actions"].ravel().tolist()
    assert batch.size == 8 * rows


def test_worker_state_is_empty_between_rollouts() -> None:
    assert trained(ScriptedEnv(VECTOR, CHOICE, ticks=16)).worker_state_dict() == {}
    assert worker(ScriptedEnv(VECTOR, CHOICE)).worker_state_dict() == {}


def test_states_that_do_not_fit_are_refused() -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE))
    with pytest.raises(ConfigError, match="no state of PPO: it has q_values"):
        ppo.load_state_dict({"q_values": 1})
    a2c = A2C(ScriptedEnv(VECTOR, CHOICE), solo_group(), ticks=99)
    with pytest.raises(ConfigError, match=r"no state of PPO: it has network, .*; expected network, .*, early_stops"):
        ppo.load_state_dict(a2c.state_dict())
    with pytest.raises(ConfigError, match=r"no state of A2C: .*, early_stops; expected"):
        a2c.load_state_dict(ppo.state_dict())
    with pytest.raises(ConfigError, match="do not fit this network"):
        ppo.load_state_dict(worker(ScriptedEnv(VECTOR, CHOICE), hidden_sizes=(9,)).state_dict())


# ------------------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("n_epochs", 0, "whole number, at least 1"),
        ("n_steps", 2.5, "whole number"),
        ("minibatch_size", True, "whole number"),
        ("learning_rate", -1e-3, "at least 0"),
        ("learning_rate", "fast", "found 'fast'; expected a number"),
        ("gamma", 1.5, "at most 1"),
        ("gae_lambda", float("nan"), "at most 1"),
        ("target_kl", -1, "or null"),
        ("target_kl", 0, "more than 0, or null"),
        ("clip_range_vf", 0, "more than 0, or null"),
        ("max_grad_norm", 0, "more than 0, or null"),
        ("adam_epsilon", 0, "more than 0"),
        ("learning_rate_schedule", "liner", "did you mean 'linear'"),
        ("activation", "gelu", "known: relu, tanh"),
        ("device", "gpu", "known: auto, cpu, cuda"),
        ("hidden_sizes", [64, 0], "found 0; expected a whole number, at least 1"),
        ("hidden_sizes", [2**64, 64], "found 18446744073709551616; expected a whole number, at least 1 and at most"),
        ("hidden_sizes", 64, "expected a list"),
        ("normalize_advantage", 1, "true or false"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name(option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}.*: .*{message}"):
        registry.decode_options(PPO, {option: value}, path="")


def test_a_rollout_longer_than_the_run_is_refused_with_the_remedy() -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE, ticks=5))
    with pytest.raises(ConfigError, match="set n_steps to 5 or less, or ticks to 8 or more"):
        ppo.run()
    with pytest.raises(ConfigError, match="set n_steps to 5 or less"):
        PPO.sizes(SMALL, rows=4, ticks=5, workers=1)


def test_an_environment_that_resets_on_the_next_step_is_refused() -> None:
    env = ScriptedEnv(VECTOR, CHOICE)
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="resets on the same step"):
        worker(env).run()


# ---------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("algorithm", [PPO, A2C, HPPO])
def test_update_from_one_transition_learns(algorithm: type[PPO]) -> None:
    """A single advantage minus its mean is 0; half of the actions are right at first."""
    right = spaces.Discrete(2)
    rewards: list[float] = []

    def reward(observations: Any, actions: Any) -> Any:
        rewards.append(float(observations[0] == actions[0]))
        return matching(observations, actions)

    env = ScriptedEnv(right, right, rows=1, ticks=600, length=20, reward=reward)
    options: dict[str, Any] = {"n_steps": 1, "learning_rate": 3e-3, "gamma": 0.0, "hidden_sizes": (16,)}
    if algorithm is HPPO:
        options |= {"option_ticks": 1, "n_options": 2}
    made = algorithm(env, solo_group(), ticks=600, normalize_advantage=True, **options)
    with pytest.raises(BudgetReached):
        made.run()
    assert np.mean(rewards[-200:]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (PPO, {"n_steps": 16, "learning_rate": 3e-3, "n_epochs": 6, "minibatch_size": 64}),
        (A2C, {"learning_rate": 1e-2, "normalize_advantage": True}),
    ],
)
def test_action_far_from_zero_is_found(algorithm: type[PPO], options: dict[str, Any]) -> None:
    env = ScriptedEnv(VECTOR, spaces.Box(0, 100, (2,)), rows=16, ticks=480, length=50, reward=near_70)
    made = algorithm(env, solo_group(), ticks=480, gamma=0.0, hidden_sizes=(16,), **options)
    with pytest.raises(BudgetReached):
        made.run()
    found = made.actor(greedy=True)(*env.reset())
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
        with pytest.raises(BudgetReached):
            own.run()
        assert any(not torch.equal(before[name], weight) for name, weight in own.network.state_dict().items())
        again = OwnOptimizer(ScriptedEnv(VECTOR, CHOICE, ticks=40), solo_group(), ticks=40, **SMALL)
        again.load_state_dict(own.state_dict())
        torch.testing.assert_close(again.optimizer.state_dict(), own.optimizer.state_dict(), rtol=0, atol=0)
        return own.state_dict()["network"]

    first, second = together(2, work)
    assert all_equal(first, second)
    with pytest.raises(ConfigError, match="is no RMSprop"):
        OwnOptimizer(ScriptedEnv(VECTOR, CHOICE), solo_group(), ticks=40, **SMALL).load_state_dict(
            trained(ScriptedEnv(VECTOR, CHOICE, ticks=8)).state_dict()
        )


def test_groups_of_parameters_of_an_own_optimizer_keep_their_ratios() -> None:
    class TwoRates(PPO):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            slow, fast = [*self.network.critic.parameters()], [*self.network.actor.parameters()]
            self.optimizer = torch.optim.SGD([{"params": slow, "lr": 0.1}, {"params": fast, "lr": 0.4}])

    def rates(made: Any) -> list[float]:
        with pytest.raises(BudgetReached):
            made.run()
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


def equal_bits(observations: Any, actions: Any) -> Any:
    return (observations == actions).mean(axis=1).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "reward", "at_least"),
    [
        (spaces.Discrete(4), matching, 0.95),
        (spaces.MultiDiscrete([2, 3]), equal_bits, 0.95),
        (spaces.MultiBinary(3), equal_bits, 0.95),
        (spaces.Box(-1, 1, (1,), np.float32), near, -0.15),
    ],
    ids=["choice", "choices", "flags", "numbers"],
)
def test_learns_to_act_on_observations(space: Any, reward: Any, at_least: float) -> None:
    def env(ticks: int) -> ScriptedEnv:
        return ScriptedEnv(space, space, rows=16, ticks=ticks, length=50, reward=reward)

    options = {"n_steps": 16, "minibatch_size": 64, "learning_rate": 0.01, "gamma": 0.0, "n_epochs": 6}
    ppo = trained(env(16 * 20), **options, hidden_sizes=(32,))
    fresh = env(20)
    act, (observations, infos) = ppo.actor(greedy=True), fresh.reset(seed=9)
    rewards = []
    for _ in range(20):
        observations, reward_t, _, _, infos = fresh.step(act(observations, infos))
        rewards.append(reward_t.mean())
    assert np.mean(rewards) >= at_least


def test_missing_device_is_refused_with_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    PPO.check_options({"device": "auto"})
    with pytest.raises(ConfigError, match=r"options\.device: got 'cuda', .* torch finds no CUDA device"):
        PPO.check_options({"device": "cuda"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)  # for this whole process
    monkeypatch.setattr(torch.backends.cuda, "enable_mem_efficient_sdp", lambda _: None)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    PPO.check_options({"device": "cuda"})


@pytest.mark.parametrize("space", ACTIONS[:3], ids=lambda space: type(space).__name__)
def test_log_prob_of_game_actions_equals_that_of_the_rollout(space: Any) -> None:
    masks = None if not isinstance(space, spaces.Discrete) else lambda tick: np.array([[1, 1, 0]] * 4, np.int8)
    ppo = worker(ScriptedEnv(VECTOR, space, masks=masks))
    batch = seen(ppo)
    actions = ppo.head.to_env(batch.actions.numpy())
    held = None if batch.masks is None else batch.masks.numpy().astype(np.int8)
    found = ppo.log_prob(batch.observations[0].numpy(), actions, held)
    assert found.dtype == np.float64
    assert found == pytest.approx(batch.log_probs.double().numpy(), abs=1e-6)


def test_probabilities_of_all_game_actions_sum_to_one() -> None:
    """What the actor says is clipped to the Box: its bounds are likely, and their weights make means unbiased."""
    space = spaces.Box(np.array([-0.3]), np.array([1.0]), dtype=np.float64)
    ppo, other = (worker(ScriptedEnv(VECTOR, space), log_std_init=value) for value in (0.0, 0.5))
    inside = np.linspace(-0.3, 1.0, 2001)[:-1] + 0.65 / 2000  # the middles of equal parts
    actions = np.concatenate([inside, space.low, space.high])[:, None]
    widths = np.where((actions > -0.3) & (actions < 1.0), 1.3 / 2000, 1.0)[:, 0]
    seen = np.zeros((len(actions), 3), np.float32)
    probabilities, others = (widths * np.exp(policy.log_prob(seen, actions, None)) for policy in (ppo, other))
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)
    assert others.sum() == pytest.approx(1, abs=1e-5)
    assert min(probabilities[-2:]) > 0.1
    played = ppo.actor()(np.zeros((20_000, 3), np.float32), {})
    for bound, probability in ((-0.3, probabilities[-2]), (1.0, probabilities[-1])):
        assert (played == bound).mean() == pytest.approx(probability, abs=4 * 0.5 / 20_000**0.5)
