"""The example games of the package `entity-gym`, unmodified, beside the package's own `EnvList`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ARENA_PEERS_UNITS", ROOT / ".venv-peers-units/bin/python"))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_games_of_entity_gym_are_played_as_by_the_package_itself() -> None:
    assert PYTHON.exists(), f"{PYTHON} has the package: `make .venv-peers-units/.ready`, or set ARENA_PEERS_UNITS"
    ended = subprocess.run(
        [PYTHON, ROOT / "tests/support/entity_gym_games.py", "200"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    games = [line.partition(":")[0] for line in ended.stdout.splitlines()]
    assert len(games) == 16  # 13, and three of them once more with other arguments
    assert all(line.endswith("equal") for line in ended.stdout.splitlines())


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("game", "ticks", "options", "least"),
    [
        ("not_hotdog:NotHotdog", 1024, {"learning_rate": 1e-3, "ent_coef": 0.02, "n_epochs": 4}, 0.99),
        ("cherry_pick:CherryPick", 7812, {"ent_coef": 0.01, "n_epochs": 3, "transformer": {"d_model": 32}}, 0.95),
    ],
)
def test_games_of_entity_gym_are_learned_unmodified(
    game: str, ticks: int, options: dict[str, Any], least: float, tmp_path: Path
) -> None:
    usual = {"learning_rate": 2e-3, "learning_rate_schedule": "linear", "n_steps": 16, "minibatch_size": 128}
    config = {
        "name": "task",
        "seed": 1,
        "ticks": ticks,
        "envs": {"game": {"make": f"entity_gym.examples.{game}"}},
        "policies": {"player": {"algorithm": "ppo", "options": {**usual, **options}}},
        "matches": [{"env": "game", "seats": ["player"], "lanes": 32}],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for command in ("train config.yaml --ranks 1 --run-dir run", "evaluate run --episodes 200 --run-dir played"):
        ended = subprocess.run(
            [PYTHON, "-m", "arena", *command.split()], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    (records,) = (tmp_path / "played").glob("*/episodes.jsonl")
    episodes = [json.loads(line) for line in records.read_text().splitlines()]
    returns = [episode["seats"][0]["return"] for episode in episodes if not episode.get("cut")]
    assert len(returns) >= 200 and statistics.fmean(returns) >= least
