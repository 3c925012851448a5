"""What the libraries of a process keep for all who use them: their threads and their random streams."""

from __future__ import annotations

import random
import sys

import numpy as np

from arena import registry
from arena.run import Run


def import_algorithms(run: Run) -> None:
    """Imports what the run's workers need, so that this process can take the place of one at once."""
    for policy in run.plan.policies.values():
        registry.worker_class(
            policy.algorithm, policy.options, acts=run.plan.acts(policy), path=f"policies.{policy.name}"
        )


def calm_libraries() -> None:
    """One thread per worker: more would fight for the cores that other workers have."""
    torch = sys.modules.get("torch")  # only if the algorithm imported it
    if torch is not None:
        torch.set_num_threads(1)


def seed_libraries(seed: int) -> None:
    """Makes the global random streams of this process repeatable, for algorithms that use them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
