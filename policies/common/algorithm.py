"""Learning as a group: who learns, what is measured of it, how that becomes the group's, what an environment has to do.

Every gradient step is made of an `Average`: with `sync: gradients` that of the group, with `sync: samples`, where the
root learns by itself from what everybody has seen, `alone`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from arena.errors import ConfigError
from arena.game.spaces import leaves_of
from policies.common.devices import device_of
from policies.networks.heads import action_head

if TYPE_CHECKING:
    from arena.group.group import Group

Kind = TypeVar("Kind", bound="Learner")

Figures = dict[str, float]
"""What was measured, by name."""

Average = Callable[..., Figures]
"""`average([optimizer.vector, ...], weight=float(batch.size), **figures)`: replaces the gradients by their mean over
the group, in one exchange, and returns the mean figures. It has to be called in every gradient step, once."""


class Learner:
    """One worker of a policy that learns: what it holds, and what is asked of its class before a run.

    Args:
        env: a vector environment.
        group: the workers of this policy.
        ticks: the whole run's budget.
        options: the fields of the class's `Options`, a dataclass that checks itself and has a `device`.

    Raises:
        ConfigError: an option that the algorithm cannot take, or a device that this machine has not.
    """

    Options: ClassVar[type[Any]]
    options: Any  # of the class's own type

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        self.options = self.Options(**options)
        self.device = device_of(self.options.device)

    @classmethod
    def from_spaces(
        cls: type[Kind], env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any
    ) -> Kind:
        """One that cannot play; all that its `__init__` asks of an environment are spaces.

        Raises:
            ConfigError: it cannot be made with these options, this seat or this group.
        """
        return cls(env, group, ticks=ticks, **options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Whether this machine has the device.

        Raises:
            ConfigError: it has not.
        """
        device_of(cls.Options(**options).device)

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Whether the algorithm can play with one entity's spaces.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        leaves_of(observation_space)
        cls.check_actions(action_space)

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        """Whether the algorithm can choose in a space of actions.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        action_head(space)

    @classmethod
    def check_state(
        cls, state: Mapping[str, Any], expected: Collection[str], *, optional: Collection[str] = ()
    ) -> None:
        """Whether a stored state has the parts that one of this class has.

        Args:
            state: what is to be loaded.
            expected: the names of these parts.
            optional: those of them that may be missing.

        Raises:
            ConfigError: another one is missing, or there is one too many.
        """
        if not {*expected} - {*optional} <= state.keys() <= {*expected}:
            found = ", ".join(map(str, state)) or "nothing"
            raise ConfigError(f"this is no state of {cls.__name__}: it has {found}; expected {', '.join(expected)}")


def alone(parameters: Iterable[Tensor], *, weight: float, **figures: float) -> Figures:
    """The mean over a group of one."""
    return figures


def check_autoreset(env: VectorEnv[Any, Any, Any], name: str) -> None:
    """Whether an environment begins the next episode on the tick on which one has ended.

    Args:
        env: a vector environment; one that says nothing of this does.
        name: of the algorithm that asks.

    Raises:
        ConfigError: it begins it at another time.
    """
    mode = env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP)
    if mode != AutoresetMode.SAME_STEP:
        raise ConfigError(f"{name} needs a vector environment that resets on the same step, not {mode}")
