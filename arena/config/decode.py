"""Data of a YAML file to frozen structs: walks both together, so every error knows its place."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from arena.config.fields import Keyed, Shortened
from arena.config.removed import removed_words
from arena.errors import ConfigError, located, nearest, nearest_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_POLICY = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(#[0-9]{1,5})?"  # the number is that of an independent worker
_POLICY_NAME = re.compile(rf"{_POLICY}\Z")
_SNAPSHOT = re.compile(rf"{_POLICY}@[0-9]{{1,16}}\Z")
NAME_RULE = "a name becomes a folder: letters, digits, '_', '-' and '.', the first a letter or digit, at most 100"
_SHOWN = 80  # characters of a wrong value in a message
_OUTLINED = 6  # keys of a mapping that a message shows
_OVERFLOW = 2**53 - 1  # upper bounds from here on are technical

S = TypeVar("S", bound=msgspec.Struct)


def convert(kind: type[S], value: Any, path: str) -> S:
    """The data as a struct of this kind.

    Args:
        kind: of the struct; the fields' types and ranges are declared on it.
        value: as the file has it.
        path: where in the configuration.

    Raises:
        ConfigError: with the place of what is wrong.
    """
    if issubclass(kind, Shortened):
        with located(inside=path):
            value = kind.spelled_out(value)
    fields = {field.encode_name: field for field in _fields(kind)}  # by their keys in the file
    _require_mapping(value, path, outline=_outline(kind))
    if True in value and "on" in fields:  # YAML 1.1 reads `on` as true
        value = {"on" if key is True else key: item for key, item in value.items()}
    for key in value:
        if key not in fields and (removed := removed_words(joined(path, key))) is not None:
            raise ConfigError(removed, path=joined(path, key))
        if key not in fields:
            raise ConfigError(f"unknown key {key!r}; {nearest_key(str(key), fields)}", path=joined(path, key))
    for name, field in fields.items():
        if field.required and name not in value:
            raise ConfigError(f"the key {name!r} is missing, and has no default", path=path)
    hints = _hints(kind)
    items = ((fields[key].name, item, joined(path, key)) for key, item in value.items())
    return kind(**{name: _convert_value(hints[name], item, place) for name, item, place in items})


def convert_field(kind: type[msgspec.Struct], name: str, value: Any, path: str) -> Any:
    """The data as one field of a struct of this kind, which stands at `path`; as `convert`."""
    return _convert_value(_hints(kind)[name], value, path)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a struct; msgspec evaluates all annotations again whenever it is asked."""
    return msgspec.structs.fields(kind)


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _convert_value(kind: Any, value: Any, path: str) -> Any:
    """The value as this type: walks into structs, lists and mappings, leaves the rest to msgspec."""
    if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) in (Union, types.UnionType):
        kind = get_args(kind)[0]  # of a union only a description is annotated
    if get_origin(kind) in (Union, types.UnionType):
        if any(_is_struct(arm) and issubclass(arm, Keyed) for arm in get_args(kind)):
            return _convert_keyed(get_args(kind), value, path)
        kind = _arm(kind, value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return convert(kind, value, path)
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"found {show(value)}; expected a list", path=path)
        return tuple(_convert_value(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if get_origin(kind) is dict and _is_struct(get_args(kind)[1]):
        return _convert_named(get_args(kind)[1], value, path)
    return _convert_leaf(kind, value, path)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _arm(union: Any, value: Any) -> Any:
    """The alternative of a union that the value is meant for, or the union itself where msgspec can tell."""
    arms = get_args(union)
    if isinstance(value, (list, tuple)):
        return next((arm for arm in arms if get_origin(arm) is tuple), union)
    if isinstance(value, Mapping) and (struct := next((arm for arm in arms if _is_struct(arm)), None)) is not None:
        return struct
    lists = [arm for arm in arms if _holds_entries(arm)]  # msgspec refuses a union of list types
    others = [arm for arm in arms if arm not in lists and (arm is not types.NoneType or value is None)]
    return reduce(or_, others) if lists and others else lists[0] if lists else union


def _holds_entries(kind: Any) -> bool:
    """Whether a type is a list, or a list of lists, whose items are told apart by their keys."""
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    if get_origin(item) in (Union, types.UnionType):
        return any(_is_struct(arm) and issubclass(arm, Keyed) for arm in get_args(item))
    return item is not None and _holds_entries(item)


def _convert_keyed(arms: Sequence[Any], value: Any, path: str) -> Any:
    """The value as the alternative that its key names; a mapping with other keys as the alternative without a key."""
    kinds = {arm.__struct_fields__[0]: arm for arm in arms if issubclass(arm, Keyed)}
    for arm in arms:
        with located(inside=path):
            value = arm.spelled_out(value) if issubclass(arm, Shortened) else value
    plain = next((arm for arm in arms if not issubclass(arm, Keyed)), None)
    if plain is None and isinstance(value, str):
        value = {value: {}}
    if plain is None and not isinstance(value, Mapping):
        raise ConfigError(
            f"found {show(value)}; expected a name, or a mapping {{name: its options}}; names are {', '.join(kinds)}",
            path=path,
        )
    _require_mapping(value, path)
    named = next((kind for key, kind in kinds.items() if key in value), plain)
    known = [] if plain is None else [field.encode_name for field in _fields(plain)]
    if (
        len(value) == 1
        and not {*kinds, *known} & set(value)
        and (plain is None or all(isinstance(item, Mapping) for item in value.values()))
    ):
        (key,) = value
        what = "generator of matches" if plain is not None else path.rpartition(".")[2]
        raise ConfigError(f"unknown {what} {show(key)}; {nearest(str(key), kinds)}", path=path)
    if named is None:
        raise ConfigError(f"found {show(value)}; expected one of {', '.join(kinds)}", path=path)
    return convert(named, value, path)


def _convert_named(kind: type[S], value: Any, path: str) -> dict[str, S]:
    _require_mapping(value, path)
    for name in value:
        if is_name(name) or (path == "policies" and is_policy_name(name)):
            continue
        if not isinstance(name, str) and is_name(show(name)):
            raise ConfigError(
                f'found the name {show(name)}, which YAML does not read as text; write "{show(name)}"', path=path
            )
        raise ConfigError(f"the name {show(name)} cannot be used; {NAME_RULE}", path=path)
    return {name: convert(kind, item, joined(path, name)) for name, item in value.items()}


def _convert_leaf(kind: Any, value: Any, path: str) -> Any:
    arms = [arm for arm in get_args(kind) if arm is not types.NoneType]
    if value is not None and len(arms) == 1 and get_origin(arms[0]) is Literal:
        kind = arms[0]  # without null
    if get_origin(kind) is Literal:
        if isinstance(value, bool) and "off" in get_args(kind):
            value = "on" if value else "off"  # YAML 1.1 reads them as booleans
        if value in get_args(kind):
            return value
        raise ConfigError(f"found {show(value)}; {nearest(str(value), get_args(kind))}", path=path)
    if isinstance(value, float) and value.is_integer() and _takes(int, kind):
        value = int(value)  # 1e6 ticks
    try:
        if isinstance(value, float) and not math.isfinite(value) and _takes(float, kind):
            raise msgspec.ValidationError("not a finite number")
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        expected = _number_words(kind, value)
        if expected:
            raise ConfigError(f"found {show(value)}; expected {expected}", path=path) from error
        arm = next((arm for arm in (kind, *get_args(kind)) if _is_struct(arm)), None)
        such = "" if arm is None else f"; a mapping such as {_outline(arm)}"
        if value is not None and not isinstance(value, (str, Mapping, Sequence)) and "`str" in str(error):
            such += f'; in quotes it is text: "{show(value)}"'
        raise ConfigError(f"found {show(value)}: {_plain(str(error))}{such}", path=path) from error


def _number_words(kind: Any, value: Any) -> str:
    """What a field of numbers takes, such as `auto, or a whole number, at least 1, or null`; empty for other fields.

    Bounds that a number reaches by overflow alone are named only if the value is beyond them.
    """
    arms = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words, numbers = [word for arm in arms if get_origin(arm) is Literal for word in get_args(arm)], []
    for arm in arms:
        number, *constraints = get_args(arm) if get_origin(arm) is Annotated else (arm,)
        if number in (int, float):
            numbers.append(_range_words(number, constraints, value))
        elif arm is not types.NoneType and get_origin(arm) is not Literal:
            return ""
    return ", or ".join([*words, *numbers, *["null"] * (types.NoneType in arms)]) if numbers else ""


def _range_words(number: type, constraints: Sequence[Any], value: Any) -> str:
    given = value if isinstance(value, (int, float)) else 0
    finite = "a number" if math.isfinite(given) else "a finite number"
    parts = ["a whole number" if number is int else finite]
    for meta in constraints:
        least = f"at least {meta.ge}" if meta.ge is not None else f"more than {meta.gt}" if meta.gt is not None else ""
        most = f"at most {meta.le}" if meta.le is not None and (meta.le < _OVERFLOW or given > meta.le) else ""
        most = most or (f"less than {meta.lt}" if meta.lt is not None else "")
        parts += [" and ".join(filter(None, [least, most]))] if least or most else []
    return ", ".join(parts)


@cache
def _outline(kind: type[msgspec.Struct]) -> str:
    """The keys of a mapping with their defaults, `...` for required ones: `{elo: 20, alpha: 0.05}`."""
    fields = _fields(kind)
    parts = [f"{field.encode_name}: {_default_words(field)}" for field in fields[:_OUTLINED]]
    return f"{{{', '.join([*parts, *['...'] * (len(fields) > _OUTLINED)])}}}"


def _default_words(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default is msgspec.NODEFAULT or isinstance(default, msgspec.Struct):
        return "..." if default is msgspec.NODEFAULT else "{...}"
    if isinstance(default, tuple):
        default = [*default]
    return f"{default:g}" if isinstance(default, float) else show(default).strip("'")


def _takes(number: type, kind: Any) -> bool:
    """Whether a type is this type of number, or a union that has it."""
    if get_origin(kind) in (Annotated, Union, types.UnionType):
        return any(_takes(number, part) for part in get_args(kind))
    return kind is number


def _plain(message: str) -> str:
    """msgspec's message in the words of a YAML file."""
    names = {"array": "list", "object": "mapping", "int": "integer", "bool": "true or false", "str": "text"}
    message = re.sub(r" - at `[^`]*`$", "", message)
    for name, word in names.items():
        message = re.sub(rf"`{name}\b", f"`{word}", message).replace(f"| {name}", f"| {word}")
    message = message.replace(r"`text` matching regex '^#[0-9a-fA-F]{6}\\Z'", 'a color as "#1f77b4"')
    return message[:1].lower() + message[1:].replace("`", "")


def _require_mapping(value: Any, path: str, *, outline: str = "") -> None:
    if not isinstance(value, Mapping):
        such = f", such as {outline}" if outline else ""
        raise ConfigError(f"found {show(value)}; expected a mapping of keys to values{such}", path=path)


def is_name(name: Any) -> bool:
    """Whether a name can be one of a run, an environment or a policy."""
    return isinstance(name, str) and _NAME.match(name) is not None


def is_policy_name(name: Any) -> bool:
    """Whether a name can be one of a policy, of an independent worker, as `blue#1`, or of a snapshot of either."""
    return is_snapshot_name(name) or (isinstance(name, str) and _POLICY_NAME.match(name) is not None)


def is_snapshot_name(name: Any) -> bool:
    """Whether a name is that of a policy at a tick, as `blue@5000`."""
    return isinstance(name, str) and _SNAPSHOT.match(name) is not None


def show(value: Any) -> str:
    """A value as the file has it, shortened."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def joined(path: str, key: Any) -> str:
    """The place of a key below a place."""
    return f"{path}.{key}" if path else str(key)
