"""`evaluations.jsonl`: the results of evaluations, a line per evaluation and policy."""

from __future__ import annotations

from arena.records import checksums
from arena.records.folder import RunFolder
from arena.records.formats import EvaluationLine
from arena.records.journal import Journal, JournalReader
from arena.records.journal import forget_after as cut_after
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
    journal = Journal(folder.evaluations)
    try:
        journal.extend([line_of(tick, name, score) for name, score in played.items()])
        journal.sync()
    finally:
        journal.close()


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
