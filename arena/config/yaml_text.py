"""YAML in and out, as a configuration wants it: plain data, no surprises.

Differences to PyYAML's safe loader: `3e-4` is a number (as in YAML 1.2; YAML 1.1 reads a string), `12:30`, `010` and
`2024-01-01` are not turned into other numbers or dates, a key that is given twice is an error, and so is a document
that contains itself. What `dump` writes, `load` reads back as equal data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_REPLACED = ("float", "int", "timestamp", "value")  # implicit types of YAML 1.1 that are read otherwise, or not at all


class _Loader(yaml.SafeLoader):
    """Reads plain data only."""


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back; shares nothing by anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _read_int(_: yaml.SafeLoader, node: yaml.Node) -> int:
    text = str(node.value).replace("_", "")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _implicit_types() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """By first character: what a plain word may be, as PyYAML wants it."""
    rules = {
        first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in _REPLACED]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+0123456789.":
        added = [("tag:yaml.org,2002:float", _FLOAT), ("tag:yaml.org,2002:int", _INT)]
        rules[first] = [*rules.get(first, []), *added]
    return rules


_Loader.yaml_implicit_resolvers = _implicit_types()
_Dumper.yaml_implicit_resolvers = _implicit_types()
_Loader.add_constructor("tag:yaml.org,2002:int", _read_int)


def load(text: str, *, source: str) -> Any:
    """The plain data of a YAML document: mappings, lists, strings, numbers, booleans, None.

    Raises:
        ConfigError: not YAML, with line, column and the line's text; a key given twice.
    """
    try:
        loader = _Loader(text)
        node: yaml.Node | None = loader.get_single_node()
        if node is None:
            return None
        for part in _nodes(node, ()):
            _refuse_doubled_keys(part, text, source)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise _at_mark(problem, error.problem_mark or error.context_mark, text, source) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", source=source) from error
    except RecursionError as error:
        raise ConfigError("the YAML is nested too deeply, or contains itself", source=source) from error
    except ValueError as error:  # such as an integer of thousands of digits
        raise ConfigError(f"not YAML: {error}", source=source) from error


def dump(data: Any) -> str:
    """Plain data as YAML, keys in their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120))


def _nodes(node: yaml.Node, above: tuple[yaml.Node, ...]) -> Iterator[yaml.Node]:
    if any(node is other for other in above):
        raise RecursionError
    yield node
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                yield from _nodes(part, (*above, node))


def _refuse_doubled_keys(node: yaml.Node, text: str, source: str) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
            continue
        if key.value in lines:
            raise _at_mark(
                f"the key {key.value!r} is given twice (first in line {lines[key.value]})", key.start_mark, text, source
            )
        lines[key.value] = key.start_mark.line + 1


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
