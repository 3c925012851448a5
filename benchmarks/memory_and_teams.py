"""CPU time per sample with memory, and of a team's value, against the packages that users know for them.

A figure is the CPU seconds (user and system) of a long training minus those of a short one, by the samples in between,
as in `shared_process.py`, whose parts it uses. Every training is a process of its own with one thread of torch. The
packages are in the peers' environment, see `benchmarks/requirements-peers.txt`.

CartPole, eight environments in one process, rollouts of 128 steps, minibatches of 128, ten passes: RecurrentPPO of
Stable-Baselines3's contrib and `ppo` with `recurrent: lstm`, both with two layers of memory of 64 units before two
perceptrons of 64-64, and gradients through up to 128 steps.

simple_spread with three entities, one game: EPyMARL's QMIX, by its own loop and with its own options, and `qmix` with
the same sizes: agents of 64-64 without memory, a mixing network of 32 units made by hypernetworks of 64. Both make one
gradient step of 800 joint transitions after each episode of 25 steps. EPyMARL is no package of PyPI: `EPYMARL` names a
checkout; without it this case is not available. A sample is a joint step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness import HERE, Case, Report, Sample, Settings, Unavailable, interleave, main, method, say
from shared_process import FIGURE, Row, arena, cpu_seconds, per_sample

NOW = "arena"
PEERS = Path(os.environ.get("BENCH_PEERS", HERE.parent / ".venv-peers" / "bin" / "python"))
LIMIT = 1.1
RECURRENT_PPO = """
import sys
import torch
torch.set_num_threads(1)
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
envs, sizes = make_vec_env("CartPole-v1", 8), {"lstm_hidden_size": 64}
options = {"n_steps": 128, "batch_size": 128, "n_epochs": 10, "policy_kwargs": sizes}
RecurrentPPO("MlpLstmPolicy", envs, seed=1, device="cpu", **options).learn(int(sys.argv[1]))
"""
MEMORY = {"recurrent": "lstm", "hidden_size": 64, "sequence_length": 128}
STEPS = {"batch_size": 800, "train_every": 25, "training_intensity": 32, "learning_starts": 800}
VALUES = {"gamma": 0.95, "hidden_sizes": [64, 64], "tau": 1, "target_update_interval": 200, "buffer_size": 125_000}
ROWS = {
    "CartPole, ppo with lstm": Row(
        {"make": "gymnasium:CartPole-v1"},
        {"p": {"algorithm": "ppo", "options": {**MEMORY, "n_steps": 128, "minibatch_size": 128, "n_epochs": 10}}},
        {"env": "game", "seats": ["p"], "lanes": 8},
        8,
        1280,
        256,
        LIMIT,
    ),
    "simple_spread, qmix": Row(
        {"make": "pettingzoo:mpe2.simple_spread_v3", "kwargs": {"N": 3, "max_cycles": 25}, "outcome": "none"},
        {"p": {"algorithm": "qmix", "options": {**STEPS, **VALUES}}},
        {"env": "game", "seats": [["p", "p", "p"]]},
        1,
        4000,
        1200,
        LIMIT,
    ),
}


def recurrent_ppo(steps: int) -> Sequence[str]:
    """Arguments of the peers' Python."""
    return ["-c", RECURRENT_PPO, str(steps)]


def epymarl(steps: int) -> Sequence[str]:
    """As `recurrent_ppo`."""
    if not (checkout := os.environ.get("EPYMARL")):
        raise Unavailable("EPYMARL names no checkout")
    return [str(HERE / "peer_epymarl.py"), checkout, str(steps)]


PEER_OF = {
    "CartPole, ppo with lstm": ("RecurrentPPO", recurrent_ppo),
    "simple_spread, qmix": ("EPyMARL's QMIX", epymarl),
}


def peer(name: str, scale: float) -> Sample:
    """The package of a row."""
    row, (_, arguments) = ROWS[name], PEER_OF[name]
    if not PEERS.exists():
        raise Unavailable("the peers are not installed; `make bench-peers` does it")

    def seconds(ticks: int) -> float:
        return cpu_seconds([str(PEERS), *arguments(ticks * row.samples)], home=HERE.parent)

    return per_sample(row, scale, seconds)


def benchmark(settings: Settings) -> Report:
    """Measures all in turns."""
    scale, cases = settings.pick(1, 0.5), []
    for name, row in ROWS.items():
        cases += [
            Case(f"{name}: {NOW}", partial(arena, row, HERE.parent, scale)),
            Case(f"{name}: {PEER_OF[name][0]}", partial(peer, name, scale)),
        ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report(
        "memory_and_teams", "Memory, and values of teams, against other packages", measured, method(__doc__)
    )
    for name, row in ROWS.items():
        other = PEER_OF[name][0]
        ratio = measured.ratio((f"{name}: {NOW}", FIGURE), (f"{name}: {other}", FIGURE))
        report.at_most(f"{FIGURE}, {name}: / {other}", ratio, row.limit)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
