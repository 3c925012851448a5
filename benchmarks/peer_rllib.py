"""Ray RLlib's PPO on the same game: its lanes are environments of one local runner, its learner is in the same process.

Without other processes it sends no messages, which favors RLlib on two cores. It plays in two forms:

    rllib         one agent; the random opponent is a part of the environment
    rllib-multi   two agents with a policy each, as in the arena: one learns, the other is RLlib's random module
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.tune.registry import register_env

from games import GOAL, RECENT, Clocked
from solo import Solo
from stamps import Stamps
from terms import Terms

AGENTS = ("blue", "red")


class Duel(MultiAgentEnv):  # type: ignore[misc]
    """One lane of touchdown with two agents."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._game = Clocked(lanes=1, game="envs.touchdown:Touchdown")
        self._seed: int | None = seed
        self.agents = self.possible_agents = list(AGENTS)
        self.observation_spaces = dict(zip(AGENTS, self._game.interface.observation_spaces, strict=True))
        self.action_spaces = dict(zip(AGENTS, self._game.interface.action_spaces, strict=True))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        begin = self._seed if seed is None else seed
        self._seed = None
        return self._seen(self._game.reset(np.ones(1, np.bool_), [begin]).observations), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        step = self._game.step([np.array([actions[name]]) for name in AGENTS])
        rewards = dict(zip(AGENTS, step.rewards[0].tolist(), strict=True))
        over = {"__all__": bool(step.terminated[0, 0])}, {"__all__": bool(step.truncated[0, 0])}
        return self._seen(step.frame.observations), rewards, *over, {}

    def _seen(self, observations: Any) -> dict[str, Any]:
        return {name: seen[0] for name, seen in zip(AGENTS, observations, strict=True)}


def config(terms: Terms) -> PPOConfig:
    """RLlib's PPO on the common terms: the same entropy, clipping and learning rate, without its KL penalty."""
    return with_two_policies(learner(terms, "duel")) if terms.env == "rllib-multi" else learner(terms, "solo")


def with_two_policies(config: PPOConfig) -> PPOConfig:
    """Blue learns, red is random."""
    modules = {"blue": RLModuleSpec(model_config=NETWORK), "red": RLModuleSpec(module_class=RandomRLModule)}
    return config.multi_agent(
        policies=set(AGENTS), policy_mapping_fn=lambda agent, *_, **__: agent, policies_to_train=["blue"]
    ).rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))


NETWORK = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)


def learner(terms: Terms, game: str) -> PPOConfig:
    """PPO in a registered environment."""
    return (
        PPOConfig()
        .environment(game)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=terms.lanes, rollout_fragment_length=terms.n_steps)
        .learners(num_learners=0)
        .rl_module(model_config=NETWORK)
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
        """Adds one iteration's result."""
        runner = result["env_runners"]
        returns = runner.get("module_episode_returns_mean") or {"blue": runner.get("episode_return_mean", 0.0)}
        sampled = int(runner["num_env_steps_sampled_lifetime"])
        self.stamps.add((sampled - self._sampled) // self._lanes)
        self._sampled = sampled
        episodes, mean = (
            int(runner.get("num_episodes", 0)),
            float(returns.get("blue", returns.get("default_policy", 0.0))),
        )
        self._wins.extend([mean] * min(episodes, RECENT))  # a win is +1, a loss -1: a mean of 0.8 is 90 % of wins
        if len(self._wins) == RECENT and sum(self._wins) / RECENT >= 2 * GOAL - 1:
            self.stamps.goal()


def main() -> None:
    """One contestant: the options are JSON on the command line."""
    terms = Terms.told()
    register_env("solo", lambda context: Solo(seed=terms.seed + getattr(context, "vector_index", 0)))
    register_env("duel", lambda context: Duel(seed=terms.seed + getattr(context, "vector_index", 0)))
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
