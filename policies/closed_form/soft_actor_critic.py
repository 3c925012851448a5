"""The gradients of the losses of `policies.sac`, for actors and critics that are plain perceptrons."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from policies.common.replay import Transitions
from policies.networks.box import SquashedGaussian
from policies.networks.distributions import allow
from policies.networks.soft_actions import ContinuousActions

if TYPE_CHECKING:
    from policies.sac import SAC


class _ActorStep(NamedTuple):
    """Means over the minibatch."""

    loss: float
    entropy: float  # of the policy, in nats
    surplus: float  # how much more that is than the target entropy


@torch.no_grad()
def sac(algorithm: SAC, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Adds the gradients of all losses to `grad` of the weights.

    Returns:
        the means of `SAC.metric_names`, and the mean temporal-difference errors [N].
    """
    network, actions, alpha = algorithm.network, algorithm.actions, algorithm.alpha
    targets = batch.rewards + batch.discounts * algorithm.next_values(batch)
    features, values, to_critics = network.critics.forward_with_grad(
        batch.observations, actions.to_critics(batch.actions)
    )
    taken = actions.of_actions(values, batch.actions)  # [k, N]
    errors = taken - targets
    weighted = errors * batch.weights
    to_critics(actions.by_outputs(weighted / batch.size, batch.actions))
    if isinstance(actions, ContinuousActions):
        step = _numbers(algorithm, actions, features, batch.masks, alpha)
    else:
        step = _choices(algorithm, features, values, batch.masks, alpha)
    if network.temperature is not None:
        gradient = network.temperature.log_alpha.grad
        assert gradient is not None, "optimizers set gradients to zero before"
        gradient += alpha * step.surplus
    metrics = (float((weighted * errors).mean(1).sum() / 2), float(taken.mean()), step.loss, step.entropy)
    return torch.tensor(metrics, dtype=torch.float64), errors.abs().mean(0)


def _numbers(
    algorithm: SAC, actions: ContinuousActions, features: Tensor, mask: Tensor | None, alpha: float
) -> _ActorStep:
    """The actor's part of a step, where actions are numbers; adds its gradient."""
    network = algorithm.network
    outputs, to_actor = network.actor.forward_with_grad(features)
    policy, noise = SquashedGaussian(outputs), actions.noise(outputs, algorithm.generator)
    worth, to_actions = network.critics.forward_with_input_grad(features, policy.sample(noise))  # [k, N, 1]
    least, which = worth.min(0, keepdim=True)
    share = 1 / len(outputs)  # the loss is a mean
    by_action = to_actions(torch.zeros_like(worth).scatter_(0, which, -share))  # of -min Q
    to_actor(policy.gradient(noise, by_action, alpha * share))
    entropy = -float(policy.log_prob(noise).mean())
    wanted = float(actions.target_entropy(outputs, mask)[0])
    return _ActorStep(-alpha * entropy - float(least.mean()), entropy, entropy - wanted)


def _choices(algorithm: SAC, features: Tensor, values: Tensor, mask: Tensor | None, alpha: float) -> _ActorStep:
    """The same where actions are choices."""
    outputs, to_actor = algorithm.network.actor.forward_with_grad(features)
    log_probs = allow(outputs, mask).log_softmax(-1)
    probs = log_probs.exp()  # of forbidden choices 0, as are their gradients
    costs = alpha * log_probs - values.amin(0)
    losses = (probs * costs).sum(-1, keepdim=True)
    to_actor(probs * (costs - losses) / len(outputs))
    entropies = -(probs * log_probs).sum(-1)
    surplus = float((entropies - algorithm.actions.target_entropy(outputs, mask)).mean())
    return _ActorStep(float(losses.mean()), float(entropies.mean()), surplus)
