"""A population on CartPole: copying the best finds a learning rate that solves it."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.config import yaml as yaml_text
from arena.records.journal import JournalReader

pytestmark = [pytest.mark.slow, pytest.mark.long]

CONFIG = Path(__file__).parents[2] / "configs" / "evolution.yaml"
ROUNDS, TICKS = 4, 500


def returns(config: dict[str, Any], path: Path) -> dict[str, float]:
    """Per policy the mean return of the episodes that have ended in the last quarter of a run."""
    path.mkdir()
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["train", str(path / "config.yaml"), "--ranks", "1", "--run-dir", str(path / "run")]) == 0
    found: dict[str, list[float]] = {}
    for line in JournalReader(path / "run" / "episodes.jsonl"):
        if line["tick"] > (ROUNDS - 1) * TICKS and not line.get("cut"):
            for seat in line["seats"]:
                found.setdefault(seat["policy"], []).append(seat["return"])
    return {name: statistics.fmean(values) for name, values in found.items()}


def test_evolution_improves_the_worst_and_keeps_the_best(tmp_path: Path) -> None:
    shipped = yaml_text.load(CONFIG.read_text(), source=CONFIG.name)
    population = returns({**shipped, "rounds": ROUNDS, "ticks": TICKS}, tmp_path / "population")
    alone = {key: value for key, value in shipped.items() if key not in ("rounds", "league")}
    plain = returns({**alone, "ticks": ROUNDS * TICKS}, tmp_path / "plain")
    assert len(population) == len(plain) == 4
    assert max(population.values()) >= statistics.median(plain.values())
    assert min(population.values()) > 2 * min(plain.values())
