"""Random trajectories of rows in turns, for tests of estimates."""

from __future__ import annotations

import numpy as np

from policies.common.rollout import Trajectories


def random_trajectories(seed: int, *, acting: float, ending: float, outside: float = 0.0) -> Trajectories:
    """`outside`: the share of void transitions and given actions in external games; 0: not external."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 12)), int(rng.integers(1, 5)))
    return Trajectories(
        rewards=rng.normal(size=shape),
        values=rng.normal(size=shape),
        terminated=rng.random(shape) < ending,
        truncated=rng.random(shape) < ending,
        final_values=rng.normal(size=shape),
        active=rng.random(shape) < acting,
        last_values=rng.normal(size=shape[1]),
        last_active=rng.random(shape[1]) < acting,
        void=rng.random(shape) < outside if outside else None,
        given=rng.random(shape) < outside if outside else None,
    )
