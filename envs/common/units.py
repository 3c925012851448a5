"""Shared by the games with units that compute all lanes at once: ragged parts from arrays with flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.ragged import Ragged

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

STATES = "states"  # the key of `reset(options=...)` with a state per lane, or None


def picked(values: NDArray[Any], there: Flags) -> Ragged:
    """The items `[L, N, *shape]` whose flag `[L, N]` is set, as one row per lane."""
    return Ragged(values[there], there.sum(axis=1))


def ranks(there: Flags) -> Integers:
    """`[L, N]` the place of each item among those of its lane whose flag is set; of others meaningless."""
    return np.cumsum(there, axis=1) - 1


def spread(choices: Any, actors: Flags, default: int) -> Integers:
    """Choices of the actors as an array `[L, N]`, the default in other places.

    Args:
        choices: `Ragged` int64. A row that has no choices for its actors is left at the default: a wrapper has ended
            the lane. Rows of lanes without actors are not read.
        actors: bool `[L, N]` who was shown as an actor, in the order of the choices.
        default: for all others.
    """
    found = np.full(actors.shape, default, np.int64)
    counts = actors.sum(axis=1)
    if not np.array_equal(choices.lengths, counts):
        given = (choices.lengths == counts) & (counts > 0)
        actors, choices = actors & given[:, None], choices[given]
    found[actors] = choices.values
    return found


def states_of(options: Mapping[str, Any] | None, lanes: int) -> list[Mapping[str, Any] | None]:
    """The states that `reset(options={"states": [...]})` puts, one per lane; None: the lane draws its own.

    Raises:
        ConfigError: their number is not that of the lanes.
    """
    states = (options or {}).get(STATES)
    if states is None:
        return [None] * lanes
    if len(states) != lanes:
        raise ConfigError(f"got {len(states)} states for {lanes} lanes; give one per lane, or None", path=STATES)
    return list(states)


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array `[L, N, ...]` with room for at least `size` items per lane; new ones are zero."""
    missing = size - array.shape[1]
    if missing <= 0:
        return array
    return np.concatenate([array, np.zeros((len(array), missing, *array.shape[2:]), array.dtype)], axis=1)
