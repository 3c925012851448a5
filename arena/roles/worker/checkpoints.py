"""The checkpoints of one policy: read when its workers begin, written by the worker that speaks for its group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena.plan.plan import PolicyPlan, Role
from arena.records import checkpoint
from arena.records import state_codec as states
from arena.records.checkpoint import Checkpoint
from arena.run.run import Run


class WorkerCheckpoints:
    """Reads and writes the checkpoints of a policy.

    Every worker that learns has one, and writes while it speaks for its group. What a worker alone has, it keeps beside
    them, in a file of its own.

    Args:
        run: the run.
        policy: whose checkpoints they are.
        ticks: how many ticks the worker's match has played.
        updates: how many updates the policy has had.
        until: the leg's last tick.

    Attributes:
        newest: the boundary of the checkpoint that this worker has written last; None if there is none.
    """

    def __init__(
        self,
        run: Run,
        policy: PolicyPlan,
        *,
        ticks: Callable[[], int],
        updates: Callable[[], int],
        until: Callable[[], int],
    ) -> None:
        self._run = run
        self._policy = policy
        self._ticks = ticks
        self._updates = updates
        self._until = until
        self._offered = run.leg.start  # the newest boundary that needs no checkpoint any more
        self._folder = run.folder.checkpoints_path(policy.name)
        self.newest: int | None = None

    def load(self, path: Path) -> Checkpoint:
        """What a checkpoint holds."""
        return checkpoint.load(path)

    def load_own(self, role: Role) -> Any:
        """What this worker alone begins with: what it had when the leg before this one ended; None: nothing."""
        leg, seat = self._run.leg, _seat(role)
        path = checkpoint.own_path_of(self._folder, leg.start, seat) if leg.own is None else leg.own.get(seat)
        return checkpoint.load(path).state if path is not None and path.exists() else None

    def offer(self, state: Any) -> None:
        """Writes the checkpoint of a boundary within a leg that was reached; `state` may be a function that makes it.

        Runs that are played in one leg, because some algorithm has no state, have boundaries within it.
        """
        every = self._run.plan.checkpoint_every
        boundary = self._ticks() // every * every
        if self._offered < boundary < self._until():  # that of the end is written in the end
            self.save(state() if callable(state) else state, boundary=boundary)

    def save(self, state: Any, *, boundary: int) -> None:
        """Writes the checkpoint that stands for a boundary, over one that somebody has written who has left."""
        self._offered = self.newest = boundary
        checkpoint.save(self._folder, state, **self._described(boundary))

    def save_own(self, role: Role, state: Any, *, boundary: int) -> None:
        """Writes what this worker alone has, if it has anything."""
        if state:
            checkpoint.save_own(self._folder, state, seat=_seat(role), **self._described(boundary))

    def _described(self, boundary: int) -> dict[str, Any]:
        return {
            "policy": self._policy.name,
            "algorithm": self._policy.algorithm,
            "ticks": self._ticks(),
            "update": self._updates(),
            "boundary": boundary,
        }


def digest(state: Any) -> bytes:
    """The same for equal states alone.

    Raises:
        TypeError: a part of the state cannot be kept.
    """
    structure, arrays = states.encode(state)
    found = hashlib.sha256(json.dumps(structure).encode())
    for array in arrays:
        found.update(array)
    return found.digest()


def _seat(role: Role) -> tuple[int, int]:
    assert role.match is not None and role.seat is not None, f"{role} is no worker"
    return role.match, role.seat
