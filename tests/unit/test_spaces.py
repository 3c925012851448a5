"""Samples of any space as lists of arrays, without loss; invalid samples are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.game.spaces import (
    BatchWriter,
    are_allowed,
    check_choices,
    copy_rows,
    empty_batch,
    flatten,
    leaves_of,
    mask_fault,
    mask_size,
    no_op,
    row,
    write_sample,
)
from random_spaces import arbitrary_batch, bits, discretes, multi_discretes, spaces

LANES = 3
SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=25)


@QUICK
@given(spaces(), SEEDS)
def test_the_leaves_are_the_arrays_of_a_sample_in_order(space: Space[Any], seed: int) -> None:
    space.seed(seed)
    arrays = flatten(space, space.sample())
    assert [(leaf.dtype, leaf.shape, leaf.nbytes) for leaf in leaves_of(space)] == [
        (array.dtype, array.shape, array.nbytes) for array in arrays
    ]


@QUICK
@given(spaces(), SEEDS)
def test_write_sample_and_row_keep_samples_bit_equal(space: Space[Any], seed: int) -> None:
    space.seed(seed)
    samples = [space.sample() for _ in range(LANES)]
    batch = empty_batch(space, LANES)
    for index, sample in enumerate(samples):
        write_sample(space, sample, batch, index)
    for index, sample in enumerate(samples):
        taken = row(space, batch, index)
        assert bits(space, taken) == bits(space, sample)
        assert space.contains(taken)  # Gymnasium warns, and a warning is an error here, of a scalar in a Box


@QUICK
@given(spaces(), SEEDS, st.lists(st.booleans(), min_size=LANES, max_size=LANES))
def test_copy_rows_copies_only_these_rows(space: Space[Any], seed: int, chosen: list[bool]) -> None:
    rng = np.random.default_rng(seed)
    source, target = arbitrary_batch(space, rng, LANES), arbitrary_batch(space, rng, LANES)
    before = [bits(space, row(space, target, lane)) for lane in range(LANES)]
    copy_rows(space, source, target, np.array(chosen))
    for lane, copied in enumerate(chosen):
        expected = bits(space, row(space, source, lane)) if copied else before[lane]
        assert bits(space, row(space, target, lane)) == expected


@QUICK
@given(discretes(), st.data())
def test_no_op_of_a_discrete_space_is_the_first_allowed_choice(space: Discrete, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.integers(0, 1), min_size=int(space.n), max_size=int(space.n))), np.int8)
    allowed = [int(space.start) + choice for choice in range(int(space.n)) if mask[choice]]
    assert int(no_op(space, mask)) == (allowed[0] if allowed else int(space.start))
    assert space.contains(no_op(space, mask))


@QUICK
@given(multi_discretes(), st.data())
def test_no_op_of_a_multi_discrete_space_obeys_its_mask(space: MultiDiscrete, data: st.DataObject) -> None:
    size = mask_size(space)
    mask = np.array(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)), np.int8)
    chosen = no_op(space, mask)
    assert space.contains(chosen)
    assert chosen.dtype == space.dtype
    begin = 0
    for value, start, count in zip(chosen.flat, space.start.flat, space.nvec.flat, strict=True):
        allowed = mask[begin : begin + int(count)]
        assert allowed[int(value) - int(start)] or not allowed.any()
        begin += int(count)


FLAT = Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("space", "sample", "error", "words"),
    [
        (Discrete(3), 0.5, TypeError, r"0.5 \(float64; use integers\) for Discrete"),
        (MultiBinary(2), np.zeros(2), TypeError, r"0.0 \(float64; use integers\) for MultiBinary"),
        (Box(0, 255, (2,), np.uint8), np.array([0, 256]), TypeError, r"256 \(int64\) for Box.*uint8"),
        (FLAT, np.zeros(2, np.complex64), TypeError, r"0j \(complex64\)"),
        (FLAT, np.array(["a", "b"]), TypeError, r"a \(<U1\)"),
        (FLAT, np.zeros(3, np.float32), ValueError, r"has the shape \(2,\), got \(3,\)"),
        (FLAT, np.float32(0), ValueError, r"has the shape \(2,\), got \(\)"),
        (FLAT, np.zeros((1, 2), np.float32), ValueError, r"has the shape \(2,\), got \(1, 2\)"),
        (Discrete(3), np.zeros(1, np.int64), ValueError, r"has the shape \(\), got \(1,\)"),
        (Dict(a=FLAT), {}, KeyError, "a"),
    ],
)
def test_a_sample_of_another_kind_or_shape_is_refused(
    space: Space[Any], sample: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        write_sample(space, sample, empty_batch(space, LANES), 0)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (LANES,), (LANES, 1), (LANES, 3), (LANES, 2, 1)])
def test_copy_rows_refuses_a_shape_that_numpy_would_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"has the shape \(3, 2\), got"):
        copy_rows(FLAT, np.zeros(shape, np.float32), empty_batch(FLAT, LANES), slice(None))


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (Discrete(3), 3),
        (Discrete(3, start=-1), 2),
        (Discrete(3), -1),
        (MultiDiscrete([2, 3]), np.array([1, 3])),
        (MultiBinary(2), np.array([0, 2])),
        (Dict(a=Discrete(2), b=Box(0, 1)), {"a": 2, "b": 0.5}),
        (Tuple((Discrete(2), Discrete(2))), (1, 2)),
    ],
)
def test_a_choice_that_a_space_does_not_have_is_refused(space: Space[Any], wrong: Any) -> None:
    check_choices(space, space.sample())
    with pytest.raises(ValueError, match="is no action of"):
        check_choices(space, wrong)


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 3]), Box(0, 1), Dict(a=Discrete(2))], ids=str)
def test_none_is_refused_as_an_action_and_as_a_batch(space: Space[Any]) -> None:
    with pytest.raises(TypeError, match=r"^None is no action of .*; an action is needed on every tick$"):
        check_choices(space, None)
    with pytest.raises(TypeError, match=r"^None is no batch of .*; a sample is needed for each row$"):
        BatchWriter(space, empty_batch(space, 2)).write(None, lambda: np.ones(2, np.bool_))


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (MultiBinary(2), [[256, 0]]),
        (MultiDiscrete([3, 3], dtype=np.int8), [[0, 256]]),
        (Discrete(3, dtype=np.int8), [256]),
        (Discrete(3), [3]),
        (Discrete(3), [-1]),
        (Discrete(3, start=5), [4]),
    ],
    ids=str,
)
def test_batch_writer_checks_choices_before_the_cast(space: Space[Any], wrong: Any) -> None:
    writer = BatchWriter(space, empty_batch(space, 1))
    with pytest.raises((TypeError, ValueError), match=r"is no action of|the value 256"):
        writer.write(np.array(wrong), lambda: np.ones(1, np.bool_))


def test_choices_in_rows_that_do_not_act_do_not_matter() -> None:
    actions = np.array([0, 9, 2])
    check_choices(Discrete(3), actions, np.array([True, False, True]))
    with pytest.raises(ValueError, match="is no action of"):
        check_choices(Discrete(3), actions, np.array([True, True, False]))


@pytest.mark.parametrize(
    ("space", "masks", "axes", "fault"),
    [
        (Discrete(3, start=1), [0, 0, 1], (), None),
        (Discrete(3), [[True, False, True]] * 2, (2,), None),
        (Discrete(3), np.zeros((0, 3), np.int8), (0,), None),
        (Discrete(3), [1.0, 0.0, 1.0], (), None),  # as infos of games may have it
        (Discrete(3), [1.0, 0.5, 1.0], (), "the value 0.5; "),
        (Discrete(3), [1.0, np.nan, 1.0], (), "the value nan; "),
        (Discrete(3), ["1", "0", "1"], (), "dtype <U1 and shape"),
        (Discrete(3), [[0, 1, 0], [0, 0, 0]], (2,), r"no allowed action; expected numbers \(2, 3\): 1 for each"),
        (Discrete(3), [1, 1, 1], (2,), r"dtype int64 and shape \(3,\); expected numbers \(2, 3\)"),
        (MultiDiscrete([2, 3]), [0, 1, 1, 0, 0], (), None),
        (MultiDiscrete([2, 3]), [1, 1, 0, 0, 0], (), "no allowed action; "),
        (MultiDiscrete([2, 3]), [1, 1, 0, 0, 255], (), "the value 255; "),
        (Box(0, 1, (2,)), [1, 1], (), r"dtype int64 and shape \(2,\); expected numbers \(0,\)"),
        (Box(0, 1, (2,)), np.zeros(0, np.int8), (), "no allowed action; "),
    ],
)
def test_what_is_no_mask_is_named(space: Space[Any], masks: Any, axes: tuple[int, ...], fault: str | None) -> None:
    found = mask_fault(space, np.asarray(masks), *axes)
    assert found is None if fault is None else re.match(fault, found or "")


@pytest.mark.parametrize(
    ("space", "mask", "allowed", "forbidden"),
    [
        (Discrete(3, start=2), [1, 0, 1], [2, 4], [3]),
        (MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], [[1, 0], [1, 2]], [[0, 0], [1, 1], [0, 1]]),
        (MultiDiscrete([[2], [2]], start=[[1], [5]]), [1, 0, 0, 1], [[[1], [6]]], [[[2], [6]], [[1], [5]]]),
    ],
)
def test_actions_are_allowed_where_each_choice_is(space: Any, mask: Any, allowed: Any, forbidden: Any) -> None:
    for actions, expected in ((allowed, True), (forbidden, False), (np.array(allowed)[:0], True)):
        masks = np.array([mask] * len(actions), np.int8).reshape(-1, len(mask))
        assert are_allowed(space, masks, np.array(actions)).tolist() == [expected] * len(actions)
