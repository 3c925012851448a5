"""The replies of a joint step are the same, whether all seats are written at once or one by one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.spaces import empty_batch, flatten
from arena.seat.layout import SeatDescription, SeatLayout, link_size
from arena.seat.server import SeatServer, UniformSeats, step_writer
from arena.transport.endpoint import Link
from random_spaces import scramble, spaces


class Ends:
    """A link whose messages are kept."""

    def __init__(self, outbox: NDArray[np.uint8], request_bytes: int) -> None:
        self.outbox, self.inbox = outbox, np.zeros(request_bytes, np.uint8)


class Seats:
    """Seats of a match with so many entities each, in the order of the entities, and the memory of their replies."""

    def __init__(self, lanes: int, entities: list[tuple[int, ...]], space: list[Space[Any]], mask_size: int) -> None:
        descriptions = [
            SeatDescription(
                lanes=lanes,
                interface=Interface(
                    tuple(f"e{entity}" for entity in of_seat),
                    tuple(space[entity] for entity in of_seat),
                    (Discrete(2),) * len(of_seat),
                    (mask_size,) * len(of_seat),
                ),
                alone=False,
            )
            for of_seat in entities
        ]
        self.layouts: list[SeatLayout] = [description.layout() for description in descriptions]
        sizes = [link_size(layout) for layout in self.layouts]
        rows = np.full((len(entities), max(size.reply for size in sizes) + 64), 0xEE, np.uint8)  # longer than needed
        self.outboxes = rows[:, : max(size.reply for size in sizes)]
        links: list[Link] = [Ends(row, size.request) for row, size in zip(self.outboxes, sizes, strict=True)]  # type: ignore[misc]
        self.ports = [SeatServer(*seat) for seat in zip(entities, descriptions, self.layouts, links, strict=True)]

    def said(self) -> list[bytes]:
        """The message to each seat."""
        return [port.link.outbox[: port.reply.message_bytes()].tobytes() for port in self.ports]


def random_step(rng: np.random.Generator, lanes: int, space: list[Space[Any]], mask_size: int, share: float) -> Step:
    observations = [empty_batch(one, lanes) for one in space]
    for one, batch in zip(space, observations, strict=True):
        for leaf in flatten(one, batch):
            scramble(leaf, rng)
    shape = (lanes, len(space))
    masks = [rng.integers(0, 2, (lanes, mask_size), np.int8) if mask_size else None for _ in space]
    flags = [rng.random(shape) < share for _ in range(2)]
    frame = Frame(observations, rng.random(shape) < 0.5, masks)
    if mask_size and rng.random() < 0.5:
        frame = frame._replace(final_masks=[rng.integers(0, 2, (lanes, mask_size), np.int8) for _ in space])
    return Step(frame, rng.normal(size=shape), *flags)


@pytest.mark.slow
@settings(max_examples=60)
@given(spaces(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 2]), st.integers(0, 99))
def test_joint_write_of_equal_seats_equals_single_writes(
    space: Space[Any], lanes: int, seats: int, held: int, mask_size: int, seed: int
) -> None:
    entities = [tuple(range(seat * held, (seat + 1) * held)) for seat in range(seats)]
    every = [space] * (seats * held)
    together, apart = (Seats(lanes, entities, every, mask_size) for _ in range(2))
    write = UniformSeats(together.ports, together.layouts[0], together.outboxes).write
    rng = np.random.default_rng(seed)
    for share in (0.0, 0.5, 0.0, 0.0, 1.0):  # ends, and none, in any order
        step = random_step(rng, lanes, every, mask_size, share)
        ends = bool((step.terminated | step.truncated).any())
        write(step, ends)
        for port in apart.ports:
            port.write_step(step, ends=ends)
            assert np.array_equal(port.reply.ended(), (step.terminated | step.truncated)[:, port.entities])
        assert together.said() == apart.said()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_seats_of_different_layouts_are_written_one_by_one(share: float) -> None:
    every: list[Space[Any]] = [Box(0, 1, (3,), np.float32), Discrete(9), Box(0, 1, (3,), np.float32)]
    for entities in ([(0,), (1,), (2,)], [(0, 2), (1,)], [(2,), (0,), (1,)]):
        written, expected = (Seats(2, entities, every, 0) for _ in range(2))
        step = random_step(np.random.default_rng(1), 2, every, 0, share)
        ends = bool((step.terminated | step.truncated).any())
        step_writer(written.ports, written.layouts, written.outboxes)(step, ends)
        for port in expected.ports:
            port.write_step(step, ends=ends)
        assert written.said() == expected.said()


def test_dict_spaces_with_other_key_orders_are_not_alike() -> None:
    a, b = Box(0, 1, (1,), np.float32), Box(0, 1, (2,), np.float32)
    space: list[Space[Any]] = [Dict(OrderedDict(a=a, b=b)), Dict(OrderedDict(b=b, a=a))]
    assert space[0] == space[1]
    seats = Seats(1, [(0,), (1,)], space, 0)
    step = random_step(np.random.default_rng(1), 1, space, 0, 0.0)
    step_writer(seats.ports, seats.layouts, seats.outboxes)(step, False)
    for port, seen in zip(seats.ports, step.frame.observations, strict=True):
        for key in "ab":
            assert port.reply.by_entity[0][key].tobytes() == seen[key].tobytes()
