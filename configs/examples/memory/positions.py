"""CartPole without velocities: a single observation does not tell whether the pole falls or rises."""

from __future__ import annotations

import gymnasium


class Positions(gymnasium.ObservationWrapper):
    """Every second number of what CartPole shows: the place of the cart and the angle of the pole."""

    def __init__(self, env):
        super().__init__(env)
        space = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2])

    def observation(self, observation):
        """The positions, [2]."""
        return observation[::2]
