"""Rollouts: masks, and transitions that a cut leaves open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies.common.rollout import Batch, OpenTransitions, Rollout, Trajectories, advantages_of
from policies.networks.heads import action_head
from trajectories import random_trajectories

SPACE = spaces.Dict(a=spaces.Box(-1e9, 1e9, (2,), np.float64), b=spaces.Discrete(100))
HEAD = action_head(spaces.Discrete(3))


def observed(number: float) -> dict[str, Any]:
    return {"a": np.full((2, 2), number), "b": np.array([number, number + 50], np.int64)}


@pytest.mark.parametrize(("ticks", "rows"), [(2, 2), (4, 3)], ids=["too many ticks", "other rows"])
def test_partial_rollout_of_other_size_is_dropped(ticks: int, rows: int) -> None:
    played = Rollout(SPACE, HEAD, ticks=3, rows=2)
    played.begin(observed(0), {})
    for t in range(3):
        played.add(t, np.zeros(2), observed(t), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {})
    played.played = 3
    other = Rollout(SPACE, HEAD, ticks=ticks, rows=rows)
    other.load_state_dict(played.state_dict())
    assert other.played == 0
    assert other.state_dict() == {}


def batch(count: int, *, masks: bool = True) -> Batch:
    numbers = torch.arange(count, dtype=torch.float32)
    mask = torch.ones(count, 3, dtype=torch.bool) if masks else None
    return Batch((numbers[:, None], numbers.to(torch.uint8)), mask, numbers.long(), *([numbers] * 4))


@pytest.mark.parametrize("first", [True, False])
def test_missing_masks_are_filled_with_true(first: bool) -> None:
    masked = batch(2)
    assert masked.masks is not None
    masked.masks[:, 1] = False
    parts = [masked, batch(1, masks=False)][:: 1 if first else -1]
    pooled = Batch.cat(parts)
    rows = [[True, False, True]] * 2, [[True, True, True]]
    assert pooled.masks is not None
    assert pooled.masks.dtype == torch.bool
    assert pooled.masks.tolist() == [row for part in (rows if first else rows[::-1]) for row in part]


def test_a_tick_without_a_mask_allows_everything() -> None:
    rollout = Rollout(SPACE, HEAD, ticks=2, rows=2)
    rollout.begin(observed(0), {})
    assert rollout.mask(0) is None
    still = (np.zeros(2), np.zeros(2, bool), np.zeros(2, bool))
    rollout.add(0, np.zeros(2), observed(1), *still, {"action_mask": np.array([[1, 0, 0]] * 2, np.int8)})
    rollout.add(1, np.zeros(2), observed(2), *still, {})
    masks = [rollout.mask(t) for t in range(3)]
    assert [mask.all().item() for mask in masks if mask is not None] == [True, False, True]


def cut_in_parts(seen: Trajectories, ends: list[int]) -> Iterator[Trajectories]:
    for begin, end in itertools.pairwise([0, *ends]):
        part = [None if field is None else field[begin:end] for field in seen]
        after = end < len(seen.rewards)
        yield Trajectories(*part)._replace(
            last_values=seen.values[end] if after else seen.last_values,
            last_active=seen.active[end] if after else seen.last_active,
        )


@pytest.mark.parametrize("outside", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(10))
def test_no_transition_is_lost_between_two_rollouts(seed: int, outside: float) -> None:
    rng = np.random.default_rng(seed)
    whole = random_trajectories(seed, acting=0.4, ending=0.1, outside=outside)
    ticks, rows = whole.rewards.shape
    cuts = sorted({int(cut) for cut in rng.integers(1, ticks + 1, 3)} | {ticks})
    opened, learned = OpenTransitions(), {}
    for begin, part in zip([0, *cuts], cut_in_parts(whole, cuts), strict=False):
        # Each transition is named by its tick and row; its value is that of the policy that acted.
        names = torch.arange(begin * rows, begin * rows + part.rewards.size)
        values = torch.from_numpy(part.values).flatten()
        batch = Batch((names,), None, names, values, values, values, values)
        batch, longer = opened.prepend(batch, part)
        if begin % 2:  # also through a checkpoint
            state = opened.state_dict()
            opened = OpenTransitions()
            opened.load_state_dict(state)
        found = advantages_of(longer, gamma=0.9, gae_lambda=0.0)  # so that an estimate looks at one transition
        opened.keep(batch, longer, found.open)
        for place in np.flatnonzero(found.valid):
            name = int(batch.actions[place])
            assert name not in learned
            learned[name] = found.advantages.ravel()[place], float(batch.values[place])
    once = advantages_of(whole, gamma=0.9, gae_lambda=0.0)
    assert sorted(learned) == np.flatnonzero(once.valid).tolist()
    for name, (advantage, value) in learned.items():
        assert advantage == pytest.approx(once.advantages.ravel()[name], abs=1e-9)
        assert value == whole.values.ravel()[name]
