"""The stages of a run, which are played over the same processes, one plan after the other.

legs           of the current plan, until its last tick or the next evaluation
an evaluation  of frozen copies, in its own folder; then the run continues
a round        of a league, when the one before it is over
"""

from __future__ import annotations

from arena.run.evaluation import evaluation_due
from arena.run.process_state import ProcessState
from arena.run.run import Run, Stage
from arena.run.stop_rules import rule_met


def next_stage(run: Run, memory: ProcessState) -> Stage | None:
    """What is played next; None if the run is over.

    Args:
        run: at a boundary.
        memory: of rank 0; has the callbacks and the results.
    """
    evaluation = evaluation_due(run)
    if evaluation is not None:
        return Stage(run, evaluation)
    if run.concluded or rule_met(run, memory.results) is not None:
        return None
    if run.leg.start < run.plan.ticks:
        return Stage(run)
    from arena.run.rounds import next_round  # it imports the ratings, which a run of one round does not need

    following = next_round(run, memory)
    if following is not None:
        return Stage(following)
    evaluation = evaluation_due(run, ends=True)
    return None if evaluation is None else Stage(run, evaluation)


def is_over(run: Run, memory: ProcessState) -> bool:
    """Whether a run ends at its boundary: all ticks were played, or a league is decided before its last round.

    Args:
        run: at a boundary.
        memory: of rank 0.
    """
    if run.leg.start >= run.plan.horizon or run.leg.start < run.plan.ticks:
        return run.leg.start >= run.plan.horizon
    from arena.run.rounds import is_decided  # as above

    return is_decided(run, memory)
