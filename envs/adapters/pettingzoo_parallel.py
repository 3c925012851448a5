"""A PettingZoo `ParallelEnv` as a `LaneGame`: its agents act at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arena.errors import GameError
from arena.game.spaces import no_op
from envs.adapters.agents import PettingZooGame
from envs.adapters.lane import LaneStep, check_reset, returned

_OF_RESET = ("observations", "infos")
_OF_STEP = ("observations", "rewards", "terminations", "truncations", "infos")


class ParallelGame(PettingZooGame):
    """Plays a parallel environment; active are the agents in `agents`."""

    def __init__(self, env: Any) -> None:
        check_reset(env)
        super().__init__(env)
        self._flagged: set[Any] = set()  # agents that were terminated or truncated, also if `agents` keeps them

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        result = self._env.reset(seed=seed, options=None if options is None else dict(options))
        observations, infos = returned(self._env, "reset", result, _OF_RESET)
        self.ended, self._flagged = set(), set()
        present = self.present()
        self.complete("observations", observations, present)
        return self.lane_step(set(present), observations, {}, {}, {}, infos, over=not present)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One joint step; agents that the environment keeps after their end get the no-op."""
        joint = {}
        for agent in self._env.agents:
            index = self.index[agent]
            joint[agent] = no_op(self.action_spaces[index]) if actions[index] is None else actions[index]
        result = returned(self._env, "step", self._env.step(joint), _OF_STEP)
        observations, rewards, terminated, truncated, infos = result
        present = self.present()
        acted = [agent for agent in joint if agent not in self._flagged]
        for what, values in zip(_OF_STEP[1:4], result[1:4], strict=True):
            self.complete(what, values, acted)
        flagged = {agent for agent in acted if terminated[agent] or truncated[agent]}
        left = next((agent for agent in acted if present and agent not in present and agent not in flagged), None)
        if left is not None:
            raise GameError(
                f"no end of the agent {left!r}, which has left `agents`; expected it terminated or truncated"
            )
        # Nothing is learned from the last observation of an agent that is terminated.
        observed = [
            one for one in dict.fromkeys((*acted, *present)) if one not in self._flagged and not terminated.get(one)
        ]
        self.complete("observations", observations, observed)
        self.check_ended(present, rewards)
        self.ended.update(agent for agent in joint if agent not in present)
        self._flagged |= flagged
        return self.lane_step(set(present), observations, rewards, terminated, truncated, infos, over=not present)
