"""Actions as functions of an actor's outputs and of noise, so that a critic's gradient reaches the actor.

    outputs, noise --sample--> inputs of a critic, differentiable by the outputs

There is a class for each kind of actions. Numbers of a Box are learned in [-1, 1], and `to_env` brings them between the
game's bounds. Choices are relaxed by the straight-through Gumbel-softmax (Jang et al. 2017, arXiv 1611.01144),

    y_i = exp((z_i + g_i) / tau) / sum_j exp((z_j + g_j) / tau),   g: standard Gumbel noise               eq. (2)

Critics and the game are given the one-hot vector of the largest y, which follows softmax(z); the gradient is that of y
itself (section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from arena.errors import ConfigError
from arena.game.units import UnitActions
from policies.common.columns import RaggedTensor
from policies.common.options import wrong
from policies.networks.heads import Decisions, DiscreteHead, UnitHead, allow, gumbel, normal, uniform_entropy

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # the logarithm of a deviation is clamped to them
_LOG_2 = math.log(2)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_OF_UNIFORM_IN_TEAMS = 0.3  # of the greatest entropy; with team-mates that act nearly at random only safe actions pay
_OF_UNIFORM = 0.98  # the target of arXiv 1910.07207 for choices


class UnitBox:
    """Actions in [-1, 1]; bounds, shape and dtype of the space are only for the game. Attributes: as of `ActionHead`.

    Raises:
        ConfigError: the space is no Box of floats, has no numbers, or a number without bounds.
    """

    def __init__(self, space: Space[Any]) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            if isinstance(space, spaces.Discrete):
                remedy = "dqn, ddpg, sac, ppo and a2c take such actions"
            elif isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)):
                remedy = "ppo and a2c take such actions"
            else:
                remedy = "wrap the environment so that its actions are one"
            raise ConfigError(f"the action space {space} is no Box of floats; {remedy}")
        if not np.isfinite([space.low, space.high]).all():
            raise ConfigError(
                f"actions need finite bounds, and {space} has none; give the game's own with "
                "gymnasium.wrappers.RescaleAction, or learn with ppo"
            )
        if np.prod(space.shape) == 0:
            raise ConfigError(f"the action space {space} holds no number; there is nothing to choose")
        self.outputs = int(np.prod(space.shape))
        self.shape: tuple[int, ...]
        self.shape, self.dtype, self.mask_size = (self.outputs,), torch.float32, 0
        self._low, self._high = space.low, space.high
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle, self._reach = low / 2 + high / 2, high / 2 - low / 2  # the sum of both could be infinite

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A batch of actions [N, d] as the vector environment takes them: [N, *shape], -1 low and 1 high."""
        shaped = actions.reshape(-1, *self._low.shape)
        stretched = (self._middle + self._reach * shaped).astype(self._low.dtype)
        return np.clip(stretched, self._low, self._high)  # type: ignore[no-any-return]  # rounding may have passed them

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        """Actions [N, *shape] of the environment as learned from, [N, d]; numbers out of bounds are clipped."""
        reach = np.where(self._reach > 0, self._reach, 1.0)
        unit = np.clip((np.asarray(actions, np.float64) - self._middle) / reach, -1.0, 1.0)
        return torch.from_numpy(unit.reshape(-1, *self.shape).astype(np.float32))

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.empty(rows, *self.shape).uniform_(-1, 1, generator=generator)


class SquashedGaussian:
    """Independent normal numbers, squashed by tanh (arXiv 1812.05905, appendix C); actions are [N, d] in (-1, 1).

    The outputs [N, 2 d] are the means before tanh, then the logarithms of the deviations, which are kept between
    `LOG_STD_MIN` and `LOG_STD_MAX`. The methods take the noise that an action was made of, not the action: tanh cannot
    be inverted where it has rounded to 1. Densities are those in [-1, 1], whatever the game's bounds.
    """

    def __init__(self, outputs: Tensor) -> None:
        self.mean, log_std = outputs.chunk(2, -1)
        self.log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def mode(self) -> Tensor:
        """The actions [N, d] of the means, which is where a narrow distribution has its mode."""
        return self.mean.tanh()

    def sample(self, noise: Tensor) -> Tensor:
        """Actions [N, d] of standard normal noise [N, d]."""
        return self._before(noise).tanh()

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log-densities [N] of `sample(noise)`.

        By equation (26); log(1 - tanh(u)^2) is 2 (log 2 - u - softplus(-2 u)), which is exact for every u.
        """
        before = self._before(noise)
        squeezed = 2 * (_LOG_2 - before - functional.softplus(-2 * before))
        return (-0.5 * noise.square() - self.log_std - _LOG_SQRT_2PI - squeezed).sum(-1)

    def _before(self, noise: Tensor) -> Tensor:
        return self.mean + noise * self.log_std.exp()


def noisy(actions: Tensor, noise: Tensor) -> Tensor:
    """Actions [N, d] with noise [N, d], in [-1, 1]."""
    return (actions + noise.to(actions.device)).clamp_(-1, 1)


class ActionNoise:
    """Correlated noise: an Ornstein-Uhlenbeck process per number, observed once per tick, in its steady state.

    Its deviation is the same on every tick, and values k ticks apart within an episode have the correlation
    (1 - theta)^k. With theta 1 it is white, the noise of the papers after arXiv 1509.02971. The process of that paper
    begins at 0 in each episode; this one begins in its stationary distribution, so that the first ticks get as much
    noise.

    `theta`, above 0 and at most 1, is how much of itself the process forgets per tick.
    """

    def __init__(self, rows: int, outputs: int, *, theta: float, generator: torch.Generator) -> None:
        self._generator = generator
        self._kept = 1 - theta
        self._keep = torch.zeros(rows, 1)  # how much each row keeps of its last value: nothing in its first tick
        self._state = torch.zeros(rows, outputs)

    def draw(self, std: float) -> Tensor:
        """The noise [B, d] of the next tick, of this standard deviation, in actions from -1 to 1."""
        fresh = normal(self._state.shape, self._generator)
        self._state = self._keep * self._state + (1 - self._keep.square()).sqrt() * fresh
        self._keep.fill_(self._kept)
        return std * self._state

    def restart(self, rows: NDArray[np.bool_]) -> None:
        """Starts a new process in rows, bool [B], whose episode has ended."""
        self._keep[torch.from_numpy(rows)] = 0.0


class TanhActions(UnitBox):
    """A Box with bounds, without noise; actions are [N, d] in [-1, 1].

    Attributes:
        outputs: numbers that the actor gives.
        inputs: numbers of an action that critics take.
    """

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space)
        self.inputs = self.outputs

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions [N, *shape] for outputs [N, outputs]; generator None: the greedy ones."""
        return outputs.tanh()

    def to_critics(self, actions: Tensor) -> Tensor:
        """The critics' inputs [..., inputs] for actions [..., *shape]."""
        return actions

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Actions [N, inputs] as critics take them, for outputs [N, outputs], by which they can be differentiated.

        And the actor's entropies [N] there, in nats: exact, or an estimate; 0 of an actor without noise.
        """
        return outputs.tanh(), outputs.new_zeros(len(outputs))

    def default_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The entropy [N], in nats, that soft actors aim at by default."""
        return outputs.new_zeros(len(outputs))


class SquashedGaussianActions(TanhActions):
    """A Box with bounds, and a policy of means and deviations; its entropy is estimated from the sample itself."""

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space)
        self.outputs = 2 * self.inputs

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = SquashedGaussian(outputs)
        return policy.mode() if generator is None else policy.sample(self.noise(outputs, generator))

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        policy, noise = SquashedGaussian(outputs), self.noise(outputs, generator)
        return policy.sample(noise), -policy.log_prob(noise)

    def default_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return outputs.new_full((len(outputs),), -float(self.inputs))

    def noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal noise [N, inputs] for outputs [N, outputs], on their device."""
        return normal((len(outputs), self.inputs), generator).to(outputs.device)


class GumbelSoftmaxActions(DiscreteHead):
    """A Discrete space; actions are indices [N] from 0. It has the methods of `TanhActions`.

    The lower the temperature tau, the nearer y is to what is played, and the more its gradient varies.
    """

    def __init__(self, space: spaces.Discrete, *, temperature: float) -> None:
        super().__init__(space)
        self._temperature, self.inputs = temperature, self.mask_size

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        logits = allow(outputs, mask)
        return (logits if generator is None else self._disturbed(logits, generator)).argmax(-1)

    def to_critics(self, actions: Tensor) -> Tensor:
        return functional.one_hot(actions, self.inputs).float()

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        logits = allow(outputs, mask)
        disturbed = self._disturbed(logits, generator)
        relaxed = (disturbed / self._temperature).softmax(-1)  # y
        log_probs = logits.log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        chosen = self.to_critics(disturbed.argmax(-1))
        return chosen + (relaxed - relaxed.detach()), entropies  # the value of the one, the gradient of y

    def default_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return _OF_UNIFORM_IN_TEAMS * uniform_entropy(outputs, mask)

    def _disturbed(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        return logits + gumbel(logits.shape, generator).to(logits.device)


Actions = TanhActions | GumbelSoftmaxActions

# -------------------------------------------------------------------------------------------------------- soft values

Critic = Callable[[Tensor | None], Tensor]
"""Q [k, N, values] of actions as the critics take them, see `SoftNumbers.to_critics`."""


class SoftNumbers(SquashedGaussianActions):
    """A Box, whose critics value one action, Q(s, a)."""

    values = 1  # that a critic gives

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [k, N] of actions, in the critics' values [k, N, values]."""
        return values.squeeze(-1)

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """V(s) = E [min Q(s, a) - alpha log pi(a|s)] [N], a of the policy with these outputs: equation (3) of SAC.

        And the policy's entropies [N] there, in nats; of numbers an estimate.
        """
        policy, noise = SquashedGaussian(outputs), self.noise(outputs, generator)
        least = critics(policy.sample(noise)).squeeze(-1).min(0).values
        log_probs = policy.log_prob(noise)
        return least - alpha * log_probs, -log_probs


class SoftChoices(DiscreteHead):
    """A Discrete space, with a probability per choice; critics value all choices. Methods as of `SoftNumbers`."""

    inputs = 0

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space)
        self.values = self.mask_size

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = self.distribution(outputs, mask)
        if generator is None:
            return policy.mode()
        return policy.sample(self.noise(1, len(outputs), generator)[0].to(outputs.device))

    def to_critics(self, actions: Tensor) -> None:
        return None

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        return values.gather(2, actions.expand(len(values), -1).unsqueeze(-1)).squeeze(-1)

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        log_probs = allow(outputs, mask).log_softmax(-1)
        probs = log_probs.exp()
        values = (probs * (critics(None).detach().amin(0) - alpha * log_probs)).sum(-1)
        return values, -(probs * log_probs).sum(-1)

    def default_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return _OF_UNIFORM * uniform_entropy(outputs, mask)


class SoftDecisions(UnitHead):
    """Decisions of units, each with a probability per choice. Methods as of `SoftNumbers`; outputs are `Decisions`.

    Q(s, a) = V(s) + the sum over decisions d of A_d(s, a_d): its mean is a sum of the decisions' means. The lesser of
    two critics is that of these means, as joint choices are not enumerated.
    """

    def choose(self, outputs: Decisions, mask: Tensor | None, generator: torch.Generator | None) -> RaggedTensor:
        if generator is None:
            return outputs.mode()
        return outputs.sample(self.noise(1, len(outputs.lengths), generator)[0])

    def to_critics(self, actions: RaggedTensor) -> None:
        return None

    def of_actions(self, values: Sequence[tuple[Decisions, Tensor]], actions: RaggedTensor) -> Tensor:
        return torch.stack([value + actions.sums(decisions.logits_of(actions)) for decisions, value in values])

    def soft_values(
        self, outputs: Decisions, mask: Tensor | None, critics: Any, alpha: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        means = [value.detach() + outputs.sums(outputs.mean_of(decisions)) for decisions, value in critics(None)]
        entropies = outputs.sums(outputs.entropy())
        return torch.stack(means).amin(0) + alpha * entropies, entropies

    def default_entropy(self, outputs: Decisions, mask: Tensor | None) -> Tensor:
        return _OF_UNIFORM * outputs.sums(outputs.uniform().entropy())


def soft_actions(space: Space[Any]) -> SoftNumbers | SoftChoices | SoftDecisions:
    """The kind of actions of a space; refuses what is neither Discrete, of units, nor a Box of floats with bounds."""
    if isinstance(space, UnitActions):
        return SoftDecisions(space)
    return SoftChoices(space) if isinstance(space, spaces.Discrete) else SoftNumbers(space)


def target_entropy(actions: Any, option: float | str, outputs: Tensor, mask: Tensor | None) -> Tensor:
    """The entropy [N] that the temperature steers to, by the option `target_entropy`."""
    if option == "auto":
        return actions.default_entropy(outputs, mask)  # type: ignore[no-any-return]
    return outputs.new_full((len(outputs),), float(option))


def check_reachable(target_entropy: float | str, space: Space[Any]) -> None:
    """Refuses a target entropy that no policy can have: the temperature would grow, or fall, without end."""
    if target_entropy == "auto":
        return
    target = float(target_entropy)
    if isinstance(space, UnitActions):
        reached, expected = False, "auto, as the number of decisions varies"
    elif isinstance(space, spaces.Discrete) and space.n == 1:
        reached, expected = False, "auto, as there is nothing to choose"
    elif isinstance(space, spaces.Discrete):
        most = math.log(space.n)
        reached, expected = 0 <= target < most, f"auto, or at least 0 and less than {most:.4g}, as uniform choice has"
    else:
        most = math.prod(space.shape or ()) * math.log(2)
        reached, expected = target < most, f"auto, or less than {most:.4g}, as uniform numbers from -1 to 1 have"
    if not reached:
        raise wrong("target_entropy", target_entropy, f"{expected}: the actions are {space}")
