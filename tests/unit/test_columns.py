"""Columns: an operation applies to all columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from arena.game.spaces import leaves_of
from arena.records.state_codec import decode, encode
from policies.common.columns import Columns, Storage

LAYOUT = leaves_of(spaces.Dict(place=spaces.Box(-1, 1, (2,)), lives=spaces.Discrete(9)))


class Scored(Columns, frozen=True):
    """With two columns of its own."""

    scores: Tensor
    weights: Tensor | None = None


def scored(first: int, count: int, *, masks: bool = True) -> Scored:
    numbers = torch.arange(first, first + count)
    place = torch.stack([numbers, -numbers], 1).float()
    return Scored((place, numbers), numbers[:, None] % 2 == 0 if masks else None, 10 * numbers)


def rows_of(columns: Scored) -> list[int]:
    """The numbers of `scored` in its rows; checks that all columns are of the same rows."""
    place, lives = columns.observations
    assert place.tolist() == [[row, -row] for row in lives.tolist()]
    assert columns.scores.tolist() == [10 * row for row in lives.tolist()]
    assert columns.weights is None
    assert columns.masks is None or columns.masks.squeeze(1).tolist() == [row % 2 == 0 for row in lives.tolist()]
    assert columns.size == len(lives)
    return lives.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("masks", [True, False])
def test_rows_are_taken_split_and_joined_in_all_columns(masks: bool) -> None:
    columns = scored(0, 5, masks=masks)
    assert rows_of(columns.take(torch.tensor([3, 0, 3]))) == [3, 0, 3]
    assert [rows_of(part) for part in columns.split([2, 0, 3])] == [[0, 1], [], [2, 3, 4]]
    assert rows_of(Scored.cat([columns, scored(7, 0, masks=masks), scored(7, 2, masks=masks)])) == [0, 1, 2, 3, 4, 7, 8]
    assert (columns.masks is not None) == masks


def test_joined_part_without_masks_allows_everything() -> None:
    joined = Scored.cat([scored(1, 2, masks=False), scored(1, 1)])
    assert joined.masks is not None
    assert joined.masks.tolist() == [[True], [True], [False]]


@pytest.mark.parametrize("masks", [True, False])
def test_columns_survive_a_message(masks: bool) -> None:
    columns = scored(4, 3, masks=masks)
    back = Scored.from_samples(decode(*encode(columns.to_samples())))
    assert rows_of(back) == [4, 5, 6]
    assert (back.masks is not None) == masks
    assert [leaf.dtype for leaf in back.observations] == [torch.float32, torch.int64]


def written(ticks: int) -> Storage:
    storage = Storage(LAYOUT, 1, 4, 3)
    for tick in range(ticks):
        columns = scored(10 * tick, 3)
        assert columns.masks is not None
        storage.write((tick, slice(None)), [leaf.numpy() for leaf in columns.observations], columns.masks.numpy())
    return storage


def test_places_of_a_storage_are_written_one_by_one() -> None:
    storage = Storage(LAYOUT, 1, 6)
    places = np.array([4, 0])
    storage.write(places, [leaf.numpy() for leaf in scored(0, 2).observations], None)
    assert storage.take(torch.from_numpy(places)).masks is None
    seen = scored(5, 1)
    assert seen.masks is not None
    storage.write(np.array([0]), [leaf.numpy() for leaf in seen.observations], seen.masks.numpy())
    found = storage.take(torch.tensor([4, 0]))
    assert found.observations[1].tolist() == [0, 5]
    assert found.masks is not None
    assert found.masks.tolist() == [[True], [False]], "all is allowed where there was no mask"


def test_storage_continues_from_its_state_and_last_tick() -> None:
    storage, other = written(4), Storage(LAYOUT, 1, 4, 3)
    other.load_state_dict(decode(*encode(storage.state_dict(2))))
    (leaves, masks), (restored, restored_masks) = storage.flat(2), other.flat(2)
    assert all(torch.equal(leaf, back) for leaf, back in zip(leaves, restored, strict=True))
    assert masks is not None
    assert restored_masks is not None
    assert torch.equal(masks, restored_masks)
    storage.restart()
    leaves, masks = storage.flat(1)
    assert leaves[1].tolist() == [30, 31, 32]
    assert masks is not None
    assert masks.squeeze(1).tolist() == [True, False, True]
