"""Running normalization: statistics against numpy's, a group against one worker, and the algorithms that use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.records.state_codec import decode, encode
from fakes import ScriptedEnv, ThreadGroup, all_equal, solo_group, together
from learning_steps import rollout_of, run
from policies.common.normalization import ObservationNormalizer, RewardNormalizer, Statistics, pooled
from policies.dqn import DQN
from policies.ppo import PPO

MIXED = spaces.Dict(
    {
        "bits": spaces.MultiBinary(2),
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "choice": spaces.Discrete(3),
        "far": spaces.Box(-np.inf, np.inf, (), np.float64),
        "large": spaces.Box(-(2**40), 2**40, (2,), np.int64),
        "speed": spaces.Box(-1, 1, (2, 2), np.float32),
    }
)


def close(found: Statistics, values: np.ndarray[Any, Any]) -> None:
    values = values.astype(np.float64)
    assert found.size == len(values)
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.squares, values.var(0) * len(values), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------------- statistics


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_merged_statistics_equal_those_of_joined_arrays(sizes: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    parts = [100 + draw.normal(size=(size, 2, 3)) * 10 ** draw.uniform(-1, 2) for size in sizes]
    merged = Statistics.none((2, 3))
    for part in parts:
        merged = merged.merged(Statistics.of(part))
    if sum(sizes):
        close(merged, np.concatenate(parts))
    else:
        assert merged.size == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_sample_of_one_worker_stops_all(value: float) -> None:
    def work(group: ThreadGroup) -> str:
        values = np.array([1.0, value if group.rank == 1 else 2.0])
        with pytest.raises(FloatingPointError) as caught:
            pooled(group, [Statistics.of(values)])
        return str(caught.value)

    assert all("policy 'blue'" in said for said in together(2, work))


# --------------------------------------------------------------------------------------------------- observations


def leaves(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Samples of MIXED as they are stored."""
    draw = np.random.default_rng(seed)
    return [
        torch.from_numpy(draw.integers(0, 2, (count, 2)).astype(np.uint8)),
        torch.from_numpy(draw.integers(0, 256, (count, 8, 8, 3)).astype(np.uint8)),
        torch.from_numpy(draw.integers(0, 3, count)),
        torch.from_numpy(draw.normal(1000, 0.1, count).astype(np.float32)),
        torch.from_numpy(2**40 - draw.integers(0, 100, (count, 2))),
        torch.from_numpy(draw.normal(-0.5, 0.01, (count, 2, 2)).astype(np.float32)),
    ]


def test_numbers_are_standardized_and_other_leaves_kept() -> None:
    normalizer, seen = ObservationNormalizer(MIXED), leaves(500)
    normalizer.update(normalizer.describe(seen))
    found = normalizer(seen)
    assert all(found[place] is seen[place] for place in range(3))
    for place in range(3, 6):
        assert found[place].dtype == torch.float32
        assert found[place].shape == seen[place].shape
        np.testing.assert_allclose(found[place].mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(found[place].std(0, unbiased=False), 1, rtol=1e-4)
        exact = seen[place].double().numpy()
        np.testing.assert_allclose(found[place], (exact - exact.mean(0)) / exact.std(0), rtol=1e-3, atol=1e-3)


def test_normalized_values_are_clipped_and_constants_are_0() -> None:
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    seen = torch.stack([torch.arange(10.0), torch.full((10,), 0.1)], 1)
    for clip, outlier in ((3.0, 3.0), (None, (1000 - 4.5) / np.std(np.arange(10)))):
        normalizer = ObservationNormalizer(space, clip=clip)
        normalizer.update(normalizer.describe([seen]))
        (found,) = normalizer([torch.tensor([[1000.0, 0.1]])])
        np.testing.assert_allclose(found, [[outlier, 0.0]], rtol=1e-5)


def test_unfitted_normalizer_takes_far_numbers_as_0() -> None:
    normalizer = ObservationNormalizer(spaces.Box(-np.inf, np.inf, (1,), np.float32))
    for _ in range(2):
        assert normalizer([torch.tensor([[3.0], [-10.0], [-30.0]])])[0].tolist() == [[3.0], [-10.0], [0.0]]
    assert normalizer.statistics[0].size == 0


def test_statistics_of_another_shape_are_refused() -> None:
    small, large = (ObservationNormalizer(spaces.Box(-1, 1, (size,), np.float32)) for size in (2, 3))
    with pytest.raises(ConfigError, match=r"the shape \(2,\), here they have \(3,\)"):
        large.load_state_dict(small.state_dict())


# --------------------------------------------------------------------------------------------------------- rewards


def all_active(ticks: int, rows: int) -> Any:
    return np.ones((ticks + 1, rows), np.bool_)


def test_running_returns_equal_the_definition_across_calls() -> None:
    draw = np.random.default_rng(1)
    rewards, ended = draw.normal(size=(60, 3)), draw.random((60, 3)) < 0.1
    normalizer = RewardNormalizer(3, gamma=0.9)
    for part in (slice(0, 25), slice(25, 60)):
        length = part.stop - part.start
        normalizer.update(normalizer.describe(rewards[part], all_active(length, 3), ended[part]))
    expected = np.zeros((60, 3))
    running = np.zeros(3)
    for t in range(60):
        running = 0.9 * running + rewards[t]
        expected[t] = running
        running[ended[t]] = 0.0
    close(normalizer.statistics, expected.ravel())
    np.testing.assert_allclose(normalizer(rewards), np.clip(rewards / expected.std(), -10, 10), rtol=1e-6)


def test_in_turns_returns_are_counted_at_complete_transitions() -> None:
    # The row acts on ticks 1, 3 and 6; its first episode ends on tick 4, while it waits, the second goes on.
    active = np.array([0, 1, 0, 1, 0, 0, 1, 0, 1], np.bool_)[:, None]
    rewards = np.array([9.0, 1.0, 2.0, 3.0, 4.0, 9.0, 5.0, 6.0])[:, None]
    ended = np.array([0, 0, 0, 0, 1, 0, 0, 0], np.bool_)[:, None]
    returns = np.array([1 + 2, 0.5 * (1 + 2) + (3 + 4), 5 + 6])
    normalizer = RewardNormalizer(1, gamma=0.5)
    for part in (slice(0, 2), slice(2, 4), slice(4, 8)):
        seen = normalizer.describe(rewards[part], active[part.start : part.stop + 1], ended[part])
        normalizer.update(seen)
    close(normalizer.statistics, returns)


def test_rewards_are_clipped_after_scaling() -> None:
    rewards = np.array([[1.0], [-1.0], [100.0]])
    normalizer = RewardNormalizer(1, gamma=0.0, clip=0.5)
    normalizer.update(normalizer.describe(rewards, all_active(3, 1), np.zeros((3, 1), np.bool_)))
    np.testing.assert_allclose(normalizer(rewards), np.clip(rewards / rewards.std(), -0.5, 0.5))
    assert RewardNormalizer(1, gamma=0.9, enabled=False)(rewards) is rewards


# ------------------------------------------------------------------------------------- an algorithm that uses both

FAR = spaces.Box(900, 1000, (3,), np.float32)
BOTH = {"normalize_observations": True, "normalize_rewards": True}
SMALL = {"n_steps": 8, "minibatch_size": 16, "hidden_sizes": (8,)}


def thousands(observations: Any, actions: Any) -> Any:
    return 1000.0 * np.asarray(actions, np.float64)


def scripted(seed: int = 0, **parts: Any) -> ScriptedEnv:
    return ScriptedEnv(FAR, spaces.Discrete(2), seed=seed, reward=thousands, ticks=32, **parts)


def trained(group: ThreadGroup, **options: Any) -> PPO:
    env = scripted(group.rank)
    worker = PPO(env, group, ticks=env.ticks, **{**SMALL, **BOTH, **options})
    return run(worker)


@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_the_ratio_of_unchanged_weights_is_1(recurrent: str | None) -> None:
    group = solo_group()
    trained(group, minibatch_size=1000, n_epochs=1, learning_rate=0.01, recurrent=recurrent)
    assert len(group.logged) == 4
    assert all(abs(line["approx_kl"]) < 1e-12 and line["clip_fraction"] == 0 for line in group.logged)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_all_workers_end_with_the_statistics_of_all_rollouts(sync: str) -> None:
    workers = together(3, lambda group: trained(group), sync=sync)
    held = [worker.normalization.state_dict() for worker in workers]
    assert all(all_equal(one, held[0]) for one in held)
    everything = []
    for rank in range(3):
        env = scripted(rank)
        everything.append(env.reset()[0])
        everything += [env.step(np.zeros(4, np.int64))[0] for _ in range(31)]
    close(Statistics(**held[0]["observations"]["0"]), np.concatenate(everything))
    assert held[0]["rewards"]["size"] == 3 * 32 * 4


def test_values_are_scaled_by_the_deviation_of_returns() -> None:
    plain, scaled = (trained(solo_group(), normalize_rewards=on) for on in (False, True))
    for worker in (plain, scaled):
        worker.env.tick = 0
        worker.rollout.advance()
    assert rollout_of(plain).returns.abs().max() > 1000
    assert 0.1 < rollout_of(scaled).returns.abs().max() < 20
    rewards = scaled.rollout.rewards
    assert set(np.unique(rewards)) == {0.0, 1000.0}, "what is stored is what the game gave"


def test_actor_normalizes_without_updating_statistics() -> None:
    worker = trained(solo_group())
    before = encode(worker.normalization.state_dict())
    actor, env = worker.actor(greedy=True), scripted(5)
    observations, infos = env.reset()
    for _ in range(20):
        chosen = actor(observations, infos)
        (seen,) = worker.normalization.observations([torch.from_numpy(observations)])
        np.testing.assert_array_equal(chosen, worker.network.policy([seen]).mode().numpy())
        observations, *_, infos = env.step(chosen)
    assert all_equal(encode(worker.normalization.state_dict()), before)


def test_stored_normalization_is_restored_or_refused() -> None:
    worker = trained(solo_group())
    state = decode(*encode(worker.state_dict()))
    env = scripted()
    other = PPO(env, solo_group(), ticks=env.ticks, **SMALL, **BOTH)
    other.load_state_dict(state)
    assert all_equal(other.state_dict(), worker.state_dict())
    plain = PPO(env, solo_group(), ticks=env.ticks, **SMALL)
    with pytest.raises(ConfigError, match="set normalize_observations: true"):
        plain.load_state_dict(state)
    with pytest.raises(ConfigError, match="set normalize_observations: false"):
        other.load_state_dict(plain.state_dict())
    for damaged in ({}, {"observations": {}}):
        with pytest.raises(ConfigError, match="expected observations and rewards"):
            plain.normalization.load_state_dict(damaged)
    unscaled = PPO(env, solo_group(), ticks=env.ticks, **SMALL, normalize_observations=True)
    unscaled.load_state_dict(state)  # rewards do not matter to a policy that only plays


# ------------------------------------------------------------------------------- and one that learns from a replay

REPLAYED = {"hidden_sizes": (8,), "batch_size": 8, "learning_starts": 16, "train_every": 4, "training_intensity": 2.0}


def replaying(group: ThreadGroup, **options: Any) -> DQN:
    env = ScriptedEnv(FAR, spaces.Discrete(2), seed=group.rank, ticks=32)
    worker = DQN(env, group, ticks=env.ticks, **{**REPLAYED, "normalize_observations": True, **options})
    return run(worker)


def test_replayed_observations_are_normalized_as_played_ones() -> None:
    worker = replaying(solo_group())
    sample = worker.replay.sample(64, torch.Generator().manual_seed(0), beta=1.0)
    taken: list[Any] = []
    worker.update = lambda batch: (taken.append(batch), ({}, torch.zeros(batch.size)))[1]  # type: ignore[method-assign]
    worker._step(64)
    for column in (taken[0].observations[0], taken[0].next_observations[0]):
        assert abs(float(column.mean())) < 0.5
        assert 0.5 < float(column.std()) < 1.5
    (expected,) = worker.normalization(list(sample.observations))
    assert torch.equal(worker.normalization.minibatch(sample).observations[0], expected)
