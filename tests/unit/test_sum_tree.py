"""The sum tree: sums and draws against slow ones, after any changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.common.replay import SumTree


def filled(size: int, seed: int = 0) -> tuple[SumTree, Any]:
    """A tree, and its numbers; a third of them is 0."""
    rng = np.random.default_rng(seed)
    values = rng.random(size) * 10.0 ** rng.integers(-6, 3, size) * (rng.random(size) < 0.67)
    values[rng.integers(size)] = 1.0
    tree = SumTree(size)
    tree.set(np.arange(size), values)
    return tree, values


def test_an_empty_tree_has_nothing_to_draw() -> None:
    tree = SumTree(40)
    assert (tree.total, tree.least) == (0.0, np.inf)
    with pytest.raises(ValueError, match="all 0"):
        tree.find(np.zeros(1))


@pytest.mark.parametrize("size", [1, 64, 4097, 40_000])
def test_find_equals_a_linear_search(size: int) -> None:
    tree, values = filled(size)
    assert tree.total == pytest.approx(values.sum(), rel=1e-12)
    assert tree.least == values[values > 0].min()
    shares = np.random.default_rng(1).random(100)
    ends = values.cumsum() / values.sum()
    found = tree.find(shares)
    expected = np.minimum(np.searchsorted(ends, shares, side="right"), size - 1)
    near_an_end = np.abs(ends[None] - shares[:, None]).min(1) < 1e-9  # where rounding may decide
    assert (found == expected)[~near_an_end].all()
    assert near_an_end.mean() < 0.1
    assert (values[found] > 0).all()


@pytest.mark.parametrize("size", [70, 5000])
@given(seed=st.integers(0, 10_000))
def test_never_finds_a_zero_even_at_the_ends(size: int, seed: int) -> None:
    tree, values = filled(size, seed)
    shares = np.array([0.0, 1.0, np.nextafter(1.0, 0.0), *(values.cumsum() / values.sum())[:200]])
    assert (values[tree.find(shares)] > 0).all()


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 4999), st.floats(0, 1e6)), min_size=1, max_size=60))
def test_a_tree_depends_on_its_leaves_alone_to_the_bit(changes: list[tuple[int, float]]) -> None:
    tree = SumTree(5000)
    for index, value in changes:
        tree.set(np.array([index]), value)
        assert tree.total >= 0  # so that the nodes are told after every change
    fresh = SumTree(5000)
    fresh.set(np.arange(5000), tree.leaves.copy())
    assert (tree.total, tree.least) == (fresh.total, fresh.least)
    assert all(np.array_equal(mine, yours) for mine, yours in zip(tree._sums, fresh._sums, strict=True))
    expected = np.zeros(5000)
    for index, value in changes:
        expected[index] = value
    assert np.array_equal(tree.leaves, expected)


def test_last_value_of_a_repeated_index_counts() -> None:
    tree = SumTree(5)
    tree.set(np.array([2, 3, 2]), np.array([1.0, 2.0, 4.0]))
    assert tree.leaves.tolist() == [0, 0, 4, 2, 0]
    assert (tree.total, tree.least) == (6.0, 2.0)


def test_draws_are_as_frequent_as_the_numbers_are_large() -> None:
    tree, values = SumTree(100), np.random.default_rng(3).random(100)
    tree.set(np.arange(100), values)
    draws = 200_000
    shares = np.random.default_rng(4).random(draws)
    counts = np.bincount(tree.find(shares), minlength=100)
    expected = draws * values / values.sum()
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 148.2  # 99.9 % of the distribution with 99 degrees of freedom
