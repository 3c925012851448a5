"""Games that are told their place in the run: match, copy, lane, seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arena import EnvContext
from arena.cli.main import main
from arena.dataset import open_dataset
from arena.replay import playback
from envs.adapters import adapt
from games import ContextObserver
from in_process import one_match, play

DATA = one_match(
    {"make": "games:ContextObserver", "kwargs": {"length": 3}},
    {"a": {"algorithm": "random"}},
    **{"ticks": 12, "seed": 3, "checkpoint_every": 6},
    matches=[
        {"env": "game", "seats": ["a"]},
        {"env": "game", "seats": ["a"], "lanes": 2, "copies": 2, "pipeline": 2},
    ],
)


def test_context_is_the_place_of_each_lane(tmp_path: Path) -> None:
    run = play({**DATA, "record": "samples"}, tmp_path).run
    obs = open_dataset(run.path).batch("a")["obs"]
    places = {tuple(row) for row in obs[:, :6].astype(int).tolist()}
    assert places == {(0, 0, 0, 0, 1, 0), *((match, 1, match - 1, lane, 2, 0) for match in (1, 2) for lane in (0, 1))}
    assert len({tuple(row) for row in obs.tolist()}) == 2 * len(places), "each leg has seeds of its own"


def test_context_is_part_of_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play({**DATA, "record": "replays"}, tmp_path).run
    assert main(["replay", str(run.path), "--verify"]) == 0
    monkeypatch.setattr(playback, "EnvContext", lambda *_: EnvContext())
    assert main(["replay", str(run.path), "--verify"]) == 1, "other games than those that were recorded"


def test_context_is_zero_outside_a_run_and_configurable() -> None:
    frame = adapt(ContextObserver, {}, 2).reset(np.ones(2, np.bool_))
    assert frame.observations[0].tolist() == [[0, 0, 0, lane, 2, 0, 0] for lane in (0, 1)]
    frame = adapt(ContextObserver, {"context": EnvContext(match=4)}, 1).reset(np.ones(1, np.bool_))
    assert frame.observations[0][0, 0] == 4


def test_batched_game_gets_the_context_of_its_first_lane() -> None:
    from envs.touchdown import Touchdown

    class Told(Touchdown):
        def __init__(self, *, lanes: int, context: EnvContext) -> None:
            super().__init__(lanes=lanes)
            told.append(context)

    told: list[EnvContext] = []
    adapt(Told, {}, 2, contexts=[EnvContext(lane=lane, seed=9) for lane in (4, 5)])
    assert told == [EnvContext(lane=4, seed=9)]
