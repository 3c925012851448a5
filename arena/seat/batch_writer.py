"""How a joint step of the game gets into the replies to all seats.

Where all seats are alike (the same spaces and number of entities, in the order of the entities), their replies lie in
one array with the seats as its first axis, and every part of a step is one copy. Otherwise it is one per seat.
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
"""Takes a joint step of all lanes, and whether any row of the match ended with it."""


def step_writer(ports: Sequence[SeatServer], layouts: Sequence[SeatLayout], outboxes: NDArray[np.uint8]) -> StepWriter:
    """The fastest way for these seats; `outboxes` [S, bytes] hold their replies."""
    first = layouts[0]
    entities = [entity for port in ports for entity in port.entities]
    if first.uniform and entities == list(range(len(entities))) and all(alike(layout, first) for layout in layouts):
        return AlikeSeats(ports, first, outboxes).write

    def write_each(step: Step, ends: bool) -> None:
        for port in ports:
            port.write_step(step, ends=ends)

    return write_each


def alike(layout: SeatLayout, other: SeatLayout) -> bool:
    """Whether two layouts are the same to the byte; Dict spaces are equal in whatever order their keys are."""
    return layout == other and all(
        leaves_of(block.observation_space) == leaves_of(its.observation_space)
        for block, its in zip(layout.blocks, other.blocks, strict=True)
    )


class AlikeSeats:
    """Writes the replies of seats that are alike, all at once."""

    def __init__(self, ports: Sequence[SeatServer], layout: SeatLayout, outboxes: NDArray[np.uint8]) -> None:
        seats, lanes, entities = len(ports), layout.lanes, layout.entities
        replies = JointReplyView(layout, outboxes)
        self._ports = ports
        self._game_shape = (lanes, seats, entities)  # the game has [L, S * E], the replies [S, L, E]
        self._rewards, self._active, self._terminated, self._truncated = (
            array.swapaxes(0, 1) for array in (replies.rewards, replies.active, replies.terminated, replies.truncated)
        )
        self._fresh = replies.fresh
        block = layout.blocks[0]
        self._space = block.observation_space
        self._leaves = [  # per entity of the match the parts of the replies that its observations go into
            [leaf[seat, :, position] for leaf in replies.leaves]
            for seat in range(seats)
            for position in range(entities)
        ]
        masks = [replies.masks[seat, :, position] for seat in range(seats) for position in range(entities)]
        self._masks = masks if block.mask_size else []
        self._ended = True  # what the flags of the last step say

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
            for port in self._ports:
                port.pack_final(frame) if ends else port.reply.no_final()
        self._ended = ends
