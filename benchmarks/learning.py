"""Learning: does every algorithm reach the results known for it, and in how much time?

Every row of `learning_rows.py` learns with three seeds, each in one process and one leg (`arena train --ranks 1`). Then
`arena evaluate` plays the learned weights greedily, in games of other seeds; goals that say so are of the last fifth of
the training, as a policy without memory that is greedy may go in circles. The median over the seeds decides;
results in other numbers of steps than the newest result are kept, and do not count.

CPU seconds are of the whole training command, imports included, without the evaluation. Stable-Baselines3 learns the
same game in as many steps with as many environments, the same networks and the same options, with one thread of torch,
and is timed in the same way.

The table is long, so rows can be measured one by one (`--rows`), also in the background: each result is added to the
file at once, with the commit at which it was measured. A learning curve has 20 points:
the mean of the episodes that ended in each twentieth of the steps, the median over the seeds.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

import harness
import machine
import runs
from arena.errors import pluralize
from harness import Measured, Report, Unavailable, method, say
from learning_rows import ROWS, Goal, Line, Row
from processes import Failed

POINTS = 20  # of a learning curve
SEEDS = (1, 2, 3)
QUICK = 20  # how many times shorter a quick run is
TIMEOUT = 7200.0  # seconds that one seed of a row may take
PEERS = harness.HERE.parent / ".venv-peers" / "bin" / "python"
CPU, SB3 = "CPU s", "Stable-Baselines3"
BESIDE = f"beside {SB3}"  # the seeds for which both were measured

Result = dict[str, Any]
"""The result of one seed of a row: `figures`, `curve`, `peer`, and when and where it was measured."""


# ----------------------------------------------------------------------------------------------------------- one seed


def measure(row: Row, seed: int, *, peers: bool = True) -> Result:
    """Trains and evaluates one seed of a row, and trains Stable-Baselines3 on the same task.

    Raises:
        Unavailable: the game or the algorithm is not installed.
        Failed: a command did not end well.
    """
    check_needs(row)
    begun, load = time.time(), machine.load()
    with runs.arena(row.training(seed), ranks=1, timeout=TIMEOUT) as run:
        played, training = evaluated(row, run.folder, seed), runs.lines_of(run.folder / "episodes.jsonl")
        curve = curve_of(row, training)
        late = [line for line in training if line["tick"] > 0.8 * row.ticks and not line.get("cut")]
        figures = {goal.claim: figure(goal, late if goal.in_training else played) for goal in row.goals}
        figures |= {"episodes": float(len(played)), CPU: run.finished.cpu}
    theirs = peer(row, seed) if peers and row.peer is not None else None
    described = machine.describe()
    where = {"begun": round(begun), "load": load, "commit": described["commit"]}
    return {"figures": figures, "curve": curve, "peer": theirs, "steps": row.steps, **where}


def check_needs(row: Row) -> None:
    missing = [name for name in row.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"needs the module {' and '.join(missing)}, which is not installed here")


def evaluated(row: Row, run: Path, seed: int) -> list[Line]:
    """The episodes of the evaluation."""
    folder = run.parent
    config = row.evaluating(str(run), seed)
    (folder / "evaluation.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config))))
    episodes = row.episodes * len(config["matches"])
    command = [sys.executable, "-m", "arena", "evaluate", "evaluation.yaml", "--episodes", str(episodes)]
    runs.ended_well([*command, "--run-dir", "evaluations"], folder, timeout=TIMEOUT)
    (records,) = (folder / "evaluations").glob("*/episodes.jsonl")
    return [line for line in runs.lines_of(records) if not line.get("cut")]


def figure(goal: Goal, lines: Sequence[Line]) -> float:
    """The mean of a goal's value."""
    values = [value for line in lines if (value := goal.value(line)) is not None]
    return statistics.fmean(values)


def curve_of(row: Row, lines: Sequence[Line]) -> list[float | None]:
    """The mean of the first goal's value in each part of the training; None where no episode has ended."""
    parts: list[list[float]] = [[] for _ in range(POINTS)]
    for line in lines:
        value = None if line.get("cut") else row.goals[0].value(line)
        if value is not None:
            parts[min((line["tick"] - 1) * POINTS // row.ticks, POINTS - 1)].append(value)
    return [statistics.fmean(part) if part else None for part in parts]


def peer(row: Row, seed: int) -> dict[str, float]:
    """Stable-Baselines3's figures for the row."""
    assert row.peer is not None, "it has no part in this row"
    python = str(PEERS) if PEERS.exists() else sys.executable
    told = {"game": row.make.partition(":")[2], "steps": row.steps, "lanes": row.lanes, "seed": seed}
    told |= {"algorithm": row.peer.algorithm, "options": row.peer.options, "episodes": row.episodes}
    with runs.scratch() as folder:
        command = [python, str(harness.HERE / "peer_sb3_learning.py"), json.dumps(told)]
        found: dict[str, float] = json.loads(runs.ended_well(command, folder, timeout=TIMEOUT).out.splitlines()[-1])
    return found


# ------------------------------------------------------------------------------------------------------- all together


class Results:
    """The file with all results; several processes may write to it at the same time.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, row: str, seed: int, result: Result | str, **facts: Any) -> dict[str, Any]:
        """Adds the result of a seed of a row, or why there is none; returns the whole content."""
        with self._locked():
            seeds = self._read()
            found = seeds.setdefault(row, {})
            if not isinstance(result, str):
                found.pop("unavailable", None)
                found[str(seed)] = result
            elif not _comparable(found):  # keeps the results of another machine
                seeds[row] = {"unavailable": result}
            data = {**content(seeds), **facts}
            harness.write(data, self._folder)
        return data

    def _read(self) -> dict[str, dict[str, Any]]:
        path = self._folder / "learning.json"
        rows: dict[str, dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else {}
        return rows

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / ".learning.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def content(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The content of the result's file, from the results of all seeds of all rows."""
    measured = Measured()
    report = Report("learning", "Learning", measured, method(__doc__))
    for name in [name for name in ROWS if name in rows]:
        found = rows[name]
        if "unavailable" in found:
            measured.unavailable[name] = found["unavailable"]
            continue
        results = list(_comparable(found).values())
        measured.samples[name] = [result["figures"] for result in results]
        beside = [result for result in results if result["peer"]]  # seeds for which Stable-Baselines3 was measured too
        if beside:
            measured.samples[f"{name}, {SB3}"] = [result["peer"] for result in beside]
            measured.samples[f"{name}, {BESIDE}"] = [result["figures"] for result in beside]
        _promise(report, replace(ROWS[name], steps=results[0]["steps"]))
    return {**report.data(), "rows": rows, "curves": _curves(rows)}


def _comparable(found: Mapping[str, Any]) -> dict[str, Result]:
    """A row's results by seed, only results in as many steps as the newest result, which alone can be compared."""
    results = {seed: found[seed] for seed in sorted(found.keys() - {"unavailable"}, key=int)}
    newest: Result = max(results.values(), key=lambda result: result["begun"], default={})
    return {seed: result for seed, result in results.items() if result["steps"] == newest["steps"]}


def _promise(report: Report, row: Row) -> None:
    seeds = pluralize(len(report.measured.samples[row.name]), "seed")
    for goal in row.goals:
        add = report.at_most if goal.at_most else report.at_least
        add(
            f"{row.name}: {goal.claim} after {row.steps:,} steps, {seeds}",
            report.measured.summary(row.name, goal.claim),
            goal.limit,
        )
    theirs = f"{row.name}, {SB3}"
    if theirs in report.measured.samples:
        count = len(report.measured.samples[theirs])
        ratio = report.measured.ratio((f"{row.name}, {BESIDE}", CPU), (theirs, CPU))
        report.at_most(f"{row.name}: {CPU}, arena / {SB3}, {pluralize(count, 'seed')}", ratio, 1)


def _curves(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The learning curve of each row, the median of the seeds."""
    found = {}
    for name in [name for name in ROWS if name in rows and "unavailable" not in rows[name]]:
        parts = zip(*(result["curve"] for result in _comparable(rows[name]).values()), strict=True)
        found[name] = [_median([value for value in part if value is not None]) for part in parts]
    return found


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


# ---------------------------------------------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the selected rows, one seed after the other; returns the exit status."""
    given = _parsed(arguments)
    folder = given.results or (harness.RESULTS / "quick" if given.quick else harness.RESULTS)
    results = Results(folder)
    tasks = [(row, seed) for row in given.rows for seed in given.seeds]
    if given.quick:
        tasks = [(replace(row, steps=row.steps // QUICK), seed) for row, seed in tasks]
    begun, before = time.time(), machine.load()

    def work(task: tuple[Row, int]) -> dict[str, Any] | None:
        row, seed = task
        outcome = _outcome(row, seed, peers=given.peers)
        return None if outcome is None else results.add(row.name, seed, outcome, **_facts(given, begun, before))

    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(work, tasks))
    data = [known for known in found if known is not None]
    if data:
        sys.stdout.write("\n".join(harness.table(data[-1])) + "\n")
    return 0 if len(data) == len(found) else 1


def _outcome(row: Row, seed: int, *, peers: bool) -> Result | str | None:
    """The result of a seed, or why it cannot be measured here; None if it has failed."""
    try:
        result = measure(row, seed, peers=peers)
    except Unavailable as error:
        say(f"{row.name}: not available: {error}")
        return str(error)
    except Failed as error:
        say(f"{row.name}, seed {seed}: failed: {error}")
        return None
    figures = {**result["figures"], **{f"{SB3}, {name}": value for name, value in (result["peer"] or {}).items()}}
    say(f"{row.name}, seed {seed}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return result


def _facts(given: argparse.Namespace, begun: float, before: float) -> dict[str, Any]:
    """Place and time of the last measurement."""
    load = {"before": before, "after": machine.load()}
    seconds = round(time.time() - begun, 1)
    facts = {"quick": given.quick, "repeats": len(given.seeds), "begun": round(begun), "seconds": seconds}
    return {**facts, "machine": machine.describe(), "load": load}


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=_rows, default=list(ROWS.values()), metavar="A,B", help=", ".join(ROWS))
    parser.add_argument("--seeds", type=_seeds, metavar="1,2,3", help="default: 1,2,3; quick: 1")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="seeds at the same time (default: 1)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help=f"without {SB3}")
    parser.add_argument(
        "--quick", action="store_true", help=f"one seed, {QUICK} times fewer steps: to see that it works"
    )
    parser.add_argument(
        "--repeats", type=int, help=argparse.SUPPRESS
    )  # an option of all benchmarks; here the seeds are the repeats
    parser.add_argument("--results", type=Path, help="folder for the result (default: results/)")
    given = parser.parse_args(arguments)
    given.seeds = given.seeds or (SEEDS[:1] if given.quick else SEEDS)
    return given


def _rows(text: str) -> list[Row]:
    names = text.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no row {unknown[0]!r}; known: {', '.join(ROWS)}")
    return [ROWS[name] for name in names]


def _seeds(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
