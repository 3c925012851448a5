"""Critics: their backward pass against autograd, with vectors and images for observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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


def gradients(module: torch.nn.Module) -> list[Tensor]:
    """The gradients of all weights, which are then reset."""
    found = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad()
    return found


@pytest.mark.parametrize(("actions", "outputs"), [(2, 1), (0, 4)])
def test_weight_gradients_equal_autograd(actions: int, outputs: int) -> None:
    made, leaves = critics(VECTOR, actions=actions, outputs=outputs), seen(VECTOR)
    by_value = numbers(COUNT, ROWS, outputs)
    given = numbers(ROWS, actions) if actions else None
    values = made(made.encoder(leaves), given)
    values.backward(by_value)
    expected = gradients(made)
    with torch.no_grad():
        features, mine, backward = made.forward_with_grad(leaves, given)
        backward(by_value)
    torch.testing.assert_close(mine, values.detach())
    torch.testing.assert_close(features, made.encoder(leaves).detach())
    found = gradients(made)
    assert len(found) == len(expected) == len(list(made.parameters()))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("first", [False, True])
def test_action_gradients_equal_autograd_without_weights(first: bool) -> None:
    made, features = critics(VECTOR), numbers(ROWS, 3)
    count = 1 if first else COUNT
    actions, by_value = numbers(ROWS, 2).requires_grad_(), numbers(count, ROWS, 1)
    values = made(features, actions)[:count]
    (expected,) = torch.autograd.grad(values, actions, by_value)
    with torch.no_grad():
        mine, backward = made.forward_with_input_grad(features, actions, first=first)
        found = backward(by_value)
    torch.testing.assert_close(mine, values.detach())
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert gradients(made) == []


def test_critics_have_different_initial_weights() -> None:
    one, other = critics(VECTOR)(numbers(ROWS, 3), numbers(ROWS, 2, seed=6)).squeeze(-1).detach()
    assert np.corrcoef(one, other)[0, 1] < 0.9
