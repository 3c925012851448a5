"""Learning on a GPU: what is promised of one card, and what each option costs or gives there.

The same runs in turns, each started as a user starts it, with one process for each role. `samples/s` is between the
first and the last line of metrics, by the clock, playing included; `s to the first line` is the rest of the command,
above all its start. Images are touchdown's, four frames of 84 x 84, against chance; units are skirmish's. Every PPO
makes 4 epochs. `two policies` are two matches of the first case, each with its own policy, on one card: the sum of
their samples/s. `act cpu, learn cuda` has as many matches as cores are left, and `sync: samples`.

`--device cpu --tiny` runs everything to its end without a GPU; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

import runs
from harness import Case, Report, Sample, Settings, Summary, Unavailable, interleave, main, method, say

SPEED, FIRST, LAST = "samples/s", "s to the first line", "policy loss of the last update"
DUEL = {"team_size": 1, "max_steps": 300}
SKIRMISH = {"width": 8, "height": 6, "team_size": 3, "health": 2, "max_steps": 50}
STACKED = {"wrappers": [{"frame_stack": {"stack_size": 4}}]}
GAMES: dict[str, Mapping[str, Any]] = {
    "numbers": {"make": "touchdown", "kwargs": DUEL},
    "images": {"make": "touchdown", "kwargs": {**DUEL, "blue_obs": "image"}, **STACKED},
    "units": {"make": "skirmish", "kwargs": SKIRMISH},
    "CartPole": {"make": "gymnasium:CartPole-v1"},
    "Pendulum": {"make": "gymnasium:Pendulum-v1"},
}
PPO = {"n_steps": 32, "minibatch_size": 2048, "n_epochs": 4}
LARGE = {"hidden_sizes": [1024, 1024], "batch_size": 1024, "log_every": 50}


class Learner(NamedTuple):
    """An algorithm and the game that it learns, against chance where the game has two sides."""

    algorithm: str
    options: Mapping[str, Any]
    game: str
    lanes: int
    ticks: int
    quick: int  # ticks with --quick
    matches: int = 1
    policies: int = 1
    sync: str = "gradients"


class Scale(NamedTuple):
    """What the command line asks for."""

    device: str
    tiny: bool
    quick: bool


def learners(device: str) -> dict[str, Learner]:
    """All cases by name; on the CPU those that only a GPU has are left out."""
    images = Learner("ppo", PPO, "images", 256, 32 * 41, 32 * 16)
    units = Learner("ppo", {**PPO, "transformer": {"d_model": 64}}, "units", 256, 32 * 21, 32 * 9)
    numbers = Learner("ppo", {**PPO, "n_steps": 128, "minibatch_size": 1024}, "numbers", 64, 128 * 50, 128 * 21)
    small = {
        "ppo": numbers,
        "dqn": Learner("dqn", {"log_every": 50}, "CartPole", 16, 4_000, 1_000),
        "sac": Learner("sac", {"log_every": 50}, "Pendulum", 4, 1_500, 500),
        "sac, 1024 x 1024, batches of 1024": Learner("sac", LARGE, "Pendulum", 4, 500, 350),
    }

    def cuda(learner: Learner, **more: Any) -> Learner:
        return learner._replace(options={**learner.options, "device": device, **(more if device != "cpu" else {})})

    separate = cuda(images, precision="bf16")
    separate = separate._replace(
        options={**separate.options, "device": {"act": "cpu", "learn": device}},
        sync="samples",
        lanes=32,
        matches=max(1, len(os.sched_getaffinity(0)) // 2 - 1),  # a worker and an environment on two cores
        quick=32 * 6,
    )
    return {
        "images, bf16": cuda(images, precision="bf16"),
        "images": cuda(images),
        "transformer": cuda(units),
        "transformer, bf16": cuda(units, precision="bf16"),
        "images, bf16, two policies": cuda(images, precision="bf16")._replace(policies=2),
        "images, bf16, cuda_graphs": cuda(images, precision="bf16", cuda_graphs=True),
        "images, bf16, not deterministic": cuda(images, precision="bf16", deterministic=False),
        "images, not deterministic": cuda(images, deterministic=False),
        "images, cuda_graphs": cuda(images, cuda_graphs=True),
        "images, bf16, act cpu, learn cuda": separate,
        "ppo, cuda_graphs": cuda(numbers, cuda_graphs=True),
        **{f"{name}, cuda": cuda(learner) for name, learner in small.items()},
        **{f"{name}, cpu": learner for name, learner in small.items()},
    }


QUICK = 12  # cases of `learners` that --quick measures: those before the small networks, and ppo with them


def config(learner: Learner, ticks: int) -> dict[str, Any]:
    """Matches of the learner, or of several with the same options."""
    names = [f"learner{number}" for number in range(learner.policies)]
    policy = {"algorithm": learner.algorithm, "options": dict(learner.options), "sync": learner.sync}
    alone = GAMES[learner.game]["make"].startswith("gymnasium:")
    return {
        "name": "devices",
        "ticks": ticks,
        "envs": {"game": {"kwargs": {}, **GAMES[learner.game]}},
        "policies": {**dict.fromkeys(names, policy), **({} if alone else {"chance": {"algorithm": "random"}})},
        "matches": [
            {
                "env": "game",
                "seats": [name] if alone else [name, "chance"],
                "lanes": learner.lanes,
                "copies": learner.matches,
            }
            for name in names
        ],
    }


def trained(learner: Learner, scale: Scale) -> Sample:
    """The speed of a run, of all its policies together."""
    if "cuda" in str(learner.options.get("device")) and not torch.cuda.is_available():
        raise Unavailable("torch finds no CUDA device on this machine")
    ticks = learner.quick if scale.quick else learner.ticks
    if scale.tiny:
        small = {"n_steps": 4, "minibatch_size": 16, "n_epochs": 1, "learning_starts": 8, "log_every": 4}
        known = {name: small.get(name, value) for name, value in learner.options.items()}
        known |= {"learning_starts": 8, "log_every": 4} if learner.algorithm in ("dqn", "sac") else {}
        learner, ticks = learner._replace(options=known, lanes=4), 16
    with runs.arena(config(learner, ticks)) as run:
        lines = runs.lines_of(run.folder / "metrics.jsonl")
        speed = seconds = 0.0
        for name in {line["policy"] for line in lines}:
            first, *_, last = (line for line in lines if line["policy"] == name)
            seconds = last["seconds"] - first["seconds"]
            speed += (last["samples"] - first["samples"]) / seconds
        found = {SPEED: speed, FIRST: run.finished.wall - seconds}
        return {**found, LAST: last["policy_loss"]} if "policy_loss" in last else found


def benchmark(scale: Scale, settings: Settings) -> Report:
    """Measures all cases, or the first ones; each promise is of one card."""
    known = learners(scale.device)
    names = [*known][:QUICK] if scale.quick else [*known]
    measured = interleave(
        [Case(name, partial(trained, known[name], scale)) for name in names], settings.repeats, say=say
    )
    report = Report("devices", "Learning on a GPU", measured, method(__doc__))

    def ratio(over: str, under: str) -> Summary:
        return measured.ratio((over, SPEED), (under, SPEED))

    for name, limit in (("images, bf16", 40_000), ("images", 15_000), ("transformer", 20_000)):
        report.at_least(f"{name}: samples/s", measured.summary(name, SPEED), limit)
    report.at_least("images, bf16: two policies / one", ratio("images, bf16, two policies", "images, bf16"), 1.6)
    for name in ("images, bf16", "images"):
        pair = [name, f"{name}, cuda_graphs"]
        difference = measured.each(lambda at, pair=pair: abs(at(pair[0], LAST) - at(pair[1], LAST)), pair)  # type: ignore[misc]
        report.at_most(f"{name}: policy loss with cuda_graphs - without, the same bits", difference, 0)
        price = ratio(f"{name}, not deterministic", name).values
        measured.samples[f"{name}: deterministic: false / true"] = [{SPEED: one} for one in price]
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--tiny", action="store_true", help="a few ticks of each case, to see that all run")
    own, others = parser.parse_known_args()

    def on_device(settings: Settings) -> Report:
        """The benchmark with the options of this command line."""
        return benchmark(Scale(own.device, own.tiny, settings.quick), settings)

    sys.exit(main(on_device, others))
