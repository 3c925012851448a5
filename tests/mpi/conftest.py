"""No test over MPI leaves a process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from run_cli import left_behind, wait_for


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))
