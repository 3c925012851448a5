"""Learners that write down what they hand over and what they learn from, where nobody waits for anybody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.records.state_codec import encode
from in_process import NOTES
from policies.dqn import DQN
from policies.ppo import PPO


def mark_of(fragment: Any) -> str:
    """What tells a fragment from all others."""
    structure, arrays = encode(fragment)
    held = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return hashlib.sha256(b"".join([repr(structure).encode(), *held])).hexdigest()


class NotesPPO(PPO):
    """Notes the marks of fragments, and how many slots they have."""

    def _fragment(self, rollout: Any) -> dict[str, Any]:
        fragment = super()._fragment(rollout)
        NOTES.append(("offered", mark_of(fragment), len(fragment["batch"]["actions"])))
        return fragment

    def _learn_from_fragments(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        NOTES.append(("learnt", [(mark_of(part), len(part["batch"]["actions"])) for part in parts]))
        return super()._learn_from_fragments(parts)


class NotesDQN(DQN):
    """The same, of another kind of fragment."""

    def _learn_as_it_comes(self, fragment: Any, fragments: Any) -> None:
        NOTES.append(("collected", len(fragment.starts)))
        super()._learn_as_it_comes(fragment, fragments)
