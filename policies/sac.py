"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905) for one worker of a group; discrete: arXiv 1910.07207.

    value        V(s) = E [min Q'(s, a) - alpha log pi(a|s)], a ~ pi                                           eq. (3)
    critics      loss = 1/2 mean of (Q(s, a) - (r + gamma V(s')))^2, for each of two                           eq. (5)
    actor        loss = mean of E [alpha log pi(a|s) - min Q(s, a)]                                            eq. (7)
    temperature  loss = mean of alpha (H(pi(.|s)) - target entropy)                                            eq. (18)

Q' are the target critics. The gradients of critics, actor and temperature are computed at the same weights, and the
group averages them in one exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.algorithm import Metrics
from policies.common.off_policy import OffPolicy, OffPolicyOptions
from policies.common.options import AUTO, Auto, PositiveFraction, Scheduled, check_unused
from policies.common.replay import Transitions
from policies.networks.critics import ActorAndCritics, Critics, Temperature, actor_features, frozen
from policies.networks.reparameterized import check_reachable, soft_actions, target_entropy


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about SAC."""

    learning_rate: Scheduled = 3e-4  # step size of Adam for all parts, or its schedule; 0 plays without learning
    tau: PositiveFraction = 0.005  # how far the target networks move to what is learned; 1: they become a copy
    ent_coef: Scheduled | Auto = "auto"  # the temperature alpha: a number, its schedule, or auto: learned, from 1
    target_entropy: float | Auto = "auto"  # in nats; auto: minus the size of the Box, or 0.98 log(choices)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "target_entropy", ent_coef=lambda value: value != AUTO)


class SAC(OffPolicy):
    """One worker of a SAC policy; the actions are Discrete, or a Box with bounds."""

    Options = Options
    metric_names = ("critic_loss", "q_value", "actor_loss", "entropy")
    export_as = {"box": "squashed_gaussian"}
    n_critics = 2
    network: ActorAndCritics

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        o, generator = self.options, torch.Generator().manual_seed(group.shared_seed)
        self.actions, layers = soft_actions(env.single_action_space), self.layers(generator)
        check_reachable(o.target_entropy, env.single_action_space)
        encoder = self.make_encoder(generator)
        inputs, outputs = self.actions.inputs, self.actions.values
        critics = Critics(encoder, actions=inputs, outputs=outputs, count=self.n_critics, **layers)
        temperature = Temperature() if o.ent_coef == "auto" else None
        own: dict[str, Any] = {"temperature": temperature, "encoder": self.make_actor_encoder(encoder, generator)}
        network = ActorAndCritics(critics, self.actions.outputs, **own, **layers)
        self.network = network.to(self.device)
        self.set_up(dict(network.named_children()), {"critics": "critics"})

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        return self.actions.choose(self.network(leaves), mask, generator)  # type: ignore[no-any-return]

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of all losses, the means of `metric_names`, and the mean errors of the critics [N]."""
        network, actions, alpha = self.network, self.actions, self.alpha
        with torch.no_grad():
            targets = batch.rewards + batch.discounts * self.next_values(batch)
        features = batch.features(network.critics.encoder)
        values = network.critics(features, actions.to_critics(batch.actions))  # [k, N, outputs]
        taken = actions.of_actions(values, batch.actions)
        errors = taken - targets
        critic_loss = 0.5 * (batch.weights * errors.square()).mean(1).sum()  # eq. (5)
        detached = features.detach()  # the critics' loss alone trains the encoder
        outputs = network.actor(actor_features(network.actor, batch.features, detached))
        with frozen(network.critics):
            soft_values, entropies = actions.soft_values(
                outputs,
                batch.masks,
                lambda chosen: values.detach() if chosen is None else network.critics(detached, chosen),
                alpha,
                self.generator,
            )
        actor_loss = -soft_values.mean()  # eq. (7)
        loss, entropy = critic_loss + actor_loss, entropies.mean()
        if network.temperature is not None:
            surplus = entropies - target_entropy(actions, self.options.target_entropy, outputs, batch.masks)
            loss = loss + network.temperature.log_alpha.exp() * surplus.mean().detach()  # eq. (18)
        metrics = torch.stack([critic_loss, taken.mean(), actor_loss, entropy]).detach()
        return loss, metrics, errors.detach().abs().mean(0)

    def next_values(self, batch: Transitions) -> Tensor:
        """V [N] of the next observations, by the target critics: eq. (3)."""
        network, critics = self.network, self.targets["critics"].module
        features = batch.next_features(critics.encoder)
        seen = batch.next_features(getattr(network.actor, "encoder", network.critics.encoder))
        outputs, masks = network.actor(seen), batch.next_masks
        critic = lambda chosen: critics(features, chosen)  # noqa: E731
        return self.actions.soft_values(outputs, masks, critic, self.alpha, self.generator)[0]  # type: ignore[no-any-return]

    def schedules(self) -> Metrics:
        return {**super().schedules(), "ent_coef": self.alpha}

    @property
    def alpha(self) -> float:
        """The temperature: how much a nat of entropy is worth."""
        temperature = self.network.temperature
        return float(self.options.ent_coef) if temperature is None else temperature.alpha

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        soft_actions(space)
