"""The messages of the step path, as views of a link's buffers: a fixed layout, no pickle, no allocation per tick.

    request   seat -> environment, once per tick
        kind        ACT      the actions of all rows follow
                    IDLE     no actions: the environment plays the seat's idle action
                    RESET    begin new episodes (only from the single seat of a match); seeds and options are in the
                             extra part
                    LEAVE    the worker has ended: its seat idles from now on and gets no more replies
        logged      the last update of the policy that the worker has sent to the root; 0: none in this leg
        heap        bytes of the ragged leaves, which follow apart; only of seats with ragged leaves
        actions     one block per group of equal spaces: [L, entities of the block, *shape] per leaf

    reply     environment -> seat, once before the first request and then one per request (none for LEAVE)
        tick        ticks played so far in this match
        last        1: the last tick of the budget, no request may follow
        extra       1: infos follow as an extra part
        ended       number of rows that ended: the number of rows of `final` that are sent
        heap        as of a request
        terminated, truncated, active, fresh, rewards [L, E]
        void, given [L, E]                     only of external games, see `arena.game.api.ExternalFields`
        masks       action masks, per block
        observations per block; on the tick that ends a lane's episode, the next episode's first ones (fresh)
        given actions per block                only of external games
        final masks the last action masks of the rows that ended, in row order; sent with `final`
        final       the last observations of the rows that ended, in row order; unused rows at the end are not sent

A row is one entity in one lane; rows are in lane-major order: row = lane * E + entity.

Ragged leaves are in the link's heap instead, see `arena.seat.ragged_parts`: those of all rows, block by block and leaf
by leaf, and in a reply then those of `final`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.game.api import Interface
from arena.game.lockstep import RequestKind
from arena.game.ragged import Ragged
from arena.game.spaces import Columns, is_ragged, leaves_of, unflatten
from arena.seat.ragged_parts import RaggedParts, packed, read_heap
from arena.transport.endpoint import LinkSize

_ALIGNMENT = 8
_HEADER_SIZE = 4  # of a reply
_KINDS = {int(kind): kind for kind in RequestKind}
Buffer = NDArray[np.uint8]


@dataclass(frozen=True)
class Block:
    """Entities of a seat with equal spaces; their rows are in one array."""

    entities: tuple[int, ...]  # positions within the seat
    observation_space: Space[Any]
    action_space: Space[Any]
    mask_size: int


@dataclass(frozen=True)
class SeatLayout:
    """What both ends of a link must know to read each other's bytes."""

    lanes: int
    blocks: tuple[Block, ...]
    external: bool = False  # whether the games are external

    @classmethod
    def of(cls, lanes: int, seat: Interface, *, external: bool = False) -> SeatLayout:
        kinds = list(zip(*seat.spaces, strict=True))
        if seat.uniform:
            return cls(lanes, (Block(tuple(range(len(kinds))), *kinds[0]),), external)
        return cls(lanes, tuple(Block((index,), *kind) for index, kind in enumerate(kinds)), external)

    @property
    def entities(self) -> int:
        return sum(len(block.entities) for block in self.blocks)

    @property
    def rows(self) -> int:
        return self.lanes * self.entities

    @property
    def uniform(self) -> bool:
        """Whether all entities of the seat have the same spaces."""
        return len(self.blocks) == 1

    @property
    def ragged(self) -> bool:
        """Whether any space has ragged leaves."""
        return any(is_ragged(b.observation_space) or is_ragged(b.action_space) for b in self.blocks)


@dataclass(frozen=True)
class SeatDescription:
    """A seat, as the environment describes it to the worker."""

    lanes: int
    interface: Interface  # of the entities of the seat
    alone: bool  # whether it is the only seat of its match, which may reset the game
    part: int = 0  # which block of the match's lanes; there is one SeatDescription per block, in order
    parts: int = 1  # number of blocks
    external: bool = False  # whether the games are external
    seat: int = 0  # its number in the match

    def layout(self) -> SeatLayout:
        return SeatLayout.of(self.lanes, self.interface, external=self.external)


class _Allocator:
    """Allocates typed arrays in a buffer, one after the other; without a buffer it only counts the bytes.

    With several buffers of one layout, as rows [S, bytes], it allocates the arrays of all buffers at once: [S, *shape].
    """

    def __init__(self, buffer: Buffer | None) -> None:
        self._buffer = buffer
        self.offset = 0

    def take(self, dtype: Any, *shape: int) -> NDArray[Any]:
        kind = np.dtype(dtype)
        start = self.offset
        nbytes = math.prod(shape) * kind.itemsize
        self.offset = _aligned(start + nbytes)
        if self._buffer is None:
            return np.broadcast_to(np.zeros((), kind), shape)
        if self._buffer.ndim == 1:
            return np.ndarray(shape, kind, self._buffer, start)
        several: NDArray[Any] = self._buffer[:, start : start + nbytes].view(kind)
        return several.reshape(len(self._buffer), *shape)

    def integers(self, count: int) -> memoryview:
        """int64 numbers that are read and written one by one; access to an array would take twice the time."""
        taken = self.take(np.int64, count)
        return memoryview(bytearray(8 * count)).cast("q") if self._buffer is None else taken.data

    def sample(self, space: Space[Any], *axes: int) -> list[Any]:
        """The leaves of a batch; ragged ones take no bytes, and have no items yet."""
        return [
            Ragged.empty(math.prod(axes), leaf.dtype, leaf.shape)
            if leaf.ragged
            else self.take(leaf.dtype, *axes, *leaf.shape)
            for leaf in leaves_of(space, ragged=True)
        ]


class _View:
    """The leaves of a message with one batch per block: the actions of a request, the observations of a reply.

    Attributes:
        header: its last number is the bytes of the heap, if there is one.
        ragged: whether the message has a heap.
        rows: per block and leaf [L * entities of the block, *shape]: views, not copies; of a ragged leaf its `Ragged`.
    """

    header: memoryview

    def __init__(self, layout: SeatLayout, leaves: list[list[Any]], spaces: list[Space[Any]]) -> None:
        self._layout = layout
        self.ragged = layout.ragged
        self.rows: list[list[Any]] = [[_flat(leaf) for leaf in of_block] for of_block in leaves]
        self._parts = RaggedParts(spaces, self.rows)
        self._whole = [(self._parts, [layout.lanes * len(b.entities) for b in layout.blocks])]  # what a heap holds
        self._columns = list(map(Columns, spaces)) if self.ragged else []
        self._places = [  # per entity its block, its place there, and the number of entities of the block
            (number, position, len(block.entities))
            for number, block in enumerate(layout.blocks)
            for position in range(len(block.entities))
        ]
        self._by_entity = [] if self.ragged else _by_entity(layout, leaves, spaces)

    @property
    def by_entity(self) -> list[Any]:
        """Per entity its batch [L, ...]; with ragged leaves those of the newest message."""
        return list(map(self.of_entity, range(len(self._places)))) if self.ragged else self._by_entity

    def of_entity(self, entity: int) -> Any:
        """The batch [L, ...] of an entity; views, except for ragged leaves of a block of several entities."""
        if not self.ragged:
            return self._by_entity[entity]
        block, position, several = self._places[entity]
        leaves = self.rows[block]
        return self._columns[block].unflatten(leaves if several == 1 else [leaf[position::several] for leaf in leaves])

    @property
    def heap(self) -> int:
        """Bytes of the heap of the received message."""
        return self.header[-1]

    def read_heap(self, heap: Buffer) -> None:
        """Reads the ragged leaves of the received message.

        Raises:
            ProtocolError: the heap has another length than the message says.
        """
        read_heap(heap, self._whole)

    def _packed(self, active: NDArray[np.bool_], *others: Ragged, all_leaves: bool) -> bytes:
        """The heap with the leaves, without items in rows that are not `active` [L, E], and then with other leaves.

        Writes its size into the header.
        """
        if np.count_nonzero(active) < active.size:
            acting = [active[:, list(b.entities)].ravel() for b in self._layout.blocks]
            self._parts.keep(acting, all_leaves=all_leaves)
        heap = packed([*self._parts.current(), *others])
        self.header[-1] = len(heap)
        return heap


class RequestView(_View):
    """A request, read and written in place; ragged leaves by `read_heap` and `packed_heap`."""

    def __init__(self, layout: SeatLayout, buffer: Buffer | None = None) -> None:
        allocator = _Allocator(buffer)
        self.header = allocator.integers(2 + layout.ragged)  # kind, logged, heap
        self.header_bytes = allocator.offset
        leaves = [allocator.sample(b.action_space, layout.lanes, len(b.entities)) for b in layout.blocks]
        self.nbytes = allocator.offset
        super().__init__(layout, leaves, [b.action_space for b in layout.blocks])

    @property
    def kind(self) -> RequestKind:
        return _KINDS[self.header[0]]

    @kind.setter
    def kind(self, kind: RequestKind) -> None:
        self.header[0] = kind

    @property
    def logged(self) -> int:
        return self.header[1]

    @logged.setter
    def logged(self, update: int) -> None:
        self.header[1] = update

    def packed_heap(self, active: NDArray[np.bool_]) -> bytes:
        """The content of the heap, without the rows that are not `active` [L, E]; writes its size into the header."""
        return self._packed(active, all_leaves=True)


class ReplyArrays(NamedTuple):
    """The arrays of a reply between its header and `final`; of several replies at once [S, ...]."""

    terminated: NDArray[np.bool_]  # [L, E]
    truncated: NDArray[np.bool_]
    active: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    rewards: NDArray[np.float64]
    void: NDArray[np.bool_]  # [L, E], or [L, 0] if the games are not external, as `given`
    given: NDArray[np.bool_]
    masks: list[NDArray[np.int8]]  # per block [L, entities of the block, mask_size]
    leaves: list[list[Any]]  # per block and leaf [L, entities of the block, *shape]
    given_actions: list[list[NDArray[Any]]]  # as `leaves`; empty if the games are not external

    @classmethod
    def of_several(cls, layout: SeatLayout, buffers: Buffer) -> ReplyArrays:
        """The arrays of several replies with the same layout, in `buffers` [S, bytes]."""
        allocator = _Allocator(buffers)
        allocator.take(np.int64, _HEADER_SIZE)
        return cls.allocate(allocator, layout)

    @classmethod
    def allocate(cls, allocator: _Allocator, layout: SeatLayout) -> ReplyArrays:
        lanes, entities = layout.lanes, layout.entities
        terminated, truncated, active, fresh = (allocator.take(np.bool_, lanes, entities) for _ in range(4))
        rewards = allocator.take(np.float64, lanes, entities)
        void, given = (allocator.take(np.bool_, lanes, entities if layout.external else 0) for _ in range(2))
        blocks = layout.blocks
        masks = [allocator.take(np.int8, lanes, len(b.entities), b.mask_size) for b in blocks]
        leaves = [allocator.sample(b.observation_space, lanes, len(b.entities)) for b in blocks]
        actions = [allocator.sample(b.action_space, lanes, len(b.entities)) for b in blocks if layout.external]
        return cls(terminated, truncated, active, fresh, rewards, void, given, masks, leaves, actions)


class ReplyView(_View):
    """A reply, read and written in place."""

    def __init__(self, layout: SeatLayout, buffer: Buffer | None = None) -> None:
        lanes, blocks = layout.lanes, layout.blocks
        allocator = _Allocator(buffer)
        self.header = allocator.integers(_HEADER_SIZE + layout.ragged)  # tick, last, extra, ended, heap
        arrays = ReplyArrays.allocate(allocator, layout)
        self.terminated, self.truncated, self.active, self.fresh, self.rewards, self.void, self.given = arrays[:7]
        self._quiet_bytes = allocator.offset  # length of a message in which no row has ended
        final_masks = [allocator.take(np.int8, lanes * len(b.entities), b.mask_size) for b in blocks]
        self._final = [allocator.sample(b.observation_space, lanes * len(b.entities)) for b in blocks]
        self.nbytes = allocator.offset
        spaces = [b.observation_space for b in blocks]
        super().__init__(layout, arrays.leaves, spaces)
        self._last_parts = RaggedParts(spaces, self._final)
        # Of the last leaf of `final` with a fixed shape: its block, the bytes of a row, where it begins.
        self._last = 0, 0, self.nbytes
        for index, leaves in enumerate(self._final):
            for leaf in leaves:
                if not isinstance(leaf, Ragged):
                    row_bytes = leaf.itemsize * int(np.prod(leaf.shape[1:]))
                    self._last = index, row_bytes, self.nbytes - _aligned(len(leaf) * row_bytes)
        self.masks_by_entity = [
            arrays.masks[block][:, position] if blocks[block].mask_size else None for block, position, _ in self._places
        ]
        self.mask_rows = [_flat(mask) for mask in arrays.masks]
        self._final_masks = {i: final for i, final in enumerate(final_masks) if blocks[i].mask_size}
        self._orders = [  # per block, the indices that bring rows from entity-major into lane-major order
            np.arange(lanes * len(b.entities)).reshape(len(b.entities), lanes).T.ravel() for b in blocks
        ]
        # Per entity [L, *shape], and as `rows`; empty if the games are not external.
        given = arrays.given_actions
        self.given_actions = _by_entity(layout, given, [b.action_space for b in blocks]) if layout.external else []
        self.given_rows: list[list[NDArray[Any]]] = [[_flat(leaf) for leaf in of_block] for of_block in given]

    def write_rows(
        self, batches: Sequence[Sequence[Any]], lanes: NDArray[np.bool_] | None = None, *, copy: bool = True
    ) -> None:
        """Writes the observations of all entities; ragged leaves are kept until `packed_heap`.

        Args:
            batches: per entity its leaves, of all lanes.
            lanes: the lanes [L] that they are valid for; None: all.
            copy: whether ragged leaves must be copied, because they can change before `packed_heap`.
        """
        for block, column, order in zip(self._layout.blocks, self.rows, self._orders, strict=True):
            parts = [batches[entity] for entity in block.entities]
            several = len(parts)
            for number, first in enumerate(parts[0]):
                current = column[number]
                if not isinstance(first, Ragged):
                    for position, part in enumerate(parts):
                        which = slice(None) if lanes is None else lanes
                        current[position::several][which] = part[number][which]
                    continue
                rows = first if several == 1 else Ragged.concat([part[number] for part in parts])[order]
                if rows.values.dtype is not current.values.dtype:
                    rows = rows.astype(current.dtype)
                if lanes is not None:
                    rows = current.replaced(rows, np.repeat(lanes, several))
                elif copy and several == 1:
                    rows = rows.copy()
                column[number] = rows

    def packed_heap(self) -> bytes:
        """The content of the heap; its size is written into the header. Rows that do not act have no actors."""
        return self._packed(self.active, *(self._last_parts.current() if self.header[3] else ()), all_leaves=False)

    def read_heap(self, heap: Buffer) -> None:
        whole = self._whole
        if self.header[3]:
            whole = [*whole, (self._last_parts, list(map(len, self._ended_of_blocks())))]
        read_heap(heap, whole)

    @property
    def tick(self) -> int:
        return self.header[0]

    @property
    def last(self) -> bool:
        return self.header[1] != 0

    def set_header(self, tick: int, *, last: bool, extra: bool) -> None:
        header = self.header
        header[0] = tick
        header[1] = last
        header[2] = extra

    def message_bytes(self) -> int:
        """The number of bytes to send: up to the last row of `final`."""
        if not self.header[3]:
            return self._quiet_bytes
        block, row_bytes, offset = self._last
        return offset + row_bytes * len(self._ended_of_blocks()[block])

    def ended(self) -> NDArray[np.bool_]:
        """[L, E] the rows whose episode ended on this tick."""
        ended: NDArray[np.bool_] = np.logical_or(self.terminated, self.truncated)
        return ended

    def no_final(self) -> None:
        """Replaces `pack_final` if no row has ended."""
        self.header[3] = 0

    def pack_final(self, last_masks: Sequence[NDArray[np.int8] | None] | None = None) -> None:
        """Copies the last observations of the rows that ended to `final`, before the next episode overwrites them.

        A last mask of all zeros is replaced by all ones: an algorithm that estimates the value of the last state of a
        truncated episode needs a valid action.

        Args:
            last_masks: per entity of the seat [L, mask_size]; None: the current masks are also the last ones.
        """
        ended = self._ended_of_blocks()
        self.header[3] = sum(map(len, ended))
        for rows, final, leaves in zip(ended, self._final, self.rows, strict=True):
            for number, (target, leaf) in enumerate(zip(final, leaves, strict=True)):
                if isinstance(leaf, Ragged):
                    final[number] = leaf[rows]
                else:
                    target[: len(rows)] = leaf[rows]
        for block, target in self._final_masks.items():
            rows, entities = ended[block], self._layout.blocks[block].entities
            masks = self.mask_rows[block][rows]  # a copy
            of_block = [None] * len(entities) if last_masks is None else [last_masks[entity] for entity in entities]
            for position, mask in enumerate(of_block):
                if mask is not None:
                    of_entity = rows % len(entities) == position
                    masks[of_entity] = mask[rows[of_entity] // len(entities)]
            masks[~masks.any(axis=1)] = 1
            target[: len(masks)] = masks

    def final(self) -> list[tuple[NDArray[np.intp], list[NDArray[Any]]]]:
        """Per block the rows (of the block) that ended and the leaves of their last observations."""
        ended = self._ended_of_blocks()
        return [(rows, [leaf[: len(rows)] for leaf in leaves]) for rows, leaves in zip(ended, self._final, strict=True)]

    def final_masks(self) -> list[tuple[NDArray[np.intp], NDArray[np.int8]]]:
        """Per block the rows (of the block) that ended and their last masks; no rows if the block has no masks."""
        none = np.zeros(0, np.intp), np.zeros((0, 0), np.int8)
        found = [none] * len(self._final)
        if self._final_masks:
            ended = self._ended_of_blocks()
            for block, masks in self._final_masks.items():
                found[block] = ended[block], masks[: len(ended[block])]
        return found

    def _ended_of_blocks(self) -> list[NDArray[np.intp]]:
        ended = self.ended()
        if self._layout.uniform:
            return [ended.ravel().nonzero()[0]]
        return [ended[:, block.entities[0]].nonzero()[0] for block in self._layout.blocks]


def link_size(layout: SeatLayout) -> LinkSize:
    """The sizes of a link for a seat with this layout."""
    return LinkSize(RequestView(layout).nbytes, ReplyView(layout).nbytes, layout.ragged)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _flat(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Ragged) else leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])


def _by_entity(layout: SeatLayout, leaves: list[list[Any]], spaces: list[Space[Any]]) -> list[Any]:
    """Per entity the batch [L, ...] of its leaves, given those of each block [L, entities of the block, ...]."""
    return [
        unflatten(space, [leaf[:, position] for leaf in of_block])
        for block, of_block, space in zip(layout.blocks, leaves, spaces, strict=True)
        for position in range(len(block.entities))
    ]
