"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783, algorithm S3) for one worker of a group.

It collects and evaluates as PPO does, and makes one gradient step on all transitions of a rollout.

The paper's workers apply their gradients one by one (A3C). Here the workers of a group wait for each other, which is
the same algorithm without stale gradients, known as A2C; many lanes and workers take the place of many threads. With
`gae_lambda: 1` the advantage is the paper's: the rewards up to the rollout's end and the value there.

It steps with Adam where the paper has RMSProp, which is `adam_beta1: 0, adam_beta2: 0.99`. With 16 rows and 100,000
steps RMSProp (rate 2e-3) learned CartPole better (median return 500, with Adam 382) and Acrobot worse (-245, with Adam
-119; 10 to 34 seeds). With 4 rows and 50,000 steps (constant rate 7e-4) the areas under ten learning curves of CartPole
did not differ: 217 and 240, the paired difference -8 (-81 .. 64).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.algorithm import Metrics
from policies.common.devices import is_gpu
from policies.common.on_policy import OnPolicyOptions
from policies.common.options import Count, Fraction, Schedule, Scheduled
from policies.common.rollout import Batch
from policies.networks.actor_critic import ActorCritic
from policies.ppo import PPO

_MOMENTS = [f"{power} of {name}" for power in ("mean", "mean square") for name in ("errors", "returns", "one")]
_ROUNDING = 1e-12  # of a mean square in double precision, relative; a variance below that is none


class Options(OnPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about A2C."""

    learning_rate: Scheduled = 1e-3  # step size of Adam, or its schedule; 0 plays without learning
    learning_rate_schedule: Schedule = "linear"  # of a number: constant, or linear: falls to 0 at the end of the run
    n_steps: Count = 5  # ticks per rollout, which is one gradient step
    gae_lambda: Fraction = 1.0  # how far advantages look ahead: 0 one step, 1 to the end
    normalize_advantage: bool = False  # to mean 0 and deviation 1 over all the group's transitions

    REFUSED = {"batch_mode": "the loss has no weights for transitions of older weights; or take ppo"}


class A2C(PPO):
    """One worker of an A2C policy."""

    Options = Options
    metric_names = ("policy_loss", "value_loss", "entropy")

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.track(*self.parts, updates=self, ticks_done=self)

    @property
    def needs_log_probs(self) -> bool:
        """A2C's own loss has none: they take a third of the time of an evaluation; a resumed run may have another."""
        own = all(getattr(type(self), name) is getattr(A2C, name) for name in ("evaluate", "update", "backward"))
        own = own and self.has_gradient_by_hand(A2C) and self.extra is None
        return not own or self.group.async_samples is not None or not self.rollout.active.all()

    def learn_from(self, batch: Batch) -> Metrics:
        """As PPO's; where no loss needs the group's moments, they are averaged with its gradient: one exchange less."""
        numbers = batch.standardizable()
        own = type(self).update is A2C.update and not self.pools_samples and not is_gpu(self.device)
        if not own or self.options.normalize_advantage or len(numbers) > 3:
            return super().learn_from(batch)
        columns = torch.stack([numbers["errors"], numbers["returns"], torch.ones(batch.size)]).double()
        moments = torch.cat([columns.mean(1), columns.square().mean(1)])

        def backward(batch: Batch) -> Tensor:
            return torch.cat([self.backward(batch).double(), moments])

        names = (*self.metric_names, *_MOMENTS)
        metrics = self.mean_gradients(batch, backward, names, [self.optimizer])
        error, value, count, errors, returns, _ = (metrics.pop(name) for name in _MOMENTS)
        if not count:  # no worker has a transition
            return {}
        variance = returns - value * value
        explained = 1 - (errors - error * error) / variance if variance > _ROUNDING * returns else math.nan
        return {**metrics, **self.optimizer_step([self.optimizer]), "explained_variance": explained}

    def update(self, batch: Batch, largest: int) -> Metrics:
        """The one gradient step of an update; its metrics."""
        return self.gradient_step(batch, self.recorded_backward, self.metric_names, [self.optimizer])

    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of the loss to `grad` of the weights; returns the means of `metric_names`."""
        if self.has_gradient_by_hand(A2C):
            return add_gradient(self.network, batch, self.options).mean(1)
        return super().backward(batch)

    # perceptrons on the CPU use `add_gradient` below: change it with this
    def losses(self, network: ActorCritic, batch: Batch) -> Tensor:
        """-log pi(a|s) A, (R - V(s))^2 and the entropy of each transition, [3, N]."""
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        policy_loss = -policy.log_prob(batch.actions) * batch.per_choice(batch.advantages)
        policy_loss, entropy = batch.per_transition(torch.stack([policy_loss, policy.entropy()]))
        return torch.stack([policy_loss, (values - batch.returns).square(), entropy])

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows: transitions per update, updates per run, what `auto` becomes."""
        return cls.Options(**options).rollout_sizes(rows=rows, workers=workers, ticks=ticks)


@torch.inference_mode()
def add_gradient(network: ActorCritic, batch: Batch, options: Any) -> Tensor:
    """Adds the gradient of A2C's mean loss to `grad` of the weights; returns `A2C.losses`, [3, N]."""
    share = 1 / batch.size
    features = network.encoder.parted(network.encoder(batch.observations))
    policy, to_actor = network.policy_with_grad(features.actor, batch.masks)
    losses = -policy.log_prob(batch.actions) * batch.advantages
    to_actor(policy.gradient(batch.actions, batch.advantages * -share, -options.ent_coef * share))
    outputs, to_critic = network.critic.forward_with_grad(features.critic)
    difference = outputs.squeeze(-1) - batch.returns
    to_critic((difference * (2 * options.vf_coef * share)).unsqueeze(-1))
    return torch.stack([losses, difference.square(), policy.entropy()])
