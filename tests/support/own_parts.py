"""A user's classes for options of algorithms: encoders, further losses, algorithms by their loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from policies.by_loss import OnPolicyByLoss


class Net(nn.Module):
    """A layer of its own for observations of one vector."""

    def __init__(self, space: Any, generator: torch.Generator, *, width: int = 8) -> None:
        super().__init__()
        self.features = width
        self.weights = nn.Parameter(torch.randn(width, *space.shape, generator=generator) / 2)

    def forward(self, leaves: Any) -> Tensor:
        return torch.tanh(leaves[0].float() @ self.weights.T)


class Unseeded(Net):
    """Has a layer whose weights torch draws from its global random stream."""

    def __init__(self, space: Any, generator: torch.Generator, *, width: int = 8) -> None:
        super().__init__(space, generator, width=width)
        self.head = nn.Linear(width, width)


class Narrow(Net):
    """Returns fewer features than it declares."""

    def forward(self, leaves: Any) -> Tensor:
        return super().forward(leaves)[:, 1:]


class Doubled(Net):
    """Returns float64."""

    def forward(self, leaves: Any) -> Tensor:
        return super().forward(leaves).double()


class OneLeaf(nn.Module):
    """Takes observations of one leaf alone."""

    features = 3

    def __init__(self, space: Any, generator: torch.Generator) -> None:
        super().__init__()

    def forward(self, leaves: Any) -> Tensor:
        (numbers,) = leaves
        return numbers


class Decay:
    """Minus half the weight decay's gradient: the squared length of all weights, times `by`."""

    measured = ("length",)

    def __init__(self, observation_space: Any, action_space: Any, *, seed: int, by: float = 0.1) -> None:
        self.by = by

    def __call__(self, network: Any, batch: Any) -> Any:
        length = sum(parameter.square().sum() for parameter in network.parameters())
        return self.by * length, {"length": length}


class Forgetful(Decay):
    """Does not return the metric that it declares."""

    def __call__(self, network: Any, batch: Any) -> Any:
        return super().__call__(network, batch)[0]


class Wrong(Decay):
    """Makes the mistake that `kind` names."""

    def __init__(self, observation_space: Any, action_space: Any, *, seed: int, kind: str) -> None:
        super().__init__(observation_space, action_space, seed=seed)
        self.kind = kind

    def __call__(self, network: Any, batch: Any) -> Any:
        loss, measured = super().__call__(network, batch)
        if self.kind == "raises":
            raise KeyError("teacher")
        made: dict[str, Any] = {
            "number": 0.5,
            "vector": loss.repeat(3),
            "constant": torch.zeros(()),
            "elsewhere": torch.zeros((), requires_grad=True) * 2,
        }
        return made.get(self.kind, loss), {} if self.kind == "unmeasured" else measured


class Nan(Decay):
    """Gives NaN as its value, or as what it measures."""

    def __init__(self, *spaces: Any, seed: int, measured: bool = False) -> None:
        super().__init__(*spaces, seed=seed)
        self.of_measured = measured

    def __call__(self, network: Any, batch: Any) -> Any:
        loss, _ = super().__call__(network, batch)
        return (loss, {"length": math.nan}) if self.of_measured else (loss * math.nan, {"length": 1.0})


class Narrowminded(Decay):
    """Takes the network alone."""

    def __call__(self, network: Any) -> Any:  # type: ignore[override]
        return super().__call__(network, None)


class PPOByLoss(OnPolicyByLoss):
    """The loss of PPO, with the options of PPO."""

    measured = ("policy_loss", "value_loss", "entropy", "approx_kl")

    def loss(self, network: Any, batch: Any) -> Any:
        o = self.options
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        log_ratio = policy.log_prob(batch.actions) - batch.log_probs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - o.clip_range, 1 + o.clip_range)
        policy_loss = -torch.min(ratio * batch.advantages, clipped * batch.advantages).mean()
        value_loss = (values - batch.returns).square().mean()
        entropy = policy.entropy().mean()
        loss = policy_loss + o.vf_coef * value_loss - o.ent_coef * entropy
        kl = (ratio - 1 - log_ratio).mean()
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "approx_kl": kl}


class A2CByLoss(OnPolicyByLoss):
    """The loss of A2C."""

    measured = ("policy_loss",)

    def loss(self, network: Any, batch: Any) -> Any:
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        policy_loss = -(policy.log_prob(batch.actions) * batch.advantages).mean()
        value_loss = (values - batch.returns).square().mean()
        loss = policy_loss + self.options.vf_coef * value_loss - self.options.ent_coef * policy.entropy().mean()
        return loss, {"policy_loss": policy_loss}
