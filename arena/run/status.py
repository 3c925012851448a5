"""What has become of a run, as its folder tells: whether somebody writes there, and how the last one has ended."""

from __future__ import annotations

from enum import Enum

import msgspec

from arena.config import Config
from arena.config.league import LeagueConfig
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.lock import is_held, is_left
from arena.run.leg import UNBOUNDED_TICKS


class RunStatus(Enum):
    """Of a run: it goes on, all of it was played, it has ended in order with ticks left, or it was killed."""

    UNDER_WAY = "under way"
    FINISHED = "finished"
    ENDED_EARLY = "ended early"
    KILLED = "killed"


class _Batch(msgspec.Struct, frozen=True):
    """What has to be known of a line of `rounds_file.jsonl`."""

    start: int


def planned_ticks(config: Config) -> int | None:
    """Of each match, in all rounds; None where the number of episodes decides, as in a tournament."""
    return config.ticks * config.rounds if config.ticks < UNBOUNDED_TICKS else None


def run_status(folder: RunFolder, config: Config, *, played: int) -> RunStatus:
    """The condition of a run.

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
    over = _is_whole(folder, config) if planned is None else _is_decided(folder, config, played)
    return RunStatus.FINISHED if over else RunStatus.ENDED_EARLY


def _is_whole(folder: RunFolder, config: Config) -> bool:
    """Whether all batches of a tournament that have begun were played to their ends; of an evaluation nobody knows."""
    if config.rounds == 1 or not folder.rounds.exists():
        return True
    reached = boundary.newest_tick(folder) or 0
    return all(batch.start < reached for batch in JournalReader(folder.rounds).structs(_Batch))


def _is_decided(folder: RunFolder, config: Config, played: int) -> bool:
    """Whether a league has ended with a round after which there was nothing left to find out."""
    if config.rounds == 1 or not played or played % config.ticks:
        return False
    from arena.league import rounds_file
    from arena.league.next_round import is_over  # what rates players takes its time, and few runs end so
    from arena.league.read_results import read_results

    known = rounds_file.read(folder)
    results = read_results(folder, window=(config.league or LeagueConfig()).window)
    return len(known) == played // config.ticks and is_over(config, known, results)
