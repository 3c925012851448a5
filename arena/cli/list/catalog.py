"""Everything that has a name, and its options with their descriptions, read from their source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from arena import registry
from arena.config import matches
from arena.config.descriptions import descriptions_of
from arena.errors import ConfigError, nearest

_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)  # of a docstring's section `Args:`
_GIVEN = {"lanes", "env", "context", "copy"}  # to a game, a wrapper or a connection, by the arena itself
_PARTS_OF_MATCHES = {**matches.GENERATORS, **matches.RULES}


class Catalog(NamedTuple):
    """Built-ins of one kind: their common title, and a line about each."""

    title: str
    entries: Mapping[str, str]


def docstring(made: Any) -> str:
    """The docstring of a class or function; under `python -OO`, which strips it, from its source."""
    stripped = isinstance(made, type) and vars(made).get("__doc__") is None  # `getdoc` would take a base class's
    if not stripped and (found := inspect.getdoc(made)):
        return found
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(made))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # created at run time, or an object
        return ""
    return (ast.get_docstring(node) or "") if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else ""


def _about(entry: registry.Entry | type[msgspec.Struct]) -> str:
    """The description of a built-in, or the first sentence of its docstring."""
    if isinstance(entry, registry.Entry):
        return entry.description
    head = docstring(entry).partition("\n")[0].removesuffix(".")
    return head[:1].lower() + head[1:]


_TITLES: Mapping[str, Mapping[str, Any]] = {
    "environments": registry.ENVIRONMENTS,
    "connections to external games": registry.EXTERNAL,
    "wrappers of environments": registry.WRAPPERS,
    "algorithms": registry.ALGORITHMS,
    "generators of matches": matches.GENERATORS,
    "rules of matchmaking": matches.RULES,
}
SHELVES: Mapping[str, Catalog] = {
    title.partition(" ")[0]: Catalog(title, {name: _about(entry) for name, entry in entries.items()})
    for title, entries in _TITLES.items()
}
BUILT_IN: Mapping[str, str] = {name: text for shelf in SHELVES.values() for name, text in shelf.entries.items()}


class Option(NamedTuple):
    """An option of an algorithm or a rule, an argument of a game, connection or wrapper, or a key of a generator."""

    name: str
    default: str  # as YAML would have it; `required` where there is none
    text: str  # what it means; empty where the source does not say
    kind: Any = None  # its type, of a key


def kinds_of(name: str) -> list[str]:
    """The kinds of objects with this name, a built-in one first."""
    built_in = [shelf[:-1] for shelf, catalog in SHELVES.items() if name in catalog.entries]
    return list(dict.fromkeys([*built_in, *(one.kind for one in registry.added() if one.name == name)]))


def options_of(name: str, kind: str = "") -> list[Option]:
    """The options of something by its short name, or of an algorithm as `package.module:Class`, in source order.

    `kind` is of `kinds_of`, by default the first one.
    """
    kinds = kinds_of(name)
    if ":" not in name and not kinds:
        known = nearest(name, [*BUILT_IN, *SHELVES, *(one.name for one in registry.added())])
        raise ConfigError(
            f"there is nothing called {name!r}; {known}; or an algorithm of your own as 'package.module:Name'"
        )
    kind = kind or [*kinds, "algorithm"][0]
    if name not in BUILT_IN or kind != kinds[0]:
        for made in (registry.load_plugin(one) for one in registry.added() if (one.kind, one.name) == (kind, name)):
            if kind != "algorithm":
                return _arguments(made)
    elif kind in ("environment", "connection"):
        made = registry.environment_factory(name)
        return keys_of(made.Options) if hasattr(made, "Options") else _arguments(made)
    elif kind != "algorithm":
        return _fields(registry.wrapper(name)) if kind == "wrapper" else keys_of(_PARTS_OF_MATCHES[name])
    cls = registry.algorithm(name)
    declared = getattr(cls, "Options", None)
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        found = keys_of(declared, optional=True)
    elif dataclasses.is_dataclass(declared):
        found = _fields(declared)
    else:  # the keywords of its `__init__`
        taken, parameters = registry.option_parameters(cls), inspect.signature(cls.__init__).parameters
        found = [_argument(parameters[name], _said(cls).get(name, "")) for name in taken.names]
        found += [Option("...", "", "takes any other name as well")] if taken.open else []
    return [option for option in found if option.name.partition(".")[0] not in getattr(declared, "REFUSED", ())]


def _fields(declared: Any) -> list[Option]:
    """The fields of a dataclass."""
    descriptions = {**_said(declared), **descriptions_of(declared)}
    fields = [field for field in dataclasses.fields(declared) if field.name not in _GIVEN]
    return [Option(field.name, _default(field), descriptions.get(field.name, "")) for field in fields]


def keys_of(kind: type[msgspec.Struct], *, inside: str = "", optional: bool = False) -> list[Option]:
    """The keys of a mapping of the configuration; keys of a mapping inside it as paths: `reset.after`.

    `inside` is the path before the keys, with its dot; `optional` adds the keys of mappings that are null by default.
    """
    hints = get_type_hints(kind, include_extras=True)
    said = {name: [meta.description for meta in getattr(hint, "__metadata__", ())] for name, hint in hints.items()}
    descriptions = {**descriptions_of(kind), **{name: text[-1] for name, text in said.items() if text and text[-1]}}
    found = []
    hints = get_type_hints(kind) if optional else {}
    for field in msgspec.structs.fields(kind):
        key = f"{inside}{field.encode_name}"
        if isinstance(field.default, msgspec.Struct):
            found += keys_of(type(field.default), inside=f"{key}.")
        else:
            found.append(Option(key, _default(field), descriptions.get(field.name, ""), field.type))
        for arm in get_args(hints.get(field.name)) if field.default is None else ():
            if isinstance(arm, type) and issubclass(arm, msgspec.Struct):
                found += keys_of(arm, inside=f"{key}.", optional=True)
    return found


def _default(field: dataclasses.Field[Any] | msgspec.structs.FieldInfo) -> str:
    missing = (dataclasses.MISSING, msgspec.NODEFAULT)
    if field.default_factory not in missing:
        return json.dumps(field.default_factory(), default=str)
    return "required" if field.default in missing else _yaml(field.default)


def _arguments(make: Callable[..., Any]) -> list[Option]:
    """The arguments with which a game is made."""
    parameters = inspect.signature(make).parameters
    return [_argument(one, _said(make).get(one.name, "")) for one in parameters.values() if one.name not in _GIVEN]


def _argument(parameter: inspect.Parameter, text: str) -> Option:
    default = "required" if parameter.default is parameter.empty else _yaml(parameter.default)
    return Option(parameter.name, default, text)


def _said(made: Any) -> dict[str, str]:
    """The descriptions of arguments in a docstring."""
    _, _, described = docstring(made).partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", described)[0]
    return {name: " ".join(text.split()).removesuffix(".") for name, text in _ARGUMENT.findall(section)}


def _yaml(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0) and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, default=str)
