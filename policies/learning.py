"""Learning as a group: what is measured of it, how it becomes the group's, and what it asks of an environment.

Every gradient step is made of an `Average`: with `sync: gradients` that of the group, with `sync: samples`, where the
root learns by itself from what everybody has seen, `alone`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from arena.errors import ConfigError

Figures = dict[str, float]
"""What was measured, by name."""

Average = Callable[..., Figures]
"""`average([optimizer.vector, ...], weight=float(batch.size), **figures)`: replaces the gradients by their mean over
the group, in one exchange, and returns the mean figures. It has to be called in every gradient step, once."""


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
