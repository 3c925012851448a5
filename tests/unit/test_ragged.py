"""Ragged arrays against nested lists, which say the same one row after the other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from arena import Ragged


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
