"""Default options: how well does each algorithm learn without options, compared with Stable-Baselines3 without options?

A row is an algorithm, a game, and how it is played: `cartpole-ppo-16` is one match with 16 lanes, `cartpole-ppo-4x4`
four copies with 4 lanes each. The arena trains in one process (`arena train --ranks 1`), with a configuration that has
no options. Stable-Baselines3 trains with its own defaults, one thread of torch, and as many environments as all copies
have lanes together, so its result with 4 environments is compared with `4` and with `1x4`. Both get the same number of
environment steps; Stable-Baselines3 rounds it up to whole rollouts.

Then both play greedily, the same number of episodes, in environments of other seeds. The promises compare the medians
over the seeds; a row counts only if Stable-Baselines3's defaults learn the game, by their median.

CPU seconds (user and system) include the whole training with its imports, without the evaluation. A result has the
time and the machine's load of its measurement; if both sides of a seed are missing, they are measured in turns.

Each finished training is written at once; results in the file are not measured again unless `--anew` is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import harness
import learning
import machine
import runs
from arena.errors import pluralize
from harness import Measured, Report, Summary, Unavailable, method, say
from learning_rows import Goal, Peer, Row, returns
from processes import Failed

NAME = "default_options"
ARENA, SB3, CPU = "arena", "Stable-Baselines3", "CPU s"
SIDES = (ARENA, SB3)
SEEDS = (1, 2, 3)
LAYOUTS = ((1, 1), (4, 1), (16, 1), (1, 4), (4, 4))  # lanes, copies

Rows = dict[str, dict[str, dict[str, Any]]]
"""The result of each row, side and seed."""


class Game(NamedTuple):
    """A game to learn, with the number of steps for each algorithm."""

    make: str
    steps: Mapping[str, int]  # by algorithm
    learned: float  # a return that only learning reaches
    episodes: int = 50  # of the evaluation
    needs: Sequence[str] = ()


GAMES = {
    "cartpole": Game("CartPole-v1", dict.fromkeys(("ppo", "a2c", "dqn"), 100_000), 100),
    "acrobot": Game("Acrobot-v1", dict.fromkeys(("ppo", "a2c", "dqn"), 100_000), -400),
    "lunarlander": Game("LunarLander-v3", dict.fromkeys(("ppo", "a2c", "dqn"), 200_000), -100, needs=("Box2D",)),
    "pendulum": Game(
        "Pendulum-v1",
        {**dict.fromkeys(("sac", "td3", "ddpg"), 10_000), **dict.fromkeys(("ppo", "a2c"), 100_000)},
        -1000,
        episodes=100,
    ),
    "mountaincar": Game("MountainCarContinuous-v0", dict.fromkeys(("sac", "td3", "ddpg", "ppo", "a2c"), 50_000), 50),
}


def row_of(name: str, algorithm: str, lanes: int, copies: int) -> Row:
    """A row of the table."""
    game = GAMES[name]
    return Row(
        name=f"{name}-{algorithm}-{lanes}" + (f"x{copies}" if copies > 1 else ""),
        make=f"gymnasium:{game.make}",
        steps=game.steps[algorithm],
        policies={"p": {"algorithm": algorithm}},
        seats=["p"],
        goals=[Goal("return", game.learned, returns("p"))],
        lanes=lanes,
        copies=copies,
        episodes=game.episodes,
        peer=Peer(algorithm.upper(), {}),
        needs=game.needs,
    )


ROWS = {
    row.name: row
    for name, game in GAMES.items()
    for algorithm in game.steps
    for row in (row_of(name, algorithm, lanes, copies) for lanes, copies in LAYOUTS)
}


# ----------------------------------------------------------------------------------------------------------- measuring


def measure(row: Row, side: str, seed: int) -> dict[str, Any]:
    """The result of one training of one side.

    Raises:
        Unavailable: the game or Stable-Baselines3 is not installed.
        Failed: a command did not end well.
    """
    begun, load = time.time(), machine.load()
    learning.check_needs(row)
    if side == SB3:
        figures = learning.peer(replace(row, lanes=row.lanes * row.copies, copies=1), seed)
    else:
        with runs.arena(row.training(seed), ranks=1, timeout=learning.TIMEOUT) as run:
            lines = learning.evaluated(row, run.folder, seed)
            figures = {"return": learning.figure(row.goals[0], lines), CPU: run.finished.cpu}
    described = machine.describe()
    where = {"steps": row.steps, "begun": round(begun), "load": load}
    return {"figures": figures, **where, "processor": described["processor"], "commit": described["commit"]}


def key_of(row: Row, side: str) -> str:
    """The key of a side's results: Stable-Baselines3's result depends on the number of environments, not on copies."""
    return row.name if side == ARENA else f"{row.name.rpartition('-')[0]}-{row.lanes * row.copies}"


def content(rows: Rows) -> dict[str, Any]:
    """The content of the result's file."""
    measured = Measured()
    report = Report(NAME, "Default options", measured, method(__doc__))
    for row in ROWS.values():
        found = {side: _of_now(row, rows, side) for side in SIDES}
        for side in SIDES:
            if found[side]:
                measured.samples[f"{key_of(row, side)}, {side}"] = list(found[side].values())
        _promise(report, row, *(found[side] for side in SIDES))
    return {**report.data(), "rows": rows}


def _of_now(row: Row, rows: Rows, side: str) -> dict[str, dict[str, float]]:
    """A side's figures by seed; only results in the row's current number of steps."""
    results = rows.get(key_of(row, side), {}).get(side, {})
    return {seed: results[seed]["figures"] for seed in sorted(results, key=int) if results[seed]["steps"] == row.steps}


def _promise(report: Report, row: Row, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    seeds = [seed for seed in ours if seed in theirs]
    limit = Summary(tuple(theirs[seed]["return"] for seed in seeds)).median
    if not seeds or limit < row.goals[0].limit:
        return
    claim = f"{row.name}: {row.steps:,} steps, {pluralize(len(seeds), 'seed')}"
    report.at_least(f"{claim}, return", Summary(tuple(ours[seed]["return"] for seed in seeds)), limit)
    ratios = tuple(ours[seed][CPU] / theirs[seed][CPU] for seed in seeds)
    report.at_most(f"{claim}, {CPU}, arena / {SB3}", Summary(ratios), 1)


# ---------------------------------------------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the missing results of the selected rows; returns the exit status."""
    given = _parsed(arguments)
    folder = given.results or harness.RESULTS
    begun, before, failed = time.time(), machine.load(), False
    for row in given.rows:
        for seed in given.seeds:
            for side in given.sides:
                if not given.anew and _measured(folder, row, side, seed):
                    continue
                try:
                    result = measure(row, side, seed)
                except (Unavailable, Failed) as error:
                    say(f"{row.name}, {side}, seed {seed}: {error}")
                    failed = True
                    continue
                say(f"{row.name}, {side}, seed {seed}: {result['figures']}")
                _add(folder, row, side, seed, result, begun=begun, before=before)
    path = folder / f"{NAME}.json"
    if path.exists():
        sys.stdout.write("\n".join(harness.table(json.loads(path.read_text()))) + "\n")
    return int(failed)


def _read(folder: Path) -> Rows:
    path = folder / f"{NAME}.json"
    rows: Rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    return rows


def _measured(folder: Path, row: Row, side: str, seed: int) -> bool:
    return str(seed) in _of_now(row, _read(folder), side)


def _add(folder: Path, row: Row, side: str, seed: int, result: dict[str, Any], *, begun: float, before: float) -> None:
    rows = _read(folder)
    rows.setdefault(key_of(row, side), {}).setdefault(side, {})[str(seed)] = result
    seconds = round(time.time() - begun, 1)
    repeats = max(len(seeds) for sides in rows.values() for seeds in sides.values())
    facts = {"quick": False, "repeats": repeats, "begun": round(begun), "seconds": seconds}
    load = {"before": before, "after": machine.load()}
    harness.write({**content(rows), **facts, "machine": machine.describe(), "load": load}, folder)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="A,B", help=f"rows, or beginnings of their names: {', '.join(ROWS)}")
    parser.add_argument("--lanes", type=_numbers, metavar="1,4,16", help="only rows with so many lanes")
    parser.add_argument("--copies", type=_numbers, metavar="1,4", help="only rows with so many copies")
    parser.add_argument("--seeds", type=_numbers, default=list(SEEDS), metavar="1,2,3")
    parser.add_argument("--sides", default=",".join(SIDES), metavar="A,B", help="what to measure (default: both)")
    parser.add_argument("--anew", action="store_true", help="measure results again that are in the file")
    parser.add_argument("--results", type=Path, help="folder for the result (default: results/)")
    given = parser.parse_args(arguments)
    given.sides = given.sides.split(",")
    if not set(given.sides) <= set(SIDES):
        parser.error(f"--sides takes {' and '.join(SIDES)}")
    wanted = (given.rows or "").split(",")
    for begins in wanted:
        if not any(name.startswith(begins) for name in ROWS):
            parser.error(f"no row begins with {begins!r}; known: {', '.join(ROWS)}")
    given.rows = [
        row
        for row in ROWS.values()
        if row.name.startswith(tuple(wanted))
        and (given.lanes is None or row.lanes in given.lanes)
        and (given.copies is None or row.copies in given.copies)
    ]
    return given


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
