"""Off-policy learners that record the content of their replays at the end of a leg."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from in_process import NOTES
from policies.dqn import DQN
from policies.maddpg import MADDPG
from policies.masac import MASAC
from policies.sac import SAC


class _Keeps:
    """Records the next observations and masks of its replay, once the budget is used."""

    def run(self) -> None:
        learner: Any = self
        try:
            super().run()  # type: ignore[misc]
        finally:
            replay = learner.replay
            if replay is not None and replay.size:
                NOTES.append(followed(replay.sample(1000, torch.Generator().manual_seed(0), beta=1.0)))


def followed(batch: Any) -> set[tuple[int, tuple[int, ...]]]:
    """The pairs of a next observation and its mask in a minibatch, of all active entities."""
    seen, *acts = (leaf.numpy() for leaf in batch.next_observations)
    masks: NDArray[Any] = batch.next_masks.numpy().astype(int).reshape(seen.size, -1)
    chosen = np.ones(seen.size, np.bool_) if not acts else acts[0].astype(np.bool_).ravel()
    pairs = zip(seen.ravel()[chosen].tolist(), masks[chosen].tolist(), strict=True)
    return {(int(observed), tuple(mask)) for observed, mask in pairs}


class KeepsDQN(_Keeps, DQN):
    """Of one entity's values."""


class KeepsSAC(_Keeps, SAC):
    """Of one entity's choices."""


class KeepsMASAC(_Keeps, MASAC):
    """Of a team."""


class KeepsMADDPG(_Keeps, MADDPG):
    """Of a team."""
