"""torch, as a worker of a run will have it: in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from arena.cli.doctor.finding import Answer, Finding, ask, ok, problem, python, warning
from arena.run import mpirun

_TORCH = """
import json, torch
seen = torch.cuda.is_available()
names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if seen else []
told = {"version": torch.__version__, "threads": torch.get_num_threads(), "built": torch.version.cuda, "gpus": names}
print(json.dumps(told))
"""
_SECONDS = 120.0  # from a cold network file system, torch takes its time
_NVIDIA = Path("/dev/nvidiactl")


@cache
def _asked() -> Answer:
    return ask(python(_TORCH), seconds=_SECONDS, settings=mpirun.process_settings(os.environ))


def _told() -> dict[str, Any]:
    """What torch says of itself; empty where it cannot be imported."""
    answer = _asked()
    told: dict[str, Any] = json.loads(answer.out.splitlines()[-1]) if answer.code == 0 else {}
    return told


def torch() -> Iterator[Finding]:
    """Whether it can be imported, and how many threads it computes with."""
    told = _told()
    if told:
        yield threads_finding(told["version"], told["threads"], os.environ)
    else:
        remedy = "reinstall it: see pytorch.org; `random` and `scripted` policies work without it"
        yield problem("torch", f"cannot be imported: {_asked().last_line}", remedy)


def threads_finding(version: str, threads: int, settings: Mapping[str, str]) -> Finding:
    """Many processes share the cores: one thread in each is what serves them."""
    words = f"{version}, {threads} thread{'s' * (threads > 1)} in each process"
    if threads == 1:
        return ok("torch", words)
    said = settings.get("OMP_NUM_THREADS")
    remedy = "unset OMP_NUM_THREADS" if said else "export OMP_NUM_THREADS=1"
    return warning("torch", words, f"{remedy}: processes with several threads get into each other's way")


def gpu() -> Iterator[Finding]:
    """What `device: cuda` would find."""
    told = _told()
    if told:
        yield gpu_finding(told["gpus"], told["built"], there=_NVIDIA.exists())


def gpu_finding(names: list[str], built: str | None, *, there: bool) -> Finding:
    """What torch sees, against what the system has.

    Args:
        names: of the GPUs that torch sees.
        built: the version of CUDA that torch was built for, None: for none.
        there: whether the system has NVIDIA's driver.
    """
    if names:
        return ok("GPU", ", ".join(names))
    if there:
        found = f"torch sees none (built for CUDA {built})" if built else "torch sees none: it was built without CUDA"
        return warning("GPU", found, "install the torch of your driver's CUDA: see pytorch.org")
    return ok("GPU", "none; policies learn on the CPU")
