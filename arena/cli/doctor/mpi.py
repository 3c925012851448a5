"""MPI: the library that Python uses and the launcher, and what they do together.

Each check runs a small program in processes of its own; only its output is read here.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

from arena.cli.doctor.finding import Finding, ok, problem, python
from arena.diagnostics.process_output import ProcessOutput, ask
from arena.run import mpirun

_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0].partition(", package")[0].strip("\\0 "))
"""
# An answer is one write of one line, with a line end before it, so that other output on the same pipe does not mix with
# it: with PYTHONUNBUFFERED, print() writes a line and its end separately.
_MEET = """
import os
from arena.run.bound_process import die_with_parent
die_with_parent()
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
os.write(1, f"\\none of {MPI.COMM_WORLD.size}\\n".encode())
"""
_LIBRARY_SECONDS, _START_SECONDS = 20.0, 60.0
_MOST = 64  # processes, however many cores there are


def library() -> Iterator[Finding]:
    """What mpi4py has been built with, or finds."""
    answer = ask(python(_LIBRARY), seconds=_LIBRARY_SECONDS)
    if answer.code == 0:
        yield ok("MPI library", answer.out.strip())
    else:
        yield problem("MPI library", f"mpi4py finds none: {answer.last_line}", mpirun.NO_MPI)


def launcher() -> Iterator[Finding]:
    """mpirun or mpiexec."""
    path = mpirun.find_launcher()
    version = ask([path, "--version"], seconds=_LIBRARY_SECONDS)
    if not os.environ.get("HOME"):
        remedy = "`arena train` sets it for the processes that it starts; for an mpirun of your own: export HOME=/tmp"
        yield problem("HOME", "is not set; Open MPI does not start without it", remedy)
    yield ok(
        "MPI launcher", f"{path}: {next(iter((version.out + version.err).strip().splitlines()), 'says no version')}"
    )


def processes() -> Iterator[Finding]:
    """Two processes find each other: then library and launcher belong together; and as many processes as cores."""
    for ranks in sorted({2, max(2, min(len(os.sched_getaffinity(0)), _MOST))}):
        line, settings = mpirun.command(mpirun.find_launcher(), ranks, python(_MEET))
        yield meeting(f"{ranks} processes", ranks, ask(line, seconds=_START_SECONDS, settings=settings))


def meeting(subject: str, ranks: int, answer: ProcessOutput) -> Finding:
    """Whether all processes were in one world."""
    # Per size of a world, the number of processes that have reported it.
    sizes = Counter(int(size) for size in re.findall(r"^one of ([0-9]{1,9})$", answer.out, re.MULTILINE))
    if answer.code == 0 and sizes == {ranks: ranks}:
        return ok(subject, "start under MPI and find each other")
    if sizes == {1: ranks}:
        return problem(
            subject,
            "each believes that it is alone: the launcher is of another MPI than the library",
            "put the launcher of mpi4py's MPI first on the PATH, or reinstall: pip install --no-binary mpi4py mpi4py",
        )
    if answer.code is None:
        return problem(subject, f"do not come together within {_START_SECONDS:.0f} s: {answer.last_line}")
    return problem(subject, f"do not start: exit {answer.code}: {answer.last_line}")
