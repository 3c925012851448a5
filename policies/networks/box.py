"""Box actions between fixed bounds, as algorithms with action values learn them: numbers in [-1, 1].

    outputs of the actor --tanh--> actions as learned from [N, d] in [-1, 1] --to_env--> the game's own, in its bounds

This module holds the conversion to and from the bounds, the Gaussian that tanh squashes, and noise for actors without
randomness of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from arena.errors import ConfigError
from policies.networks.distributions import normal

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # the logarithm of a deviation is clamped to them

_LOG_2 = math.log(2)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class UnitBox:
    """Actions in [-1, 1]; bounds, shape and dtype of the space are only for the game.

    Attributes:
        outputs: how many numbers the actor gives; here those of an action, `d`.
        shape: of one action as learned from, (d,).
        dtype: of actions as learned from.
        mask_size: 0, as a Box has no action masks.

    Raises:
        ConfigError: the space is no Box of floats, has no numbers, or a number without bounds.
    """

    def __init__(self, space: Space[Any]) -> None:
        _check_bounded(space)
        assert isinstance(space, spaces.Box)
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
        bounded: NDArray[Any] = np.clip(stretched, self._low, self._high)  # rounding may have passed them
        return bounded

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        """Actions [N, *shape] of the environment as learned from, [N, d]; numbers out of bounds are clipped."""
        reach = np.where(self._reach > 0, self._reach, 1.0)
        unit = np.clip((np.asarray(actions, np.float64) - self._middle) / reach, -1.0, 1.0)
        return torch.from_numpy(unit.reshape(-1, *self.shape).astype(np.float32))

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        """Uniformly random actions [rows, d]."""
        return torch.empty(rows, *self.shape).uniform_(-1, 1, generator=generator)


def _check_bounded(space: Space[Any]) -> None:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(f"the action space {space} is no Box of floats; {_instead(space)}")
    if not np.isfinite([space.low, space.high]).all():
        raise ConfigError(
            f"actions need finite bounds, and {space} has none; give the game's own with "
            "gymnasium.wrappers.RescaleAction, or learn with ppo"
        )
    if np.prod(space.shape) == 0:
        raise ConfigError(f"the action space {space} holds no number; there is nothing to choose")


def _instead(space: Space[Any]) -> str:
    """What to do about actions that are no numbers between bounds."""
    if isinstance(space, spaces.Discrete):
        return "dqn, sac, ppo and a2c take such actions"
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return "ppo and a2c take such actions"
    return "wrap the environment so that its actions are one"


class SquashedGaussian:
    """Independent normal numbers, squashed by tanh (arXiv 1812.05905, appendix C); actions are [N, d] in (-1, 1).

    The methods take the noise that an action was made of, not the action: tanh cannot be inverted where it has rounded
    to 1. Densities are those in [-1, 1], whatever the game's bounds.

    Args:
        outputs: [N, 2 d], the means before tanh, then the logarithms of the deviations, which are kept between
            `LOG_STD_MIN` and `LOG_STD_MAX`.
    """

    def __init__(self, outputs: Tensor) -> None:
        self.mean, self._free_log_std = outputs.chunk(2, -1)
        self.log_std = self._free_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

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

    Args:
        rows: `B`.
        outputs: numbers per action, `d`.
        std: standard deviation, in actions from -1 to 1.
        theta: how much of itself the process forgets per tick, above 0, at most 1.
        generator: where it comes from.
    """

    def __init__(self, rows: int, outputs: int, *, std: float, theta: float, generator: torch.Generator) -> None:
        self.std, self._generator = std, generator
        self._kept = 1 - theta
        self._keep = torch.zeros(rows, 1)  # how much each row keeps of its last value: nothing in its first tick
        self._state = torch.zeros(rows, outputs)

    def draw(self) -> Tensor:
        """The noise [B, d] of the next tick."""
        fresh = normal(self._state.shape, self._generator)
        self._state = self._keep * self._state + (1 - self._keep.square()).sqrt() * fresh
        self._keep.fill_(self._kept)
        return self.std * self._state

    def restart(self, rows: NDArray[np.bool_]) -> None:
        """Begins anew in rows, bool [B], whose episode has ended."""
        self._keep[torch.from_numpy(rows)] = 0.0
