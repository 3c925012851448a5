"""Whether what a game says is what its interface promises: the right shapes and dtypes, and finite numbers.

A game that says NaN spoils the weights of everybody who learns from it, and an array of another shape is stretched
silently. So every frame and every step is looked at, at a glance; only where that leaves a doubt, everything is looked
at closely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.api import Frame, Interface, Step
from arena.game.spaces import Leaf, flatten, keeps_values, leaves_of

_isfinite, _count_nonzero = np.isfinite, np.count_nonzero  # `all` takes longer on so few numbers
_FLOAT, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)
_REAL = "fiub"  # kinds of dtypes that rewards may have


class StepValidator:
    """Looks at what a game of `lanes` lanes says.

    Args:
        interface: what it has promised.
        lanes: how many lanes step together.
    """

    def __init__(self, interface: Interface, lanes: int) -> None:
        self._interface = interface
        self._shape = (lanes, len(interface.entities))
        self._leaves = [leaves_of(space) for space in interface.observation_spaces]
        self._size = sum(lanes * int(np.prod(leaf.shape)) for leaves in self._leaves for leaf in leaves)
        # Per entity shape and dtype of its observations, if a glance can tell; else of none, which fits nothing.
        plain = not any(interface.mask_sizes) and all(map(_is_array, self._leaves))
        self._kinds = [((lanes, *leaves[0].shape), leaves[0].dtype) for leaves in self._leaves] if plain else []

    def see_step(self, step: Step) -> None:
        """Looks at a step of all lanes.

        Raises:
            GameError: naming the first thing that is not as promised.
        """
        try:
            if self._glance(step):
                return
        except (AttributeError, ValueError):  # something is no array, or too much or too little: it will be named
            pass
        self._check_flags("terminated", step.terminated)
        self._check_flags("truncated", step.truncated)
        self._check_rewards(step.rewards)
        self.see_frame(step.frame, np.ones(self._shape[0], np.bool_))

    def wild_action(self, actions: Sequence[Any]) -> str:
        """What to add to an error of the game that was given an action which is not finite; empty: it was not."""
        spaces = self._interface.action_spaces
        for entity, space, action in zip(self._interface.entities, spaces, actions, strict=True):
            for leaf in flatten(space, action):
                if not _is_finite(leaf):
                    wild = next(row for row in leaf if not _is_finite(np.asarray(row)))
                    return f"; {entity!r} had acted with {_shortened(wild)}: what its policy has learned is not finite"
        return ""

    def _glance(self, step: Step) -> bool:
        """Whether everything is exactly as promised; False where that is not plain to see."""
        (observations, active, _, _, _), rewards, terminated, truncated = step
        if not rewards.shape == terminated.shape == truncated.shape == active.shape == self._shape:
            return False
        if rewards.dtype is not _FLOAT or not terminated.dtype is truncated.dtype is active.dtype is _BOOL:
            return False
        if _count_nonzero(rewards) and not _is_finite(rewards):
            return False
        seen = None
        for observed, (shape, dtype) in zip(observations, self._kinds, strict=True):
            if observed.shape != shape or observed.dtype is not dtype:
                return False
            if observed.base is not seen or seen is None:
                # Of many games all observations are parts of one array; one that holds much else is not looked through.
                seen = observed.base
                if type(seen) is not np.ndarray or seen.dtype is not dtype or seen.size > self._size:
                    seen = None
                if not _is_finite(observed if seen is None else seen):
                    return False
        return True

    def see_frame(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Looks closely at what is shown in the lanes of the mask [L].

        Raises:
            GameError: as `see_step`.
        """
        self._check_flags("active", frame.active)
        final_masks = frame.masks if frame.final_masks is None else frame.final_masks
        told = {"observations": frame.observations, "masks": frame.masks, "final masks": final_masks}
        for what, given in told.items():
            if len(given) != self._shape[1]:
                raise GameError(f"{len(given)} {what} for {self._shape[1]} entities")
        for entity, observed in enumerate(frame.observations):
            self._check_observation(entity, observed, lanes)
        for entity, masks in enumerate(zip(frame.masks, final_masks, strict=True)):
            for mask in masks:
                self._check_mask(entity, mask)

    def _check_flags(self, name: str, flags: Any) -> None:
        if getattr(flags, "shape", None) != self._shape or flags.dtype.kind != "b":
            raise GameError(f"{name} as {_described(flags)}; expected bool {self._shape}")

    def _check_rewards(self, rewards: Any) -> None:
        if getattr(rewards, "shape", None) != self._shape or rewards.dtype.kind not in _REAL:
            raise GameError(f"rewards as {_described(rewards)}; expected float64 {self._shape}")
        wrong = np.argwhere(~np.isfinite(rewards))
        if len(wrong):
            lane, entity = wrong[0].tolist()
            raise self._error(entity, f"the reward {rewards[lane, entity]}; expected a finite number", lane)

    def _check_observation(self, entity: int, observed: Any, lanes: NDArray[np.bool_]) -> None:
        space = self._interface.observation_spaces[entity]
        for leaf, array in zip(self._leaves[entity], self._parts(entity, observed), strict=True):
            shape = (self._shape[0], *leaf.shape)
            part = "".join(f"[{key!r}]" for key in leaf.path)
            if array.shape != shape or not keeps_values(array, leaf.dtype):
                expected = f"expected {leaf.dtype} {shape} for the space {space}"
                raise self._error(entity, f"observations{part} as {_described(array)}; {expected}")
            if not _is_finite(array):
                self._check_finite(entity, f"the observation{part}", array, lanes)

    def _parts(self, entity: int, observed: Any) -> list[NDArray[Any]]:
        space = self._interface.observation_spaces[entity]
        try:
            return flatten(space, observed)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            found = f"observations as {_described(observed)}; expected a batch of the space {space}"
            raise self._error(entity, found) from error

    def _check_finite(self, entity: int, what: str, array: NDArray[Any], lanes: NDArray[np.bool_]) -> None:
        finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        for lane in np.flatnonzero(lanes & ~finite).tolist():
            raise self._error(entity, f"{what} {_shortened(array[lane])}; expected finite numbers", lane)

    def _check_mask(self, entity: int, mask: Any) -> None:
        size = self._interface.mask_sizes[entity]
        if mask is None or not size:
            return  # a game need not have a mask for everybody at all times
        expected = (self._shape[0], size)
        if getattr(mask, "shape", None) != expected or mask.dtype.kind not in "biu":
            raise self._error(entity, f"action masks as {_described(mask)}; expected int8 {expected}")

    def _error(self, entity: int, found: str, lane: int | None = None) -> GameError:
        return GameError(found, entity=self._interface.entities[entity], lane=lane)


def _is_array(leaves: Sequence[Leaf]) -> bool:
    """Whether a space's samples are single arrays."""
    return len(leaves) == 1 and not leaves[0].path


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or _count_nonzero(_isfinite(array)) == array.size


def _described(given: Any) -> str:
    return f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else f"a {type(given).__name__}"


def _shortened(values: NDArray[Any]) -> str:
    return np.array2string(values, threshold=8, edgeitems=3, precision=3, separator=", ").replace("\n", "")
