"""A check of the measurement: is the CPU time of all processes below the launcher counted?

Six processes use a known amount of CPU each, under the launcher and flags of `arena train`. Both counts, the kernel's
and the benchmarks' own from `/proc`, have to find all of it, and not much more.
"""

from __future__ import annotations

import sys

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

RANKS, BURNT = 6, 1.0
PROGRAM = f"""
from mpi4py import MPI
import time
while time.process_time() < {BURNT}: pass
time.sleep(0.6)
"""


def measure() -> Sample:
    """The counted share of the CPU time used."""
    with runs.scratch() as folder:
        finished = runs.ended_well(runs.under_mpi(RANKS, [sys.executable, "-c", PROGRAM]), folder)
    burnt = RANKS * BURNT
    ranks = [finished.of_rank(rank) for rank in range(RANKS)]
    return {
        "counted / burnt, by wait4": finished.waited_cpu / burnt,
        "counted / burnt, by /proc": finished.seen_cpu / burnt,
        "ranks seen": sum(bool(found) for found in ranks),
        "least of a rank / burnt, by /proc": min(sum(usage.seconds[-1] for usage in found) for found in ranks) / BURNT,
    }


def benchmark(settings: Settings) -> Report:
    """Compares both counts with the known CPU time."""
    measured = interleave([Case("burning", measure)], settings.repeats, say=say)
    report = Report("accounting", "CPU accounting", measured, method(__doc__))
    for way in ("wait4", "/proc"):
        counted = measured.summary("burning", f"counted / burnt, by {way}")
        report.at_least(f"counted / burnt, by {way}", counted, 0.98)
        report.at_most(f"counted / burnt, by {way}, with the launcher's own", counted, 1.5)
    report.at_least("ranks seen", measured.summary("burning", "ranks seen"), RANKS)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
