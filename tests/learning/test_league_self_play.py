"""Rock-paper-scissors, played once at a time: self-play alone goes round in circles, with past selves it is even.

The strategy of a round is what the policy had learned by its end: the probabilities of its three actions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from arena.cli.main import main
from arena.serving import load_policy

pytestmark = pytest.mark.slow

NOTHING_YET = np.eye(7, dtype=np.float32)[-1]  # what is seen before the only choice: that there was none
ROCK_PAPER_SCISSORS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
ROUNDS, TICKS = 24, 64


def league(*, self_share: float) -> dict[str, Any]:
    """A policy that meets itself in some of its matches, and its past selves in the others."""
    options = {
        "n_steps": 16,
        "minibatch_size": 32,
        "n_epochs": 4,
        "learning_rate": 1e-2,
        "gamma": 0.0,
        "ent_coef": 0.1,
        "normalize_advantage": False,
        "hidden_sizes": [16],
    }
    rule = {"fictitious": {"weighting": "hard", "self": self_share}}
    meets = {"env": "game", "policies": ["learner"], "rule": rule, "copies": 4, "lanes": 8}
    return {
        "seed": 1,
        "rounds": ROUNDS,
        "ticks": TICKS,
        "envs": {"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 1}}},
        "policies": {"learner": {"algorithm": "ppo", "options": options}},
        "matches": [{"matchmaking": meets}],
        "league": {"snapshots": {"keep": ROUNDS}},
    }


def strategies(config: dict[str, Any], path: Path) -> NDArray[np.float64]:
    """Plays the league; the probabilities `[rounds, 3]` of rock, paper and scissors at the end of each round."""
    (path / "league.yaml").write_text(yaml.safe_dump(config))
    run = path / "run"
    assert main(["train", str(path / "league.yaml"), "--ranks", "1", "--run-dir", str(run)]) == 0
    ends = range(TICKS, ROUNDS * TICKS + 1, TICKS)
    policies = [load_policy(run, "learner", tick) for tick in ends]
    return np.exp([policy.log_prob(np.stack([NOTHING_YET] * 3), np.arange(3), None) for policy in policies])


def exploited(played: NDArray[np.float64]) -> float:
    """What the best answer to each strategy wins, in the mean over the second half of the rounds."""
    return float((ROCK_PAPER_SCISSORS @ played[ROUNDS // 2 :].T).max(axis=0).mean())


@pytest.mark.long
def test_self_play_alone_goes_from_rock_to_paper_to_scissors_and_round_again(tmp_path: Path) -> None:
    played = strategies(league(self_share=1.0), tmp_path)
    steps = np.diff(played.argmax(axis=1)) % 3
    assert (steps == 1).sum() >= 15  # five times round and more
    assert (steps == 1).sum() >= 5 * (steps == 2).sum()  # and hardly ever back
    assert exploited(played) >= 0.35


@pytest.mark.long
def test_prioritized_past_selves_reach_the_equilibrium(tmp_path: Path) -> None:
    played = strategies(league(self_share=0.5), tmp_path)
    np.testing.assert_allclose(played.mean(axis=0), 1 / 3, atol=0.05)
    assert exploited(played) <= 0.35
