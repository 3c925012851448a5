"""Implicit Q-learning (Kostrikov et al. 2021, arXiv 2110.06169): acts better than the recorded samples it learns from.

    value    loss = mean of L(min Q'(s, a) - V(s)),   L(u) = |expectile - 1(u < 0)| u^2                        eq. (5)
    critics  loss = mean of (r + gamma V(s') - Q(s, a))^2, for each of two                                     eq. (6)
    actor    loss = -mean of exp(temperature (min Q'(s, a) - V(s))) log pi(a|s)                                eq. (7)
    targets  Q' follow Q, by `tau` per gradient step

V is an expectile of the values of the recorded actions: the nearer to 1, the nearer to the best of them. No action is
valued that was not recorded, which is where values learned offline are wrong. The actor imitates the recorded actions
as behavior cloning does (`policies.bc`), those that were better than V with larger weights, at most 100.

Reading, playing and the exchange in the group are those of `policies.bc`, and so is the mean that is played in a Box,
whose deviation is 1. The losses of actor, critics and value are computed at the same weights and make one step of Adam.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.errors import ConfigError
from arena.group.group import Group
from policies import bc
from policies.common.adam import Optimizer, flatten_parameters
from policies.common.algorithm import Backward, Metrics
from policies.common.options import (
    Activation,
    Fraction,
    NonNegative,
    PositiveFraction,
    Scheduled,
    Sizes,
    wrong,
)
from policies.common.replay import Transitions
from policies.extensions import make_encoder
from policies.networks.actor_critic import Actor, Encoder, mlp
from policies.networks.critics import Critics
from policies.networks.heads import ActionHead, BoxHead, action_head
from policies.offline.demonstrations import open_demonstrations
from policies.offline.transitions import recorded_transitions

_LARGEST_WEIGHT = 100.0  # of an action in the actor's loss, as in the paper's code


class Options(bc.Options, frozen=True, kw_only=True):
    """What a configuration may say about implicit Q-learning."""

    learning_rate: Scheduled = 3e-4  # step size of Adam, or its schedule; 0 plays without learning
    gamma: Fraction = 0.99  # discount per transition
    expectile: PositiveFraction = 0.7  # of the recorded actions' values that V is: 0.5 their mean, near 1 the best
    temperature: NonNegative = 3.0  # how much better actions are preferred, per unit of return; 0 imitates all alike
    tau: PositiveFraction = 0.005  # how far the target critics move to what is learned; 1: they become a copy
    hidden_sizes: Sizes = (256, 256)  # layers of actor, critics and value
    activation: Activation = "relu"  # tanh or relu

    REFUSED = {
        "extra_loss": "its loss is that of several networks; or take bc",
        "transformer": "its critics see no units; or take bc",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expectile == 1:
            raise wrong("expectile", self.expectile, "less than 1: V would rise without end")


class ActorCriticsValue(Actor):
    """The actor, and beside it critics with an encoder of their own, and V of the critics' features."""

    def __init__(self, encoder: Encoder, head: ActionHead, critics: Critics, **layers: Any) -> None:
        super().__init__(encoder, head, **layers)
        self.critics = critics
        self.of_state = mlp(critics.features, 1, gain=1.0, **layers)


class IQL(bc.BehaviorCloning):
    """One worker of a policy that learns from recorded samples; the actions are Discrete, or a Box of floats."""

    Options = Options
    takes_units = False
    metric_names = ("policy_loss", "value_loss", "critic_loss", "q_value")

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.target = copy.deepcopy(self.network.critics).requires_grad_(False)
        flatten_parameters(list(self.target.parameters()))  # as aligned in every worker
        self.track("network", "optimizer", "target", updates=self, gradient_steps=self, played=self)

    def make_network(self, generator: torch.Generator) -> ActorCriticsValue:
        space, layers = self.env.single_observation_space, self.layers(generator)
        actor, critics = (make_encoder(space, generator, self.options.encoder) for _ in range(2))
        choices = isinstance(self.env.single_action_space, spaces.Discrete)
        sizes = (
            {"actions": 0, "outputs": self.head.outputs} if choices else {"actions": self.head.outputs, "outputs": 1}
        )
        return ActorCriticsValue(actor, self.head, Critics(critics, **sizes, count=2, **layers), **layers)

    def demonstrations(self) -> Transitions:
        """This worker's share of the recorded transitions, on the CPU; the root's is all where it learns for all."""
        return recorded_transitions(
            open_demonstrations(self.options.data, self.options.policy),
            self.options.policy,
            self.env.single_observation_space,
            self.head,
            self.env.single_action_space,
            gamma=self.options.gamma,
            **self.share,
        )

    def gradient_step(
        self, batch: Any, backward: Backward, names: Sequence[str], optimizers: Sequence[Optimizer]
    ) -> Metrics:
        metrics = super().gradient_step(batch, backward, names, optimizers)
        with torch.no_grad():
            followed = list(self.network.critics.parameters())
            torch._foreach_lerp_(list(self.target.parameters()), followed, self.options.tau)
        return metrics

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The sum of all losses, and the means of `metric_names`."""
        o, network = self.options, self.network
        features = network.critics.encoder(batch.observations)
        with torch.no_grad():
            known = self.q_values(self.target, self.target.encoder(batch.observations), batch.actions).amin(0)
            following = network.of_state(network.critics.encoder(batch.next_observations)).squeeze(-1)
            targets = batch.rewards + batch.discounts * following
        values = self.q_values(network.critics, features, batch.actions)  # [2, N]
        critic_loss = (values - targets).square().mean(1).sum()  # eq. (6)
        surplus = known - network.of_state(features.detach()).squeeze(-1)  # the critics' loss alone trains the encoder
        value_loss = ((o.expectile - (surplus < 0).float()).abs() * surplus.square()).mean()  # eq. (5)
        weights = (o.temperature * surplus.detach()).exp().clamp(max=_LARGEST_WEIGHT)
        policy_loss = -(weights * network(batch.observations, batch.masks).log_prob(batch.actions)).mean()  # eq. (7)
        metrics = torch.stack([policy_loss, value_loss, critic_loss, values.mean()])
        return critic_loss + value_loss + policy_loss, metrics.detach()

    @staticmethod
    def q_values(critics: Critics, features: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [2, N] of recorded actions, for the features [N, ...] that the critics' encoder finds."""
        if actions.is_floating_point():
            return critics(features, actions).squeeze(-1)  # type: ignore[no-any-return]
        return critics(features).gather(2, actions.expand(2, -1).unsqueeze(-1)).squeeze(-1)  # type: ignore[no-any-return]

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        if not isinstance(space, spaces.Discrete) and not isinstance(action_head(space), BoxHead):
            raise ConfigError(
                f"iql values Discrete actions and a Box of floats, not {space}; bc takes choices of several parts; ppo "
                "and a2c take all"
            )
