"""Overlap: `pipeline: 2` against `pipeline: 1`, in ticks of all lanes per second.

`waiting` is a game of 16 lanes that sleeps for 2 ms per tick, with two players that sleep for as long before their
actions, both in proportion to the stepped lanes: a perfect overlap reduces 4 ms per tick to 2 ms. Sleeping stands for
work on further cores, so the result does not depend on the number of cores.

`thinking` is the same with 0.2 ms each, where the second round of messages is a larger part.

`learning` is PPO against random in touchdown, 64 lanes: most of the time goes into learning, which overlaps with
nothing, and half of the lanes cost nearly as much as all. It shows the cost of `pipeline: 2` where it does not help.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

LANES = 16
SLEEPS = {"waiting": 2e-3, "thinking": 2e-4}  # seconds per tick, of the game and of its players


def asleep(pipeline: int, seconds: float, ticks: int) -> dict[str, Any]:
    """A game and two players that take equally long."""
    game = runs.clocked("games:Empty", {"entities": 2, "delay": seconds / pipeline})
    thinks = {"algorithm": "workers:Thinks", "options": {"seconds_per_row": seconds / LANES}}
    return {
        "name": "pipeline",
        "ticks": ticks,
        "envs": {"game": game},
        "policies": {"blue": thinks, "red": thinks},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": LANES, "pipeline": pipeline}],
    }


def learning(pipeline: int, ticks: int) -> dict[str, Any]:
    """PPO against random in touchdown."""
    return {
        "name": "pipeline",
        "ticks": ticks,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {})},
        "policies": {"blue": {"algorithm": "ppo", "options": runs.PPO}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 64, "pipeline": pipeline}],
    }


def measure(config: dict[str, Any]) -> Sample:
    """Ticks of all lanes per second: with two halves, two games count."""
    with runs.arena(config) as run:
        window, games = run.window, len(run.progress)
        cpu = run.finished.cpu_between(window.begin, window.end)
        return {"ticks/s": window.rate / games, "CPU us per tick": 1e6 * cpu * games / window.count}


def benchmark(settings: Settings) -> Report:
    """Measures each game with and without."""
    cases = []
    for pipeline in (1, 2):
        for name, seconds in SLEEPS.items():
            ticks = int(settings.pick(4.0, 0.6) / (2 * seconds))
            cases.append(Case(f"{name}, pipeline {pipeline}", partial(measure, asleep(pipeline, seconds, ticks))))
        config = learning(pipeline, settings.pick(3000, 300))
        cases.append(Case(f"learning, pipeline {pipeline}", partial(measure, config)))
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("pipeline", "Overlap of game and workers", measured, method(__doc__))
    for name, least in (("waiting", 1.6), ("thinking", 1.2)):
        ratio = measured.ratio((f"{name}, pipeline 2", "ticks/s"), (f"{name}, pipeline 1", "ticks/s"))
        report.at_least(f"{name}: ticks/s, pipeline 2 / pipeline 1", ratio, least)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
