"""A group of four workers of which one is three times slower: `impala` beside `ppo`, in samples per second.

The game is touchdown against random, four copies of 16 lanes, each in a process. The slow worker is the last of the
group. Every worker takes 30 times the CPU time of what it computes, and the slow one 90 times, by sleeping: sleeping
stands for work on further cores, so the result does not depend on the number of cores, and games and messages cost
little beside it.

    ppo       `sync: gradients`: every gradient step waits for the slow worker
    impala    `sync: samples`, `max_lag: 8`: the slow worker only plays; the first one learns from the samples of all

All matches have played equally many ticks at the end of a leg, so no algorithm can be faster than the slow worker
plays: the gain is that it does not learn, and that nothing waits for its gradients. `ppo` learns in 4 epochs, not in
its default of 10. The cases without a slow worker show how much of the ratio is due to the costs of the algorithms.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

LANES, COPIES = 16, 4
PACE = 30.0
BLUE: dict[str, dict[str, Any]] = {
    "ppo, sync: gradients": {"algorithm": "slow_learners:SlowPPO", "options": runs.PPO},
    "ppo, max_lag: 8": {"algorithm": "slow_learners:SlowPPO", "options": runs.PPO, "sync": "samples", "max_lag": 8},
    "impala, max_lag: 8": {"algorithm": "slow_learners:SlowIMPALA", "sync": "samples", "max_lag": 8},
}
SPEEDS = {"equal": 1.0, "slow": 3.0}


def config(name: str, slower: float, ticks: int) -> dict[str, Any]:
    """Four copies of a match, whose last learner takes `slower` times as long."""
    blue = BLUE[name]
    return {
        "name": "slow-worker",
        "ticks": ticks,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {})},
        "policies": {
            "blue": {**blue, "options": {**blue.get("options", {}), "pace": PACE, "slower": slower}},
            "red": {"algorithm": "random"},
        },
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": LANES, "copies": COPIES}],
    }


def measure(name: str, slower: float, ticks: int) -> Sample:
    """Samples of blue per second, from the first tick of any game to the last one, and the largest lag."""
    with runs.arena(config(name, slower, ticks), ranks=COPIES) as run:
        begin, end = min(noted.times[0] for noted in run.progress), max(noted.times[-1] for noted in run.progress)
        samples = LANES * sum(noted.counts[-1] for noted in run.progress)
        lags = [line.get("lag_max", 0.0) for line in runs.lines_of(run.folder / "metrics.jsonl")]
        return {
            "samples/s": samples / (end - begin),
            "largest lag": max(lags, default=0.0),
        }


def benchmark(settings: Settings) -> Report:
    """Measures each algorithm with and without a slow worker."""
    ticks = settings.pick(1280, 256)
    cases = [
        Case(f"{name}, {speed}", partial(measure, name, slower, ticks))
        for speed, slower in SPEEDS.items()
        for name in BLUE
    ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("slow_worker", "A worker three times slower than the others", measured, method(__doc__))
    ratio = measured.ratio(("impala, max_lag: 8, slow", "samples/s"), ("ppo, sync: gradients, slow", "samples/s"))
    report.at_least("samples/s, impala / ppo with sync: gradients, one of four workers slow", ratio, 1.5)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
