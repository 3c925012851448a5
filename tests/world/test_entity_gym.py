"""The example games of the package `entity-gym`, unmodified, beside the package's own `EnvList`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
