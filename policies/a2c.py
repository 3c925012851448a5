"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783, algorithm S3) for one worker of a group.

    collect    a few ticks with the current policy                              -> rollout
    judge      values and advantages                                            -> batch of transitions
    learn      one gradient step on all of them, together with the group's other workers

The first two, and how a group learns, are those of `policies.common.on_policy`; here is what makes it A2C.

The paper's workers each apply their gradient when they have it (A3C). Here a group's workers wait for each other, which
is the same algorithm without stale gradients, known as A2C: many lanes and workers take the place of many threads. With
`gae_lambda: 1` the advantage is the paper's, the rewards up to the rollout's end and the value there.

It steps with Adam where the paper has RMSProp: the same division by the root of the mean squared gradient, with a
momentum that steadies the gradients of short rollouts, and the one optimiser that all algorithms here share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.common.algorithm import Average, Figures
from policies.common.on_policy import OnPolicy, OnPolicyOptions
from policies.common.options import Count, Fraction, NonNegative, Schedule
from policies.common.rollout import Batch


class Options(OnPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about A2C.

    Raises:
        ConfigError: a value of the wrong kind or out of its range.
    """

    learning_rate: NonNegative = 1e-3  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "linear"  # constant, or linear: falls to 0 at the end of the run
    n_steps: Count = 5  # ticks per rollout, which is one gradient step
    gae_lambda: Fraction = 1.0  # how far advantages look ahead: 0 one step, 1 to the end
    normalize_advantage: bool = False  # to mean 0 and deviation 1 over all the group's transitions


class A2C(OnPolicy[Options]):
    """One worker of an A2C policy; see `OnPolicy` for its arguments."""

    Options = Options
    measured = ("policy_loss", "value_loss", "entropy")

    def minibatches(self, transitions: int, *, workers: int = 1) -> int:
        """All transitions are one."""
        return 1

    def optimize(self, batch: Batch, minibatches: int, average: Average) -> Figures:
        """The one gradient step of an update; what was measured of it."""
        figures = self.gradients(batch, average)
        self.step()
        return figures

    @torch.inference_mode()
    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of the loss to `grad` of the weights; returns what is measured of it [3].

        All parts of the loss are means over the transitions:

            loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
            policy_loss = -log pi(a|s) A        value_loss = (R - V(s))^2

        It is differentiated here, by hand, with respect to log pi(a|s) and V(s); the distribution and the network know
        the way from there to the weights. The tests compare that with torch's own derivative of the equation.
        """
        share = 1 / batch.size
        features, to_encoder = self.network.encoded(batch.observations, batch.lengths)
        policy, to_actor = self.network.traced_policy(features, batch.masks)
        losses = -policy.log_prob(batch.actions) * batch.advantages
        to_actor(policy.gradient(batch.actions, batch.advantages * -share, -self.options.ent_coef * share))
        values, to_critic = self.network.traced_value(features)
        difference = values - batch.returns
        to_critic(difference * (2 * self.options.vf_coef * share))
        to_encoder()
        return torch.stack([losses, difference.square(), policy.entropy()]).mean(1)
