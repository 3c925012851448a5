"""Observations of the published interface as batches of a `UnitSpace`, and choices as action objects.

    translator = Translator(unit_space(env.obs_space(), env.action_space()))
    batch = translator.batch([observation, ...])       units by index
    batch.sample(translator.space)                     as the arena's games give it
    translator.actions(batch, row, choices)            what `env.act` gets: units by id

A game names entities by ids, the arena by indices. Nothing is kept from one tick to the next but the batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.entity_env.actions import CategoricalAction, GlobalCategoricalAction, SelectEntityAction
from arena.entity_env.environment import Entity, Observation, package_base
from arena.errors import nearest
from arena.game.arrays import lost_value
from arena.game.ragged import Ragged
from arena.game.units import Choice, GlobalChoice, Select, UnitSpace

Kind = Choice | GlobalChoice | Select

_NAMES = {Choice: "CategoricalAction", GlobalChoice: "GlobalCategoricalAction", Select: "SelectEntityAction"}
"""Of each kind the published name of its actions; with `Space` and `Mask` behind it, of its space and its masks."""


class WrongObservation(ValueError):
    """An observation breaks a rule of the interface; `row` is its number in the batch."""

    def __init__(self, row: int, found: str) -> None:
        super().__init__(found)
        self.row, self.found = row, found


class ActionClasses(NamedTuple):
    """The classes of the action objects that a game gets: it may test for them with `isinstance`."""

    categorical: Any = CategoricalAction
    global_: Any = GlobalCategoricalAction
    select: Any = SelectEntityAction


@dataclass(frozen=True, slots=True)
class ActorChoices:
    """The actors of an action and what they may choose, in B rows."""

    actors: Ragged  # indices of units, int64 items
    actees: Ragged | None  # likewise, of `Select`; else None
    # Bool items: per actor `[choices]`, of `Select` one per actor and actee; None: no row has one, all is allowed.
    mask: Ragged | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Observations of B rows."""

    globals: NDArray[np.float32]  # [B, G]
    units: dict[str, Ragged]  # features by type, float32 items [F]
    visible: dict[str, Ragged]  # by type, bool items; absent for types for which no row gives flags
    shown: dict[str, ActorChoices]  # by action
    ids: list[list[Any]]  # per row, the ids of all its units, in the order of indices

    def sample(self, space: UnitSpace) -> dict[str, Any]:
        """The same as a batched sample of the space: without flags or a mask, all is visible and allowed."""
        actions: dict[str, dict[str, Ragged]] = {}
        for name, kind in space.actions.items():
            shown = self.shown[name]
            actions[name] = {"actors": shown.actors}
            lengths = shown.actors.lengths
            if shown.actees is not None:
                actions[name]["actees"] = shown.actees
                lengths = lengths * shown.actees.lengths
            if kind.masked:
                shape = () if isinstance(kind, Select) else (kind.choices,)
                ones = np.ones((int(lengths.sum()), *shape), np.int8)
                actions[name]["mask"] = Ragged(ones if shown.mask is None else shown.mask.values.view(np.int8), lengths)
        sample: dict[str, Any] = {"globals": self.globals} if space.global_features else {}
        if space.types:
            sample["units"] = self.units
        if space.hidden:
            sample["visible"] = {}
            for name in space.hidden:
                flags, units = self.visible.get(name), self.units[name]
                ones = np.ones(units.total, np.int8) if flags is None else flags.values.view(np.int8)
                sample["visible"][name] = Ragged(ones, units.lengths)
        sample["actions"] = actions
        return sample

    def decides(self, row: int) -> bool:
        """Whether a row has any actor."""
        return any(shown.actors.lengths[row] for shown in self.shown.values())


class Translator:
    """Translates between a game's ids and the indices of its `space`."""

    def __init__(self, space: UnitSpace, classes: ActionClasses | None = None) -> None:
        self.space = space
        self._classes = ActionClasses() if classes is None else classes
        self._types, self._kinds = tuple(space.types), dict(space.actions)
        self._known = frozenset(self._types), frozenset(space.hidden), frozenset(self._kinds)
        self._labels = {name: list(kind.labels) for name, kind in self._kinds.items() if not isinstance(kind, Select)}
        self._ids: dict[str, list[Any]] = {name: [] for name in self._types}  # the default ids: (type, 0), ...

    @classmethod
    def of(cls, env: Any) -> Translator:
        """The translator for an environment; a game of `entity-gym` gets that package's action objects.

        Raises:
            ValueError: its spaces are not of the interface.
        """
        classes = None
        if (base := package_base(env)) is not None:
            package = sys.modules[base.__module__]  # the game has imported it
            classes = ActionClasses(*(getattr(package, name) for name in _NAMES.values()))
        return cls(unit_space(env.obs_space(), env.action_space()), classes)

    def batch(self, observations: Sequence[Any]) -> Batch:
        """The observations of B rows; None is a row without anything. Raises `WrongObservation`."""
        shown = [_NOTHING if one is None else one for one in observations]
        types, hidden, actions = self._known
        for row, one in enumerate(shown):
            for what, names, known in (
                ("features of a type", one.features, types),
                ("ids of a type", one.ids, types),
                ("visible for a type", one.visible, hidden),
                ("an action", one.actions, actions),
            ):
                if not isinstance(names, Mapping):
                    raise WrongObservation(row, f"{what}: {_short(names)}; expected a mapping by name")
                if not names.keys() <= known:
                    unknown = next(name for name in names if name not in known)
                    where = "`hidden` of the space" if known is hidden else "the space"
                    hint = nearest(str(unknown), known)
                    raise WrongObservation(row, f"{what} that is not in {where}, {unknown!r}; {hint}")
        features = [self._features(shown, kind) for kind in self._types]
        counts = np.array([ragged.lengths for ragged in features], np.int64).reshape(len(features), len(shown))
        per_row = counts.T.tolist()
        visible = {}
        for kind, lengths in zip(self._types, counts, strict=True):
            if not any(kind in one.visible for one in shown):
                continue
            parts = []
            for row, (one, count) in enumerate(zip(shown, lengths.tolist(), strict=True)):
                flags = _flags(one.visible.get(kind, [True] * count), (count,))
                if flags is None:
                    found = f"visible {_short(one.visible[kind])} of type {kind!r}"
                    raise WrongObservation(row, f"{found}; expected {count} flags, one per entity")
                parts.append(flags)
            visible[kind] = Ragged(np.concatenate(parts), lengths)
        rows = [_Row(self, row, one, per_row[row]) for row, one in enumerate(shown)]
        names = self.space.global_features
        numbers = [(0.0,) * len(names) if one is None else one.global_features for one in observations]
        globals_ = _numbers(numbers, (len(numbers), len(names)))
        if globals_ is None:
            row = next(row for row, one in enumerate(numbers) if _numbers([one], (1, len(names))) is None)
            expected = f"expected {len(names)} finite float32 numbers ({', '.join(names)})"
            raise WrongObservation(row, f"global features {_short(numbers[row])}; {expected}")
        return Batch(
            globals=globals_,
            units=dict(zip(self._types, features, strict=True)),
            visible=visible,
            shown={
                name: _select(name, kind, rows) if isinstance(kind, Select) else _choice(name, kind, rows)
                for name, kind in self._kinds.items()
            },
            ids=[row.ids for row in rows],
        )

    def actions(self, batch: Batch, row: int, choices: Mapping[str, NDArray[np.int64]]) -> dict[str, Any]:
        """The action objects for a row of what was shown.

        `choices`: per action one number per actor, int64 `[k]`; an absent action has no actors.
        """
        ids, found = batch.ids[row], {}
        for name, kind in self._kinds.items():
            numbers = choices.get(name, _NO_CHOICES)
            if isinstance(kind, GlobalChoice):
                for number in numbers.tolist():
                    found[name] = self._classes.global_(index=number, label=kind.labels[number])
                continue
            shown = batch.shown[name]
            actors = [ids[index] for index in shown.actors[row].tolist()] if len(numbers) else []
            if isinstance(kind, Choice):
                found[name] = self._classes.categorical(
                    actors=actors, indices=numbers.copy(), index_to_label=self._labels[name]
                )
                continue
            actees: list[Any] = []
            if shown.actees is not None and len(numbers):
                places = shown.actees[row].tolist()
                actees = [ids[places[number]] for number in numbers.tolist()]
            found[name] = self._classes.select(actors=actors, actees=actees)
        return found

    def _features(self, observations: Sequence[Any], kind: str) -> Ragged:
        """The features of a type in all rows: checked together, and row by row only if something is wrong."""
        names = self.space.types[kind]
        width = len(names)
        rows = [one.features.get(kind, ()) for one in observations]
        try:
            lengths = [len(row) for row in rows]
            if any(type(row) is np.ndarray for row in rows):
                full = [np.asarray(row) for row in rows if len(row)]
                items: Any = np.concatenate(full) if full else ()
            else:
                items = [item for row in rows for item in row]
            array = _numbers(items, (sum(lengths), width))
        except (TypeError, ValueError):
            array = None
        if array is not None:
            return Ragged(array, lengths)
        expected = f"expected [n][{width}] finite float32 numbers{f' ({chr(44).join(names)})' if names else ''}"
        for row, features in enumerate(rows):
            try:
                items = [np.asarray(item) for item in features]
            except (TypeError, ValueError):
                raise WrongObservation(row, f"features {_short(features)} of type {kind!r}; {expected}") from None
            for number, item in enumerate(items):
                if _numbers(item, (width,)) is None:
                    found = f"features {_short(item.tolist())} of shape {list(item.shape)}"
                    raise WrongObservation(row, f"{kind} {number}: {found}; {expected}")
        raise WrongObservation(0, f"features of type {kind!r} that do not fit together; {expected}")


class _Row:
    """One observation: the ids of its units, and their indices by id and by type."""

    __slots__ = ("actions", "begins", "hidden", "ids", "indices", "known", "number")

    def __init__(self, translator: Translator, number: int, one: Any, counts: Sequence[int]) -> None:
        self.number, self.actions = number, one.actions
        ids: list[Any] = []
        self.begins: dict[str, tuple[int, int]] = {}
        for (kind, count), of_type in zip(
            zip(translator._types, counts, strict=True), map(one.ids.get, translator._types), strict=True
        ):
            begin = len(ids)
            self.begins[kind] = (begin, begin + count)
            if of_type is None:
                default = translator._ids[kind]
                default.extend((kind, number) for number in range(len(default), count))
                of_type = default[:count]
            elif not isinstance(of_type, Iterable):
                raise WrongObservation(number, f"ids {_short(of_type)} of type {kind!r}; expected a list of {count}")
            ids += of_type
            if len(ids) != begin + count:
                raise WrongObservation(number, f"{len(ids) - begin} ids for {count} entities of type {kind!r}")
        self.ids = ids
        try:
            self.indices = dict(zip(ids, range(len(ids)), strict=True))
        except TypeError as error:
            raise WrongObservation(number, f"an id that cannot be one: {error}") from None
        if len(self.indices) != len(ids):
            twice = next(one for index, one in enumerate(ids) if self.indices[one] != index)
            raise WrongObservation(number, f"the id {twice!r} twice; ids are unique over all types")
        self.hidden: set[int] = set()
        for kind, flags in one.visible.items():
            begin, _ = self.begins[kind]
            self.hidden.update(begin + place for place, flag in enumerate(flags) if not flag)

    def chosen(self, name: str, what: str, ids: Iterable[Any] | None, types: Iterable[str] | None) -> list[int]:
        """The indices of actors or actees, in the order given; with neither ids nor types all."""
        for kind, names in (("ids", ids), ("types", types)):
            if names is not None and not isinstance(names, Iterable):
                raise self.wrong(name, f"{kind} of {what}s {_short(names)}; expected a list")
        if ids is not None:
            try:
                found = [self.indices[one] for one in ids]
            except (KeyError, TypeError):
                unknown = next(one for one in ids if type(one).__hash__ is None or one not in self.ids)
                text = f"{what} {unknown!r} is the id of no entity; ids: {_short(self.ids)}"
                raise self.wrong(name, text) from None
        elif types is not None:
            found = []
            for kind in types:
                if kind not in self.begins:
                    known = nearest(str(kind), self.begins)
                    raise self.wrong(name, f"{what}s of an unknown type {kind!r}; {known}")
                found += range(*self.begins[kind])
        else:
            return list(range(len(self.ids)))
        if len(set(found)) != len(found):
            twice = next(index for place, index in enumerate(found) if index in found[:place])
            raise self.wrong(name, f"{what} {self.ids[twice]!r} is there twice")
        return found

    def actors(self, name: str, mask: Any) -> list[int]:
        """The actors of an action, none of them hidden."""
        found = self.chosen(name, "actor", mask.actor_ids, mask.actor_types)
        if self.hidden:
            for place, index in enumerate(found):
                if index in self.hidden:
                    raise self.wrong_actor(name, place, index, " is hidden from the policy")
        return found

    def wrong(self, name: str, text: str) -> WrongObservation:
        """The error of an action."""
        return WrongObservation(self.number, f"action {name!r}: {text}")

    def wrong_actor(self, name: str, place: int, index: int, text: str) -> WrongObservation:
        """The error of an actor of an action."""
        return self.wrong(name, f"actor {place}{'' if index >= len(self.ids) else f' ({self.ids[index]!r})'}{text}")

    def misshapen(self, name: str, mask: Any, expected: str) -> WrongObservation:
        """The error of a mask of another shape or other values."""
        try:
            found = f"of shape {list(np.shape(mask))}"
        except ValueError:  # rows of different lengths
            found = f"with rows of {', '.join(str(np.size(row)) for row in mask)}"
        return self.wrong(name, f"a mask {found}; expected bools {expected}")


def _choice(name: str, kind: Choice, rows: Sequence[_Row]) -> ActorChoices:
    """What is shown in an action of labels: per row its actors, and per actor the allowed labels."""
    actors: list[int] = []
    lengths: list[int] = []
    masks: list[Any] = []
    any_mask = False
    for row in rows:
        mask = row.actions.get(name)
        if mask is None:
            lengths.append(0)
            masks.append(None)
            continue
        _check_kind(row, name, kind, mask)
        flags = mask.mask
        if isinstance(kind, GlobalChoice):
            found = [len(row.ids)]
            with suppress(ValueError):  # rows of different lengths
                flags = [flags] if flags is not None and np.ndim(flags) == 1 else flags
        else:
            found = row.actors(name, mask)
        actors += found
        lengths.append(len(found))
        masks.append(flags)
        any_mask = any_mask or flags is not None
    shown = Ragged(np.array(actors, np.int64), lengths)
    if not any_mask:
        return ActorChoices(shown, None, None)
    choices = kind.choices
    every = [True] * choices  # where a row gives no mask
    masks = [[every] * count if mask is None else mask for mask, count in zip(masks, lengths, strict=True)]
    allowed = None
    if all(type(mask) is list for mask in masks) and [len(mask) for mask in masks] == lengths:
        allowed = _flags(
            [flags for mask in masks for flags in mask], (shown.total, choices)
        )  # an array per row is slow
    if allowed is None:
        parts = []
        for row, mask, count in zip(rows, masks, lengths, strict=True):
            part = _flags(mask, (count, choices))
            if part is None:
                raise row.misshapen(name, mask, f"[{count}][{choices}]: {count} actors, {choices} labels")
            parts.append(part)
        allowed = np.concatenate(parts)
    if not allowed.any(axis=1).all():
        item = int(np.argmin(allowed.any(axis=1)))
        row = rows[int(shown.rows()[item])]
        place, index = int(shown.places()[item]), int(shown.values[item])
        raise row.wrong_actor(name, place, index, ": its mask forbids everything")
    return ActorChoices(shown, None, Ragged(allowed, shown.lengths))


def _select(name: str, kind: Select, rows: Sequence[_Row]) -> ActorChoices:
    """What is shown in an action of entities; actors that can pick no entity are left out."""
    actors: list[list[int]] = []
    actees: list[list[int]] = []
    masks: list[NDArray[np.bool_] | None] = []
    for row in rows:
        mask = row.actions.get(name)
        picking: list[int] = []
        picked: list[int] = []
        flags = None
        if mask is not None:
            _check_kind(row, name, kind, mask)
            picking = row.actors(name, mask)
            picked = row.chosen(name, "actee", mask.actee_ids, mask.actee_types)
            if mask.mask is not None:
                if not kind.masked:
                    raise row.wrong(name, "a mask, but its space is SelectEntityActionSpace(masked=False)")
                flags = _flags(mask.mask, (len(picking), len(picked)))
                if flags is None:
                    raise row.misshapen(
                        name, mask.mask, f"[{len(picking)}][{len(picked)}]: {len(picking)} actors, {len(picked)} actees"
                    )
            if row.hidden:
                visible = [place for place, index in enumerate(picked) if index not in row.hidden]
                picked = [picked[place] for place in visible]
                flags = None if flags is None else flags[:, visible]
            if flags is not None:
                able = np.asarray(flags.any(axis=1))
                picking = [picking[place] for place in np.flatnonzero(able).tolist()]
                flags = flags[able]
            if not picked:
                picking = []
            if not picking:
                picked, flags = [], None
        actors.append(picking)
        actees.append(picked)
        masks.append(flags)
    if all(flags is None for flags in masks):
        return ActorChoices(_indices(actors), _indices(actees), None)
    parts = [  # actor by actor; ones where a row gives no mask
        np.ones(len(picking) * len(picked), np.bool_) if flags is None else flags.reshape(-1)
        for picking, picked, flags in zip(actors, actees, masks, strict=True)
    ]
    pairs = Ragged(np.concatenate(parts), [len(part) for part in parts])
    return ActorChoices(_indices(actors), _indices(actees), pairs)


def _indices(rows: Sequence[Sequence[int]]) -> Ragged:
    return Ragged(np.array([index for row in rows for index in row], np.int64), [len(row) for row in rows])


def _check_kind(row: _Row, name: str, kind: Kind, mask: Any) -> None:
    needed = f"{_NAMES[type(kind)]}Mask"
    if type(mask).__name__ != needed and not any(base.__name__ == needed for base in type(mask).__mro__):
        raise row.wrong(name, f"a {type(mask).__name__}; its space needs a {needed}")


def unit_space(obs_space: Any, action_space: Mapping[str, Any]) -> UnitSpace:
    """The spaces of a game of the interface as a `UnitSpace`; it may hide units of every type.

    Raises:
        ValueError: they are not of the interface.
    """
    types: dict[str, list[str]] = {}
    for name, entity in obs_space.entities.items():
        if not isinstance(entity, Entity) and not hasattr(entity, "features"):
            raise ValueError(f"the type {name!r} is a {type(entity).__name__}; expected an Entity with its features")
        types[str(name)] = list(entity.features)
    actions: dict[str, Kind] = {}
    for name, space in action_space.items():  # of our classes, or of those of `entity-gym`
        names = {base.__name__ for base in type(space).__mro__}
        if "SelectEntityActionSpace" in names:
            actions[str(name)] = Select(masked=bool(getattr(space, "masked", False)))
        elif "GlobalCategoricalActionSpace" in names:
            actions[str(name)] = GlobalChoice(list(space.index_to_label))
        elif "CategoricalActionSpace" in names:
            actions[str(name)] = Choice(list(space.index_to_label))
        else:
            expected = ", ".join(f"{published}Space" for published in _NAMES.values())
            raise ValueError(f"action {name!r} is a {type(space).__name__}; expected one of {expected}")
    return UnitSpace(types, global_features=list(obs_space.global_features), actions=actions, hidden=list(types))


def _numbers(items: Any, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """The items as finite float32 of this shape; None if they are something else."""
    if not len(items) and not shape[0]:
        return np.zeros(shape, np.float32)
    try:
        array = np.asarray(items)
    except ValueError:  # rows of unequal lengths
        return None
    if array.shape != shape or (array.dtype.kind not in "fiub" and array.size):
        return None
    if lost_value(array, np.dtype(np.float32)) is not None:
        return None
    array = array.astype(np.float32, copy=False)
    return array if np.isfinite(array).all() else None


def _flags(items: Any, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """The items as bools of this shape; None if they are something else. 0 and 1 may stand for false and true."""
    try:
        array = np.asarray(items)
    except ValueError:
        return None
    if not array.size and not np.prod(shape) and len(array) == shape[0]:
        return np.zeros(shape, np.bool_)
    if array.shape != shape:
        return None
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind not in "iuf" or not ((array == 0) | (array == 1)).all():
        return None
    return array.astype(np.bool_)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_NO_CHOICES = np.zeros(0, np.int64)
_NOTHING = Observation(done=False, reward=0.0)
