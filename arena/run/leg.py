"""A leg of a run: from one boundary, a tick at which everything is saved, to the next. Pure data, for every role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.records.folder import RunFolder
    from arena.records.formats import Boundary

UNBOUNDED_TICKS = 2**40
"""Tick limit of a run that ends after a number of episodes."""


@dataclass(frozen=True)
class Leg:
    """A part of a run, from one tick at which everything is saved to the next.

    At its end every match has played the same number of ticks, unfinished episodes are cut, and all roles end; the next
    leg creates them again from what was saved. So a run that is resumed, or rolled back to its newest boundary after
    the death of a process, is the same as an uninterrupted run.

    Args:
        start: the tick at which it begins.
        episodes: per (match, lane) that has any, how many episodes it has on record.
        updates: per policy that has any, how many updates.
        seconds: per policy that has updates, the `seconds` of the last update.
        left: the workers, as (match, seat), whose `run` has returned: their seats idle.
        restore: per policy the checkpoint that it is loaded from.
        own: at the beginning of a round, per worker, as (match, seat), the file of its private state; None: the state
            that its seat had at `start`.
    """

    start: int = 0
    episodes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    left: frozenset[tuple[int, int]] = frozenset()
    restore: Mapping[str, Path] = field(default_factory=dict)
    own: Mapping[tuple[int, int], Path] | None = None


def leg_at(boundary: Boundary, folder: RunFolder) -> Leg:
    """The leg that begins at a boundary of a run."""
    return Leg(
        start=boundary.tick,
        episodes={(match, lane): count for match, lane, count in boundary.episodes},
        updates=boundary.updates,
        seconds=boundary.seconds,
        left=frozenset(boundary.left),
        restore={name: boundary.checkpoint(folder, name) for name in boundary.checkpoints},
    )
