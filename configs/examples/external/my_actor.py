"""An actor: it translates between the bytes that a game sends and observations, rewards and actions.

The game is a room with a heater. It sends its temperature as text, `19.5`, and is answered `on` or `off`.
"""

import numpy as np
from gymnasium.spaces import Box, Discrete


class Thermostat:
    """One room. The policy is rewarded for a temperature near the one that is wanted."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)  # too cold or too warm, and whether the heater is on
    action_space = Discrete(2)

    def __init__(self, agents, config, game_id, data):
        self.agent = agents["agent_0"]
        self.wanted = config["wanted"]
        self.heats = False
        self.has_acted = False

    def observation(self, data):
        """What the policy sees."""
        return np.clip([(float(data) - self.wanted) / 10.0, float(self.heats)], -1.0, 1.0).astype(np.float32)

    async def tick(self, data):
        """The answer to one temperature."""
        seen = self.observation(data)
        if self.has_acted:
            self.agent.remote_buffer.push(-abs(float(seen[0])))  # what has come of the last action
        self.heats = bool(await self.agent.remote_model.forward(seen))
        self.has_acted = True
        return b"on" if self.heats else b"off"

    async def end(self, data):
        """The last temperature: the room is closed, which is no end by the rules of a game."""
        seen = self.observation(data)
        self.agent.remote_buffer.push(-abs(float(seen[0])))
        self.agent.remote_buffer.end(seen, truncated=True)
        return b"bye"
