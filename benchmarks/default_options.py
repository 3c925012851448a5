"""Default options: areas under the learning curves of ten seeds, beside other candidates and Stable-Baselines3.

A row is an algorithm, a game, and how it is played: `cartpole-a2c-4` is one match with 4 lanes, `cartpole-a2c-1x4` four
copies with one lane each. A side of a row is a choice of options: the default, candidates for it, and
Stable-Baselines3's default with as many environments as all copies have lanes together, so that its trainings with 4
environments are compared with `4` and with `1x4`. All sides get the same number of environment steps;
Stable-Baselines3 rounds it up to whole rollouts. Figures are medians over
the seeds, with quartiles.

A learning curve has 20 points: the mean return of the episodes that ended in each twentieth of the steps, or the point
before where none ended. Its area is the mean of the points. Then the learned policy plays greedily, in games of other
seeds. A difference is of the areas of a side and of the default, seed by seed: its mean with the 95 % interval of a
t-distribution. The promises compare the medians of the default and of Stable-Baselines3.

Each training is a process forked from one that has imported everything; its CPU seconds (user and system) are of the
training alone, on a machine that may be busy. `arena` trains there by `Trainer`, in one process, with one thread of
torch. Each finished training is written at once with the options that it had, and is not measured again (`--anew`
does); a training with other options than those that a side has now does not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from scipy.special import stdtrit

import harness
import machine
import runs
from arena import Trainer, registry
from arena.errors import pluralize
from harness import Measured, Report, Summary, method, number, say
from learning_rows import Goal, Row, returns
from processes import Failed

NAME = "default_options"
DEFAULT, SB3, CPU = "default", "Stable-Baselines3", "CPU s"
SEEDS = tuple(range(1, 11))
POINTS = 20  # of a learning curve
LAYOUTS = ((4, 1), (1, 4), (16, 1), (1, 1))  # lanes, copies
FORK = multiprocessing.get_context("fork")

Result = dict[str, Any]
"""One training: `area`, `return`, `CPU s`, `curve`, and when it was measured."""

Trainings = dict[str, list[dict[str, Any]]]
"""By row, what was measured: `options` (null: Stable-Baselines3's defaults), `steps`, and `seeds`, a result each."""


class Game(NamedTuple):
    """A game to learn, with the number of steps for each algorithm."""

    make: str
    steps: Mapping[str, int]  # by algorithm
    episodes: int = 20  # of the evaluation


GAMES = {
    "cartpole": Game("CartPole-v1", dict.fromkeys(("a2c", "dqn", "ppo"), 50_000)),
    "pendulum": Game(
        "Pendulum-v1", {**dict.fromkeys(("sac", "ddpg", "td3"), 10_000), "ppo": 100_000, "a2c": 100_000}, episodes=50
    ),
    "acrobot": Game("Acrobot-v1", dict.fromkeys(("a2c", "dqn", "ppo"), 50_000)),
    "mountaincar": Game("MountainCarContinuous-v0", dict.fromkeys(("sac", "ddpg", "td3", "ppo", "a2c"), 50_000)),
}

ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.999}
RMSPROP = {"adam_beta1": 0.0, "adam_beta2": 0.99}
CANDIDATES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "a2c": {
        "Adam": {"learning_rate": 1e-3, **ADAM},
        "Adam, rate 5e-4": {"learning_rate": 5e-4, **ADAM},
        "Adam, rate 2e-3": {"learning_rate": 2e-3, **ADAM},
        "RMSprop": {"learning_rate": 1e-3, **RMSPROP},
        "Adam, 16 ticks per rollout": {"learning_rate": 1e-3, **ADAM, "n_steps": 16},
        "Adam, 16 ticks per rollout, gae_lambda 0.9": {"learning_rate": 1e-3, **ADAM, "n_steps": 16, "gae_lambda": 0.9},
        "Adam, standardized advantages": {"learning_rate": 1e-3, **ADAM, "normalize_advantage": True},
        "RMSprop, rate 7e-4, constant": {"learning_rate": 7e-4, "learning_rate_schedule": "constant", **RMSPROP},
    },
    "dqn": {
        **{f"{ratio} replays per sample": {"training_intensity": ratio} for ratio in (4, 8, 16, 32)},
        "16 replays per sample, batch size 16": {"training_intensity": 16, "batch_size": 16},
    },
    "sac": {f"{ratio} replays per sample": {"training_intensity": ratio} for ratio in (91, 128, 181, 256)},
}
"""Options beside the defaults, by algorithm; where an algorithm plays in one lane, only the default is measured."""


def row_of(name: str, algorithm: str, lanes: int, copies: int) -> Row:
    """A row of the table, of the default."""
    game = GAMES[name]
    return Row(
        name=f"{name}-{algorithm}-{lanes}" + (f"x{copies}" if copies > 1 else ""),
        make=f"gymnasium:{game.make}",
        steps=game.steps[algorithm],
        policies={"p": {"algorithm": algorithm}},
        seats=["p"],
        goals=[Goal("return", 0, returns("p"))],
        lanes=lanes,
        copies=copies,
        episodes=game.episodes,
    )


ROWS = {
    row.name: row
    for name, game in GAMES.items()
    for algorithm in game.steps
    for row in (row_of(name, algorithm, lanes, copies) for lanes, copies in LAYOUTS)
}


def algorithm_of(row: Row) -> str:
    return str(row.policies["p"]["algorithm"])


def settled(row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a side, with a number for each `auto`."""
    options = registry.algorithm(algorithm_of(row)).Options(**given)
    sizes = {"rows": row.lanes, "workers": row.copies}
    found: Any = options.settled(**sizes, **({"ticks": row.ticks} if hasattr(options, "n_steps") else {}))
    told: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return told


def sides_of(row: Row) -> dict[str, dict[str, Any] | None]:
    """The options of each side by its name, which says which one is the default."""
    default = settled(row, {})
    candidates = CANDIDATES.get(algorithm_of(row), {}) if row.lanes * row.copies > 1 else {}
    sides = {name: settled(row, given) for name, given in candidates.items()}
    named = next((name for name, options in sides.items() if options == default), None)
    others = {name: options for name, options in sides.items() if name != named}
    return {f"{DEFAULT}: {named}" if named else DEFAULT: default, **others, SB3: None}


# ----------------------------------------------------------------------------------------------------------- measuring


def measure(row: Row, options: Mapping[str, Any] | None, seed: int) -> Result:
    """The result of one training, in a process of its own.

    Raises:
        Failed: it has failed; its trace is on stderr.
    """
    begun, load = time.time(), machine.load()
    ours, theirs = FORK.Pipe(duplex=False)
    learn: Callable[[], Result] = lambda: sb3(row, seed) if options is None else arena(row, options, seed)  # noqa: E731
    process = FORK.Process(target=lambda: theirs.send(learn()))
    process.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        raise Failed("the training has failed, see above") from None
    finally:
        process.join()
    return {**found, "area": area(found["curve"]), "begun": round(begun), "load": load}


def arena(row: Row, options: Mapping[str, Any], seed: int) -> Result:
    """Trains with the given options, then plays greedily."""
    policies = {"p": {**row.policies["p"], "options": dict(options)}}
    config = {**replace(row, policies=policies).training(seed), "checkpoint_every": row.ticks, "loggers": []}
    with runs.scratch() as folder, Trainer(config, run_dir=folder / "run") as trainer:
        trainer.train()
        used = time.process_time()
        score = trainer.evaluate(row.episodes)["policy_reward_mean"]["p"]
        lines = runs.lines_of(folder / "run" / "episodes.jsonl")
    ended = [(line["tick"] / row.ticks, line["seats"][0]["return"]) for line in lines if not line.get("cut")]
    return {"return": score, CPU: used, "curve": curve_of(ended)}


def sb3(row: Row, seed: int) -> Result:
    """Stable-Baselines3's figures."""
    from peer_sb3_learning import learned

    told = {"game": row.make.partition(":")[2], "steps": row.steps, "lanes": row.lanes * row.copies, "seed": seed}
    found = learned({**told, "algorithm": algorithm_of(row).upper(), "options": {}, "episodes": row.episodes})
    ended = [(step / row.steps, score) for step, score in found.pop("ended")]
    return {**found, "curve": curve_of(ended)}


def curve_of(ended: Sequence[tuple[float, float]]) -> list[float | None]:
    """The mean return of the episodes that ended in each part of the training; None where none has."""
    parts: list[list[float]] = [[] for _ in range(POINTS)]
    for when, score in ended:
        parts[min(int(when * POINTS), POINTS - 1)].append(score)
    return [round(statistics.fmean(part), 3) if part else None for part in parts]


def area(curve: Sequence[float | None]) -> float:
    """The mean of a curve whose missing points have the value before, in the beginning the first value."""
    last = next(point for point in curve if point is not None)
    return statistics.fmean([last := last if point is None else point for point in curve])


# ---------------------------------------------------------------------------------------------------------- the record


def key_of(row: Row, options: Mapping[str, Any] | None) -> str:
    """The key of a side's trainings; those of Stable-Baselines3 depend on the number of environments, not on copies."""
    return row.name if options else f"{row.name.rpartition('-')[0]}-{row.lanes * row.copies}"


def found_in(trainings: Trainings, row: Row, options: Mapping[str, Any] | None) -> dict[str, Result]:
    """The results of a side by seed; an option that has come since the measurement changes nothing."""
    for one in trainings.get(key_of(row, options), []):
        same = (
            one["options"] is None
            if options is None
            else one["options"] is not None and one["options"].items() <= options.items()
        )
        if same and one["steps"] == row.steps:
            seeds: dict[str, Result] = one["seeds"]
            return seeds
    return {}


def content(trainings: Trainings) -> dict[str, Any]:
    """The content of the result's file."""
    report = Report(NAME, "Default options", Measured(), method(__doc__))
    lines, missing = [], []
    for row in ROWS.values():
        sides = {name: found_in(trainings, row, options) for name, options in sides_of(row).items()}
        default, theirs = next(iter(sides.values())), sides[SB3]
        if not default:
            missing.append(row.name)
            continue
        for name, found in sides.items():
            if found:
                figures = [quartiles([one[figure] for one in found.values()]) for figure in ("area", "return", CPU)]
                compared = "" if found is default else difference(found, default)
                lines.append([row.name, name, str(len(found)), *figures[:2], compared, figures[2]])
        if default.keys() & theirs.keys():
            seeds = [seed for seed in default if seed in theirs]
            for figure in ("area", "return"):
                values, limits = ([side[seed][figure] for seed in seeds] for side in (default, theirs))
                claim = f"{row.name}: {figure}, {pluralize(len(seeds), 'seed')}"
                report.at_least(claim, Summary(tuple(values)), statistics.median(limits))
    head = ("row", "options", "seeds", "area", "greedy return", "area, difference to the default", CPU)
    told = [f"Not measured: {', '.join(missing)}."] if missing else []
    data = report.data()
    return {**data, "method": data["method"] + told, "tables": [{"head": head, "rows": lines}], "trainings": trainings}


def quartiles(values: Sequence[float]) -> str:
    """Median and quartiles, as text."""
    if len(values) < 2:
        return number(values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{number(middle)} ({number(low)} .. {number(high)})"


def difference(side: Mapping[str, Result], default: Mapping[str, Result]) -> str:
    """The mean of the differences of the areas, seed by seed, with its 95 % interval."""
    values = [side[seed]["area"] - default[seed]["area"] for seed in side if seed in default]
    if len(values) < 2:
        return ""
    mean = statistics.fmean(values)
    reach = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.3g} ({mean - reach:+.3g} .. {mean + reach:+.3g})"


# ---------------------------------------------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is missing of the selected rows; returns the exit status."""
    given = _parsed(arguments)
    folder = given.results or harness.RESULTS
    torch.set_num_threads(1)
    _import_all()
    begun, before, failed = time.time(), machine.load(), False
    for row, name, options, seed in _tasks(given):
        if not given.anew and str(seed) in found_in(_read(folder), row, options):
            continue
        try:
            result = measure(row, options, seed)
        except Failed as error:
            say(f"{row.name}, {name}, seed {seed}: {error}")
            failed = True
            continue
        say(f"{row.name}, {name}, seed {seed}: " + ", ".join(f"{f} {result[f]:.4g}" for f in ("area", "return", CPU)))
        _add(folder, row, options, seed, result, begun=begun, before=before)
    path = folder / f"{NAME}.json"
    if path.exists():
        data = json.loads(path.read_text())
        data |= content(data["trainings"])  # defaults may have changed since the last measurement
        harness.write(data, folder)
        sys.stdout.write("\n".join(harness.table(data)) + "\n")
    return int(failed)


def _tasks(given: argparse.Namespace) -> Iterator[tuple[Row, str, dict[str, Any] | None, int]]:
    """All sides of a seed after each other, so that a row that is stopped has sides of as many seeds."""
    for row in given.rows:
        for seed in given.seeds:
            for name, options in sides_of(row).items():
                if any(part in name for part in given.sides.split(",")):
                    yield row, name, options, seed


def _import_all() -> None:
    """Imports in this process what the trainings need, so that each begins at once."""
    import torch._dynamo  # noqa: F401  # as the first optimizer of torch does

    import peer_sb3_learning  # noqa: F401

    for algorithm in {algorithm_of(row) for row in ROWS.values()}:
        registry.algorithm(algorithm)


def _read(folder: Path) -> Trainings:
    path = folder / f"{NAME}.json"
    found: Trainings = json.loads(path.read_text())["trainings"] if path.exists() else {}
    return found


def _add(
    folder: Path, row: Row, options: dict[str, Any] | None, seed: int, result: Result, *, begun: float, before: float
) -> None:
    trainings = _read(folder)
    found = found_in(trainings, row, options)
    if not found:
        one = {"options": options, "steps": row.steps, "seeds": found}
        trainings.setdefault(key_of(row, options), []).append(one)
    found[str(seed)] = result
    facts = {"quick": False, "repeats": max(len(one["seeds"]) for sides in trainings.values() for one in sides)}
    facts |= {"begun": round(begun), "seconds": round(time.time() - begun, 1), "machine": machine.describe()}
    harness.write({**content(trainings), **facts, "load": {"before": before, "after": machine.load()}}, folder)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="A,B", help=f"rows, or beginnings of their names: {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=_numbers, default=list(SEEDS), metavar="1,2,3")
    parser.add_argument("--sides", default="", metavar="A,B", help="only sides whose names have one of these texts")
    parser.add_argument("--anew", action="store_true", help="measure again what is in the file")
    parser.add_argument("--results", type=Path, help="folder for the result (default: results/)")
    given = parser.parse_args(arguments)
    wanted = (given.rows or "").split(",")
    for begins in wanted:
        if not any(name.startswith(begins) for name in ROWS):
            parser.error(f"no row begins with {begins!r}; known: {', '.join(ROWS)}")
    given.rows = [row for begins in wanted for row in ROWS.values() if row.name.startswith(begins)]
    return given


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
