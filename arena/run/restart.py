"""The start of a run again after a death: what the launcher tells the new processes about the end of the others."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

RESTART_VARIABLE = "ARENA_RESTART"


class Restart(NamedTuple):
    """The death after which the processes of a run were started again.

    Args:
        folder: the run folder.
        made: whether the folder was made for this run.
        begun: whether the run had begun, as far as the launcher knows: the folder has its configuration.
        ranks: of the processes that have died; empty: an MPI daemon, or all processes of a host.
        cause: who has died, and where, for messages.
        processes: how many there were.
        died: when, in seconds of the wall clock.
        replayed: the ticks on record that are played again.
    """

    folder: str
    made: bool
    begun: bool
    ranks: tuple[int, ...]
    cause: str
    processes: int
    died: float
    replayed: int = 0

    def variable(self) -> dict[str, str]:
        """The environment variable that tells the new processes."""
        return {RESTART_VARIABLE: json.dumps(self._asdict())}

    @classmethod
    def take(cls) -> Restart | None:
        """What the launcher has told, removed from the environment; None: the run starts for the first time."""
        told = os.environ.pop(RESTART_VARIABLE, None)
        if told is None:
            return None
        found = json.loads(told)
        return cls(**{**found, "ranks": tuple(found["ranks"])})
