"""Importance sampling: a policy's expected return, estimated from episodes that another policy has played.

    samples = open_dataset("runs/behavior")                     recorded with `record: samples`
    behavior = load_policy("runs/behavior:blue")             the frozen policy that has played
    target = load_policy("runs/other:blue")                  the policy to be estimated
    estimate(samples.episodes("blue"), target=target.log_prob, behavior=behavior.log_prob)

Probabilities are computed here, from the policies' weights, not recorded while they play: so every recorded run can be
used, playing costs nothing, and both probabilities come from the same function. So the behavior policy must not have
learned meanwhile (`frozen: true`), nor have played greedily. The probabilities are those of the actions that the
environment received: for a Box action on its bound, of all actions that are clipped to it.

Source: Precup, Sutton and Singh (2000), Eligibility traces for off-policy policy evaluation, ICML. With rho_t =
pi(a_t|s_t) / b(a_t|s_t), the return G and the product w of all rho_t of an episode:

    ordinary       mean of w G                                          unbiased; its variance grows with the length
    per decision   mean of sum_t gamma^t rho_0 ... rho_t r_t            unbiased; later actions do not weigh a reward
    weighted       sum of w G / sum of w                                biased, consistent; bounded by the returns seen
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.dataset.reader import Episode
from arena.errors import ConfigError

LogProb = Callable[[Any, Any, NDArray[np.int8] | None], NDArray[np.floating[Any]]]
"""Log-probabilities [N] of the actions of one episode, in its order, from (observations, actions, masks): batched
samples [N, ...] of the spaces, and masks [N, mask_size] or None. Algorithms have it as `log_prob`."""

_IMPOSSIBLE = -1e6  # an action of a lower log-probability counts as impossible
_LARGE = 200.0  # larger log-weights are kept below this by a unit, so that squares of weights are finite


class Estimate(NamedTuple):
    """A value and its standard error, which is NaN for a single episode.

    Both are infinite where float64 does not hold them.
    """

    value: float
    standard_error: float


class Estimates(NamedTuple):
    """A policy's expected return per episode, by three estimators."""

    ordinary: Estimate
    per_decision: Estimate
    weighted: Estimate
    mean_return: Estimate  # of the behavior policy
    episodes: int  # that were used
    left_out: int  # cut by the end of a leg, or the entity had no action of the policy
    effective_episodes: float  # (sum w)^2 / sum w^2: so many episodes of the target itself would tell as much


def estimate(episodes: Iterable[Episode], *, target: LogProb, behavior: LogProb, gamma: float = 1.0) -> Estimates:
    """Estimates the target policy's expected return from the behavior policy's episodes.

    Where both are the same, all three are the mean return. Rewards before an entity's first action count as they are.

    Args:
        episodes: of one policy, see `arena.dataset.reader`.
        target: the policy to be estimated.
        behavior: the policy that has played them.
        gamma: discount per action.

    Raises:
        ConfigError: no episode is left, or the behavior policy learned while it played them or cannot have played
            them, or a ratio of probabilities or a reward is no finite number.
    """
    # Of each episode the log-weight of w, G, and the per-decision sum in a unit, see `_unit`, of its rewards' weights.
    weighed: list[tuple[float, float, float, float]] = []
    left_out = 0
    for episode in episodes:
        where = f"match {episode.match}, lane {episode.lane}, episode {episode.number}, entity {episode.entity!r}"
        if episode.learning:
            raise ConfigError(
                f"{where}: the policy {episode.policy!r} learned while it was recorded, so no weights are those "
                "that have played; record it once more with `frozen: true` and `load:`"
            )
        foreign = any(flags is not None and flags.any() for flags in (episode.given, episode.void))
        if episode.cut or episode.idle_ticks or foreign:
            left_out += 1
            continue
        log_ratios = np.zeros(0)
        if len(episode.tick):
            batch = (episode.observations, episode.actions, episode.masks)
            played = np.asarray(behavior(*batch), np.float64)
            if played.shape != episode.tick.shape:
                raise ConfigError(f"{where}: {played.shape} log-probabilities of {episode.tick.shape} actions")
            if (played < _IMPOSSIBLE).any():
                raise ConfigError(
                    f"{where}: the behavior policy never takes the action of tick "
                    f"{int(episode.tick[np.argmin(played)])}: it is not the one that has played, or not with these "
                    "weights"
                )
            log_ratios = np.asarray(target(*batch), np.float64) - played
        before = episode.rewards_before
        if not (log_ratios < math.inf).all() or not np.isfinite(np.append(episode.rewards, before)).all():
            raise ConfigError(f"{where}: a log-probability or a reward is no number")
        rewards = gamma ** np.arange(len(log_ratios)) * episode.rewards
        sums = np.cumsum(log_ratios)
        unit = _unit(sums[rewards != 0])
        per_decision = before * math.exp(-unit) + float(_times_exp(rewards, sums - unit).sum())
        last = float(sums[-1]) if len(rewards) else 0.0
        weighed.append((last, before + float(rewards.sum()), per_decision, unit))
    if not weighed:
        raise ConfigError(
            f"there is no whole episode to estimate from; {left_out} were cut by the end of a leg, idle, or have "
            "given or void actions"
        )
    log_weights, returns, per_decisions, units = (np.array(column) for column in zip(*weighed, strict=True))
    of_returns, of_rewards = _unit(log_weights[returns != 0]), float(units[per_decisions != 0].max(initial=0.0))
    shares = np.exp(log_weights - log_weights.max()) if log_weights.max() > -math.inf else np.zeros(len(weighed))
    total, ratio = float(shares.sum()), Estimate(math.nan, math.nan)  # NaN: the target would never have played any
    if total:  # the ratio of two sums, with its first-order error
        value = float((shares * returns).sum()) / total
        error = math.sqrt(float(np.square(shares * (returns - value)).sum())) / total
        ratio = Estimate(value, error if len(returns) > 1 else math.nan)
    return Estimates(
        ordinary=_mean(_times_exp(returns, log_weights - of_returns), of_returns),
        per_decision=_mean(_times_exp(per_decisions, units - of_rewards), of_rewards),
        weighted=ratio,
        mean_return=_mean(returns),
        episodes=len(weighed),
        left_out=left_out,
        effective_episodes=float(shares.sum() ** 2 / np.square(shares).sum()) if shares.any() else 0.0,
    )


def _unit(log_weights: NDArray[np.float64]) -> float:
    """0, or the unit in which the largest of the weights is exp(_LARGE).

    Weights of zeros must be left out: in their unit the others could be too small for float64.
    """
    return max(0.0, float(log_weights.max(initial=0.0)) - _LARGE)


def _times_exp(values: NDArray[np.float64], log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values times their weights; 0 is 0, also where the weight is more than float64 holds."""
    return values * np.exp(np.where(values != 0, log_weights, 0.0))


def _mean(values: NDArray[np.float64], unit: float = 0.0) -> Estimate:
    """The mean of values in units of exp(unit); 0 is 0 in any."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    with np.errstate(over="ignore"):
        return Estimate(*(float(each * np.exp(unit)) if each else 0.0 for each in (float(values.mean()), error)))
