"""Stop rules: whether a run has ended by one, according to its results on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arena.records.result_file import results_in
from arena.records.results import Met, first_met
from arena.run.run import Run

if TYPE_CHECKING:
    from arena.records.results import RunResults


def rule_met(run: Run, kept: RunResults | None = None) -> Met | None:
    """The first result on record up to a boundary that meets a stop rule as the rules are now; None if none does.

    Args:
        run: at the boundary.
        kept: the results as the process that leads the run keeps them; None: they are read from the run folder.

    Raises:
        ConfigError: `result.json` is damaged.
    """
    if kept is not None:
        return kept.met
    results = results_in(run.folder.results) if run.plan.config.stop_rules else []
    met = (first_met(run.plan.config.stop_rules, result) for result in results if result["ticks"] <= run.leg.start)
    return next(filter(None, met), None)
