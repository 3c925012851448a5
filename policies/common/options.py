"""Checks of option values: an algorithm's `Options` calls them, a configuration's author reads their errors."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

from arena.errors import ConfigError, nearest

AUTO = "auto"
"""The value of an option that is computed from how the policy plays: rows, workers, ticks."""


def wrong(name: str, value: object, expected: str) -> ConfigError:
    """The error for an option's value, with its place in the configuration."""
    return ConfigError(f"got {value!r}, expected {expected}", path=f"options.{name}")


def is_number(value: object, *, whole: bool = False) -> bool:
    """Whether a value is a finite number and no bool."""
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def check_numbers(
    options: object,
    *names: str,
    at_least: float = -math.inf,
    more_than: float = -math.inf,
    at_most: float = math.inf,
    whole: bool = False,
    optional: bool = False,
    or_auto: bool = False,
) -> None:
    """Checks that options are numbers in a range; `optional` also takes None, `or_auto` is named in the message.

    A range begins with `at_least`, or beyond `more_than`.

    Raises:
        ConfigError: one is not.
    """
    least = f"more than {more_than:g}" if more_than > -math.inf else f"at least {at_least:g}"
    top = f" and at most {at_most:g}" if at_most < math.inf else ""
    first, last = "auto, or " if or_auto else "", ", or null" if optional else ""
    expected = f"{first}a {'whole ' if whole else ''}number, {least}{top}{last}"
    for name in names:
        value = getattr(options, name)
        if optional and value is None:
            continue
        if not is_number(value, whole=whole) or not at_least <= value <= at_most or value <= more_than:
            raise wrong(name, value, expected)


def check_auto(
    options: object, *names: str, at_least: float = -math.inf, more_than: float = -math.inf, whole: bool = True
) -> None:
    """Checks that options are numbers in a range, as `check_numbers` does; `auto` is taken where it is the default.

    Raises:
        ConfigError: one is something else.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}  # type: ignore[arg-type]
    for name in names:
        if defaults[name] != AUTO or getattr(options, name) != AUTO:
            known = defaults[name] == AUTO
            check_numbers(options, name, at_least=at_least, more_than=more_than, whole=whole, or_auto=known)


def check_choice(options: object, name: str, known: Iterable[str]) -> None:
    """Checks that an option is one of the known words.

    Raises:
        ConfigError: it is not; the message names the nearest.
    """
    value = getattr(options, name)
    if value not in tuple(known):
        raise ConfigError(f"unknown value {value!r}; {nearest(str(value), known)}", path=f"options.{name}")


def check_flag(options: object, name: str) -> None:
    """Checks that an option is true or false.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(getattr(options, name), bool):
        raise wrong(name, getattr(options, name), "true or false")


def check_sizes(options: object, name: str) -> tuple[int, ...]:
    """An option that is a list of positive whole numbers, as a tuple.

    Raises:
        ConfigError: it is something else.
    """
    value = getattr(options, name)
    if isinstance(value, (list, tuple)) and all(is_number(size, whole=True) and size > 0 for size in value):
        return tuple(value)
    raise wrong(name, value, "a list of positive whole numbers, as [64, 64]")


def check_unused(options: Any, *names: str, **unless: object) -> None:
    """Refuses options that were set although another one's value leaves them without effect.

    `check_unused(self, "hidden_size", recurrent=None)`: where `recurrent` is null, `hidden_size` has its default.

    Args:
        options: a dataclass.
        names: of the options without effect.
        unless: the name of the other option, and the value that makes it so, or a test of its value.

    Raises:
        ConfigError: one of the options has another value than its default.
    """
    ((other, idle),) = unless.items()
    found = getattr(options, other)
    if idle(found) if callable(idle) else found == idle:
        _refuse_set(options, names, where=f"{other} is {_yaml(found)}", instead=f", or set {other}")


def check_idle(options: Any, *names: str, where: str) -> None:
    """Refuses options that were set although they have no effect where the policy plays.

    Args:
        options: a dataclass.
        names: of the options without effect.
        where: why they have none, as "the actions are Discrete(3)".

    Raises:
        ConfigError: one of the options has another value than its default.
    """
    _refuse_set(options, names, where=where)


def _refuse_set(options: Any, names: Iterable[str], *, where: str, instead: str = "") -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            raise wrong(name, value, f"no {name} where {where}: it has no effect there; leave it out{instead}")


def check_falls(options: Any, first: str, last: str) -> None:
    """Refuses an option that is to fall from one value to another which is higher.

    Raises:
        ConfigError: it is.
    """
    begins, ends = getattr(options, first), getattr(options, last)
    if begins < ends:
        raise wrong(first, begins, f"at least {last}, {ends}: it falls from the one to the other")


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
