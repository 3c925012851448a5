"""Poker: the mean strategy of a league by the rule `nash` comes close to an equilibrium of the game."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena.cli.main import main
from command import Command

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.long
@pytest.mark.parametrize(("name", "uniform", "most"), [("kuhn", 11 / 24, 0.03), ("leduc", 2.3736, 0.5)])
def test_mean_strategy_is_hardly_exploitable(
    command: Command, tmp_path: Path, name: str, uniform: float, most: float
) -> None:
    run = tmp_path / "run"
    assert main(["train", str(CONFIGS / f"{name}_nash.yaml"), "--ranks", "1", "--run-dir", str(run)]) == 0
    found = json.loads(command("exploit", run, "--exact", "--json").out)["rounds"]
    curve = [line["exploitability"] for line in found]
    assert max(curve) < uniform * 1.1
    assert min(curve[-5:]) < most
