"""Random minibatches in the form of a replay's, for tests of off-policy updates."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from policies.common.columns import to_leaves
from policies.common.replay import Transitions


def made_up(learner: Any, count: int, *, masked: bool = False, seed: int = 3) -> Transitions:
    """`count` transitions in the learner's spaces; some are the last of their episode, all weights differ."""
    draw = torch.Generator().manual_seed(seed)
    space = learner.env.single_observation_space
    batched = batch_space(space, count)
    batched.seed(seed)
    masks, next_masks = (_mask(learner, count, draw) if masked else None for _ in range(2))
    return Transitions(
        observations=tuple(to_leaves(space, batched.sample())),
        masks=masks,
        actions=learner.act_randomly(count, masks),
        rewards=torch.randn(count, generator=draw),
        next_observations=tuple(to_leaves(space, batched.sample())),
        next_masks=next_masks,
        discounts=0.9 * (torch.rand(count, generator=draw) < 0.8).float(),
        weights=0.5 + torch.rand(count, generator=draw),
        indices=torch.arange(count),
    )


def _mask(learner: Any, count: int, draw: torch.Generator) -> Tensor:
    mask = torch.rand(count, learner.actions.mask_size, generator=draw) < 0.6
    mask[torch.arange(count), torch.randint(learner.actions.mask_size, (count,), generator=draw)] = True
    return mask


def disturb(*modules: nn.Module) -> None:
    """Moves all weights, so that a target differs from its network and an actor is far from uniform."""
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for module in modules:
            for weight in module.parameters():
                inputs = weight[0].numel() if weight.ndim else 1
                weight.add_(0.5 * inputs**-0.5 * torch.randn(weight.shape, generator=draw))


def assert_gradients(module: nn.Module, expected: tuple[Tensor, ...]) -> None:
    """Compares `grad` of all weights of a module with the expected one, relative to the largest."""
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert gradient.abs().max() > 0
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-6 * float(gradient.abs().max()) + 1e-7, rtol=1e-3)
