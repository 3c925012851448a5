"""Learners that note what they begin each leg with: their state, to the bit, or the memory that all of them take."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any, NamedTuple

import numpy as np

from arena.records.state import encode
from learners import MeetsItself, OfManyRows
from policies.ppo import PPO
from staging import NOTES


class Bits(NamedTuple):
    """A state, to be compared to the bit."""

    structure: Any
    arrays: list[bytes]

    @classmethod
    def of(cls, state: Any) -> Bits:
        return cls(*encode(state))


class Begun(NamedTuple):
    """What a worker begins a leg with."""

    policy: str
    worker: int  # its rank in the group
    state: Bits
    own: Bits
    options: Any


class _Notes:
    """Notes what it has when its `run` is called."""

    def run(self) -> None:
        learner: Any = self
        states = Bits.of(learner.state_dict()), Bits.of(learner.own_state_dict())
        group = learner.group
        NOTES.append(Begun(group.policy, group.rank, *states, getattr(learner, "options", None)))
        super().run()  # type: ignore[misc]


class RemembersAll(_Notes, OfManyRows):
    """A learner of the tests."""


class RemembersPPO(_Notes, PPO):
    """One with an optimiser, and with half a rollout of its own."""


class Heavy(MeetsItself):
    """One with many weights; the first one notes how much memory Python has given out when everybody is ready."""

    BYTES = 2**20

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.many = np.zeros(self.BYTES, np.uint8)

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
