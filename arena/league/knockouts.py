"""The winners of the knockouts of a run, read from its folder, by the rule that makes the next round."""

from __future__ import annotations

from arena.config.schema import Config
from arena.league import next_round
from arena.league import rounds_file as records
from arena.league.next_round import Champion
from arena.league.read_results import GamesSoFar, read
from arena.league.timeline import Timeline
from arena.records import boundary as boundaries
from arena.records.folder import RunFolder


def knockouts_won(folder: RunFolder, config: Config, *, reached: int | None = None) -> list[Champion]:
    """The winners of the knockouts that are over, in the order of the configuration.

    Args:
        folder: of a run, which may be under way.
        config: of the run.
        reached: the tick up to which it has played; None: the newest from which it can go on.

    Raises:
        ConfigError: a file is missing, damaged, or of another version of the arena.
    """
    if not next_round.over(config, config.rounds):
        return []
    tick = (boundaries.newest_tick(folder) or 0) if reached is None else reached
    known = records.read(folder) or [next_round.first_round(config)]  # a run of one round has not written it down
    whole = [played for played in known if played.start + config.ticks <= tick]
    if not next_round.over(config, len(whole)):
        return []

    def results(number: int) -> Timeline:
        return read(folder, last=number).timeline

    games = GamesSoFar(folder, config, keeps_played=True)
    games.read(len(whole) - 1)
    return next_round.champions(config, whole, results, games.played)
