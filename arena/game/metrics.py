"""Metrics that a game reports of an entity: `info["metrics"]` on the tick on which it ends."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
NAME_RULE = "letters, digits and '_', the first a letter"


def is_metric_name(name: Any) -> bool:
    """Whether a metric can have this name."""
    return isinstance(name, str) and _NAME.match(name) is not None


def stated_metrics(info: Mapping[str, Any]) -> dict[str, float] | None:
    """The finite numbers of `info["metrics"]`; None unless all of it is a mapping of names to numbers.

    Some games use this key for something else.
    """
    found = info.get("metrics")
    if not isinstance(found, Mapping) or not all(map(is_metric_name, found)):
        return None
    values = {name: value.item() if hasattr(value, "dtype") else value for name, value in found.items()}
    if not all(isinstance(value, Real) for value in values.values()):
        return None
    return {name: number for name, value in values.items() if math.isfinite(number := float(value))} or None


def mean_metrics(stated: Iterable[Mapping[str, float]]) -> dict[str, float] | None:
    """The mean of each metric over the entities that have stated it; None without one."""
    values: dict[str, list[float]] = {}
    for metrics in stated:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    return {name: math.fsum(own) / len(own) for name, own in values.items()} or None
