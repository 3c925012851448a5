"""The status of a run, from its folder: whether a process is writing to it, and how the run has ended."""

from __future__ import annotations

from enum import Enum

from arena.config import Config
from arena.plan.plan import UNBOUNDED_TICKS
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import round_of
from arena.records.journal import JournalReader
from arena.records.lock import has_failed, is_left, is_locked
from arena.records.result_file import read_results


class RunStatus(Enum):
    """Under way, finished, ended in good order with ticks left, ended with an error, or killed."""

    UNDER_WAY = "under way"
    FINISHED = "finished"
    ENDED_EARLY = "ended early"
    FAILED = "failed"
    KILLED = "killed"


def planned_ticks(config: Config) -> int | None:
    """Ticks of each match in all rounds; None if the number of episodes decides, as in a tournament."""
    return config.ticks * config.round_count if config.ticks < UNBOUNDED_TICKS else None


def run_status(folder: RunFolder, config: Config, *, played: int) -> RunStatus:
    """The status of a run that has played so many ticks of each match."""
    planned = planned_ticks(config)
    if is_locked(folder.path):
        return RunStatus.UNDER_WAY
    if has_failed(folder.path):
        return RunStatus.FAILED
    if planned is not None and played >= planned:
        return RunStatus.FINISHED
    if is_left(folder.path):
        return RunStatus.KILLED
    if planned is not None and any(result["done"] for result in read_results(folder.path)[-1:]):
        return RunStatus.FINISHED
    if planned is None:
        # All batches of a tournament that have begun were played to their ends; an evaluation counts as whole.
        reached = boundary.newest_tick(folder) or 0
        several = config.round_count > 1 and folder.rounds.exists()
        batches = JournalReader(folder.rounds).made(round_of) if several else ()
        over = all(batch.start < reached for batch in batches)
    elif config.round_count == 1 or not played or played % config.ticks:
        over = False
    else:  # a league may have ended before its last round
        from arena.league import rounds_file
        from arena.league.next_round import is_over  # importing the ratings is slow, and few runs end so
        from arena.league.read_results import read

        known = rounds_file.read(folder)
        over = len(known) == played // config.ticks and is_over(config, known, read(folder).timeline)
    return RunStatus.FINISHED if over else RunStatus.ENDED_EARLY
