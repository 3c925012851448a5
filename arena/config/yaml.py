"""Reading and writing YAML for configurations: plain data only.

Differences to PyYAML's safe loader: `3e-4` is a number (as in YAML 1.2; YAML 1.1 reads a string), `12:30`, `010` and
`2024-01-01` are not turned into other numbers or dates, a key that is given twice is an error, and so is a document
that contains itself. What `dump` writes, `load` reads back as equal data.

A text may come from an untrusted source: one that is very long, deep, or large once its aliases are written out is
refused before it is decoded.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from arena.errors import ConfigError

_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+"
    r"|[-+]?[0-9][0-9_]*\.[0-9_]*"
    r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_INT = re.compile(r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$")
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
UNUSABLE = re.compile("[\0\ud800-\udfff]")  # no file name, no module and no console takes them
MOST_CHARACTERS = 100_000
"""Of a text that a person writes, and of what it holds once its aliases are written out; it takes a second to read."""
WRITTEN = "# Written by the arena: every default is here.\n"
"""The first line of a text of `dump` in a file. It has any length, and holds no more than its own characters."""
_DEEPEST = 50  # levels
_MOST_DIGITS = 100  # of an integer
_REPLACED = ("float", "int", "timestamp", "value")  # implicit types of YAML 1.1 that are read otherwise, or not at all


class _Loader(yaml.SafeLoader):
    """Reads plain data only."""


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back; shares nothing by anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_IMPLICIT = {  # by first character: what a word without quotes may be
    first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in _REPLACED]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+0123456789.":
    _IMPLICIT.setdefault(_first, []).extend([("tag:yaml.org,2002:float", _FLOAT), ("tag:yaml.org,2002:int", _INT)])
_Loader.yaml_implicit_resolvers = _Dumper.yaml_implicit_resolvers = _IMPLICIT


def _read_int(_: yaml.SafeLoader, node: yaml.Node) -> int:
    text = str(node.value).replace("_", "")
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits; at most {_MOST_DIGITS}")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _read_int)


def load(text: str, *, source: str) -> Any:
    """The plain data of a YAML document: mappings, lists, strings, numbers, booleans, None.

    Raises:
        ConfigError: not YAML, with line, column and the line's text; a key given twice.
    """
    most = max(MOST_CHARACTERS, len(text) if text.startswith(WRITTEN) else 0)
    if len(text) > most:
        raise ConfigError(f"is longer than {most} characters", source=source)
    try:
        loader = _Loader(text)
        node: yaml.Node | None = loader.get_single_node()
        if node is None:
            return None
        _check(node, text, source, most)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        problem += "; indent by spaces, not by tabs" if r"'\t'" in problem else ""
        raise _at_mark(problem, error.problem_mark or error.context_mark, text, source) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", source=source) from error
    except RecursionError as error:
        raise ConfigError("the YAML is nested too deeply, or contains itself", source=source) from error
    except (ValueError, LookupError) as error:  # such as `!!int x`, `!!bool x`
        raise ConfigError(f"not YAML: {error}", source=source) from error


def dump(data: Any) -> str:
    """Plain data as YAML, keys in their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120))


def _check(root: yaml.Node, text: str, source: str, most: int) -> None:
    """Refuses what is not plain data, or becomes too large when aliases are written out.

    Raises:
        ConfigError: with the place, if it has one.
        RecursionError: nested too deeply, or it contains itself.
    """
    found: dict[int, tuple[int, int] | None] = {}  # by identity: characters, aliases written out, and levels

    def measured(node: yaml.Node) -> tuple[int, int]:
        if id(node) in found:
            if (known := found[id(node)]) is None:  # a node is inside itself
                raise RecursionError
            return known
        found[id(node)] = None
        inner = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        sizes = [measured(child) for child in inner]
        if node.tag not in _PLAIN:
            raise _at_mark(f"{node.tag!r:.80} is no plain data", node.start_mark, text, source)
        if isinstance(node, yaml.ScalarNode) and UNUSABLE.search(node.value):
            raise _at_mark("a NUL, or half of a surrogate pair, is in no text", node.start_mark, text, source)
        lines: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            if key.value in lines:
                problem = f"the key {key.value!r} is given twice (first in line {lines[key.value]})"
                raise _at_mark(problem, key.start_mark, text, source)
            lines[key.value] = key.start_mark.line + 1
        characters = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        depth = 1 + max((levels for _, levels in sizes), default=0)
        found[id(node)] = known = 1 + characters + sum(size for size, _ in sizes), depth
        return known

    size, depth = measured(root)
    if depth > _DEEPEST:
        raise RecursionError
    if size > most:
        raise ConfigError(f"holds more than {most} characters when its aliases are written out", source=source)


def _at_mark(problem: str, mark: yaml.Mark | None, text: str, source: str) -> ConfigError:
    """An error that shows the line, with a caret under the column."""
    if mark is None:
        return ConfigError(f"not YAML: {problem}", source=source)
    lines = text.splitlines() or [""]
    line = lines[min(mark.line, len(lines) - 1)].replace("\t", " ")
    return ConfigError(
        f"{problem}\n  line {mark.line + 1}, column {mark.column + 1}:\n    {line}\n    {' ' * mark.column}^",
        source=source,
    )
