"""The stages of a run, which are played over the same processes, one plan after the other.

legs           of the current plan, until its last tick or the next evaluation
an evaluation  of frozen copies, in its own folder; then the run continues
a round        of a league, when the one before it is over

The results of the run are opened at its boundary, and continued from stage to stage by the process that leads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import mul
from typing import Any

from arena.errors import listed
from arena.league import rounds_file
from arena.records import evaluations
from arena.records.iterations import Steps
from arena.records.journal import JournalReader
from arena.records.result_file import results_in
from arena.records.results import Listener, RunResults
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.run.evaluation import evaluation_due
from arena.run.resume import rule_met


def next_stage(run: Run, state: RunState) -> Run | None:
    """What a run plays after a boundary: itself, as it continues, or an evaluation; None if it is over."""
    evaluation = evaluation_due(run)
    if evaluation is not None:
        return evaluation
    if run.concluded or rule_met(run, state.results) is not None:
        return None
    if run.leg.start < run.plan.ticks:
        return run
    from arena.run.rounds import next_round  # it imports the ratings, which a run of one round does not need

    return next_round(run, state) or evaluation_due(run, ends=True)


def is_over(run: Run, state: RunState) -> bool:
    """Whether a run ends at its boundary: all ticks were played, or a league is decided before its last round."""
    if run.leg.start >= run.plan.horizon or run.leg.start < run.plan.ticks:
        return run.leg.start >= run.plan.horizon
    from arena.run.rounds import is_decided  # as above

    return is_decided(run, state)


def opened(run: Run, results: RunResults | None, on_result: Listener) -> RunResults | None:
    """The results of a run, for the round that is played next; None if it has none: a number of games decides.

    `results` are those that were kept so far; None: they are read from the run folder.
    """
    if run.episodes is not None:
        return None
    if results is None:
        return RunResults(run.folder, run.plan, tick=run.leg.start, steps_at=steps_of(run), on_result=on_result)
    results.begin_round(run.plan, steps_of(run))
    return results


def write_boundary(run: Run, state: RunState, *, stopped: bool = False) -> None:
    """Writes the results up to a boundary, if the run has any, and unless its evaluation is not on record yet.

    `stopped`: whether the run is ended here by request.
    """
    results, tick, plan = state.results, run.leg.start, run.plan
    if results is None:
        return
    ends = not stopped and is_over(run, state)
    evaluates = plan.evaluates_at(tick) or (ends and plan.config.evaluation is not None)
    if evaluates and tick not in evaluations.evaluated(run.folder):
        results.leg_over(tick)
        return
    ratings: Callable[[], Mapping[str, float]] | None = None
    if plan.config.round_count > 1 and tick and tick >= plan.ticks:  # a round of a league ends here
        from arena.run import rounds  # it imports the ratings, which a run of one round does not need

        ratings = partial(rounds.ratings, run, state)
    results.boundary(tick, ends=ends, stopped=stopped, ratings=ratings)


def newest_result(run: Run, results: RunResults | None) -> dict[str, Any] | None:
    """The newest result of a run up to a boundary, with NaN for null; None if there is none.

    `results` are those that were kept so far; None: they are read from the run folder.
    """
    if results is not None:
        return None if results.newest is None else dict(results.newest)
    known = [result for result in results_in(run.folder.results) if result["ticks"] <= run.leg.start]
    return known[-1] if known else None


def stop_text(run: Run, results: RunResults) -> Iterator[str]:
    """Lines about the stop rules of a run that is over: which has ended it, and which could never be met."""
    if results.met is not None:
        yield f"stopped at tick {run.leg.start}: {results.met.rule.met_text(results.met.value)}"
    if results.rules_without_match:
        keys, names = ", ".join(results.rules_without_match), listed(results.names)
        yield f"stop rules of which no result had the key: {keys}; the keys were: {names}"


def steps_of(run: Run) -> Callable[[int], Steps]:
    """The steps of games of a run up to a tick, all rounds so far included."""
    plan = run.plan
    starts = [plan.start]  # of each round
    rates = [[(match.lanes, sum(len(seat.entities) for seat in match.seats)) for match in plan.matches]]
    lines = rounds_file.lines_in(JournalReader(run.folder.rounds))[: plan.round] if plan.round else []
    for line in reversed(lines):
        # With `scale: true` the matches of the descriptions are repeated.
        lanes = [entry.lanes for entry in line.matches for _ in range(entry.copies)] or [0]
        entities = [sum(len(seat.entities) for seat in match.seats) for match in line.planned]
        rate = [(lanes[match.match % len(lanes)], size) for match, size in zip(line.planned, entities, strict=True)]
        starts, rates = [line.start, *starts], [rate, *rates]
    ends = [*starts[1:], sys.maxsize]
    games = [sum(count for count, _ in rate) for rate in rates]  # steps of one tick
    agents = [sum(count * size for count, size in rate) for rate in rates]

    def steps_at(tick: int) -> Steps:
        ticks = [
            min(end, tick) - start if start <= tick or start == starts[0] else 0
            for start, end in zip(starts, ends, strict=True)
        ]
        return Steps(sum(map(mul, games, ticks)), sum(map(mul, agents, ticks)))

    return steps_at
