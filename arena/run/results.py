"""The results of a run: opened at its boundary, and continued from stage to stage by the process that leads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from arena.errors import listed
from arena.league import rounds_file
from arena.plan.plan import Plan
from arena.records import evaluations
from arena.records.formats import Round
from arena.records.iterations import Steps
from arena.records.journal import JournalReader
from arena.records.result_file import results_in
from arena.records.results import Listener, RunResults
from arena.run.process_state import ProcessState
from arena.run.run import Run
from arena.run.stages import is_over


def opened(run: Run, results: RunResults | None, tell: Listener) -> RunResults | None:
    """The results of a run, for the round that is played next; None if it has none: a number of games decides.

    Args:
        run: at a boundary.
        results: as they were kept so far; None: they are read from the run folder.
        tell: takes each new result.
    """
    if run.episodes is not None:
        return None
    if results is None:
        return RunResults(run.folder, run.plan, tick=run.leg.start, steps_at=steps_of(run), tell=tell)
    results.begin_round(run.plan, steps_of(run))
    return results


def write_boundary(run: Run, memory: ProcessState, results: RunResults, *, stopped: bool = False) -> None:
    """Writes the results up to a boundary, unless its evaluation is not on record yet.

    Args:
        run: at the boundary.
        memory: of rank 0.
        results: of the run.
        stopped: whether the run is ended here by request.
    """
    tick, plan = run.leg.start, run.plan
    ends = not stopped and is_over(run, memory)
    evaluates = plan.evaluates_at(tick) or (ends and plan.config.evaluation is not None)
    if evaluates and tick not in evaluations.evaluated(run.folder):
        results.leg_over(tick)
    else:
        results.boundary(tick, ends=ends, stopped=stopped, ratings=_ratings(run, memory))


def _ratings(run: Run, memory: ProcessState) -> Callable[[], Mapping[str, float]] | None:
    """The ratings of a league at the end of a round; None anywhere else."""
    if run.plan.config.rounds == 1 or not run.leg.start or run.leg.start < run.plan.ticks:
        return None
    from arena.run.rounds import ratings  # it imports the ratings, which a run of one round does not need

    return partial(ratings, run, memory)


def newest_result(run: Run, results: RunResults | None) -> dict[str, Any] | None:
    """The newest result of a run up to a boundary, with NaN for null; None if there is none.

    Args:
        run: at the boundary.
        results: as they were kept so far; None: they are read from the run folder.
    """
    if results is not None:
        return None if results.newest is None else dict(results.newest)
    known = [result for result in results_in(run.folder.results) if result["ticks"] <= run.leg.start]
    return known[-1] if known else None


def stop_words(run: Run, results: RunResults) -> Iterator[str]:
    """Lines about the stop rules of a run that is over: which has ended it, and which could never be met."""
    if results.met is not None:
        yield f"stopped at tick {run.leg.start}: {results.met.rule.met_words(results.met.value)}"
    if results.rules_without_match:
        keys, names = ", ".join(results.rules_without_match), listed(results.names)
        yield f"stop rules of which no result had the key: {keys}; the keys were: {names}"


def steps_of(run: Run) -> Callable[[int], Steps]:
    """The steps of games of a run up to a tick, all rounds so far included."""
    plan = run.plan
    starts, rates = [plan.start], [_rate(plan)]
    if plan.round:
        lines = rounds_file.lines_in(JournalReader(run.folder.rounds))[: plan.round]
        starts, rates = [*(line.start for line in lines), *starts], [*map(_rate_of_round, lines), *rates]
    lengths = [end - start for start, end in pairwise(starts)]
    before = [*accumulate(map(_times, rates, lengths), _plus, initial=Steps())]

    def steps_at(tick: int) -> Steps:
        number = max((place for place, start in enumerate(starts) if start <= tick), default=0)
        return _plus(before[number], _times(rates[number], tick - starts[number]))

    return steps_at


def _rate(plan: Plan) -> Steps:
    """The steps of one tick."""
    entities = (match.lanes * sum(len(seat.entities) for seat in match.seats) for match in plan.matches)
    return Steps(sum(match.lanes for match in plan.matches), sum(entities))


def _rate_of_round(line: Round) -> Steps:
    # With `scale: true` the matches of the descriptions are repeated.
    lanes = [entry.lanes for entry in line.matches for _ in range(entry.copies)] or [0]
    of_match = [lanes[match.match % len(lanes)] for match in line.planned]
    entities = [sum(len(seat.entities) for seat in match.seats) for match in line.planned]
    return Steps(sum(of_match), sum(count * size for count, size in zip(of_match, entities, strict=True)))


def _times(rate: Steps, ticks: int) -> Steps:
    return Steps(rate.games * ticks, rate.agents * ticks)


def _plus(one: Steps, other: Steps) -> Steps:
    return Steps(one.games + other.games, one.agents + other.agents)
