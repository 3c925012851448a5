"""Critics: their backward pass against autograd, with vectors and images for observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor

from policies.common.columns import to_leaves
from policies.networks.critics import Critics

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
COUNT, ROWS = 2, 20


def critics(space: Any, *, actions: int = 2, outputs: int = 1) -> Critics:
    return Critics(
        space,
        actions=actions,
        outputs=outputs,
        count=COUNT,
        hidden_sizes=(8, 8),
        activation="tanh",
        generator=torch.Generator().manual_seed(0),
    )


def seen(space: Any) -> list[Tensor]:
    batched = batch_space(space, ROWS)
    batched.seed(4)
    return to_leaves(space, batched.sample())


def numbers(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_critics_have_different_initial_weights() -> None:
    one, other = critics(VECTOR)(numbers(ROWS, 3), numbers(ROWS, 2, seed=6)).squeeze(-1).detach()
    assert np.corrcoef(one, other)[0, 1] < 0.9
