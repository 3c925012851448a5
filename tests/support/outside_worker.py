"""An algorithm that records the data of external games in the vector face."""

from __future__ import annotations

from typing import Any

import numpy as np

from in_process import NOTES


class Notes:
    """Notes per tick, of the only row: observation, active, given, given action; void, truncated, last observation."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self._env = env

    def run(self) -> None:
        """Plays random actions."""
        observations, infos = self._env.reset()
        truncated = np.zeros(1, np.bool_)
        while True:
            last = float(infos["final_obs"][0][0]) if truncated[0] else None
            given = bool(infos["given"][0])
            seen = float(observations[0, 0]), bool(infos["active"][0]), given, int(infos["given_action"][0])
            NOTES.append((*seen, bool(infos["void"][0]), bool(truncated[0]), last))
            observations, _, _, truncated, infos = self._env.step(self._env.action_space.sample())
