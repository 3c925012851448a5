"""Policies learn tasks of known difficulty through the whole arena. Budgets are below those of the README."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import checkpoint
from in_process import Played, one_match, play

pytestmark = pytest.mark.slow

LEARNERS = ("ppo", "maddpg", "masac", "vdn", "qmix")
PPO = {"n_steps": 128, "minibatch_size": 256, "n_epochs": 4}


def evaluated(played: Played, data: Any, path: Path, episodes: int, **changes: Any) -> list[dict[str, Any]]:
    """The episodes that the run's last weights play greedily, the same number in each of ten lanes."""
    policies = {
        name: {
            **policy,
            "frozen": True,
            **({"load": str(played.folder.path)} if policy["algorithm"] in LEARNERS else {}),
        }
        for name, policy in data["policies"].items()
    }
    matches = [{**match, "lanes": 10, "copies": 1} for match in data["matches"]]
    frozen = {**data, "ticks": 10**9, "policies": policies, "matches": matches, **changes}
    return play(frozen, path, episodes=episodes // 10, greedy=True).episodes


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.long
def test_ppo_beats_random_play_at_touchdown_quickly(seed: int, tmp_path: Path) -> None:
    blue = {"algorithm": "ppo", "options": {**PPO, "ent_coef": 0.01}}
    policies = {"blue": blue, "red": {"algorithm": "random"}}
    data = one_match({"make": "touchdown"}, policies, ticks=9000, seed=seed, match={"copies": 4})
    games = evaluated(play(data, tmp_path), data, tmp_path, 200)
    assert len(games) == 200
    assert np.mean([game["seats"][0]["outcome"] == "win" for game in games]) >= 0.95
    assert np.mean([game["length"] for game in games]) <= 60


@pytest.mark.parametrize(("workers", "lanes"), [(1, 8), pytest.param(4, 2, marks=pytest.mark.long)])
def test_ppo_balances_the_pole_after_100_000_steps_in_total(workers: int, lanes: int, tmp_path: Path) -> None:
    options = {
        "n_steps": 128,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "n_epochs": 10,
        "minibatch_size": 256 // workers,
    }
    game, match = {"make": "gymnasium:CartPole-v1"}, {"copies": workers, "lanes": lanes}
    policies = {"p": {"algorithm": "ppo", "options": options}}
    data = one_match(game, policies, ticks=100_000 // (workers * lanes), seed=1, match=match)
    games = evaluated(play(data, tmp_path), data, tmp_path, 50)
    assert np.mean([game["seats"][0]["return"] for game in games]) >= 450


def test_learners_beat_a_frozen_policy_whose_weights_stay(tmp_path: Path) -> None:
    learns = {"algorithm": "ppo", "options": {**PPO, "learning_rate": 1e-3, "n_steps": 64, "ent_coef": 0.01}}
    policies = {
        "still": {"algorithm": "ppo", "options": {**PPO, "learning_rate": 0.0, "n_steps": 64}},
        "quick": learns,
        "steady": {"algorithm": "ppo", "options": {**learns["options"], "learning_rate": 5e-4}},
    }
    matches = [{"round_robin": {"env": "game", "policies": [*policies], "lanes": 8}}]
    game = {"make": "touchdown", "kwargs": {"mirror": True}}
    data = one_match(game, policies, ticks=2000, seed=1, matches=matches)
    played = play(data, tmp_path)
    for rival in ("quick", "steady"):
        games = [
            {seat["policy"]: seat["outcome"] for seat in episode["seats"]}
            for episode in played.episodes
            if {seat["policy"] for seat in episode["seats"]} == {"still", rival}
        ]
        assert len(games) >= 100
        assert np.mean([game[rival] == "win" for game in games[-100:]]) >= 0.9, rival
    files = checkpoint.list_checkpoints(played.folder.checkpoints_path("still"))
    first, last = (checkpoint.load(file).state["network"] for file in (files[0], files[-1]))
    assert checkpoint.load(files[-1]).update == 2000 // 64
    assert all(np.array_equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize(("algorithm", "worth"), [("qmix", 8), pytest.param("vdn", 7, marks=pytest.mark.long)])
def test_value_decomposition_of_the_two_step_game_is_as_published(algorithm: str, worth: int, tmp_path: Path) -> None:
    """Table 1 of arXiv 1803.11485: explored at random, a sum of values leads to 7, and QMIX finds 8."""
    options = {"exploration_fraction": 0.0, "exploration_final_eps": 1.0, "learning_rate": 2e-3, "tau": 0.02}
    game = {"make": "matrix", "kwargs": {"game": "two_step"}}
    policies = {"p": {"algorithm": algorithm, "options": options}}
    data = one_match(game, policies, seats=[["p", "p"]], ticks=1000, seed=1, match={"lanes": 8})
    games = evaluated(play(data, tmp_path), data, tmp_path, 50)
    assert {game["seats"][0]["return"] for game in games} == {worth}


@pytest.mark.parametrize("algorithm", ["maddpg", "masac"])
@pytest.mark.long
def test_centralized_critics_find_the_joint_optimum(algorithm: str, tmp_path: Path) -> None:
    """The two-step game: valuing actions one player at a time gets 7; the optimum is 8."""
    game, policies = {"make": "matrix", "kwargs": {"game": "two_step"}}, {"p": {"algorithm": algorithm}}
    data = one_match(game, policies, seats=[["p", "p"]], ticks=2500, seed=1, match={"lanes": 8})
    games = evaluated(play(data, tmp_path), data, tmp_path, 50)
    assert np.mean([game["seats"][0]["return"] for game in games]) >= 7.5
