"""Matches that overlap two halves of their lanes, over real links of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from run_cli import alone, differing, episodes, trained

PPO = {"algorithm": "ppo", "options": {"n_steps": 50, "minibatch_size": 64}}
DRAWN = {"make": "games:RandomLengths"}
TOUCHDOWN = {"make": "touchdown", "kwargs": {"max_steps": 12}}


def duel(pipeline: int, *, transport: str = "auto", blue: Any = None, env: Any = DRAWN, copies: int = 1) -> Any:
    return {
        "name": "duel",
        "seed": 4,
        "ticks": 300,
        "transport": transport,
        "envs": {"game": env},
        "policies": {"blue": blue or {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 5, "copies": copies, "pipeline": pipeline}],
    }


@pytest.mark.parametrize("transport", [pytest.param("auto", marks=pytest.mark.long), "mpi"])
def test_overlapped_match_over_mpi_equals_a_plain_one(transport: str, tmp_path: Path) -> None:
    one, many = alone(tmp_path, duel(1)), trained(tmp_path, duel(2, transport=transport))
    assert len(episodes(one)) > 100
    assert episodes(many) == episodes(one)


@pytest.mark.parametrize(("ranks", "copies"), [(4, 1), pytest.param(7, 2, marks=pytest.mark.long)])
def test_overlapped_learner_over_mpi_equals_one_process(ranks: int, copies: int, tmp_path: Path) -> None:
    data = duel(2, blue=PPO, env=TOUCHDOWN, copies=copies)
    assert differing(trained(tmp_path, data, ranks=ranks), alone(tmp_path, data)) == []
