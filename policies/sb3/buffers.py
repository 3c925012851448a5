"""What a buffer of Stable-Baselines3 holds, as arrays: rollouts and replays have their columns as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer


def stored(buffer: BaseBuffer) -> dict[str, Any]:
    """What has been added, views of the columns [t, B, ...] by name, and where the next transition goes."""
    size = buffer.size()
    columns = {name: column[:size] for name, column in _columns(buffer)}
    return {"pos": buffer.pos, "full": buffer.full, "columns": columns}


def fits(buffer: BaseBuffer, state: Mapping[str, Any]) -> bool:
    """Whether a buffer has the columns, the rows and the room of what `stored` has given."""
    mine, theirs = dict(_columns(buffer)), state["columns"]
    same = mine.keys() == theirs.keys() and all(
        mine[name].shape[1:] == theirs[name].shape[1:] and mine[name].dtype == theirs[name].dtype for name in mine
    )
    size = buffer.buffer_size if state["full"] else state["pos"]
    return same and 0 <= state["pos"] < buffer.buffer_size and {len(column) for column in theirs.values()} == {size}


def restore(buffer: BaseBuffer, state: Mapping[str, Any]) -> None:
    """Fills a buffer with what `stored` has given, if that fits."""
    for name, column in _columns(buffer):
        column[: len(state["columns"][name])] = state["columns"][name]
    buffer.pos, buffer.full = state["pos"], state["full"]


def _columns(buffer: BaseBuffer) -> Iterator[tuple[str, NDArray[Any]]]:
    """All columns by name; those of Dict observations as `observations/key`."""
    for name, value in vars(buffer).items():
        if isinstance(value, np.ndarray):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}/{key}", part) for key, part in value.items() if isinstance(part, np.ndarray))
