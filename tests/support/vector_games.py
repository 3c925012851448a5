"""Vector environments in every autoreset mode, some of which break a rule, and a stand-in for the package EnvPool."""

from __future__ import annotations

import types
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray


class Walks(VectorEnv[Any, Any, Any]):
    """Random walks from 0: each step adds a whole number from 0 to 2 and the action; an episode ends at 10 or above.

    Sub-environments have random streams of their own. All arrays that it gives are buffers that it uses again.

    Args:
        num_envs: sub-environments.
        says: the autoreset mode in its metadata.
        does: the mode in which it resets.
        resets_all: whether a reset of some sub-environments resets all.
    """

    def __init__(
        self, num_envs: int, says: Any = "SameStep", does: str | None = None, resets_all: bool = False
    ) -> None:
        self.metadata = {} if says is None else {"autoreset_mode": says}
        self.num_envs, self._does = num_envs, AutoresetMode(does or says)
        self._resets_all = resets_all
        self.single_observation_space, self.single_action_space = Box(0, 99, (1,), np.int64), Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._at = np.zeros((num_envs, 1), np.int64)
        self._rewards, self._flags = np.zeros(num_envs, np.float32), np.zeros((2, num_envs), np.bool_)
        self._due = np.zeros(num_envs, np.bool_)
        self._streams = [np.random.default_rng(0) for _ in range(num_envs)]
        self.closed = False

    def reset(
        self, *, seed: list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        mask = mask | self._resets_all
        for lane in np.flatnonzero(mask).tolist():
            if seed is not None and seed[lane] is not None:
                self._streams[lane] = np.random.default_rng(seed[lane])
            self._at[lane] = self._streams[lane].integers(3)
        self._due[mask] = False
        return self._at, {}

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        plays = ~self._due if self._does is AutoresetMode.NEXT_STEP else np.ones(self.num_envs, np.bool_)
        for lane, stream in enumerate(self._streams):
            self._at[lane] = self._at[lane] + stream.integers(3) + actions[lane] if plays[lane] else stream.integers(3)
        self._rewards[:] = np.where(plays, actions + 1, 0)
        terminated, truncated = self._flags
        terminated[:], truncated[:] = plays & (self._at[:, 0] >= 10), plays & (self._at[:, 0] == 9)
        self._due, infos = terminated | truncated, dict[str, Any]()
        if self._does is AutoresetMode.SAME_STEP and self._due.any():
            infos = {"final_obs": self._at.copy(), "_final_obs": self._due.copy()}  # a batch
            infos["final_info"] = {"at": self._at[:, 0].copy(), "_at": self._due.copy()}
            for lane in np.flatnonzero(self._due).tolist():
                self._at[lane] = self._streams[lane].integers(3)
        return self._at, self._rewards, terminated, truncated, infos

    def close_extras(self, **_: Any) -> None:
        self.closed = True


class Walk(gymnasium.Env[Any, Any]):
    """One of `Walks`, alone."""

    observation_space, action_space = Box(0, 99, (1,), np.int64), Discrete(3)

    def __init__(self) -> None:
        self._game = Walks(1, says="Disabled")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._game.reset(seed=[seed])[0][0].copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        at, rewards, terminated, truncated, _ = self._game.step(np.array([action]))
        return at[0].copy(), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}


def unequal() -> VectorEnv[Any, Any, Any]:
    """Sub-environments whose bounds differ."""

    def make(high: float) -> Any:
        env = gymnasium.make("Pendulum-v1")
        return gymnasium.wrappers.RescaleObservation(env, np.float32(0), np.float32(high))

    return SyncVectorEnv([lambda: make(1), lambda: make(2)], observation_mode="different")


def three() -> Walks:
    """Three sub-environments, however many lanes there are."""
    return Walks(3)


class Masked(gymnasium.Env[Any, Any]):
    """Allows the actions in turn; ends after five; the info has the number of the tick."""

    observation_space, action_space = Box(0, 9, (1,), np.int64), Discrete(2)
    ticks = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.ticks = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == self.ticks % 2, "the other action is not allowed"
        self.ticks += 1
        observation, info = self._seen()
        return observation, 1.0, self.ticks == 5, False, info

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        mask = np.eye(2, dtype=np.int8)[self.ticks % 2]
        return np.array([self.ticks]), {"action_mask": mask, "tick": self.ticks}


def envpool() -> types.ModuleType:
    """A module with the part of EnvPool's interface that the arena uses: 1.2, `CartPole-v1` alone, of Gymnasium.

    As there: seeds are given when a pool is made; a sub-environment is reset on the step after its end; a reset of some
    sub-environments gives rows of these alone, and no further reset follows; infos have `env_id` and `elapsed_step`.
    """
    module: Any = types.ModuleType("envpool")

    class Pool:
        def __init__(self, seeds: list[int]) -> None:
            assert all(0 <= seed < 2**31 for seed in seeds)
            self._envs = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in seeds]
            self.observation_space = self._envs[0].observation_space
            self._seeds: list[int | None] = list(seeds)
            self._ticks, self._due = np.zeros(len(seeds), np.int32), np.zeros(len(seeds), np.bool_)

        def _begin(self, lane: int) -> Any:
            seed, self._seeds[lane] = self._seeds[lane], None
            self._ticks[lane], self._due[lane] = 0, False
            return self._envs[lane].reset(seed=seed)[0]

        def _infos(self, rows: NDArray[np.int32]) -> dict[str, Any]:
            return {"env_id": rows, "players": {"env_id": rows}, "elapsed_step": self._ticks[rows]}

        def reset(self, env_id: NDArray[np.int32]) -> tuple[Any, dict[str, Any]]:
            assert env_id.dtype == np.int32
            return np.stack([self._begin(lane) for lane in env_id.tolist()]), self._infos(env_id)

        def step(self, action: NDArray[Any]) -> tuple[Any, ...]:
            rows = []
            for lane, env in enumerate(self._envs):
                if self._due[lane]:
                    rows.append((self._begin(lane), 0.0, False, False))
                else:
                    rows.append(env.step(int(action[lane]))[:4])
                    self._ticks[lane] += 1
                    self._due[lane] = rows[-1][2] or rows[-1][3]
            observations, rewards, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
            infos = self._infos(np.arange(len(rows), dtype=np.int32))
            return observations, rewards.astype(np.float32), terminated, truncated, {**infos, "lives": self._ticks % 3}

    def make_spec(task_id: str, *, num_envs: int, players: int = 1) -> Any:
        env = gymnasium.make(task_id, disable_env_checker=True)
        config = types.SimpleNamespace(max_num_players=players)
        return types.SimpleNamespace(
            observation_space=env.observation_space, action_space=env.action_space, config=config
        )

    def make_gymnasium(task_id: str, *, num_envs: int, seed: list[int]) -> Pool:
        assert num_envs == len(seed)
        return Pool(seed)

    module.list_all_envs, module.make_spec, module.make_gymnasium = lambda: ["CartPole-v1"], make_spec, make_gymnasium
    return module  # type: ignore[no-any-return]
