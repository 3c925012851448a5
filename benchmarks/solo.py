"""One lane of touchdown with a random opponent, as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from games import Clocked


class Solo(gymnasium.Env[Any, Any]):
    """Blue is played from outside; red, in the game, moves at random.

    Args:
        notes: folder for the stamps, or None.
        every: ticks between two stamps.
        seed: of the game and of red, if `reset` gets none.
    """

    metadata = {"render_modes": []}

    def __init__(self, notes: str | None = None, every: int = 128, seed: int = 1) -> None:
        self._game = Clocked(lanes=1, game="envs.touchdown:Touchdown", notes=notes, every=every)
        self._rng = np.random.default_rng(seed)
        self._seed: int | None = seed
        self._all = np.ones(1, np.bool_)
        self.observation_space = self._game.interface.observation_spaces[0]
        self.action_space = self._game.interface.action_spaces[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        begin = self._seed if seed is None else seed
        self._seed = None  # later episodes continue the random stream
        return self._game.reset(self._all, [begin]).observations[0][0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._game.step([np.array([action]), self._rng.integers(0, 5, 1)])
        over = bool(step.terminated[0, 0]), bool(step.truncated[0, 0])
        return step.frame.observations[0][0], float(step.rewards[0, 0]), *over, {}

    def close(self) -> None:
        self._game.close()
