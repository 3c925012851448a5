"""Preprocessing of observations of units: positions relative to a center, as the option `transformer` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.units import UnitSpace
from policies.common.columns import RaggedTensor
from policies.networks.units.options import Center, Transformer, types_with
from policies.networks.units.relative import facing


class UnitInputs:
    """Leaves of a `UnitSpace` as the network takes them, before numbers are normalized.

    Args:
        space: of one row.
        options: with `center`, units are moved; with `relative`, the units as the game gives them follow all leaves.

    Attributes:
        features: the number of features of each type, as the network takes them.
        numbers: shapes of the items of leaves that are numbers, by the place of the leaf.
    """

    def __init__(self, space: UnitSpace, options: Transformer) -> None:
        self._first = 1 if space.global_features else 0
        self._types = list(space.types)
        self._hidden = [name for name in self._types if name in space.hidden]
        self._center, self._keeps = options.center, options.relative is not None
        self.features = {name: len(features) for name, features in space.types.items()}
        self._moved = {} if options.center is None else types_with(space, options.center.position)
        if options.center is not None:
            own = space.types[options.center.on]
            looks = options.center.direction or (() if options.center.angle is None else (options.center.angle,))
            self._looks = [own.index(feature) for feature in looks]
            for name in self._moved if options.center.distance else ():
                self.features[name] += name != options.center.on
        counts = [len(space.global_features)] * self._first + list(self.features.values())
        self.numbers = {place: (count,) for place, count in enumerate(counts) if count}

    def __call__(self, leaves: list[Any]) -> list[Any]:
        """The leaves [N, ...] on the CPU as the network takes them."""
        last = self._first + len(self._types)
        given: list[RaggedTensor] = leaves[self._first : last]
        units = given
        if self._center is not None:
            visible = dict(zip(self._hidden, leaves[last:], strict=False))
            units = self._centered(
                self._center, dict(zip(self._types, given, strict=True)), visible.get(self._center.on)
            )
        return [*leaves[: self._first], *units, *leaves[last:], *(given if self._keeps else ())]

    def _centered(
        self, center: Center, units: dict[str, RaggedTensor], visible: RaggedTensor | None
    ) -> list[RaggedTensor]:
        on = units[center.on]
        seen = np.ones(len(on.values), np.bool_) if visible is None else visible.values.numpy() != 0
        rows = on.rows[seen]
        centered, first = np.unique(rows, return_index=True)
        middle = np.flatnonzero(seen)[first]  # the units in the center, [rows that have one]
        origins = on.values.new_zeros(len(on), len(center.position))
        turns = on.values.new_tensor([1.0, 0.0]).repeat(len(on), 1)
        origins[centered] = on.values[middle][:, self._moved[center.on]]
        if self._looks:
            turns[centered] = facing(on.values[middle][:, self._looks])
        return [self._around(name, one, origins, turns, center, centered, middle) for name, one in units.items()]

    def _around(
        self,
        name: str,
        units: RaggedTensor,
        origins: Tensor,
        turns: Tensor,
        center: Center,
        centered: NDArray[np.int64],
        middle: NDArray[np.int64],
    ) -> RaggedTensor:
        """Units of a type as seen from the units in the center, which stay as they are."""
        columns = self._moved.get(name)
        if columns is None:
            return units
        rows = torch.from_numpy(units.rows)
        place = units.values[:, columns] - origins[rows]
        if self._looks:
            cosine, sine = turns[rows].unbind(1)
            x, y = place.unbind(1)
            place = torch.stack([x * cosine + y * sine, y * cosine - x * sine], 1)
        values = units.values.clone()
        values[:, columns] = place
        if name == center.on:
            values[middle] = units.values[middle]
        elif center.distance:
            there = np.zeros(len(origins), np.bool_)
            there[centered] = True
            known = torch.from_numpy(there)[rows]
            distance = torch.linalg.vector_norm(place, dim=1).where(known, 0.0)
            values = torch.cat([values, distance.unsqueeze(1)], 1)
        return units.with_values(values)


def unit_inputs(space: Space[Any], options: Transformer | None) -> UnitInputs | None:
    """The preprocessing of observations of this space; None if it has no units."""
    if not isinstance(space, UnitSpace):
        return None
    given = options or Transformer()
    given.check(space)
    return UnitInputs(space, given)
