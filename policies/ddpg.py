"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv 1509.02971) for one worker of a group.

    critic   y = r + gamma Q'(s', mu'(s')),   loss = mean of (y - Q(s, a))^2                        algorithm 1
    actor    loss = -mean of Q(s, mu(s)), differentiated through Q with respect to mu alone         eq. (6)
    targets  Q' and mu' follow Q and mu, by `tau` per gradient step

Where actions are choices, mu gives their logits, as in `policies.maddpg` of one entity: it explores by sampling, and is
differentiated by the straight-through Gumbel-softmax of `policies.networks.reparameterized`.

Playing, replay and the exchange in the group are in `policies.common.off_policy`. The gradients of critic and actor are
computed at the same weights, and the group averages them in one exchange; the paper moves the critic first. Its batch
normalization and weight decay, and actions as inputs of the critic's second layer, are left out, as in most later work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.spaces import Discrete, Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.adam import Optimizer
from policies.common.off_policy import OffPolicy, OffPolicyOptions
from policies.common.options import (
    Fraction,
    Noise,
    NonNegative,
    Positive,
    PositiveFraction,
    Scheduled,
    check_idle,
    check_unused,
    wrong,
)
from policies.common.replay import Transitions
from policies.networks.critics import ActorAndCritics, Critics, actor_features, frozen, make_actor
from policies.networks.heads import normal
from policies.networks.reparameterized import ActionNoise, GumbelSoftmaxActions, TanhActions, noisy

NOISE = ("action_noise", "noise_std", "noise_theta")
"""The options of exploration with numbers."""


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about DDPG."""

    tau: PositiveFraction = 0.005  # how far the target networks move to what is learned; 1: they become a copy
    action_noise: Noise = "gaussian"  # gaussian, or correlated: an Ornstein-Uhlenbeck process, new in each episode
    noise_std: Scheduled = 0.1  # its standard deviation, or a schedule, in actions from -1 to 1
    noise_theta: Fraction = 0.15  # of the correlated noise: how much of itself it forgets per tick
    gumbel_temperature: Positive = 1.0  # of choices: lower values give gradients with less bias and more variance
    output_penalty: NonNegative = 1e-3  # of choices: weight of the actor's squared outputs in its loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_theta == 0:
            raise wrong("noise_theta", self.noise_theta, "more than 0: noise that forgets nothing never changes")
        check_unused(self, "noise_theta", action_noise="gaussian")
        check_unused(self, "action_noise", noise_std=0)


def noise_of(options: Options, rows: int, outputs: int, generator: torch.Generator) -> ActionNoise:
    """The noise with which actions [rows, outputs] explore."""
    theta = options.noise_theta if options.action_noise == "correlated" else 1.0
    return ActionNoise(rows, outputs, theta=theta, generator=generator)


class NoisyActor(OffPolicy):
    """Explores with `noise` where actions are numbers; where they are choices there is none, and they are sampled."""

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        if self.noise is None:
            return self.act(leaves, mask, self.generator)
        return noisy(self.act(leaves, mask, None), self.noise.draw(self.options.noise_std))

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """The actor's actions; if not greedy, sampled choices, or numbers with white noise: here it is not known where
        episodes begin.
        """
        actions = super().act(leaves, mask, generator)
        if generator is None or self.noise is None:
            return actions
        return noisy(actions, normal(actions.shape, generator).mul_(self.options.noise_std))


class DDPG(NoisyActor):
    """One worker of a DDPG policy; the actions are Discrete, or a Box with bounds."""

    Options = Options
    export_as = {"box": "deterministic"}
    n_critics = 1
    actions: TanhActions | GumbelSoftmaxActions

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        o, space, generator = self.options, env.single_action_space, torch.Generator().manual_seed(group.shared_seed)
        if isinstance(space, Discrete):
            check_idle(o, *NOISE, where=f"the actions are {space}, whose choices are drawn")
            self.actions = GumbelSoftmaxActions(space, temperature=o.gumbel_temperature)
        else:
            check_idle(o, "gumbel_temperature", "output_penalty", where=f"the actions are {space}")
            self.actions = TanhActions(space)
        outputs, layers = self.actions.outputs, self.layers(generator)
        encoder = self.make_encoder(generator)
        critics = Critics(encoder, actions=self.actions.inputs, outputs=1, count=self.n_critics, **layers)
        own = self.make_actor_encoder(encoder, generator)
        self.network = ActorAndCritics(critics, make_actor(critics.features, outputs, own, **layers)).to(self.device)
        self.set_up(dict(self.network.named_children()), {"critics": "critics", "actor": "actor"})
        if isinstance(self.actions, TanhActions):
            self.noise = noise_of(o, env.num_envs, outputs, self.generator)

    @property
    def actor_is_due(self) -> bool:
        """Whether the next gradient step moves the actor; the same at all workers."""
        return True

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the step
        return ("critic_loss", "q_value", *(("actor_loss",) if self.actor_is_due else ()))

    @property
    def due_optimizers(self) -> list[Optimizer]:
        return [self.optimizers[name] for name in (("critics", "actor") if self.actor_is_due else ("critics",))]

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses, the means of the metrics, and the mean errors of the critics [N]."""
        critics = self.network.critics
        with torch.no_grad():
            targets = self.targets_of(batch)
        features = batch.features(critics.encoder)
        values = critics(features, self.actions.to_critics(batch.actions)).squeeze(-1)  # [k, N]
        errors = values - targets
        critic_loss = (batch.weights * errors.square()).mean(1).sum()
        losses, metrics = [critic_loss], [critic_loss, values.mean()]
        if self.actor_is_due:
            detached = features.detach()  # the critics' loss alone trains the encoder
            outputs = self.network.actor(actor_features(self.network.actor, batch.features, detached))
            with frozen(critics):
                actions, _ = self.actions.sample(outputs, batch.masks, self.generator)
                losses.append(-critics(detached, actions, 1)[0].mean())
            metrics.append(losses[-1])
            if self.noise is None:
                losses.append(self.options.output_penalty * outputs.square().mean())
        return torch.stack(losses).sum(), torch.stack(metrics).detach(), errors.detach().abs().mean(0)

    @torch.no_grad()
    def targets_of(self, batch: Transitions) -> Tensor:
        """y [N], by the target networks."""
        critics, actor = self.targets["critics"].module, self.targets["actor"].module
        features = batch.next_features(critics.encoder)
        outputs = actor(actor_features(actor, batch.next_features, features))
        actions = self.smoothed(self.actions.sample(outputs, batch.next_masks, self.generator)[0])
        least: Tensor = critics(features, actions).squeeze(-1).amin(0)
        return batch.rewards + batch.discounts * least

    def smoothed(self, actions: Tensor) -> Tensor:
        """The next actions [N, d] that targets are made of."""
        return actions

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        if not isinstance(space, Discrete):
            TanhActions(space)
