"""The environment's end of the seats of a match: reads their requests and writes their replies.

If all seats are alike (the same spaces and number of entities, in the order of the entities), their replies are one
array with the seats as its first axis, and every part of a step is one copy; otherwise, and with ragged leaves, it is
one copy per seat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.api import Frame, Info, Step
from arena.game.lockstep import RequestKind
from arena.game.spaces import Columns, as_action, copy_rows, flatten, is_ragged, leaves_of, no_op, stack, write_sample
from arena.game.units import UnitActions, UnitSpace
from arena.seat.layout import ReplyArrays, ReplyView, RequestView, SeatDescription, SeatLayout
from arena.seat.ragged_parts import send_heap
from arena.transport import Link
from arena.transport.pickling import pack

Infos = Sequence[Sequence[Info]]  # [L][E]
StepWriter = Callable[[Step, bool], None]
"""Called with a joint step of all lanes, and whether any row of the match ended in it."""


class SeatServer:
    """Reads one seat's requests and writes its replies, which hold only what the seat may see.

    Args:
        entities: the seat's entities, as indices in the game.
        description, layout: the description that the worker got.
        link: to the worker.
    """

    def __init__(self, entities: tuple[int, ...], description: SeatDescription, layout: SeatLayout, link: Link) -> None:
        self.entities = entities
        self.link = link
        self.request = RequestView(layout, link.inbox)
        self.reply = ReplyView(layout, link.outbox)
        self._number = description.seat
        self.ragged = layout.ragged
        observation_spaces, self._actions, mask_sizes = description.interface.spaces
        self._forms = list(map(Columns, observation_spaces)) if self.ragged else []
        self._borrows = False  # whether the reply refers to the game's arrays, which are valid until its next call
        self._left = False  # whether the worker has left, so that nothing is sent any more
        self._ended = True  # whether the flags of the last step have to be cleared
        self._observed = [  # per entity its space, and the reply's arrays for its observations
            (space, flatten(space, target))
            for space, target in zip(observation_spaces, self.reply.by_entity, strict=True)
        ]
        self._masked = any(mask_sizes)
        consecutive = entities == tuple(range(entities[0], entities[0] + len(entities)))
        self._columns: Any = slice(entities[0], entities[-1] + 1) if consecutive else list(entities)

    def write_step(self, step: Step, *, ends: bool) -> None:
        """Copies the seat's part of a joint step, and the last observations of the rows that ended.

        `ends`: whether any row of the match ended.
        """
        reply, columns = self.reply, self._columns
        reply.rewards[:] = step.rewards[:, columns]
        reply.fresh[:] = False
        if ends or self._ended:
            reply.terminated[:] = step.terminated[:, columns]
            reply.truncated[:] = step.truncated[:, columns]
        self._ended = ends
        self._borrows = self.ragged and not (ends or self._left)
        self._write_frame(step.frame, slice(None))
        self.pack_final(step.frame) if ends else reply.no_final()

    def pack_final(self, frame: Frame) -> None:
        """Copies the last observations and masks of the rows that ended, after the step was written."""
        masks = frame.final_masks
        self.reply.pack_final(None if masks is None else [masks[entity] for entity in self.entities])

    def write_nothing_played(self) -> None:
        """Writes a reply to a reset: no rewards, no row has ended."""
        self.reply.rewards[:] = 0.0
        self.reply.terminated[:] = False
        self.reply.truncated[:] = False
        self.reply.fresh[:] = False
        self.reply.no_final()

    def write_cut(self, frame: Frame, playing: NDArray[np.bool_]) -> None:
        """Truncates the rows of the entities `playing` [L, E] when the game failed, after a step with ends was written.

        `frame` is of that step.
        """
        self.reply.truncated |= playing[:, self._columns]
        self.pack_final(frame)

    def write_begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Copies the first observations of the lanes that begin an episode."""
        self._write_frame(frame, lanes)
        self.reply.fresh[lanes] = True

    def _write_frame(self, frame: Frame, lanes: Any) -> None:
        reply = self.reply
        reply.active[lanes] = frame.active[lanes][:, self._columns]
        if self.ragged:
            batches = [form.flatten(frame.observations[e]) for e, form in zip(self.entities, self._forms, strict=True)]
            if isinstance(lanes, slice):
                reply.write_rows(batches, copy=not self._borrows)
            else:
                self._copy_rows()
                reply.write_rows(batches, lanes)
        else:
            for entity, (space, leaves) in zip(self.entities, self._observed, strict=True):
                for array, into in zip(flatten(space, frame.observations[entity]), leaves, strict=True):
                    into[lanes] = array[lanes]
        if self._masked:
            for entity, target in zip(self.entities, reply.masks_by_entity, strict=True):
                mask = frame.masks[entity]
                if target is not None and mask is not None:
                    target[lanes] = mask[lanes]
        if (external := frame.external) is not None:
            reply.void[lanes] = external.void[lanes][:, self._columns]
            reply.given[lanes] = external.given[lanes][:, self._columns]
            if external.given.any():
                for entity, space, into in zip(self.entities, self._actions, reply.given_actions, strict=True):
                    copy_rows(space, external.given_actions[entity], into, lanes)

    def shown(self) -> list[Any]:
        """Per entity the batched observations [L, ...] that were sent last."""
        self._copy_rows()
        return self.reply.by_entity

    def _copy_rows(self) -> None:
        """Replaces the game's own arrays by a copy of the sent message: the game may have changed them."""
        if self._borrows:
            self._borrows = False
            self.reply.read_heap(self.link.sent_heap(self.reply.heap).copy())

    def read_actions(self) -> None:
        """Reads the ragged leaves of the request that has come, if it has actions."""
        kind = self.request.kind
        self._left = kind is RequestKind.LEAVE
        if self._left:
            self._copy_rows()
        if kind is RequestKind.ACT:
            self.request.read_heap(self.link.wait_heap(self.request.heap))

    def idle_actions(self, chosen: Any) -> list[Any]:
        """The actions of an idle seat, per entity `[L, *shape]`; those of fixed shape in the request's buffer."""
        found = self.request.by_entity
        for position, space in enumerate(self._actions):
            mask, target = self.reply.masks_by_entity[position], found[position]
            if isinstance(space, UnitActions):
                shown, active = self.reply.of_entity(position)["actions"], self.reply.active[:, position]
                masks = {name: {part: rows.kept(active) for part, rows in of.items()} for name, of in shown.items()}
                found[position] = space.first_allowed(masks, None if chosen is None else space.parse_idle(chosen))
            elif self.ragged and is_ragged(space):
                action = no_op(space) if chosen is None else as_action(space, chosen)
                found[position] = stack(space, [action] * len(self.reply.active))
            elif chosen is not None or mask is None:
                write_sample(space, no_op(space) if chosen is None else chosen, target, slice(None))
            else:
                for lane in range(len(mask)):
                    write_sample(space, no_op(space, mask[lane]), target, lane)
        return found

    def post(self, tick: int, *, last: bool, infos: bytes | None) -> None:
        """Sends the reply.

        Raises:
            GameError: its ragged leaves need more than a message can hold, or there is not enough memory.
        """
        self.reply.set_header(tick, last=last, extra=infos is not None)
        if self.ragged:
            heap = self.reply.packed_heap()
            try:
                send_heap(self.link, heap)
            except OSError as error:
                what = f"observations of {len(heap):,} bytes for seat {self._number} ({self._items()})"
                raise GameError(f"{what}: {error}; fewer `lanes` make messages smaller") from error
        self.link.post(self.reply.message_bytes())
        if infos is not None:
            self.link.post_extra(infos)

    def _items(self) -> str:
        """The number of units of each type in the seat's observations, or of items of each ragged leaf."""
        counts: Counter[str] = Counter()
        for position, (space, _) in enumerate(self._observed):
            observed = self.reply.of_entity(position)
            if isinstance(space, UnitSpace):
                counts.update({name: observed["units"][name].total for name in space.types})
                continue
            for leaf, array in zip(leaves_of(space, ragged=True), flatten(space, observed), strict=True):
                if leaf.ragged:
                    counts[leaf.place or "items"] += array.total
        return ", ".join(f"{count:,} {name}" for name, count in counts.most_common())

    def pack_infos(self, step: Infos | None, begin: Infos | None, over: NDArray[np.bool_]) -> bytes | None:
        """The seat's infos by row, packed: of the current observations, and of rows that ended."""
        if step is None and begin is None:
            return None
        current: dict[int, Info] = {}
        final: dict[int, Info] = {}
        ended = self.reply.ended()
        for lane in range(len(over)):
            for position, entity in enumerate(self.entities):
                row = lane * len(self.entities) + position
                if step is not None and step[lane][entity]:
                    if ended[lane, position]:
                        final[row] = step[lane][entity]
                    elif not over[lane]:  # otherwise the lane has a new episode already
                        current[row] = step[lane][entity]
                if begin is not None and over[lane] and begin[lane][entity]:
                    current[row] = begin[lane][entity]
        return pack((current, final)) if current or final else None


def step_writer(
    servers: Sequence[SeatServer], layouts: Sequence[SeatLayout], outboxes: NDArray[np.uint8]
) -> StepWriter:
    """The fastest writer for these seats; `outboxes` [S, bytes] hold their replies."""
    first, spaces = layouts[0], [[block.observation_space for block in layout.blocks] for layout in layouts]
    entities = [entity for server in servers for entity in server.entities]
    if (
        not first.external
        and not first.ragged
        and first.uniform
        and entities == list(range(len(entities)))
        and all(layout == first for layout in layouts)
        # Equal Dict spaces may have their keys in different orders.
        and all(leaves_of(space) == leaves_of(spaces[0][0]) for (space,) in spaces)
    ):
        return UniformSeats(servers, first, outboxes).write

    def write_each(step: Step, ends: bool) -> None:
        for server in servers:
            server.write_step(step, ends=ends)

    return write_each


class UniformSeats:
    """Writes the replies of all seats at once; for seats that are alike."""

    def __init__(self, servers: Sequence[SeatServer], layout: SeatLayout, outboxes: NDArray[np.uint8]) -> None:
        seats, lanes, entities = len(servers), layout.lanes, layout.entities
        replies = ReplyArrays.of_several(layout, outboxes)
        self._servers = servers
        self._game_shape = (lanes, seats, entities)  # the game has [L, S * E], the replies [S, L, E]
        self._rewards, self._active, self._terminated, self._truncated = (
            array.swapaxes(0, 1) for array in (replies.rewards, replies.active, replies.terminated, replies.truncated)
        )
        self._fresh = replies.fresh
        block = layout.blocks[0]
        self._space = block.observation_space
        self._leaves = [  # per entity of the match, the reply's arrays for its observations
            [leaf[seat, :, position] for leaf in replies.leaves[0]]
            for seat in range(seats)
            for position in range(entities)
        ]
        masks = [replies.masks[0][seat, :, position] for seat in range(seats) for position in range(entities)]
        self._masks = masks if block.mask_size else []
        self._ended = True  # whether the flags of the last step have to be cleared

    def write(self, step: Step, ends: bool) -> None:
        """See `StepWriter`."""
        shape, frame = self._game_shape, step.frame
        self._rewards[...] = step.rewards.reshape(shape)
        self._active[...] = frame.active.reshape(shape)
        self._fresh[...] = False
        if ends or self._ended:
            self._terminated[...] = step.terminated.reshape(shape)
            self._truncated[...] = step.truncated.reshape(shape)
        for observed, leaves in zip(frame.observations, self._leaves, strict=True):
            if type(observed) is np.ndarray:
                leaves[0][...] = observed
            else:
                for array, into in zip(flatten(self._space, observed), leaves, strict=True):
                    into[...] = array
        for mask, into in zip(frame.masks, self._masks, strict=False):
            if mask is not None:
                into[...] = mask
        if ends or self._ended:
            for server in self._servers:
                server.pack_final(frame) if ends else server.reply.no_final()
        self._ended = ends
