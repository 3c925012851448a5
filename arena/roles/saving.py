"""The checkpoints of one policy: read when its workers begin, written by the worker that speaks for its group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena.plan import PolicyPlan
from arena.records import checkpoint
from arena.records.checkpoint import Checkpoint
from arena.run import Run


class Saving:
    """Reads and writes the checkpoints of a policy.

    Every worker that learns has one, and writes while it speaks for its group.

    Args:
        run: the run.
        policy: whose checkpoints they are.
        ticks: how many ticks the worker's match has played.
        updates: how many updates the policy has had.
    """

    def __init__(self, run: Run, policy: PolicyPlan, *, ticks: Callable[[], int], updates: Callable[[], int]) -> None:
        self._plan = run.plan
        self._policy = policy
        self._ticks = ticks
        self._updates = updates
        self._boundary = run.start_tick  # of the newest checkpoint
        self._folder = run.folder.checkpoints_path(policy.name)
        others = (other for other in run.plan.policies.values() if other.name != policy.name and not other.frozen)
        self._other_folders = tuple(run.folder.checkpoints_path(other.name) for other in others)

    def load(self, path: Path) -> Checkpoint:
        """What a checkpoint holds."""
        return checkpoint.load(path)

    def offer(self, state: Any) -> None:
        """Writes the checkpoint of a boundary that was reached; `state` may be a function that makes it."""
        boundary = self._reached()
        if boundary <= self._boundary:
            return
        if checkpoint.path_of(self._folder, boundary).exists():  # by one who spoke before and has left
            self._boundary = boundary
        else:
            self.save(state() if callable(state) else state, boundary=boundary)

    def save_at_leave(self, state: Any) -> None:
        """Writes what the worker has learnt until it leaves, as the newest checkpoint; others may learn on."""
        written = map(checkpoint.ticks_of, checkpoint.list_checkpoints(self._folder))
        self.save(state, boundary=max(self._ticks(), *written))

    def conclude(self) -> None:
        """Makes the newest checkpoint, by the one who has spoken last, the one of the run's end."""
        newest = checkpoint.list_checkpoints(self._folder)[-1]
        if checkpoint.ticks_of(newest) < self._plan.ticks:
            checkpoint.copy_to(self._plan.ticks, newest, others=self._other_folders)

    def save(self, state: Any, *, boundary: int) -> None:
        """Writes the checkpoint that stands for a boundary."""
        self._boundary = boundary
        checkpoint.save(
            self._folder,
            state,
            policy=self._policy.name,
            algorithm=self._policy.algorithm,
            ticks=self._ticks(),
            update=self._updates(),
            boundary=boundary,
            others=self._other_folders,
        )

    def _reached(self) -> int:
        """The newest boundary that the match has reached: a multiple of `checkpoint_every`."""
        every = self._plan.checkpoint_every
        return self._ticks() // every * every
