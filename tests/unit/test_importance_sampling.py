"""Importance sampling: equal policies give the mean return, others the known value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arena.dataset.reader import Episode
from arena.errors import ConfigError
from policies.offline.importance_sampling import Estimates, estimate

BEHAVIOR, TARGET = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])  # of three choices


def episode(actions: Any, rewards: Any, *, before: float = 0.0, **fields: Any) -> Episode:
    chosen = np.asarray(actions, np.int64)
    return Episode(
        **{
            "match": 0,
            "lane": 0,
            "number": 0,
            "entity": "one",
            "policy": "blue",
            "tick": np.arange(1, len(chosen) + 1),
            "observations": np.arange(len(chosen)),
            "masks": None,
            "actions": chosen,
            "rewards": np.asarray(rewards, np.float64),
            "rewards_before": before,
            "final_observation": len(chosen),
            "terminated": True,
            "truncated": False,
            "cut": False,
            "idle_ticks": 0,
            **fields,
        }
    )


def always(probabilities: NDArray[np.float64]) -> Callable[..., Any]:
    """A policy that ignores its observation."""
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities)
    return lambda observations, actions, masks: logs[actions]


def bandit(seed: int, pulls: int) -> list[Episode]:
    """One pull of an arm each, by the behavior policy; arm i pays i + 1 and a little noise."""
    rng = np.random.default_rng(seed)
    arms = rng.choice(3, pulls, p=BEHAVIOR)
    return [episode([arm], [arm + 1 + rng.normal() / 10]) for arm in arms]


def chain(seed: int, count: int) -> list[Episode]:
    """Three choices in a row; each pays its number, the last one twice."""
    rng = np.random.default_rng(seed)
    choices = rng.choice(3, (count, 3), p=BEHAVIOR)
    return [episode(row, row * [1, 1, 2]) for row in choices]


def of_target(episodes: list[Episode], **options: Any) -> Estimates:
    return estimate(episodes, target=always(TARGET), behavior=always(BEHAVIOR), **options)


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_estimates_of_equal_policies_are_the_mean_return(gamma: float) -> None:
    rng = np.random.default_rng(3)
    episodes = [
        episode(rng.integers(0, 3, n), 1e3 * rng.normal(size=n), before=float(rng.normal()))
        for n in rng.integers(0, 40, 50)
    ]
    found = estimate(episodes, target=always(TARGET), behavior=always(TARGET), gamma=gamma)
    returns = [e.rewards_before + math.fsum(gamma**k * r for k, r in enumerate(e.rewards)) for e in episodes]
    for value in (found.ordinary, found.per_decision, found.weighted, found.mean_return):
        assert value.value == pytest.approx(math.fsum(returns) / 50, abs=1e-10, rel=1e-12)
    assert found.effective_episodes == pytest.approx(50, abs=1e-9)
    last = estimate([episode([1, 2], [0.0, 7.0])], target=always(TARGET), behavior=always(TARGET))
    assert (last.ordinary.value, last.per_decision.value, last.weighted.value) == (7.0, 7.0, 7.0)


def test_the_formulas_by_hand() -> None:
    found = of_target([episode([2, 0], [1.0, 10.0], before=0.5), episode([1], [4.0])], gamma=0.5)
    rho = TARGET / BEHAVIOR  # 1/5, 2/3, 7/2
    w, returns = np.array([rho[2] * rho[0], rho[1]]), np.array([0.5 + 1 + 5, 4.0])
    assert found.ordinary.value == pytest.approx(float((w * returns).mean()))
    assert found.per_decision.value == pytest.approx((0.5 + rho[2] * 1 + rho[2] * rho[0] * 5 + rho[1] * 4) / 2)
    assert found.weighted.value == pytest.approx(float((w * returns).sum() / w.sum()))
    assert found.mean_return.value == pytest.approx(5.25)
    assert found.effective_episodes == pytest.approx(w.sum() ** 2 / (w**2).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("play", "value"), [(bandit, 0.1 * 1 + 0.2 * 2 + 0.7 * 3), (chain, 4 * (0.2 + 2 * 0.7))])
def test_estimates_are_unbiased_in_games_of_known_value(play: Callable[..., Any], value: float) -> None:
    found = [of_target(play(seed, 25)) for seed in range(60)]
    for name in ("ordinary", "per_decision"):
        values = np.array([getattr(each, name).value for each in found])
        assert abs(values.mean() - value) < 4 * values.std() / math.sqrt(60), name
    large = of_target(play(1000, 3000))
    assert large.weighted.value == pytest.approx(value, abs=4 * large.weighted.standard_error)


@pytest.mark.slow
def test_standard_error_is_the_deviation_of_estimates() -> None:
    found = [of_target(bandit(seed, 50)) for seed in range(100)]
    for name in ("ordinary", "per_decision", "weighted"):
        values = [getattr(each, name).value for each in found]
        errors = [getattr(each, name).standard_error for each in found]
        assert np.std(values) == pytest.approx(np.mean(errors), rel=0.25), name


def test_unusable_episodes_are_excluded_and_counted() -> None:
    useless = [episode([0], [99.0], cut=True), episode([0], [99.0], idle_ticks=1)]
    found = of_target([*useless, episode([0], [5.0])])
    assert (found.episodes, found.left_out, found.mean_return.value) == (1, 2, 5.0)
    assert math.isnan(found.mean_return.standard_error)
    with pytest.raises(ConfigError, match="no whole episode to estimate from; 2 were cut"):
        of_target(useless)


def test_impossible_target_actions_have_weight_zero() -> None:
    found = estimate([episode([0], [5.0])], target=always(np.array([0.0, 0.5, 0.5])), behavior=always(BEHAVIOR))
    assert (found.ordinary.value, found.per_decision.value, found.effective_episodes) == (0.0, 0.0, 0.0)
    assert math.isnan(found.weighted.value)


def weighing(log_weight: float) -> Callable[..., Any]:
    """A policy with this log-weight for action 2, and 0 for the others."""
    return lambda observations, actions, masks: np.where(actions == 2, log_weight, 0.0)


def test_overflowing_weights_give_signed_infinities() -> None:
    def of(*rewards: float) -> Estimates:
        episodes = [episode([2], [reward]) for reward in rewards]
        return estimate(episodes, target=weighing(900.0), behavior=weighing(0.0))

    assert (of(1.0, -3.0).ordinary.value, of(1.0, -3.0).per_decision.value) == (-math.inf, -math.inf)
    assert (of(2.0, -2.0).ordinary.value, of(2.0, -2.0).per_decision.value) == (0.0, 0.0)
    assert of(1.0, -3.0).weighted.value == -1.0
    large = estimate([episode([2], [1.0]), episode([0], [1.0])], target=weighing(600.0), behavior=weighing(0.0))
    expected = math.exp(600) / 2
    assert large.ordinary == large.per_decision
    assert large.ordinary == pytest.approx((expected, expected)), "two values, one of them 0 beside the other"


def test_impossible_behavior_policy_is_refused() -> None:
    impossible = always(np.array([0.5, 0.5, 0.0]))
    with pytest.raises(
        ConfigError, match="episode 0, entity 'one': the behavior policy never takes the action of tick 2"
    ):
        estimate([episode([0, 2], [1.0, 1.0])], target=always(TARGET), behavior=impossible)


@pytest.mark.parametrize("what", ["target", "ratio", "reward", "before", "shape"])
def test_nan_is_refused(what: str) -> None:
    rewards = [math.nan] if what == "reward" else [1.0]
    before = math.inf if what == "before" else 0.0
    wrong = {
        "target": lambda observations, actions, masks: np.array([math.nan]),
        "ratio": lambda observations, actions, masks: np.array([math.inf]),
        "shape": lambda observations, actions, masks: np.zeros((1, 1)),
    }
    target, behavior = (wrong.get(what, always(TARGET)), always(BEHAVIOR))
    with pytest.raises(ConfigError, match="no number" if what != "shape" else "log-probabilities of"):
        estimate(
            [episode([0], rewards, before=before)],
            target=target,
            behavior=wrong["shape"] if what == "shape" else behavior,
        )
