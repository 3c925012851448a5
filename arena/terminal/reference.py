"""The options of everything that has a name, read from its source: for `arena list NAME`, and for pages."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from arena import registry
from arena.config.matches import GENERATORS, RULES
from arena.errors import ConfigError, nearest

_FIELD = re.compile(r"    (\w+): .*?  # (.+)")
_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)  # of a docstring's section `Args:`
_GIVEN = {"lanes", "env", "context", "copy"}  # to a game, a wrapper or a connection, by the arena itself
_PARTS_OF_MATCHES = {**GENERATORS, **RULES}


class Shelf(NamedTuple):
    """Built-ins of one kind: their common title, and a line about each."""

    title: str
    entries: Mapping[str, str]


def _described(entries: Mapping[str, registry.Entry]) -> dict[str, str]:
    return {name: entry.description for name, entry in entries.items()}


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


def _documented(kinds: Mapping[str, type[msgspec.Struct]]) -> dict[str, str]:
    """The first sentences of docstrings, as a line of a list has them."""
    heads = {name: docstring(kind).partition("\n")[0] for name, kind in kinds.items()}
    return {name: head[:1].lower() + head[1:].removesuffix(".") for name, head in heads.items()}


SHELVES: Mapping[str, Shelf] = {
    "environments": Shelf("environments", _described(registry.ENVIRONMENTS)),
    "connections": Shelf("connections to external games", _described(registry.EXTERNAL)),
    "wrappers": Shelf("wrappers of environments", _described(registry.WRAPPERS)),
    "algorithms": Shelf("algorithms", _described(registry.ALGORITHMS)),
    "generators": Shelf("generators of matches", _documented(GENERATORS)),
    "rules": Shelf("rules of matchmaking", _documented(RULES)),
}
_SECTIONS = {"envs": "environments", "policies": "algorithms", "matches": "generators"}  # where they are configured
_BUILT_IN: Mapping[str, str] = {name: words for shelf in SHELVES.values() for name, words in shelf.entries.items()}


class Option(NamedTuple):
    """An option of an algorithm or a rule, an argument of a game, connection or wrapper, or a key of a generator."""

    name: str
    default: str  # as YAML would have it; `required` where there is none
    words: str  # what it means; empty where the source does not say


def options_of(name: str) -> list[Option]:
    """The options of something, in the order of its source.

    Args:
        name: a short name, or `package.module:Class` of an algorithm.

    Raises:
        ConfigError: there is no such thing.
    """
    if name in registry.ENVIRONMENTS or name in registry.EXTERNAL:
        made = registry.environment_factory(name)
        return keys_of(made.Options) if hasattr(made, "Options") else _arguments(made)
    if name in registry.WRAPPERS:
        return _fields(registry.wrapper(name))
    own = {name: (kind, found) for kind in vars(registry.OWN) for name, found in registry.own_names(kind).items()}
    if name in own and own[name][0] != "algorithm":
        return _arguments(own[name][1])
    if name in _PARTS_OF_MATCHES:
        return keys_of(_PARTS_OF_MATCHES[name])
    if ":" not in name and name not in registry.ALGORITHMS and name not in own:
        raise ConfigError(
            f"there is nothing called {name!r}; {nearest(name, [*_BUILT_IN, *SHELVES, *own])}; or an algorithm of your "
            "own as 'package.module:Name'"
        )
    cls = registry.algorithm(name)
    declared = getattr(cls, "Options", None)
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        found = keys_of(declared, optional=True)
    else:
        found = _fields(declared) if dataclasses.is_dataclass(declared) else _keywords(cls)
    return [option for option in found if option.name.partition(".")[0] not in getattr(cls, "refused_options", ())]


def _fields(declared: Any) -> list[Option]:
    """The fields of a dataclass."""
    words = {**_said(declared), **_words_of(declared)}
    fields = [field for field in dataclasses.fields(declared) if field.name not in _GIVEN]
    return [Option(field.name, _default(field), words.get(field.name, "")) for field in fields]


def keys_of(kind: type[msgspec.Struct], *, inside: str = "", optional: bool = False) -> list[Option]:
    """The keys of a mapping of the configuration; keys of a mapping inside it as paths: `reset.after`.

    Args:
        kind: of the mapping.
        inside: the path before the keys, with its dot.
        optional: also the keys of mappings that are null by default.
    """
    hints = get_type_hints(kind, include_extras=True)
    said = {name: [meta.description for meta in getattr(hint, "__metadata__", ())] for name, hint in hints.items()}
    words, found = {**_words_of(kind), **{name: words[-1] for name, words in said.items() if words and words[-1]}}, []
    hints = get_type_hints(kind) if optional else {}
    for field in msgspec.structs.fields(kind):
        key = f"{inside}{field.encode_name}"
        if isinstance(field.default, msgspec.Struct):
            found += keys_of(type(field.default), inside=f"{key}.")
        else:
            found.append(Option(key, _default(field), words.get(field.name, "")))
        for arm in get_args(hints.get(field.name)) if field.default is None else ():
            if isinstance(arm, type) and issubclass(arm, msgspec.Struct):
                found += keys_of(arm, inside=f"{key}.", optional=True)
    return found


def _words_of(declared: type[Any]) -> dict[str, str]:
    """The comments behind the fields of a class and those that it inherits."""
    return {name: said for cls in reversed(declared.__mro__) for name, said in _words(cls)}


def _words(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """The comments behind a class's own fields; none if it was created at run time, and so has no source."""
    if not (dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct)):
        return
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return
    yield from ((match[1], match[2]) for match in map(_FIELD.match, source.splitlines()) if match)


def _default(field: dataclasses.Field[Any] | msgspec.structs.FieldInfo) -> str:
    missing = (dataclasses.MISSING, msgspec.NODEFAULT)
    if field.default_factory not in missing:
        return json.dumps(field.default_factory(), default=str)
    return "required" if field.default in missing else _yaml(field.default)


def _keywords(cls: type[Any]) -> list[Option]:
    """The keywords of an algorithm's `__init__`."""
    taken = registry.option_parameters(cls)
    parameters = inspect.signature(cls.__init__).parameters
    found = [_argument(parameters[name], _said(cls).get(name, "")) for name in taken.names]
    return [*found, *([Option("...", "", "takes any other name as well")] if taken.open else [])]


def _arguments(make: Callable[..., Any]) -> list[Option]:
    """The arguments with which a game is made."""
    parameters = inspect.signature(make).parameters
    return [_argument(one, _said(make).get(one.name, "")) for one in parameters.values() if one.name not in _GIVEN]


def _argument(parameter: inspect.Parameter, words: str) -> Option:
    default = "required" if parameter.default is parameter.empty else _yaml(parameter.default)
    return Option(parameter.name, default, words)


def _said(made: Any) -> dict[str, str]:
    """The descriptions of arguments in a docstring."""
    _, _, described = docstring(made).partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", described)[0]
    return {name: " ".join(words.split()).removesuffix(".") for name, words in _ARGUMENT.findall(section)}


def _yaml(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0) and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def lines(name: str) -> list[str]:
    """Something and its options, for a terminal."""
    found = options_of(name)
    widths = [max((len(option[column]) for option in found), default=0) for column in (0, 1)]
    head = f"{name}: {_BUILT_IN[name]}" if name in _BUILT_IN else name
    rows = [f"  {option.name:<{widths[0]}}  {option.default:<{widths[1]}}  {option.words}".rstrip() for option in found]
    return [head, *(rows or ["  no options"])]


def listing() -> list[str]:
    """All that has a name, a line for each, for a terminal."""
    width = max(map(len, _BUILT_IN))
    own = {
        name: f"{kind}: {docstring(found).partition(chr(10))[0]}".removesuffix(": ").removesuffix(".")
        for kind in vars(registry.OWN)
        for name, found in registry.own_names(kind).items()
    }
    return [
        line
        for shelf in (*SHELVES.values(), *([Shelf("registered", own)] if own else []))
        for line in (f"{shelf.title}:", *(f"  {name:<{width}}  {words}" for name, words in shelf.entries.items()))
    ]


def named(names: Sequence[str]) -> list[str]:
    """Single names: `rules` stands for all rules, and `algorithms` for all algorithms that need no other library.

    A section of the configuration stands for what it lists: `envs` for environments.
    """
    found: list[str] = []
    for name in (_SECTIONS.get(one, one) for one in names):
        known = SHELVES[name].entries if name in SHELVES else (name,)
        found += [one for one in known if name != "algorithms" or not registry.ALGORITHMS[one].extra]
    return found


def page(names: Sequence[str]) -> str:
    """The options of what is named, in Markdown."""
    shelves = [shelf.title for shelf in SHELVES.values() if any(name in shelf.entries for name in names)]
    titles = " and the ".join(shelves or ["algorithms"])
    parts = [
        f"# Options of the {titles}\n",
        "Written by `make reference` from the source; `arena list` shows the options of one in the terminal:\n",
        f"```sh\narena list {names[0]}\n```\n",
    ]
    for name in names:
        rows = [f"| `{option.name}` | `{option.default}` | {option.words} |" for option in options_of(name)]
        table = ["| option | default | meaning |", "|---|---|---|", *rows] if rows else ["No options."]
        parts.append("\n".join([f"## {name}\n", f"{_head(name)}\n", *table, ""]))
    return "\n".join(parts)


def _head(name: str) -> str:
    """What something is; for an algorithm of the arena also a link to its source, relative to `docs/algorithms/`."""
    words = _BUILT_IN.get(name, "an algorithm of your own")
    if name not in registry.ALGORITHMS:
        return words
    file = registry.ALGORITHMS[name].target.partition(":")[0].replace(".", "/")
    return f"{words}; [{file}.py](../../{file}.py)"
