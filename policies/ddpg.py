"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv 1509.02971) for one worker of a group.

    critic   y = r + gamma Q'(s', mu'(s')),   loss = mean of (y - Q(s, a))^2                        algorithm 1
    actor    loss = -mean of Q(s, mu(s)), differentiated through Q with respect to mu alone         eq. (6)
    targets  Q' and mu' follow Q and mu, by `tau` per gradient step

How it is played, met and replayed is in `policies.common.off_policy`. The gradients of a step, the critic's and the
actor's, are taken at the same weights and travel in one message; the paper moves the critic first. It also has batch
normalisation and weight decay, and lets actions join in the critic's second layer; those are left out, as in most of
what came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from policies.common.adam import Adam
from policies.common.algorithm import Average, Figures
from policies.common.off_policy import OffPolicy, OffPolicyOptions
from policies.common.options import (
    AUTO,
    Auto,
    Count,
    Fraction,
    Noise,
    NonNegative,
    Positive,
    PositiveFraction,
    Sizes,
    check_unused,
    wrong,
)
from policies.common.replay import Transitions
from policies.common.target import Target
from policies.networks.box import ActionNoise, UnitBox, noisy
from policies.networks.critics import ActorAndCritics, Critics
from policies.networks.distributions import normal

if TYPE_CHECKING:
    from arena.group.group import Group

_OF_CRITICS = ("critic_loss", "q_value")  # what every gradient step measures


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about DDPG.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    learning_rate: NonNegative = 1e-3  # step size of Adam, for the actor and for the critic; 0 plays without learning
    buffer_size: Count = 1_000_000  # observations that the group's replay holds at most; the oldest go first
    batch_size: Count | Auto = AUTO  # transitions per worker in one gradient step; auto: 256 / workers, at least 64
    train_every: Count = 1  # ticks between two meetings of the group, at which it learns
    training_intensity: Positive | Auto = AUTO  # transitions replayed per one collected; auto: 256 / (group rows)^0.75
    tau: PositiveFraction = 0.005  # how far the target networks move to what is learnt; 1: they become a copy
    target_update_interval: Count = 1  # gradient steps between two moves of the target networks
    max_grad_norm: Positive | None = None  # longest gradient that is stepped on; null: any
    hidden_sizes: Sizes = (256, 256)  # layers of the actor, and of the critic
    action_noise: Noise = "gaussian"  # gaussian, or correlated: an Ornstein-Uhlenbeck process, new in each episode
    noise_std: NonNegative = 0.1  # its standard deviation, in actions from -1 to 1
    noise_theta: Fraction = 0.15  # of the correlated noise: how much of itself it forgets per tick

    ALONE, FALLS = 256.0, 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_theta == 0:
            raise wrong("noise_theta", self.noise_theta, "more than 0: noise that forgets nothing never changes")
        check_unused(self, "noise_theta", action_noise="gaussian")
        check_unused(self, "action_noise", noise_std=0)


def noise_of(options: Options, *, rows: int, outputs: int, generator: torch.Generator) -> ActionNoise:
    """The noise with which actions [rows, outputs] explore."""
    theta = options.noise_theta if options.action_noise == "correlated" else 1.0
    return ActionNoise(rows, outputs, std=options.noise_std, theta=theta, generator=generator)


class DDPG(OffPolicy):
    """One worker of a DDPG policy.

    Args:
        env, group, ticks, options: as of `OffPolicy`; the actions are a Box with bounds.

    Raises:
        ConfigError: an option or a space that DDPG cannot take.
    """

    Options = Options
    measured = (*_OF_CRITICS, "actor_loss")
    n_critics = 1
    network: ActorAndCritics

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.noise = noise_of(self.options, rows=env.num_envs, outputs=self.box.outputs, generator=self.generator)

    # ------------------------------------------------------------------------------------- what is learnt, and plays

    def read_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space = observation_space
        self.box = UnitBox(action_space)
        self.action_shape, self.action_dtype, self.mask_size = self.box.shape, self.box.dtype, 0

    def build(self, generator: torch.Generator) -> ActorAndCritics:
        layers = {"hidden_sizes": self.options.hidden_sizes, "activation": self.options.activation}
        numbers = self.box.outputs
        critics = Critics(
            self.observation_space, actions=numbers, outputs=1, count=self.n_critics, generator=generator, **layers
        )
        return ActorAndCritics(critics, numbers, generator=generator, **layers)

    def make_optimizers(self) -> dict[str, Adam]:
        return {"critics": self.adam(self.network.critics), "actor": self.adam(self.network.actor)}

    def make_targets(self) -> dict[str, Target[Any]]:
        followed = {"critics": self.network.critics, "actor": self.network.actor}
        return {name: Target(module, self.optimizers[name]) for name, module in followed.items()}

    def act_randomly(self, rows: int, mask: Tensor | None) -> Tensor:
        return self.box.uniform(rows, self.generator)

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        actions: Tensor = self.network(leaves).tanh()
        return noisy(actions, self.noise.draw())

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """The actor's actions, greedy; else with white noise, as nobody says here where episodes begin."""
        actions: Tensor = self.network(leaves).tanh()
        if generator is None:
            return actions
        return noisy(actions, normal(actions.shape, generator).mul_(self.options.noise_std))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.box.to_env(actions)

    def began(self, rows: NDArray[np.bool_]) -> None:
        self.noise.restart(rows)

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        UnitBox(space)

    # --------------------------------------------------------------------------------------------------- the maths

    @property
    def actor_is_due(self) -> bool:
        """Whether the next gradient step moves the actor; the same at all workers."""
        return True

    def gradient_step(self, batch: Transitions, average: Average) -> tuple[Figures, Tensor]:
        """One step of the critics, and of the actor when it is due, on the group's mean gradients."""
        due = self.actor_is_due
        optimizers = [self.optimizers[name] for name in (("critics", "actor") if due else ("critics",))]
        for optimizer in optimizers:
            optimizer.zero_grad()
        figures, errors = self.losses_backward(batch, actor=due)
        figures = average([optimizer.vector for optimizer in optimizers], weight=float(batch.size), **figures)
        self.descend(figures, *optimizers)
        return figures, errors

    @torch.no_grad()
    def losses_backward(self, batch: Transitions, *, actor: bool) -> tuple[Figures, Tensor]:
        """Adds the gradients of both losses to `grad` of the weights; what is measured, and the mean errors [N].

        All is differentiated by hand, with the ways back of `policies.networks.critics` and `policies.networks.mlp`.
        The tests compare that with torch's own derivative of the losses.
        """
        if batch.size == 0:  # the others wait for figures of the same names
            return dict.fromkeys(self.measured if actor else _OF_CRITICS, 0.0), torch.zeros(0)
        features, values, to_critics = self.network.critics.traced(batch.observations, batch.actions)
        errors = values.squeeze(-1) - self.targets_of(batch)  # [k, N]
        weighted = errors * batch.weights
        to_critics(weighted.mul(2 / batch.size).unsqueeze(-1))
        found = {"critic_loss": float((weighted * errors).mean(1).sum()), "q_value": float(values.mean())}
        if actor:
            found["actor_loss"] = self._actor_backward(features)
        return found, errors.abs().mean(0)

    def targets_of(self, batch: Transitions) -> Tensor:
        """y [N], by the target networks."""
        critics, actor = self.targets["critics"].module, self.targets["actor"].module
        features = critics.encoder(batch.next_observations)
        actions = self.smoothed(actor(features).tanh())
        least: Tensor = critics(features, actions).squeeze(-1).amin(0)
        return batch.rewards + batch.discounts * least

    def smoothed(self, actions: Tensor) -> Tensor:
        """The next actions [N, d] that targets are made of."""
        return actions

    def _actor_backward(self, features: Tensor) -> float:
        outputs, to_actor = self.network.actor.traced(features)
        actions = outputs.tanh()
        values, to_actions = self.network.critics.probed(features, actions, first=True)
        by_action = to_actions(torch.full_like(values, -1 / len(values[0])))
        to_actor(by_action * (1 - actions.square()))
        return -float(values.mean())
