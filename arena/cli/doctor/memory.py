"""Memory that the processes of a node share, and the limits that a system sets to them."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from arena.cli.doctor.finding import Finding, ok, problem, python, warning
from arena.diagnostics.process_output import ask
from arena.diagnostics.segments import JOB_FOLDER, MPICH, OPEN_MPI, SHARED_MEMORY, find_unmapped
from arena.errors import NoRoom, UnsafeFile, shorten
from arena.external.shared_memory.files import LinkFolder, default_folder
from arena.transport.shared_memory import SharedMemory

_OPEN = """
import os, sys
os.close(os.open(f"/proc/{sys.argv[1]}/fd/{sys.argv[2]}", os.O_RDWR))
"""
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_GROUPS = Path("/sys/fs/cgroup")
_LEAST_SEGMENTS = 32 * 2**20  # bytes: Open MPI takes about 0.1 MiB per process at the start
_LEAST_MEMORY = 2 * 2**30  # bytes: a process that learns needs about 0.3 GiB, torch included
_LEAST_FILES = 1024
_SECONDS = 20.0


def shared() -> Iterator[Finding]:
    """Memory without a name, which another process opens through /proc."""
    subject = "shared memory"
    scope = f" (ptrace scope {_YAMA.read_text().strip()})" if _YAMA.exists() else ""
    try:
        memory = SharedMemory.make(4096)
    except OSError as error:
        yield warning(subject, f"none without a name: {error}", "messages go through MPI instead, which is slower")
        return
    answer = ask(python(_OPEN, str(os.getpid()), str(memory.descriptor)), seconds=_SECONDS)
    os.close(memory.descriptor)
    if answer.code == 0:
        yield ok(subject, f"another process opens it through /proc{scope}")
    else:
        remedy = "messages go through MPI instead, which is slower; allow /proc/<pid>/fd between your own processes"
        yield warning(subject, f"another process cannot open it{scope}: {answer.last_line}", remedy)


def simulator_links() -> Iterator[Finding]:
    """Where external simulators share files with the arena; see `make: shared_memory`."""
    subject, place = "simulator links", default_folder()
    try:
        LinkFolder(place).remove()
    except (UnsafeFile, NoRoom) as error:
        remedy = "remove that folder, or name another place with `folder` in the kwargs of `make: shared_memory`"
        yield warning(subject, str(error), remedy)
        return
    free = size(shutil.disk_usage(place).free)
    yield ok(subject, f"files go to a folder in {place} that only you can access; {free} are free")


def segments(place: Path = SHARED_MEMORY) -> Iterator[Finding]:
    """Where MPI itself shares memory."""
    if not place.is_dir():
        yield warning(str(place), "is not there", "MPI may be slow, or not start; in a container mount a tmpfs there")
        return
    free = shutil.disk_usage(place).free
    if free < _LEAST_SEGMENTS:
        yield warning(str(place), f"{size(free)} are free", "start the container with --shm-size=1g, or tidy it up")
    else:
        yield ok(str(place), f"{size(free)} are free")


def leftovers(place: Path = SHARED_MEMORY) -> Iterator[Finding]:
    """Segments of this user's killed MPI jobs: files that no living process has mapped."""
    names = [f"{folder}{name}" for folder in ("", f"{JOB_FOLDER}*/") for name in (*OPEN_MPI, *MPICH)]
    left = {path: status.st_blocks * 512 for path, status in find_unmapped(place, names).items()}
    subject = "leftover segments"
    if not left:
        yield ok(subject, f"none in {place}")
        return
    tops = sorted({path.relative_to(place).parts[0] for path in left})
    text = f"{len(left)} files of killed MPI jobs, {size(sum(left.values()))} in use, in {place}: {shorten(tops)}"
    yield warning(subject, text, "no living process has mapped them; remove them when none of your MPI jobs runs")


def handles() -> Iterator[Finding]:
    """Handles of processes, which tell at once when one dies."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        yield warning("pidfd", f"not to be had: {error}", "the death of a process is noticed later; Linux 5.3 has it")
    else:
        yield ok("pidfd", "tells when a process dies")


def limit() -> Iterator[Finding]:
    """How much memory a run can have."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield memory_finding(total, group_limit(_GROUPS, Path("/proc/self/cgroup").read_text()))


def memory_finding(total: int, limit: int | None) -> Finding:
    """What the machine has, or what a control group leaves of it."""
    least = total if limit is None else min(total, limit)
    text = f"{size(total)}" + (f", of which this control group may use {size(least)}" if least < total else "")
    if least < _LEAST_MEMORY:
        return warning("memory", text, "a process that learns needs about 0.3 GiB: use fewer, with --ranks")
    return ok("memory", text)


def group_limit(root: Path, groups: str) -> int | None:
    """The tightest limit of this process's control groups in bytes; None: there is none.

    The groups are mounted at `root`; `groups` is the text of /proc/self/cgroup.
    """
    limits: list[int] = []
    for line in groups.splitlines():
        _, controllers, group = line.split(":", 2)
        top, name = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = top / group.strip("/")
        for place in (folder, *folder.parents):
            if place.is_relative_to(top):
                with suppress(OSError):  # a group that is not mounted here
                    text = (place / name).read_text().strip()
                    limits += [int(text)] if text.isdecimal() else []  # "max"
    return min(limits, default=None)


def open_files() -> Iterator[Finding]:
    """How many files, pipes and sockets a process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < _LEAST_FILES:
        more = "" if hard == unlimited or hard >= _LEAST_FILES else f" (at most {hard}; ask who runs the machine)"
        yield problem("open files", f"at most {soft} per process", f"ulimit -n {_LEAST_FILES}{more}")
    else:
        yield ok("open files", "without limit" if soft == unlimited else f"at most {soft} per process")


def size(nbytes: int) -> str:
    """Bytes in words."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"
