"""Games with dictionaries of agents: small ones, and the four example games of RLlib by their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

Given = Mapping[Any, Any]

_BEATS = {0: 2, 1: 0, 2: 1}  # rock beats scissors, paper beats rock, scissors beat paper
_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class RockPaperScissors:
    """Ten simultaneous throws; each player sees the other's last throw. Truncateds and infos are empty."""

    possible_agents = ("player1", "player2")
    observation_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Discrete(3))
    action_spaces: ClassVar[Any] = observation_spaces

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.thrown = 0
        return dict.fromkeys(self.possible_agents, 0), {}

    def step(self, actions: Given) -> Any:
        self.thrown += 1
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        win = 0 if first == second else 1 if _BEATS[first] == second else -1
        over = {"__all__": self.thrown >= 10}
        return {"player1": second, "player2": first}, {"player1": win, "player2": -win}, over, {}, {}


class TicTacToe:
    """In turns; a taken field costs half a point and the turn. Only the player to move observes, until the end."""

    possible_agents = ("player1", "player2")
    observation_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Box(-1, 1, (9,), np.float32))
    action_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Discrete(9))

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.board = np.zeros(9, np.float32)
        self.mover, self.other = self.random.permutation(self.possible_agents).tolist()
        self.turns = 0
        return {self.mover: self.board.copy()}, {}

    def step(self, actions: Given) -> Any:
        (field,) = (actions[agent] for agent in actions)
        self.turns += 1
        legal = self.board[field] == 0
        if legal:
            self.board[field] = 1
        won = any(all(self.board[place] == 1 for place in line) for line in _LINES)
        full = 0 not in self.board
        late = self.turns >= 30 and not (won or full)
        earned = 1.0 if won else 0.0 if legal else -0.5
        if won or full or late:
            seen = {self.mover: self.board.copy(), self.other: -self.board}
            rewards = {self.mover: earned, self.other: -1.0 if won else 0.0}
            return seen, rewards, {"__all__": won or full}, {"__all__": late}, {}
        self.board = -self.board
        rewards = {self.mover: earned}
        self.mover, self.other = self.other, self.mover
        return {self.mover: self.board.copy()}, rewards, {"__all__": False}, {"__all__": False}, {}


class GuessTheNumber:
    """Agent 0 picks a number once, and earns while it is absent; then agent 1 guesses."""

    possible_agents = (0, 1)
    observation_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Discrete(2))
    action_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.MultiDiscrete([3, 3]))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.number: int | None = None
        self.asked = 0
        return {0: 0}, {}

    def step(self, actions: Given) -> Any:
        if 0 in actions:
            self.number = int(actions[0][1])
            flags = {0: False, "__all__": False}
            return {1: 0}, {0: 0}, flags, flags, {}
        assert self.number is not None
        direction, guess = map(int, actions[1])
        right = direction == 2 and guess == self.number
        said = {0: guess > self.number, 1: guess < self.number, 2: 100 * right}[direction]
        rewards = {1: int(said), 0: -100 * right if direction == 2 else 1}
        self.asked += 1
        late = self.asked >= 20
        if late and not right:
            rewards[0] = 100
        return {1: 0}, rewards, {1: right, "__all__": right}, {1: False, "__all__": late}, {}


class Scripted:
    """Returns the results of a script, and keeps the actions that it got.

    Args:
        script: the results of the reset and of each step.
        agents: their names, in order.
    """

    def __init__(self, script: Sequence[Any], agents: Sequence[Any] = ("a", "b", "c")) -> None:
        self.script, self.possible_agents = script, list(agents)
        self.observation_spaces = {agent: spaces.Box(-100, 100, (1,), np.float32) for agent in agents}
        self.action_spaces = {agent: spaces.Discrete(3) for agent in agents}
        self.got: list[dict[Any, Any]] = []

    def reset(self) -> Any:
        self.at = 0
        return self.script[0]

    def step(self, actions: Given) -> Any:
        self.got.append(dict(actions))
        self.at += 1
        return self.script[self.at]


def seen(**values: float) -> dict[str, Any]:
    """Observations of agents."""
    return {agent: np.array([value], np.float32) for agent, value in values.items()}


class Relay:
    """A game to learn: `first` acts on even ticks and `second` on odd ones, `late` from tick 2 on, and leaves at 4.

    Each is paid for the action that its observation names. Ends after six ticks.
    """

    possible_agents = ("first", "second", "late", "never")
    observation_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Box(0, 2, (1,), np.float32))
    action_spaces: ClassVar[Any] = dict.fromkeys(possible_agents, spaces.Discrete(3))

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.ticks = 0
        return self._shown(["first"])

    def step(self, actions: Given) -> Any:
        self.ticks += 1
        rewards = {agent: float(int(action) == self.wanted[agent]) for agent, action in actions.items()}
        leaves = {"late": self.ticks == 4} if self.ticks <= 4 else {}
        turn = [("first", "second")[self.ticks % 2], *(["late"] if 2 <= self.ticks < 4 else [])]
        return self._shown(turn), rewards, {**leaves, "__all__": self.ticks == 6}, {}

    def _shown(self, agents: Sequence[str]) -> dict[str, Any]:
        self.wanted = {agent: int(self.random.integers(3)) for agent in agents}
        return {agent: np.array([wanted], np.float32) for agent, wanted in self.wanted.items()}
