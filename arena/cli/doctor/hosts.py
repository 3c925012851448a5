"""The other hosts of runs with `--hosts`: do they answer, have they what this one has, and how far away are they."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.cli.doctor.finding import Finding, Level, ok, problem, python, warning
from arena.diagnostics.process_output import ProcessOutput, ask
from arena.diagnostics.start_folder import anchored
from arena.plan.hosts import Host
from arena.run import mpirun
from arena.run.remote_hosts import HostState, host_problem, host_states, same_host

_CLOCK_SECONDS = 1.0  # by which clocks may differ: times of files and lines are compared
_START_SECONDS = 60.0
# Rank 0 prints the median time of small messages there and back, in microseconds, for each other rank.
_ROUND_TRIPS = """
import os, statistics, time
from arena.run.bound_process import die_with_parent
die_with_parent()
from mpi4py import MPI
world, data = MPI.COMM_WORLD, bytearray(64)
for other in range(1, world.size):
    world.Barrier()
    times = []
    for _ in range(200):
        began = time.perf_counter()
        if world.rank == 0:
            world.Send(data, other)
            world.Recv(data, other)
        elif world.rank == other:
            world.Recv(data, 0)
            world.Send(data, 0)
        times.append(time.perf_counter() - began)
    if world.rank == 0:
        os.write(1, f"\\nround trip {other} {1e6 * statistics.median(times):.0f}\\n".encode())
"""


def examine_hosts(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Whether each host answers, and has the environment, the folder and the time of this one; then round trips."""
    with tempfile.NamedTemporaryFile(dir=anchored("."), prefix=".arena-doctor-") as file:
        here, others = host_states(hosts, os.environ, Path(file.name))
    if (same := same_host(hosts, here, others)) is not None:
        yield problem("hosts", same)
        return
    findings = [state(host, here, found) for host, found in others.items()]
    yield from findings
    if not any(finding.level is Level.PROBLEM for finding in findings):
        yield from round_trips(hosts)


def state(host: Host, here: HostState, found: HostState | ProcessOutput) -> Finding:
    """What is wrong with a host, or that nothing is."""
    subject = f"host {host.name}"
    if (reason := host_problem(host, here, found)) is not None:
        return problem(subject, reason)
    assert isinstance(found, HostState)
    if abs(found.ahead) > _CLOCK_SECONDS:
        return warning(subject, f"its clock is {found.ahead:+.1f} s from this host's", "synchronize clocks, as by NTP")
    if not found.has_file:
        return warning(
            subject,
            f"does not see what is written into {anchored('.')} here",
            "give runs a folder on a file system that all hosts share: --run-dir",
        )
    if host.slots > found.cores:
        text = f"{found.cores} cores for {host.slots} processes"
        return warning(subject, text, "one process per core is best; more play, but more slowly")
    return ok(subject, f"has the same environment and folder; {found.cores} cores")


def round_trips(hosts: Sequence[Host]) -> Iterator[Finding]:
    """How long a message of MPI takes to each host and back."""
    single = [Host(host.name, 1) for host in hosts]
    line, settings = mpirun.command(mpirun.find_launcher(), len(hosts), python(_ROUND_TRIPS), hosts=single)
    answer = ask(line, seconds=_START_SECONDS, settings=settings)
    found = {int(rank): int(micro) for rank, micro in re.findall(r"^round trip (\d+) (\d+)$", answer.out, re.MULTILINE)}
    if answer.code != 0 or len(found) != len(hosts) - 1:
        why = f"within {_START_SECONDS:.0f} s" if answer.code is None else f"({answer.last_line})"
        yield problem("MPI over hosts", f"its processes do not meet {why}", "do firewalls let them connect?")
    for rank, micro in found.items():
        yield ok(f"host {hosts[rank].name}", f"{micro} us for an MPI message there and back, from {hosts[0].name}")
