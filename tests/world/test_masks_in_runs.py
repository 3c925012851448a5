"""Action masks through the whole arena: a bootstrap from a last observation has its mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from games import Narrow
from in_process import one_match, play

LEARNERS = {
    "dqn": ("replay_learners:KeepsDQN", ["p"]),
    "sac": ("replay_learners:KeepsSAC", ["p"]),
    "a team in one seat": ("replay_learners:KeepsMASAC", [["p", "p"]]),
    "a team of workers": ("replay_learners:KeepsMADDPG", ["p", "p"]),
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
