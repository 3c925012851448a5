"""What a batch of rows sees, as tokens: its units in the order of their indices and, last, one for the whole row.

Before numbers are normalized, `UnitInputs` moves units to positions relative to a center, as the option `transformer`
says. The game's arrays come type by type; the network wants them row by row. Everything that depends on the numbers of
units alone is computed once per batch, on the host, and shared by all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.units import GlobalChoice, Select, UnitSpace
from policies.common.columns import RaggedTensor, row_order
from policies.networks.units.options import Transformer, types_with
from policies.networks.units.packing import Gather

Integers = NDArray[np.int64]


class ChoiceTensors(NamedTuple):
    """The actors of one action, and what they may do."""

    actors: RaggedTensor  # int64 [B], indices
    actees: RaggedTensor | None  # of a Select
    mask: RaggedTensor | None  # int8, [D, labels]; of a Select [D * actees], actor by actor; None: all is allowed


class UnitParts(NamedTuple):
    """The parts of a batch of observations."""

    globals: Tensor | None  # [B, G]
    units: list[RaggedTensor]  # by type [M, F]
    visible: list[RaggedTensor | None]  # by type; None: all are visible
    shown: list[ChoiceTensors]  # by action
    extra: Sequence[RaggedTensor]  # leaves beyond those of the space


def parts_of(space: UnitSpace, leaves: Sequence[Any]) -> UnitParts:
    """Sorts the leaves of a `UnitSpace` into these parts; see `arena.game.spaces` for their order."""
    remaining = iter(leaves)
    whole = next(remaining) if space.global_features else None
    units = [next(remaining) for _ in space.types]
    visible = [next(remaining) if name in space.hidden else None for name in space.types]
    shown = []
    for kind in space.actions.values():
        actors = next(remaining)
        actees = next(remaining) if isinstance(kind, Select) else None
        shown.append(ChoiceTensors(actors, actees, next(remaining) if kind.masked else None))
    return UnitParts(whole, units, visible, shown, list(remaining))


class Tokens:
    """Where the tokens of a batch come from, and which row they belong to.

    Attributes:
        lengths: int64 [B] tokens of each row.
        begins: int64 [B] where each row begins among all tokens.
        rows: int64 [M], on the device: the row of each token.
        hidden: bool [M], on the host; None where a game hides nothing.
    """

    def __init__(self, parts: UnitParts, space: UnitSpace, device: torch.device) -> None:
        counts = [units.lengths for units in parts.units]
        if has_row_token(space):
            counts.append(np.ones(len(parts.shown[0].actors), np.int64))
        by_type = np.stack(counts) if counts else np.zeros((0, len(parts.shown[0].actors)), np.int64)  # [types, B]
        self.lengths: Integers = by_type.sum(0)
        self.begins: Integers = np.cumsum(self.lengths) - self.lengths
        self.rows = torch.from_numpy(np.repeat(np.arange(len(self.lengths)), self.lengths)).to(device)
        order = row_order(by_type) if len(by_type) > 1 else None
        self._order = order
        self.hidden: NDArray[np.bool_] | None = None
        if any(visible is not None for visible in parts.visible):
            flags = [
                np.zeros(len(units.values), np.bool_) if visible is None else visible.values.cpu().numpy() == 0
                for units, visible in zip(parts.units, parts.visible, strict=True)
            ]
            whole = [np.zeros(len(self.lengths), np.bool_)] * has_row_token(space)
            hidden = np.concatenate([*flags, *whole])
            self.hidden = hidden if order is None else hidden[order]

    def in_rows(self, by_type: Tensor) -> Tensor:
        """[M, ...] of tokens: from the order of types to the order of rows."""
        if self._order is None:
            return by_type
        inverse = np.empty_like(self._order)
        inverse[self._order] = np.arange(len(inverse))
        index, back = (torch.from_numpy(one).to(by_type.device) for one in (self._order, inverse))
        return Gather.apply(by_type, index, back)  # type: ignore[no-any-return, no-untyped-call]

    def means(self, x: Tensor) -> Tensor:
        """The means [B, F] of each row's tokens [M, F]; 0 where it has none."""
        shares = torch.from_numpy((1 / np.maximum(self.lengths, 1)).astype(np.float32)).to(x.device)
        return x.new_zeros(len(self.lengths), x.shape[1]).index_add(0, self.rows, x) * shares.unsqueeze(1)

    def places(self, units: RaggedTensor) -> Tensor:
        """int64: the places among all tokens of units with these indices [B]; on the device of the indices."""
        begins = torch.from_numpy(np.repeat(self.begins, units.lengths)).to(units.device)
        return units.values + begins


def has_row_token(space: UnitSpace) -> bool:
    """Whether there is a token for the whole row: where the space has global features or a choice of the whole row."""
    return bool(space.global_features) or any(isinstance(kind, GlobalChoice) for kind in space.actions.values())


def units_of(space: UnitSpace, leaves: Sequence[Tensor | RaggedTensor]) -> Tensor:
    """float32 [N] the number of units in each row, from its leaves."""
    counts = [units.lengths for units in parts_of(space, leaves).units]
    return torch.from_numpy(np.broadcast_to(np.sum(counts, axis=0, initial=0), len(leaves[0])).astype(np.float32))


def allowed_rows(space: UnitSpace, leaves: Sequence[Tensor | RaggedTensor], actions: RaggedTensor) -> NDArray[np.bool_]:
    """bool [N] whether the masks allow all decisions of a row, as pairs of action and choice [D, 2]; on the CPU."""
    pairs, rows = actions.values.numpy(), actions.rows
    forbidden = np.zeros(len(pairs), np.bool_)
    for number, shown in enumerate(parts_of(space, leaves).shown):
        if shown.mask is None:
            continue
        chosen = np.flatnonzero(pairs[:, 0] == number)
        mask = shown.mask.values.numpy()
        if shown.actees is None:
            begins = np.arange(len(chosen)) * mask.shape[1]
        else:
            counts = np.repeat(shown.actees.lengths, shown.actors.lengths)
            begins = np.cumsum(counts) - counts
        forbidden[chosen] = mask.ravel()[begins + pairs[chosen, 1]] == 0
    return np.bincount(rows[forbidden], minlength=len(actions)) == 0  # type: ignore[no-any-return]


def facing(looks: Tensor) -> Tensor:
    """Cosine and sine [N, 2] of an angle [N, 1] in radians, or of a direction [N, 2]; one of length 0 is angle 0."""
    if looks.shape[1] == 1:
        return torch.cat([looks.cos(), looks.sin()], 1)
    length = torch.linalg.vector_norm(looks, dim=1, keepdim=True)
    ahead = looks.new_tensor([[1.0, 0.0]])
    return torch.where(length > 0, looks / length.clamp_min(torch.finfo(looks.dtype).tiny), ahead)


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
            known = space.types[options.center.on]
            looks = options.center.direction or (() if options.center.angle is None else (options.center.angle,))
            self._looks = [known.index(feature) for feature in looks]
            for name in self._moved if options.center.distance else ():
                self.features[name] += name != options.center.on
        counts = [len(space.global_features)] * self._first + list(self.features.values())
        self.numbers = {place: (count,) for place, count in enumerate(counts) if count}

    def __call__(self, leaves: list[Any]) -> list[Any]:
        """The leaves [N, ...] on the CPU as the network takes them."""
        last = self._first + len(self._types)
        of_game: list[RaggedTensor] = leaves[self._first : last]
        if self._center is None:
            return [*leaves, *(of_game if self._keeps else ())]
        center, units = self._center, dict(zip(self._types, of_game, strict=True))
        on, visible = units[center.on], dict(zip(self._hidden, leaves[last:], strict=False)).get(center.on)
        is_visible = np.ones(len(on.values), np.bool_) if visible is None else visible.values.numpy() != 0
        centered, first = np.unique(on.rows[is_visible], return_index=True)  # rows that have a unit in the center
        middle = np.flatnonzero(is_visible)[first]  # these units
        origins = on.values.new_zeros(len(on), len(center.position))
        turns = on.values.new_tensor([1.0, 0.0]).repeat(len(on), 1)
        origins[centered] = on.values[middle][:, self._moved[center.on]]
        if self._looks:
            turns[centered] = facing(on.values[middle][:, self._looks])
        has_center = torch.zeros(len(on), dtype=torch.bool)
        has_center[centered] = True
        for name, columns in self._moved.items():
            one = units[name]
            rows = torch.from_numpy(one.rows)
            place = one.values[:, columns] - origins[rows]
            if self._looks:
                cosine, sine = turns[rows].unbind(1)
                x, y = place.unbind(1)
                place = torch.stack([x * cosine + y * sine, y * cosine - x * sine], 1)
            values = one.values.clone()
            values[:, columns] = place
            if name == center.on:  # the units in the center stay as they are
                values[middle] = one.values[middle]
            elif center.distance:
                distance = torch.linalg.vector_norm(place, dim=1).where(has_center[rows], 0.0)
                values = torch.cat([values, distance.unsqueeze(1)], 1)
            units[name] = one.with_values(values)
        return [*leaves[: self._first], *units.values(), *leaves[last:], *(of_game if self._keeps else ())]


def unit_inputs(space: Space[Any], options: Transformer | None) -> UnitInputs | None:
    """The preprocessing of observations of this space; None if it has no units."""
    if not isinstance(space, UnitSpace):
        return None
    transformer = options or Transformer()
    transformer.check(space)
    return UnitInputs(space, transformer)
