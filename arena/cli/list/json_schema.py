"""The JSON Schema of configuration files, with which editors complete keys, show what they mean and mark mistakes.

It is made from the structs of `arena.config`, as the checks of `arena.config.decode` are, and refuses no file that
these accept. What no single key can express, `arena check` says.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from arena import registry
from arena.cli.list.catalog import docstring, keys_of, options_of
from arena.config.fields import Keyed, ShortForm
from arena.config.schema import Config, Policy
from arena.experiment.config import ExperimentConfig

Schema = dict[str, Any]

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_NAME = "^[A-Za-z0-9][A-Za-z0-9_.#@-]*$"  # of environments and policies
_NAMED = {"name"}  # keys without a default that the file's name stands for


def configuration_schema() -> Schema:
    """The schema of a configuration, and of an experiment, which is a file with the key `run`."""
    parts: dict[str, Schema] = {}
    run, experiment = _schema(Config, parts), _schema(ExperimentConfig, parts)
    parts[Policy.__qualname__]["allOf"] = list(_options(parts))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the arena",
        "if": {"required": ["run"]},
        "then": experiment,
        "else": run,
        "$defs": dict(sorted(parts.items())),
    }


def _options(parts: dict[str, Schema]) -> Iterator[Schema]:
    """For each algorithm with declared options: that an entry of `policies` which names it has no others."""
    for name, entry in registry.ALGORITHMS.items():
        declared = None if entry.extra else getattr(registry.algorithm(name), "Options", None)
        if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
            schema = _struct(declared, parts)
            taken = {option.name.partition(".")[0] for option in options_of(name)}
            schema["properties"] = {key: value for key, value in schema["properties"].items() if key in taken}
            parts[f"{name}_options"] = schema | {"description": entry.description, "additionalProperties": False}
            named = {"properties": {"algorithm": {"const": name}}}
            yield {"if": named, "then": {"properties": {"options": {"$ref": f"#/$defs/{name}_options"}}}}


def _schema(kind: Any, parts: dict[str, Schema]) -> Schema:
    """The schema of a type; those of structs are put into `parts`, by name."""
    origin, arms = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__qualname__ not in parts:
            parts[kind.__qualname__] = {}  # one that contains itself ends here
            parts[kind.__qualname__] = _struct(kind, parts)
        found: Schema = {"$ref": f"#/$defs/{kind.__qualname__}"}
        if issubclass(kind, Keyed):
            found = {"type": "object", "properties": {kind.kind: found}, "required": [kind.kind], "maxProperties": 1}
        short = kind.short if issubclass(kind, ShortForm) else None
        return found if short is None else {"anyOf": [found, _schema(short, parts)]}
    if origin is Annotated:
        found = _schema(arms[0], parts)
        for meta in arms[1:]:
            bounds = {word: getattr(meta, name) for name, word in _BOUNDS.items()}
            more = {"minLength": meta.min_length, "description": meta.description, **bounds}
            more["pattern"] = meta.pattern and meta.pattern.replace(r"\Z", "$")
            found |= {key: value for key, value in more.items() if value is not None}
        return found
    if origin in (Union, types.UnionType):
        rules = [arm.kind for arm in arms if isinstance(arm, type) and issubclass(arm, Keyed)]
        alone = [{"enum": rules}] if len(rules) == len(arms) else []  # the name of a rule without options
        return {"anyOf": alone + [_schema(arm, parts) for arm in arms]}
    if origin is Literal:
        switches = [True, False] if "off" in arms else []  # YAML 1.1 reads on and off as these
        return {"enum": [*arms, *switches]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arms[0], parts)}
    if origin is dict:
        named = isinstance(arms[1], type) and issubclass(arms[1], msgspec.Struct)
        names = {"pattern": _NAME} if named else _schema(arms[0], parts)
        return {"type": "object", "propertyNames": names, "additionalProperties": _schema(arms[1], parts)}
    return {"type": _SIMPLE[kind]} if kind in _SIMPLE else {}


def _struct(kind: type[msgspec.Struct], parts: dict[str, Schema]) -> Schema:
    """The schema of a mapping with the keys of a struct."""
    hints, said = get_type_hints(kind, include_extras=True), {option.name: option.text for option in keys_of(kind)}
    properties: Mapping[str, Schema] = {
        field.encode_name: _schema(hints[field.name], parts)
        | ({"description": said[field.encode_name]} if said.get(field.encode_name) else {})
        | ({"default": field.default} if isinstance(field.default, (str, int, float)) else {})
        for field in msgspec.structs.fields(kind)
    }
    required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
    return {
        "type": "object",
        "description": docstring(kind).partition("\n")[0],
        "properties": properties,
        "required": [key for key in required if key not in _NAMED],
        "additionalProperties": False,
    }
