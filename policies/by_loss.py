"""On-policy algorithms defined by their loss alone, which torch differentiates.

    class MyPPO(OnPolicyByLoss):
        measured = ("policy_loss", "value_loss")

        def loss(self, network, batch):
            policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
            ratio = (policy.log_prob(batch.actions) - batch.log_probs).exp()
            policy_loss = -torch.min(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages).mean()
            value_loss = (values - batch.returns).square().mean()
            return policy_loss + 0.5 * value_loss, {"policy_loss": policy_loss, "value_loss": value_loss}

Rollouts, advantages, minibatches, the exchange in the group and what is saved are those of PPO. With `n_epochs: 1` and
a `minibatch_size` of the whole rollout it makes one gradient step per rollout, as A2C does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from arena.errors import ConfigError
from policies.common.algorithm import Metrics
from policies.common.rollout import Batch
from policies.networks.actor_critic import ActorCritic
from policies.ppo import PPO, Options

__all__ = ["OnPolicyByLoss", "Options"]


class OnPolicyByLoss(PPO, ABC):
    """One worker of a policy whose loss a subclass defines; its options are those of PPO, or extend them.

    Attributes:
        measured: the names of what `loss` measures; `approx_kl` among them is what `target_kl` limits.
    """

    Options: ClassVar[type[Any]] = Options
    measured: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.metric_names = ("loss", *cls.measured)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses a device that this machine does not have, and a limit of what the loss does not measure."""
        super().check_options(options)
        if cls.Options(**options).target_kl is not None and "approx_kl" not in cls.measured:
            raise ConfigError(
                f"limits approx_kl, which the loss of {cls.__name__} does not measure", path="options.target_kl"
            )

    @abstractmethod
    def loss(  # type: ignore[override]  # PPO's own is the sum of its `losses`
        self, network: ActorCritic, batch: Batch
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss, a mean over the minibatch, and the values of `measured`, means likewise."""

    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of the loss to `grad` of the weights; returns the loss and what was measured."""
        loss, measured = self.loss(self.network, batch)
        if {*measured} != {*self.measured}:
            raise ValueError(
                f"{type(self).__name__}.loss has measured {sorted(measured)}; `measured` says {[*self.measured]}"
            )
        torch.autograd.backward([loss])
        return torch.stack([loss.detach(), *(measured[name].detach() for name in self.measured)])

    def diverged(self, metrics: Metrics) -> bool:
        """Whether `approx_kl` exceeds 1.5 times `target_kl`; never where it is not measured."""
        return "approx_kl" in metrics and super().diverged(metrics)
