"""Games with units: the network, the game, the tick, and PPO as a whole.

The peer is the published stack for such games: entity-gym, rogue-net and enn-trainer, in an environment of their own
(`requirements-peers-units.txt`). Both sides get the same boards of Minesweeper, five mines and one or two robots, the
same sizes of the network, and one thread of torch. Rates are per CPU second of the measuring process, after one call.

`act`: actions, their log-probabilities and values of rows, conversion of arrays to tensors included. `learn`: forward
and backward. `game`: steps of 64 lanes with random allowed moves; `adapted` is the peer's own game, stepped by the
arena's adapter in the peer's environment. `attention`: forward, 512 rows of 4 tokens of which one in twenty has 64.

`ppo`: CPU seconds of the whole command, start included, for 98,304 samples of Minesweeper with equal network, epochs
and minibatches. Two copies on two ranks are compared with one match of as many lanes in one process, by samples per
second between the first and the last update. A tick of 7 units is compared with one of a Box of as many bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import runs
from games import Units
from harness import HERE, Case, Report, Sample, Settings, Unavailable, interleave, main, method, say

PEER = Path(os.environ.get("ARENA_PEERS_UNITS", HERE.parent / ".venv-peers-units/bin/python"))
LANES, ROWS = 64, (64, 512)
TICK_LANES, EVERY = 16, 50
RATE, CPU, SPEED, TICK = "per CPU s", "CPU s", "samples/s", "us per tick"
TRAINING = {"n_steps": 32, "minibatch_size": 512, "n_epochs": 4, "learning_rate": 2e-3}


def measured_by(python: str, script: str, case: str, size: int, seconds: float) -> Sample:
    """The figures that a program prints."""
    with runs.scratch() as folder:
        command = [python, str(HERE / script), case, str(size), str(seconds)]
        found: Sample = json.loads(runs.ended_well(command, folder).out.splitlines()[-1])
    return found


def ours(case: str, size: int, seconds: float) -> Sample:
    """The arena's side."""
    return measured_by(sys.executable, "unit_cases.py", case, size, seconds)


def theirs(case: str, size: int, seconds: float, script: str = "peer_units.py") -> Sample:
    """The peer's side."""
    check_peer()
    return measured_by(str(PEER), script, case, size, seconds)


def check_peer() -> None:
    if not PEER.exists():
        raise Unavailable(f"needs {PEER.parent.parent.name}: make {PEER.parent.parent.name}/.ready")


def training(samples: int, d_model: int, *, lanes: int = LANES, copies: int = 1, seed: int = 1) -> dict[str, Any]:
    """PPO on Minesweeper."""
    options = {**TRAINING, "transformer": {"d_model": d_model}}
    return {
        "name": "units",
        "seed": seed,
        "ticks": samples // (lanes * copies),
        "envs": {"game": {"make": "minesweeper", "kwargs": {}}},
        "policies": {"blue": {"algorithm": "ppo", "options": options}},
        "matches": [{"env": "game", "seats": ["blue"], "lanes": lanes, "copies": copies}],
    }


def trained(config: Mapping[str, Any], ranks: int) -> Sample:
    """CPU seconds of a whole run, and samples per second between its first and last update."""
    with runs.arena(config, ranks=ranks, timeout=3600.0) as run:
        lines = runs.lines_of(run.folder / "metrics.jsonl")
        first, last = lines[0], lines[-1]
        speed = (last["samples"] - first["samples"]) / max(last["seconds"] - first["seconds"], 1e-9)
        return {CPU: run.finished.cpu, SPEED: speed}


def trained_by_peer(samples: int, d_model: int) -> Sample:
    """CPU seconds of the peer's training."""
    check_peer()
    told = {**TRAINING, "samples": samples, "d_model": d_model, "lanes": LANES, "seed": 1}
    with runs.scratch() as folder:
        command = [str(PEER), str(HERE / "peer_units.py"), "ppo", json.dumps(told)]
        return {CPU: runs.ended_well(command, folder, timeout=3600.0).cpu}


def ticks(game: str, kwargs: Mapping[str, Any], worker: str, count: int) -> Sample:
    """Microseconds of a tick without work."""
    config = {
        "name": "tick",
        "ticks": count,
        "envs": {"empty": runs.clocked(game, kwargs, every=EVERY)},
        "policies": {"blue": {"algorithm": worker}},
        "matches": [{"env": "empty", "seats": ["blue"], "lanes": TICK_LANES}],
    }
    with runs.arena(config) as run:
        return {TICK: 1e6 / run.window.rate}


def cases(settings: Settings) -> list[Case]:
    """All contestants."""
    seconds = settings.pick(4.0, 0.3)
    samples, widths = settings.pick(98_304, 4_096), settings.pick((64, 32), (32,))
    count = settings.pick(20_000, 3_000)
    floats = Units(lanes=1).nbytes // 4
    found = [
        Case("game", partial(ours, "minesweeper", LANES, seconds)),
        Case("game, peer", partial(theirs, "minesweeper", LANES, seconds)),
        Case("game, peer's own, adapted", partial(theirs, "adapted", LANES, seconds, "unit_cases.py")),
        Case("attention, packed", partial(ours, "packed", 0, seconds)),
        Case("attention, padded", partial(ours, "padded", 0, seconds)),
    ]
    for rows in ROWS:
        for case in ("act", "learn"):
            found += [
                Case(f"{case}, {rows} rows", partial(ours, case, rows, seconds)),
                Case(f"{case}, {rows} rows, peer", partial(theirs, case, rows, seconds)),
            ]
    for width in widths:
        found += [
            Case(f"ppo, d_model {width}", partial(trained, training(samples, width), 1)),
            Case(f"ppo, d_model {width}, peer", partial(trained_by_peer, samples, width)),
        ]
    both = training(samples, widths[0], lanes=LANES // 2, copies=2)
    return [
        *found,
        Case("ppo, two copies on two ranks", partial(trained, both, 2)),
        Case("tick, units", partial(ticks, "games:Units", {}, "workers:ConstantUnits", count)),
        Case(
            "tick, as many bytes",
            partial(ticks, "games:Empty", {"entities": 1, "shape": [floats]}, "workers:Constant", count),
        ),
    ]


def benchmark(settings: Settings) -> Report:
    """Measures all cases in each turn."""
    contestants = cases(settings)
    measured = interleave(contestants, settings.repeats, say=say)
    report = Report("units", "Games with units", measured, method(__doc__))

    def times(case: str, over: str, figure: str = RATE) -> Any:
        return measured.ratio((case, figure), (over, figure))

    report.at_least("minesweeper, steps per CPU second, arena / EnvList", times("game", "game, peer"), 8)
    adapted = times("game, peer's own, adapted", "game, peer")
    report.at_least("the peer's own game, adapter / EnvList", adapted, 0.8)
    for rows, least in zip(ROWS, (1.15, 0.95), strict=True):
        for case in ("act", "learn"):
            found = times(f"{case}, {rows} rows", f"{case}, {rows} rows, peer")
            report.at_least(f"{case}, {rows} rows: rows per CPU second, arena / RogueNet", found, least)
    packed = times("attention, padded", "attention, packed")
    report.at_most("attention, one row in twenty is long: time, packed / padded to the longest", packed, 0.25)
    for case in contestants:
        if case.name.startswith("ppo, d_model") and not case.name.endswith("peer"):
            report.at_most(
                f"{case.name}: CPU seconds, arena / enn-trainer", times(case.name, f"{case.name}, peer", CPU), 1.1
            )
    one = next(case.name for case in contestants if case.name.startswith("ppo, d_model"))
    report.at_least(
        "ppo, two copies on two ranks: samples/s / one process", times("ppo, two copies on two ranks", one, SPEED), 1.5
    )
    report.at_most(
        "us per tick, 7 units / a Box of as many bytes", times("tick, units", "tick, as many bytes", TICK), 2.5
    )
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
