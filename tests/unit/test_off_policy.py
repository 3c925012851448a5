"""The base of off-policy algorithms: training intensity, groups against one worker, state, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from fakes import (
    ScriptedEnv,
    ThreadGroup,
    flat_weights,
    random_rewards,
    solo_group,
    together,
)
from learning_steps import run
from policies.common.replay import ReplayRatio, Transitions
from policies.dqn import DQN

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {
    **{"hidden_sizes": (8,), "learning_starts": 10, "batch_size": 8},
    **{"training_intensity": 2.0, "train_every": 2, "n_step": 1},
}


def worker(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> DQN:
    return DQN(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def env_of(group: ThreadGroup, **more: Any) -> ScriptedEnv:
    """Workers with 3, 5, ... rows that see different things."""
    rank = group.rank
    given = {"rows": 3 + 2 * rank, "seed": rank, "length": 7, "reward": random_rewards(rank), **more}
    return ScriptedEnv(VECTOR, CHOICE, **given)


# ------------------------------------------------------------------------------------------------- training intensity


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "sync"), [(2, "gradients"), (3, "samples")])
def test_replay_ratio_holds_for_any_number_of_workers(workers: int, sync: str) -> None:
    def work(group: ThreadGroup) -> Any:
        drawn: list[int] = []
        dqn = worker(env_of(group, rows=3, ticks=60), group, training_intensity=1.7)
        step = dqn.update

        def counted(batch: Transitions) -> Any:
            drawn.append(batch.size)
            return step(batch)

        dqn.update = counted  # type: ignore[method-assign]
        run(dqn)
        return drawn, dqn.intensity.state_dict(), dqn.gradient_steps

    found = together(workers, work, sync=sync)
    _, account, steps = found[0]
    assert account["collected"] == 3 * 60 * workers
    assert account["waited"] < 10
    due = 1.7 * (account["collected"] - account["waited"])
    assert due - 8 * workers < sum(sum(drawn) for drawn, _, _ in found) <= due
    assert steps == sum(sum(drawn) for drawn, _, _ in found) // (8 * workers)
    assert all(other[1:] == found[0][1:] for other in found)


def test_actions_are_random_until_the_group_has_collected_enough() -> None:
    def work(group: ThreadGroup) -> Any:
        dqn = worker(env_of(group, rows=2, ticks=20), group, learning_starts=24)
        asked: list[int] = []
        explore = dqn.explore

        def noted(*given: Any) -> Any:
            asked.append(dqn.ticks_done)
            return explore(*given)

        dqn.explore = noted  # type: ignore[method-assign]
        run(dqn)
        return asked

    assert together(2, work) == [list(range(6, 21))] * 2  # 2 workers with 2 rows have 24 transitions after 6 ticks


@pytest.mark.slow
def test_replay_size_of_the_group_is_independent_of_workers() -> None:
    def work(group: ThreadGroup) -> Any:
        dqn = run(worker(env_of(group, rows=2, ticks=60), group, buffer_size=90))
        return len(dqn.replay.fragment().points.observations[0])

    assert together(3, work) == [30, 30, 30]


# --------------------------------------------------------------------------------------------- targets and schedules


@pytest.mark.parametrize(("tau", "interval"), [(1.0, 3), (0.25, 1)])
def test_target_networks_follow_interval_and_tau(tau: float, interval: int) -> None:
    dqn = worker(
        ScriptedEnv(VECTOR, CHOICE, ticks=20, reward=random_rewards(0)),
        tau=tau,
        target_update_interval=interval,
        learning_rate=0.01,
    )
    expected, weights = flat_weights(dqn.network), []
    step = dqn.update

    def noted(*given: Any) -> Any:
        result = step(*given)
        weights.append(flat_weights(dqn.network))
        return result

    dqn.update = noted  # type: ignore[method-assign]
    run(dqn)
    for index, learned in enumerate(weights, 1):
        if index % interval == 0:
            expected = (1 - tau) * expected + tau * learned
    assert len(weights) > 10
    np.testing.assert_allclose(flat_weights(dqn.targets["network"].module), expected, atol=1e-6)


def test_schedules_end_with_the_run() -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE, ticks=40), learning_rate=0.1, learning_rate_schedule="linear")
    found = []
    for dqn.ticks_done in (0, 10, 40, 44):
        found.append((dqn.learning_rate, dqn.priority_beta))
    assert np.array(found) == pytest.approx(np.array([(0.1, 0.4), (0.075, 0.55), (0.0, 1.0), (0.0, 1.0)]))


# ----------------------------------------------------------------------------------------------- logs and checkpoints


def test_logs_and_states_follow_their_interval() -> None:
    dqn = run(worker(ScriptedEnv(VECTOR, CHOICE, ticks=41, reward=random_rewards(0)), train_every=4, log_every=10))
    group = dqn.group
    assert len(group.logged) == len(group.saved) == group.called.count("check_equal") == 4  # at ticks 12, 20, 32, 40
    assert set(group.logged[-1]) == {
        *("loss", "q_value", "td_error"),
        *("learning_rate", "epsilon", "gradient_steps", "collected"),
    }
    assert [line["collected"] for line in group.logged] == [48, 80, 128, 160]


def test_lost_replay_is_refilled_before_learning() -> None:
    """As after a failure: the workers' own states are lost."""
    stored = run(worker(ScriptedEnv(VECTOR, CHOICE, ticks=20))).state_dict()
    fresh = worker(ScriptedEnv(VECTOR, CHOICE, ticks=10), learning_starts=24)
    fresh.load_state_dict(stored)
    asked: list[int] = []
    fresh.act_randomly = lambda *given: asked.append(1)  # type: ignore[assignment, method-assign]
    fresh.ticks = 20
    run(fresh)
    assert asked == []
    assert fresh.intensity.waited == stored["intensity"]["waited"] + 16
    assert fresh.gradient_steps == stored["gradient_steps"] + 6  # (40 - 16) * 2 / 8


# ------------------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "ticks", "message"),
    [
        (
            {"learning_starts": 100},
            10,
            r"learning_starts: 100 transitions .* \(by 2 workers with 5 rows each",
        ),
        (
            {"buffer_size": 200, "learning_starts": 10, "train_every": 10, "n_step": 2},
            1000,
            "buffer_size: got 200, expected at least 240",
        ),
    ],
)
def test_sizes_refuse_a_run_that_would_not_learn(options: dict[str, Any], ticks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{message}"):
        DQN.sizes(options, rows=5, ticks=ticks, workers=2)


# Training intensity: replayed follow collected transitions exactly, for any number of workers


@given(
    rate=st.sampled_from([0.1, 0.25, 1, 1.5, 7.3, 256.0]),
    starts=st.integers(0, 50),
    blocks=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    minibatch=st.integers(1, 300),
)
def test_replayed_count_is_within_a_minibatch_of_the_due_count(
    rate: float, starts: int, blocks: list[int], minibatch: int
) -> None:
    account, held, steps = ReplayRatio(rate, starts=starts), 0, 0
    for collected in blocks:
        held += collected
        steps += account.due_steps(collected, added=held, minibatch=minibatch)
        hundredths = round(100 * rate) * (account.collected - account.waited)
        assert account.replayed == steps * minibatch
        if held >= starts:
            assert 100 * account.replayed <= hundredths < 100 * (account.replayed + minibatch)
    assert account.collected == held
    assert account.has_started == (held >= starts)


@pytest.mark.parametrize("rate", [1.0, 64.0])
def test_changed_ratio_applies_to_later_transitions(rate: float) -> None:
    before, after = ReplayRatio(16.0, starts=0), ReplayRatio(rate, starts=0)
    before.due_steps(10_000, added=10_000, minibatch=16)
    after.load_state_dict(before.state_dict())
    assert after.due_steps(320, added=10_320, minibatch=16) == 320 * rate / 16
    assert after.collected == 10_320
