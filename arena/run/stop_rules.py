"""Stop rules: whether a run has ended by one, according to its results on record."""

from __future__ import annotations

from arena.results.files import read_results
from arena.results.stop_rules import Met, first_met
from arena.run.run import Run


def rule_met(run: Run) -> Met | None:
    """The first result on record up to a boundary that meets a stop rule as the rules are now; None if none does.

    Raises:
        ConfigError: `result.json` is damaged.
    """
    results = read_results(run.path) if run.plan.stop else []
    met = (first_met(run.plan.stop, result) for result in results if result["ticks"] <= run.leg.start)
    return next(filter(None, met), None)
