"""A worker that records its observations and actions, to be compared with the samples on disk."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from in_process import NOTES
from workers import Player


class Records(Player):
    """Draws its actions, within the mask if there is one; every step is appended to `in_process.NOTES`.

    A note is (policy, seat's entities, observations, infos, actions, result of `step`).
    """

    face = "vector"
    schedule = "ticks"

    def run(self) -> None:
        env = self.env
        env.action_space.seed(self.group.seed % 2**31)
        observations, infos = copy.deepcopy(env.reset())
        while True:
            actions = env.action_space.sample()
            if "action_mask" in infos:
                actions = np.asarray(infos["action_mask"]).argmax(axis=1).astype(actions.dtype)
            told = copy.deepcopy(env.step(actions))
            NOTES.append((self.group.policy, env.seat_entities, observations, infos, actions, told))
            observations, infos = told[0], told[4]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
