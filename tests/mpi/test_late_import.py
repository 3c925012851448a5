"""torch that is imported in `run()` is seeded and has one thread, as if it had been there from the beginning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import trained

CONFIG = one_match(
    {"make": "gymnasium:CartPole-v1"}, {"blue": {"algorithm": "late_import:ImportsLate"}}, ticks=20, checkpoint_every=10
)


def legs(folder: Path, **changes: str) -> list[dict[str, Any]]:
    """The records of the worker, leg by leg."""
    folder.mkdir()
    trained(folder, CONFIG, ranks=2, **changes)
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


def test_late_torch_has_one_thread_and_the_same_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    first = legs(tmp_path / "first")
    again = legs(tmp_path / "again", OMP_NUM_THREADS="3")
    assert [(leg["threads"], leg["limit"]) for leg in first] == [(1, "1"), (1, "1")]
    assert [(leg["threads"], leg["limit"]) for leg in again] == [(1, "3"), (1, "3")]
    assert [leg["drawn"] for leg in first] == [leg["drawn"] for leg in again]
    assert first[0]["drawn"] != first[1]["drawn"], "each leg has a stream of its own"
