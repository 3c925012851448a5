"""Python and the packages, in the versions declared as tested; and torch, as a worker has it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from arena.cli.doctor import finding
from arena.cli.doctor.finding import Finding, ok, problem, warning
from arena.diagnostics.process_output import ProcessOutput, ask
from arena.registry import hidden_packages
from arena.run import mpirun

DISTRIBUTION = "mpi-policy-arena"
_TORCH = """
import json, torch
seen = torch.cuda.is_available()
names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if seen else []
found = {"version": torch.__version__, "threads": torch.get_num_threads(), "built": torch.version.cuda, "gpus": names}
print(json.dumps(found))
"""
_SECONDS = 120.0  # from a cold network file system, torch takes its time
_NVIDIA = Path("/dev/nvidiactl")


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """The interpreter's version."""
    number = ".".join(map(str, version))
    text = f"{number} ({sys.executable})"
    tested = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    if SpecifierSet(tested).contains(number):
        yield ok("Python", text)
    elif SpecifierSet(re.sub("<[^,]*", "", tested).strip(",")).contains(number):
        yield warning("Python", text, f"not tested; {tested} is")
    else:
        yield problem("Python", text, f"the arena needs {tested}")


def packages() -> Iterator[Finding]:
    """Every package that the arena needs."""
    for line in metadata.requires(DISTRIBUTION) or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):  # of an extra, or another Python
            continue
        remedy = f"pip install '{needed.name}{needed.specifier}'"
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            yield problem(needed.name, "is not installed", remedy)
            continue
        if needed.specifier.contains(version, prereleases=True):
            yield ok(needed.name, version)
        else:
            yield warning(needed.name, f"{version} is not a tested version", remedy)


def installed_packages() -> Iterator[Finding]:
    """The packages that are installed beside `arena`: does another one of the same name hide them?"""
    lines = hidden_packages()
    yield from (problem("packages of the arena", line) for line in lines)
    if not lines:
        yield ok("packages of the arena", "arena, envs and policies are of one installation")


@cache
def _answer() -> tuple[ProcessOutput, dict[str, Any]]:
    """The process's answer, and what torch says of itself; nothing if it cannot be imported."""
    answer = ask(finding.python(_TORCH), seconds=_SECONDS, settings=mpirun.process_settings(os.environ))
    return answer, json.loads(answer.out.splitlines()[-1]) if answer.code == 0 else {}


def torch() -> Iterator[Finding]:
    """Whether it can be imported, and how many threads it computes with."""
    answer, found = _answer()
    if found:
        yield threads_finding(found["version"], found["threads"], os.environ)
    else:
        remedy = "reinstall it: see pytorch.org; `random` and `scripted` policies work without it"
        yield problem("torch", f"cannot be imported: {answer.last_line}", remedy)


def threads_finding(version: str, threads: int, settings: Mapping[str, str]) -> Finding:
    """Many processes share the cores: one thread in each is what serves them."""
    text = f"{version}, {threads} thread{'s' * (threads > 1)} in each process"
    if threads == 1:
        return ok("torch", text)
    said = settings.get("OMP_NUM_THREADS")
    remedy = "unset OMP_NUM_THREADS" if said else "export OMP_NUM_THREADS=1"
    return warning("torch", text, f"{remedy}: processes with several threads get into each other's way")


def gpu() -> Iterator[Finding]:
    """What `device: cuda` would find."""
    _, found = _answer()
    if found:
        yield gpu_finding(found["gpus"], found["built"], there=_NVIDIA.exists())


def gpu_finding(names: list[str], built: str | None, *, there: bool) -> Finding:
    """The GPUs that torch, built for a version of CUDA, sees; `there`: whether the system has NVIDIA's driver."""
    if names:
        return ok("GPU", ", ".join(names))
    if there:
        found = f"torch sees none (built for CUDA {built})" if built else "torch sees none: it was built without CUDA"
        return warning("GPU", found, "install the torch of your driver's CUDA: see pytorch.org")
    return ok("GPU", "none; policies learn on the CPU")
