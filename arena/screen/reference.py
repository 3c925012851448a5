"""What algorithms, games and wrappers can be given, as their source says it: for `arena list NAME`, and for a page."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from arena import registry
from arena.errors import ConfigError, nearest

_FIELD = re.compile(r"    (\w+): .*?  # (.+)")
_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)  # of a docstring's section `Args:`
_GIVEN = {"lanes", "env"}  # to a game or a wrapper, by the arena itself
_BUILT_IN = {**registry.ENVIRONMENTS, **registry.WRAPPERS, **registry.ALGORITHMS}


class Option(NamedTuple):
    """An option of an algorithm, or an argument of a game or a wrapper."""

    name: str
    default: str  # as YAML would have it; `required` where there is none
    words: str  # what it means; empty where the source does not say


def options_of(name: str) -> list[Option]:
    """What an algorithm, a game or a wrapper can be given, in the order of its source.

    Args:
        name: a short name, or `package.module:Class` of an algorithm.

    Raises:
        ConfigError: there is no such thing.
    """
    if name in registry.ENVIRONMENTS:
        return _arguments(registry.environment_factory(name))
    if name in registry.WRAPPERS:
        return _fields(registry.wrapper(name))
    if ":" not in name and name not in registry.ALGORITHMS:
        raise ConfigError(
            f"there is no algorithm, environment or wrapper {name!r}; {nearest(name, _BUILT_IN)}; or an algorithm of "
            "your own as 'package.module:Name'"
        )
    cls = registry.algorithm(name)
    declared = getattr(cls, "Options", None)
    found = _fields(declared) if dataclasses.is_dataclass(declared) else _keywords(cls)
    return [option for option in found if option.name not in getattr(cls, "refused_options", ())]


def _fields(declared: Any) -> list[Option]:
    """The fields of a dataclass."""
    words = {name: said for cls in reversed(declared.__mro__) for name, said in _words(cls)}
    return [
        Option(field.name, _default(field), field.metadata.get("words", words.get(field.name, "")))
        for field in dataclasses.fields(declared)
    ]


def _words(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """The comments behind a dataclass's fields; none where a program has made it, so that it has no source."""
    if not dataclasses.is_dataclass(cls):
        return
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return
    yield from ((match[1], match[2]) for match in map(_FIELD.match, source.splitlines()) if match)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return json.dumps(field.default_factory(), default=str)
    return "required" if field.default is dataclasses.MISSING else _yaml(field.default)


def _keywords(cls: type[Any]) -> list[Option]:
    """The keywords of an algorithm's `__init__`."""
    taken = registry.option_parameters(cls)
    parameters = inspect.signature(cls.__init__).parameters
    found = [_argument(parameters[name], _said(cls).get(name, "")) for name in taken.names]
    return [*found, *([Option("...", "", "takes any other name as well")] if taken.open else [])]


def _arguments(make: Callable[..., Any]) -> list[Option]:
    """What a game is made with."""
    parameters = inspect.signature(make).parameters
    return [_argument(one, _said(make).get(one.name, "")) for one in parameters.values() if one.name not in _GIVEN]


def _argument(parameter: inspect.Parameter, words: str) -> Option:
    default = "required" if parameter.default is parameter.empty else _yaml(parameter.default)
    return Option(parameter.name, default, words)


def _said(made: Any) -> dict[str, str]:
    """What a docstring says of arguments."""
    _, _, described = (inspect.getdoc(made) or "").partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", described)[0]
    return {name: " ".join(words.split()).removesuffix(".") for name, words in _ARGUMENT.findall(section)}


def _yaml(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0) and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def lines(name: str) -> list[str]:
    """An algorithm, a game or a wrapper and its options, for a terminal."""
    found = options_of(name)
    widths = [max((len(option[column]) for option in found), default=0) for column in (0, 1)]
    entry = _BUILT_IN.get(name)
    head = f"{name}: {entry.description}" if entry else name
    rows = [f"  {option.name:<{widths[0]}}  {option.default:<{widths[1]}}  {option.words}".rstrip() for option in found]
    return [head, *(rows or ["  no options"])]


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
