"""Learners that record their exact state at the start of each leg."""

from __future__ import annotations

from typing import Any, NamedTuple

from arena.records.state_codec import encode
from in_process import NOTES
from learners import LearnerWithActor
from policies.ppo import PPO


class Bits(NamedTuple):
    """A state, to be compared to the bit."""

    structure: Any
    arrays: list[bytes]

    @classmethod
    def of(cls, state: Any) -> Bits:
        return cls(*encode(state))


class LegStart(NamedTuple):
    """The state of a worker at the start of a leg."""

    policy: str
    worker: int  # its rank in the group
    state: Bits
    own: Bits
    options: Any


class _Notes:
    """Records its state when `run` is called."""

    def run(self) -> None:
        learner: Any = self
        states = Bits.of(learner.state_dict()), Bits.of(learner.worker_state_dict())
        group = learner.group
        NOTES.append(LegStart(group.policy, group.rank, *states, getattr(learner, "options", None)))
        super().run()  # type: ignore[misc]


class RecordsLegStarts(_Notes, LearnerWithActor):
    """A learner of the tests."""


class RecordsLegStartsOfPPO(_Notes, PPO):
    """A learner with an optimizer and a partial rollout of its own."""
