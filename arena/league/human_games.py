"""Rated games of people against the policies of a run: lines of `human_games.jsonl`, which the standings count.

A policy that learns is rated at the tick at which it had its weights, so that all opponents of a game have one tick. A
person is a player whose strength does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from arena.config.schema import Config
from arena.errors import ConfigError
from arena.league.ratings.standings import populations_of
from arena.league.read_results import GameReader, read
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import HumanGameLine
from arena.records.journal import Journal


class RatedGame:
    """A game that is going to be rated, of one person and these players of a run, the newest or as `blue@5000`.

    Raises:
        ConfigError: it cannot be rated.
    """

    def __init__(self, folder: RunFolder, config: Config, *, people: int, opponents: Sequence[str]) -> None:
        timeline = read(folder).timeline
        if people != 1 or not opponents:
            raise ConfigError("a rated game has one person, and policies in the other seats")
        if populations_of(config, timeline.players) is not None:
            raise ConfigError(
                "this run rates two populations that only meet each other, and a person belongs to none of them; "
                "play without a rating"
            )
        newest = boundary.newest_tick(folder) or 0
        self._folder, self._config = folder, config
        self._names: dict[str, str] = {}  # in the ratings; the strength of a snapshot is that of its policy then
        ticks = set()
        for name in opponents:
            policy, _, at = name.partition("@")
            fixed = name in timeline.snapshots or policy not in config.learners
            self._names[name] = name if fixed else policy
            if not fixed:
                ticks.add(int(at) if at else newest)
        if len(ticks) > 1:
            raise ConfigError("the opponents of a rated game are of one tick; choose them so, or play without a rating")
        self._tick = min(ticks, default=newest)

    def keep(self, played: RunFolder) -> str:
        """Adds the game, whose records are in a folder, to the ratings; returns how that went."""
        games = GameReader(played, self._config, keeps_played=True)
        games.read()
        found = [one for of_match in games.played for match in of_match.values() for one in match]
        if not found:
            return "The game does not count for the ratings: it had no winner."
        lines = []
        for *sides, outcome in found:
            first, second = (tuple(self._names.get(name, name) for name in side) for side in sides)
            line = HumanGameLine(tick=self._tick, first=first, second=second, outcome=outcome, folder=played.path.name)
            lines.append(line)
        with closing(Journal(self._folder.human_games)) as journal:
            journal.extend(lines)
        return "The game counts for the ratings."
