"""Values that vary from trial to trial: the forms of an experiment file, their combinations and their random draws.

{grid_search: [a, b]}       every value, with every value of the other keys
{choice: [a, b]}            one of them, as a search suggests
{uniform: [low, high]}      a number; {loguniform: ...} evenly in its logarithm
{integers: [low, high]}     a whole number, both ends possible; {logintegers: ...} evenly in its logarithm
{literal: X}                X itself, where X looks like one of these forms
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.config.decode import joined, show
from arena.errors import ConfigError

if TYPE_CHECKING:
    from numpy.random import Generator

_LISTS = ("grid_search", "choice")
_RANGES = ("uniform", "loguniform", "integers", "logintegers")
_LITERAL = "literal"

Params = Mapping[str, Any]
"""Values by key path, in the order of the file."""


class Grid(NamedTuple):
    """Every one of these values."""

    values: tuple[Any, ...]


class Choice(NamedTuple):
    """One of these values."""

    values: tuple[Any, ...]

    def draw(self, rng: Generator) -> Any:
        """A random one."""
        return self.values[int(rng.integers(len(self.values)))]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that are tried before a search begins."""
        return self.values


class Range(NamedTuple):
    """A number between two ends, both possible."""

    low: float
    high: float
    integer: bool
    log: bool

    def draw(self, rng: Generator) -> float:
        """A random one."""
        if self.integer and not self.log:
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        margin = 0.5 if self.integer else 0.0  # the ends are as likely as other whole numbers of their size
        low, high = self.low - margin, self.high + margin
        drawn = rng.random()
        if self.log:
            value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * drawn)
        else:
            value = low + (high - low) * drawn
        value = min(max(value, self.low), self.high)
        return round(value) if self.integer else value

    @property
    def ends(self) -> tuple[float, ...]:
        """The values that are tried before a search begins."""
        return (self.low, self.high)


Form = Grid | Choice | Range


def is_within(form: Form, value: Any) -> bool:
    """Whether a value is one of those that a form stands for."""
    if isinstance(form, Range):
        return isinstance(value, (int, float)) and form.low <= value <= form.high
    return value in form.values


class VariedPlace(NamedTuple):
    """A place of a configuration and what varies there."""

    path: str
    form: Form


def read_form(value: Any, path: str) -> Form | None:
    """What a value stands for if it is a mapping with the key of a form; None for any other value.

    Raises:
        ConfigError: an empty list, ends in the wrong order, or of the wrong type.
    """
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((kind, content),) = value.items()
    place, spelled = joined(path, str(kind)), re.sub("[-_ ]", "", str(kind)).lower()
    plain = {form.replace("_", ""): form for form in (*_LISTS, *_RANGES)}
    # Short ones, as `choice`, are near to names that a game may have, as `choices`.
    close = difflib.get_close_matches(spelled, [form for form in plain if len(form) > 8], 1, 0.85)
    meant = plain.get(spelled) or (plain[close[0]] if close else kind)
    if meant != kind and isinstance(content, list):
        raise ConfigError(f"unknown form {kind!r}; did you mean {meant!r}?", path=place)
    if kind in _LISTS:
        if not isinstance(content, list) or not content:
            raise ConfigError(f"found {show(content)}; expected a list with at least one value", path=place)
        return Grid(tuple(map(unquoted, content))) if kind == "grid_search" else Choice(tuple(map(unquoted, content)))
    if kind not in _RANGES:
        return None
    integer, log = kind.endswith("integers"), kind.startswith("log")
    ends = content if isinstance(content, list) else []
    if len(ends) != 2 or not all(
        isinstance(end, (int, float))
        and not isinstance(end, bool)
        and math.isfinite(end)
        and (not integer or float(end).is_integer())
        for end in ends
    ):
        what = "whole numbers" if integer else "numbers"
        raise ConfigError(f"found {show(content)}; expected two {what}, [low, high]", path=place)
    low, high = content
    if not low < high:
        raise ConfigError(f"found {show(content)}; the first end must be less than the second", path=place)
    if log and low <= 0:
        raise ConfigError(f"found {show(content)}; a logarithm needs ends above 0", path=place)
    return Range(int(low) if integer else float(low), int(high) if integer else float(high), integer, log)


def unquoted(value: Any) -> Any:
    """The value of a `literal`; any other value is itself."""
    return value[_LITERAL] if isinstance(value, Mapping) and [*value] == [_LITERAL] else value


def find(value: Any, path: str) -> Iterator[VariedPlace]:
    """The forms in configuration data, in its order, each with its place."""
    form = read_form(value, path)
    if form is not None:
        yield VariedPlace(path, form)
    elif isinstance(value, Mapping) and [*value] != [_LITERAL]:
        for key, item in value.items():
            yield from find(item, joined(path, str(key)))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from find(item, f"{path}[{place}]")


def without_forms(value: Any) -> Any:
    """The data with null in the place of each form, and the value of each literal in its place."""
    if read_form(value, "") is not None:
        return None
    if isinstance(value, Mapping):
        if [*value] == [_LITERAL]:
            return value[_LITERAL]
        return {key: without_forms(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_forms(item) for item in value]
    return value


def grid(varied: Sequence[VariedPlace]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of the grids, the last key fastest; one empty combination without grids."""
    grids = [(each.path, each.form.values) for each in varied if isinstance(each.form, Grid)]
    for values in product(*(values for _, values in grids)):
        yield dict(zip((path for path, _ in grids), values, strict=True))


def in_order(varied: Sequence[VariedPlace], params: Params) -> dict[str, Any]:
    """The values in the order in which their keys stand in the file."""
    return {each.path: params[each.path] for each in varied}


def value_text(value: Any) -> str:
    """A value in a few characters, for names of folders and for tables."""
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), default=str)


def short_text(value: Any) -> str:
    """The same with at most six digits of a drawn number, for tables that people read."""
    return value_text(float(f"{value:.6g}") if isinstance(value, float) else value)


def labels(paths: Sequence[str]) -> dict[str, str]:
    """The short name of each key: its last part, or as many parts as make it different from the others."""
    tokens = {path: path.replace("[", ".").replace("]", "").split(".") for path in paths}
    found: dict[str, str] = {}
    for path, parts in tokens.items():
        others = [other for name, other in tokens.items() if name != path]
        # A number alone, the place in a list, says nothing.
        lengths = (size for size in range(1, len(parts)) if not parts[-size].isdigit())
        size = next((size for size in lengths if all(other[-size:] != parts[-size:] for other in others)), len(parts))
        found[path] = ".".join(parts[-size:])
    return found
