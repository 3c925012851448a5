"""Whether a result meets a stop rule; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.config.result_keys import CLOCK_NUMBERS, StopRule
from arena.results.files import numbers


class Met(NamedTuple):
    """A result that meets a stop rule: the rule, the tick of the result, and its value."""

    rule: StopRule
    tick: int
    value: float

    @property
    def by_clock(self) -> bool:
        """Whether the value depends on when and where the run is played."""
        return self.rule.key in CLOCK_NUMBERS or self.rule.key.startswith("sampler_perf/")


def first_met(rules: Sequence[StopRule], result: Mapping[str, Any]) -> Met | None:
    """The first rule that a result meets; None if it meets none, as with values that are missing or NaN."""
    found = numbers(result) if rules else {}
    for rule in rules:
        if rule.key in found and rule.is_met(found[rule.key]):
            return Met(rule, result["ticks"], found[rule.key])
    return None
