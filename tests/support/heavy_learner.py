"""A learner with many weights that records the memory of all learners."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np

from in_process import NOTES
from learners import LearnerWithActor

BYTES = 2**18
"""Of the weights."""


class Heavy(LearnerWithActor):
    """The first worker of policy `p0` records the memory allocated by Python when all ranks are ready."""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.many = np.zeros(BYTES, np.uint8)

    def run(self) -> None:
        if self.group.policy == "p0" and self.group.is_root:
            gc.collect()
            NOTES.append(tracemalloc.get_traced_memory()[0])
        super().run()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "many": self.many}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.many = state["many"]
