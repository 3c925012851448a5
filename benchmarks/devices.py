"""The device that learns: the CPU, with one thread of torch, against a GPU.

The same run in one process with `device: cpu` and with `device: cuda`, in turns: networks of usual sizes, and a large
one. `samples/s` is between the first and the last line of metrics, by the clock, playing included; `s to the first
line` is the rest of the command, above all its start. Needs a machine with a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

import runs
from harness import Case, Report, Sample, Settings, Unavailable, interleave, main, method, say

SPEED, FIRST = "samples/s", "s to the first line"
DUEL = {"team_size": 1, "max_steps": 300}
IMAGES = {**DUEL, "blue_obs": "image", "red_obs": "image"}
SKIRMISH = {"width": 8, "height": 6, "team_size": 3, "health": 2, "max_steps": 50}
PPO = {"n_steps": 32, "minibatch_size": 256, "n_epochs": 4}


class Learner(NamedTuple):
    """An algorithm and the game that it learns, against chance where the game has two sides."""

    algorithm: str
    options: Mapping[str, Any]
    game: str
    kwargs: Mapping[str, Any]
    lanes: int
    ticks: int
    sides: int = 1


LEARNERS = {
    "ppo": Learner("ppo", {**PPO, "n_steps": 128, "minibatch_size": 1024}, "touchdown", DUEL, 64, 6_400, 2),
    "ppo, images": Learner("ppo", PPO, "touchdown", IMAGES, 16, 256, 2),
    "ppo, transformer": Learner("ppo", {**PPO, "transformer": {"d_model": 64}}, "skirmish", SKIRMISH, 32, 320, 2),
    "dqn": Learner("dqn", {"log_every": 50}, "gymnasium:CartPole-v1", {}, 16, 4_000),
    "sac": Learner("sac", {"log_every": 50}, "gymnasium:Pendulum-v1", {}, 4, 1_500),
    "sac, 1024 x 1024, batches of 1024": Learner(
        "sac", {"hidden_sizes": [1024, 1024], "batch_size": 1024, "log_every": 50}, "gymnasium:Pendulum-v1", {}, 4, 500
    ),
}


def config(learner: Learner, device: str, ticks: int) -> dict[str, Any]:
    """One match of the learner."""
    policies = {"learner": {"algorithm": learner.algorithm, "options": {**learner.options, "device": device}}}
    return {
        "name": "devices",
        "ticks": ticks,
        "envs": {"game": {"make": learner.game, "kwargs": dict(learner.kwargs)}},
        "policies": policies if learner.sides == 1 else {**policies, "chance": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["learner", "chance"][: learner.sides], "lanes": learner.lanes}],
    }


def trained(learner: Learner, device: str, *, quick: bool) -> Sample:
    """The speed of a run."""
    if device == "cuda" and not torch.cuda.is_available():
        raise Unavailable("torch finds no CUDA device on this machine")
    with runs.arena(config(learner, device, 2 * learner.ticks // 3 if quick else learner.ticks), ranks=1) as run:
        first, *_, last = runs.lines_of(run.folder / "metrics.jsonl")
        seconds = last["seconds"] - first["seconds"]
        return {SPEED: (last["samples"] - first["samples"]) / seconds, FIRST: run.finished.wall - seconds}


def benchmark(settings: Settings) -> Report:
    """Measures all learners on both devices."""
    cases = [
        Case(f"{name}, {device}", partial(trained, learner, device, quick=settings.quick))
        for name, learner in LEARNERS.items()
        for device in ("cpu", "cuda")
    ]
    measured = interleave(cases, settings.repeats, say=say)
    return Report("devices", "Learning on a GPU", measured, method(__doc__))


if __name__ == "__main__":
    sys.exit(main(benchmark))
