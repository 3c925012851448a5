"""Spaces of games with units: observations of any number of things, and the choices of each.

A *unit* is one thing in an observation, of a *type* with named features. In each *action* some units are *actors*,
which choose; `Select` also has *actees*, which can be chosen. A unit's *index* counts all units of a row: types in the
order of the space, within a type the game's order, from 0.

Everything is computed for batches: a single sample is a batch of one row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import nearest
from arena.game.arrays import is_finite, lost_value
from arena.game.ragged import Ragged

MOST_UNITS = 2**31
"""Indices of units are below this number."""

_FLAG, _INDEX = np.dtype(np.int8), np.dtype(np.int64)
_FLAGS = spaces.Box(0, 1, (), np.int8)
Integers = NDArray[np.int64]
AvailableActions: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What an observation says about actions: `actors`, and `actees` and `mask` where the action has them, by action."""


@dataclass(frozen=True)
class Choice:
    """Each actor picks one label; where `masked`, observations say for each actor what it may pick."""

    labels: tuple[str, ...]  # in the order of their numbers
    masked: bool = True  # whether observations say what is allowed

    def __init__(self, labels: Iterable[str], masked: bool = True) -> None:
        object.__setattr__(self, "labels", _names("labels", labels))
        object.__setattr__(self, "masked", bool(masked))
        if not self.labels:
            raise ValueError("an action needs at least one label")

    @property
    def choices(self) -> int:
        """The number of labels."""
        return len(self.labels)


@dataclass(frozen=True, init=False)
class GlobalChoice(Choice):
    """The whole row picks one label, at most once; its actor, if it has one, is the number of all units."""


@dataclass(frozen=True)
class Select:
    """Each actor picks one actee, a place in the row's list of actees; `masked` as of `Choice`."""

    masked: bool = False  # whether observations say what is allowed

    @property
    def choices(self) -> int:
        """The most actees that a row can have."""
        return MOST_UNITS


ActionKind: TypeAlias = Choice | Select | GlobalChoice


class Breach(NamedTuple):
    """The first rule that a batch breaks."""

    row: int
    text: str


class Items(spaces.Sequence):
    """`Sequence(part, stack=True)` whose samples are arrays [n, *shape], checked at once.

    Gymnasium's own checks one item after the other, and warns about each number of a Box without axes.
    """

    def __init__(self, part: Space[Any], seed: int | np.random.Generator | None = None) -> None:
        super().__init__(part, seed, stack=True)

    def contains(self, x: Any) -> bool:
        part = self.feature_space
        if not isinstance(x, np.ndarray) or x.shape[1:] != part.shape or x.ndim == 0:
            return False
        if not np.can_cast(x.dtype, np.dtype(part.dtype)):
            return False
        low, high = bounds(part)
        return bool(np.all((x >= low) & (x <= high)))


def bounds(part: Space[Any]) -> tuple[Any, Any]:
    """The smallest and largest values of an array space."""
    if isinstance(part, spaces.Box):
        return part.low, part.high
    if isinstance(part, spaces.Discrete):
        return int(part.start), int(part.start) + int(part.n) - 1
    if isinstance(part, spaces.MultiDiscrete):
        return part.start, part.start + part.nvec - 1
    return 0, 1


class UnitActions(spaces.Dict):
    """Actions of a `UnitSpace`: per action one number per actor, in the order of `actors`.

    The number is a label's, or for `Select` a place in `actees` (not a unit's index).

    Args:
        actions: by name, in order.
        of: the arguments of the `UnitSpace` that it belongs to, without its actions; only for files.
        shown: gives what the actors may do now, as a single sample; without it `sample` has no actors.
    """

    def __init__(
        self,
        actions: Mapping[str, ActionKind],
        *,
        of: Mapping[str, Any] | None = None,
        shown: Callable[[], AvailableActions | None] | None = None,
    ) -> None:
        self.actions = dict(actions)
        self.of = dict(of or {"types": {}, "global_features": (), "hidden": ()})
        self._shown = shown
        super().__init__(OrderedDict((name, Items(spaces.Discrete(kind.choices))) for name, kind in actions.items()))

    def showing(self, shown: Callable[[], AvailableActions | None]) -> UnitActions:
        """The same space, whose `sample` draws among the choices that this function returns at that moment."""
        return UnitActions(self.actions, of=self.of, shown=shown)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        """One choice per actor, drawn evenly among what `mask`, an `observation["actions"]`, or the space allows."""
        if probability is not None:
            raise ValueError("probabilities cannot be given here: pass mask=observation['actions']")
        if mask is None and self._shown is not None:
            mask = self._shown()
        if mask is None:
            return {name: np.zeros(0, np.int64) for name in self.actions}
        drawn = self.draw(self.one_row(mask), self.np_random)
        return {name: choices[0] for name, choices in drawn.items()}

    def draw(self, shown: AvailableActions, generator: np.random.Generator) -> dict[str, Ragged]:
        """Choices of all rows, drawn evenly among what is allowed; `ValueError`: an actor can choose nothing."""
        return {
            name: Ragged(_picked(name, kind, shown[name], generator), shown[name]["actors"].lengths)
            for name, kind in self.actions.items()
        }

    def first_allowed(self, shown: AvailableActions, labels: Mapping[str, int] | None = None) -> dict[str, Ragged]:
        """Choices of all rows without chance: the given label where it is allowed, else the first allowed choice."""
        found = {}
        for name, kind in self.actions.items():
            parts = shown[name]
            choices = _picked(name, kind, parts, None)
            label = (labels or {}).get(name)
            if label is not None:
                mask = parts.get("mask") if kind.masked else None
                choices = np.where(True if mask is None else mask.values[:, label] != 0, label, choices)
            found[name] = Ragged(choices, parts["actors"].lengths)
        return found

    def check_choices(self, batch: Mapping[str, Ragged], shown: AvailableActions | None, *, first_row: int = 0) -> None:
        """Checks that there is one choice per actor, and each is in its range; without `shown` only the ranges.

        `first_row` is the number of the first row in the messages of `ValueError`.
        """
        for name, kind in self.actions.items():
            choices = batch[name]
            limits: Any = kind.choices
            if shown is not None:
                actors = shown[name]["actors"]
                if (row := _first_difference(choices.lengths, actors.lengths)) is not None:
                    raise ValueError(
                        f"action {name!r}, row {first_row + row}: got {choices.lengths[row]} choices for "
                        f"{actors.lengths[row]} actors"
                    )
                if isinstance(kind, Select):
                    limits = np.repeat(shown[name]["actees"].lengths, actors.lengths)
            values = np.asarray(choices.values, np.int64)
            wrong = values.view(np.uint64) >= limits  # as unsigned, negative ones are large
            if len(values) and (item := _first(wrong)) is not None:
                row, most = int(choices.rows()[item]), int(np.broadcast_to(limits, values.shape)[item]) - 1
                raise ValueError(
                    f"action {name!r}, row {first_row + row}: {values[item]} is no choice; they go from 0 to {most}"
                )

    def parse_idle(self, written: Any) -> dict[str, int]:
        """Converts `{action: label or its number}`, as in a configuration, to label numbers; raises `ValueError`."""
        if not isinstance(written, Mapping):
            raise ValueError(f"{written!r} is no mapping of actions to labels; actions: {', '.join(self.actions)}")
        found = {}
        for name, label in written.items():
            kind = self.actions.get(name)
            if kind is None:
                raise ValueError(f"there is no action {name!r}; {nearest(str(name), self.actions)}")
            if isinstance(kind, Select):
                raise ValueError(f"action {name!r} selects a unit: it has no labels, and idle actors select the first")
            if isinstance(label, str) and label in kind.labels:
                found[name] = kind.labels.index(label)
            elif isinstance(label, (int, np.integer)) and not isinstance(label, bool) and 0 <= label < kind.choices:
                found[name] = int(label)
            else:
                raise ValueError(
                    f"action {name!r} has no label {label!r}; {nearest(str(label), kind.labels)}, or a number from 0 "
                    f"to {kind.choices - 1}"
                )
        return found

    def one_row(self, shown: AvailableActions) -> dict[str, dict[str, Ragged]]:
        """A single sample of what is shown, as a batch of one row; an action that is absent has no actors."""
        rows: dict[str, dict[str, Ragged]] = {}
        for name, kind in self.actions.items():
            select = isinstance(kind, Select)
            nothing = {"actors": (), "actees": ()} if select else {"actors": ()}
            rows[name] = {}
            for part, array in {**nothing, **shown.get(name, {})}.items():
                values = np.asarray(array, np.int8 if part == "mask" else np.int64)
                values = values.reshape(-1, kind.choices) if part == "mask" and not select else values.reshape(-1)
                rows[name][part] = Ragged(values, [len(values)])
        return rows

    def contains(self, x: Any) -> bool:
        """Whether names, dtypes and ranges are right; whether the numbers fit the actors depends on what is shown."""
        return isinstance(x, dict) and x.keys() == self.spaces.keys() and all(x[name] in self[name] for name in x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitActions) and list(self.actions.items()) == list(other.actions.items())

    def __repr__(self) -> str:
        return f"UnitActions({self.actions})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shown": None}  # of a copy nothing is shown


class UnitSpace(spaces.Dict):
    """Observations of units, and in them what each may do.

    An observation has these keys, in this order; a key without content is not there:

    - `globals`: float32 [G];
    - `units`: by type float32 [n, F], F may be 0;
    - `visible`: by type of `hidden` int8 [n], 0: hidden from the policy;
    - `actions`: by action `actors` int64 [k], indices of units (of a `GlobalChoice` none, or one: the number of all
      units); of a `Select` also `actees` int64 [m], indices, empty where there is no actor; where `masked`, `mask`
      int8 [k, labels], of a `Select` [k * m], actor by actor, 1: allowed.

    A batched observation has a `Ragged` in the place of each array with n, k or m, and `globals` [B, G].

    Args:
        types: their features, by name; the order is the order of indices.
        global_features: of the whole row.
        actions: by name, in order; at least one.
        hidden: types whose units the game may hide from the policy.

    Raises:
        ValueError: a name is given twice, a hidden type is unknown, or there is no action.
    """

    def __init__(
        self,
        types: Mapping[str, Sequence[str]],
        global_features: Sequence[str] = (),
        actions: Mapping[str, ActionKind] | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self.types = {name: _names(f"features of {name!r}", features) for name, features in types.items()}
        self.global_features = _names("global features", global_features)
        self.actions = dict(actions or {})
        hidden_types = _names("hidden types", hidden)
        if unknown := [name for name in hidden_types if name not in self.types]:
            raise ValueError(f"hidden: there is no type {unknown[0]!r}; {nearest(unknown[0], self.types)}")
        self.hidden = tuple(name for name in self.types if name in hidden_types)
        if not self.actions:
            raise ValueError("a UnitSpace needs at least one action")
        for name, kind in self.actions.items():
            if not isinstance(kind, (Choice, Select)):
                raise ValueError(f"action {name!r} must be a Choice, a Select or a GlobalChoice, got {kind!r}")
        of = {"types": self.types, "global_features": self.global_features, "hidden": self.hidden}
        self.action_space = UnitActions(self.actions, of=of)

        def numbers(count: int) -> spaces.Box:
            return spaces.Box(-np.inf, np.inf, (count,), np.float32)

        def ordered(parts: Iterable[tuple[str, Space[Any]]]) -> spaces.Dict:
            return spaces.Dict(OrderedDict(parts))  # Gymnasium sorts the keys of a plain dict

        parts: OrderedDict[str, Space[Any]] = OrderedDict()
        if self.global_features:
            parts["globals"] = numbers(len(self.global_features))
        if self.types:
            parts["units"] = ordered((name, Items(numbers(len(features)))) for name, features in self.types.items())
        if self.hidden:
            parts["visible"] = ordered((name, Items(_FLAGS)) for name in self.hidden)
        parts["actions"] = ordered((name, ordered(_shown_parts(kind).items())) for name, kind in self.actions.items())
        super().__init__(parts)

    def contains(self, x: Any) -> bool:
        """Whether a single sample keeps all rules: names, shapes, dtypes, and `breach`."""
        batch = _as_batch(self, x)
        return batch is not None and self.breach(batch) is None

    def complete(self, sample: Any) -> dict[str, Any]:
        """A single observation, in the order of the space, with everything that may be left out.

        Lists and numbers of any type are cast. A missing type has no units, a missing action no actors, a missing mask
        allows everything, and what is not said to be hidden is visible.

        Raises:
            ValueError: a type, action or part is unknown, or an array has another shape.
        """
        _refuse_unknown("key", sample, self.spaces)
        whole: dict[str, Any] = {}
        if self.global_features:
            if "globals" not in sample:
                names = ", ".join(self.global_features)
                raise ValueError(f"globals is missing; {len(self.global_features)} numbers are needed ({names})")
            array = np.asarray(sample["globals"])
            with np.errstate(over="ignore"):  # `breach` reports numbers that are not finite
                values = array.astype(np.float32, copy=False)
            if values is not array and array.dtype.kind in "iu" and (lost := lost_value(array, values.dtype)):
                raise ValueError(f"globals has the value {lost}, which float32 does not hold")
            if values.shape != (len(self.global_features),):
                raise ValueError(f"globals has the shape {values.shape}, expected ({len(self.global_features)},)")
            whole["globals"] = values
        units = sample.get("units", {})
        _refuse_unknown("type", units, self.types)
        if self.types:
            whole["units"] = {
                name: _items(f"units of type {name!r}", units.get(name, ()), np.float32, (len(features),))
                for name, features in self.types.items()
            }
        visible = sample.get("visible", {})
        _refuse_unknown("hidden type", visible, self.hidden)
        if self.hidden:
            whole["visible"] = {
                name: _items(f"'visible' of type {name!r}", visible[name], np.int8)
                if name in visible
                else np.ones(len(whole["units"][name]), np.int8)
                for name in self.hidden
            }
        actions = sample.get("actions", {})
        _refuse_unknown("action", actions, self.actions)
        whole["actions"] = {}
        for name, kind in self.actions.items():
            where, shown = f"action {name!r}", actions.get(name, {})
            _refuse_unknown(f"part of {where}", shown, _shown_parts(kind))
            actors = _items(f"{where}: actors", shown.get("actors", ()), np.int64)
            whole["actions"][name] = parts = {"actors": actors}
            choices = kind.choices
            if isinstance(kind, Select):
                parts["actees"] = _items(f"{where}: actees", shown.get("actees", ()) if len(actors) else (), np.int64)
                choices = len(parts["actees"])
            if not kind.masked:
                continue
            mask = shown.get("mask")
            if mask is None:
                mask = np.ones((len(actors), choices), np.int8)
            shape = np.shape(mask)
            if not isinstance(kind, Select):
                parts["mask"] = _items(f"{where}: mask", mask, np.int8, (choices,))
            elif len(shape) == 1 or shape == (len(actors), choices) or not (len(actors) or np.size(mask)):
                parts["mask"] = _items(f"{where}: mask", np.reshape(mask, -1), np.int8)
            else:
                raise ValueError(
                    f"{where}: mask: the shape must be [actors, actees] = [{len(actors)}, {choices}], or flat, "
                    f"got {list(shape)}"
                )
        return whole

    def breach(self, batch: Mapping[str, Any]) -> Breach | None:
        """The first rule that a batched sample breaks, or None.

        Numbers are finite; actors and actees are distinct indices of units that are not hidden; masks have one entry
        per choice, and every actor has an allowed choice.
        """
        if self.global_features and not is_finite(batch["globals"]):
            row, feature = np.argwhere(~np.isfinite(batch["globals"]))[0]
            value = batch["globals"][row, feature]
            return Breach(int(row), f"global feature {self.global_features[feature]!r} is {value}")
        for name, features in self.types.items():
            units = batch["units"][name]
            if units.total and not is_finite(units.values):
                item, feature = np.argwhere(~np.isfinite(units.values))[0]
                row, place, value = units.rows()[item], units.places()[item], units.values[item, feature]
                return Breach(int(row), f"feature {features[feature]!r} of {name} {place} is {value}")
        for name in self.hidden:
            units, visible = batch["units"][name], batch["visible"][name]
            if (row_ := _first_difference(visible.lengths, units.lengths)) is not None:
                found, expected = visible.lengths[row_], units.lengths[row_]
                return Breach(row_, f"'visible' has {found} items for {expected} units of type {name!r}")
            if (breach := _breach_of_flags(visible, f"'visible' of type {name!r}")) is not None:
                return breach
        return self._breach_of_actions(batch)

    def lengths(self, batch: Mapping[str, Any]) -> Integers:
        """[B] the number of all units of each row."""
        if self.types:
            units = iter(batch["units"].values())
            counts = next(units).lengths
            for more in units:
                counts = counts + more.lengths
            return np.asarray(counts)
        return np.zeros(len(next(iter(batch["actions"].values()))["actors"]), np.int64)

    def name_of(self, sample: Mapping[str, Any], index: int) -> str:
        """A unit of a single sample by its type and its number in it: `Robot 1`."""
        for name in self.types:
            count = len(sample["units"][name])
            if index < count:
                return f"{name} {index}"
            index -= count
        return "the row"

    def describe(self, sample: Mapping[str, Any], action: Mapping[str, Any]) -> Iterator[str]:
        """Each decision of a single action at a single observation: `Move: Robot 1: +y`, `Fire: Cannon 0: Mine 2`."""
        for name, kind in self.actions.items():
            parts = sample["actions"][name]
            for actor, choice in zip(parts["actors"], action[name], strict=True):
                actor_name = "" if isinstance(kind, GlobalChoice) else f"{self.name_of(sample, int(actor))}: "
                chosen = (
                    self.name_of(sample, parts["actees"][choice]) if isinstance(kind, Select) else kind.labels[choice]
                )
                yield f"{name}: {actor_name}{chosen}"

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        """A random observation that keeps all rules."""
        if mask is not None or probability is not None:
            raise ValueError("observations of units are drawn without mask and probability")
        rng = self.np_random
        counts = {name: int(rng.integers(0, 5)) for name in self.types}
        sample: dict[str, Any] = {}
        if self.global_features:
            sample["globals"] = rng.normal(size=len(self.global_features)).astype(np.float32)
        if self.types:
            sample["units"] = {
                name: rng.normal(size=(counts[name], len(features))).astype(np.float32)
                for name, features in self.types.items()
            }
        flags = {name: rng.integers(0, 2, count).astype(np.int8) for name, count in counts.items()}
        if self.hidden:
            sample["visible"] = {name: flags[name] for name in self.hidden}
        visible = [flags[name] if name in self.hidden else np.ones(counts[name], np.int8) for name in self.types]
        units = np.flatnonzero(np.concatenate([*visible, np.zeros(0, np.int8)]))
        sample["actions"] = {}
        for name, kind in self.actions.items():
            if isinstance(kind, GlobalChoice):
                actors = np.full(int(rng.integers(0, 2)), sum(counts.values()), np.int64)
            else:
                actors = rng.permutation(units)[: int(rng.integers(0, len(units) + 1))].astype(np.int64)
            sample["actions"][name] = parts = {"actors": actors}
            choices = kind.choices
            if isinstance(kind, Select):
                choices = int(rng.integers(1, len(units) + 1)) if len(actors) else 0
                parts["actees"] = rng.permutation(units)[:choices].astype(np.int64)
            if kind.masked:
                mask = rng.integers(0, 2, (len(actors), choices)).astype(np.int8)
                if choices:
                    mask[np.arange(len(actors)), rng.integers(0, choices, len(actors))] = 1
                parts["mask"] = mask.reshape(-1) if isinstance(kind, Select) else mask
        return sample

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitSpace) and self._parts == other._parts

    def __repr__(self) -> str:
        types, global_features, actions, hidden = self._parts
        return f"UnitSpace({dict(types)}, global_features={global_features}, actions={dict(actions)}, hidden={hidden})"

    @property
    def _parts(self) -> tuple[Any, ...]:
        return list(self.types.items()), self.global_features, list(self.actions.items()), self.hidden

    def _breach_of_actions(self, batch: Mapping[str, Any]) -> Breach | None:
        counts = self.lengths(batch)
        begin = np.add.accumulate(counts) - counts
        flags = None  # of all units of all rows, in the order of indices
        if self.hidden:
            ones = [Ragged(np.ones(part.total, np.int8), part.lengths) for part in batch["units"].values()]
            visible = batch["visible"]
            flags = Ragged.side_by_side(
                [visible.get(name, one) for name, one in zip(self.types, ones, strict=True)]
            ).values
        shown = batch["actions"]
        for name, kind in self.actions.items():
            parts = shown[name]
            actors: Ragged = parts["actors"]
            if isinstance(kind, GlobalChoice):
                where = f"action {name!r}"
                if (row := _first(actors.lengths > 1)) is not None:
                    return Breach(row, f"{where}: {actors.lengths[row]} actors, but the row chooses at most once")
                if (item := _first(actors.values != np.repeat(counts, actors.lengths))) is not None:
                    row = int(actors.rows()[item])
                    return Breach(
                        row, f"{where}: its actor must be {counts[row]}, the number of units, got {actors.values[item]}"
                    )
            elif (breach := _breach_of_indices(actors, counts, begin, flags, name, "actor")) is not None:
                return breach
            if isinstance(kind, Select):
                actees: Ragged = parts["actees"]
                if not actors.total and not actees.total and not (kind.masked and parts["mask"].total):
                    continue
                if (breach := _breach_of_indices(actees, counts, begin, flags, name, "actee")) is not None:
                    return breach
                where = f"action {name!r}"
                if (row := _first((actors.lengths > 0) & (actees.lengths == 0))) is not None:
                    return Breach(row, f"{where}: actor {actors[row][0]} has nothing to select")
                if (row := _first((actors.lengths == 0) & (actees.lengths > 0))) is not None:
                    return Breach(row, f"{where}: {actees.lengths[row]} actees, but no actor")
            if kind.masked and (breach := _breach_of_mask(kind, parts, name)) is not None:
                return breach
        return None


def _names(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Distinct names, in order."""
    names = tuple(values)
    if isinstance(values, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a list of strings, got {values!r}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{what}: {twice[0]!r} is there twice")
    return names


def _shown_parts(kind: ActionKind) -> dict[str, Space[Any]]:
    """The parts of an observation that say which units act in an action, and what they may do."""
    named = ("actors", "actees") if isinstance(kind, Select) else ("actors",)
    parts: dict[str, Space[Any]] = {part: Items(spaces.Box(0, MOST_UNITS - 1, (), np.int64)) for part in named}
    if kind.masked:
        parts["mask"] = Items(_FLAGS if isinstance(kind, Select) else spaces.MultiBinary(kind.choices))
    return parts


def _refuse_unknown(what: str, mapping: Any, known: Iterable[str]) -> None:
    if not isinstance(mapping, Mapping):
        raise ValueError(f"a mapping by {what} is needed, got {mapping!r:.80}")
    for name in mapping:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; {nearest(str(name), known)}")


def _items(what: str, numbers: Any, dtype: Any, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """An array [n, *shape] of a type, from one of any number type, or lists."""
    array = np.asarray(numbers)
    if array.shape[:1] == (0,):
        return np.zeros((0, *shape), dtype)
    if array.ndim == 0 or array.shape[1:] != shape:
        raise ValueError(f"{what}: the shape must be [{', '.join(map(str, ('n', *shape)))}], got {list(array.shape)}")
    with np.errstate(invalid="ignore", over="ignore"):  # `breach` reports numbers that are not finite, with their unit
        typed = array.astype(dtype, copy=False)
    if typed is not array and array.dtype.kind in "iu" and (lost := lost_value(array, typed.dtype)):
        raise ValueError(f"{what}: the value {lost}, which {typed.dtype} does not hold")
    if typed.dtype.kind == "i" and typed is not array and not np.array_equal(array, typed):
        raise ValueError(f"{what}: whole numbers of {typed.dtype} are needed, got {array.dtype} {array.ravel()[:3]}")
    return typed


def _picked(
    name: str, kind: ActionKind, parts: Mapping[str, Ragged], generator: np.random.Generator | None
) -> NDArray[np.int64]:
    """[D] a choice per actor of all rows: drawn evenly among the allowed ones, or without a generator the first."""
    actors = parts["actors"]
    drawn = np.zeros(actors.total) if generator is None else generator.random(actors.total)
    choices = np.full(actors.total, kind.choices)  # of each actor, allowed or not
    if isinstance(kind, Select):
        choices = np.repeat(parts["actees"].lengths, actors.lengths)
    if not kind.masked or "mask" not in parts:
        return np.asarray(drawn * choices, np.int64)
    allowed = np.cumsum(parts["mask"].values != 0)  # up to each choice of each actor
    ends = np.cumsum(choices)
    before = np.concatenate([[0], allowed])[ends - choices]
    counts = np.concatenate([[0], allowed])[ends] - before
    if (stuck := _first(counts == 0)) is not None:
        raise ValueError(
            f"action {name!r}, row {actors.rows()[stuck]}: actor {actors.values[stuck]}: its mask forbids everything"
        )
    number = before + (drawn * counts).astype(np.int64) + 1  # of the choice among all allowed ones
    return np.asarray(np.searchsorted(allowed, number) - (ends - choices), np.int64)


def _as_batch(space: Space[Any], sample: Any) -> Any:
    """A single sample as a batch of one row, without a copy; None if a name, a shape or a dtype is wrong."""
    if isinstance(space, spaces.Dict):
        if not isinstance(sample, dict) or sample.keys() != space.spaces.keys():
            return None
        rows = {key: _as_batch(part, sample[key]) for key, part in space.spaces.items()}
        return None if any(row is None for row in rows.values()) else rows
    part = space.feature_space if isinstance(space, Items) else space
    array = sample if isinstance(sample, np.ndarray) else None
    if array is None or not np.can_cast(array.dtype, np.dtype(part.dtype)):
        return None
    if isinstance(space, Items):
        fits = array.ndim > 0 and array.shape[1:] == part.shape
        return Ragged(array, [len(array)]) if fits else None
    return array[np.newaxis] if array.shape == part.shape else None


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """The first place where a condition [N] holds."""
    place = wrong.tobytes().find(1)  # of so few items, faster than any function of NumPy
    return None if place < 0 else place


def _breach_of_flags(flags: Ragged, where: str) -> Breach | None:
    values = flags.values
    wrong = values.view(np.uint8) > 1 if values.dtype == np.int8 else (values != 0) & (values != 1)
    if not np.count_nonzero(wrong):
        return None
    item = int(np.argwhere(wrong)[0][0])
    return Breach(int(flags.rows()[item]), f"{where} holds {flags.values[item].tolist()}; only 0 and 1 are allowed")


def _breach_of_indices(
    found: Ragged, counts: Integers, begin: Integers, flags: NDArray[np.int8] | None, action: str, what: str
) -> Breach | None:
    """The first index that is no unit, is there twice, or is hidden (where `flags` of all units of all rows is 0).

    The units of a row, `counts` [B] of them, begin at `begin` [B] among those of all rows.
    """
    values, lengths = found.values, found.lengths
    if not len(values):
        return None
    if values.dtype is not _INDEX:
        values = np.asarray(values, np.int64)
    wrong = values.view(np.uint64) >= counts.repeat(lengths).view(np.uint64)  # as unsigned, negative ones are large
    if (item := _first(wrong)) is not None:
        row = int(found.rows()[item])
        text = f"{what} {values[item]} is no unit; there are {counts[row]}, counted from 0"
        return Breach(row, f"action {action!r}: {text}")
    everywhere = values + begin.repeat(lengths)
    times = np.bincount(everywhere)
    if np.count_nonzero(times) < len(values):
        item = int(np.argmax(times[everywhere] > 1))
        return Breach(int(found.rows()[item]), f"action {action!r}: {what} {values[item]} is there twice")
    if flags is not None and (item := _first(flags[everywhere] == 0)) is not None:
        return Breach(int(found.rows()[item]), f"action {action!r}: {what} {values[item]} is hidden")
    return None


def _breach_of_mask(kind: ActionKind, parts: Mapping[str, Ragged], action: str) -> Breach | None:
    actors, mask = parts["actors"], parts["mask"]
    select = isinstance(kind, Select)
    expected, rows = (actors.lengths * parts["actees"].lengths, "entries") if select else (actors.lengths, "rows")
    where = f"action {action!r}"
    if (row := _first_difference(mask.lengths, expected)) is not None:
        choices = f"{parts['actees'].lengths[row]} actees" if isinstance(kind, Select) else f"{kind.choices} choices"
        return Breach(
            row,
            f"{where}: its mask has {mask.lengths[row]} {rows} for {actors.lengths[row]} actors with {choices} each",
        )
    if not actors.total:
        return None
    usual = mask.dtype is _FLAG
    if usual and not select:
        raw = mask.values.tobytes()
        if bytes(kind.choices) not in raw and not raw.translate(None, b"\x00\x01"):
            return None  # all are flags, and no run of zeros is as long as the mask of an actor
    flags = mask.values.view(np.uint8) if usual else np.asarray(mask.values, np.uint8)
    if select:
        each = np.repeat(parts["actees"].lengths, actors.lengths)
        most = np.maximum.reduceat(flags, np.cumsum(each) - each)  # of each actor
    else:
        most = np.maximum.reduce(flags.T.copy(), axis=0)  # along rows of the array it takes up to 16 times as long
    if usual and most.tobytes() == b"\x01" * len(most):  # no actor is stuck, no flag is wrong
        return None
    if (breach := _breach_of_flags(mask, f"{where}: its mask")) is not None:
        return breach
    if (stuck := _first(most == 0)) is not None:
        return Breach(int(actors.rows()[stuck]), f"{where}: actor {actors.values[stuck]}: its mask forbids everything")
    return None


def _first_difference(lengths: Integers, expected: Integers) -> int | None:
    """The first row with another length. Often both are one array; comparing bytes is faster than arrays."""
    if lengths is expected or lengths.tobytes() == expected.tobytes():
        return None
    return _first(lengths != expected)
