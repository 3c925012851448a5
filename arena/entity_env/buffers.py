"""Ragged arrays of one dtype, under the published names; also made from nested lists.

RaggedBufferI64([[[5]], [[1]], [[3], [4]]])        rows, their items, the numbers of an item
RaggedBufferI64([[4], [1], [4, 2]])                items that are numbers
RaggedBufferF32(values, lengths)                   as `Ragged`, cast
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from arena.game.ragged import Ragged


class _Typed(Ragged):
    """Rows of unequal length whose items are of one dtype.

    Values are nested lists or arrays, one per row; with `lengths` of the rows: the items of all rows `[M, *shape]`.
    """

    __slots__ = ()
    kind: ClassVar[DTypeLike]

    def __init__(self, values: Any, lengths: ArrayLike | None = None) -> None:
        if lengths is None:
            items = [np.asarray(item, self.kind) for row in values for item in row]
            lengths = [len(row) for row in values]
            values = np.stack(items) if items else np.zeros(0, self.kind)
        super().__init__(np.asarray(values, self.kind), lengths)


class RaggedBufferF32(_Typed):
    """`Ragged` of float32."""

    __slots__ = ()
    kind = np.float32


class RaggedBufferI64(_Typed):
    """`Ragged` of int64."""

    __slots__ = ()
    kind = np.int64


class RaggedBufferBool(_Typed):
    """`Ragged` of bool."""

    __slots__ = ()
    kind = np.bool_
