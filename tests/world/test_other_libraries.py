"""Unmodified algorithms of other libraries play and learn in the arena."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_process import play


@pytest.mark.filterwarnings("ignore")
def test_two_stable_baselines_algorithms_learn_in_one_match(tmp_path: Path) -> None:
    ppo = {"algorithm": "PPO", "options": {"n_steps": 64, "batch_size": 32}}
    dqn = {"algorithm": "DQN", "options": {"learning_starts": 50, "train_freq": 4, "buffer_size": 1000}}
    data = {
        "ticks": 600,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 50}}},
        "policies": {
            "blue": {"algorithm": "library_workers:StableBaselines", "options": ppo},
            "red": {"algorithm": "library_workers:StableBaselines", "options": dqn},
        },
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
    }
    played = play(data, tmp_path)
    notes = {name: (steps, updates, moved) for name, steps, updates, moved in played.notes}
    assert set(notes) == {"PPO", "DQN"}
    assert notes["PPO"][1] >= 80  # nine rollouts, ten epochs each
    assert notes["DQN"][1] >= 100
    assert all(moved > 0 for _, _, moved in notes.values()), "weights have changed"
    assert sum(episode["length"] for episode in played.episodes) >= 550
