"""The status of a run, from its folder: whether a process is writing to it, and how the run has ended."""

from __future__ import annotations

from enum import Enum

from arena.config import Config
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import round_of
from arena.records.journal import JournalReader
from arena.records.lock import is_held, is_left
from arena.records.result_file import read_results
from arena.run.leg import UNBOUNDED_TICKS


class RunStatus(Enum):
    """Under way, finished, ended in good order with ticks left, or killed."""

    UNDER_WAY = "under way"
    FINISHED = "finished"
    ENDED_EARLY = "ended early"
    KILLED = "killed"


def planned_ticks(config: Config) -> int | None:
    """Ticks of each match in all rounds; None if the number of episodes decides, as in a tournament."""
    return config.ticks * config.rounds if config.ticks < UNBOUNDED_TICKS else None


def run_status(folder: RunFolder, config: Config, *, played: int) -> RunStatus:
    """The status of a run.

    Args:
        folder: of the run.
        config: of the run.
        played: ticks of each match.

    Raises:
        ConfigError: the records of a league are damaged.
    """
    planned = planned_ticks(config)
    if is_held(folder.path):
        return RunStatus.UNDER_WAY
    if planned is not None and played >= planned:
        return RunStatus.FINISHED
    if is_left(folder.path):
        return RunStatus.KILLED
    if planned is not None and any(result["done"] for result in read_results(folder.path)[-1:]):
        return RunStatus.FINISHED
    over = _is_whole(folder, config) if planned is None else _is_decided(folder, config, played)
    return RunStatus.FINISHED if over else RunStatus.ENDED_EARLY


def _is_whole(folder: RunFolder, config: Config) -> bool:
    """Whether all batches of a tournament that have begun were played to their ends; an evaluation counts as whole."""
    if config.rounds == 1 or not folder.rounds.exists():
        return True
    reached = boundary.newest_tick(folder) or 0
    return all(batch.start < reached for batch in JournalReader(folder.rounds).made(round_of))


def _is_decided(folder: RunFolder, config: Config, played: int) -> bool:
    """Whether a league has ended before its last round, see `next_round.is_over`."""
    if config.rounds == 1 or not played or played % config.ticks:
        return False
    from arena.league import rounds_file
    from arena.league.next_round import is_over  # importing the ratings is slow, and few runs end so
    from arena.league.read_results import read

    known = rounds_file.read(folder)
    results = read(folder).timeline
    return len(known) == played // config.ticks and is_over(config, known, results)
