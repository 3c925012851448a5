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
from arena.errors import ConfigError, OverriddenPlace, close_name

_PATH = re.compile(r"[^.\[\]\s]+(?:\.[^.\[\]\s]+|\[[0-9]+\])*\Z")
_TOKEN = re.compile(r"[^.\[\]]+")


class Override(NamedTuple):
    """One change: a plain value at a path."""

    path: str
    value: Any
    text: str  # as the user gave it, which errors name after `--set`; other callers replace it


def read(text: str) -> Override:
    """An override as `--set` takes it; raises ConfigError if it is not `key.path=value`, or its value is not YAML."""
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not is_path(path):
        raise ConfigError("expected key.path=value, such as matches[0].lanes=4", source=f"--set {text}")
    return Override(path, yaml.load(value, source=f"--set {text}"), text)


def is_path(text: str) -> bool:
    """Whether a text has the form of a path, such as `matches[0].lanes`."""
    return _PATH.match(text) is not None


def apply(
    data: Mapping[str, Any], overrides: Sequence[str | Override]
) -> tuple[dict[str, Any], tuple[OverriddenPlace, ...]]:
    """The data with all overrides, later ones over earlier ones, and the places that they filled; copies the data.

    Raises:
        ConfigError: an override that is not `key.path=value`, whose value is not YAML, or whose path goes through
            something that has no such place.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    places: list[OverriddenPlace] = []
    for override in overrides:
        path, value, text = read(override) if isinstance(override, str) else override
        places += _set(changed, path, value, text)
    return changed, tuple(places)


def apply_values(data: Mapping[str, Any], values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The data with values at some paths, which `source` has set, for messages; the original is not changed.

    Raises:
        ConfigError: a path that goes through something that has no such place.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    for path, value in values.items():
        try:
            _set(changed, path, copy.deepcopy(value), path)
        except ConfigError as error:
            raise ConfigError(error.message, path=path, source=source) from error
    return changed


def _set(data: dict[str, Any], at: str, value: Any, text: str) -> list[OverriddenPlace]:
    """Puts a value at a path, and returns the places that it filled on the way."""
    places: list[OverriddenPlace] = []
    node: Any = data
    path, tokens, source = "", _TOKEN.findall(at), f"--set {text}"
    if not is_path(at):
        raise ConfigError("is no key path; expected such as policies.blue.options.gamma", path=at, source=source)
    while tokens:
        key: str | int
        if isinstance(node, dict):
            keys = (".".join(tokens[:count]) for count in range(len(tokens), 0, -1))
            key = next((name for name in keys if name in node), tokens[0])
            path, tokens = joined(path, key), tokens[key.count(".") + 1 :]
        elif not isinstance(node, list):
            meant = close_name(tokens[0], [node]) if isinstance(node, str) else None  # which may be a short form
            hint = f"; did you mean {meant!r}?" if meant else ""
            message = f"holds {node!r:.60}, which has nothing named {tokens[0]!r}{hint}"
            raise ConfigError(message, path=path, source=source)
        elif not tokens[0].isascii() or not tokens[0].isdigit() or int(tokens[0]) >= len(node):
            message = f"is a list of {len(node)}, it has no place {tokens[0]!r}; places count from 0"
            raise ConfigError(message, path=path, source=source)
        else:
            key = int(tokens[0])
            path, tokens = f"{path}[{key}]", tokens[1:]
        if tokens and isinstance(node, dict) and node.get(str(key)) is None:  # a null counts as missing
            places.append(OverriddenPlace(path, text, made=True, siblings=tuple(map(str, node))))
            node[str(key)] = {}
        elif not tokens:
            places.append(OverriddenPlace(path, text))
            node[key] = value
        elif node[key] == tokens[0]:  # a name, which is short for this
            places.append(OverriddenPlace(path, text))
            node[key] = {tokens[0]: {}}
        node = node[key]
    return places
