"""An algorithm by its loss, and a further loss for built-in algorithms."""

from __future__ import annotations

import numpy as np
import torch

from arena.dataset import open_dataset
from policies.by_loss import OnPolicyByLoss


class SimplePPO(OnPolicyByLoss):
    """The clipped surrogate of PPO (arXiv 1707.06347, eq. 9); the options are those of `ppo`."""

    measured = ("policy_loss", "value_loss", "entropy")

    def loss(self, network, batch):
        """The loss of a minibatch, and what is measured."""
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        ratio = (policy.log_prob(batch.actions) - batch.log_probs).exp()
        clipped = ratio.clamp(1 - self.options.clip_range, 1 + self.options.clip_range)
        policy_loss = -torch.min(ratio * batch.advantages, clipped * batch.advantages).mean()
        value_loss = (values - batch.returns).square().mean()
        entropy = policy.entropy().mean()
        loss = policy_loss + self.options.vf_coef * value_loss - self.options.ent_coef * entropy
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}


class Imitate:
    """Minus the log-probability of recorded actions, as `extra_loss` of ppo or a2c; for Discrete actions from 0.

    Args:
        observation_space, action_space: of one entity.
        seed: of this worker.
        data: a run folder with recorded samples.
        policy: whose.
        weight: of this loss beside the algorithm's own.
    """

    measured = ("agreement",)

    def __init__(self, observation_space, action_space, *, seed, data, policy, weight=0.1, batch_size=64):
        self.batch = open_dataset(data).batch(policy)
        self.rng, self.weight, self.size = np.random.default_rng(seed), weight, batch_size

    def __call__(self, network, batch):
        """The loss on a random part of the records."""
        rows = self.batch.take(self.rng.integers(len(self.batch), size=self.size))
        actions = torch.from_numpy(rows["actions"])
        policy = network.policy([torch.from_numpy(rows["obs"])])
        agreement = (policy.mode() == actions).float().mean()
        return -self.weight * policy.log_prob(actions).mean(), {"agreement": agreement}
