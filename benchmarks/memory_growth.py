"""Growth of memory in a million ticks.

The empty game has four players and episodes of 100 ticks in 4 lanes, so that records are written, too. Unshared memory
is sampled during the run; a straight line through the samples after the first third of the run, when everything is
allocated, gives the bytes per tick, and from them the growth in 1,000,000 ticks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say
from processes import Usage
from stamps import Progress

MILLION = 1_000_000
ROLES = ("root", "environment", "worker")
LIMIT = 5.0  # MB in a million ticks: less than a tenth of a process's memory


def config(ticks: int, algorithm: str) -> dict[str, Any]:
    """Four players in the empty game."""
    return {
        "name": "growth",
        "ticks": ticks,
        "envs": {"empty": runs.clocked("games:Empty", {"episode": 100}, every=1000)},
        "policies": {"player": {"algorithm": algorithm}},
        "matches": [{"env": "empty", "seats": ["player"] * 4, "lanes": 4}],
    }


def measure(ticks: int, algorithm: str) -> Sample:
    """One run; for every role its process that grows most."""
    with runs.arena(config(ticks, algorithm), memory=True, every=0.5, timeout=1200) as run:
        window = run.window
        figures = {}
        for role in ROLES:
            users = [usage for rank in run.ranks(role) for usage in run.finished.of_rank(rank) if usage.memory]
            figures[f"MB per million ticks, {role}"] = max(slope(usage, run.progress[0]) for usage in users) / 1e6
    return {**figures, "ticks per s": window.rate, "s watched": window.seconds}


def slope(usage: Usage, progress: Progress) -> float:
    """Bytes per million ticks, by least squares over the last two thirds of the run."""
    begin, end = progress.times[0], progress.times[-1]
    begin += (end - begin) / 3
    seen = [(progress.at(now.moment), now.unshared) for now in usage.memory if begin <= now.moment <= end]
    return MILLION * line_through(seen)


def line_through(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line that fits best; 0 through fewer than three points."""
    if len(points) < 3:
        return 0.0
    x, y = np.array(points, np.float64).T
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def benchmark(settings: Settings) -> Report:
    """Measures with players that do nothing and with random ones."""
    ticks = settings.pick(200_000, 15_000)
    names = settings.pick(("workers:Constant", "random"), ("random",))
    cases = [Case(name.rpartition(":")[2].lower(), partial(measure, ticks, name)) for name in names]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("memory_growth", "Growth of memory", measured, method(__doc__))
    for case in cases:
        for role in ROLES:
            found = measured.summary(case.name, f"MB per million ticks, {role}")
            report.at_most(f"{case.name}: growth of the {role} in a million ticks, MB", found, LIMIT)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
