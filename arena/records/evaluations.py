"""`evaluations.jsonl`: the results of evaluations, a line per evaluation and policy; and their part of a result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any

import msgspec

from arena.records import checksums
from arena.records.figures import Figures
from arena.records.folder import RunFolder
from arena.records.formats import EvaluationLine, read_document
from arena.records.journal import Journal, JournalReader
from arena.records.journal import forget_after as cut_after
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Score, Scoreboard


def evaluated(folder: RunFolder) -> set[int]:
    """The ticks at which the policies were evaluated, or a user's function was called without games."""
    ticks = {line.ticks for line in JournalReader(folder.evaluations).lines(EvaluationLine, missing_ok=True)}
    alone = (path.parent for path in folder.custom_path(0).parent.parent.glob("tick-*/custom.json"))
    return ticks | {int(path.name.removeprefix("tick-")) for path in alone if not RunFolder(path).config.exists()}


def lines_at(folder: RunFolder, tick: int) -> list[EvaluationLine]:
    """The lines of the evaluation at a tick."""
    lines = JournalReader(folder.evaluations).lines(EvaluationLine, missing_ok=True)
    return [line for line in lines if line.ticks == tick]


def keep(folder: RunFolder, tick: int, scoreboard: Scoreboard) -> None:
    """Appends the results of the policies that have played."""
    played = {name: score for name, score in scoreboard.policies.items() if score.episodes}
    with closing(Journal(folder.evaluations)) as journal:
        journal.extend([line_of(tick, name, score) for name, score in played.items()])
        journal.sync()


def forget_after(folder: RunFolder, tick: int) -> None:
    """Removes all results after the boundary from which the run continues."""
    for path in folder.custom_path(0).parent.parent.glob("tick-*/custom.json"):
        if int(path.parent.name.removeprefix("tick-")) > tick:
            checksums.drop(path)
            path.unlink()
    cut_after(folder.evaluations, EvaluationLine, lambda line: line.ticks, tick)


def line_of(tick: int, name: str, score: Score) -> EvaluationLine:
    """The line about a policy in an evaluation."""
    games = score.games.count
    return EvaluationLine(
        ticks=tick,
        policy=name,
        episodes=score.episodes,
        return_=score.returns.mean,
        return_std=score.returns.deviation,
        length=score.lengths.mean,
        games=games,
        wins=score.wins / games if games else None,
        draws=score.draws / games if games else None,
        losses=score.losses / games if games else None,
    )


def evaluation_of(folder: RunFolder, tick: int, policies: Collection[str]) -> dict[str, Any] | None:
    """The numbers of the evaluation at a tick for a result with keys of these policies; None if it is not on record."""
    if tick not in evaluated(folder):
        return None
    checksums.check_folder(folder.evaluation_path(tick))
    found = numbers_of([RunFolder(folder.evaluation_path(tick))], lines_at(folder, tick), policies)
    custom = folder.custom_path(tick)  # what the evaluation's function has measured
    return {**found, "custom": read_document(custom, dict[str, Any]) if custom.exists() else {}}


def numbers_of(
    folders: Sequence[RunFolder], lines: Sequence[EvaluationLine], policies: Collection[str]
) -> dict[str, Any]:
    """The numbers of an evaluation: of its games, which are in these folders, and of its lines."""
    figures = Figures()
    for folder in folders:
        episodes = JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True)
        figures.add([line for line in episodes if not line.cut])
    by_policy: dict[str, dict[str, Any]] = {line.policy: msgspec.to_builtins(line) for line in lines}
    return {
        **figures.rewards(),
        "episodes_this_iter": figures.count,
        **figures.returns(policies),
        "policies": {
            policy: {key: value for key, value in line.items() if key not in ("ticks", "policy")}
            for policy, line in by_policy.items()
        },
        "custom_metrics": figures.metrics(),
        "policy_custom_metrics": figures.policy_metrics(policies),
        "custom": {},
    }
