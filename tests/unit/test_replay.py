"""Replay: drawn against stored transitions, frequencies and weights; rings that overwrite their oldest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from arena.records.state_codec import decode, encode
from fakes import all_equal
from policies.common.nstep import NStepBatch, NStepBuilder, RowLayout
from policies.common.replay import Replay, SumTree, Transitions

NUMBER = spaces.Box(-1e6, 1e6, (1,), np.float32)
RINGS = [1, 3]


def replay(capacity: int = 100, **options: Any) -> Replay:
    layout = RowLayout(NUMBER, (), torch.int64, options.pop("mask_size", 0))
    return Replay(layout, capacity=capacity, **options)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def walk(ticks: int, *, first: int = 0, begin: float = 0.0, length: int = 7, mask_size: int = 0) -> NStepBatch:
    """A row that sees `begin`, `begin` + 1, ... and earns its observation; every `length` ticks it is cut at -1."""
    lived = NStepBuilder(RowLayout(NUMBER, (), torch.int64, mask_size), rows=1, n_step=1, gamma=0.5)
    lived._count = lived._first = first
    infos: dict[str, Any] = {"action_mask": np.eye(mask_size, dtype=np.int8)[:1]} if mask_size else {}
    lived.begin(np.array([[begin]]), infos)
    for tick in range(ticks):
        cut = np.array([(tick + 1) % length == 0])
        last: dict[str, Any] = {"final_obs": np.full(1, None, object)} if cut[0] else {}
        if cut[0]:
            last["final_obs"][0] = np.array([-1.0])
        seen = np.array([[begin + tick + 1]])
        lived.add(np.array([tick]), seen, np.array([begin + tick]), cut & False, cut, {**infos, **last})
    return lived.cut()


def check(batch: Transitions) -> None:
    """Each of a batch is a transition of `walk`."""
    seen, following = batch.observations[0].squeeze(1), batch.next_observations[0].squeeze(1)
    assert torch.equal(batch.rewards, seen)
    assert ((following == seen + 1) | (following == -1)).all()
    assert (batch.discounts == 0.5).all()


# ------------------------------------------------------------------------------------------------ drawn transitions


@pytest.mark.parametrize("alpha", [None, 0.6])
@pytest.mark.parametrize("workers", RINGS)
def test_drawn_transitions_equal_stored_ones(workers: int, alpha: float | None) -> None:
    memory = replay(300, workers=workers, alpha=alpha)
    for worker in range(workers):
        assert memory.extend(walk(20 + worker, begin=1000.0 * worker), worker) == 20 + worker
    batch = memory.sample(3000, stream())
    check(batch)
    expected = {1000.0 * worker + tick for worker in range(workers) for tick in range(20 + worker)}
    assert set(batch.observations[0].squeeze(1).tolist()) == expected
    assert memory.size == memory.added == len(expected)


@pytest.mark.parametrize("workers", RINGS)
@pytest.mark.parametrize("pieces", [1, 4])
def test_full_ring_overwrites_its_oldest(workers: int, pieces: int) -> None:
    memory = replay(30 * workers, workers=workers)
    whole = walk(100, length=999)
    for part in range(pieces):
        memory.extend(_part(whole, part, pieces), 0)
    batch = memory.sample(2000, stream())
    check(batch)
    assert batch.observations[0].unique().tolist() == list(range(71, 100))  # the 30 last points are 71 to 100
    assert (memory.size, memory.added) == (29, 100)


def _part(whole: NStepBatch, index: int, pieces: int) -> NStepBatch:
    """The n-th part of a fragment, as if the fragment had arrived in parts."""
    points = whole.points.size
    low, high = whole.first + points * index // pieces, whole.first + points * (index + 1) // pieces
    mine = (whole.followings >= low) & (whole.followings < high)
    part = whole.points.take(torch.arange(low - whole.first, high - whole.first))
    return NStepBatch(low, part, *(column[mine] for column in whole.transitions))


def test_restarted_worker_keeps_other_workers_data() -> None:
    memory = replay(100, workers=2, alpha=0.6)
    memory.extend(walk(20), 0)
    memory.extend(walk(10, begin=1000.0), 1)
    memory.extend(walk(5, begin=2000.0), 1)  # from point 0 again
    found = memory.sample(2000, stream()).observations[0].unique().tolist()
    assert found == [*range(20), *range(2000, 2005)]


def test_masks_are_stored_with_both_observations() -> None:
    memory = replay(mask_size=3)
    memory.extend(walk(20, mask_size=3))
    batch = memory.sample(200, stream())
    assert batch.masks is not None
    assert batch.next_masks is not None
    assert batch.masks.tolist() == [[True, False, False]] * 200
    last = batch.next_observations[0].squeeze(1) == -1
    assert batch.next_masks[last].all()
    assert batch.next_masks[~last].tolist() == [[True, False, False]] * int((~last).sum())


# -------------------------------------------------------------------------------------------- frequencies and weights


def chi_square(memory: Replay, probabilities: Any, *, draws: int = 20_000, batch: int = 50) -> float:
    generator = stream(1)
    counts = np.zeros(len(probabilities))
    for _ in range(draws // batch):
        found = memory.sample(batch, generator).observations[0].squeeze(1).long().numpy()
        counts += np.bincount(found, minlength=len(probabilities))
    expected = draws * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.slow
def test_uniform_replay_draws_all_equally_often() -> None:
    memory = replay(300, workers=3)
    for worker in range(3):
        memory.extend(walk(20, begin=20.0 * worker), worker)
    assert chi_square(memory, np.full(60, 1 / 60)) < 98.3  # 99.9 % with 59 degrees of freedom


def prioritized(alpha: float = 0.6) -> tuple[Replay, Any]:
    """A replay of 30 transitions, and their temporal-difference errors."""
    memory = replay(alpha=alpha, epsilon=1e-6)
    memory.extend(walk(30, length=999))
    errors = np.random.default_rng(0).normal(size=30)
    errors[3] = 0.0
    memory.update_priorities(torch.arange(30), torch.from_numpy(errors).float())
    return memory, np.abs(errors.astype(np.float32)).astype(np.float64) + 1e-6


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_prioritized_draws_follow_the_power_of_the_error(alpha: float) -> None:
    memory, errors = prioritized(alpha)
    probabilities = errors**alpha / (errors**alpha).sum()
    assert chi_square(memory, np.maximum(probabilities, 1e-12)) < 58.3  # 99.9 % with 29; strata only lower it


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_the_papers_over_the_largest_of_the_replay(beta: float) -> None:
    memory, errors = prioritized()
    probabilities = errors**0.6 / (errors**0.6).sum()
    weights = (30 * probabilities) ** -beta
    batch = memory.sample(400, stream(), beta=beta)
    expected = weights[batch.indices.numpy()] / weights.max()
    np.testing.assert_allclose(batch.weights.numpy(), expected, rtol=1e-6)
    assert batch.weights.dtype == torch.float32


def test_minibatch_is_stratified_over_the_sum() -> None:
    memory, errors = prioritized(1.0)
    ends = errors.cumsum() / errors.sum()
    indices = memory.sample(10, stream()).indices.numpy()
    begins = np.concatenate([[0.0], ends])[indices]
    parts = np.arange(10) / 10
    assert (begins < parts + 0.1).all()
    assert (ends[indices] > parts).all()


def test_new_transitions_have_the_maximum_priority() -> None:
    memory, _ = prioritized()
    memory.update_priorities(torch.tensor([5]), torch.tensor([-8.0]))
    memory.update_priorities(torch.tensor([5]), torch.tensor([0.1]))
    memory.extend(walk(1, first=31, begin=31.0))
    assert memory._tree is not None
    assert memory._tree.leaves[31] == pytest.approx((8 + 1e-6) ** 0.6)


def test_overwritten_transitions_are_not_drawn() -> None:
    memory = replay(20, alpha=0.6)
    memory.extend(walk(15, length=999))
    memory.update_priorities(torch.arange(15), torch.full((15,), 100.0))
    memory.extend(walk(15, first=16, begin=16.0, length=999))
    batch = memory.sample(500, stream())
    check(batch)
    assert batch.observations[0].min() == 12  # 32 points in a ring of 20


# ------------------------------------------------------------------------------------------------------------- state


def lived(alpha: float | None, workers: int) -> Replay:
    memory = replay(40 * workers, workers=workers, alpha=alpha, mask_size=2)
    for worker in range(workers):
        memory.extend(walk(33 + worker, mask_size=2), worker)
        memory.extend(walk(9, first=38 + worker, begin=500.0, mask_size=2), worker)
    indices = memory.sample(25, stream()).indices
    memory.update_priorities(indices, torch.linspace(-3, 3, 25))
    return memory


@pytest.mark.parametrize(("alpha", "workers"), [(None, 1), (0.6, 3)])
def test_a_stored_replay_draws_the_same_to_the_bit(alpha: float | None, workers: int) -> None:
    memory = lived(alpha, workers)
    state = decode(*encode(memory.state_dict()))
    other = replay(40 * workers, workers=workers, alpha=alpha, mask_size=2)
    other.load_state_dict(state)
    assert all_equal(other.state_dict(), state)
    assert (other.size, other.added) == (memory.size, memory.added)
    for again in range(3):
        for worker in range(workers):
            for each in (memory, other):
                each.extend(walk(3, first=each._rings[worker].end, begin=900.0 + again, mask_size=2), worker)
        mine, yours = (each.sample(64, stream(again), beta=0.4) for each in (memory, other))
        assert all_equal(astuple(mine), astuple(yours))
        for each in (memory, other):
            each.update_priorities(mine.indices, torch.linspace(0, again, 64))


def test_only_filled_places_are_stored() -> None:
    memory = replay(100_000, alpha=0.6)
    memory.extend(walk(10))
    assert sum(len(part) for part in encode(memory.state_dict())[1]) < 5000


def test_a_smaller_replay_keeps_the_youngest() -> None:
    memory = replay(100, alpha=0.6)
    memory.extend(walk(50, length=999))
    memory.update_priorities(torch.arange(50), torch.arange(50.0))
    small = replay(20, alpha=0.6)
    small.load_state_dict(memory.state_dict())
    batch = small.sample(500, stream(), beta=0.0)
    check(batch)
    assert batch.observations[0].min() == 31
    assert small._tree is not None
    assert small._tree.total == pytest.approx(((np.arange(31, 50) + 1e-6) ** 0.6).sum())


def test_a_replay_of_other_workers_begins_empty() -> None:
    other = replay(90, workers=2)
    other.load_state_dict(lived(None, 3).state_dict())
    assert (other.size, other.added) == (0, 0)


# The sum tree: sums and draws against slow ones, after any changes


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
