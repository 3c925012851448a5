"""Learners without a barrier that record the samples they offer and learn from."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from arena.records.state_codec import encode
from in_process import NOTES
from policies.dqn import DQN
from policies.ppo import PPO


def mark_of(fragment: Any) -> str:
    """A digest that identifies a fragment."""
    structure, arrays = encode(fragment)
    held = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return hashlib.sha256(b"".join([repr(structure).encode(), *held])).hexdigest()


class NotesPPO(PPO):
    """Records the marks and transition counts of the samples that it offers and learns from."""

    def run(self) -> None:
        samples: Any = self.group.async_samples
        offer, take = samples.put, samples.get

        def noted_offer(part: Any, count: int) -> None:
            NOTES.append(("offered", mark_of(part), len(part["batch"]["actions"])))
            offer(part, count)

        def noted_take() -> Any:
            parts = take()
            if parts is not None:
                NOTES.append(("learned", [(mark_of(part), len(part["batch"]["actions"])) for part in parts]))
            return parts

        samples.put, samples.get = noted_offer, noted_take
        super().run()


class NotesDQN(DQN):
    """Records how many transitions it offers."""

    def run(self) -> None:
        samples: Any = self.group.async_samples
        offer = samples.put

        def noted_offer(part: Any, count: int) -> None:
            NOTES.append(("collected", len(part["fragment"]["starts"])))
            offer(part, count)

        samples.put = noted_offer
        super().run()
