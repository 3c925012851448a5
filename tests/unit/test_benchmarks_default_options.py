"""The benchmark of default options: compared results, claims, and repeated measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # benchmarks are scripts: their folder is where they find each other

import default_options  # noqa: E402
from default_options import ARENA, CPU, ROWS, SB3, content, key_of, main  # noqa: E402


def result(score: float, cpu: float, steps: int = 100_000) -> dict[str, Any]:
    return {"figures": {"return": score, CPU: cpu}, "steps": steps}


def test_rows_set_no_options_on_either_side() -> None:
    for row in ROWS.values():
        (policy,) = row.policies.values()
        assert policy.keys() == {"algorithm"}
        assert row.peer is not None
        assert row.peer.options == {}


def test_the_peer_has_as_many_environments_as_all_copies_together() -> None:
    assert key_of(ROWS["cartpole-ppo-4x4"], SB3) == "cartpole-ppo-16"
    assert key_of(ROWS["cartpole-ppo-4x4"], ARENA) == "cartpole-ppo-4x4"


def test_row_claims_the_return_and_cpu_seconds_of_the_peer() -> None:
    rows = {
        "cartpole-ppo-4": {ARENA: {"1": result(400, 10), "2": result(300, 30)}, SB3: {"1": result(350, 20)}},
        "cartpole-ppo-1x4": {ARENA: {"1": result(200, 30)}},
    }
    promises = {one["claim"]: one for one in content(rows)["promises"]}
    assert {claim: (one["limit"], one["holds"]) for claim, one in promises.items()} == {
        "cartpole-ppo-4: 100,000 steps, 1 seed, return": (350, True),
        "cartpole-ppo-4: 100,000 steps, 1 seed, CPU s, arena / Stable-Baselines3": (1, True),
        "cartpole-ppo-1x4: 100,000 steps, 1 seed, return": (350, False),
        "cartpole-ppo-1x4: 100,000 steps, 1 seed, CPU s, arena / Stable-Baselines3": (1, False),
    }


def test_existing_results_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str, int]] = []

    def measure(row: Any, side: str, seed: int) -> dict[str, Any]:
        done.append((row.name, side, seed))
        return result(len(done), 1.0)

    monkeypatch.setattr(default_options, "measure", measure)
    asked = [
        "--rows",
        "cartpole-a2c-4,cartpole-a2c-1x4",
        "--results",
        str(tmp_path),
        "--copies",
        "1,4",
        "--lanes",
        "4,1",
    ]
    assert main([*asked, "--seeds", "1"]) == 0
    first = [("cartpole-a2c-4", ARENA, 1), ("cartpole-a2c-4", SB3, 1)]
    assert done == [
        *first,
        ("cartpole-a2c-1x4", ARENA, 1),
        ("cartpole-a2c-4x4", ARENA, 1),
        ("cartpole-a2c-4x4", SB3, 1),
    ]
    assert main([*asked, "--seeds", "1,2", "--copies", "1"]) == 0
    assert done[5:] == [("cartpole-a2c-4", ARENA, 2), ("cartpole-a2c-4", SB3, 2)]
    assert main([*asked, "--seeds", "1", "--copies", "1", "--sides", ARENA, "--anew"]) == 0
    assert done[7:] == [("cartpole-a2c-4", ARENA, 1)]
    kept = json.loads((tmp_path / "default_options.json").read_text())["rows"]["cartpole-a2c-4"]
    assert {side: list(seeds) for side, seeds in kept.items()} == {ARENA: ["1", "2"], SB3: ["1", "2"]}
    assert kept[ARENA]["1"]["figures"]["return"] == 8
