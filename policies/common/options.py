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
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np
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
Shape = Literal["linear", "cosine"]
BatchMode = Literal["truncate_episodes", "complete_episodes"]
Activation = Literal["tanh", "relu"]
Recurrent = Literal["lstm", "gru"]
Noise = Literal["gaussian", "correlated"]
Device = Literal["cpu", "cuda", "auto", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"]
Precision = Literal["float32", "bf16"]
LogStd = Annotated[float, Meta(ge=-20, le=20)]
Text = Annotated[str, Meta(min_length=1)]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A number that goes from `start` to `end` while a part of the run is played, and then stays there."""

    start: NonNegative  # at the beginning of the run
    end: NonNegative  # where that part of the run is over
    shape: Shape = "linear"  # linear, or cosine: half a wave, flat at both ends
    until: PositiveFraction = 1.0  # part of the run


Points = tuple[tuple[NonNegative, ...], ...]
"""Numbers by the part of the run that is over, `[[0, 1e-3], [0.5, 1e-4]]`: straight lines between them."""

Scheduled = NonNegative | Curve | Points
"""An option that may change in the course of a run, see `value_at`."""

SCHEDULED: Final = ("learning_rate", "ent_coef", "epsilon", "noise_std", "clip_range", "clip_range_vf")


def is_schedule(value: object) -> bool:
    """Whether the value of an option is a schedule, and no number."""
    return isinstance(value, (Curve, tuple))


def value_at(value: float | Curve | Points, progress: float) -> float:
    """The number that an option has where this part of the run is over, from 0 to 1."""
    if isinstance(value, Curve):
        part = min(1.0, progress / value.until)
        part = part if value.shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * part)
        return value.start + (value.end - value.start) * part
    if isinstance(value, tuple):
        return float(np.interp(progress, [part for part, _ in value], [number for _, number in value]))
    return float(value)


def numbers_of(value: float | Curve | Points) -> list[float]:
    """The numbers between which an option moves."""
    if isinstance(value, Curve):
        return [value.start, value.end]
    return [number for _, number in value] if isinstance(value, tuple) else [value]


def check_schedules(options: Any) -> None:
    """Refuses points of schedules that are no pairs, or do not go forward from 0 to 1."""
    for name in SCHEDULED:
        points = getattr(options, name, None)
        if not isinstance(points, tuple):
            continue
        if not points or any(len(point) != 2 for point in points):
            raise wrong(name, [*map(list, points)], "pairs of a part of the run and a value, as [[0, 1e-3], [1, 0]]")
        parts = [part for part, _ in points]
        if parts[-1] > 1 or any(part >= following for part, following in pairwise(parts)):
            forward = "parts of the run (not ticks) that go forward from 0 to 1: each is larger than the one before"
            raise wrong(name, [*map(list, points)], forward)


class AlgorithmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the options of an algorithm."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Options that an algorithm has from another one and cannot use, and why, with a remedy."""

    def __post_init__(self) -> None:
        """Refuses values that contradict each other; a subclass calls it first in its own."""
        for name, why in self.REFUSED.items():
            check_refused(self, name, why=why)
        check_schedules(self)
        if is_schedule(getattr(self, "learning_rate", None)) and hasattr(self, "learning_rate_schedule"):
            check_idle(self, "learning_rate_schedule", where="learning_rate is a schedule itself")


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
