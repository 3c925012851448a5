"""Small games of known behavior that tests put into environments."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from arena.game.api import Step
from envs.touchdown import Touchdown


class Countdown(gymnasium.Env[Any, Any]):
    """Shows how many steps are left; is terminated or truncated after `length` steps; the reward is the action."""

    def __init__(self, length: int = 5, truncate: bool = False) -> None:
        self.observation_space = spaces.Box(0, 100, (1,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.length = length
        self.truncate = truncate

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left = self.length
        return np.array([self.left], np.float32), {"length": self.length}

    def step(self, action: Any) -> Any:
        self.left -= 1
        over = self.left == 0
        observation = np.array([self.left], np.float32)
        return observation, float(action), over and not self.truncate, over and self.truncate, {"left": self.left}


class Offer(gymnasium.Env[Any, Any]):
    """Pays a number drawn at the start and the action; the larger it is, the longer the game, and the more it draws."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.offer, self.ticks = float(self.np_random.uniform(-9, 9)), 0
        return np.array([self.offer], np.float32), {}

    def step(self, action: Any) -> Any:
        self.np_random.random(int(action))
        self.ticks += 1
        over = self.ticks > action
        return np.array([self.offer], np.float32), (self.offer + float(action)) * over, over, False, {}


class Drawn(Countdown):
    """Shows a number that it has drawn from `numbers` beside what is left; every episode has the same return."""

    def __init__(self, length: int = 3, numbers: int = 1000) -> None:
        super().__init__(length)
        self.observation_space = spaces.Box(0, max(100, numbers), (2,), np.float32)
        self.numbers = numbers

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        self.drawn = int(self.np_random.integers(self.numbers))
        return np.append(observation, np.float32(self.drawn)), info

    def step(self, action: Any) -> Any:
        observation, _, *ends = super().step(action)
        return np.append(observation, np.float32(self.drawn)), 0.5, *ends


class Slow(Countdown):
    """Sleeps in every step."""

    def __init__(self, length: int = 5, seconds: float = 0.0) -> None:
        super().__init__(length)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


class Waiting(Countdown):
    """Waits in all steps but the first until a file exists."""

    def __init__(self, length: int = 5, file: str = "") -> None:
        super().__init__(length)
        self.file, self.steps = file, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        while self.steps > 1 and not os.path.exists(self.file):
            time.sleep(0.01)
        return super().step(action)


class BusyTouchdown(Touchdown):
    """Computes for `seconds` of processor time in every tick of its lanes."""

    def __init__(self, *, seconds: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.seconds = seconds

    def step(self, actions: Sequence[Any]) -> Step:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return super().step(actions)


class FailsOnHost(Touchdown):
    """Fails on one host: it cannot be made there, or its steps raise, or do not return, as `how` says."""

    def __init__(self, *, host: str, how: str, **settings: Any) -> None:
        self.how = how if os.uname().nodename == host else ""
        if self.how == "make":
            raise ModuleNotFoundError("No module named 'physics'")
        super().__init__(**settings)

    def step(self, actions: Sequence[Any]) -> Step:
        if self.how == "raise":
            raise RuntimeError("no simulator")
        while self.how == "hang":
            time.sleep(0.1)
        return super().step(actions)


class SlowTouchdown(Touchdown):
    """Sleeps in every tick of its lanes, so that a test can act while it is played; by default for `TICK_SECONDS`."""

    def __init__(self, *, seconds: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.seconds = float(os.environ.get("TICK_SECONDS", "0")) if seconds is None else seconds

    def step(self, actions: Sequence[Any]) -> Step:
        time.sleep(self.seconds)
        return super().step(actions)


class RandomRewards(Countdown):
    """Draws its rewards from the global random stream, which all roles of the process share."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(np.random.random()), *rest


class EverySpace(gymnasium.Env[Any, Any]):
    """Dict, Tuple, Discrete with start, MultiBinary, uint8: every kind of leaf, drawn from the episode's seed."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (4, 4, 1), np.uint8),
            pair=spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(3))),
            many=spaces.MultiDiscrete([2, 3]),
            wide=spaces.Box(-1, 1, (2,), np.float64),
        )
        self.action_space = spaces.Dict(move=spaces.Discrete(3, start=-1), force=spaces.Box(-1, 1, (2,), np.float32))
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), float(action["move"]), self.steps == 4, False, {}


class Dropout(ParallelEnv[str, Any, Any]):
    """Entity i ends (terminated) after `lengths[i]` steps; the others go on. Reward i+1 per step while in the game."""

    metadata = {"name": "dropout"}

    def __init__(self, lengths: tuple[int, ...] = (2, 4, 6)) -> None:
        self.lengths = tuple(lengths)
        self.possible_agents = [f"e{i}" for i in range(len(self.lengths))]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.steps = 0
        return {a: np.zeros(1, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.steps += 1
        playing = self.agents
        ends = {a: self.steps == self.lengths[int(a[1:])] for a in playing}
        self.agents = [a for a in playing if not ends[a]]
        return (
            {a: np.array([self.steps], np.float32) for a in playing},
            {a: float(int(a[1:]) + 1) for a in playing},
            ends,
            dict.fromkeys(playing, False),
            {a: {} for a in playing},
        )


class RandomLengths(Dropout):
    """The reward is the action; all entities end together, after a number of steps drawn from the lane's own stream."""

    def __init__(self, entities: int = 2) -> None:
        super().__init__((0,) * entities)
        self.rng = np.random.default_rng(0)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.lengths = (int(self.rng.integers(2, 12)),) * len(self.lengths)
        return super().reset(seed, options)

    def step(self, actions: dict[str, Any]) -> Any:
        observations, _, *rest = super().step(actions)
        return observations, {agent: float(actions[agent]) for agent in observations}, *rest


class Narrow(ParallelEnv[str, Any, Any]):
    """Each entity sees a number of its own, which grows with every step and says which of three choices is forbidden.

    All rewards are 0. All entities are truncated after `length` steps.
    """

    metadata = {"name": "narrow"}

    def __init__(self, entities: int = 1, length: int = 4) -> None:
        self.possible_agents = [f"e{i}" for i in range(entities)]
        self.agents: list[str] = []
        self.length = length

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1000, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    @staticmethod
    def mask(seen: int) -> Any:
        """The choices allowed to an entity that sees this number."""
        return (np.arange(3) != seen % 3).astype(np.int8)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.steps = list(self.possible_agents), 0
        return self._seen(), self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(self.mask(number)[actions[agent]] for agent, number in self._numbers().items())
        self.steps += 1
        told = self._seen(), dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, False)
        late, infos = dict.fromkeys(self.agents, self.steps == self.length), self._infos()
        if self.steps == self.length:
            self.agents = []
        return *told, late, infos

    def _numbers(self) -> dict[str, int]:
        return {agent: 100 * place + self.steps for place, agent in enumerate(self.agents)}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([number], np.float32) for agent, number in self._numbers().items()}

    def _infos(self) -> dict[str, Any]:
        return {agent: {"action_mask": self.mask(number)} for agent, number in self._numbers().items()}


class Alternate(AECEnv[str, Any, Any]):
    """Two players move in turn, six moves in all; every move pays its mover 1 and the other one 10."""

    metadata = {"name": "alternate", "is_parallelizable": False}

    def __init__(self, moves: int = 6) -> None:
        super().__init__()
        self.possible_agents = ["first", "second"]
        self.moves = moves
        self.observation_spaces = {a: spaces.Box(0, 100, (1,), np.float32) for a in self.possible_agents}
        self.action_spaces = {a: spaces.Discrete(2) for a in self.possible_agents}
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def observe(self, agent: str) -> Any:
        return np.array([self.made], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.made = 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {a: {} for a in self.agents}
        self.agent_selection = "first"

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self.made += 1
        self.rewards = {a: 1.0 if a == agent else 10.0 for a in self.agents}
        if self.made == self.moves:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "second" if agent == "first" else "first"
        self._accumulate_rewards()


class Raises(Countdown):
    """Fails in the given method: `make`, `reset`, `step` or `close`."""

    def __init__(self, where: str, length: int = 5) -> None:
        if where == "make":
            raise RuntimeError("the game cannot be made")
        super().__init__(length)
        self.where = where
        self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        if self.where == "reset" and self.resets > 2:
            raise RuntimeError("the game cannot be reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.where == "step" and self.left == 1:
            raise RuntimeError("the game cannot be stepped")
        return super().step(action)

    def close(self) -> None:
        if self.where == "close":
            raise RuntimeError("the game cannot be closed")


class WithMetrics(Countdown):
    """Reports metrics at the end of some episodes: `score` of every second, another one of every third."""

    episodes = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            self.episodes += 1
            if self.episodes % 2 == 0:
                info["metrics"] = {"score": self.episodes + int(action), "none": float("nan")}
            elif self.episodes % 3 == 0:
                info["metrics"] = "as the game has always said"
        return observation, reward, terminated, truncated, info


class OddTicksForced(Countdown):
    """On each odd tick the mask of the two actions allows the second one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        self.odd = False
        return observation, {"action_mask": np.array([1, 1], np.int8)}

    def step(self, action: Any) -> Any:
        assert action == 1 or not self.odd
        self.odd = not self.odd
        *found, _ = super().step(action)
        return *found, {"action_mask": np.array([not self.odd, 1], np.int8)}


class MeteredSeats(Dropout):
    """Entity i reports the metric `place`, i, when it ends; the last entity also reports `last`, 1."""

    def __init__(self) -> None:
        super().__init__((2, 2, 2))

    def step(self, actions: dict[str, Any]) -> Any:
        *found, infos = super().step(actions)
        if not self.agents:
            infos = {agent: {"metrics": {"place": int(agent[1:])}} for agent in infos}
            infos["e2"]["metrics"]["last"] = 1
        return *found, infos


class ContextObserver(Countdown):
    """Observes its place in the run: match, entry, copy, lane, lanes, round, and the end of its seed."""

    def __init__(self, context: Any, length: int = 5) -> None:
        super().__init__(length)
        self.observation_space = spaces.Box(0, 1000, (7,), np.float32)
        numbers = (context.match, context.entry, context.copy, context.lane, context.lanes, context.round)
        self.place = np.array([*numbers, context.seed % 1000], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert seed is None or seed % 1000 == self.place[-1], "the first reset has the seed"
        return self.place, super().reset(seed=seed)[1]

    def step(self, action: Any) -> Any:
        return self.place, *super().step(action)[1:]


class WindowGame(Countdown):
    """Opens a window of an X server, and observes its width."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)
        os.environ["SDL_VIDEODRIVER"] = "x11"
        import pygame

        pygame.display.init()
        window = pygame.display.set_mode((64, 48))
        assert pygame.display.get_driver() == "x11"
        self.observation_space = spaces.Box(0, 2000, (2,), np.float32)
        self.size = np.array([window.get_width(), pygame.display.get_desktop_sizes()[0][0]], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.size, super().reset(seed=seed)[1]

    def step(self, action: Any) -> Any:
        return self.size, *super().step(action)[1:]


class Pair:
    """A list game of one tick for two, which declares nothing: both are paid what both have chosen."""

    def __init__(self) -> None:
        self.observation_spaces = [spaces.Discrete(1)] * 2
        self.action_spaces = [spaces.Discrete(2)] * 2

    def reset(self) -> list[int]:
        return [0, 0]

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        return [0, 0], [float(sum(actions))] * 2, True, [{}, {}]
