"""The own states of a policy's workers at a boundary, without workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arena.records import checkpoint

Seat = tuple[int, int]


def write_states(
    folder: Path, boundary: int, states: Mapping[Seat, Any] | Iterable[tuple[Seat, Any]], *, rank: int = 0
) -> Path:
    """Writes the states of the workers of a rank, by (match, seat), into a policy's folder; returns the file's path."""
    path = checkpoint.worker_path_of(folder, boundary, rank)
    file = checkpoint.worker_states_file(path)
    next(file)
    for seat, state in states.items() if isinstance(states, Mapping) else states:
        file.send((seat, checkpoint.Checkpoint(state, folder.name, "ppo", boundary, 1, boundary)))
    next(file, None)
    return path


def state_of(folder: Path, boundary: int, seat: Seat) -> Any:
    """The state of the worker of a seat; None if it has none."""
    place = checkpoint.worker_states(folder, boundary).get(seat)
    return None if place is None else checkpoint.load(place).state
