"""`arena standings`: who is best, at the end of a run, now, or at an earlier tick."""

from __future__ import annotations

import argparse
import json

from arena.cli.arguments import non_negative_int
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The ratings of all players of a run, which may be under way. With --at they are those of an earlier moment, "
        "by what is known now: policies as they were at that tick, and the snapshots that had joined by then."
    )
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--at", type=non_negative_int, metavar="TICK", help="the tick (default: the newest)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; returns the exit status."""
    from arena.config import load_config
    from arena.league.ratings.standings import standings_at
    from arena.league.read_results import read
    from arena.roles.status import planned_ticks
    from arena.terminal.standings import league_lines, meta_game_data, table_data

    folder, at = RunFolder.existing(arguments.run), arguments.at
    config, found = load_config(folder.config), read(folder, people=True)
    end = found.timeline.end
    if at is not None:
        if planned_ticks(config) is None:
            raise ConfigError(
                f"found {at}, but no player of this run learns, so that strengths do not depend on ticks; leave it out",
                path="--at",
            )
        if found.first is None or not found.first <= at <= end:
            games = (
                "there are no games yet" if found.first is None else f"its games are from tick {found.first} to {end}"
            )
            raise ConfigError(f"found {at}, but {games}", path="--at", source=str(folder.path))
    counted = found if at is None else read(folder, until=at, people=True)
    cut = {} if planned_ticks(config) is None else counted.cut
    table = standings_at(found.timeline, counted.timeline, cut, config, at=at)
    table = table._replace(without_winner=found.without_winner)
    if arguments.json:
        data = {
            "players": table_data(table.tables),
            "tick": end if at is None else at,
            "games": counted.results.games,
            "prior": table.prior,
            "without_winner": [*table.without_winner],
            "narrow": None if table.narrow is None else table.narrow._asdict(),
            **meta_game_data(table, counted.timeline if at is None else counted.timeline.until(at), config),
        }
        say(json.dumps(data, indent=2))
    elif table.tables:
        say("\n".join(league_lines(table)))
    else:
        say("\n".join(["no two players have met in a game that counts", *table.without_winner]))
    return 0
