"""Two rows of the learning benchmark, shortened: that they learn, and that the benchmark measures it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import learning
from learning_rows import ROWS

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "steps", "least", "rise"),
    [
        ("cartpole-ppo", 30_000, 150.0, 3),
        ("rock-ppo", 40_000, 6.5, 3),
        ("touchdown-impala-4", 50_000, 0.9, 0.2),  # from samples that are up to eight updates old
    ],
)
def test_a_row_learns_in_a_part_of_its_steps(name: str, steps: int, least: float, rise: float) -> None:
    found = learning.measure(replace(ROWS[name], steps=steps), 1, peers=False)
    goal = ROWS[name].goals[0].claim
    assert found["figures"][goal] >= least, found["figures"]
    assert found["figures"]["episodes"] >= 50
    curve = [point for point in found["curve"] if point is not None]
    assert curve[-1] > curve[0] + rise, curve
