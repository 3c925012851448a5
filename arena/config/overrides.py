"""`--set key.path=value`: changes to configuration data before it is checked.

A path goes through keys and list places: `policies.blue.options.learning_rate`, `matches[0].lanes`, `matches.0.lanes`.
Keys that hold dots themselves are found too: of the keys that fit, the longest is taken. Mappings that are missing on
the way are made, and a name on the way, as of `rule: fictitious`, counts as `{fictitious: {}}` where the path goes on
with it. The check of the whole configuration decides whether they are allowed; in its errors, `Origin.blame` then names
the override instead of the file.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.config import yaml
from arena.config.decode import joined
from arena.errors import ConfigError, OverriddenPlace

_PATH = re.compile(r"[^.\[\]\s]+(?:\.[^.\[\]\s]+|\[[0-9]+\])*\Z")
_TOKEN = re.compile(r"[^.\[\]]+")


class Override(NamedTuple):
    """One change.

    Args:
        path: of the place.
        value: plain data.
        text: the change as the user gave it, which errors name after `--set`; other callers replace it.
    """

    path: str
    value: Any
    text: str


class Overridden(NamedTuple):
    """Configuration data with the overrides in it, and the places that they filled."""

    data: dict[str, Any]
    places: tuple[OverriddenPlace, ...]


def read(text: str) -> Override:
    """An override as `--set` takes it.

    Raises:
        ConfigError: it is not `key.path=value`, or its value is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not is_path(path):
        raise ConfigError("expected key.path=value, such as matches[0].lanes=4", source=f"--set {text}")
    return Override(path, yaml.load(value, source=f"--set {text}"), text)


def is_path(text: str) -> bool:
    """Whether a text has the form of a path, such as `matches[0].lanes`."""
    return _PATH.match(text) is not None


def apply(data: Mapping[str, Any], overrides: Sequence[str | Override]) -> Overridden:
    """The data with all overrides, later ones over earlier ones; the original is not changed.

    Raises:
        ConfigError: an override that is not `key.path=value`, whose value is not YAML, or whose path goes through
            something that has no such place.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    places: list[OverriddenPlace] = []
    for given in overrides:
        path, value, text = read(given) if isinstance(given, str) else given
        places += _set(changed, _TOKEN.findall(path), value, text)
    return Overridden(changed, tuple(places))


def apply_values(data: Mapping[str, Any], values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The data with values at some paths; the original is not changed.

    Args:
        data: of a configuration.
        values: by path, as `--set` takes it.
        source: what has set them, for messages.

    Raises:
        ConfigError: a path that goes through something that has no such place.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    for path, value in values.items():
        try:
            _set(changed, _TOKEN.findall(path), copy.deepcopy(value), path)
        except ConfigError as error:
            raise ConfigError(error.message, path=path, source=source) from error
    return changed


def _set(data: dict[str, Any], tokens: list[str], value: Any, text: str) -> list[OverriddenPlace]:
    """Puts a value where the tokens lead, and returns the places that it filled on the way."""
    places: list[OverriddenPlace] = []
    node: Any = data
    path = ""
    while tokens:
        key, used = _step(node, tokens, path, text)
        tokens = tokens[used:]
        path = f"{path}[{key}]" if isinstance(key, int) else joined(path, key)
        if tokens and isinstance(node, dict) and node.get(str(key)) is None:  # a null counts as missing
            places.append(OverriddenPlace(path, text, made=True, siblings=tuple(map(str, node))))
            node[key] = {}
        elif not tokens:
            places.append(OverriddenPlace(path, text))
            node[key] = value
        elif node[key] == tokens[0]:  # a name, which is short for this
            places.append(OverriddenPlace(path, text))
            node[key] = {tokens[0]: {}}
        node = node[key]
    return places


def _step(node: Any, tokens: Sequence[str], path: str, text: str) -> tuple[str | int, int]:
    """The key or place that the first tokens name in a node, and how many tokens it took."""
    if isinstance(node, dict):
        keys = (".".join(tokens[:count]) for count in range(len(tokens), 0, -1))
        key = next((name for name in keys if name in node), tokens[0])
        return key, key.count(".") + 1
    source = f"--set {text}"
    if not isinstance(node, list):
        raise ConfigError(f"holds {node!r:.60}, which has nothing named {tokens[0]!r}", path=path, source=source)
    if not tokens[0].isascii() or not tokens[0].isdigit() or int(tokens[0]) >= len(node):
        raise ConfigError(
            f"is a list of {len(node)}, it has no place {tokens[0]!r}; places count from 0", path=path, source=source
        )
    return int(tokens[0]), 1
