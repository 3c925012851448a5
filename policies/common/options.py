"""Options of algorithms: the types of their values, and checks of values that contradict each other.

An algorithm declares its options as a struct:

    class Options(AlgorithmOptions, frozen=True, kw_only=True):
        learning_rate: NonNegative = 3e-4  # step size of Adam; 0 plays without learning

`arena.registry` decodes what a configuration says into it, which checks types and ranges once. `__post_init__` then
refuses values that contradict each other. The comment behind a field is its explanation in `arena list NAME`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from arena.errors import ConfigError

AUTO: Final = "auto"
"""The value of an option that is computed from how the policy plays: rows, workers, ticks."""

Auto = Literal["auto"]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]  # from 2**53 on, a float no longer holds every integer
Natural = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
PositiveFraction = Annotated[float, Meta(gt=0, le=1)]
Beta = Annotated[float, Meta(ge=0, lt=1)]
Clip = Annotated[float, Meta(ge=1e-6)]
Sizes = tuple[Count, ...]
Schedule = Literal["constant", "linear"]
Activation = Literal["tanh", "relu"]
Recurrent = Literal["lstm", "gru"]
Noise = Literal["gaussian", "correlated"]
Device = Literal["cpu", "cuda", "auto", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"]
Precision = Literal["float32", "bf16"]
LogStd = Annotated[float, Meta(ge=-20, le=20)]
Text = Annotated[str, Meta(min_length=1)]


class AlgorithmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the options of an algorithm."""

    def __post_init__(self) -> None:
        """Refuses values that contradict each other; a subclass calls it first in its own."""


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """Where the workers of a policy act, and where rank 0 of its group learns from the samples of all."""

    act: Device = "cpu"
    learn: Device = "cuda"


def wrong(name: str, value: object, expected: str) -> ConfigError:
    """The error for an option's value, with its place in the configuration."""
    return ConfigError(f"got {value!r}, expected {expected}", path=f"options.{name}")


def is_number(value: object) -> bool:
    """Whether a value is a finite number, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@cache  # msgspec evaluates all annotations again for each request of the fields
def defaults_of(kind: type[Any]) -> Mapping[str, Any]:
    """The defaults of a struct or a dataclass of options, by name."""
    fields = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else dataclasses.fields(kind)
    return {field.name: field.default for field in fields}


def check_refused(options: Any, *names: str, why: str) -> None:
    """Refuses options other than their defaults that an algorithm has from another one and cannot use.

    `options` is a struct or a dataclass; `why` the reason, with a remedy.
    """
    for name in names:
        value, default = getattr(options, name), defaults_of(options.__class__)[name]
        if value != default:
            raise wrong(name, value, f"{json.dumps(default)}: {why}")


def check_unused(options: Any, *names: str, **unless: object) -> None:
    """Refuses options that were set although another one's value, or a test of it, leaves them without effect.

    `check_unused(self, "hidden_size", recurrent=None)`: where `recurrent` is null, `hidden_size` has its default.
    """
    ((other, idle),) = unless.items()
    found = getattr(options, other)
    if idle(found) if callable(idle) else found == idle:
        value = found if isinstance(found, str) else json.dumps(found, default=str)
        check_idle(options, *names, where=f"{other} is {value}", instead=f", or set {other}")


def check_idle(options: Any, *names: str, where: str, instead: str = "") -> None:
    """Refuses options that were set although they have no effect `where`, such as "the actions are Discrete(3)"."""
    defaults = defaults_of(options.__class__)
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            message = f"found {value!r}, but {name} has no effect where {where}: leave it out{instead}"
            raise ConfigError(message, path=f"options.{name}")


def check_falls(options: Any, first: str, last: str) -> None:
    """Refuses an option that is to fall from one value to a higher one."""
    begins, ends = getattr(options, first), getattr(options, last)
    if begins < ends:
        raise wrong(first, begins, f"at least {last}, {ends}: it falls from the one to the other")
