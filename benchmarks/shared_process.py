"""CPU time per sample where many roles share a process, against an older version and other packages.

A figure is the CPU seconds (user and system) of a long training minus those of a short one, by the samples in between,
so that neither imports nor the start count. A sample is one step of one lane of one learner, or of a random player
where none learns. Every training is a process of its own with one thread of torch.

The older version is a second checkout with its own environment, whose folder stands in `ARENA_BEFORE`; without it these
cases are not available. The fused loop (`fused_ppo.py`) and Stable-Baselines3's a2c, sac and ddpg with four
environments play the same games. The round robin has 91 roles (30 matches of one lane, each of four policies learns
from 15 workers) in two processes. sac and ddpg of both take one gradient step of 256 transitions per step of the four
environments, the arena as the mean over its four workers; a2c of both learns from rollouts of 5 ticks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness import HERE, Case, Report, Sample, Settings, Unavailable, interleave, main, method, say
from terms import Terms

FIGURE = "CPU us per sample"
NOW, BEFORE, FUSED, SB3 = "this version", "the older version", "fused loop", "Stable-Baselines3"

PEER = """
import json, sys
import torch, stable_baselines3
torch.set_num_threads(1)
from stable_baselines3.common.env_util import make_vec_env
name, env, options, steps = json.loads(sys.argv[1])
getattr(stable_baselines3, name)("MlpPolicy", make_vec_env(env, 4), seed=1, device="cpu", **options).learn(steps)
"""


class Row(NamedTuple):
    """A game and its policies; `samples`: of all learners together per tick."""

    env: Mapping[str, Any]
    policies: Mapping[str, Any]
    match: Mapping[str, Any]
    samples: int
    ticks: int  # of the long training
    short: int  # of the short one, in which learning has begun
    limit: float  # asked, of the older version
    ranks: int = 1


TERMS = Terms()
ROUND_ROBIN = {"n_steps": 125, "minibatch_size": 125, "n_epochs": 4}
ROWS = {
    "CartPole, ppo, 4 workers": Row(
        {"make": "gymnasium:CartPole-v1"},
        {"p": {"algorithm": "ppo"}},
        {"env": "game", "seats": ["p"], "copies": 4},
        4,
        12_000,
        800,
        0.75,
    ),
    "CartPole, 100 random players": Row(
        {"make": "gymnasium:CartPole-v1"},
        {"p": {"algorithm": "random"}},
        {"env": "game", "seats": ["p"], "copies": 100},
        100,
        1500,
        100,
        0.6,
    ),
    "touchdown, ppo, 64 lanes": Row(
        {"make": "envs.touchdown:Touchdown"},
        {"p": {"algorithm": "ppo", "options": TERMS.options()}, "q": {"algorithm": "random"}},
        {"env": "game", "seats": ["p", "q"], "lanes": TERMS.lanes},
        TERMS.lanes,
        3840,
        256,
        0.93,
    ),
    "round robin, 4 ppo, 91 roles": Row(
        {"make": "envs.touchdown:Touchdown"},
        {name: {"algorithm": "ppo", "options": ROUND_ROBIN} for name in "abcd"},
        {"round_robin": {"env": "game", "policies": list("abcd"), "team_size": 1, "copies": 5, "lanes": 1}},
        60,
        1500,
        250,
        0.5,
        ranks=2,
    ),
    "CartPole, a2c, 4 workers": Row(
        {"make": "gymnasium:CartPole-v1"},
        {"p": {"algorithm": "a2c", "options": {"n_steps": 5}}},
        {"env": "game", "seats": ["p"], "copies": 4},
        4,
        6000,
        400,
        1.0,
    ),
    "Pendulum, sac, 4 workers": Row(
        {"make": "gymnasium:Pendulum-v1"},
        {"p": {"algorithm": "sac", "options": {"training_intensity": 64}}},
        {"env": "game", "seats": ["p"], "copies": 4},
        4,
        900,
        300,
        1.0,
    ),
    "Pendulum, ddpg, 4 workers": Row(
        {"make": "gymnasium:Pendulum-v1"},
        {"p": {"algorithm": "ddpg", "options": {"training_intensity": 64}}},
        {"env": "game", "seats": ["p"], "copies": 4},
        4,
        1500,
        300,
        1.0,
    ),
}
PEERS = {
    "CartPole, a2c, 4 workers": ("A2C", "CartPole-v1", {}),
    "Pendulum, sac, 4 workers": ("SAC", "Pendulum-v1", {"train_freq": 1, "gradient_steps": 1}),
    "Pendulum, ddpg, 4 workers": ("DDPG", "Pendulum-v1", {"train_freq": 1, "gradient_steps": 1}),
}


def cpu_seconds(command: Sequence[str], *, home: Path) -> float:
    """CPU seconds of a command and of what it has waited for."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(home / "benchmarks")}
    began = os.times()
    subprocess.run(command, check=True, cwd=home, env=environment, stdout=subprocess.DEVNULL)
    ended = os.times()
    return ended.children_user + ended.children_system - began.children_user - began.children_system


def arena(row: Row, home: Path, scale: float) -> Sample:
    """The arena of a checkout."""
    python = str(home / ".venv" / "bin" / "python") if home != HERE.parent else sys.executable

    def seconds(ticks: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            config = {"name": "shared", "seed": 1, "ticks": ticks, "envs": {"game": dict(row.env)}}
            config |= {"policies": dict(row.policies), "matches": [dict(row.match)]}
            path = Path(folder) / "match.yaml"
            path.write_text(json.dumps(config))
            run = ["-m", "arena", "train", str(path), "--ranks", str(row.ranks), "--run-dir", f"{folder}/run"]
            return cpu_seconds([python, *run], home=home)

    return per_sample(row, scale, seconds)


def older(row: Row, scale: float) -> Sample:
    """The same, of the older checkout."""
    if not (home := os.environ.get("ARENA_BEFORE")):
        raise Unavailable("ARENA_BEFORE names no checkout")
    return arena(row, Path(home), scale)


def stable_baselines3(row: Row, peer: tuple[str, str, Mapping[str, Any]], scale: float) -> Sample:
    """Stable-Baselines3 with four environments in its process."""

    def seconds(ticks: int) -> float:
        return cpu_seconds([sys.executable, "-c", PEER, json.dumps([*peer, 4 * ticks])], home=HERE.parent)

    return per_sample(row, scale, seconds)


def fused(row: Row, scale: float) -> Sample:
    """The loop of one file."""

    def seconds(ticks: int) -> float:
        terms = replace(TERMS, samples=ticks * TERMS.lanes, seconds=600)
        loop = [sys.executable, "benchmarks/fused_ppo.py", json.dumps(asdict(terms))]
        return cpu_seconds(loop, home=HERE.parent)

    return per_sample(row, scale, seconds)


def per_sample(row: Row, scale: float, seconds: Callable[[int], float]) -> Sample:
    """The figure, from the CPU seconds of a long and of a short training."""
    ticks = int(row.ticks * scale)
    return {FIGURE: 1e6 * (seconds(ticks) - seconds(row.short)) / ((ticks - row.short) * row.samples)}


def benchmark(settings: Settings) -> Report:
    """Measures all in turns."""
    scale, cases = settings.pick(1, 0.5), []
    for name, row in ROWS.items():
        cases += [
            Case(f"{name}: {NOW}", partial(arena, row, HERE.parent, scale)),
            Case(f"{name}: {BEFORE}", partial(older, row, scale)),
        ]
        if name in PEERS:
            cases.append(Case(f"{name}: {SB3}", partial(stable_baselines3, row, PEERS[name], scale)))
        if name.startswith("touchdown"):
            cases.append(Case(f"{name}: {FUSED}", partial(fused, row, scale)))
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("shared_process", "Roles that share a process", measured, method(__doc__))
    for name, row in ROWS.items():
        now = (f"{name}: {NOW}", FIGURE)
        report.at_most(f"{FIGURE}, {name}: / {BEFORE}", measured.ratio(now, (f"{name}: {BEFORE}", FIGURE)), row.limit)
        if name in PEERS:
            report.at_most(f"{FIGURE}, {name}: / {SB3}", measured.ratio(now, (f"{name}: {SB3}", FIGURE)), 1.3)
        if name.startswith("touchdown"):
            fraction = measured.ratio((f"{name}: {FUSED}", FIGURE), now)
            report.at_least(f"samples per CPU s, {name}: / {FUSED}", fraction, 0.9)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
