"""The price of learning as a group: four workers, a network of 101,376 parameters.

Every worker times three kinds of gradients in turns, in one run: gradients without communication (`alone`), gradients
followed by a barrier (`met`), and gradients averaged over the group (`averaged`). All workers begin and end a turn
together. The overhead is the additional time of an averaged gradient, as a share of the time of a gradient alone: in
wall time, and in CPU time. On fewer cores than workers a barrier alone costs wall time, because the scheduler does not
finish the workers together; `met` shows this part.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

WORKERS = 4
KINDS, CLOCKS = ("alone", "met", "averaged"), ("wall", "cpu")


def config(minibatch: int, turns: int) -> dict[str, Any]:
    """Four workers of one policy in the empty game; each tick is a turn of every kind."""
    options = {"minibatch": minibatch, "updates": 20}
    return {
        "name": "group",
        "ticks": turns,
        "envs": {"empty": runs.clocked("games:Empty", {"entities": WORKERS})},
        "policies": {"learner": {"algorithm": "workers:GroupUpdate", "options": options}},
        "matches": [{"env": "empty", "seats": ["learner"] * WORKERS}],
    }


def measure(minibatch: int, turns: int) -> Sample:
    """One run; the median of its turns."""
    with runs.arena(config(minibatch, turns)) as run:
        lines = runs.lines_of(run.folder / "metrics.jsonl")
    figures = {
        f"ms per gradient, {kind}, {clock}": 1e3 * median(lines, kind, clock) for kind in KINDS for clock in CLOCKS
    }
    for clock in CLOCKS:
        alone = median(lines, "alone", clock)
        figures |= {
            f"% overhead, {kind}, {clock}": 100 * (median(lines, kind, clock) / alone - 1) for kind in KINDS[1:]
        }
    return {**figures, "parameters": lines[0]["parameters"]}


def median(lines: list[dict[str, Any]], kind: str, clock: str) -> float:
    """The median over the turns of one kind."""
    return float(statistics.median(line[f"{kind}_{clock}"] for line in lines))


def benchmark(settings: Settings) -> Report:
    """Measures with a usual and with a small minibatch."""
    sizes = settings.pick((1024, 256), (1024,))
    cases = [Case(f"minibatch {size}", partial(measure, size, settings.pick(20, 3))) for size in sizes]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("group_update", "Group update, 4 workers", measured, method(__doc__))
    for clock in CLOCKS:
        overhead = measured.summary(f"minibatch {sizes[0]}", f"% overhead, averaged, {clock}")
        report.at_most(
            f"minibatch {sizes[0]}: overhead of the average over the gradient, % of {clock} time", overhead, 10
        )
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
