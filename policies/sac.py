"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905) for one worker of a group; discrete: arXiv 1910.07207.

    value        V(s) = E [min Q'(s, a) - alpha log pi(a|s)], a of the policy; Q' follow the critics           eq. (3)
    critics      loss = 1/2 mean of (Q(s, a) - (r + gamma V(s')))^2, for each of two                           eq. (5)
    actor        loss = mean of E [alpha log pi(a|s) - min Q(s, a)]                                            eq. (7)
    temperature  loss = mean of alpha (H(pi(.|s)) - the entropy that is wanted)                                eq. (18)

Where actions are numbers, an expectation is one sample, made of noise so that it can be differentiated; where they are
choices, it is the exact sum over them. The two classes `ContinuousActions` and `DiscreteActions` are this difference.

How it is played, met and replayed is in `policies.common.off_policy`. The gradients of a step, of critics, actor and
temperature, are taken at the same weights and travel in one message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.common.adam import Adam
from policies.common.algorithm import Figures
from policies.common.off_policy import OffPolicy, OffPolicyOptions
from policies.common.options import (
    AUTO,
    Auto,
    Count,
    NonNegative,
    Positive,
    PositiveFraction,
    Sizes,
    check_unused,
    is_number,
    wrong,
)
from policies.common.replay import Transitions
from policies.common.target import Target
from policies.networks.box import SquashedGaussian, UnitBox
from policies.networks.critics import ActorAndCritics, Critics
from policies.networks.distributions import allow, normal, uniform_entropy
from policies.networks.heads import DiscreteHead

_OF_UNIFORM = 0.98  # of the greatest entropy: what arXiv 1910.07207 wants of choices


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about SAC.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    learning_rate: NonNegative = 3e-4  # step size of Adam, for actor, critics and temperature; 0 plays without learning
    buffer_size: Count = 1_000_000  # observations that the group's replay holds at most; the oldest go first
    batch_size: Count | Auto = AUTO  # transitions per worker in one gradient step; auto: 256 / workers, at least 64
    train_every: Count = 1  # ticks between two meetings of the group, at which it learns
    training_intensity: Positive | Auto = AUTO  # transitions replayed per one collected; auto: 256 / (group rows)^0.75
    tau: PositiveFraction = 0.005  # how far the target networks move to what is learnt; 1: they become a copy
    target_update_interval: Count = 1  # gradient steps between two moves of the target networks
    max_grad_norm: Positive | None = None  # longest gradient that is stepped on; null: any
    hidden_sizes: Sizes = (256, 256)  # layers of the actor, and of each critic
    ent_coef: NonNegative | Auto = "auto"  # the temperature alpha: a number, or auto: learnt, from 1
    target_entropy: float | Auto = "auto"  # in nats; auto: minus the numbers of an action, or 0.98 of uniform choice

    ALONE, FALLS = 256.0, 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "target_entropy", ent_coef=is_number)


def check_reachable(target_entropy: float | str, space: Space[Any]) -> None:
    """Refuses to want an entropy that no policy has: the temperature would grow, or fall, without end.

    Raises:
        ConfigError: the space is Discrete, and it is not from 0 to below that of uniform choice; or a Box, and it is
            not below that of uniform numbers in [-1, 1].
    """
    if target_entropy == "auto":
        return
    wanted = float(target_entropy)
    if isinstance(space, spaces.Discrete) and space.n == 1:
        reached, expected = False, "auto, as there is nothing to choose"
    elif isinstance(space, spaces.Discrete):
        most = math.log(space.n)
        reached, expected = 0 <= wanted < most, f"auto, or at least 0 and less than {most:.4g}, as uniform choice has"
    else:
        most = math.prod(space.shape or ()) * math.log(2)
        reached, expected = wanted < most, f"auto, or less than {most:.4g}, as uniform numbers from -1 to 1 have"
    if not reached:
        raise wrong("target_entropy", target_entropy, f"{expected}: the actions are {space}")


class ActorStep(NamedTuple):
    """What the actor's part of a gradient step has found; means over the minibatch."""

    loss: float
    entropy: float  # of the policy, in nats
    surplus: float  # how much more that is than what is wanted


class ContinuousActions:
    """A Box: a Gaussian that tanh squashes into the bounds.

    Attributes:
        shape, dtype, mask_size: of actions as learnt from.
        outputs: numbers that the actor gives.
        critic_inputs, critic_outputs: numbers of an action that the critics take, and values that they give.
    """

    def __init__(self, space: Space[Any], target_entropy: float | str) -> None:
        self._box = UnitBox(space)
        self.shape, self.dtype, self.mask_size = self._box.shape, self._box.dtype, 0
        self.outputs, self.critic_inputs, self.critic_outputs = 2 * self._box.outputs, self._box.outputs, 1
        self._wanted = -float(self._box.outputs) if target_entropy == "auto" else float(target_entropy)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A batch of actions as the vector environment takes them."""
        return self._box.to_env(actions)

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        """Actions of somebody who has learnt nothing."""
        return self._box.uniform(rows, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions of the policy with the actor's outputs [N, outputs]; generator None: the greedy ones."""
        policy = SquashedGaussian(outputs)
        return policy.mode() if generator is None else policy.sample(self._noise(outputs, generator))

    def to_critics(self, actions: Tensor) -> Tensor:
        """What the critics are told of actions."""
        return actions

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [k, N] of actions, in what the critics give, [k, N, critic_outputs]."""
        return values.squeeze(-1)

    def by_outputs(self, gradient: Tensor, actions: Tensor) -> Tensor:
        """The way back from `of_actions`: gradients [k, N] as those of what the critics give."""
        return gradient.unsqueeze(-1)

    def soft_values(
        self,
        outputs: Tensor,
        mask: Tensor | None,
        values_of: Callable[[Tensor | None], Tensor],
        alpha: float,
        generator: torch.Generator,
    ) -> Tensor:
        """V(s) [N] of the policy with these outputs; `values_of` gives Q [k, N, critic_outputs] for actions."""
        policy, noise = SquashedGaussian(outputs), self._noise(outputs, generator)
        least = values_of(policy.sample(noise)).squeeze(-1).amin(0)
        return least - alpha * policy.log_prob(noise)

    def actor_backward(
        self,
        network: SoftActorCritic,
        features: Tensor,
        values: Tensor,
        mask: Tensor | None,
        alpha: float,
        generator: torch.Generator,
    ) -> ActorStep:
        """Adds the gradient of the actor's loss to `grad` of its weights.

        Args:
            network: of the actor and the critics.
            features: [N, features] of the observations.
            values: what the critics have given there, for the actions that were taken if they take any.
            mask: bool [N, mask_size].
            alpha: the temperature.
            generator: for samples of actions.
        """
        outputs, to_actor = network.actor.traced(features)
        policy, noise = SquashedGaussian(outputs), self._noise(outputs, generator)
        values, to_actions = network.critics.probed(features, policy.sample(noise))  # [k, N, 1]
        least, which = values.min(0, keepdim=True)
        share = 1 / len(outputs)  # the loss is a mean
        by_action = to_actions(torch.zeros_like(values).scatter_(0, which, -share))  # of -min Q
        to_actor(policy.gradient(noise, by_action, alpha * share))
        entropy = -float(policy.log_prob(noise).mean())
        return ActorStep(-alpha * entropy - float(least.mean()), entropy, entropy - self._wanted)

    def _noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return normal((len(outputs), self._box.outputs), generator).to(outputs.device)


class DiscreteActions:
    """A Discrete space: a probability per choice. It answers what `ContinuousActions` does.

    Auto wants a part of the greatest entropy that the mask allows.
    """

    def __init__(self, space: spaces.Discrete, target_entropy: float | str) -> None:
        self._head = DiscreteHead(space)
        self.shape, self.dtype, self.mask_size = self._head.shape, self._head.dtype, self._head.mask_size
        self.outputs, self.critic_inputs, self.critic_outputs = self.mask_size, 0, self.mask_size
        self._target_entropy = target_entropy

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self._head.to_env(actions)

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.choose(torch.zeros(rows, self.outputs), mask, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = self._head.distribution(outputs, mask)
        if generator is None:
            return policy.mode()
        return policy.sample(self._head.noise(1, len(outputs), generator)[0].to(outputs.device))

    def to_critics(self, actions: Tensor) -> None:
        return None

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        return values.gather(2, actions.expand(len(values), -1).unsqueeze(-1)).squeeze(-1)

    def by_outputs(self, gradient: Tensor, actions: Tensor) -> Tensor:
        zeros = gradient.new_zeros(*gradient.shape, self.critic_outputs)
        return zeros.scatter_(2, actions.expand(len(gradient), -1).unsqueeze(-1), gradient.unsqueeze(-1))

    def soft_values(
        self,
        outputs: Tensor,
        mask: Tensor | None,
        values_of: Callable[[Tensor | None], Tensor],
        alpha: float,
        generator: torch.Generator,
    ) -> Tensor:
        log_probs = allow(outputs, mask).log_softmax(-1)
        return (log_probs.exp() * (values_of(None).amin(0) - alpha * log_probs)).sum(-1)

    def actor_backward(
        self,
        network: SoftActorCritic,
        features: Tensor,
        values: Tensor,
        mask: Tensor | None,
        alpha: float,
        generator: torch.Generator,
    ) -> ActorStep:
        outputs, to_actor = network.actor.traced(features)
        log_probs = allow(outputs, mask).log_softmax(-1)
        probs = log_probs.exp()  # of forbidden choices 0, as are their gradients
        costs = alpha * log_probs - values.amin(0)
        losses = (probs * costs).sum(-1, keepdim=True)
        to_actor(probs * (costs - losses) / len(outputs))
        entropies = -(probs * log_probs).sum(-1)
        surplus = float((entropies - self._wanted(outputs, mask)).mean())
        return ActorStep(float(losses.mean()), float(entropies.mean()), surplus)

    def _wanted(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The entropy that is wanted, [N]."""
        if self._target_entropy != "auto":
            return outputs.new_full((len(outputs),), float(self._target_entropy))
        return _OF_UNIFORM * uniform_entropy(outputs, mask)


def actions_of(space: Space[Any], target_entropy: float | str) -> ContinuousActions | DiscreteActions:
    """The kind of actions of a space.

    Raises:
        ConfigError: it is neither Discrete nor a Box of floats with bounds.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space, target_entropy)
    return ContinuousActions(space, target_entropy)


class Temperature(nn.Module):
    """alpha, by its logarithm; it begins at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))


class SoftActorCritic(ActorAndCritics):
    """All that is learnt; the temperature only where it is not fixed.

    Args:
        critics, outputs, layers: as of `ActorAndCritics`.
        temperature: or None.
    """

    def __init__(self, critics: Critics, outputs: int, *, temperature: Temperature | None, **layers: Any) -> None:
        super().__init__(critics, outputs, **layers)
        self.temperature = temperature


class SAC(OffPolicy):
    """One worker of a SAC policy.

    Args:
        env, group, ticks, options: as of `OffPolicy`; the actions are Discrete, or a Box with bounds.

    Raises:
        ConfigError: an option or a space that SAC cannot take.
    """

    Options = Options
    measured = ("critic_loss", "q_value", "actor_loss", "entropy")
    n_critics = 2
    network: SoftActorCritic

    # ------------------------------------------------------------------------------------- what is learnt, and plays

    def read_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space = observation_space
        self.actions = actions_of(action_space, self.options.target_entropy)
        check_reachable(self.options.target_entropy, action_space)
        self.action_shape, self.action_dtype = self.actions.shape, self.actions.dtype
        self.mask_size = self.actions.mask_size

    def build(self, generator: torch.Generator) -> SoftActorCritic:
        layers = {"hidden_sizes": self.options.hidden_sizes, "activation": self.options.activation}
        critics = Critics(
            self.observation_space,
            actions=self.actions.critic_inputs,
            outputs=self.actions.critic_outputs,
            count=self.n_critics,
            generator=generator,
            **layers,
        )
        temperature = Temperature() if self.options.ent_coef == "auto" else None
        return SoftActorCritic(critics, self.actions.outputs, temperature=temperature, generator=generator, **layers)

    def make_optimizers(self) -> dict[str, Adam]:
        optimizers = {"critics": self.adam(self.network.critics), "actor": self.adam(self.network.actor)}
        if self.network.temperature is not None:
            optimizers["temperature"] = self.adam(self.network.temperature)
        return optimizers

    def make_targets(self) -> dict[str, Target[Any]]:
        return {"critics": Target(self.network.critics, self.optimizers["critics"])}

    def act_randomly(self, rows: int, mask: Tensor | None) -> Tensor:
        return self.actions.uniform(rows, mask, self.generator)

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        return self.act(leaves, mask, self.generator)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        return self.actions.choose(self.network(leaves), mask, generator)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.actions.to_env(actions)

    def schedules(self) -> Figures:
        return {**super().schedules(), "ent_coef": self.alpha}

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        actions_of(space, target_entropy="auto")

    # --------------------------------------------------------------------------------------------------- the maths

    @property
    def alpha(self) -> float:
        """The temperature."""
        temperature = self.network.temperature
        return float(self.options.ent_coef) if temperature is None else float(temperature.log_alpha.detach().exp())

    @torch.no_grad()
    def gradients(self, batch: Transitions) -> tuple[Figures, Tensor]:
        """Adds the gradients of all losses to `grad` of the weights; what is measured, and the mean errors [N].

        All is differentiated by hand, with the ways back of `policies.networks.critics` and `policies.networks.mlp`.
        The tests compare that with torch's own derivative of the losses.
        """
        if batch.size == 0:
            return dict.fromkeys(self.measured, 0.0), torch.zeros(0)
        actions, alpha = self.actions, self.alpha
        targets = batch.rewards + batch.discounts * self.next_values(batch)
        features, values, to_critics = self.network.critics.traced(
            batch.observations, actions.to_critics(batch.actions)
        )
        taken = actions.of_actions(values, batch.actions)  # [k, N]
        errors = taken - targets
        weighted = errors * batch.weights
        to_critics(actions.by_outputs(weighted / batch.size, batch.actions))
        step = actions.actor_backward(self.network, features, values, batch.masks, alpha, self.generator)
        if self.network.temperature is not None:
            self.optimizers["temperature"].gradient[0] += alpha * step.surplus
        critic_loss = float((weighted * errors).mean(1).sum() / 2)
        measured = (critic_loss, float(taken.mean()), step.loss, step.entropy)
        return dict(zip(self.measured, measured, strict=True)), errors.abs().mean(0)

    def next_values(self, batch: Transitions) -> Tensor:
        """V [N] of the next observations, by the target critics."""
        network, critics = self.network, self.targets["critics"].module
        seen = network.critics.encoder(batch.next_observations)
        features = critics.encoder(batch.next_observations) if critics.encoder.learns else seen  # else it is the same
        outputs = network.actor(seen)
        values_of = partial(critics, features)
        return self.actions.soft_values(outputs, batch.next_masks, values_of, self.alpha, self.generator)
