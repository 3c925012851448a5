"""Ragged arrays against nested lists, which say the same one row after the other."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Space, Tuple

import crowd
from arena import Frame, Ragged, Step
from arena.errors import GameError, ProtocolError
from arena.game.api import Interface
from arena.game.lockstep import RequestKind
from arena.game.spaces import flatten, row, stack, take_rows
from arena.seat.layout import ReplyView, RequestView, SeatDescription, link_size
from arena.seat.ragged_parts import RaggedParts, packed, read_heap
from arena.transport.shared_memory import MOST_BYTES, SharedHeap, SharedMemory
from seat_ends import Seat


def random_rows(rng: np.random.Generator, count: int, shape: tuple[int, ...] = ()) -> list[np.ndarray]:
    return [rng.integers(0, 100, (int(rng.integers(0, 5)), *shape)) for _ in range(count)]


@pytest.mark.parametrize(
    ("values", "lengths", "named"),
    [([1, 2], [1], ("1", "2")), ([1], [1, 1], ("2", "1")), ([1], [2, -1], ("-1",))],
)
def test_lengths_that_do_not_fit_are_refused(values: list[int], lengths: list[int], named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        Ragged(values, lengths)
    assert all(number in str(error.value) for number in named)


def test_no_copy_is_made() -> None:
    values, lengths = np.arange(3), np.array([1, 2])
    ragged = Ragged(values, lengths)
    assert ragged.values is values and ragged.lengths is lengths
    assert np.shares_memory(ragged[1], values) and np.shares_memory(ragged[:1].values, values)
    copied = ragged.copy()
    assert copied == ragged and not np.shares_memory(copied.values, values)


def test_rows_are_cast_and_empty_rows_need_no_shape() -> None:
    ragged = Ragged.of([[[1, 2]], [], np.zeros((0, 2)), np.ones((2, 2), np.int8)], np.float32, (2,))
    assert ragged.tolist() == [[[1.0, 2.0]], [], [], [[1.0, 1.0], [1.0, 1.0]]]
    assert (ragged.dtype, ragged.shape, ragged.total, len(ragged)) == (np.float32, (2,), 3, 4)
    assert Ragged.of([], np.int8, (3,)) == Ragged.empty(0, np.int8, (3,))
    assert Ragged.of([[[], []], []], np.float32, (0,)).lengths.tolist() == [2, 0]  # items without features


def test_a_row_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 must have the shape \[n, 2\], got \[1, 3\]"):
        Ragged.of([[], [[1, 2, 3]]], np.float32, (2,))


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 2)])
def test_row_selection_equals_that_of_a_list(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    rows = random_rows(rng, 20, shape)
    ragged = Ragged.of(rows, np.int64, shape)
    listed: Any = [row.tolist() for row in rows]
    flags = rng.random(20) < 0.5
    chosen = rng.integers(-20, 20, 30)
    assert ragged.tolist() == listed and [row.tolist() for row in ragged] == listed
    assert all(ragged[index].tolist() == listed[index] for index in range(-20, 20))
    for part in (slice(None), slice(3, 9), slice(5, 5), slice(9, 3), slice(-4, None), slice(None, None, -2)):
        assert ragged[part].tolist() == listed[part]
    assert ragged[flags].tolist() == [row for row, flag in zip(listed, flags, strict=True) if flag]
    assert ragged[chosen].tolist() == [listed[index] for index in chosen]
    assert ragged[[2, 2, 0]].tolist() == [listed[2], listed[2], listed[0]]
    assert ragged[[]].tolist() == [] and ragged[[]].shape == shape
    with pytest.raises(IndexError):
        ragged[20]


def test_parts_are_joined_below_and_beside_each_other() -> None:
    rng = np.random.default_rng(2)
    parts = [random_rows(rng, 7, (2,)) for _ in range(3)]
    ragged = [Ragged.of(rows, np.int64, (2,)) for rows in parts]
    assert Ragged.concat(ragged).tolist() == [row.tolist() for rows in parts for row in rows]
    beside = Ragged.side_by_side(ragged)
    assert beside.tolist() == [[item for rows in parts for item in rows[index].tolist()] for index in range(7)]
    with pytest.raises(ValueError, match=r"\[7, 6\]"):
        Ragged.side_by_side([ragged[0], ragged[1][:6]])


def test_equality_looks_at_dtype_shape_lengths_and_values() -> None:
    ragged = Ragged(np.array([1, 2]), [1, 1])
    assert ragged == Ragged(np.array([1, 2]), [1, 1])
    others = [
        Ragged(np.array([1, 2], np.int32), [1, 1]),
        Ragged(np.array([1, 2]), [2, 0]),
        Ragged(np.array([1, 3]), [1, 1]),
        Ragged(np.array([[1], [2]]), [1, 1]),
    ]
    assert all(ragged != other for other in others) and ragged != [[1], [2]]
    assert Ragged.empty(2, np.int8) != Ragged.empty(2, np.int8, (1,))
    assert pickle.loads(pickle.dumps(ragged)) == ragged


# Messages with ragged leaves: each end reads what the other wrote, to the bit, and no data of other seats


MIXED = Dict(
    a=Box(-1, 1, (2,), np.float64),
    b=Sequence(Box(-1, 1, (3,), np.float32), stack=True),
    c=Tuple((Sequence(MultiBinary(5), stack=True), Discrete(4), Sequence(Discrete(9), stack=True))),
)
ANSWER = Tuple((Discrete(3), Sequence(MultiDiscrete([2, 4]), stack=True)))
FLAT = Sequence(Box(0, 1, (), np.float32), stack=True)


def some(space: Space[Any], lanes: int) -> Any:
    return stack(space, [space.sample() for _ in range(lanes)])


def same(space: Space[Any], one: Any, other: Any) -> bool:
    pairs = zip(flatten(space, one), flatten(space, other), strict=True)
    return all(mine == yours if isinstance(mine, Ragged) else np.array_equal(mine, yours) for mine, yours in pairs)


@pytest.mark.parametrize(
    "sights",
    [[MIXED], [MIXED] * 3, [MIXED, FLAT], [Box(0, 1, (2,), np.float32), MIXED], [FLAT, FLAT]],
    ids=["one", "three alike", "two kinds", "fixed beside ragged", "whole spaces"],
)
def test_seat_receives_the_observations_of_the_game_exactly(sights: list[Space[Any]]) -> None:
    rng = np.random.default_rng(1)
    for number, space in enumerate(sights):
        space.seed(number)
    lanes = 3
    seat = Seat(lanes, tuple(range(len(sights))), sights, [ANSWER] * len(sights))
    shown: list[Any] = []
    for tick in range(30):
        given = [some(space, lanes) for space in sights]
        ended = rng.random((lanes, len(sights))) < (0.4 if tick % 2 else 0.0)
        over = ended.all(axis=1)
        frame = Frame(given, ~ended, (None,) * len(sights))
        seat.server.write_step(
            Step(frame, rng.random(ended.shape), ended, np.zeros_like(ended)), ends=bool(ended.any())
        )
        shown = copy.deepcopy(given)
        if over.any():
            first = [some(space, lanes) for space in sights]
            for leaf in (leaf for space, batch in zip(sights, given, strict=True) for leaf in flatten(space, batch)):
                (leaf.values if isinstance(leaf, Ragged) else leaf)[...] = 0  # a game may use its arrays again
            seat.server.write_begin(Frame(first, np.ones_like(ended), (None,) * len(sights)), over)
        seat.server.post(tick, last=False, infos=None)
        seat.client._wait()
        for entity, space in enumerate(sights):
            found = seat.client.reply.of_entity(entity)
            now = first if over.any() else shown
            assert same(space, take_rows(space, found, over), take_rows(space, now[entity], over))
            assert same(space, take_rows(space, found, ~over), take_rows(space, shown[entity], ~over))
        finals = seat.client.final_observations()
        assert sorted(finals) == np.flatnonzero(ended.ravel()).tolist()
        for place, final in finals.items():
            lane, entity = divmod(place, len(sights))
            expected = row(sights[entity], shown[entity], lane)
            assert all(map(np.array_equal, flatten(sights[entity], final), flatten(sights[entity], expected)))


def test_actions_arrive_to_the_bit_and_only_of_rows_that_act() -> None:
    ANSWER.seed(3)
    seat = Seat(3, (0,), [MIXED], [ANSWER])
    begun = np.array([[True], [False], [True]])
    seat.server.write_step(
        Step(Frame([some(MIXED, 3)], begun, (None,)), np.zeros((3, 1)), ~begun & False, ~begun & False), ends=False
    )
    seat.server.post(0, last=False, infos=None)
    seat.client._wait()
    kinds, items = some(ANSWER, 3)
    column = seat.client.request.rows[0]
    column[0][:], column[1] = kinds, items
    seat.client.send(RequestKind.ACT)
    seat.server.read_actions()
    (found,) = seat.server.request.by_entity
    assert found[0].tolist() == kinds.tolist() and found[1] == items.kept(begun[:, 0])
    assert found[1].lengths[1] == 0 < items.lengths[1]


def words(data: bytes) -> set[int]:
    return set(np.frombuffer(data[: len(data) // 4 * 4], np.uint32).tolist())


def test_messages_hold_all_features_of_their_own_seat_only() -> None:
    game = crowd.Crowd(4, players=2, most=50)
    seats = [Seat(4, (entity,), [crowd.SPACE] * 2, [crowd.SPACE.action_space] * 2) for entity in range(2)]
    rng = np.random.default_rng(0)
    frame = game.reset(np.ones(4, np.bool_), list(range(4)))
    features: list[set[int]] = [set(), set()]

    def note(shown: Frame, lanes: Any) -> None:
        for entity, batch in enumerate(shown.observations):
            for units in batch["units"].values():
                features[entity] |= words(units[lanes].values.tobytes())

    for seat in seats:
        seat.server.write_nothing_played()
        seat.server.write_begin(frame, np.ones(4, np.bool_))
        seat.server.post(0, last=False, infos=None)
    note(frame, np.ones(4, np.bool_))
    for tick in range(1, 20):
        actions = []
        for entity in range(2):
            seat = seats[entity]
            seat.client._wait()
            shown = seat.client.shown_actions(0)
            drawn = crowd.SPACE.action_space.draw(shown, rng)
            seat.client.request.rows[0][:] = list(drawn.values())
            seat.client.send(RequestKind.ACT)
            seat.server.read_actions()
            actions.append(seat.server.request.by_entity[0])
        step = game.step(actions)
        over = step.terminated.any(axis=1) | step.truncated.any(axis=1)
        note(step.frame, np.ones(4, np.bool_))
        for seat in seats:
            seat.server.write_step(step, ends=bool(over.any()))
        if over.any():
            frame = game.reset(over)
            note(frame, over)
            for seat in seats:
                seat.server.write_begin(frame, over)
        for seat in seats:
            seat.server.post(tick, last=False, infos=None)
    for entity, seat in enumerate(seats):
        sent = words(b"".join(message + b"\0" * (-len(message) % 4) for message in seat.environment.sent))
        assert len(features[entity]) > 1000
        assert features[entity] <= sent, "a feature of its own is missing"
        assert not features[1 - entity] & sent, "a feature of another seat was sent"


def test_inactive_rows_have_no_actors_and_idle_as_configured() -> None:
    seat = Seat(2, (0,), [crowd.SPACE], [crowd.SPACE.action_space])
    rng = np.random.default_rng(4)
    samples = [crowd.observation(rng, 6, mark=1.0, tick=0) for _ in range(2)]
    active = np.array([[True], [False]])
    no = np.zeros((2, 1), np.bool_)
    frame = Frame([stack(crowd.SPACE, samples)], active, (None,))
    seat.server.write_step(Step(frame, np.zeros((2, 1)), no, no), ends=False)
    (idle,) = seat.server.idle_actions({"walk": "right", "end": 1})
    seat.server.post(1, last=False, infos=None)
    seat.client._wait()
    shown = seat.client.reply.of_entity(0)
    assert shown["units"] == stack(crowd.SPACE, samples)["units"]
    for name, parts in shown["actions"].items():
        for part, rows in parts.items():
            assert rows[0].tolist() == samples[0]["actions"][name][part].tolist() and rows.lengths[1] == 0
    for found in (idle, seat.server.idle_actions({"walk": "right", "end": 1})[0]):
        mask = samples[0]["actions"]["walk"]["mask"]
        assert found["walk"][0].tolist() == [1 if allowed[1] else int(np.argmax(allowed)) for allowed in mask]
        assert found["end"][0].tolist() == [1] * len(samples[0]["actions"]["end"]["actors"])
        assert found["bite"][0].tolist() == [0] * len(samples[0]["actions"]["bite"]["actors"])
        assert all(rows.lengths[1] == 0 for rows in found.values())
    (plain,) = seat.server.idle_actions(None)
    assert plain["walk"][0].tolist() == [int(np.argmax(allowed)) for allowed in mask]


def test_a_message_that_is_too_long_names_seat_bytes_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.seat.ragged_parts.MOST_BYTES", 1000)
    seat = Seat(2, (3,), [MIXED] * 4, [ANSWER] * 4)
    given = {**some(MIXED, 2), "b": Ragged(np.zeros((300, 3), np.float32), [300, 0])}
    no = np.zeros((2, 4), np.bool_)
    frame = Frame([given] * 4, ~no, (None,) * 4)
    seat.server.write_step(Step(frame, np.zeros((2, 4)), no, no), ends=False)
    with pytest.raises(GameError, match=r"bytes for seat 3 \(300 \['b'\], .*can hold 1,000 bytes; fewer `lanes`"):
        seat.server.post(1, last=False, infos=None)
    assert seat.environment.sent == []


def test_a_heap_that_its_leaves_do_not_fit_is_refused() -> None:
    column: list[Any] = [Ragged.empty(2, np.float32)]
    parts = RaggedParts([FLAT], [column])
    sent = Ragged(np.arange(3, dtype=np.float32), [1, 2])
    heap = np.frombuffer(packed([sent]), np.uint8).copy()
    read_heap(heap, [(parts, [2])])
    assert column[0] == sent
    for wrong in (5, 1, -1, 2**62):
        heap[:8].view(np.int64)[:] = wrong
        with pytest.raises(ProtocolError, match="40 bytes"):
            read_heap(heap, [(parts, [2])])
    with pytest.raises(ProtocolError, match="0 bytes, but it has 1 leaves"):
        read_heap(heap[:0], [(parts, [2])])


def test_fixed_seats_have_no_heap_and_unchanged_headers() -> None:
    plain, units = (
        Seat(2, (0,), [space], [Discrete(2)]).server.reply for space in (Box(0, 1, (2,), np.float32), crowd.SPACE)
    )
    assert (len(plain.header), len(units.header)) == (4, 5)
    assert isinstance(plain, ReplyView) and not plain.ragged and units.ragged
    layout = SeatDescription(2, Interface(("e",), (Box(0, 1),), (Discrete(2),), (0,)), alone=True).layout()
    assert not link_size(layout).heaps and RequestView(layout).header_bytes == 16


def test_shared_heaps_get_memory_as_it_is_needed() -> None:
    memory = SharedMemory.make(2 * MOST_BYTES, reserve=True)
    try:
        writer, reader = SharedHeap(memory, 1, writes=True), SharedHeap(memory, 1, writes=False)

        def backed() -> int:
            return os.fstat(memory.descriptor).st_blocks * 512

        assert backed() == 0
        for size, expected in ((1, 2**16), (2**16, 2**16), (2**16 + 1, 2**17), (300_000, 2**19), (10, 2**19)):
            writer.reserve(size)[:] = size % 251
            assert backed() == expected
            assert reader.view(size).tolist() == [size % 251] * size
        assert memory.nbytes == 2 * 2**28
    finally:
        memory.close()
