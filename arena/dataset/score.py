"""Normalized scores: how good policies that learn offline are, on a scale that games have in common.

    score = 100 (return - random) / (expert - random)                    Fu et al. 2020, arXiv 2004.07219, section 4

0 is as good as random actions, 100 as good as an expert. As the function of an evaluation:

    evaluation: {every: 10000, function: "arena.dataset.score:normalized", options: {random: 20, expert: 490}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord


def normalized_score(value: float, *, random: float, expert: float) -> float:
    """The score of a mean return `value`, by the mean returns of random actions and of an expert."""
    if not random < expert:
        raise ConfigError(f"an expert's return, {expert}, has to be above that of random actions, {random}")
    return 100 * (value - random) / (expert - random)


def normalized(
    folder: Path, tick: int, checkpoints: Mapping[str, Path], *, random: float, expert: float
) -> dict[str, dict[str, float]]:
    """The score of each policy in the games of an evaluation, by name: `evaluation/custom/normalized_score/blue`."""
    returns: dict[str, list[float]] = {}
    for line in JournalReader(RunFolder(folder).episodes).lines(EpisodeRecord, missing_ok=True):
        for seat in () if line.cut else line.seats:
            if seat.return_ is not None:
                returns.setdefault(seat.policy, []).append(seat.return_)
    scores = {
        name: normalized_score(float(np.mean(values)), random=random, expert=expert) for name, values in returns.items()
    }
    return {"normalized_score": scores}
