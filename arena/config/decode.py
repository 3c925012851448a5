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

from arena.config.fields import Keyed, ShortForm
from arena.errors import ConfigError, located, nearest, nearest_key, parser_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_POLICY = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(#[0-9]{1,5})?"  # the number is that of an independent worker
_POLICY_NAME = re.compile(rf"{_POLICY}\Z")
_SNAPSHOT = re.compile(rf"{_POLICY}@[0-9]{{1,16}}\Z")
NAME_RULE = "a name becomes a folder: letters, digits, '_', '-' and '.', the first a letter or digit, at most 100"
_SHOWN = 80  # characters of a wrong value in a message
_OUTLINED = 6  # keys of a mapping that a message shows
_OVERFLOW = 2**53 - 1  # upper bounds from here on are technical
_UNIONS = (Union, types.UnionType)

REMOVED: Mapping[str, str] = {
    "fault_tolerance": (
        "is no key any more: when a process dies, `arena train` starts the run again from its newest boundary, with "
        "any MPI; `restarts` says how often in a leg, and `restarts: 0` ends the run as `fault_tolerance: off` did"
    ),
    "league.finish_ticks": (
        "is no key any more: the end of a leg cuts the games that are under way, and these do not count; choose "
        "`ticks` and `checkpoint_every` much longer than a game"
    ),
    "policies.*.reduce": (
        "is no key any more: gradients are summed in the order of the workers, and `fast` was slower within a node; "
        "leave it out. Where it was `fast` with `sync: samples`, `max_lag` has to be there, the lead of a worker in "
        "updates; it was 2 by default"
    ),
    "league.window": "is no key any more: all games count, each for its policy as it was at that tick; leave it out",
    "spares": (
        "is no key any more: when a process dies, all processes are started again, so none has to wait; `restarts` "
        "says how often in a leg; leave it out"
    ),
}
"""Keys of earlier versions, and which key does the same now; `*` stands for one name, as in `envs.*.x`."""

S = TypeVar("S", bound=msgspec.Struct)


def removed_text(path: str) -> str | None:
    """What is said about a key that was removed; None about any other one."""
    for pattern, message in REMOVED.items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]*"), path):
            return message
    return None


def convert(kind: type[S], value: Any, path: str) -> S:
    """The data as a struct of this kind, on which types and ranges are declared.

    Raises:
        ConfigError: with the place of what is wrong; `path` is the place of the data.
    """
    if issubclass(kind, ShortForm):
        with located(inside=path):
            value = kind.spelled_out(value)
    fields = {field.encode_name: field for field in _fields(kind)}  # by their keys in the file
    _require_mapping(value, path, outline=_outline(kind))
    if True in value and "on" in fields:  # YAML 1.1 reads `on` as true
        value = {"on" if key is True else key: item for key, item in value.items()}
    for key in value:
        if key not in fields:
            message = removed_text(joined(path, key)) or f"unknown key {key!r}; {nearest_key(str(key), fields)}"
            raise ConfigError(message, path=joined(path, key))
    if missing := [repr(name) for name, field in fields.items() if field.required and name not in value]:
        one = len(missing) == 1
        text = "the key {} is missing, and has no default" if one else "the keys {} are missing, and have no defaults"
        raise ConfigError(text.format(", ".join(missing)), path=path)
    hints = _hints(kind)
    items = ((fields[key].name, item, joined(path, key)) for key, item in value.items())
    return kind(**{name: _convert_value(hints[name], item, place) for name, item, place in items})


def convert_field(kind: type[msgspec.Struct], name: str, value: Any, path: str) -> Any:
    """The data as one field of a struct of this kind; as `convert`."""
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
    if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) in _UNIONS:
        kind = get_args(kind)[0]  # of a union only a description is annotated
    if get_origin(kind) in _UNIONS:
        arms = get_args(kind)
        structs, lists = [*filter(_is_struct, arms)], [arm for arm in arms if get_origin(arm) is tuple]
        keyed = [arm for arm in lists if _lists_keyed(arm)]  # msgspec refuses a union of list types
        others = [arm for arm in arms if arm not in keyed and (arm is not types.NoneType or value is None)]
        if any(issubclass(arm, Keyed) for arm in structs):
            return _convert_keyed(structs, value, path)
        if isinstance(value, (list, tuple)) and lists:
            kind = lists[0]
        elif isinstance(value, Mapping) and structs:
            kind = structs[0]
        elif isinstance(value, str) and any(get_origin(arm) is Literal for arm in arms):
            kind = reduce(or_, [arm for arm in others if arm not in structs])
        elif keyed:
            kind = reduce(or_, others) if others else keyed[0]
    if _is_struct(kind):
        return convert(kind, value, path)
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"found {show(value)}; expected a list; put a single one into [ ]", path=path)
        return tuple(_convert_value(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if get_origin(kind) is not dict or not _is_struct(get_args(kind)[1]):
        return _convert_leaf(kind, value, path)
    _require_mapping(value, path)
    of_one = {field.encode_name for field in _fields(get_args(kind)[1]) if field.required}
    if of_one and any(name in value and not isinstance(value[name], Mapping) for name in of_one):
        kind_name, outline = get_args(kind)[1].__name__, _outline(get_args(kind)[1])
        text = f"found one {kind_name} without a name; give it one, as {{game: {outline}}}"
        raise ConfigError(f"{text}, in Python {{'game': {kind_name}(...)}}", path=path)
    for name in value:
        if is_name(name) or (path == "policies" and is_policy_name(name)):
            continue
        if not isinstance(name, str) and is_name(show(name)):
            message = f'found the name {show(name)}, which YAML does not read as text; write "{show(name)}"'
            raise ConfigError(message, path=path)
        raise ConfigError(f"the name {show(name)} cannot be used; {NAME_RULE}", path=path)
    return {name: convert(get_args(kind)[1], item, joined(path, name)) for name, item in value.items()}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _lists_keyed(kind: Any) -> bool:
    """Whether a type is a struct of kind `Keyed`, or has one in a list or union."""
    return (_is_struct(kind) and issubclass(kind, Keyed)) or any(map(_lists_keyed, get_args(kind)))


def _convert_keyed(arms: Sequence[Any], value: Any, path: str) -> Any:
    """The value as the struct whose kind is its key; a mapping with other keys as the struct that is not `Keyed`."""
    kinds = {arm.kind: arm for arm in arms if issubclass(arm, Keyed)}
    for arm in arms:
        with located(inside=path):
            value = arm.spelled_out(value) if issubclass(arm, ShortForm) else value
    usual = next((arm for arm in arms if not issubclass(arm, Keyed)), None)
    if usual is None and isinstance(value, str):
        value = {value: {}}
    if usual is None and not isinstance(value, Mapping):
        expected = f"a name, or a mapping {{name: its options}}; names are {', '.join(kinds)}"
        raise ConfigError(f"found {show(value)}; expected {expected}", path=path)
    _require_mapping(value, path)
    named = next((key for key in kinds if key in value), None)
    if named is not None:
        for key in value:
            if key != named:
                raise ConfigError(f"unknown key {key!r}; {nearest_key(str(key), [named])}", path=joined(path, key))
        return convert(kinds[named], value[named], joined(path, named))
    known = [] if usual is None else [field.encode_name for field in _fields(usual)]
    if (
        len(value) == 1
        and not {*known} & set(value)
        and (usual is None or all(isinstance(item, Mapping) for item in value.values()))
    ):
        (key,) = value
        what = "generator of matches" if usual is not None else path.rpartition(".")[2]
        raise ConfigError(f"unknown {what} {show(key)}; {nearest(str(key), kinds)}", path=path)
    if usual is None:
        raise ConfigError(f"found {show(value)}; expected one of {', '.join(kinds)}", path=path)
    return convert(usual, value, path)


def _convert_leaf(kind: Any, value: Any, path: str) -> Any:
    arms = [arm for arm in get_args(kind) if arm is not types.NoneType]
    if value is not None and len(arms) == 1 and get_origin(arms[0]) is Literal:
        kind = arms[0]  # without null
    if get_origin(kind) is Literal:
        if isinstance(value, bool) and "off" in get_args(kind):
            value = "on" if value else "off"  # YAML 1.1 reads them as booleans
        if value in get_args(kind):
            return value
        raise ConfigError(f"found {show(value)}; {nearest_key(str(value), get_args(kind))}", path=path)
    if isinstance(value, float) and value.is_integer() and _takes(int, kind):
        value = int(value)  # 1e6 ticks
    try:
        if isinstance(value, float) and not math.isfinite(value) and _takes(float, kind):
            raise msgspec.ValidationError("not a finite number")
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        expected = _number_text(kind, value)
        if expected:
            raise ConfigError(f"found {show(value)}; expected {expected}", path=path) from error
        message = parser_text(error).replace(r"text matching regex '^#[0-9a-fA-F]{6}\\Z'", 'a color as "#1f77b4"')
        arm = next((arm for arm in (kind, *get_args(kind)) if _is_struct(arm)), None)
        such = "" if arm is None else f"; a mapping such as {_outline(arm)}"
        if value is not None and not isinstance(value, (str, Mapping, Sequence)) and "`str" in str(error):
            such += f'; in quotes it is text: "{show(value)}"'
        raise ConfigError(f"found {show(value)}: {message}{such}", path=path) from error


def _number_text(kind: Any, value: Any) -> str:
    """What a field of numbers takes, such as `auto, or a whole number, at least 1, or null`; empty for other fields.

    Bounds that a number reaches by overflow alone are named only if the value is beyond them.
    """
    arms = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    literals, numbers = [word for arm in arms if get_origin(arm) is Literal for word in get_args(arm)], []
    others = [f"a mapping such as {_outline(arm)}" for arm in arms if _is_struct(arm)]
    others += ["a list"] * any(get_origin(arm) is tuple for arm in arms)
    number_found = value if isinstance(value, (int, float)) else 0
    for arm in arms:
        number, *constraints = get_args(arm) if get_origin(arm) is Annotated else (arm,)
        if number in (int, float):
            finite = "a number" if math.isfinite(number_found) else "a finite number"
            parts = ["a whole number" if number is int else finite]
            for meta in constraints:
                most = meta.le if meta.le is not None and (meta.le < _OVERFLOW or number_found > meta.le) else None
                bounds = {"at least": meta.ge, "more than": meta.gt, "at most": most, "less than": meta.lt}.items()
                parts += filter(None, [" and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)])
            numbers.append(", ".join(parts))
        elif arm is not types.NoneType and get_origin(arm) not in (Literal, tuple) and not _is_struct(arm):
            return ""
    return ", or ".join([*literals, *numbers, *others, *["null"] * (types.NoneType in arms)]) if numbers else ""


@cache
def _outline(kind: type[msgspec.Struct]) -> str:
    """The keys of a mapping with their defaults, `...` for required ones: `{elo: 20, alpha: 0.05}`."""
    parts = []
    for field in _fields(kind)[:_OUTLINED]:
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        shown = show([*default] if isinstance(default, tuple) else default).strip("'")
        if default is msgspec.NODEFAULT or isinstance(default, msgspec.Struct):
            shown = "..." if default is msgspec.NODEFAULT else "{...}"
        elif isinstance(default, float):
            shown = f"{default:g}"
        parts.append(f"{field.encode_name}: {shown}")
    return f"{{{', '.join([*parts, *['...'] * (len(_fields(kind)) > _OUTLINED)])}}}"


def _takes(number: type, kind: Any) -> bool:
    """Whether a type is this type of number, or a union that has it."""
    if get_origin(kind) in (Annotated, *_UNIONS):
        return any(_takes(number, part) for part in get_args(kind))
    return kind is number


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
    constants = {None: "null", True: "true", False: "false"}
    text = constants[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def joined(path: str, key: Any) -> str:
    """The place of a key below a place."""
    return f"{path}.{key}" if path else str(key)
