"""Shared by the games with units that compute all lanes at once: ragged parts from arrays with flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError, nearest
from arena.game.ragged import Ragged

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

STATES = "states"  # the key of `reset(options=...)` with a state per lane, or None


def picked(values: NDArray[Any], there: Flags) -> Ragged:
    """The items `[L, N, *shape]` whose flag `[L, N]` is set, as one row per lane."""
    return Ragged(values[there], there.sum(axis=1))


def ranks(there: Flags) -> Integers:
    """`[L, N]` the place of each item whose flag is set among such items of its lane; meaningless for other items."""
    return np.cumsum(there, axis=1) - 1


def spread(choices: Any, actors: Flags, default: int) -> Integers:
    """Choices of the actors as an array `[L, N]`, the default in other places.

    Args:
        choices: `Ragged` int64. A row that has no choices for its actors is left at the default: a wrapper has ended
            the lane. Rows of lanes without actors are not read.
        actors: bool `[L, N]` what was shown as an actor, in the order of the choices.
        default: for all others.
    """
    found = np.full(actors.shape, default, np.int64)
    counts = actors.sum(axis=1)
    if not np.array_equal(choices.lengths, counts):
        given = (choices.lengths == counts) & (counts > 0)
        actors, choices = actors & given[:, None], choices[given]
    found[actors] = choices.values
    return found


def states_of(
    options: Mapping[str, Any] | None, lanes: int, *, needed: Sequence[str], allowed: Sequence[str] = ()
) -> list[Mapping[str, Any] | None]:
    """The states that `reset(options={"states": [...]})` sets, one per lane; None: the lane draws its own.

    Args:
        options: of the reset.
        lanes: their number.
        needed: the keys of a state.
        allowed: keys that may be left out.

    Raises:
        ConfigError: their number is not that of the lanes, or a state has other keys.
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


def rows_of_state(given: Any, path: str, features: Sequence[str], board: Sequence[int]) -> Integers:
    """The objects on the cells of a board in a state, int64 `[n, features]`.

    Args:
        given: a list of `(x, y, ...)`.
        path: of the key in the options, as `states[0].mines`.
        features: their names, x and y first.
        board: its cells in x and in y.

    Raises:
        ConfigError: it is no such list, a number is negative, or a cell is not on the board.
    """
    try:
        rows = np.array(given).reshape(-1, len(features)) if len(given) == 0 else np.array(given)
    except (TypeError, ValueError):  # not a list, or of unequal lengths
        rows = np.zeros(0)
    wanted = f"a list of ({', '.join(features)}), whole numbers from 0"
    if rows.ndim != 2 or rows.shape[1] != len(features) or (rows.size and rows.dtype.kind not in "iu"):
        raise ConfigError(f"found {given!r:.80}; expected {wanted}", path=path)
    outside = (rows < 0).any(axis=1) | (rows[:, 0] >= board[0]) | (rows[:, 1] >= board[1])
    if outside.any():
        raise ConfigError(
            f"found {tuple(rows[outside][0].tolist())}; expected {wanted}, on a board of {board[0]} x {board[1]} cells",
            path=path,
        )
    return rows.astype(np.int64)


def number_of_state(given: Any, path: str) -> int:
    """A whole number from 0 in a state.

    Raises:
        ConfigError: it is not one.
    """
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 0:
        raise ConfigError(f"found {given!r:.80}; expected a whole number from 0", path=path)
    return int(given)


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array `[L, N, ...]` with room for at least `size` items per lane; new ones are zero."""
    missing = size - array.shape[1]
    if missing <= 0:
        return array
    return np.concatenate([array, np.zeros((len(array), missing, *array.shape[2:]), array.dtype)], axis=1)
