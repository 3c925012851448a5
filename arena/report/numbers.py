"""Numbers as a reader likes them: few digits, thin spaces between thousands, a true minus sign."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from arena import errors

THIN = "\u202f"
MINUS = "\u2212"
NOTHING = "\u2013"
ROUNDING = 1e-15  # what is smaller counts as the rounding error of numbers of about 1


def count(value: float) -> str:
    """`12 345`; a share of a game keeps one digit."""
    return _signed(f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}").replace(",", THIN)


def decimal(value: float) -> str:
    """Two digits after the point, or three that tell something; the rounding error of a sum of about 1 is 0."""
    if not math.isfinite(value):
        return str(value)
    value = 0.0 if abs(value) < ROUNDING else value
    small = value != 0 and not 0.01 <= abs(value) < 10_000
    return _signed(f"{value:.3g}" if small else f"{value + 0.0:,.2f}").replace(",", THIN)  # -0.0 has no sign


def elo(value: float) -> str:
    """`+23`, rounded; `0` has no sign."""
    return _signed(f"{value:+.0f}" if round(value) else "0")


def share(value: float) -> str:
    """`0.63`"""
    return f"{value:.2f}"


def portion(value: float) -> str:
    """`0.043`"""
    return _signed(f"{round(value, 3) + 0.0:.3f}")


def percent(value: float) -> str:
    """`12.3 %`"""
    return errors.percent(value, 1).replace(" ", THIN)


def duration(seconds: float) -> str:
    """`2 h 14 min`, `3 min 5 s`, `4.2 s`"""
    if seconds < 60:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min" if hours else f"{minutes}{THIN}min {rest}{THIN}s"


def _signed(text: str) -> str:
    return text.replace("-", MINUS)


FORMS: Mapping[str, Callable[[float], str]] = {
    form.__name__: form for form in (count, decimal, elo, share, portion, percent, duration)
}
