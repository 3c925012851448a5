"""Gradients of the losses of `policies.ppo` and `policies.a2c`, for actors and critics that are plain perceptrons.

With 64 x 64 units a gradient step by autograd takes 1.3 (minibatch 4096) to 2.2 times (minibatch 64) as long, a whole
run of PPO 1.05 to 1.19 times.

Here the losses are differentiated with respect to log pi(a|s) and V(s). The distribution and the perceptron continue
from there to the weights, each adding to `grad`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from policies.common.rollout import Batch
from policies.networks.actor_critic import ActorCritic
from policies.networks.distributions import Distribution

if TYPE_CHECKING:
    from policies.a2c import Options as A2COptions
    from policies.ppo import Options as PPOOptions


@torch.inference_mode()
def ppo(network: ActorCritic, batch: Batch, options: PPOOptions, share: float) -> Tensor:
    """Adds the gradient of `share` times the sum of PPO's losses to `grad` of the weights.

    Returns:
        what `PPO.losses` returns, [5, N].
    """
    features = network.encoder.parted(network.encoder(batch.observations))
    policy, backward = _policy(network, features.actor, batch.masks)
    log_ratio = policy.log_prob(batch.actions) - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - options.clip_range, 1 + options.clip_range)
    gain, clipped_gain = ratio * batch.advantages, clipped * batch.advantages
    surrogate = torch.min(gain, clipped_gain)
    by_log_prob = gain.masked_fill_(gain > clipped_gain, 0.0).mul_(-share)  # as dr = r dlog pi; 0 where clipped
    backward(policy.gradient(batch.actions, by_log_prob, -options.ent_coef * share))
    divergence = (ratio - 1).sub_(log_ratio)
    value_errors = _ppo_value(network, features.critic, batch, options, share)
    return torch.stack([-surrogate, value_errors, policy.entropy(), divergence, (ratio != clipped).float()])


def _ppo_value(network: ActorCritic, features: Tensor, batch: Batch, options: PPOOptions, share: float) -> Tensor:
    outputs, backward = network.critic.forward_with_grad(features)
    values = outputs.squeeze(-1)
    difference = values - batch.returns
    errors = difference.square()
    if options.clip_range_vf is not None:
        move = values - batch.values
        near = move.clamp(-options.clip_range_vf, options.clip_range_vf)
        clipped = (batch.values + near - batch.returns).square()
        difference.masked_fill_((move != near) & (clipped >= errors), 0.0)  # the larger error is constant
        errors = torch.max(errors, clipped)
    backward(difference.mul_(2 * options.vf_coef * share).unsqueeze(-1))
    return errors


@torch.inference_mode()
def a2c(network: ActorCritic, batch: Batch, options: A2COptions) -> Tensor:
    """Adds the gradient of A2C's mean loss to `grad` of the weights.

    Returns:
        what `A2C.losses` returns, [3, N].
    """
    share = 1 / batch.size
    features = network.encoder.parted(network.encoder(batch.observations))
    policy, to_actor = _policy(network, features.actor, batch.masks)
    losses = -policy.log_prob(batch.actions) * batch.advantages
    to_actor(policy.gradient(batch.actions, batch.advantages * -share, -options.ent_coef * share))
    outputs, to_critic = network.critic.forward_with_grad(features.critic)
    difference = outputs.squeeze(-1) - batch.returns
    to_critic((difference * (2 * options.vf_coef * share)).unsqueeze(-1))
    return torch.stack([losses, difference.square(), policy.entropy()])


def _policy(
    network: ActorCritic, features: Tensor, mask: Tensor | None
) -> tuple[Distribution, Callable[[Tensor], None]]:
    """The policy, and the backward function of the actor's outputs [N, head.outputs]."""
    outputs, backward = network.actor.forward_with_grad(features)
    policy = network.head.distribution(outputs, mask)
    return policy, backward if mask is None else lambda gradient: backward(gradient * mask)  # see `allow`
