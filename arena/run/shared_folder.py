"""Whether all hosts of a run see its folder, found out before the run changes anything.

On a host that does not, a role would write its checkpoints and logs into another folder of the same name.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import MISTAKE, listed
from arena.records.atomic import private, writing
from arena.records.folder import RunFolder
from arena.roles.protocol import Failed
from arena.roles.run import Run

if TYPE_CHECKING:
    from arena.transport.mpi import World

_SIGHT_SECONDS = 10.0  # for a new file to appear on other hosts: network file systems remember what was not there
_LOOK_SECONDS = 0.1


def mark(folder: RunFolder) -> Path:
    """Makes an empty file in the folder, whose name no process knows before; returns its path."""
    path = folder.logs / f".{secrets.token_hex(8)}"
    with writing(path):
        os.close(private(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return path


def seen_by_all(run: Run, marked: Path, world: World) -> Run | Failed:
    """The run, or why it cannot begin: the hosts on which the marked file is not to be found. A collective.

    Rank 0 removes the file, and what was made for a run that cannot begin.
    """
    end = time.monotonic() + _SIGHT_SECONDS
    while not (is_seen := os.path.exists(marked)) and time.monotonic() < end:  # `os.path`: an error is no sight
        time.sleep(_LOOK_SECONDS)
    here = os.uname().nodename
    blind = sorted({host for host, seen in world.collect((here, is_seen)) if not seen})
    if world.rank == 0:
        marked.unlink(missing_ok=True)
        if blind:
            from arena.run.prepare import abandon

            abandon(run)
    if not blind:
        return run
    hosts = f"host{'s' * (len(blind) > 1)} {listed(blind)}"
    return Failed(
        "root, rank 0",
        f"{hosts} cannot see the run folder {run.path} of host {here}: every host needs it under the same path, on a "
        "file system that all share; name one with --run-dir, or start the arena there",
        exit_code=MISTAKE,
    )
