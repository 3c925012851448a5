"""The number of processes that `arena train` starts: by default one per usable core of the machine or allocation.

Usable cores are those of the CPU affinity, limited by the CPU quotas of this process's cgroups (v1 and v2). In an
allocation of a batch system its slots count instead, since it assigns processes to hosts by slots.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from arena.errors import ConfigError, pluralize
from arena.plan.hosts import Host, allocated

if TYPE_CHECKING:
    from arena.config import Config

RankCount = Literal["auto", "one_per_role"] | int

_HOST_FILES = {"PBS_NODEFILE": "PBS", "LSB_DJOB_HOSTFILE": "LSF", "PE_HOSTFILE": "Grid Engine"}


class ProcessCount(NamedTuple):
    """A number of processes, and the reason in words; None: one process per role."""

    number: int | None
    text: str


def process_count(
    config: Config,
    option: RankCount | None,
    environment: Mapping[str, str],
    *,
    hosts: Sequence[Host] = (),
    files: Path = Path("/"),
) -> ProcessCount:
    """The number of processes for a configuration; `option` is `--ranks`, `hosts` are those of `--hosts`.

    The slots of hosts count in place of the allocation's or this machine's. `files` is the root of the file system.
    """
    key, ranks = ("ranks", config.ranks) if option is None else ("--ranks", option)
    if ranks not in ("auto", "one_per_role") and (type(ranks) is not int or ranks < 1):
        raise ConfigError(f"found {ranks!r:.80}; expected a number from 1, auto or one_per_role", path=key)
    if isinstance(ranks, int):
        return ProcessCount(ranks, f"{key}: {ranks}")
    roles = config.roles + 1
    if ranks == "one_per_role":
        return ProcessCount(None, f"{key}: one_per_role ({pluralize(roles, 'role')})")
    named = sum(host.slots for host in hosts)
    slots = (named, f"{pluralize(named, 'slot')} of --hosts") if hosts else _allocated_slots(environment)
    most, text = slots or usable_cores(files)
    number = min(most if slots else max(2, most), roles)
    if number != most:
        text += f"; at most one process per role, {roles}" if number == roles else f"; at least {number}"
    return ProcessCount(number, f"ranks: auto ({text})")


def usable_cores(files: Path = Path("/")) -> tuple[int, str]:
    """The number of cores that this process may use, at least 1, and what limits it, in words."""
    try:
        cores, limit = len(os.sched_getaffinity(0)), ""
    except AttributeError:  # only on Linux
        cores, limit = os.cpu_count() or 1, ""
    if cores < (os.cpu_count() or 1):
        limit = ", by CPU affinity"
    quota = min(_quotas(files), default=float("inf"))
    if quota < cores:
        cores, limit = max(1, int(quota)), ", by the CPU quota of the cgroup"
    return cores, pluralize(cores, "core") + limit


def _quotas(files: Path) -> Iterator[float]:
    """The CPU quotas, in cores, of this process's cgroups and their parents."""
    try:
        lines = (files / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        tops = ("sys/fs/cgroup",) if not controllers else (f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu")
        for top in (files / name for name in tops):
            folder = top / path.lstrip("/")
            # In a container the path may be that of the host; then only the top is there.
            for place in (folder, *(parent for parent in folder.parents if parent.is_relative_to(top))):
                try:
                    if (place / "cpu.max").exists():
                        quota, period = (place / "cpu.max").read_text().split()
                    else:
                        quota, period = ((place / f"cpu.cfs_{it}_us").read_text().strip() for it in ("quota", "period"))
                except OSError:  # missing, or not readable
                    continue
                if quota not in {"max", "-1"}:
                    yield int(quota) / int(period)


def _allocated_slots(environment: Mapping[str, str]) -> tuple[int, str] | None:
    """The slots of the batch system's allocation, with words; None outside of one."""
    hosts = allocated(environment)
    if hosts:
        slots = sum(host.slots for host in hosts)
        return slots, f"{pluralize(slots, 'task')} of the SLURM allocation"
    for variable, system in _HOST_FILES.items():
        if variable in environment and Path(environment[variable]).is_file():
            lines = [line.split() for line in Path(environment[variable]).read_text().splitlines() if line.strip()]
            slots = sum(int(line[1]) for line in lines) if variable == "PE_HOSTFILE" else len(lines)
            return max(1, slots), f"{pluralize(max(1, slots), 'slot')} of the {system} allocation"
    return None
