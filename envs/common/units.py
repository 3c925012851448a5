"""Shared by the games with units that compute all lanes at once: ragged parts from arrays with flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError, nearest
from arena.game.api import Flags, ResetOptions
from arena.game.ragged import Ragged

Integers = NDArray[np.int64]

STATES = "states"  # the key of `reset(options=...)` with a state per lane, or None


def picked(values: NDArray[Any], there: Flags) -> Ragged:
    """The items `[L, N, *shape]` whose flag `[L, N]` is set, as one row per lane."""
    return Ragged(values[there], there.sum(axis=1))


def ranks(there: Flags) -> Integers:
    """`[L, N]` the place of each item whose flag is set among such items of its lane; meaningless for other items."""
    return np.cumsum(there, axis=1) - 1


def spread(choices: Any, actors: Flags, default: int) -> Integers:
    """`Ragged` choices of the actors, int64, as an array `[L, N]`, the default in other places.

    The flags `actors` `[L, N]` say what was shown as an actor, in the order of the choices. A row that has no choices
    for its actors is left at the default: a wrapper has ended the lane. Rows of lanes without actors are not read.
    """
    found = np.full(actors.shape, default, np.int64)
    counts = actors.sum(axis=1)
    if not np.array_equal(choices.lengths, counts):
        complete = (choices.lengths == counts) & (counts > 0)
        actors, choices = actors & complete[:, None], choices[complete]
    found[actors] = choices.values
    return found


def states_of(
    options: ResetOptions, lanes: int, needed: Sequence[str], allowed: Sequence[str] = ()
) -> list[Mapping[str, Any] | None]:
    """The states that `reset(options={"states": [...]})` sets, one per lane; None: the lane draws its cells.

    A state has the keys `needed`, and may have those `allowed`; raises `ConfigError`.
    """
    states = (options or {}).get(STATES)
    if states is None:
        return [None] * lanes
    if len(states) != lanes:
        raise ConfigError(f"got {len(states)} states for {lanes} lanes; give one per lane, or None", path=STATES)
    for lane, state in enumerate(states):
        if state is None:
            continue
        if not isinstance(state, Mapping):
            raise ConfigError(f"found {state!r:.80}; a state is a mapping, or None", path=f"{STATES}[{lane}]")
        for key in needed:
            if key not in state:
                raise ConfigError(f"{key} is missing; a state has {', '.join(needed)}", path=f"{STATES}[{lane}]")
        for key in state:
            if key not in needed and key not in allowed:
                raise ConfigError(
                    f"there is no {key!r}; {nearest(str(key), [*needed, *allowed])}", path=f"{STATES}[{lane}]"
                )
    return list(states)


def rows_of_state(value: Any, path: str, features: Sequence[str], board: Sequence[int]) -> Integers:
    """The objects on the cells of a board in a state, int64 `[n, features]`; raises `ConfigError`.

    `path` is that of the key in the options, as `states[0].mines`; the first features are x and y.
    """
    try:
        rows = np.array(value).reshape(-1, len(features)) if len(value) == 0 else np.array(value)
    except (TypeError, ValueError):  # not a list, or of unequal lengths
        rows = np.zeros(0)
    expected = f"a list of ({', '.join(features)}), whole numbers from 0"
    if rows.ndim != 2 or rows.shape[1] != len(features) or (rows.size and rows.dtype.kind not in "iu"):
        raise ConfigError(f"found {value!r:.80}; expected {expected}", path=path)
    wrong = (rows < 0).any(axis=1) | (rows[:, 0] >= board[0]) | (rows[:, 1] >= board[1])
    if wrong.any():
        found = tuple(rows[wrong][0].tolist())
        raise ConfigError(f"found {found}; expected {expected}, on a board of {board[0]} x {board[1]} cells", path=path)
    return rows.astype(np.int64)


def number_of_state(value: Any, path: str) -> int:
    """A whole number from 0 in a state; raises `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ConfigError(f"found {value!r:.80}; expected a whole number from 0", path=path)
    return int(value)


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array `[L, N, ...]` with room for at least `size` items per lane; new ones are zero."""
    missing = size - array.shape[1]
    if missing <= 0:
        return array
    return np.concatenate([array, np.zeros((len(array), missing, *array.shape[2:]), array.dtype)], axis=1)
