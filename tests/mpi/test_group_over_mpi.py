"""A group's averages have the same bits over every transport, in any placement, and after any member has left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import TESTS, alone, by_hand, trained, write


def learners(transport: str = "auto") -> dict[str, Any]:
    """Four workers of one policy in two matches: seven processes."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    given = {"seats": ["blue", "blue"], "match": {"copies": 2}, "seed": 5, "transport": transport}
    return one_match(game, {"blue": {"algorithm": "odd_workers:Averages"}}, ticks=60, **given)


def digests(run: Path) -> list[float]:
    """The averages of the members, update by update: lines of several workers stand in the order of their arrival."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["digest"] for line in sorted(lines, key=lambda line: line["update"])]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The averages in one process."""
    found = digests(alone(tmp_path_factory.mktemp("one"), learners()))
    assert len(set(found)) == len(found) == 12
    return found


@pytest.mark.parametrize(
    ("ranks", "transport"),
    [(7, "auto"), *(pytest.param(*row, marks=pytest.mark.long) for row in ((3, "auto"), (3, "mpi"), (7, "mpi")))],
)
def test_averages_are_bit_equal_on_any_ranks(ranks: int, transport: str, expected: list[float], tmp_path: Path) -> None:
    assert digests(trained(tmp_path, learners(transport), ranks=ranks)) == expected


@pytest.mark.parametrize(
    ("ranks", "elsewhere"),
    [(3, "2"), *(pytest.param(*row, marks=pytest.mark.long) for row in ((7, "2"), (7, "3,6")))],
)
def test_averages_are_bit_equal_on_two_nodes(ranks: int, elsewhere: str, expected: list[float], tmp_path: Path) -> None:
    program, config = [sys.executable, str(TESTS / "cli_on_other_node.py")], write(tmp_path, learners())
    two = by_hand(tmp_path, ranks, "train", config, "--run-dir", "run", program=program, RANKS_ELSEWHERE=elsewhere)
    assert two.code == 0, two.err
    assert digests(tmp_path / "run") == expected
