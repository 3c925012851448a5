"""Rows of unequal length as a rectangle: short rows share a packed row, so that attention computes few pads.

Padding every row to the longest would make attention over rows of 4 units, of which one in twenty has 64, cost ten
times as much.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx

Integers = NDArray[np.int64]


class Layout:
    """The tokens of all rows [M, ...] as a rectangle [R, W, ...] and back, with the attention mask.

    Rows are put, in order, into the packed row that has most room left, of equals the first, if they fit; else into a
    new one. A packed row is as wide as the longest row. Rows that are all equally long stay as they are.

    Args:
        lengths: int64 [B] tokens of each row.
        hidden: bool [M], tokens that others do not see, on the host; None: all are seen.

    Attributes:
        shape: R and W.
        mask: float32 [R, 1, W, W], 0 where the first token attends to the second, else minus infinity; None: all do.
    """

    def __init__(self, lengths: Integers, hidden: NDArray[np.bool_] | None, device: torch.device) -> None:
        self.shape = len(lengths), int(lengths[0]) if len(lengths) else 0
        self._index: Tensor | None = None  # int64 [R * W] the token at each place; 0 at pads
        self._inverse: Tensor | None = None  # int64 [M] the place of each token
        blocked: NDArray[np.bool_] | None = None
        if len(lengths) and (lengths != lengths[0]).any():
            width, packed = int(lengths.max()), 0
            room: list[tuple[int, int]] = []  # a heap: minus the room that is left, and the number, of each packed row
            begins = np.zeros(len(lengths), np.int64)
            for row, length in enumerate(lengths.tolist()):
                if length == 0:
                    continue
                if room and -room[0][0] >= length:
                    left, into = room[0]
                    begins[row] = (into + 1) * width + left
                    heapq.heapreplace(room, (left + length, into))
                else:
                    begins[row] = packed * width
                    heapq.heappush(room, (length - width, packed))
                    packed += 1
            tokens = np.arange(lengths.sum())
            inverse = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + tokens
            index, rows = np.zeros(packed * width, np.int64), np.full(packed * width, -1)  # pads attend to pads:
            index[inverse], rows[inverse] = tokens, np.repeat(np.arange(len(lengths)), lengths)  # softmax is no nan
            self.shape = packed, width
            self._index, self._inverse = (torch.from_numpy(one).to(device) for one in (index, inverse))
            rows = rows.reshape(self.shape)
            blocked = rows[:, :, None] != rows[:, None, :]
            hidden = None if hidden is None else hidden[index]
        if hidden is not None and hidden.any():
            unseen = hidden.reshape(self.shape)
            foreign = ~unseen[:, :, None] & unseen[:, None, :]
            blocked = foreign if blocked is None else blocked | foreign
        self.mask: Tensor | None = None
        if blocked is not None:
            self.mask = torch.from_numpy(np.where(blocked, np.float32(-np.inf), np.float32(0.0))[:, None]).to(device)

    def pack(self, tokens: Tensor) -> Tensor:
        """[R, W, ...] of tokens [M, ...]."""
        if self._index is None or self._inverse is None:
            return tokens.view(*self.shape, *tokens.shape[1:])
        packed: Tensor = Gather.apply(tokens, self._index, self._inverse)  # type: ignore[no-untyped-call]
        return packed.view(*self.shape, *tokens.shape[1:])

    def unpack(self, packed: Tensor) -> Tensor:
        """[M, ...] of what stands in packed rows [R, W, ...]."""
        flat = packed.reshape(-1, *packed.shape[2:])
        if self._inverse is None:
            return flat
        return _Scatter.apply(flat, self._inverse)  # type: ignore[no-any-return, no-untyped-call]


class Gather(torch.autograd.Function):
    """Items at an index; the backward pass takes each item's gradient from its one place, and none from pads.

    torch's own backward pass adds up gradients, as an item may be at several places: this takes twice as long.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, items: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return items.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(0, inverse), None, None


class _Scatter(torch.autograd.Function):
    """From places, pads among them, back to items."""

    @staticmethod
    def forward(ctx: Any, placed: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.places = len(placed)
        return placed.index_select(0, inverse)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (inverse,) = ctx.saved_tensors
        placed = gradient.new_zeros(ctx.places, *gradient.shape[1:])
        return placed.index_copy_(0, inverse, gradient), None
