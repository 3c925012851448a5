"""The keys that a result can have, as stop rules and other settings name them: paths such as `policy_win_rate/blue`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from arena.config.decode import show
from arena.errors import ConfigError, listed, nearest


@dataclass(frozen=True)
class StopRule:
    """A bound of a number of the results, a path with `/`: the run ends when a result meets it."""

    key: str
    bound: float
    at_least: bool = True  # values from the bound on meet it; else values up to the bound

    @property
    def text(self) -> str:
        """The rule, as `ticks >= 500`."""
        return self.met_text(None)

    def met_text(self, value: float | None) -> str:
        """That a value meets the rule, as `ticks 512 >= 500`."""
        found = "" if value is None else f" {value:.6g}"
        return f"{self.key}{found} {'>=' if self.at_least else '<='} {self.bound:.15g}"

    def is_met(self, value: float) -> bool:
        """Whether a value meets the rule; NaN never does."""
        return value >= self.bound if self.at_least else value <= self.bound


CLOCK_NUMBERS = (
    *("time_this_iter_s", "time_total_s", "time_since_restore", "timesteps_since_restore"),
    *("iterations_since_restore", "timestamp"),
)
"""Numbers that depend on when and where a run is played."""

_REWARDS = ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean")
_BY_POLICY = ("policy_reward_mean", "policy_reward_min", "policy_reward_max")
_NUMBERS = (
    *("training_iteration", "ticks", "timesteps_total", "timesteps_this_iter", "agent_timesteps_total"),
    *("episodes_total", "episodes_this_iter", *_REWARDS, "info/num_steps_sampled", *CLOCK_NUMBERS),
    *(f"sampler_perf/mean_{what}_ms" for what in ("env_wait", "inference", "processing")),
)
_OF_EVALUATION = tuple(f"evaluation/{name}" for name in (*_REWARDS, "episodes_this_iter"))
_EVALUATED = ("episodes", "return", "return_std", "length", "games", "wins", "draws", "losses")
_ANY = ("evaluation/custom/", "off_policy_estimator/")  # below them a name of any kind is possible
_METRICS = ("custom_metrics/", "evaluation/custom_metrics/")
_POLICY_METRICS = ("policy_custom_metrics/", "evaluation/policy_custom_metrics/")
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_]*_(mean|min|max)\Z")


def check_key(key: str, policies: Collection[str], *, evaluates: bool, rates: bool) -> None:
    """Refuses a key, a path with `/`, that no result of the run can have; `rates`: the run is a league."""

    def check_policy(name: str) -> None:
        if name not in policies:
            raise ConfigError(f"unknown policy {name!r}; {nearest(name, policies)}")

    if key.startswith("evaluation/") and not evaluates:
        raise ConfigError(f"no result has {key!r}: the run has no `evaluation`")
    if any(key.startswith(prefix) and len(key) > len(prefix) for prefix in _ANY):
        return
    for prefix in (*_METRICS, *_POLICY_METRICS):
        if not key.startswith(prefix):
            continue
        name, slash, policy = key.removeprefix(prefix).partition("/")
        if not _METRIC.match(name) or bool(slash) != (prefix in _POLICY_METRICS):
            such = f"{prefix}score_mean{f'/{next(iter(policies))}' if prefix in _POLICY_METRICS else ''}"
            text = f"a metric is named {prefix}<name>_mean, _min or _max, such as {such}"
            raise ConfigError(f"{text}; found {key.removeprefix(prefix)!r}")
        if slash:
            check_policy(policy)
        return
    learner, _, rest = key.removeprefix("info/learner/").partition("/")
    if key.startswith("info/learner/"):
        check_policy(learner)
        if not rest:
            raise ConfigError("is a mapping; name one of its numbers, such as `update` or what the algorithm logs")
        return
    if key.startswith("ratings/") and not rates:
        raise ConfigError(f"no result has {key!r}: only leagues have ratings, and the run has one round")
    names = [name for name in policies if "@" not in name]
    mappings = [*_BY_POLICY, "policy_win_rate", *["ratings"] * rates]
    known, below = [*_NUMBERS], ["custom_metrics/", "policy_custom_metrics/", "info/learner/"]
    if evaluates:
        mappings += [f"evaluation/{name}" for name in _BY_POLICY]
        known += _OF_EVALUATION
        below.append("evaluation/custom/")
    of_policies = [f"{mapping}/{name}" for mapping in mappings for name in names]
    if evaluates:
        of_policies += [f"evaluation/policies/{policy}/{name}" for policy in policies for name in _EVALUATED]
    if key in known or key in of_policies:
        return
    mapping, _, name = key.rpartition("/")
    if mapping in mappings:
        check_policy(name)
    within = [one for one in of_policies if one.startswith(f"{key}/")]
    if within:
        raise ConfigError(f"is a mapping; name one of its numbers: {listed(within)}")
    shown = [*known, *(f"{mapping}/{names[0]}" for mapping in mappings if names)]
    every = [*dict.fromkeys([*shown, *of_policies])]
    meant = next((one for one in every if one.replace("_mean", "") == key), key)  # nearer to it are `_min` and `_max`
    raise ConfigError(f"no result has {key!r}; {nearest(meant, every)}; and numbers below {', '.join(below)}")


def stop_rules(stop: Mapping[str, Any]) -> tuple[StopRule, ...]:
    """The rules of `stop`: a number, or `{at_least: x}`, is met by values >= x, `{at_most: x}` by values <= x.

    Raises:
        ConfigError: a bound is something else; with its place.
    """
    rules = []
    for key, bound in stop.items():
        (name, value), *more = bound.items() if isinstance(bound, Mapping) and bound else [("at_least", bound)]
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
        if more or name not in ("at_least", "at_most") or not number:
            expected = "a number, {at_least: number} or {at_most: number}"
            raise ConfigError(f"found {show(bound)}; expected {expected}", path=f"stop.{key}")
        rules.append(StopRule(key, float(value), name == "at_least"))
    return tuple(rules)
