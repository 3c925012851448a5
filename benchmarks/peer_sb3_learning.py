"""Stable-Baselines3 learns one of Gymnasium's games: the options are JSON on the command line, the result JSON.

Its CPU seconds are of the whole process until it has learned, imports included.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise

ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}


def linear(rate: float) -> Callable[[float], float]:
    """A learning rate that falls to 0."""
    return lambda left: rate * left


def arguments(options: dict[str, Any], env: Any) -> dict[str, Any]:
    """The library's arguments for the options."""
    own = dict(options)
    network: dict[str, Any] = {}
    if "adam_epsilon" in own:
        network["optimizer_kwargs"] = {"eps": own.pop("adam_epsilon")}
    if "hidden_sizes" in own:
        network["net_arch"] = list(own.pop("hidden_sizes"))
    if "activation" in own:
        network["activation_fn"] = ACTIVATIONS[own.pop("activation")]
    if own.pop("learning_rate_schedule", "constant") == "linear":
        own["learning_rate"] = linear(own["learning_rate"])
    noise, std, theta = (own.pop(name, None) for name in ("action_noise", "noise_std", "noise_theta"))
    if noise is not None:
        own["action_noise"] = noise_of(noise, std, theta, env.action_space.shape)
    return {**own, **({"policy_kwargs": network} if network else {})}


def noise_of(name: str, std: float | None, theta: float | None, shape: tuple[int, ...]) -> ActionNoise:
    """Exploration noise; by default the arena's."""
    mean, deviation = np.zeros(shape), np.full(shape, 0.1 if std is None else std)
    if name == "correlated":
        # The library's sigma is a diffusion coefficient, not the deviation of the noise. This value gives the
        # deviation of the arena's process; the library's process starts at 0 in every episode.
        kept = 1 - (0.15 if theta is None else theta)
        return OrnsteinUhlenbeckActionNoise(mean, deviation * (1 - kept**2) ** 0.5, theta=1 - kept, dt=1.0)
    return NormalActionNoise(mean, deviation)


class Ended(BaseCallback):
    """Notes the step and the return of every episode of the training."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        found = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.episodes += [(self.num_timesteps, float(score)) for score in found]
        return True


def learned(told: dict[str, Any]) -> dict[str, Any]:
    """Learns, then plays greedily: the mean return, CPU seconds of this process, and `ended` as `Ended.episodes`."""
    torch.set_num_threads(1)
    env = make_vec_env(told["game"], n_envs=told["lanes"], seed=told["seed"])
    make = getattr(stable_baselines3, told["algorithm"])
    model = make("MlpPolicy", env, seed=told["seed"], device="cpu", **arguments(told["options"], env))
    ended = Ended()
    model.learn(told["steps"], ended)
    used = time.process_time()
    played = make_vec_env(told["game"], n_envs=told["lanes"], seed=1_000_000 + told["seed"])
    mean, _ = evaluate_policy(model, played, n_eval_episodes=told["episodes"], deterministic=True)
    return {"CPU s": used, "return": float(mean), "ended": ended.episodes}


def main() -> None:
    """Learns as told on the command line."""
    found = learned(json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps({name: found[name] for name in ("CPU s", "return")}) + "\n")


if __name__ == "__main__":
    main()
