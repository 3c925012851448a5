"""Data of Python as the data of a file, wherever a program gives values: configurations, overrides, experiments."""

from __future__ import annotations

import numbers
import os
import sys
import types
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from arena.config import yaml
from arena.config.decode import joined, show
from arena.config.fields import plain
from arena.errors import ConfigError

_FOUND = (
    "a configuration holds numbers, texts, lists and mappings, and classes and functions for their names; in place of "
    "an object pass its class, its arguments in `kwargs` or `options`, and for a loaded policy its name in `load` "
    "(only Trainer(callbacks=[...]) takes objects)"
)


def from_python(value: Any, path: str = "") -> Any:
    """The data as a file would hold them: structs as mappings, classes and functions as `package.module:attribute`.

    Numbers and arrays of other libraries become numbers and lists, paths become text.

    Raises:
        ConfigError: a class that no other process can import, or among the arguments of a game, which are data; or an
            object that a file cannot hold.
    """
    try:
        return _converted(plain(value), path)
    except RecursionError as error:
        raise ConfigError("is nested too deeply, or a part of it holds itself", path=path) from error


def _converted(value: Any, path: str) -> Any:
    if isinstance(value, (type, types.FunctionType)):
        if {"kwargs", "env_kwargs"} & {*path.split(".")}:
            raise ConfigError(f"found {value!r}; arguments of games are data that a file can hold", path=path)
        module, name = value.__module__, value.__qualname__
        at: Any = sys.modules.get(module, value)
        missing = at is not value and reduce(lambda at, part: getattr(at, part, None), name.split("."), at) is None
        if "<" in name or missing:
            why = "it was made inside a function, or is a lambda" if "<" in name else f"{module} has no {name!r}"
            text = f"found {name} of {module}, which a run cannot find by this name: {why}"
            raise ConfigError(f"{text}; define it by `class` or `def` at a module's top level", path=path)
        return f"{module}:{name}"
    if isinstance(value, Mapping):
        found = {}
        for key, item in value.items():
            if isinstance(name := _converted(key, path), list):
                raise ConfigError(f"found the key {show(key)}; keys of a file are texts and numbers", path=path)
            found[name] = _converted(item, joined(path, name))
        return found
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, os.PathLike)):
        text = str.__str__(value) if isinstance(value, str) else os.fspath(value)
        if yaml.UNUSABLE.search(text):
            raise ConfigError(f"found {text!a:.80}; a NUL, or half of a surrogate pair, is in no text", path=path)
        return text
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_converted(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if hasattr(value, "tolist"):  # arrays of NumPy and torch
        return _converted(value.tolist(), path)
    raise ConfigError(f"found {show(value)}, of the class {type(value).__name__}; {_FOUND}", path=path)
