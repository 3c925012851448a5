"""The gym face: one entity in one lane, as an ordinary `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from arena.game.api import Info
from arena.game.lockstep import RequestKind
from arena.seat.client import SeatClient


class EnvProxy(gymnasium.Env[Any, Any]):
    """One entity of a game that other workers may share.

    - `step` returns when the entity is to act again or its episode has ended; in turn-based games the rewards of the
      ticks in between are summed.
    - `reset` after the end of an episode takes no tick. In mid-episode it begins a new one if this is the only seat of
      the match; otherwise the entity idles until the shared episode has ended.
    - only of external games: `info["void"]` is true if the transition is not to be learned from, and
      `info["given_action"]` is the action that the game has taken by itself at this observation; the next action passed
      to `step` is then ignored.
    - `reset(seed=...)` reseeds the game if this is the only seat of the match; a shared game keeps the random stream of
      the run's seed.

    Raises:
        BudgetReached: from `step`, and from a `reset` that needs a tick, after the last tick of the match's budget.
        ResetNeeded: from `step`, before the first `reset`, or after the end of an episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, seat: SeatClient) -> None:
        self.observation_space = seat.observation_spaces[0]
        self.action_space = seat.action_space_of(0)
        self.action_space.seed(seat.seed)
        self.entity = seat.entities[0]
        self._seat = seat
        self._needs_reset = True
        self._first_pending = True  # whether there is a first observation that `reset` has not returned yet
        self._reward = 0.0  # received since the last step returned

    @property
    def ticks(self) -> int:
        """Ticks that the match has played."""
        return self._seat.ticks

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begins an episode, or waits for the next one of a shared game.

        Returns:
            its first observation, and its info.
        """
        super().reset(seed=seed)
        seat = self._seat
        seat.begin_episode(seed, options, first_pending=self._first_pending)
        self._reward = 0.0
        while not self._to_move:  # others move first in a turn-based game; rewards of these ticks count for `step`
            seat.exchange(RequestKind.IDLE)
            self._reward = 0.0 if seat.reply.fresh[0, 0] else self._reward + float(seat.reply.rewards[0, 0])
        self._first_pending, self._needs_reset = False, False
        return seat.observation(0, 0), seat.info(0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Plays an action; returns when the entity is to act again, or its episode has ended.

        Args:
            action: a sample of the action space.

        Returns:
            observation, reward, terminated, truncated, info.
        """
        if self._needs_reset:
            raise ResetNeeded("call reset() before step(): no episode is under way")
        seat = self._seat
        seat.write_action(0, action)
        seat.exchange(RequestKind.ACT)
        reward = self._reward + float(seat.reply.rewards[0, 0])
        while not (self._to_move or self._ended):
            seat.exchange(RequestKind.IDLE)
            reward += float(seat.reply.rewards[0, 0])
        self._reward = 0.0
        if not self._ended:
            return seat.observation(0, 0), reward, False, False, seat.info(0)
        self._needs_reset, self._first_pending = True, bool(seat.reply.fresh[0, 0])
        terminated, truncated = bool(seat.reply.terminated[0, 0]), bool(seat.reply.truncated[0, 0])
        return seat.final_observations()[0], reward, terminated, truncated, seat.final_info(0)

    @property
    def _to_move(self) -> bool:
        return bool(self._seat.reply.active[0, 0])

    @property
    def _ended(self) -> bool:
        return bool(self._seat.reply.terminated[0, 0] or self._seat.reply.truncated[0, 0])
