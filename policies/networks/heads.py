"""Heads: how many outputs a space of actions needs, their distribution, and the conversion to the game's actions.

    outputs of the actor [N, outputs] --distribution--> actions as learned from [N, *shape] --to_env--> the game's own

Actions as learned from are indices from 0 (Discrete, MultiDiscrete), 0. and 1. (MultiBinary), or unbounded numbers
(Box), which are 0 in the middle between two bounds and -1 and 1 at them: what the space adds, `start`, bounds, shape
and dtype, is only for the game.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from arena.game.ragged import Ragged
from arena.game.spaces import mask_size
from arena.game.units import UnitActions
from policies.common.columns import RaggedTensor
from policies.networks.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    allow,
    gumbel,
    logistic,
    normal,
)
from policies.networks.units.decisions import Decisions, Offered


class ActionHead(nn.Module, ABC):
    """What an actor's outputs mean in one space of actions.

    Attributes:
        outputs: how many numbers the actor gives.
        shape: shape of one action as learned from.
        dtype: dtype of actions as learned from.
        mask_size: length of an action mask; 0 where the space takes none.
        decides: whether an action is a ragged row of decisions, see `UnitHead`.
    """

    decides = False
    outputs: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    mask_size: int

    @abstractmethod
    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        """The randomness of `ticks` samples of `rows` rows, [ticks, rows, outputs]."""

    @abstractmethod
    def distribution(self, outputs: Any, mask: Tensor | None) -> Any:
        """The distribution that the actor's outputs [N, outputs] stand for; mask bool [N, mask_size]."""

    @abstractmethod
    def to_env(self, actions: Any) -> Any:
        """A batch of actions as the vector environment takes them."""

    @abstractmethod
    def from_env(self, actions: Any) -> Any:
        """The inverse of `to_env`: a batch of the environment's actions as learned from, [N, *shape]."""

    def env_log_prob(self, policy: Any, actions: Any) -> Tensor:
        """Log-probability [N] with which the environment gets these actions, [N, *shape] by `from_env`.

        It differs from that of the actions as learned from where `to_env` maps several of them to one.
        """
        found: Tensor = policy.log_prob(actions)
        return found


class DiscreteHead(ActionHead):
    """One choice; `start` is only for the game."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.outputs = self.mask_size = mask_size(space)
        self.shape, self.dtype = (), torch.int64
        self._start, self._env_dtype = space.start, space.dtype

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return gumbel((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return Categorical(allow(outputs, mask))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return (actions + self._start).astype(self._env_dtype, copy=False)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy(actions.astype(np.int64) - int(self._start))


class MultiDiscreteHead(ActionHead):
    """Several choices; the shape of `nvec` and `start` are only for the game."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        self.outputs = self.mask_size = mask_size(space)
        self.shape, self.dtype = (int(space.nvec.size),), torch.int64
        self._sizes = space.nvec.ravel().tolist()
        self._start, self._env_dtype = space.start, space.dtype

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return gumbel((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return MultiCategorical(allow(outputs, mask), self._sizes)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        shaped = actions.reshape(-1, *self._start.shape) + self._start
        return shaped.astype(self._env_dtype, copy=False)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy((actions.astype(np.int64) - self._start).reshape(len(actions), -1))


class MultiBinaryHead(ActionHead):
    """Flags; their shape is only for the game."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        super().__init__()
        self.outputs, self.mask_size = int(np.prod(space.shape)), 0
        self.shape, self.dtype = (self.outputs,), torch.float32
        self._env_shape, self._env_dtype = space.shape, space.dtype

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return logistic((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return Bernoulli(outputs)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions.reshape(-1, *self._env_shape).astype(self._env_dtype)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy(actions.reshape(len(actions), -1).astype(np.float32))


class BoxHead(ActionHead):
    """Unbounded Gaussian, which learns from its own actions; the game gets them scaled and clipped, see `env_log_prob`.

    A number with two bounds is learned as (number - middle) / half_width, so that a new policy, with mean 0 and
    deviation exp(log_std_init), explores all of it, whatever its unit. One without two bounds stays as it is; the
    largest number of a dtype is no bound.
    """

    def __init__(self, space: spaces.Box, log_std_init: float) -> None:
        super().__init__()
        self.outputs, self.mask_size = int(np.prod(space.shape)), 0
        self.shape, self.dtype = (self.outputs,), torch.float32
        self.log_std = nn.Parameter(torch.full((self.outputs,), log_std_init))
        self._low, self._high = space.low, space.high
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        dtypes: tuple[Any, ...] = (space.dtype, np.float32)
        largest = min(float(np.finfo(dtype).max) for dtype in dtypes)
        bounded = (np.abs(low) < largest) & (np.abs(high) < largest)
        with np.errstate(invalid="ignore"):
            self._middle = np.where(bounded, low / 2 + high / 2, 0.0)
            half_width = np.where(bounded, high / 2 - low / 2, 1.0)
        self.half_width = np.where(half_width > 0, half_width, 1.0)  # [*shape]; a single number is no interval
        if (self._middle != 0).any() or (self.half_width != 1).any():
            # Weights mean nothing without the scale that they were learned with, so it is stored beside them.
            self.register_buffer("scale", torch.from_numpy(np.stack([self._middle.ravel(), self.half_width.ravel()])))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        """As of torch.

        Raises:
            ConfigError: the weights were learned between other bounds.
        """
        stored, own = state_dict.get(f"{prefix}scale"), getattr(self, "scale", None)
        if stored is not None and own is not None and not torch.equal(stored.cpu(), own.cpu()):
            (middle, reach), (now, width) = stored.tolist(), own.tolist()
            raise ConfigError(
                f"the stored policy acts in a Box with the middle {middle} and the half width {reach}, here they are "
                f"{now} and {width}; take the bounds of the action space that it was learned with"
            )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def scale_words(self) -> dict[str, list[float]]:
        """The scale, for the description of an exported model; empty where actions are as learned from."""
        if not hasattr(self, "scale"):
            return {}
        return {"middle": self._middle.ravel().tolist(), "half_width": self.half_width.ravel().tolist()}

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return normal((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return DiagonalGaussian(outputs, self.log_std)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        scaled = self._middle + self.half_width * actions.reshape(-1, *self._low.shape)
        bounded: NDArray[Any] = np.clip(scaled.astype(self._low.dtype, copy=False), self._low, self._high)
        return bounded

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        unit = (np.asarray(actions, np.float64) - self._middle) / self.half_width
        return torch.from_numpy(unit.reshape(len(unit), -1).astype(np.float32))

    def env_log_prob(self, policy: Distribution, actions: Tensor) -> Tensor:
        assert isinstance(policy, DiagonalGaussian)
        low, high = (self.from_env(bound[None])[0].to(actions.device) for bound in (self._low, self._high))
        return policy.clipped_log_prob(actions, low, high, torch.from_numpy(self.half_width.ravel()).to(actions))


class UnitHead(ActionHead):
    """Decisions of units: an action is a ragged row of pairs, the number of the game's action and the choice in it.

    A row's decisions come action by action, and in the order of the actors.
    """

    decides = True

    def __init__(self, space: UnitActions) -> None:
        super().__init__()
        self.outputs, self.mask_size = 0, 0  # what the actor gives, and may choose from, depends on the observation
        self.shape, self.dtype = (2,), torch.int64
        self._names = list(space.actions)

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        """A number of each row and tick, [ticks, rows]; see `policies.networks.units.decisions`."""
        return torch.randint(2**63 - 1, (ticks, rows), generator=generator)

    def distribution(self, outputs: Sequence[Offered], mask: Tensor | None) -> Decisions:
        return Decisions(outputs)

    def to_env(self, actions: Ragged) -> dict[str, Ragged]:
        action, choice = actions.values[:, 0], actions.values[:, 1]
        if len(self._names) == 1:
            return {self._names[0]: Ragged(choice, actions.lengths)}
        rows, size = actions.rows(), len(actions)
        own = [action == number for number in range(len(self._names))]
        parts = [Ragged(choice[one], np.bincount(rows[one], minlength=size)) for one in own]
        return dict(zip(self._names, parts, strict=True))

    def from_env(self, actions: Mapping[str, Ragged]) -> RaggedTensor:
        parts = [actions[name] for name in self._names]
        pairs = [
            Ragged(np.stack([np.full(part.total, number), part.values.astype(np.int64)], 1), part.lengths)
            for number, part in enumerate(parts)
        ]
        return RaggedTensor.of(Ragged.side_by_side(pairs))

    def env_log_prob(self, policy: Decisions, actions: RaggedTensor) -> Tensor:
        """The sum over a row's decisions, [N]."""
        return actions.sums(policy.log_prob(actions))


_MOST_CHOICES = 2**20  # weights of a gigabyte, with 64 hidden units, their gradient and Adam's two means


def check_choices(space: Space[Any], what: str) -> None:
    """Refuses a space with more choices than a network can have inputs or outputs.

    Args:
        space: any.
        what: "observations" or "actions".

    Raises:
        ConfigError: a Discrete or MultiDiscrete space has too many.
    """
    count = mask_size(space)
    if count > _MOST_CHOICES:
        seen = what == "observations"
        kind, own = ("input", ", or an `encoder` of your own that embeds them") if seen else ("output", "")
        raise ConfigError(
            f"the {what} {space} have {count:,} choices, and a network needs an {kind} for each, at most "
            f"{_MOST_CHOICES:,}; use a MultiDiscrete of their digits or a Box of numbers{own}"
        )


def action_head(space: Space[Any], *, log_std_init: float = 0.0) -> ActionHead:
    """The head for a space of actions.

    Raises:
        ConfigError: the space is none of Discrete, MultiDiscrete, MultiBinary, Box of floats and `UnitActions`.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteHead(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteHead(space)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryHead(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxHead(space, log_std_init)
    if isinstance(space, UnitActions):
        return UnitHead(space)
    raise ConfigError(
        f"actions can be Discrete, MultiDiscrete, MultiBinary or a Box of floats, not {space}; "
        "wrap the environment so that its actions are one of these"
    )
