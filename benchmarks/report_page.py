"""The report: time and size of the page of a large league.

A run folder of 12 policies, 36 snapshots and 20 rounds is written, with results drawn from known strengths; `arena
report` makes its page in a process of its own, on one core.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from league_folders import League, write_league

EPISODES, FEW = 100_000, 10_000
MOST_SECONDS, MOST_BYTES = 20.0, 10e6


def measure(episodes: int) -> Sample:
    """One page."""
    with runs.scratch() as folder:
        run = write_league(folder / "run", League(policies=12, episodes=episodes, rounds=20, snapshots=5))
        command = [sys.executable, "-m", "arena", "report", str(run.path)]
        finished = runs.ended_well(command, folder)
        size = run.report.stat().st_size
    return {"s": finished.wall, "processor s": finished.waited_cpu, "MB": size / 1e6}


def benchmark(settings: Settings) -> Report:
    """Measures the page several times."""
    episodes = settings.pick(EPISODES, FEW)
    case = f"{episodes} episodes"
    measured = interleave([Case(case, partial(measure, episodes))], settings.repeats, say=say)
    report = Report("report_page", "The report", measured, method(__doc__))
    report.at_most("s for the page", measured.summary(case, "s"), MOST_SECONDS)
    report.at_most("MB of the page", measured.summary(case, "MB"), MOST_BYTES / 1e6)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
