"""Python and the packages: are they there, in the versions that the arena's distribution declares as tested?"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from arena.cli.doctor.finding import Finding, ok, problem, warning
from arena.registry import hidden_packages

DISTRIBUTION = "mpi-policy-arena"


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """The interpreter's version."""
    number = ".".join(map(str, version))
    words = f"{number} ({sys.executable})"
    tested = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    if SpecifierSet(tested).contains(number):
        yield ok("Python", words)
    elif SpecifierSet(re.sub("<[^,]*", "", tested).strip(",")).contains(number):
        yield warning("Python", words, f"not tested; {tested} is")
    else:
        yield problem("Python", words, f"the arena needs {tested}")


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


def own_packages() -> Iterator[Finding]:
    """The packages that are installed beside `arena`: does another one of the same name hide them?"""
    lines = hidden_packages()
    yield from (problem("packages of the arena", line) for line in lines)
    if not lines:
        yield ok("packages of the arena", "arena, envs and policies are of one installation")
