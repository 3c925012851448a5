"""Reads the checkpoint of a policy when its workers start, and writes new ones in the writer of the group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena.plan.plan import PolicyPlan, Role, RoleKind
from arena.records import checkpoint
from arena.records import state_codec as states
from arena.records.checkpoint import Checkpoint, StatePlace
from arena.roles.run import Run
from arena.roles.state import RunState


class WorkerCheckpoints:
    """The checkpoints of a policy.

    Every learning worker has one; the writer of the group saves the shared state. The private states of the workers of
    a process go into one file beside it, which they have open in their common `memory`. The functions return the ticks
    that the worker's match has played, the updates of the policy, and the leg's last tick. `newest` is the boundary of
    the newest checkpoint that this worker has written, `worker_state` the place of its own state.
    """

    def __init__(
        self,
        run: Run,
        policy: PolicyPlan,
        role: Role,
        memory: RunState,
        ticks: Callable[[], int],
        updates: Callable[[], int],
        until: Callable[[], int],
    ) -> None:
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        self._run, self._policy, self._seat = run, policy, (role.match, role.seat)
        self._rank, self._unfinished = run.plan.rank_of(role), memory.worker_states
        self._ticks, self._updates, self._until = ticks, updates, until
        self._offered = run.leg.start  # the newest boundary that has its checkpoint
        self._folder = run.folder.checkpoints_path(policy.name)
        self.newest: int | None = None
        self.worker_state: StatePlace | None = None

    def load(self, path: Path) -> Checkpoint:
        """As `checkpoint.load`; a state that is no mapping is a `ConfigError`, too."""
        loaded = checkpoint.load(path)
        checkpoint.check_mapping(loaded, path)
        return loaded

    def load_worker_state(self) -> Any:
        """Reads the worker's own state at the end of the leg before; None if there is none."""
        place = self._run.leg.private_states.get(self._seat)
        return None if place is None else checkpoint.load(place).state

    def offer(self, state: Any) -> None:
        """Writes the checkpoint of the newest boundary within the leg, once; `state` may be a function that returns it.

        A run in which some algorithm saves no state is played in one leg, with boundaries in it.
        """
        every = self._run.plan.config.checkpoint_every
        boundary = self._ticks() // every * every
        if self._offered < boundary < self._until():  # the leg's end is saved when the worker leaves
            self.save(state() if callable(state) else state, boundary=boundary)

    def save(self, state: Any, *, boundary: int) -> None:
        """Writes the checkpoint of a boundary; replaces that of a worker that has left earlier."""
        if not isinstance(state, dict):
            raise TypeError(f"the state is {state!r:.40}, a {type(state).__name__}; state_dict() returns a dict")
        self._offered = self.newest = boundary
        checkpoint.save(self._folder, state, **self._described(boundary))

    def save_worker_state(self, state: Any, *, boundary: int) -> None:
        """Adds the worker's own state, if it has any, to the file of its process.

        The last worker of the policy in the process completes the file. One that has left before a leg was cut short
        has added to the file of another boundary.
        """
        plan, key = self._run.plan, (self._policy.name, self._rank)
        if (found := self._unfinished.pop(key, None)) is None:
            ranks = [plan.rank_of(Role(RoleKind.WORKER, *worker)) for worker in self._policy.workers]
            found = ranks.count(self._rank), {}
        missing, files = found
        if state:
            if boundary not in files:
                path = checkpoint.worker_path_of(self._folder, boundary, self._rank)
                files[boundary] = checkpoint.worker_states_file(path)
                next(files[boundary])
            self.worker_state = files[boundary].send((self._seat, Checkpoint(state, **self._described(boundary))))
        if missing > 1:
            self._unfinished[key] = missing - 1, files
            return
        for file in files.values():
            next(file, None)

    def _described(self, boundary: int) -> dict[str, Any]:
        return {
            "policy": self._policy.name,
            "algorithm": self._policy.config.algorithm,
            "ticks": self._ticks(),
            "update": self._updates(),
            "boundary": boundary,
        }

    def digest(self, state: Any) -> bytes:
        """A SHA-256 digest of a state; a part that cannot be encoded is a `TypeError`."""
        structure, arrays = states.encode(state)
        sha = hashlib.sha256(json.dumps(structure).encode())
        for array in arrays:
            sha.update(array)
        return sha.digest()
