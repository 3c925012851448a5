"""`evaluations.jsonl`: how the policies did when they were evaluated, a line per evaluation and policy."""

from __future__ import annotations

from typing import Any

from arena.records.atomic import replacing
from arena.records.folder import RunFolder
from arena.records.journal import Journal, JournalReader, kept_lines
from arena.records.scoreboard import Score, Scoreboard


def evaluated(folder: RunFolder) -> set[int]:
    """The ticks at which the policies were evaluated."""
    return {line["ticks"] for line in JournalReader(folder.evaluations)} if folder.evaluations.exists() else set()


def keep(folder: RunFolder, tick: int, scoreboard: Scoreboard) -> None:
    """Writes down how the policies did that have played."""
    played = {name: score for name, score in scoreboard.policies.items() if score.episodes}
    journal = Journal(folder.evaluations)
    try:
        journal.extend([_line(tick, name, score) for name, score in played.items()])
        journal.sync()
    finally:
        journal.close()


def forget_after(folder: RunFolder, tick: int) -> None:
    """Forgets what came after a boundary, from which the run is taken up again."""
    if not folder.evaluations.exists():
        return
    kept = b"".join(raw for raw, _ in kept_lines(folder.evaluations, keep=lambda line: line["ticks"] <= tick))
    with replacing(folder.evaluations) as file:
        file.write(kept)


def _line(tick: int, name: str, score: Score) -> dict[str, Any]:
    """Of a policy; wins, draws and losses are shares of the `games` that had a winner or were drawn."""
    games = score.games.count
    return {
        "ticks": tick,
        "policy": name,
        "episodes": score.episodes,
        "return": score.returns.mean,
        "return_std": score.returns.deviation,
        "length": score.lengths.mean,
        "games": games,
        "wins": score.wins / games if games else None,
        "draws": score.draws / games if games else None,
        "losses": score.losses / games if games else None,
    }
