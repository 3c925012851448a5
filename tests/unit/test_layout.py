"""The bytes of the step path: each end reads what the other wrote, and no data of other seats."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Space, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.lockstep import RequestKind
from arena.game.spaces import empty_batch, flatten, mask_size
from arena.seat.layout import ReplyView, RequestView, SeatLayout
from random_spaces import bits, discretes, scramble, spaces
from seat_ends import Seat

QUICK = settings(max_examples=15)
SEEDS = st.integers(0, 2**32 - 1)
FLAGS = ("terminated", "truncated", "active", "fresh")


@st.composite
def layouts(draw: st.DrawFn) -> SeatLayout:
    """Seats of 1 to 3 entities, with equal spaces or with different ones, with and without masks."""
    lanes, entities = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kinds = [_kind(draw) for _ in range(1 if draw(st.booleans()) else entities)]
    kinds = kinds * entities if len(kinds) == 1 else kinds
    return SeatLayout.of(lanes, Interface(tuple("abc"[: len(kinds)]), *zip(*kinds, strict=True)))


def _kind(draw: st.DrawFn) -> tuple[Space[Any], Space[Any], int]:
    action_space = draw(discretes() | spaces())
    return draw(spaces()), action_space, mask_size(action_space) if draw(st.booleans()) else 0


def buffer_of(view: type[RequestView] | type[ReplyView], layout: SeatLayout) -> NDArray[np.uint8]:
    return np.zeros(view(layout).nbytes, np.uint8)


def fill(view: RequestView | ReplyView, rng: np.random.Generator) -> None:
    for block in view.rows:
        for leaf in block:
            scramble(leaf, rng)


def spaces_of(layout: SeatLayout, kind: str) -> list[Space[Any]]:
    return [getattr(block, kind) for block in layout.blocks for _ in block.entities]


def told(view: RequestView | ReplyView, layout: SeatLayout, kind: str) -> list[Any]:
    """The content of a view for each entity."""
    return [bits(space, batch) for space, batch in zip(spaces_of(layout, kind), view.by_entity, strict=True)]


@pytest.mark.slow
@QUICK
@given(layouts(), SEEDS)
def test_request_round_trip_is_exact(layout: SeatLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outbox, inbox = buffer_of(RequestView, layout), buffer_of(RequestView, layout)
    written, read = RequestView(layout, outbox), RequestView(layout, inbox)
    fill(written, rng)
    written.kind = RequestKind.ACT
    inbox[: written.nbytes] = outbox[: written.nbytes]
    assert read.kind is RequestKind.ACT
    assert told(read, layout, "action_space") == told(written, layout, "action_space")


@pytest.mark.slow
@QUICK
@given(layouts(), SEEDS, st.floats(0, 1))
def test_reply_is_read_from_its_message_bytes_alone(layout: SeatLayout, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    outbox, inbox = buffer_of(ReplyView, layout), buffer_of(ReplyView, layout)
    written, read = ReplyView(layout, outbox), ReplyView(layout, inbox)
    inbox[:] = 0xEE  # of an earlier message: must not be read
    fill_reply(written, rng, share)
    expected_final = [final_rows(written, layout, lane_entity) for lane_entity in ended_rows(written)]
    expected_masks = [final_mask(written, *lane_entity) for lane_entity in ended_rows(written)]
    written.pack_final()
    fill(written, rng)  # the next episodes' first observations overwrite the last ones
    for masks in written.mask_rows:
        scramble(masks, rng)
    size = written.message_bytes()
    inbox[:size] = outbox[:size]

    assert read.header.tolist() == written.header.tolist()
    for name in (*FLAGS, "rewards"):
        assert getattr(read, name).tobytes() == getattr(written, name).tobytes()
    for mine, yours in zip(read.masks_by_entity, written.masks_by_entity, strict=True):
        assert (mine is None and yours is None) or mine.tobytes() == yours.tobytes()
    assert told(read, layout, "observation_space") == told(written, layout, "observation_space")
    found, masks_found = seat_finals(inbox, layout)
    assert [masks_found.get(lane * layout.entities + entity) for lane, entity in ended_rows(read)] == expected_masks
    assert [found[lane * layout.entities + entity] for lane, entity in ended_rows(read)] == expected_final
    assert len(found) == len(expected_final) == read.header[3]


def fill_reply(reply: ReplyView, rng: np.random.Generator, share: float) -> None:
    reply.set_header(int(rng.integers(0, 2**40)), last=bool(rng.integers(0, 2)), extra=bool(rng.integers(0, 2)))
    for name in FLAGS:
        getattr(reply, name)[:] = rng.random(reply.active.shape) < share
    scramble(reply.rewards, rng)
    for masks in reply.mask_rows:
        scramble(masks, rng)
    fill(reply, rng)


def ended_rows(reply: ReplyView) -> list[tuple[int, int]]:
    return [(int(lane), int(entity)) for lane, entity in np.argwhere(reply.terminated | reply.truncated)]


def final_rows(reply: ReplyView, layout: SeatLayout, place: tuple[int, int]) -> list[bytes]:
    """The observation of one entity in one lane, as it is shown now."""
    lane, entity = place
    space = spaces_of(layout, "observation_space")[entity]
    return [leaf[lane].tobytes() for leaf in flatten(space, reply.by_entity[entity])]


def final_mask(reply: ReplyView, lane: int, entity: int) -> list[int] | None:
    """The current mask of one entity in one lane; all ones if it is all zeros."""
    masks = reply.masks_by_entity[entity]
    return None if masks is None else (masks[lane] if masks[lane].any() else np.ones_like(masks[lane])).tolist()


def seat_finals(inbox: NDArray[np.uint8], layout: SeatLayout) -> tuple[dict[int, list[bytes]], dict[int, list[int]]]:
    """The last observations and masks as a seat takes them out of the message, by row."""
    seen, acted = (spaces_of(layout, kind) for kind in ("observation_space", "action_space"))
    masks = [block.mask_size for block in layout.blocks for _ in block.entities]
    seat = Seat(layout.lanes, range(layout.entities), seen, acted, masks, alone=True)
    seat.worker.inbox[:] = inbox
    observations = {
        row: [array.tobytes() for array in flatten(seen[row % layout.entities], observation)]
        for row, observation in seat.client.final_observations().items()
    }
    return observations, {row: mask.tolist() for row, mask in seat.client.final_masks().items()}


@pytest.mark.slow
@QUICK
@given(layouts())
def test_all_arrays_are_aligned_and_none_overlaps_another(layout: SeatLayout) -> None:
    for view in (RequestView, ReplyView):
        buffer = buffer_of(view, layout)
        made = view(layout, buffer)
        arrays = [leaf for block in made.rows for leaf in block]
        if isinstance(made, ReplyView):
            made.truncated[:] = True
            arrays += [np.asarray(made.header), made.rewards, *(getattr(made, name) for name in FLAGS), *made.mask_rows]
            arrays += [leaf for _, leaves in made.final() for leaf in leaves]
            arrays += [masks for _, masks in made.final_masks()]
        places = sorted((array.ctypes.data - buffer.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
        assert all(array.flags.aligned and array.flags.c_contiguous for array in arrays)
        assert all(offset % 8 == 0 for offset, _ in places)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(places))
        assert all(offset + nbytes <= made.nbytes for offset, nbytes in places)


def test_a_view_without_a_buffer_counts_bytes_and_takes_no_memory() -> None:
    seat = Interface(("e",), (Box(0, 255, (512, 512, 16), np.uint8),), (Discrete(2),), (0,))
    layout = SeatLayout.of(1024, seat)
    assert ReplyView(layout).nbytes > 2 * 1024 * 512 * 512 * 16


# --- A seat receives no byte of another seat's observation --------------------------------------------------------

GAME_SPACES: tuple[Space[Any], ...] = (
    Box(0, 255, (5,), np.uint8),
    Box(0, 255, (3, 2), np.uint8),
    Dict(a=Box(0, 255, (5,), np.uint8), b=Tuple((MultiBinary(3), Discrete(250, dtype=np.uint8)))),
    Box(0, 255, (5,), np.uint8),
)
MARKS = (0xA1, 0xB2, 0xC3, 0xD4)  # every byte of entity i's observations, masks, rewards and infos is MARKS[i]
LANES = 3
SEATS = ((0,), (1, 3), (2,))


def seat_of(entities: tuple[int, ...]) -> Seat:
    return Seat(LANES, entities, GAME_SPACES, (Discrete(2),) * 4, (2,) * 4)


def marked(mark: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(count, mark, np.uint8).view(dtype).reshape(shape)


def marked_frame(marks: tuple[int, ...]) -> Frame:
    observations = [empty_batch(space, LANES) for space in GAME_SPACES]
    for space, batch, mark in zip(GAME_SPACES, observations, marks, strict=True):
        for leaf in flatten(space, batch):
            leaf[...] = marked(mark, leaf.dtype, leaf.shape)
    infos = [[{"told": bytes([mark] * 9)} for mark in marks] for _ in range(LANES)]
    masks = [marked(mark, np.int8, (LANES, 2)) for mark in marks]
    final_masks = [mask.copy() for mask in masks]
    return Frame(observations, np.ones((LANES, 4), np.bool_), masks, infos, final_masks)


def messages(entities: tuple[int, ...], marks: tuple[int, ...], ended: NDArray[np.bool_]) -> list[bytes]:
    """All messages to a seat for a reset, a tick that ends episodes, and one that does not."""
    seat = seat_of(entities)
    port = seat.server
    rewards = np.stack([marked(mark, np.float64, (LANES,)) for mark in marks], axis=1)
    nothing, everywhere = np.zeros_like(ended), np.ones(LANES, np.bool_)
    over = ended.all(axis=1)
    frame = marked_frame(marks)
    port.write_nothing_played()
    port.write_begin(frame, everywhere)
    port.post(0, last=False, infos=port.pack_infos(None, frame.infos, everywhere))
    for tick, now in enumerate((ended, nothing)):
        port.write_step(Step(marked_frame(marks), rewards, now, nothing), ends=True)
        if now.any():
            port.write_begin(frame, over)
        port.post(tick, last=False, infos=port.pack_infos(frame.infos, frame.infos, over & now.any()))
    return seat.environment.sent


ENDINGS = st.lists(st.booleans(), min_size=LANES * 4, max_size=LANES * 4).map(lambda f: np.reshape(f, (LANES, 4)))


@settings(max_examples=12)
@given(ENDINGS)
def test_seat_receives_no_byte_of_another_seat(ended: NDArray[np.bool_]) -> None:
    for entities in SEATS:
        sent = b"".join(messages(entities, MARKS, ended))
        for entity, mark in enumerate(MARKS):
            run = bytes([mark]) * 2
            assert (run in sent) == (entity in entities), f"seat of {entities} and entity {entity}"


def test_last_masks_are_kept_apart_from_current_ones() -> None:
    port = seat_of((1, 3)).server
    ended = np.zeros((LANES, 4), np.bool_)
    ended[0, 3], ended[1, :] = True, True
    shown = [np.full((LANES, 2), 1, np.int8) for _ in GAME_SPACES]
    last = [np.array([[0, 1], [1, 0], [0, 0]], np.int8) for _ in GAME_SPACES]
    frame = marked_frame(MARKS)._replace(masks=shown, final_masks=last)
    port.write_step(Step(frame, np.zeros((LANES, 4)), ended, np.zeros_like(ended)), ends=True)
    assert [masks.tolist() for _, masks in port.reply.final_masks()] == [[[1, 0]], [[0, 1], [1, 0]]]
    port.write_cut(frame, ~ended)
    everything = [1, 1]  # the last lane's mask is all zeros
    assert [masks.tolist() for _, masks in port.reply.final_masks()] == [[[0, 1], [1, 0], everything]] * 2
    assert [masks.tolist() for masks in port.reply.mask_rows] == [[everything] * LANES] * 2
