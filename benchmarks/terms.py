"""The common terms of all compared learners: the same game, network, epochs, minibatch and numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Terms:
    """The options of one contestant, with the names of the arena's PPO where it has them."""

    notes: str | None = None  # folder for the stamps
    env: str = "fused"  # fused; async: one process per lane; envpool:ID; rllib, rllib-multi
    lanes: int = 64
    minibatch: int = 1024
    n_steps: int = 128  # ticks per rollout
    n_epochs: int = 4
    learning_rate: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    samples: int = 1_000_000  # to learn from, unless the time ends before
    seconds: float = 60.0
    threads: int = 1  # of torch
    seed: int = 1

    @classmethod
    def told(cls) -> Terms:
        """From the JSON on the command line."""
        return cls(**json.loads(sys.argv[1]))

    def options(self) -> dict[str, Any]:
        """As the options of the arena's PPO."""
        shared = ("n_steps", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range", "ent_coef", "vf_coef")
        held = asdict(self)
        return {**{name: held[name] for name in (*shared, "max_grad_norm")}, "minibatch_size": self.minibatch}
