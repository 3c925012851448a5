"""Fixtures of all tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from boards import Served
    from browser import Browser


@pytest.fixture(scope="module", autouse=True)
def _few_samples_of_payoffs() -> Iterator[None]:
    """Standings and reports solve a linear program for each sample of the payoffs: 200 of them take 4 s of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.league.metagame.measures.SAMPLES", 4)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a module."""
    from browser import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Served]:
    """The board of the folder `runs` of a module."""
    from boards import board

    with board(runs) as found:
        yield found
