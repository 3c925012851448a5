"""The parallel face: several entities in one lane, as a PettingZoo `ParallelEnv`."""

from __future__ import annotations

from typing import Any

from gymnasium.error import ResetNeeded
from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from arena.game.api import Info
from arena.game.lockstep import RequestKind
from arena.seat.client import SeatClient


class ParallelEnvProxy(ParallelEnv[str, Any, Any]):
    """The entities of one seat as PettingZoo agents; their spaces may differ.

    An agent is removed from `agents` when its episode ends. After the last one, `reset` begins the next episode; if
    other seats still play the old one, it idles until that has ended. In turn-based games every agent gets an action
    and an observation on each tick; `infos[agent]["active"]` is true for agents whose next action counts.

    Raises:
        BudgetReached: from `step`, and from a `reset` that needs a tick, after the last tick of the match's budget.
        ResetNeeded: from `step`, before the first `reset`, or after the end of the last agent.
    """

    metadata: dict[str, Any] = {"name": "arena_seat", "render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(self, seat: SeatClient) -> None:
        self.possible_agents = list(seat.entities)
        self.agents: list[str] = []
        self.observation_spaces = dict(zip(seat.entities, seat.observation_spaces, strict=True))
        self.action_spaces = {agent: seat.action_space_of(index) for index, agent in enumerate(seat.entities)}
        for index, space in enumerate(self.action_spaces.values()):
            space.seed(seat.seed + index)
        self._seat = seat
        self._index = {agent: index for index, agent in enumerate(seat.entities)}
        self._first_pending = True  # whether there are first observations that `reset` has not returned yet

    @property
    def ticks(self) -> int:
        """Ticks that the match has played."""
        return self._seat.ticks

    def observation_space(self, agent: str) -> Space[Any]:
        """The same object at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """The same object at every call."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Info]]:
        """Begins an episode, or waits for the next one of a shared game."""
        self._seat.begin_episode(seed, options, first_pending=self._first_pending)
        self._first_pending = False
        self.agents = list(self.possible_agents)
        return self._observations({}), self._infos({})

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        """Plays one tick.

        Args:
            actions: for each of `agents` a sample of its space.

        Returns:
            observations, rewards, terminated, truncated and infos, each by agent.

        Raises:
            ValueError: an agent has no action.
        """
        if not self.agents:
            raise ResetNeeded("call reset() before step(): no episode is under way")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise ValueError(f"no action for {', '.join(missing)}; each of {', '.join(self.agents)} needs one")
        seat = self._seat
        for agent in self.agents:
            seat.write_action(self._index[agent], actions[agent])
        seat.exchange(RequestKind.ACT)
        reply = seat.reply
        finals = {self.possible_agents[row]: value for row, value in seat.final_observations().items()}
        rewards = {agent: float(reply.rewards[0, self._index[agent]]) for agent in self.agents}
        terminated = {agent: bool(reply.terminated[0, self._index[agent]]) for agent in self.agents}
        truncated = {agent: bool(reply.truncated[0, self._index[agent]]) for agent in self.agents}
        observations, infos = self._observations(finals), self._infos(finals)
        self.agents = [agent for agent in self.agents if agent not in finals]
        self._first_pending = not self.agents and bool(reply.fresh.any())
        return observations, rewards, terminated, truncated, infos

    def _observations(self, finals: dict[str, Any]) -> dict[str, Any]:
        return {
            agent: finals[agent] if agent in finals else self._seat.observation(self._index[agent], 0)
            for agent in self.agents
        }

    def _infos(self, finals: dict[str, Any]) -> dict[str, Info]:
        seat = self._seat
        infos: dict[str, Info] = {}
        for agent in self.agents:
            index = self._index[agent]
            infos[agent] = info = seat.final_info(index) if agent in finals else seat.info(index)
            info["active"] = info.fields.active
        return infos

    def render(self) -> None:
        """Nothing: the game is rendered in the environment's process."""

    def close(self) -> None:
        """Nothing: the worker closes the seat."""
