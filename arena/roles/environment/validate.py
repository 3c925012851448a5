"""Validates the results of a game against its interface: shapes, dtypes, finite numbers, infos that can be sent.

A NaN from a game would make the weights of all policies that learn from it NaN, and an array of another shape would be
broadcast without an error. Every step goes through a fast test; a step that does not pass it goes through the
detailed checks, which name the first fault or find none.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from functools import reduce
from operator import getitem
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.api import Frame, Info, Interface, Step
from arena.game.arrays import LARGEST, described, is_finite, lost_value
from arena.game.infos import refused_key
from arena.game.ragged import Ragged
from arena.game.spaces import Columns, Leaf, allows_some, flatten, is_ragged, leaves_of, take_rows
from arena.game.units import UnitSpace, bounds
from arena.transport.pickling import pack

_FLOAT, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)
_REAL = "fiub"  # kinds of dtypes that rewards may have
# Types of infos that can always be pickled; all others are pickled once more to find out.
_SENT_AS_IT_IS = {type(None), bool, int, float, str, bytes, np.bool_, np.int32, np.int64, np.float32, np.float64}


class StepValidator:
    """Validates the frames and steps of a game with this interface and number of lanes."""

    def __init__(self, interface: Interface, lanes: int) -> None:
        self._interface = interface
        self._shape = (lanes, len(interface.entities))
        self._all_lanes = np.ones(lanes, np.bool_)
        self._numbers = np.arange(lanes)
        self._leaves = [leaves_of(space, ragged=True) for space in interface.observation_spaces]
        self._columns = [Columns(space) if is_ragged(space) else None for space in interface.observation_spaces]
        # Per entity and leaf the smallest and largest choice; None for other leaves, and for units, see `breach`.
        self._choices = [
            [None if isinstance(space, UnitSpace) else _choices(space, leaf) for leaf in leaves]
            for space, leaves in zip(interface.observation_spaces, self._leaves, strict=True)
        ]
        self._size = sum(lanes * int(np.prod(leaf.shape)) for leaves in self._leaves for leaf in leaves)
        # Per entity, shape and dtype of its observations, or None if they are ragged, which have a test of their own;
        # empty where the fast test does not apply.
        pairs = list(zip(self._columns, self._leaves, strict=True))
        plain = not any(interface.mask_sizes) and all(
            columns is not None or (len(leaves) == 1 and not leaves[0].path) for columns, leaves in pairs
        )
        self._kinds = [
            ((lanes, *leaves[0].shape), leaves[0].dtype) if columns is None else None
            for columns, leaves in pairs
            if plain
        ]

    def check_step(self, step: Step) -> None:
        """Validates a step of all lanes; raises GameError: names the first item that the interface does not allow."""
        if not isinstance(step, Step):
            raise GameError(f"a {type(step).__name__} as the result of step(); expected an arena.game.api.Step")
        try:
            if self._kinds and self._passes_fast_test(step):
                self._check_infos(step.frame.infos, self._all_lanes)
                return
        except (AttributeError, TypeError, ValueError):  # not an array, or a wrong number of items: named below
            pass
        self._check_flags("terminated", step.terminated)
        self._check_flags("truncated", step.truncated)
        rewards = step.rewards
        if getattr(rewards, "shape", None) != self._shape or rewards.dtype.kind not in _REAL:
            raise GameError(f"rewards as {described(rewards)}; expected float64 {self._shape}")
        if rewards.dtype != _FLOAT and (lost := lost_value(rewards, _FLOAT)) is not None:
            raise GameError(f"rewards with the value {lost}, which float64 does not hold")
        for lane, entity in np.argwhere(~(np.abs(rewards) <= LARGEST))[:1].tolist():
            found = f"the reward {rewards[lane, entity]}; expected a finite number that float32 holds"
            raise self._error(entity, found, lane)
        self.check_frame(step.frame, self._all_lanes, step.terminated | step.truncated)

    def describe_nonfinite_action(self, actions: Sequence[Any]) -> str:
        """An addition to the message of an error if an action was not finite; empty otherwise."""
        spaces = self._interface.action_spaces
        for entity, space, action in zip(self._interface.entities, spaces, actions, strict=True):
            for leaf in flatten(space, action):
                if isinstance(leaf, Ragged):
                    leaf = leaf.values
                if not is_finite(leaf):
                    row = next(row for row in leaf if not is_finite(np.asarray(row)))
                    return f"; the action of {entity!r} was {_shortened(row)}: the weights of its policy are not finite"
        return ""

    def _passes_fast_test(self, step: Step) -> bool:
        """Whether the step is certainly valid; False where the detailed checks must decide."""
        (observations, active, *_), rewards, terminated, truncated = step
        if not rewards.shape == terminated.shape == truncated.shape == active.shape == self._shape:
            return False
        if rewards.dtype is not _FLOAT or not terminated.dtype is truncated.dtype is active.dtype is _BOOL:
            return False
        if not np.vdot(rewards, rewards) <= LARGEST:  # then no square is infinite; NaN is not less
            return False
        base = None
        for entity, (observed, kind) in enumerate(zip(observations, self._kinds, strict=True)):
            if kind is None:
                self._check_observation(entity, observed, self._all_lanes)
                self._check_choices(entity, observed, (active | terminated | truncated)[:, entity])
                continue
            shape, dtype = kind
            if observed.shape != shape or observed.dtype is not dtype:
                return False
            if observed.base is not base or base is None:
                # Many games return views of one array: it is tested once, unless it holds much else.
                base = observed.base
                if type(base) is not np.ndarray or base.dtype is not dtype or base.size > self._size:
                    base = None
                if not is_finite(observed if base is None else base):
                    return False
            if (choices := self._choices[entity][0]) is not None and _has_others(observed, choices):
                return False
        return True

    def check_frame(
        self, frame: Frame, lanes: NDArray[np.bool_], ended: NDArray[np.bool_] | Literal[False] = False
    ) -> None:
        """Validates the observations and infos of the lanes in the mask [L], and all flags and masks, as `check_step`.

        Choices out of range are errors in the rows that act next or have `ended` [L, E]; other rows may be empty.
        """
        if not isinstance(frame, Frame):
            raise GameError(f"a {type(frame).__name__} as a frame; expected an arena.game.api.Frame")
        self._check_flags("active", frame.active)
        final_masks = frame.masks if frame.final_masks is None else frame.final_masks
        parts = {"observations": frame.observations, "masks": frame.masks, "final masks": final_masks}
        for what, part in parts.items():
            if not isinstance(part, Sized) or len(part) != self._shape[1]:
                found = f"{len(part)} {what}" if isinstance(part, Sized) else f"a {type(part).__name__} as {what}"
                raise GameError(f"{found} for {self._shape[1]} entities")
        shown = lanes[:, None] & (frame.active | ended)
        for entity, observed in enumerate(frame.observations):
            self._check_observation(entity, observed, lanes)
            self._check_choices(entity, observed, shown[:, entity])
        for entity, masks in enumerate(zip(frame.masks, final_masks, strict=True)):
            if not self._interface.mask_sizes[entity]:
                continue
            for mask in masks:
                if mask is None:
                    continue
                expected = (self._shape[0], self._interface.mask_sizes[entity])
                if getattr(mask, "shape", None) != expected or mask.dtype.kind not in "biu":
                    raise self._error(entity, f"action masks as {described(mask)}; expected int8 {expected}")
                if mask.size and (mask.max() > 1 or mask.min() < 0):
                    for lane in np.flatnonzero(lanes & ((mask > 1) | (mask < 0)).any(axis=1)).tolist():
                        found = f"the action mask {_shortened(mask[lane])}; expected 0 (forbidden) and 1 (allowed)"
                        raise self._error(entity, found, lane)
            if masks[0] is not None:
                free = allows_some(self._interface.action_spaces[entity], masks[0])
                for lane in np.flatnonzero(lanes & frame.active[:, entity] & ~free)[:1].tolist():
                    found = f"the action mask {_shortened(masks[0][lane])}, which forbids everything"
                    raise self._error(entity, f"{found}; an active entity needs an allowed action", lane)
            elif (lanes & frame.active[:, entity]).any():
                raise self._error(entity, "no action masks, though `mask_sizes` has their size; ones allow everything")
        self._check_infos(frame.infos, lanes)

    def _check_flags(self, name: str, flags: Any) -> None:
        if getattr(flags, "shape", None) != self._shape or flags.dtype.kind != "b":
            raise GameError(f"{name} as {described(flags)}; expected bool {self._shape}")

    def _check_observation(self, entity: int, observed: Any, lanes: NDArray[np.bool_]) -> None:
        space = self._interface.observation_spaces[entity]
        units, size = isinstance(space, UnitSpace), self._shape[0]
        for leaf, array in zip(self._leaves[entity], self._parts(entity, observed), strict=True):
            if leaf.ragged:
                if not (
                    units
                    and type(array) is Ragged
                    and (values := array.values).dtype is leaf.dtype
                    and values.shape[1:] == leaf.shape
                    and len(array.lengths) == size
                ):
                    self._check_ragged(entity, leaf, array, lanes, units=units)
                continue
            shape, part = (size, *leaf.shape), leaf.place
            if self._columns[entity] is not None and not isinstance(array, np.ndarray):
                raise self._error(entity, f"observations{part} as {described(array)}; expected an array {shape}")
            lost = None
            if array.dtype != leaf.dtype:  # rows of other lanes may hold anything
                lost = lost_value(array[lanes] if len(array) == len(lanes) else array, leaf.dtype)
            if array.shape != shape or lost is not None:
                found = f"as {described(array)}" if lost is None else f"with the value {lost}"
                expected = f"expected {leaf.dtype} {shape} for the space {space}"
                raise self._error(entity, f"observations{part} {found}; {expected}")
            if is_finite(array):
                continue
            finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
            for lane in np.flatnonzero(lanes & ~finite).tolist():
                found = f"the observation{part} {_shortened(array[lane])}; expected finite numbers"
                raise self._error(entity, found, lane)
        if isinstance(space, UnitSpace):
            everywhere = lanes is self._all_lanes or bool(lanes.all())
            shown = self._numbers if everywhere else np.flatnonzero(lanes)
            breach = space.breach(observed if everywhere else take_rows(space, observed, shown))
            if breach is not None:
                raise self._error(entity, f"units that its space does not allow: {breach.text}", int(shown[breach.row]))

    def _check_choices(self, entity: int, observed: Any, rows: NDArray[np.bool_]) -> None:
        """Checks choices in these rows [L]."""
        if not any(self._choices[entity]):
            return
        space = self._interface.observation_spaces[entity]
        parts = zip(self._leaves[entity], self._parts(entity, observed), self._choices[entity], strict=True)
        for leaf, array, choices in parts:
            if choices is None:
                continue
            values, of_row = (array.values, array.rows()) if leaf.ragged else (array, self._numbers)
            if not _has_others(values, choices):
                continue
            wrong = ((values < choices[0]) | (values > choices[1])).reshape(len(values), -1).any(axis=1) & rows[of_row]
            for place in np.flatnonzero(wrong)[:1].tolist():
                found = f"the observation{leaf.place} {_shortened(np.asarray(values[place]))}; its space {space} has "
                numbers = f"the choices {np.min(choices[0])} to {np.max(choices[1])}"
                raise self._error(entity, found + numbers, int(of_row[place]))

    def _check_ragged(self, entity: int, leaf: Leaf, found: Any, lanes: NDArray[np.bool_], *, units: bool) -> None:
        """Checks form and, unless they are checked as units, that all numbers are finite."""
        if not isinstance(found, Ragged):
            expected = f"expected a Ragged of {self._shape[0]} rows"
            raise self._error(entity, f"observations{leaf.place} as {described(found)}; {expected}")
        lost = lost_value(found.values, leaf.dtype)
        if len(found) != self._shape[0] or found.shape != leaf.shape or lost is not None:
            value = "" if lost is None else f" with the value {lost}"
            is_found = f"{found.dtype} {found.shape} in {len(found)} rows{value}"
            expected = f"expected items {leaf.dtype} {leaf.shape} in {self._shape[0]} rows"
            raise self._error(entity, f"observations{leaf.place} as {is_found}; {expected}")
        if not units and not is_finite(found.values):
            finite = np.isfinite(found.values).reshape(found.total, -1).all(axis=1)
            for row in found.rows()[~finite].tolist():
                if lanes[row]:
                    text = f"the observation{leaf.place} {_shortened(found[row])}; expected finite numbers"
                    raise self._error(entity, text, row)

    def _parts(self, entity: int, observed: Any) -> list[Any]:
        space, columns = self._interface.observation_spaces[entity], self._columns[entity]
        try:
            return flatten(space, observed) if columns is None else columns.flatten(observed)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            found = f"observations as {described(observed)}; expected a batch of the space {space}"
            raise self._error(entity, found) from error

    def _check_infos(self, infos: Sequence[Sequence[Info]] | None, lanes: NDArray[np.bool_]) -> None:
        if infos is None:
            return
        if len(infos) != self._shape[0] or any(len(of_lane) != self._shape[1] for of_lane in infos):
            sizes = [len(of_lane) for of_lane in infos]
            raise GameError(f"infos of the sizes {sizes}; expected {self._shape[0]} lanes of {self._shape[1]} entities")
        for lane in lanes.nonzero()[0].tolist():
            for entity, info in enumerate(infos[lane]):
                if not isinstance(info, dict):
                    raise self._error(entity, f"a {type(info).__name__} as its info; expected a dict", lane)
                refusal = refused_key(info)
                if refusal is not None:
                    raise self._error(entity, refusal, lane)
                for key, value in info.items():
                    kind = type(value)
                    if type(key) is str and (
                        kind in _SENT_AS_IT_IS or (kind is np.ndarray and not value.dtype.hasobject)
                    ):
                        continue
                    try:
                        pack((key, value))
                    except Exception as error:  # any: classes may define how they are pickled
                        found = f"the info {key!r}, a {kind.__name__} that cannot be sent to a worker ({error})"
                        raise self._error(entity, f"{found}; expected a value that can be pickled", lane) from error

    def _error(self, entity: int, found: str, lane: int | None = None) -> GameError:
        return GameError(found, entity=self._interface.entities[entity], lane=lane)


def _choices(space: Any, leaf: Leaf) -> tuple[Any, Any] | None:
    """The smallest and largest choice of a leaf of a space; None if it has numbers instead."""
    part = reduce(getitem, leaf.path, space)
    part = part.feature_space if leaf.ragged else part
    return None if isinstance(part, Box) else bounds(part)


def _has_others(values: NDArray[Any], choices: tuple[Any, Any]) -> bool:
    """Whether any value is none of the choices."""
    low, high = choices
    return bool(np.count_nonzero(values < low) or np.count_nonzero(values > high))


def _shortened(values: NDArray[Any]) -> str:
    return np.array2string(values, threshold=8, edgeitems=3, precision=3, separator=", ").replace("\n", "")
