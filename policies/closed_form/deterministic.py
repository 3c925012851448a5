"""The gradients of the losses of `policies.ddpg` and `policies.td3`, where actor and critics are plain perceptrons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.common.replay import Transitions

if TYPE_CHECKING:
    from policies.ddpg import DDPG


@torch.no_grad()
def ddpg(algorithm: DDPG, batch: Transitions, *, actor: bool) -> tuple[Tensor, Tensor]:
    """Adds the gradients of the critics' mean loss, and of the actor's if asked, to `grad` of the weights.

    Returns:
        the means of the metrics, and the mean temporal-difference errors [N].
    """
    network = algorithm.network
    features, values, to_critics = network.critics.forward_with_grad(batch.observations, batch.actions)
    errors = values.squeeze(-1) - algorithm.targets_of(batch)  # [k, N]
    weighted = errors * batch.weights
    to_critics(weighted.mul(2 / batch.size).unsqueeze(-1))
    metrics = [(weighted * errors).mean(1).sum(), values.mean()]
    if actor:
        outputs, to_actor = network.actor.forward_with_grad(features)
        actions = outputs.tanh()
        worth, to_actions = network.critics.forward_with_input_grad(features, actions, first=True)
        by_action = to_actions(torch.full_like(worth, -1 / len(worth[0])))
        to_actor(by_action * (1 - actions.square()))
        metrics.append(-worth.mean())
    return torch.stack(metrics), errors.abs().mean(0)
