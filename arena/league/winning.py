"""Who has won the knockouts of a run: read from its folder, by the rule that makes the next round."""

from __future__ import annotations

from functools import partial

from arena.config.league import LeagueConfig
from arena.config.schema import Config
from arena.league import league
from arena.league.league import Champion
from arena.league.reading import read_played, read_results
from arena.league.results import Results
from arena.records import boundary as boundaries
from arena.records import rounds as records
from arena.records.folder import RunFolder


def knockouts_won(folder: RunFolder, config: Config, *, reached: int | None = None) -> list[Champion]:
    """Who has won those that are over, in the order of the configuration.

    Args:
        folder: of a run, which may be under way.
        config: of the run.
        reached: the tick up to which it has played; None: the newest from which it can go on.

    Raises:
        ConfigError: a file is missing, damaged, or of another version of the arena.
    """
    if not league.over(config, config.rounds):
        return []
    tick = (boundaries.newest_tick(folder) or 0) if reached is None else reached
    known = records.read(folder) or [league.first_round(config)]  # a run of one round has not written it down
    whole = [played for played in known if played.start + config.ticks <= tick]
    if not league.over(config, len(whole)):
        return []
    window = (config.league or LeagueConfig()).window
    results = partial(_results, folder, window)
    return league.champions(config, whole, results, read_played(folder, last=len(whole) - 1))


def _results(folder: RunFolder, window: int | None, number: int) -> Results:
    return read_results(folder, window=window, last=number)
