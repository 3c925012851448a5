"""Experiments and held runs: what the driver, results and a Trainer add to the runs themselves.

Ten trials with random policies, one at a time, are compared with a loop over the same `arena train` commands; twenty,
two at a time, with Ray Tune and functions that report five numbers (in the peers' environment; the start of Ray, and
the checks of the experiment before its first trial, are not counted).

The driver's CPU and memory are those of its process while eight trials run. Memory is what it does not share with other
processes.

A grid of 10,000 trials is planned, and resumed when all of its trials are over; their folders are written by the
benchmark, as no machine runs so many in a reasonable time.

Results at a hundredth of a leg, `best` and `loggers: []` are compared with a run without them: touchdown, one against
one, 64 lanes, both random. A Trainer is compared with `arena.train` on the same legs in the same process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import harness
import processes
import runs
from harness import Case, Report, Sample, Settings, Unavailable, interleave, main, method, say

ARENA = [sys.executable, "-m", "arena"]
PEERS = harness.HERE.parent / ".venv-peers" / "bin" / "python"
RANDOM = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}


def small(trials: int) -> dict[str, Any]:
    """An experiment of small runs of random policies."""
    run = {
        "ticks": 50,
        "loggers": ["csv"],
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 20}}},
        "policies": RANDOM,
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
    }
    return {"run": run, "repeat": trials, "ranks": 1}


def cartpole(trials: int, ticks: int) -> dict[str, Any]:
    """An experiment of runs that learn, each in one process."""
    return {
        "run": str(harness.HERE.parent / "configs" / "cartpole.yaml"),
        "set": {"ticks": ticks},
        "repeat": trials,
        "ranks": 1,
    }


def experiment(data: Mapping[str, Any], folder: Path, at_once: int) -> processes.Finished:
    """`arena experiment`."""
    (folder / "file.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(data))))
    command = [*ARENA, "experiment", "file.yaml", "--run-dir", "whole", "--at-once", str(at_once)]
    return runs.ended_well(command, folder, timeout=3600)


def played(folder: Path) -> float:
    """Seconds from the start of the first trial to the end of the last one."""
    from datetime import datetime

    times = [
        (line["state"], datetime.fromisoformat(line["time"]).timestamp())
        for path in (folder / "whole" / "states").glob("*.jsonl")
        for line in runs.lines_of(path)
    ]
    return max(at for state, at in times if state == "terminated") - min(
        at for state, at in times if state == "running"
    )


def trials(data: Mapping[str, Any], count: int, at_once: int) -> Sample:
    """Times of an experiment."""
    with runs.scratch() as folder:
        finished = experiment(data, folder, at_once)
        return {"s": finished.wall, "CPU s": finished.cpu, "s per trial": played(folder) / count}


def loop(count: int) -> Sample:
    """The same `arena train` commands, one after the other, by a shell."""
    with runs.scratch() as folder:
        base = small(count)["run"]
        for number in range(count):
            config = {**base, "name": f"trial-{number}", "seed": number}
            (folder / f"{number}.yaml").write_text(yaml.safe_dump(config))
        arena = " ".join(ARENA)
        text = f"for n in $(seq 0 {count - 1}); do {arena} train $n.yaml --run-dir run-$n --ranks 1 || exit 1; done"
        finished = runs.ended_well(["sh", "-c", text], folder, timeout=3600)
        return {"s": finished.wall, "CPU s": finished.cpu}


def tune(count: int) -> Sample:
    """Ray Tune."""
    if not PEERS.exists():
        raise Unavailable("there is no environment of the peers: make bench-peers")
    with runs.scratch() as folder:
        command = [str(PEERS), str(harness.HERE / "peer_tune.py"), str(count)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            raise Unavailable(f"Ray Tune: {done.stderr.strip().splitlines()[-1]}")
        found: Sample = json.loads(done.stdout.splitlines()[-1])
        return found


def driver(count: int, ticks: int) -> Sample:
    """The driver's process while trials run."""
    with runs.scratch() as folder:
        (folder / "file.yaml").write_text(yaml.safe_dump(cartpole(count, ticks)))
        command = [*ARENA, "experiment", "file.yaml", "--run-dir", "whole"]
        output = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=folder, env=runs.environment(), stdout=output, stderr=output)
        points: list[tuple[float, float]] = []
        most, torch = 0, False
        while process.poll() is None:
            if (folder / "whole" / "trials.csv").exists() and (line := processes.lines().get(process.pid)):
                points.append((time.monotonic(), line.seconds))
                held = processes.held(process.pid)
                most = max(most, 0 if held is None else held.unshared)
                torch = torch or processes.has_loaded(process.pid, "torch")
            time.sleep(0.2)
        if process.returncode:
            raise processes.Failed(f"the experiment ended with {process.returncode}")
        (begun, before), (ended, after) = points[0], points[-1]
        share = 100 * (after - before) / (ended - begun)
        return {"% of a core": share, "MB": most / 1e6, "torch": float(torch), "s": ended - begun}


def grid(count: int) -> Sample:
    """A large grid: planned, and resumed when all is over."""
    sys.path.append(str(harness.HERE.parent / "tests" / "support"))
    from experiment_folders import GAMMA, RUN, write_experiment

    data = {
        "name": "file",
        "run": {**RUN, "policies": {**RUN["policies"], "blue": {"algorithm": "ppo"}}},
        "set": {GAMMA: {"grid_search": [round(0.5 + 0.4 * n / (count // 10), 6) for n in range(count // 10)]}},
        "repeat": 10,
    }
    with runs.scratch() as folder:
        (folder / "file.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(data))))
        planned = runs.ended_well([*ARENA, "experiment", "file.yaml", "--plan"], folder, timeout=1800, memory=True)
        write_experiment(folder / "whole", data, lambda number, n: float(number + n), results=2, errors=False)
        command = [*ARENA, "experiment", "file.yaml", "--run-dir", "whole", "--resume"]
        resumed = runs.ended_well(command, folder, timeout=1800, memory=True)
        most = max(usage.peak for done in (planned, resumed) for usage in done.processes.values())
        return {"s to plan": planned.wall, "s to resume": resumed.wall, "MB": most / 1e6}


def results(ticks: int, **changes: Any) -> Sample:
    """Ticks per second of touchdown, 64 lanes, in one process."""
    config = {
        "name": "results",
        "ticks": ticks,
        "checkpoint_every": ticks,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {})},
        "policies": RANDOM,
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 64}],
        **changes,
    }
    with runs.arena(config, ranks=1) as run:
        return {"ticks/s": run.window.rate, "CPU s": run.finished.cpu}


def held(iterations: int, every: int, calls: int) -> Sample:
    """A Trainer and a player, in a process of their own."""
    with runs.scratch() as folder:
        command = [sys.executable, str(harness.HERE / "held_run.py"), str(iterations), str(every), str(calls)]
        found: Sample = json.loads(runs.ended_well(command, folder, timeout=1800).out.splitlines()[-1])
        return found


def benchmark(settings: Settings) -> Report:
    """Measures all of it."""
    ten, twenty, eight = settings.pick(10, 2), settings.pick(20, 4), settings.pick(8, 2)
    ticks, many, learning = settings.pick(20_000, 1_000), settings.pick(10_000, 200), settings.pick(1_000, 300)
    best = {"best": {"metric": "policy_reward_mean/blue"}}
    cases = [
        Case("experiment, one at a time", partial(trials, small(ten), ten, 1)),
        Case("shell loop", partial(loop, ten)),
        Case("experiment, two at a time", partial(trials, small(twenty), twenty, 2)),
        Case("Ray Tune", partial(tune, twenty)),
        Case("learning, one at a time", partial(trials, cartpole(eight, learning), eight, 1)),
        Case("learning, two at a time", partial(trials, cartpole(eight, learning), eight, 2)),
        Case("driver", partial(driver, eight, learning)),
        Case("grid", partial(grid, many)),
        Case("no results", partial(results, ticks)),
        Case("results", partial(results, ticks, results={"every": ticks // 100})),
        Case("best", partial(results, ticks, **best)),
        Case("no loggers", partial(results, ticks, loggers=[])),
        Case("held", partial(held, settings.pick(20, 3), settings.pick(512, 128), settings.pick(2_000, 100))),
    ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("experiments", "Experiments, results and held runs", measured, method(__doc__))
    at_most, ratio, summary = report.at_most, measured.ratio, measured.summary
    loop_ratio = ratio(("experiment, one at a time", "s"), ("shell loop", "s"))
    at_most(f"{ten} small trials, experiment / shell loop", loop_ratio, 1.15)
    tune_ratio = ratio(("experiment, two at a time", "s per trial"), ("Ray Tune", "s per trial"))
    at_most(f"{twenty} small trials, s per trial / Ray Tune's", tune_ratio, 0.5)
    twice = ratio(("learning, two at a time", "s"), ("learning, one at a time", "s"))
    at_most(f"{eight} learning trials, two at a time / one at a time", twice, 1 / 1.7)
    at_most("driver, % of a core", summary("driver", "% of a core"), 2)
    at_most("driver, MB", summary("driver", "MB"), 100)
    at_most("driver with torch, 1 = yes", summary("driver", "torch"), 0)
    at_most(f"grid of {many:,}, s to plan", summary("grid", "s to plan"), 30)
    at_most(f"grid of {many:,}, s to resume when all is over", summary("grid", "s to resume"), 15)
    at_most(f"grid of {many:,}, MB", summary("grid", "MB"), 400)
    report.at_least(
        "ticks/s with 100 results per leg / without", ratio(("results", "ticks/s"), ("no results", "ticks/s")), 0.97
    )
    report.at_least("ticks/s with best / without", ratio(("best", "ticks/s"), ("no results", "ticks/s")), 0.97)
    report.at_least("ticks/s without loggers / with", ratio(("no loggers", "ticks/s"), ("no results", "ticks/s")), 0.97)
    at_most("Trainer, ms per iteration over 1.05 x arena.train", summary("held", "ms per iteration over 1.05 x"), 50)
    at_most("Player.act / the algorithm's own actor", summary("held", "Player / actor"), 1.3)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
