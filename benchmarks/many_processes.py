"""Many processes on few cores: a round robin of four random policies, two against two, as 6, 31 and 151 processes.

6 processes are one match; 31 are each pair of the four policies once; 151 are each pair in five copies. The arena and
the protocol of 2022 play the same game with the same kind of random players.

A rate is the ticks of all matches together per second, over the period in which all matches are played, by the games'
own clocks; the times of starting and ending are given apart. Memory is measured in a separate run before the others,
because sampling it costs time; the memory of all processes is the sum of their proportional shares.

Roles that share a process: the same round robin in a game without work, as 301, 3,001 and 10,021 roles on two
processes. The memory of a role is what 10,021 roles take more than 301, by the sum of the proportional shares.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import runs
from harness import Case, Measured, Report, Sample, Settings, Summary, interleave, main, method, say

POLICIES = ("red", "blue", "green", "yellow")
GAME, KWARGS = "envs.touchdown:Touchdown", {"team_size": 2}
EVERY = 5  # ticks between two stamps
MIB = 2**20


class Size(NamedTuple):
    """A round robin: each pair of the first `policies`, in several copies."""

    policies: int
    copies: int
    ticks: int  # of every match of the arena
    seconds: float  # of the protocol of 2022

    @property
    def matches(self) -> list[list[str]]:
        """The policies of the seats of every match."""
        pairs = combinations(POLICIES[: self.policies], 2)
        return [[first] * 2 + [second] * 2 for first, second in pairs for _ in range(self.copies)]

    @property
    def processes(self) -> int:
        return 1 + 5 * len(self.matches)


SHARED = (Size(4, 10, 1_500, 0), Size(4, 100, 150, 0), Size(4, 334, 40, 0))
SHARED_QUICK = (Size(4, 1, 300, 0), Size(4, 2, 150, 0))
EMPTY = {"shape": [8]}  # the observation in touchdown, two against two

USUAL = (Size(2, 1, 30_000, 4), Size(4, 1, 10_000, 6), Size(4, 5, 2_500, 12))
QUICK = (Size(2, 1, 1_500, 0.5), Size(2, 2, 700, 0.5))


def config(size: Size, game: str = GAME, kwargs: Mapping[str, Any] = KWARGS) -> dict[str, Any]:
    """The round robin as a configuration."""
    names = POLICIES[: size.policies]
    entry = {"env": "touchdown", "policies": list(names), "team_size": 2, "copies": size.copies}
    return {
        "name": "many",
        "ticks": size.ticks,
        "envs": {"touchdown": runs.clocked(game, kwargs, every=EVERY)},
        "policies": {name: {"algorithm": "random"} for name in names},
        "matches": [{"round_robin": entry}],
    }


def arena(size: Size) -> Sample:
    """One run of the arena."""
    with runs.arena(config(size), every=1.0, timeout=900) as run:
        return sample(run)


def shared(size: Size) -> Sample:
    """One run of the arena on two processes, in a game without work."""
    with runs.arena(config(size, "games:Empty", EMPTY), ranks=2, every=1.0, timeout=900) as run:
        return sample(run)


def shared_memory(size: Size) -> Sample:
    """Memory of the processes of such a run, in MiB."""
    ticks = min(size.ticks, 200_000 // size.processes)  # a run of few roles has to last until it is looked at
    given = config(size._replace(ticks=ticks), "games:Empty", EMPTY)
    with runs.arena(given, ranks=2, memory=True, every=1.0, timeout=900) as run:
        return {"MiB of all processes": sum(usage.peak_share for usage in run.finished.processes.values()) / MIB}


def old(size: Size) -> Sample:
    """One run of the protocol of 2022."""
    told = {"matches": size.matches, "game": GAME, "kwargs": KWARGS, "lanes": 1, "random": True, "every": 1}
    with runs.program(
        "protocol_2022.py", {**told, "seconds": size.seconds}, ranks=size.processes, every=1.0, timeout=900
    ) as run:
        return sample(run)


def sample(run: runs.Run) -> Sample:
    """Speed, and the cost of starting and ending, of a run that has ended with exit status 0."""
    window = run.window
    return {
        "match ticks per s": window.rate,
        "CPU us per match tick": 1e6 * run.finished.cpu_between(window.begin, window.end) / window.count,
        "s to the first tick of all": run.first,
        "s in all": run.finished.wall,
        "CPU s in all": run.finished.cpu,
    }


def memory(size: Size, ticks: int) -> Sample:
    """Unshared memory of the arena's processes, in MiB."""
    with runs.arena(config(size._replace(ticks=ticks)), memory=True, every=2.0, timeout=900) as run:
        peaks = {role: [run.finished.peak_of_rank(rank) / MIB for rank in run.ranks(role)] for role in ROLES}
        total = sum(usage.peak_share for usage in run.finished.processes.values())
    figures = {f"MiB of a {role}, largest": max(found) for role, found in peaks.items()}
    figures |= {f"MiB of a {role}, median": statistics.median(found) for role, found in peaks.items()}
    return {**figures, "MiB of all processes": total / MIB}


ROLES = ("root", "environment", "worker")


def benchmark(settings: Settings) -> Report:
    """Measures memory, then speed."""
    sizes = settings.pick(USUAL, QUICK)
    largest = sizes[-1]
    looked = interleave(
        [Case(name_of("memory", largest), partial(memory, largest, settings.pick(400, 100)))], 1, say=say
    )
    cases = [
        Case(name_of(name, size), partial(measure, size))
        for size in sizes
        for name, measure in (("arena", arena), ("2022", old))
    ]
    several = settings.pick(SHARED, SHARED_QUICK)
    cases += [Case(roles_of(size), partial(shared, size)) for size in several]
    measured = interleave(cases, settings.repeats, say=say)
    measured.samples.update(looked.samples)
    ends = (several[0], several[-1])
    few, many = (Case(f"memory, {roles_of(size)}", partial(shared_memory, size)) for size in ends)
    measured.samples.update(interleave([few, many], 1, say=say).samples)
    report = Report("many_processes", "Many processes on few cores", measured, method(__doc__))
    add_promises(report, measured, sizes)
    add_promises_of_shared(report, measured, several)
    return report


def roles_of(size: Size) -> str:
    """The name of a case with two processes."""
    return f"{size.processes} roles on 2 processes"


def name_of(what: str, size: Size) -> str:
    """The name of a case."""
    return f"{what}, {size.processes} processes"


def add_promises(report: Report, measured: Measured, sizes: tuple[Size, ...]) -> None:
    """Adds promises of the largest size, and of all sizes relative to the smallest."""
    smallest, largest = sizes[0], sizes[-1]
    rate = "match ticks per s"
    better = measured.ratio((name_of("arena", largest), rate), (name_of("2022", largest), rate))
    report.at_least(f"{largest.processes} processes: match ticks/s, arena / protocol of 2022", better, 50)
    for size in sizes[1:]:
        kept = measured.ratio((name_of("arena", size), rate), (name_of("arena", smallest), rate))
        report.at_least(f"match ticks/s, {size.processes} processes / {smallest.processes} processes", kept, 0.6)
    case = name_of("memory", largest)
    total = measured.summary(case, "MiB of all processes")
    report.at_most(
        f"GiB of memory of all {largest.processes} processes, shared parts counted once", scaled(total, 1 / 1024), 16
    )
    for role in ROLES[1:]:
        size_of = measured.summary(case, f"MiB of a {role}, largest")
        report.at_most(f"MB of unshared memory, largest {role}", scaled(size_of, MIB / 1e6), 60)


def add_promises_of_shared(report: Report, measured: Measured, sizes: tuple[Size, ...]) -> None:
    """Adds promises of roles that share a process: the rate of the second size, start and memory of the last one."""
    few, more, most = sizes[0], sizes[1], sizes[-1]
    rate = "match ticks per s"
    kept = measured.ratio((roles_of(more), rate), (roles_of(few), rate))
    report.at_least(f"match ticks/s, {roles_of(more)} / {few.processes} roles", kept, 0.6)
    report.at_most(
        f"s to the first tick of all, {roles_of(most)}",
        measured.summary(roles_of(most), "s to the first tick of all"),
        30,
    )
    total = {size: measured.summary(f"memory, {roles_of(size)}", "MiB of all processes") for size in (few, most)}
    per_role = [
        (large - small) * MIB / 1e3 / (most.processes - few.processes)
        for large, small in zip(total[most].values, total[few].values, strict=True)
    ]
    report.at_most(f"kB of memory per role, {roles_of(most)}", Summary(tuple(per_role)), 100)


def scaled(summary: Summary, factor: float) -> Summary:
    """The same figure in another unit."""
    return Summary(tuple(value * factor for value in summary.values))


if __name__ == "__main__":
    sys.exit(main(benchmark))
