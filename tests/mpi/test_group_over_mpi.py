"""A group's averages have the same bits over every transport, in any placement, and after any member has left."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from run_cli import TESTS, Ended, arena, by_hand, left_behind, wait_for, write


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def learners(algorithm: str = "odd_workers:Averages", **policy: Any) -> dict[str, Any]:
    """Four workers of one policy in two matches: seven processes."""
    return {
        "name": "learners",
        "seed": 5,
        "ticks": 60,
        "envs": {"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}},
        "policies": {"blue": {"algorithm": algorithm, **policy}},
        "matches": [{"env": "game", "seats": ["blue", "blue"], "copies": 2}],
    }


def digests(ended: Ended, run: Path) -> list[float]:
    """The averages of the members, update by update."""
    assert ended.code == 0, ended.err
    return [json.loads(line)["digest"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The averages in one process."""
    folder = tmp_path_factory.mktemp("one")
    ended = arena(folder, "train", write(folder, learners()), "--run-dir", "run", "--ranks", "1")
    found = digests(ended, folder / "run")
    assert len(set(found)) == len(found) == 12
    return found


@pytest.mark.parametrize("transport", ["auto", pytest.param("mpi", marks=pytest.mark.long)])
def test_averages_are_bit_equal_on_1_3_and_7_ranks(transport: str, expected: list[float], tmp_path: Path) -> None:
    config = write(tmp_path, {**learners(), "transport": transport})
    few = arena(tmp_path, "train", config, "--run-dir", "few", "--ranks", "3")
    many = arena(tmp_path, "train", config, "--run-dir", "many")
    assert expected == digests(few, tmp_path / "few") == digests(many, tmp_path / "many")


@pytest.mark.parametrize("elsewhere", [pytest.param("2", marks=pytest.mark.long), "3,6"])
def test_averages_are_bit_equal_on_two_nodes(elsewhere: str, expected: list[float], tmp_path: Path) -> None:
    program, config = [sys.executable, str(TESTS / "cli_on_other_node.py")], write(tmp_path, learners())
    two = by_hand(tmp_path, 7, "train", config, "--run-dir", "two", program=program, RANKS_ELSEWHERE=elsewhere)
    assert expected == digests(two, tmp_path / "two")
