"""The part of a result that says how the policies did in the evaluation at its boundary."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from arena.records import checksums, evaluations
from arena.records.folder import RunFolder
from arena.records.formats import EvaluationLine, read_document
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
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
    lines = evaluations.lines_at(folder, tick)
    checksums.check_folder(folder.evaluation_path(tick))
    found = numbers_of([RunFolder(folder.evaluation_path(tick))], lines, policies)
    return {**found, "custom": custom_of(folder, tick)}


def numbers_of(
    folders: Sequence[RunFolder], lines: Sequence[EvaluationLine], policies: Collection[str]
) -> dict[str, Any]:
    """The numbers of an evaluation.

    Args:
        folders: of its games.
        lines: of the policies.
        policies: the names of the policies that have keys in a result.
    """
    figures = Figures()
    for folder in folders:
        episodes = JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True)
        figures.add([line for line in episodes if not line.cut])
    return {
        **figures.rewards(),
        "episodes_this_iter": figures.count,
        **figures.returns(policies),
        "policies": {line.policy: _numbers(line) for line in lines},
        "custom_metrics": figures.metrics(),
        "custom": {},
    }


def custom_of(folder: RunFolder, tick: int) -> dict[str, Any]:
    """What the evaluation's function has measured; empty if there is none.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder.custom_path(tick)
    return read_document(path, dict[str, Any]) if path.exists() else {}


def _numbers(line: EvaluationLine) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(line)
    return {key: value for key, value in found.items() if key not in ("ticks", "policy")}
