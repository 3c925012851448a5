"""The gradient of the loss of `policies.dqn`, for a network that is a plain perceptron."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.common.replay import Transitions

if TYPE_CHECKING:
    from policies.dqn import DQN


@torch.inference_mode()
def dqn(algorithm: DQN, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Adds the gradient of the mean loss to `grad` of the weights.

    Observations and next observations go through the layers at once, which takes less than twice as long as one.

    Returns:
        the means of `DQN.metric_names`, and the temporal-difference errors [N].
    """
    network = algorithm.network
    features = network.encoder(batch.observations)
    rows, both = features.shape[0], [features]
    if algorithm.options.double:
        both.append(network.encoder(batch.next_observations))
    outputs, backward = network.layers.forward_with_grad(torch.cat(both) if len(both) > 1 else features, rows)
    values, next_values = network.mixed(outputs).tensor_split([rows])
    targets = algorithm.targets_of(batch, next_values if algorithm.options.double else None)
    chosen = batch.actions.unsqueeze(1)
    taken = values.gather(1, chosen).squeeze(1)
    errors = taken - targets
    slopes = errors.clamp(-1, 1)  # of Huber's loss, which is slope * (error - slope / 2)
    loss = torch.sub(errors, slopes, alpha=0.5).mul_(slopes).mul_(batch.weights)
    by_value = slopes.mul_(batch.weights).div_(batch.size)
    gradient = torch.zeros_like(values).scatter_(1, chosen, by_value.unsqueeze(1))
    backward(gradient if network.mix is None else gradient @ network.mix.t())
    return torch.stack([loss, taken, errors.abs()]).mean(1), errors
