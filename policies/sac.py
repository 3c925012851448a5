"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905) for one worker of a group; discrete: arXiv 1910.07207.

    value        V(s) = E [min Q'(s, a) - alpha log pi(a|s)], a ~ pi                                           eq. (3)
    critics      loss = 1/2 mean of (Q(s, a) - (r + gamma V(s')))^2, for each of two                           eq. (5)
    actor        loss = mean of E [alpha log pi(a|s) - min Q(s, a)]                                            eq. (7)
    temperature  loss = mean of alpha (H(pi(.|s)) - target entropy)                                            eq. (18)

Q' are the target critics. The gradients of critics, actor and temperature are computed at the same weights, and the
group averages them in one exchange.

In games with units Q(s, a) is V(s) + the sum over decisions d of A_d(s, a_d), as in `policies.dqn`, and log pi(a|s) the
sum of the decisions' own; actor and critics share nothing. min Q is then the lesser of the critics' means.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.algorithm import Metrics
from policies.common.devices import is_gpu
from policies.common.off_policy import MEMORY, OffPolicy, OffPolicyOptions
from policies.common.options import AUTO, Auto, PositiveFraction, Scheduled, check_unused
from policies.common.replay import Transitions
from policies.networks.actor_critic import MLP
from policies.networks.critics import ActorAndCritics, Critics, Temperature, actor_features, frozen, make_actor
from policies.networks.reparameterized import (
    SoftDecisions,
    SoftNumbers,
    SquashedGaussian,
    check_reachable,
    soft_actions,
    target_entropy,
)
from policies.networks.units.network import UnitActor, UnitActorCritic, UnitCritics
from policies.networks.units.options import Transformer, schema_of


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about SAC."""

    learning_rate: Scheduled = 3e-4  # step size of Adam for all parts, or its schedule; 0 plays without learning
    tau: PositiveFraction = 0.005  # how far the target networks move to what is learned; 1: they become a copy
    ent_coef: Scheduled | Auto = "auto"  # the temperature alpha: a number, its schedule, or auto: learned, from 1
    target_entropy: float | Auto = "auto"  # in nats; auto: minus the size of the Box, or 0.98 log(choices)
    transformer: Transformer | None = None  # networks of seats that see units; null: its defaults

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "target_entropy", ent_coef=lambda value: value != AUTO)


class SAC(OffPolicy):
    """One worker of a SAC policy; the actions are Discrete, a Box with bounds, or decisions of units."""

    Options = Options
    takes_units = True
    metric_names = ("critic_loss", "q_value", "actor_loss", "entropy")
    export_as = {"box": "squashed_gaussian"}
    n_critics = 2
    network: ActorAndCritics

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.actions = soft_actions(env.single_action_space)
        check_reachable(self.options.target_entropy, env.single_action_space)
        self.network = self.make_network(torch.Generator().manual_seed(group.shared_seed)).to(self.device)
        self.set_up(dict(self.network.named_children()), {"critics": "critics"})

    def make_network(self, generator: torch.Generator) -> ActorAndCritics:
        """The network, whose initial weights are drawn from `generator`."""
        o, space, actions = self.options, self.env.single_observation_space, self.actions
        temperature = Temperature() if o.ent_coef == "auto" else None
        self.units = schema_of(o, space, "hidden_sizes", "activation", "encoder", "extra_loss", *MEMORY)
        if isinstance(actions, SoftDecisions):
            parts: Any = space, actions, o.transformer or Transformer(), generator
            unit_critics = UnitCritics([UnitActorCritic(*parts) for _ in range(self.n_critics)])
            return ActorAndCritics(unit_critics, UnitActor(*parts), temperature=temperature)
        encoder, layers = self.make_encoder(generator), self.layers(generator)
        sizes = {"actions": actions.inputs, "outputs": actions.values, "count": self.n_critics}
        own, critics = self.make_actor_encoder(encoder, generator), Critics(encoder, **sizes, **layers)
        actor = make_actor(critics.features, actions.outputs, own, **layers)
        return ActorAndCritics(critics, actor, temperature=temperature)

    def backward(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        parts = type(self.network.critics), type(self.network.actor), type(self.actions), type(self).loss
        plain = parts == (Critics, MLP, SoftNumbers, SAC.loss) and not self.network.critics.encoder.learns
        return super().backward(batch) if not plain or is_gpu(self.device) else add_gradient(self, batch)

    # numbers and perceptrons on the CPU use `add_gradient` below: change it with this
    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of all losses, the means of `metric_names`, and the mean errors of the critics [N]."""
        network, actions, alpha = self.network, self.actions, self.alpha
        features, next_features = batch.all_features(network.critics.encoder)
        detached = features if self.units else features.detach()  # the critics' loss alone trains the encoder
        seen, next_seen = actor_features(network.actor, batch.all_features, (detached, next_features))
        with torch.no_grad():
            targets = batch.rewards + batch.discounts * self.next_values(batch, next_seen)
        values = network.critics(features, actions.to_critics(batch.actions))  # [k, N, outputs]
        taken = actions.of_actions(values, batch.actions)
        errors = taken - targets
        critic_loss = 0.5 * (batch.weights * errors.square()).mean(1).sum()  # eq. (5)
        outputs = network.actor(seen)
        with frozen(network.critics):
            soft_values, entropies = actions.soft_values(
                outputs,
                batch.masks,
                lambda chosen: values if chosen is None else network.critics(detached, chosen),
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

    def next_values(self, batch: Transitions, seen: Any) -> Tensor:
        """V [N] of the next observations, by the target critics: eq. (3); `seen` is what the actor sees of them."""
        critics = self.targets["critics"].module
        features = batch.next_features(critics.encoder)
        outputs, masks = self.network.actor(seen), batch.next_masks
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


@torch.inference_mode()
def add_gradient(learner: SAC, batch: Transitions) -> tuple[Tensor, Tensor]:
    """As `SAC.backward`, of numbers by perceptrons: with 64 rows in a fifth less time than autograd."""
    network, actions, alpha, share = learner.network, learner.actions, learner.alpha, 1 / batch.size
    temperature: Any = network.temperature
    features, next_features = batch.all_features(network.critics.encoder)
    targets = batch.rewards + batch.discounts * learner.next_values(batch, next_features)

    def values(chosen: Tensor, frozen: slice | None) -> tuple[Tensor, list[Any]]:
        """Q [k, N], and the backward functions of the critics."""
        inputs = torch.cat([features, chosen], 1)
        each = [critic.forward_with_grad(inputs, frozen=frozen) for critic in network.critics.members]
        return torch.cat([value.t() for value, _ in each]), [backward for _, backward in each]

    taken, to_critics = values(batch.actions, None)
    errors = taken - targets
    for backward, error in zip(to_critics, batch.weights * errors * share, strict=True):
        backward(error.unsqueeze(1))
    outputs, to_actor = network.actor.forward_with_grad(features)
    policy, noise = SquashedGaussian(outputs), actions.noise(outputs, learner.generator)
    chosen, log_probs = policy.sample(noise), policy.log_prob(noise)
    found, to_critics = values(chosen, slice(features.shape[1], None))
    least, which = found.min(0)
    each = [backward(((which == k) * -share).unsqueeze(1)) for k, backward in enumerate(to_critics)]
    # By the numbers before tanh; the derivative of log pi by them is 2 tanh.
    by_number = torch.stack(each).sum(0) * (1 - chosen.square()) + chosen * (2 * alpha * share)
    kept = policy.log_std == outputs[:, actions.inputs :]  # not clamped
    to_actor(torch.cat([by_number, (by_number * noise * policy.log_std.exp() - alpha * share) * kept], 1))
    entropy = -log_probs.mean()
    if temperature is not None:
        surplus = -log_probs - target_entropy(actions, learner.options.target_entropy, outputs, None)
        temperature.log_alpha.grad.add_(alpha * surplus.mean())
    critic_loss = 0.5 * (batch.weights * errors.square()).mean(1).sum()
    metrics = torch.stack([critic_loss, taken.mean(), (alpha * log_probs - least).mean(), entropy])
    return metrics, errors.abs().mean(0)
