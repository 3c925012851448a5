"""Fixtures of all tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _few_samples_of_payoffs() -> Iterator[None]:
    """Standings and reports solve a linear program for each sample of the payoffs: 200 of them take 4 s of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.league.metagame.measures.SAMPLES", 4)
        yield
