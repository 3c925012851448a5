"""Types of the configuration's fields: what a single value may be, and a mapping whose one key says what it is."""

from __future__ import annotations

import inspect
import json
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from arena.errors import nearest_key

Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]  # from 2**53 on, a float no longer holds every integer
Halves = Annotated[int, Meta(ge=1, le=2)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # what a signed integer of 64 bits holds, as torch takes for a seed
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # a year; no timer takes longer waits, or NaN
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Text = Annotated[str, Meta(min_length=1)]
T = TypeVar("T")
if TYPE_CHECKING:
    Target: TypeAlias = Any
    AnyOptions: TypeAlias = Any  # a mapping, or an algorithm's struct of options; read it is a mapping
    ClassTarget: TypeAlias = str | type[Any]
    ListOf: TypeAlias = Sequence[T]
    MapOf: TypeAlias = Mapping[str, T]
else:
    Target = ClassTarget = Text
    ListOf, MapOf = tuple[T, ...], dict[str, T]
    AnyOptions = dict[str, Any]
"""What a short name or `package.module:attribute` names; in Python also the class or function itself. In Python any
sequence is a list and any mapping a mapping; `decode` makes tuples and dictionaries of them."""
Color = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}\Z")]

OutcomeRule = Literal["info", "zero_sum", "higher_return", "none"]
"""How the winner of an episode is determined: see `arena.records.outcome`."""
ONLY_ACT = frozenset(
    {"random", "scripted", "arena.cli.play.human:Human"}
)  # algorithms that never learn and need no torch
Data: TypeAlias = msgspec.Struct | Mapping[str, Any]
MOST_ROLES = 500_000
"""The most roles, and the most processes, of a run: larger plans are typing errors, and take long to build."""


class _KeysMeta(msgspec.StructMeta, ABCMeta):
    if not TYPE_CHECKING:  # type checkers derive the keywords from the fields

        def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
            if unknown := next((name for name in kwargs if name not in cls.__struct_fields__), None):
                raise TypeError(f"{cls.__name__} has no key {unknown!r}; {nearest_key(unknown, cls.__struct_fields__)}")
            if args:
                raise TypeError(f"{cls.__name__} takes keys by name, as {cls.__name__}({cls.__struct_fields__[0]}=...)")
            try:
                return super().__call__(**kwargs)
            except TypeError as error:  # required keys are missing; msgspec names the first
                required = (field.name for field in msgspec.structs.fields(cls) if field.required)
                missing = ", ".join(repr(name) for name in required if name not in kwargs)
                if not missing:  # as of an abstract class
                    raise
                raise TypeError(f"{cls.__name__} has no value for {missing}, which it needs") from error

        @property
        def __signature__(cls) -> inspect.Signature:
            """The keys and their defaults, without the types, which `help` would write out at length."""
            shown = super().__signature__
            found = shown.parameters.values()
            made = {one.name: one.default.factory() for one in found if hasattr(one.default, "factory")}
            plain = [one.replace(annotation=one.empty, default=made.get(one.name, one.default)) for one in found]
            return shown.replace(parameters=plain)

        def __dir__(cls) -> list[str]:
            """For `help`, which lists the keys by the docstring: what else a program may use."""
            return ["to_yaml"] if hasattr(cls, "to_yaml") else []


class Keys(msgspec.Struct, metaclass=_KeysMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the configuration, in Python a struct; may have abstract methods."""


class Keyed(Keys, frozen=True, kw_only=True):
    """A struct that a file has below a key that names its kind, as `{round_robin: {env: g, policies: [a, b]}}`."""

    kind: ClassVar[str]  # the key


def plain(value: Any) -> Any:
    """A configuration, or a part of one, as the data of a file: every default is written out."""
    if isinstance(value, msgspec.Struct):
        keys = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        found = {key: plain(getattr(value, name)) for key, name in keys}
        return {value.kind: found} if isinstance(value, Keyed) else found
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return [plain(item) for item in value] if is_list else value


def flat(config: Data) -> dict[str, str]:
    """A configuration as key paths and values, as `policies.blue.options.gamma`, in the words of a file."""
    constants = {"None": "null", "True": "true", "False": "false"}
    return {path: constants.get(repr(value), str(value)) for path, value in _leaves(plain(config))}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def changed_values(before: Data, now: Data) -> Iterator[tuple[str, str, str]]:
    """The key paths at which two configurations differ, with both values as JSON; no value: `not set`."""
    was, new = dict(_leaves(plain(before))), dict(_leaves(plain(now)))
    for key in {**was, **new}:
        texts = [json.dumps(one[key], default=repr) if key in one else "not set" for one in (was, new)]
        inner = f"{key}.", f"{key}["  # of a key that the other one has as a mapping or list that is not empty
        differs = (key in was, was.get(key)) != (key in new, new.get(key))
        if differs and not any(one.startswith(inner) for one in {**was, **new}):
            yield key, texts[0], texts[1]


class ShortForm(Keys, frozen=True, kw_only=True):
    """A struct that a file may also give in a shorter form."""

    short: ClassVar[Any] = None  # the type of that form; None: keys of the long form have other values

    @classmethod
    @abstractmethod
    def spelled_out(cls, value: Any) -> Any:
        """The long form of what the file says; raises ConfigError with the place inside of it."""
