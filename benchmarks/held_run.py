"""A program that measures in one process: a Trainer against `arena.train`, and a player against its algorithm.

Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from arena import Trainer, train
from arena.serving.policy import load_policy

PPO = {"n_steps": 128, "minibatch_size": 256, "n_epochs": 4, "hidden_sizes": [64, 64]}
CARTPOLE: dict[str, Any] = {
    "name": "held",
    "loggers": [],
    "envs": {"game": {"make": "gymnasium:CartPole-v1"}},
    "policies": {"learner": {"algorithm": "ppo", "options": PPO}},
    "matches": [{"env": "game", "seats": ["learner"], "lanes": 4}],
}


def main() -> None:
    """Measures in this folder."""
    iterations, every, calls = map(int, sys.argv[1:4])
    config = {**CARTPOLE, "ticks": iterations * every, "checkpoint_every": every}
    train({**config, "ticks": every}, run_dir="warm", ranks=1)  # imports
    seconds = {}
    for way in ("trained", "held", "trained again"):  # `held` is compared with the mean of the others
        begun = time.perf_counter()
        if way == "held":
            with Trainer(config, run_dir=way) as trainer:
                for _ in trainer:
                    pass
        else:
            train(config, run_dir=way.replace(" ", "-"), ranks=1)
        seconds[way] = time.perf_counter() - begun
    command = (seconds["trained"] + seconds["trained again"]) / 2
    figures = {
        "s by arena.train": command,
        "s by a Trainer": seconds["held"],
        "Trainer / train": seconds["held"] / command,
        "ms per iteration over 1.05 x": 1000 * (seconds["held"] - 1.05 * command) / iterations,
    }
    sys.stdout.write(json.dumps({**figures, **acting(calls)}) + "\n")


def acting(calls: int) -> dict[str, float]:
    """Microseconds of one action: by a player, and by the algorithm's own actor on a batch of one."""
    with Trainer.restore("held", ticks=10**6) as trainer:
        player = trainer.policy()
    policy = load_policy(f"{Path('held')}:learner")
    actor = policy.algorithm.actor(greedy=True)
    observation = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    batch = observation[None]
    times: dict[str, list[float]] = {"player": [], "actor": []}
    for turn in range(6):  # the first one warms up
        for name, act in (("player", lambda: player.act(observation)), ("actor", lambda: actor(batch, {}))):
            begun = time.perf_counter()
            for _ in range(calls):
                act()
            if turn:
                times[name].append(1e6 * (time.perf_counter() - begun) / calls)
    best = {name: min(found) for name, found in times.items()}
    ratio = best["player"] / best["actor"]
    return {"us by Player.act": best["player"], "us by actor": best["actor"], "Player / actor": ratio}


if __name__ == "__main__":
    main()
