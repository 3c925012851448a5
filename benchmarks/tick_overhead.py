"""The cost of a tick: 6 processes, vector observations, a game without work.

Compared are the arena, one typed Gather and Scatter of the same bytes, the same with the game and the copies that every
user of these bytes needs, and the pickled protocol of 2022.

The promises are about the CPU time of all processes together: runs have more processes than cores, and then CPU time
per tick decides how many ticks all cores make. Times by the clock are targets, not promises: they compare two ways to
wait. An idle process of the arena sleeps in the kernel until it is woken, while the others poll in MPI and yield, which
keeps all cores busy for one match. Which way is faster depends on the kernel and on idle cores: between two machines a
tick of the arena became 1.9 times faster, and one of the bare program 3.7 times.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

RANKS = 6  # root, environment, four seats
EMPTY = {"shape": [8]}  # the observation in touchdown, two against two
EVERY = 50  # ticks between two stamps
CPU, CLOCK = "CPU us per tick", "us per tick"


def config(lanes: int, ticks: int, game: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """One match of four constant players in the empty game."""
    return {
        "name": "tick",
        "ticks": ticks,
        "envs": {"empty": runs.clocked("games:Empty", game, every=EVERY)},
        "policies": {"blue": {"algorithm": "workers:Constant"}, "red": {"algorithm": "workers:Constant"}},
        "matches": [{"env": "empty", "seats": ["blue", "blue", "red", "red"], "lanes": lanes}],
    }


def sample(run: runs.Run) -> Sample:
    """Microseconds per tick, and CPU microseconds of all processes together."""
    window = run.window
    cpu = run.finished.cpu_between(window.begin, window.end)
    return {CLOCK: 1e6 / window.rate, CPU: 1e6 * cpu / window.count, "ticks": window.count}


def arena(given: Mapping[str, Any]) -> Sample:
    """The arena."""
    with runs.arena(given) as run:
        return sample(run)


def program(script: str, **told: Any) -> Sample:
    """One of the programs that the arena is compared with."""
    with runs.program(script, {"every": EVERY, **told}, ranks=RANKS) as run:
        return sample(run)


def cases(lanes: int, settings: Settings) -> list[Case]:
    """All contestants with this number of lanes."""
    seconds = settings.pick(4.0, 0.5)
    ticks = settings.pick(0, 4000) or runs.ticks_for(config(lanes, 1), seconds, probe=3000)
    told = {"kwargs": EMPTY, "lanes": lanes, "seconds": seconds}
    matches = {"matches": [["blue", "blue", "red", "red"]], "game": "games:Empty", "random": False}
    return [
        Case(f"bare bytes, lanes={lanes}", partial(program, "bare_mpi.py", mode="bytes", **told)),
        Case(f"arena, lanes={lanes}", partial(arena, config(lanes, ticks))),
        Case(f"bare with game, lanes={lanes}", partial(program, "bare_mpi.py", mode="game", **told)),
        Case(f"2022, lanes={lanes}", partial(program, "protocol_2022.py", **matches, **told)),
    ]


def benchmark(settings: Settings) -> Report:
    """Measures with one lane and with many lanes."""
    sizes = settings.pick((1, 16), (1,))
    measured = interleave([case for lanes in sizes for case in cases(lanes, settings)], settings.repeats, say=say)
    report = Report("tick_overhead", "Tick overhead, 6 processes", measured, method(__doc__))
    for lanes in sizes:
        for figure, most, least in ((CPU, 2, 2), (CLOCK, 1.5, 5)):
            ours = (f"arena, lanes={lanes}", figure)
            work = measured.ratio(ours, (f"bare with game, lanes={lanes}", figure))
            old = measured.ratio((f"2022, lanes={lanes}", figure), ours)
            report.at_most(f"lanes={lanes}: {figure}, arena / bare with the game and the copies", work, most)
            report.at_least(f"lanes={lanes}: {figure}, protocol of 2022 / arena", old, least)
        bare = measured.ratio(ours, (f"bare bytes, lanes={lanes}", CLOCK))
        report.at_most(f"lanes={lanes}: {CLOCK}, arena / bare Gather and Scatter of the same bytes", bare, 1.5)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
