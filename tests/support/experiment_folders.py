"""Simulated folders of experiments: their records and results, written without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena.experiment.config import experiment_yaml, parse_experiment
from arena.experiment.folder import ExperimentFolder, StateLine, now, write_state
from arena.experiment.plan import plan_experiment
from arena.experiment.scheduler import State

RUN: dict[str, Any] = {
    "name": "base",
    "seed": 7,
    "ticks": 10,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "ppo", "options": {"gamma": 0.5}}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
}
RATE = "policies.blue.options.learning_rate"
GAMMA = "policies.blue.options.gamma"


def write_experiment(
    path: Path, data: dict[str, Any], reach: Callable[[int, int], float], *, results: int, errors: bool = True
) -> Path:
    """Writes the folder of an experiment whose trials have all ended.

    Args:
        path: of the folder.
        data: of the experiment.
        reach: the metric `episode_reward_mean` of a trial's n-th result, from both numbers.
        results: of each trial.
        errors: whether the last trial is in error.
    """
    plan = plan_experiment(parse_experiment(data))
    folder = ExperimentFolder(path)
    folder.make()
    folder.write_config(experiment_yaml(plan.file.config))
    for number, trial in enumerate(plan.known):
        name = folder.folder_name(number, plan.trials.tag(trial))
        known = {"params": dict(trial.params), "seed": trial.seed, "digest": trial.digest, "variant": trial.variant}
        last = errors and number == len(plan.known) - 1
        state = State.ERROR if last else State.TERMINATED
        changes = [
            StateLine(now(), State.PENDING, folder=name, **known),
            StateLine(now(), State.RUNNING, hosts="here:1", pid=1),
            StateLine(now(), state, exit=int(last), why="exit 1" if last else "", tick=results * 10, order=number),
        ]
        write_state(folder.state_path(number), changes)
        run = folder.trials / name
        run.mkdir()
        points = (
            {"training_iteration": n, "ticks": n * 10, "episode_reward_mean": reach(number, n)}
            for n in range(1, results + 1)
        )
        (run / "result.json").write_text("".join(f"{json.dumps(point)}\n" for point in points))
    return path
