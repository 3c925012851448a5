"""Stable-Baselines3's PPO on the same game, as one of its vector environments in the same process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from games import VersusRandom
from terms import Terms


class TouchdownVecEnv(VecEnv):
    """All lanes of `VersusRandom`."""

    def __init__(self, game: VersusRandom) -> None:
        super().__init__(game.lanes, game.observation_space, game.action_space)
        self._game = game
        self._actions: Any = None

    def reset(self) -> Any:
        return self._game.reset()

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        moved = self._game.step(self._actions)
        over = moved.terminated | moved.truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(over):
            infos[lane] = {
                "terminal_observation": moved.final[lane],
                "TimeLimit.truncated": bool(moved.truncated[lane]),
            }
        return moved.observations, moved.rewards.astype(np.float32), over, infos

    def close(self) -> None:
        self._game.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    # A VecEnv has to define these two methods; lanes are arrays here, without attributes and methods.
    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"the lanes are arrays and have no {attr_name!r}")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"the lanes are arrays and have no {method_name!r}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class UntilLate(BaseCallback):
    """Ends the learning after a number of seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._deadline = time.monotonic() + seconds

    def _on_step(self) -> bool:
        return time.monotonic() < self._deadline


def learner(env: VecEnv, terms: Terms) -> PPO:
    """Stable-Baselines3's PPO on the common terms."""
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=terms.learning_rate,
        n_steps=terms.n_steps,
        batch_size=terms.minibatch,
        n_epochs=terms.n_epochs,
        gamma=terms.gamma,
        gae_lambda=terms.gae_lambda,
        clip_range=terms.clip_range,
        ent_coef=terms.ent_coef,
        vf_coef=terms.vf_coef,
        max_grad_norm=terms.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=terms.seed,
        device="cpu",
    )


def main() -> None:
    """One contestant: the options are JSON on the command line."""
    terms = Terms.told()
    torch.set_num_threads(terms.threads)
    env = TouchdownVecEnv(VersusRandom(lanes=terms.lanes, seed=terms.seed, notes=terms.notes, every=terms.n_steps))
    learner(env, terms).learn(terms.samples, callback=UntilLate(terms.seconds))
    env.close()


if __name__ == "__main__":
    main()
