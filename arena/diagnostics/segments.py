"""Shared memory of killed MPI jobs: files that no living process has mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
JOB_FOLDER = "arena-mpi-"  # prefix of the folder with the shared memory of a job
OPEN_MPI = ("sm_segment.*", "osc_sm.*", "osc_rdma.*", "vader_segment.*")
MPICH = ("mpich_shm_*",)


def find_unmapped(place: Path, names: Iterable[str]) -> dict[Path, os.stat_result]:
    """The files of this user in a folder, by patterns of their names, that no process has mapped."""
    found = sorted(path for name in names for path in place.glob(name))
    # The files that processes have mapped, of all processes whose maps this user may read.
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if found else ():
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # the process has ended, or is another user's
            continue
        mapped.update(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    left = {}  # the maps are read after the names, so that a job that starts meanwhile is not counted
    for path in found:
        with suppress(FileNotFoundError):  # removed meanwhile
            if str(path.resolve()) not in mapped and (status := path.stat()).st_uid == os.getuid():
                left[path] = status
    return left
