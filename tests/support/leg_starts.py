"""Learners that note what they begin each leg with, to the bit."""

from __future__ import annotations

from typing import Any, NamedTuple

from arena.records.state_codec import encode
from in_process import NOTES
from learners import OfManyRows
from policies.ppo import PPO


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
        states = Bits.of(learner.state_dict()), Bits.of(learner.worker_state_dict())
        group = learner.group
        NOTES.append(Begun(group.policy, group.rank, *states, getattr(learner, "options", None)))
        super().run()  # type: ignore[misc]


class RemembersAll(_Notes, OfManyRows):
    """A learner of the tests."""


class RemembersPPO(_Notes, PPO):
    """One with an optimizer, and with half a rollout of its own."""
