"""Python and the packages: are they there, in versions that were tested?"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata

from arena.cli.doctor.finding import Finding, ok, problem, warning
from arena.registry import hidden_packages

PYTHONS = ((3, 10), (3, 14))  # from, to below
PACKAGES = {  # from, to below
    "mpi4py": ("4.0", "5"),
    "numpy": ("1.26", "3"),
    "gymnasium": ("1.1", "2"),
    "pettingzoo": ("1.24", "2"),
    "torch": ("2.4", "3"),
    "pyyaml": ("6.0", "7"),
    "msgspec": ("0.20", "1"),
    "rich": ("13", "16"),
    "scipy": ("1.11", "2"),
    "networkx": ("3", "4"),
    "plotly": ("6", "8"),
    "jinja2": ("3.1", "4"),
}


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """The interpreter's version."""
    words = f"{'.'.join(map(str, version))} ({sys.executable})"
    least, below = PYTHONS
    if version < least:
        yield problem("Python", words, "the arena needs 3.10 or newer")
    elif version >= below:
        yield warning("Python", words, "not tested; 3.10 to 3.13 are")
    else:
        yield ok("Python", words)


def packages() -> Iterator[Finding]:
    """Every package that the arena needs."""
    for name, (least, below) in PACKAGES.items():
        remedy = f"pip install '{name}>={least},<{below}'"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield problem(name, "is not installed", remedy)
            continue
        if _numbers(least) <= _numbers(version) < _numbers(below):
            yield ok(name, version)
        else:
            yield warning(name, f"{version} is not a tested version", remedy)


def own_packages() -> Iterator[Finding]:
    """The packages that are installed beside `arena`: does another one of the same name hide them?"""
    lines = hidden_packages()
    yield from (problem("packages of the arena", line) for line in lines)
    if not lines:
        yield ok("packages of the arena", "arena, envs and policies are of one installation")


def _numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0)."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
