"""The option `transformer` of algorithms that take units: sizes of the network, and which features are places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec
from gymnasium.spaces import Space

from arena.errors import ConfigError, nearest
from arena.game.units import Choice, GlobalChoice, UnitSpace
from policies.common.options import Count, Natural, Positive, Text, check_idle

_PATH = "options.transformer"
_AXES = 3  # of a position, at most


class Center(msgspec.Struct, frozen=True, kw_only=True):
    """Places as one unit sees them: it is at the origin and, if it has an angle, looks along the first axis."""

    on: Text  # type of the unit in the center; of several, the first that is not hidden
    position: tuple[Text, ...]  # features that are the position, one to three
    angle: Text | None = None  # feature of that unit: where it looks, in radians; turns the others
    direction: tuple[Text, ...] | None = None  # or two features, the direction in which it looks
    distance: bool = False  # adds the distance as a last feature to the types that are moved, but for `on`

    def __post_init__(self) -> None:
        _check_places("center", self, angular=False)


class Relative(msgspec.Struct, frozen=True, kw_only=True):
    """Relative positions in attention: a learned key and value for each bucket of places around the attending unit."""

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
        _check_places("relative", self, angular=angular)
        if angular and self.angle is None and self.direction is None:
            raise _wrong(
                "relative.kind", self.kind, "`angle` or `direction` beside it: the features that say where a unit looks"
            )
        if self.kind == "grid" and self.interpolate:
            raise _wrong("relative.interpolate", True, "false where kind is grid")
        axes = len(self.position)
        count, expected = {
            "grid": (axes, f"{axes} whole numbers, one per feature of position"),
            "polar": (2, "two whole numbers, of angles and of distances"),
        }.get(self.kind, (1, "one whole number of buckets"))
        if len(self.extents) != count:
            raise _wrong("relative.extent", self.extent, f"{expected}, as kind is {self.kind}")
        if self.buckets >= 2**31:
            expected = "fewer than 2**31 buckets in all, as each has a key and values to learn"
            raise _wrong("relative.extent", self.extent, expected)

    @property
    def buckets(self) -> int:
        """The number of buckets of places; pairs of which one has no position have another one."""
        return math.prod(2 * cells + 1 for cells in self.extents) if self.kind == "grid" else math.prod(self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent as a list, also where it is one number."""
        return (self.extent,) if isinstance(self.extent, int) else self.extent


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """The network of seats that see units."""

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
        """Refuses, with a ConfigError, types and features that the game does not have; the nearest is named."""
        if not space.types and not space.global_features:
            raise ConfigError(f"there is nothing to learn from: {space} has neither units nor global features")

        def check_known(option: str, places: Center | Relative, known: Sequence[str], owner: str) -> None:
            angle = () if places.angle is None else (places.angle,)
            for key, names in (("position", places.position), ("angle", angle), ("direction", places.direction or ())):
                for name in names:
                    if name not in known:
                        message = f"{owner} feature {name!r}; {nearest(name, known)}"
                        raise ConfigError(message, path=f"{_PATH}.{option}.{key}")

        if self.center is not None:
            center, types = self.center, space.types
            if center.on not in types:
                message = f"the game has no type {center.on!r}; {nearest(center.on, types)}"
                raise ConfigError(message, path=f"{_PATH}.center.on")
            check_known("center", center, types[center.on], f"{center.on!r} has no")
        if self.relative is not None:
            known = list(dict.fromkeys(name for features in space.types.values() for name in features))
            check_known("relative", self.relative, known, "no type of the game has a")
            if not types_with(space, self.relative.position):
                together = " and ".join(map(repr, self.relative.position))
                raise ConfigError(f"no type of the game has {together} together", path=f"{_PATH}.relative.position")


def types_with(space: UnitSpace, features: Sequence[str]) -> dict[str, list[int]]:
    """The types that have all these features, and the numbers of the features in each."""
    return {
        name: [known.index(feature) for feature in features]
        for name, known in space.types.items()
        if set(features) <= set(known)
    }


def _check_places(name: str, places: Center | Relative, *, angular: bool) -> None:
    position, direction = list(places.position), places.direction
    if (angular or places.angle is not None or direction is not None) and len(position) != 2:
        raise _wrong(f"{name}.position", position, "2 features: only a plane has angles")
    if not 1 <= len(position) <= _AXES or len(set(position)) < len(position):
        raise _wrong(f"{name}.position", position, "one to three features, each once")
    if places.angle is not None and direction is not None:
        raise _wrong(f"{name}.direction", list(direction), "null where angle is given: both say where a unit looks")
    if direction is not None and len(direction) != 2:
        raise _wrong(f"{name}.direction", list(direction), "two features")


def _wrong(key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"found {value!r}; expected {expected}", path=f"{_PATH}.{key}")


_EXTENT = f"{_PATH}.relative.extent"


class Schema:
    """The types, features, actions and options that weights belong to."""

    def __init__(self, space: UnitSpace, options: Transformer) -> None:
        def flat(values: Mapping[str, Any], before: str) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for key, value in values.items():
                path = f"{before}.{key}"
                found.update(flat(value, path) if isinstance(value, Mapping) else {path: _plain(path, value)})
            return found

        self._options = flat(msgspec.to_builtins(options), _PATH)
        self._lists = {
            "types": list(space.types),
            **{f"features of {name!r}": list(features) for name, features in space.types.items()},
            "global features": list(space.global_features),
            "hidden types": list(space.hidden),
        }
        actions, labels = [], {}
        for name, kind in space.actions.items():
            what = "global" if isinstance(kind, GlobalChoice) else "choice" if isinstance(kind, Choice) else "select"
            actions.append(f"{name} ({what}{', masked' if kind.masked else ''})")
            if isinstance(kind, Choice):
                labels[f"labels of {name!r}"] = list(kind.labels)
        self._lists |= {"actions": actions, **labels}

    def state_dict(self) -> dict[str, Any]:
        return {"options": self._options, "lists": self._lists}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuses, with a ConfigError, stored weights of another schema; the first difference is named."""
        lists, options = state["lists"], state["options"]
        for name in {**self._lists, **lists}:
            stored, here = lists.get(name, []), self._lists.get(name, [])
            if list(stored) != here:
                pairs = enumerate(zip_longest(stored, here))
                place, (old, new) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
                was, now = ("nothing" if one is None else repr(one) for one in (old, new))
                raise ConfigError(
                    f"the stored policy was learned with other units: number {place} of {name} was {was}, here it is "
                    f"{now}; take the game's configuration that it was learned with"
                )
        for key in {**self._options, **options}:
            values = _plain(key, options.get(key)), self._options.get(key)
            if values[0] != values[1]:
                then, now = (
                    "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
                    for value in values
                )
                raise ConfigError(
                    f"the stored weights do not fit this network: they were learned with {key}: {then}, here "
                    f"it is {now}"
                )


def _plain(key: str, value: Any) -> Any:
    """A value as it is compared: an extent of one number is a list, too."""
    if key == _EXTENT and isinstance(value, int):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else value


def schema_of(options: Any, space: Space[Any], *idle: str) -> Schema | None:
    """The schema of a seat that sees units, where the options `idle` have no effect; None: it sees none.

    Raises:
        ConfigError: an option was set that has no effect.
    """
    if not isinstance(space, UnitSpace):
        check_idle(options, "transformer", where=f"the seat sees no units: it sees {space}")
        return None
    check_idle(options, *idle, where="the seat sees units")
    return Schema(space, options.transformer or Transformer())
