"""Writes a joint step of the game into the replies of all seats.

If all seats are alike (the same spaces and number of entities, in the order of the entities), their replies are one
array with the seats as its first axis, and every part of a step is one copy; otherwise, and with ragged leaves, it is
one copy per seat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Step
from arena.game.spaces import flatten, leaves_of
from arena.seat.layout import JointReplyView, SeatLayout
from arena.seat.server import SeatServer

StepWriter = Callable[[Step, bool], None]
"""Called with a joint step of all lanes, and whether any row of the match ended in it."""


def step_writer(
    servers: Sequence[SeatServer], layouts: Sequence[SeatLayout], outboxes: NDArray[np.uint8]
) -> StepWriter:
    """The fastest writer for these seats; `outboxes` [S, bytes] hold their replies."""
    first = layouts[0]
    entities = [entity for server in servers for entity in server.entities]
    if (
        not first.outside
        and not first.ragged
        and first.uniform
        and entities == list(range(len(entities)))
        and all(alike(layout, first) for layout in layouts)
    ):
        return AlikeSeats(servers, first, outboxes).write

    def write_each(step: Step, ends: bool) -> None:
        for server in servers:
            server.write_step(step, ends=ends)

    return write_each


def alike(layout: SeatLayout, other: SeatLayout) -> bool:
    """Whether two layouts have the same bytes; equal Dict spaces may have their keys in different orders."""
    return layout == other and all(
        leaves_of(block.observation_space, ragged=True) == leaves_of(its.observation_space, ragged=True)
        for block, its in zip(layout.blocks, other.blocks, strict=True)
    )


class AlikeSeats:
    """Writes the replies of all seats at once; for seats that are alike."""

    def __init__(self, servers: Sequence[SeatServer], layout: SeatLayout, outboxes: NDArray[np.uint8]) -> None:
        seats, lanes, entities = len(servers), layout.lanes, layout.entities
        replies = JointReplyView(layout, outboxes)
        self._servers = servers
        self._game_shape = (lanes, seats, entities)  # the game has [L, S * E], the replies [S, L, E]
        self._rewards, self._active, self._terminated, self._truncated = (
            array.swapaxes(0, 1) for array in (replies.rewards, replies.active, replies.terminated, replies.truncated)
        )
        self._fresh = replies.fresh
        block = layout.blocks[0]
        self._space = block.observation_space
        self._leaves = [  # per entity of the match, the reply's arrays for its observations
            [leaf[seat, :, position] for leaf in replies.leaves]
            for seat in range(seats)
            for position in range(entities)
        ]
        masks = [replies.masks[seat, :, position] for seat in range(seats) for position in range(entities)]
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
