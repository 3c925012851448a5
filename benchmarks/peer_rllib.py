"""Ray RLlib's PPO on the same game: its lanes are environments of one local runner, its learner is in the same process.

Without other processes nothing is sent around, which favours RLlib on two cores.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import ray
from games import GOAL, RECENT
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from solo import Solo
from stamps import Stamps
from terms import Terms


def config(terms: Terms) -> PPOConfig:
    """RLlib's PPO on our terms; its entropy, clipping and learning rate are the same, its KL penalty is off."""
    register_env("solo", lambda context: Solo(seed=terms.seed + getattr(context, "vector_index", 0)))
    return (
        PPOConfig()
        .environment("solo")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=terms.lanes, rollout_fragment_length=terms.n_steps)
        .learners(num_learners=0)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .training(
            lr=terms.learning_rate,
            gamma=terms.gamma,
            lambda_=terms.gae_lambda,
            clip_param=terms.clip_range,
            entropy_coeff=terms.ent_coef,
            vf_loss_coeff=terms.vf_coef,
            vf_clip_param=1e9,
            use_kl_loss=False,
            grad_clip=terms.max_grad_norm,
            train_batch_size_per_learner=terms.n_steps * terms.lanes,
            minibatch_size=terms.minibatch,
            num_epochs=terms.n_epochs,
        )
        .debugging(seed=terms.seed, log_level="ERROR")
    )


class Log:
    """Notes samples per lane after every iteration, and the win rate from the returns that RLlib reports."""

    def __init__(self, terms: Terms) -> None:
        self.stamps = Stamps(terms.notes)
        self._lanes = terms.lanes
        self._wins: deque[float] = deque(maxlen=RECENT)
        self._sampled = 0

    def add(self, result: dict[str, Any]) -> None:
        """Takes one iteration's result."""
        runner = result["env_runners"]
        sampled = int(runner["num_env_steps_sampled_lifetime"])
        self.stamps.add((sampled - self._sampled) // self._lanes)
        self._sampled = sampled
        episodes, mean = int(runner.get("num_episodes", 0)), float(runner.get("episode_return_mean", 0.0))
        self._wins.extend([mean] * min(episodes, RECENT))  # a win is +1, a loss -1: a mean of 0.8 is 90 % of wins
        if len(self._wins) == RECENT and sum(self._wins) / RECENT >= 2 * GOAL - 1:
            self.stamps.goal()


def main() -> None:
    """One contestant: the options are JSON on the command line."""
    terms = Terms.told()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    algorithm = config(terms).build_algo()
    log, begun = Log(terms), time.monotonic()
    while log.stamps.count * terms.lanes < terms.samples and time.monotonic() - begun < terms.seconds:
        log.add(algorithm.train())
    algorithm.stop()
    ray.shutdown()
    log.stamps.write()


if __name__ == "__main__":
    main()
