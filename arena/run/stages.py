"""What is played next: a run is played in stages over the same processes, one plan after the other.

a leg or more   of the plan that was played, until its last tick or the next evaluation
an evaluation   of frozen copies, in a folder of its own; then the run goes on
a round         of a league, when the one before it is over
"""

from __future__ import annotations

from arena.run.evaluation import evaluation_due
from arena.run.run import Run, Stage


def next_stage(run: Run) -> Stage | None:
    """What is played next; None if the run is over."""
    evaluation = evaluation_due(run)
    if evaluation is not None:
        return Stage(run, evaluation)
    if run.concluded:
        return None
    if run.leg.start < run.plan.ticks:
        return Stage(run)
    from arena.run.rounds import next_round  # a run of one round has no use for what rates its players

    following = next_round(run)
    if following is not None:
        return Stage(following)
    evaluation = evaluation_due(run, ends=True)
    return None if evaluation is None else Stage(run, evaluation)
