"""The options of algorithms, as their own source says them: for `arena list NAME`, and for a page."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from arena import registry

_FIELD = re.compile(r"    (\w+): .*?  # (.+)")


class Option(NamedTuple):
    """An option of an algorithm."""

    name: str
    default: str  # as YAML would have it; `required` where there is none
    words: str  # what it means; empty where the source does not say


def options_of(name: str) -> list[Option]:
    """The options of an algorithm that has a dataclass `Options`, in the order of its fields; else none.

    Args:
        name: a short name, or `package.module:Class`.

    Raises:
        ConfigError: there is no such algorithm.
    """
    declared = getattr(registry.algorithm(name), "Options", None)
    if not (isinstance(declared, type) and dataclasses.is_dataclass(declared)):
        return []
    words = {name: said for cls in reversed(declared.__mro__) for name, said in _words(cls)}
    return [Option(field.name, _default(field), words.get(field.name, "")) for field in dataclasses.fields(declared)]


def _words(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """The comments behind a dataclass's fields."""
    if dataclasses.is_dataclass(cls):
        found = map(_FIELD.match, inspect.getsource(cls).splitlines())
        yield from ((match[1], match[2]) for match in found if match)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return json.dumps(field.default_factory(), default=str)
    return "required" if field.default is dataclasses.MISSING else _yaml(field.default)


def _yaml(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0) and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def lines(name: str) -> list[str]:
    """An algorithm and its options, for a terminal."""
    found = options_of(name)
    widths = [max((len(option[column]) for option in found), default=0) for column in (0, 1)]
    entry = registry.ALGORITHMS.get(name)
    head = f"{name}: {entry.description}" if entry else name
    rows = [f"  {option.name:<{widths[0]}}  {option.default:<{widths[1]}}  {option.words}".rstrip() for option in found]
    return [head, *(rows or ["  no options that it declares in a dataclass `Options`"])]


def page(names: Sequence[str]) -> str:
    """The options of algorithms in Markdown."""
    parts = ["# Options of the algorithms\n", "Written by `make reference`; `arena list NAME` shows the same.\n"]
    for name in names:
        found = options_of(name)
        entry = registry.ALGORITHMS.get(name, registry.Entry(name, "an algorithm of your own"))
        file = entry.target.partition(":")[0].replace(".", "/").removeprefix("policies/")
        rows = [f"| `{option.name}` | `{option.default}` | {option.words} |" for option in found]
        table = ["| option | default | meaning |", "|---|---|---|", *rows] if rows else ["No options."]
        parts.append("\n".join([f"## {name}\n", f"{entry.description}; [{file}.py]({file}.py)\n", *table, ""]))
    return "\n".join(parts)
