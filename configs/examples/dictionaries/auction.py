"""A game that speaks in dictionaries by agent: agents come late, take turns, and leave."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

VALUES = 5  # what a thing is worth: 1 to 5


class Auction:
    """A seller names a price, and then a buyer, who comes late, takes the thing or leaves it.

    The seller sees what the thing costs, the buyer what it is worth and the price. Each is paid its gain; three things
    are sold in an episode.
    """

    possible_agents = ("seller", "buyer")
    observation_spaces = {
        "seller": spaces.Box(0, VALUES, (1,), np.float32),
        "buyer": spaces.Box(0, 2 * VALUES, (2,), np.float32),
    }
    action_spaces = {"seller": spaces.Discrete(2 * VALUES), "buyer": spaces.Discrete(2)}

    def __init__(self):
        self.random = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        """Begins an episode: observations of the agents that act next, and infos."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.sold = 0
        return self.offer(), {}

    def offer(self):
        """The next thing: the seller alone acts."""
        self.worth, self.price = int(self.random.integers(1, VALUES + 1)), None
        return {"seller": np.array([self.worth - 1], np.float32)}

    def step(self, actions):
        """Observations, rewards, terminateds, truncateds, infos: by agent."""
        if "seller" in actions:
            self.price = int(actions["seller"])
            return {"buyer": np.array([self.worth, self.price], np.float32)}, {}, {"__all__": False}, {}, {}
        bought = int(actions["buyer"])
        rewards = {
            "seller": float(bought * (self.price - self.worth + 1)),
            "buyer": float(bought * (self.worth - self.price)),
        }
        self.sold += 1
        return self.offer(), rewards, {"__all__": self.sold == 3}, {}, {}
