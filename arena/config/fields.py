"""Types of the configuration's fields: what a single value may be, and a mapping whose one key says what it is."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]  # from 2**53 on, a float no longer holds every integer
Halves = Annotated[int, Meta(ge=1, le=2)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # what a signed integer of 64 bits holds, as torch takes for a seed
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # a year; no timer takes longer waits, or NaN
Share = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Color = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}\Z")]

OutcomeRule = Literal["info", "zero_sum", "higher_return", "none"]
"""How the winner of an episode is determined: see `arena.records.outcome`."""
ONLY_ACT = frozenset(
    {"random", "scripted", "arena.cli.play.human:Human"}
)  # algorithms that never learn and need no torch
MOST_ROLES = 50_000
"""The most roles, and the most processes, of a run: larger plans are typing errors, and take long to build."""


class Keyed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping with one key, which says what its value is, as `{round_robin: {env: g, policies: [a, b]}}`."""

    @property
    def kind(self) -> str:
        """The key."""
        return self.__struct_fields__[0]


def kinds_of(union: Any) -> dict[str, type[msgspec.Struct]]:
    """What the key of each alternative of a union of `Keyed` stands for."""
    return {arm.__struct_fields__[0]: get_type_hints(arm)[arm.__struct_fields__[0]] for arm in get_args(union)}


class AbstractStruct(msgspec.StructMeta, ABCMeta):
    """The metaclass of structs with abstract methods."""


class Shortened(msgspec.Struct, metaclass=AbstractStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A struct that a file may also give in a shorter form."""

    @classmethod
    @abstractmethod
    def spelled_out(cls, value: Any) -> Any:
        """The long form of what the file says.

        Raises:
            ConfigError: with the place inside of it.
        """
