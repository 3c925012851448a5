"""Action masks through the whole arena: a bootstrap from a last observation has its mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from arena.serving import load_policy
from games import Narrow
from in_process import NOTES, one_match, play
from policies.dqn import DQN
from policies.maddpg import MADDPG
from policies.masac import MASAC
from policies.qmix import QMIX
from policies.sac import SAC


class _Keeps:
    """Records the next observations and masks of its replay, once the budget is used."""

    def run(self) -> None:
        learner: Any = self
        try:
            super().run()  # type: ignore[misc]
        finally:
            replay = learner.replay
            if replay is not None and replay.size:
                NOTES.append(followed(replay.sample(1000, torch.Generator().manual_seed(0), beta=1.0)))


def followed(batch: Any) -> set[tuple[int, tuple[int, ...]]]:
    """The pairs of a next observation and its mask in a minibatch, of all active entities."""
    seen, *acts = (leaf.numpy() for leaf in batch.next_observations)
    masks: NDArray[Any] = batch.next_masks.numpy().astype(int).reshape(seen.size, -1)
    chosen = np.ones(seen.size, np.bool_) if not acts else acts[0].astype(np.bool_).ravel()
    pairs = zip(seen.ravel()[chosen].tolist(), masks[chosen].tolist(), strict=True)
    return {(int(observed), tuple(mask)) for observed, mask in pairs}


class KeepsDQN(_Keeps, DQN):
    """Of one entity's values."""


class KeepsSAC(_Keeps, SAC):
    """Of one entity's choices."""


class KeepsMASAC(_Keeps, MASAC):
    """Of a team."""


class KeepsMADDPG(_Keeps, MADDPG):
    """Of a team."""


class KeepsQMIX(_Keeps, QMIX):
    """Of a team's values."""


LEARNERS = {
    "dqn": ("test_masks_in_runs:KeepsDQN", ["p"]),
    "sac": ("test_masks_in_runs:KeepsSAC", ["p"]),
    "a team in one seat": ("test_masks_in_runs:KeepsMASAC", [["p", "p"]]),
    "a team's values": ("test_masks_in_runs:KeepsQMIX", [["p", "p"]]),
    "a team of workers": ("test_masks_in_runs:KeepsMADDPG", ["p", "p"]),
}


def replayed(learner: str, path: Path, *, length: int, ticks: int, **match: Any) -> set[tuple[int, tuple[int, ...]]]:
    """The next observations of the transitions of a short run, as numbers, and their masks."""
    algorithm, seats = LEARNERS[learner]
    entities = sum(len(seat) if isinstance(seat, list) else 1 for seat in seats)
    options = {"n_step": 1, "learning_starts": 4, "batch_size": 4, "train_every": 1, "hidden_sizes": [8]}
    game = {"make": "games:Narrow", "kwargs": {"entities": entities, "length": length}}
    policies = {"p": {"algorithm": algorithm, "options": options}}
    data = one_match(game, policies, seats=seats, ticks=ticks, match={"lanes": 2, **match})
    found: set[tuple[int, tuple[int, ...]]] = set().union(*play(data, path).notes)
    assert len({seen // 100 for seen, _ in found}) == entities
    return found


def wrong(found: set[tuple[int, tuple[int, ...]]]) -> set[tuple[int, tuple[int, ...]]]:
    """Numbers whose mask differs from the game's."""
    return {(seen, mask) for seen, mask in found if mask != tuple(Narrow.mask(seen).tolist())}


@pytest.mark.parametrize("learner", LEARNERS)
def test_final_mask_at_a_time_limit_is_replayed(learner: str, tmp_path: Path) -> None:
    found = replayed(learner, tmp_path, length=4, ticks=13)
    assert {seen % 100 for seen, _ in found} == {1, 2, 3, 4}
    assert not wrong(found)


@pytest.mark.parametrize("learner", ["dqn", "a team of workers"])
def test_final_mask_at_the_end_of_a_leg_is_replayed(learner: str, tmp_path: Path) -> None:
    found = replayed(learner, tmp_path, length=100, ticks=10)
    assert {seen % 100 for seen, _ in found} == set(range(1, 11))
    assert not wrong(found)


def test_overlapping_blocks_have_their_last_masks(tmp_path: Path) -> None:
    assert not wrong(replayed("dqn", tmp_path, length=4, ticks=13, pipeline=2))


@pytest.mark.parametrize("player", ["workers:NotesLastMasks", "workers:NotesLastMasksOfAgents"])
def test_the_last_info_of_an_entity_has_its_mask(player: str, tmp_path: Path) -> None:
    game = {"make": "games:Narrow", "kwargs": {"entities": 1, "length": 4}}
    data = one_match(game, {"p": {"algorithm": player}}, ticks=6)
    for seen, mask in (notes := play(data, tmp_path).notes):
        np.testing.assert_array_equal(mask, Narrow.mask(seen))
    assert [seen for seen, _ in notes] == [4, 2], "the time limit, and the end of the run"


def test_acting_without_a_mask_is_warned_of(tmp_path: Path) -> None:
    options = {"n_step": 1, "learning_starts": 4, "batch_size": 4, "hidden_sizes": [8]}
    game = {"make": "games:Narrow", "kwargs": {"entities": 1, "length": 4}}
    data = one_match(game, {"p": {"algorithm": "dqn", "options": options}}, ticks=8)
    policy = load_policy(f"{play(data, tmp_path).folder.path}:p")
    seen = np.zeros(policy.observation_space.shape, np.float32)
    with pytest.warns(UserWarning, match="no mask, though the game has masks, so all actions count as allowed"):
        policy.act(seen)
    assert policy.act(seen, {"action_mask": np.array([0, 1, 1], np.int8)}) in (1, 2)
    policy.act(seen, {})  # a game that gives no mask on some ticks
