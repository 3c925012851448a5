"""The option `transformer` of algorithms that take units: sizes of the network, and which features are places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from gymnasium.spaces import Space

from arena.errors import ConfigError, nearest
from arena.game.units import Choice, GlobalChoice, UnitSpace
from policies.common.options import Count, Natural, Positive, Text

_PATH = "options.transformer"
_AXES = 3  # of a position, at most


class Center(msgspec.Struct, frozen=True, kw_only=True):
    """Places as one unit sees them: its position is the origin and, if it has an angle, it looks along the first axis.

    Raises:
        ConfigError: values that contradict each other.
    """

    on: Text  # type of the unit in the center; of several, the first that is not hidden
    position: tuple[Text, ...]  # features that are the position, one to three
    angle: Text | None = None  # feature of that unit: where it looks, in radians; turns the others
    direction: tuple[Text, ...] | None = None  # or two features, the direction in which it looks
    distance: bool = False  # adds the distance as a last feature to the types that are moved, but for `on`

    def __post_init__(self) -> None:
        _check_axes("center", self.position, 2 if _turned(self) else None)
        _check_direction("center", self)


class Relative(msgspec.Struct, frozen=True, kw_only=True):
    """Relative positions in attention: a learned key and value for each bucket of places around the attending unit.

    Raises:
        ConfigError: values that contradict each other.
    """

    position: tuple[Text, ...]  # features that are the position, one to three
    kind: Literal["grid", "radial", "distance", "polar"] = "grid"  # how places are cut into buckets
    extent: tuple[Count, ...] | Count = (5, 5)  # grid: farthest cell on each axis; others: angles, distances, or both
    scale: Positive = 1.0  # differences of positions are divided by it
    angle: Text | None = None  # feature of the unit that attends: where it looks, in radians
    direction: tuple[Text, ...] | None = None  # or two features, the direction in which it looks
    interpolate: bool = False  # between the two nearest angles and distances; not of a grid
    by_type: bool = True  # values also depend on the type of the unit that is seen

    def __post_init__(self) -> None:
        angular = self.kind in ("radial", "polar")
        _check_axes("relative", self.position, 2 if angular or _turned(self) else None)
        _check_direction("relative", self)
        if angular and not _turned(self):
            raise _wrong(
                "relative.kind", self.kind, "`angle` or `direction` beside it: the features that say where a unit looks"
            )
        if self.kind == "grid" and self.interpolate:
            raise _wrong("relative.interpolate", True, "false where kind is grid")
        wanted = {"grid": len(self.position), "radial": 1, "distance": 1, "polar": 2}[self.kind]
        if len(self.extents) != wanted:
            words = {
                "grid": f"{wanted} whole numbers, one per feature of position",
                "polar": "two whole numbers, of angles and of distances",
            }.get(self.kind, "one whole number of buckets")
            raise _wrong("relative.extent", self.extent, f"{words}, as kind is {self.kind}")
        if self.buckets >= 2**31:
            words = "fewer than 2**31 buckets in all, as each has a key and values to learn"
            raise _wrong("relative.extent", self.extent, words)

    @property
    def buckets(self) -> int:
        """The number of buckets of places; pairs of which one has no position have another one."""
        return math.prod(2 * cells + 1 for cells in self.extents) if self.kind == "grid" else math.prod(self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent as a list, also where it is one number."""
        return (self.extent,) if isinstance(self.extent, int) else self.extent


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """The network of seats that see units.

    Raises:
        ConfigError: values that contradict each other.
    """

    d_model: Count = 64  # width; a multiple of heads
    layers: Natural = 2  # blocks; 0: embedding and heads alone
    heads: Count = 2  # of attention
    d_qk: Count = 16  # width of actors' queries and actees' keys in Select
    critic: Literal["shared", "separate"] = "shared"  # separate: the critic has embeddings and blocks of its own
    center: Center | None = None  # places as one unit sees them; null: as the game gives them
    relative: Relative | None = None  # attention that knows what lies where; null: it does not

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise _wrong("d_model", self.d_model, f"a multiple of heads, {self.heads}")
        if self.relative is not None and self.layers == 0:
            raise _wrong("relative", "a mapping", "null where layers is 0: there is no attention")

    def check(self, space: UnitSpace) -> None:
        """Checks that the game has the types and features that are named.

        Raises:
            ConfigError: it has not; the nearest is named.
        """
        if not space.types and not space.global_features:
            raise ConfigError(f"there is nothing to learn from: {space} has neither units nor global features")
        if self.center is not None:
            center, types = self.center, space.types
            if center.on not in types:
                message = f"the game has no type {center.on!r}; {nearest(center.on, types)}"
                raise ConfigError(message, path=f"{_PATH}.center.on")
            own = types[center.on]
            for key, names in _places(center).items():
                for name in names:
                    if name not in own:
                        message = f"{center.on!r} has no feature {name!r}; {nearest(name, own)}"
                        raise ConfigError(message, path=f"{_PATH}.center.{key}")
        if self.relative is not None:
            known = list(dict.fromkeys(name for features in space.types.values() for name in features))
            for key, names in _places(self.relative).items():
                for name in names:
                    if name not in known:
                        message = f"no type of the game has a feature {name!r}; {nearest(name, known)}"
                        raise ConfigError(message, path=f"{_PATH}.relative.{key}")
            if not types_with(space, self.relative.position):
                together = " and ".join(map(repr, self.relative.position))
                raise ConfigError(f"no type of the game has {together} together", path=f"{_PATH}.relative.position")


def check_no_transformer(given: Transformer | None, space: Space[Any]) -> None:
    """Refuses the option where a seat sees no units.

    Raises:
        ConfigError: it is set.
    """
    if given is not None:
        message = f"transformer has no effect where the seat sees no units, but {space}: leave it out"
        raise ConfigError(message, path=_PATH)


def types_with(space: UnitSpace, features: Sequence[str]) -> dict[str, list[int]]:
    """The types that have all these features, and the numbers of the features in each."""
    return {
        name: [own.index(feature) for feature in features]
        for name, own in space.types.items()
        if set(features) <= set(own)
    }


def _turned(places: Center | Relative) -> bool:
    return places.angle is not None or places.direction is not None


def _places(places: Center | Relative) -> Mapping[str, Iterable[str]]:
    """All features that are named, by key."""
    angle = () if places.angle is None else (places.angle,)
    return {"position": places.position, "angle": angle, "direction": places.direction or ()}


def _check_axes(name: str, position: Sequence[str], wanted: int | None) -> None:
    if wanted is not None and len(position) != wanted:
        raise _wrong(f"{name}.position", list(position), f"{wanted} features: only a plane has angles")
    if not 1 <= len(position) <= _AXES or len(set(position)) < len(position):
        raise _wrong(f"{name}.position", list(position), "one to three features, each once")


def _check_direction(name: str, places: Center | Relative) -> None:
    if places.angle is not None and places.direction is not None:
        raise _wrong(
            f"{name}.direction", list(places.direction), "null where angle is given: both say where a unit looks"
        )
    if places.direction is not None and len(places.direction) != 2:
        raise _wrong(f"{name}.direction", list(places.direction), "two features")


def _wrong(key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"found {value!r}; expected {expected}", path=f"{_PATH}.{key}")


_EXTENT = f"{_PATH}.relative.extent"


class Schema:
    """The types, features, actions and options that weights belong to.

    Args:
        space: of one row.
        options: of the network.
    """

    def __init__(self, space: UnitSpace, options: Transformer) -> None:
        named = msgspec.to_builtins(options)
        self._options = {f"{_PATH}.{key}": _plain(f"{_PATH}.{key}", value) for key, value in _flat(named).items()}
        self._lists = {
            "types": list(space.types),
            **{f"features of {name!r}": list(features) for name, features in space.types.items()},
            "global features": list(space.global_features),
            "hidden types": list(space.hidden),
            "actions": [_words(name, kind) for name, kind in space.actions.items()],
            **{
                f"labels of {name!r}": list(kind.labels)
                for name, kind in space.actions.items()
                if isinstance(kind, Choice)
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """All of it, as lists of text and plain values."""
        return {"options": self._options, "lists": self._lists}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that stored weights belong to the same.

        Raises:
            ConfigError: they do not; the first difference is named.
        """
        lists, options = state["lists"], state["options"]
        for name in {**self._lists, **lists}:
            stored, here = lists.get(name, []), self._lists.get(name, [])
            if list(stored) != here:
                raise ConfigError(
                    f"the stored policy was learned with other units: {_difference(name, stored, here)}; take the "
                    "game's configuration that it was learned with"
                )
        for key in {**self._options, **options}:
            given, own = _plain(key, options.get(key)), self._options.get(key)
            if given != own:
                raise ConfigError(
                    f"the stored weights do not fit this network: they were learned with {key}: {_shown(given)}, here "
                    f"it is {_shown(own)}"
                )


def _difference(name: str, stored: Sequence[str], here: Sequence[str]) -> str:
    for place in range(max(len(stored), len(here))):
        old, new = (repr(one[place]) if place < len(one) else "nothing" for one in (stored, here))
        if old != new:
            return f"number {place} of {name} was {old}, here it is {new}"
    return f"{name} differ"


def _words(name: str, kind: Any) -> str:
    words = "select" if not isinstance(kind, Choice) else "global" if isinstance(kind, GlobalChoice) else "choice"
    return f"{name} ({words}{', masked' if kind.masked else ''})"


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
        flat.update(inner)
    return flat


def _plain(key: str, value: Any) -> Any:
    """A value as it is compared: an extent of one number is a list, too."""
    if key == _EXTENT and isinstance(value, int):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else value


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
