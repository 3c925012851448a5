"""What a batch of rows sees, as tokens: its units in the order of their indices and, last, one for the whole row.

The game's arrays come type by type; the network wants them row by row. Everything that depends on the numbers of units
alone is computed once per batch, on the host, and shared by all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arena.game.units import GlobalChoice, Select, UnitSpace
from policies.common.columns import RaggedTensor, row_order
from policies.networks.units.packing import Gather

Integers = NDArray[np.int64]


class Shown(NamedTuple):
    """The actors of one action, and what they may do."""

    actors: RaggedTensor  # int64 [B], indices
    actees: RaggedTensor | None  # of a Select
    mask: RaggedTensor | None  # int8, [D, labels]; of a Select [D * actees], actor by actor; None: all is allowed


class Seen(NamedTuple):
    """The parts of a batch of observations."""

    globals: Tensor | None  # [B, G]
    units: list[RaggedTensor]  # by type [M, F]
    visible: list[RaggedTensor | None]  # by type; None: all are visible
    shown: list[Shown]  # by action
    extra: Sequence[RaggedTensor]  # leaves beyond those of the space


class Reader:
    """Sorts the leaves of a `UnitSpace` into these parts; see `arena.game.spaces` for their order.

    Args:
        space: of one row.
    """

    def __init__(self, space: UnitSpace) -> None:
        self._space = space

    def __call__(self, leaves: Sequence[Tensor | RaggedTensor]) -> Seen:
        space, remaining = self._space, iter(leaves)
        whole = next(remaining) if space.global_features else None
        units = [next(remaining) for _ in space.types]
        visible = [next(remaining) if name in space.hidden else None for name in space.types]
        shown = []
        for kind in space.actions.values():
            actors = next(remaining)
            actees = next(remaining) if isinstance(kind, Select) else None
            shown.append(Shown(actors, actees, next(remaining) if kind.masked else None))  # type: ignore[arg-type]
        return Seen(whole, units, visible, shown, list(remaining))  # type: ignore[arg-type]


class Tokens:
    """Where the tokens of a batch come from, and which row they belong to.

    Args:
        seen: a batch of observations.
        space: of one row.
        device: of the tokens.

    Attributes:
        lengths: int64 [B] tokens of each row.
        begins: int64 [B] where each row begins among all tokens.
        rows: int64 [M], on the device: the row of each token.
        hidden: bool [M], on the host; None where a game hides nothing.
    """

    def __init__(self, seen: Seen, space: UnitSpace, device: torch.device) -> None:
        counts = [units.lengths for units in seen.units]
        if has_row_token(space):
            counts.append(np.ones(len(seen.shown[0].actors), np.int64))
        by_type = np.stack(counts) if counts else np.zeros((0, len(seen.shown[0].actors)), np.int64)  # [types, B]
        self.lengths: Integers = by_type.sum(0)
        self.begins: Integers = np.cumsum(self.lengths) - self.lengths
        self.rows = torch.from_numpy(np.repeat(np.arange(len(self.lengths)), self.lengths)).to(device)
        order = row_order(by_type) if len(by_type) > 1 else None
        self._order = order
        self.hidden: NDArray[np.bool_] | None = None
        if any(visible is not None for visible in seen.visible):
            flags = [
                np.zeros(len(units.values), np.bool_) if visible is None else visible.values.cpu().numpy() == 0
                for units, visible in zip(seen.units, seen.visible, strict=True)
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
        gathered: Tensor = Gather.apply(by_type, index, back)  # type: ignore[no-untyped-call]
        return gathered

    def places(self, units: RaggedTensor) -> Tensor:
        """int64: the places among all tokens of units with these indices [B]; on the device of the indices."""
        begins = torch.from_numpy(np.repeat(self.begins, units.lengths)).to(units.device)
        return units.values + begins


def has_row_token(space: UnitSpace) -> bool:
    """Whether there is a token for the whole row: where the space has global features or a choice of the whole row."""
    return bool(space.global_features) or any(isinstance(kind, GlobalChoice) for kind in space.actions.values())


def units_of(space: UnitSpace, leaves: Sequence[Tensor | RaggedTensor]) -> Tensor:
    """float32 [N] the number of units in each row, from its leaves."""
    counts = [units.lengths for units in Reader(space)(leaves).units]
    return torch.from_numpy(np.broadcast_to(np.sum(counts, axis=0, initial=0), len(leaves[0])).astype(np.float32))


def allowed_rows(space: UnitSpace, leaves: Sequence[Tensor | RaggedTensor], actions: RaggedTensor) -> NDArray[np.bool_]:
    """bool [N] whether the masks allow all decisions of a row, as pairs of action and choice [D, 2]; on the CPU."""
    pairs, rows = actions.values.numpy(), actions.rows
    forbidden = np.zeros(len(pairs), np.bool_)
    for number, shown in enumerate(Reader(space)(leaves).shown):
        if shown.mask is None:
            continue
        own = np.flatnonzero(pairs[:, 0] == number)
        mask = shown.mask.values.numpy()
        if shown.actees is None:
            begins = np.arange(len(own)) * mask.shape[1]
        else:
            counts = np.repeat(shown.actees.lengths, shown.actors.lengths)
            begins = np.cumsum(counts) - counts
        forbidden[own] = mask.ravel()[begins + pairs[own, 1]] == 0
    allowed: NDArray[np.bool_] = np.bincount(rows[forbidden], minlength=len(actions)) == 0
    return allowed
