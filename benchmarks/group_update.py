"""The price of learning as a group: four workers, a network of 101,376 parameters.

Every worker times turns of gradients that it keeps for itself and turns of gradients that are averaged over the group,
alternately in one run; all workers begin and end a turn together. The overhead is what a gradient with its average
takes longer than one without, as a share of the latter. On fewer cores than workers the four take turns on the cores
in both kinds of turns.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, Summary, interleave, main, method, say

WORKERS = 4


def config(minibatch: int, turns: int) -> dict[str, Any]:
    """Four workers of one policy in the empty game; each tick is a turn of both kinds."""
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
    seconds = {name: statistics.median(line[f"{name}_seconds"] for line in lines) for name in ("alone", "together")}
    return {
        "ms per gradient": 1e3 * seconds["alone"],
        "ms per averaged gradient": 1e3 * seconds["together"],
        "overhead in %": 100 * (seconds["together"] / seconds["alone"] - 1),
        "parameters": lines[0]["parameters"],
    }


def benchmark(settings: Settings) -> Report:
    """Measures with a usual and with a small minibatch."""
    sizes = settings.pick((1024, 256), (1024,))
    cases = [Case(f"minibatch {size}", partial(measure, size, settings.pick(20, 4))) for size in sizes]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("group_update", "Group update, 4 workers", measured, method(__doc__))
    overhead: Summary = measured.summary(f"minibatch {sizes[0]}", "overhead in %")
    report.at_most(f"minibatch {sizes[0]}: overhead of the average over the gradient, in %", overhead, 10)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
