"""The part of a result that says how the policies did in the evaluation at its boundary."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from arena.records import evaluations
from arena.records.episode import episode_of
from arena.records.folder import RunFolder
from arena.records.formats import EpisodeLine, EvaluationLine
from arena.records.journal import JournalReader
from arena.results.figures import Figures


def evaluation_of(folder: RunFolder, tick: int, policies: Collection[str]) -> dict[str, Any] | None:
    """The numbers of the evaluation at a tick, from its files; None if it is not on record.

    Args:
        folder: of the run.
        tick: of the boundary.
        policies: the names of the policies that have keys in a result.
    """
    if tick not in evaluations.evaluated(folder):
        return None
    figures = Figures()
    episodes = JournalReader(RunFolder(folder.evaluation_path(tick)).episodes)
    rows = [episode_of(line) for line in episodes.lines(EpisodeLine, missing_ok=True) if not line.cut]
    figures.add(rows)
    lines = [
        line for line in JournalReader(folder.evaluations).lines(EvaluationLine, missing_ok=True) if line.ticks == tick
    ]
    return {
        **figures.rewards(),
        "episodes_this_iter": figures.count,
        **figures.returns(policies),
        "policies": {line.policy: _numbers(line) for line in lines},
        "custom_metrics": figures.metrics(),
        "custom": {},
    }


def _numbers(line: EvaluationLine) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(line)
    return {key: value for key, value in found.items() if key not in ("ticks", "policy")}
