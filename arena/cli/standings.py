"""`arena standings`: who is best, at the end of a run, now, or at an earlier tick."""

from __future__ import annotations

import argparse
import json

from arena.cli.arguments import non_negative_int
from arena.records.faults import fault_of, fault_text
from arena.records.journal import JournalReader
from arena.records.lock import has_failed
from arena.records.outcome import WITHOUT_OPPONENT
from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The ratings of all players of a run, which may be under way. With --at they are those of an earlier moment, "
        "by what is known now: policies as they were at that tick, and the snapshots that had joined by then."
    )
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--at", type=non_negative_int, metavar="TICK", help="the tick (default: the newest)")
    parser.add_argument("--pairs", action="store_true", help="also all games of each pair of players")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; returns the exit status."""
    from arena.league.metagame.payoff import pairs
    from arena.opened import Run, rated
    from arena.terminal.standings import league_lines, meta_game_data, pair_lines, payoffs_of, table_data

    run, at = Run(arguments.run), arguments.at
    table, counted, tick = rated(run, at)
    timeline = counted.timeline if at is None else counted.timeline.until(at)
    if arguments.json:
        data = {
            "players": table_data(table.tables),
            "tick": tick,
            "games": counted.results.games,
            "prior": table.prior,
            "without_winner": [*table.without_winner],
            "contradictions": [pair._asdict() for pair in table.contradictions],
            "one_side": table.one_side,
            "unmet": [*table.unmet],
            "narrow": None if table.narrow is None else table.narrow._asdict(),
            "payoffs": [pair._asdict() for pair in pairs(payoffs_of(table, timeline))],
            "meta_game": meta_game_data(table, timeline, run.config),
        }
        say(json.dumps(data, indent=2))
    elif table.tables:
        say("\n".join(league_lines(table)))
        if arguments.pairs:
            say("\n".join(["", *pair_lines(payoffs_of(table, timeline))]))
    else:
        line = f"no two players have met in a game that counts{'' if table.external else f'; {WITHOUT_OPPONENT}'}"
        say("\n".join([line, *table.without_winner]))
    if has_failed(run.folder) and not arguments.json:
        faults = [*JournalReader(run.folder / "faults.jsonl").made(fault_of, missing_ok=True)]
        say("; ".join(["the run has failed", *map(fault_text, faults[-1:])]))
    return 0
