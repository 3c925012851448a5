"""What a curriculum, or a program by `Trainer.change`, has changed in a run: the lines of `changes.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from arena.config import Config, overrides, parse_config
from arena.config.fields import plain
from arena.config.named import check_texts
from arena.records.boundary import newest_tick
from arena.records.folder import RunFolder
from arena.records.formats import ChangeLine
from arena.records.journal import JournalReader
from arena.registry import EXTERNAL

_OF_GAMES = re.compile(r"envs\..+\.kwargs\..|matches(\[[0-9]+\]|\.[0-9]+)\.env_kwargs\..")


def lines_of(folder: RunFolder) -> list[ChangeLine]:
    """The lines of `changes.jsonl`; raises ConfigError if the file is damaged."""
    return list(JournalReader(folder.changes).lines(ChangeLine, missing_ok=True))


def check_recorded(lines: Sequence[ChangeLine], config: Config, tick: int, *, source: str) -> None:
    """Refuses changes on record up to a tick that name what config.yaml does not name; `source`: their file.

    They are read from a file; what a curriculum or a program asks for while it runs may name anything.
    """
    programs = any(env.make in EXTERNAL for env in config.envs.values())  # which a simulator's arguments start
    free = config.curriculum is not None and not programs
    for line in lines:
        for key, value in line.set.items() if line.tick <= tick else ():
            check_texts(value, config, free=free, path=key, source=source)


def with_newest_games(config: Config, folder: RunFolder, set_by_user: Sequence[str] = ()) -> Config:
    """The configuration of a run with the newest arguments of its games, and over them what the user sets.

    Raises:
        ConfigError: the changes are damaged, or do not fit the configuration.
    """
    tick, source, values = newest_tick(folder) or 0, str(folder.changes), dict[str, Any]()
    for line in lines_of(folder):
        for key in filter(_OF_GAMES.match, line.set if line.tick <= tick else ()):
            values.pop(key, None)  # in the order of the last changes: `kwargs.a` has `kwargs.a.b` in it
            values[key] = line.set[key]
    if not values:
        return config
    check_recorded([ChangeLine(tick=tick, set=values)], config, tick, source=source)
    return parse_config(
        overrides.apply_values(plain(config), values, source=source), source=source, overrides=set_by_user
    )
