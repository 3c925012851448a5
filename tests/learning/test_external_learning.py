"""Policies learn CartPole from games outside of the run, through each kind of connection."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from arena.external import PolicyClient
from external_games import play_poles, played_from_outside
from in_process import one_match, play

LANES = 8
SEEDS = list(range(100, 100 + LANES))
POLE = "gymnasium:CartPole-v1"
OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 128, "learning_rate": 1e-3, "learning_rate_schedule": "linear", "n_epochs": 10},
    "dqn": {
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "batch_size": 64,
        "hidden_sizes": [64, 64],
        "train_every": 4,
        "training_intensity": 16,
        "tau": 1.0,
        "target_update_interval": 50,
        "activation": "relu",
        "n_step": 10,
        "exploration_final_eps": 0.04,
    },
}


def outside(address: str) -> None:
    """Plays the poles of a run over HTTP."""
    with ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(address)) for _ in SEEDS]
        play_poles(clients, [gymnasium.make("CartPole-v1") for _ in SEEDS], SEEDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", OPTIONS)
@pytest.mark.parametrize("kind", ["thread", "http"])
def test_pole_is_balanced_after_100_000_samples(kind: str, algorithm: str, tmp_path: Path) -> None:
    make = {"make": "http", "kwargs": {"like": {"make": POLE}, "port": 0}}
    if kind == "thread":
        make = {"make": "external_games:Poles", "kwargs": {"seeds": SEEDS}}
    policy = {"algorithm": algorithm, "options": OPTIONS[algorithm]}
    game = {**make, "external": {"min_asking": LANES, "max_delay_s": 60.0}}
    data = one_match(game, {"blue": policy}, ticks=100_000 // LANES, seed=1, match={"lanes": LANES})
    away = nullcontext() if kind == "thread" else played_from_outside(tmp_path / "run", outside)
    with away:
        played = play(data, tmp_path)
    frozen = {
        **data,
        "ticks": 10**9,
        "envs": {"game": {"make": POLE}},
        "policies": {"blue": {**policy, "frozen": True, "load": str(played.folder.path)}},
    }
    games = play(frozen, tmp_path, episodes=48 // LANES, greedy=True).episodes
    assert len(games) == 48
    assert np.mean([game["seats"][0]["return"] for game in games]) >= 450
