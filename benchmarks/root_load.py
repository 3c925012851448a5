"""The root's share of a core in runs of up to 100,000 matches on 1,000 hosts.

A simulation: the root, its recorder, results, scoreboard and watchdog are those of a run; the matches are not. Each
match plays 100 ticks a second and ends an episode of two seats every ten seconds. It reports four times a second (less
often where the arena does) to the reports of its rank, and these go to the root as the bytes that travel; both are made
beforehand. The root takes each message at its time, so its shares hold what it does per second, but not what MPI needs
to receive a message. As many ranks as the name says host environments, each the same number of matches with their
workers.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any, NamedTuple

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.records.folder import RunFolder
from arena.records.iterations import Steps
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.recorder import Recorder
from arena.records.results import RunResults
from arena.roles.environment.reports import Reports
from arena.roles.protocol import Done, Ready, report_seconds
from arena.roles.root.root import Root
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.terminal.display import silent_display
from arena.transport import Tag
from arena.transport.pickling import pack
from harness import Case, Report, Sample, Settings, interleave, main, method, say

SPEED, EPISODE = 100, 1_000  # ticks per second; ticks of an episode
FIRST = 2.0  # seconds of the beginning that are not measured


class Size(NamedTuple):
    """So many matches on so many ranks."""

    matches: int
    ranks: int
    seconds: float


class Messages:
    """The endpoint of a root to which all messages come at their times."""

    address = 0

    def __init__(self, run: Run, size: Size) -> None:
        self.size = len(run.roles)
        self._run = run
        self._seconds = size.seconds
        self.reports, self.reporting = _reports(run, size.seconds)
        self._times = self._all()
        self._next: tuple[float, int, bytes] | None = next(self._times)
        self.began = 0.0
        self.cpu: list[float] = []  # the CPU time at the beginning and the end of the measured seconds
        self.messages = 0

    def _all(self) -> Iterator[tuple[float, int, bytes]]:
        """Time, source and bytes of each message; those of the start and the end are due at once."""
        others = [role for role in self._run.roles if role.kind is not RoleKind.ROOT]
        for role in others:
            yield 0.0, self._run.address(role), pack(Ready(role))
        yield from self.reports
        for role in others:
            yield self._seconds, self._run.address(role), pack(Done(role, self._run.plan.ticks))

    def listen(self, source: int, tag: Tag, seconds: float) -> tuple[int, bytes] | None:
        """The next message, at its time; None if it is not due within `seconds`."""
        assert self._next is not None
        due, sender, data = self._next
        now = time.perf_counter()
        if due and not self.began:
            self.began = now
        wait = self.began + due - now if due else 0.0
        if wait > 0:
            time.sleep(min(wait, seconds))
            if wait > seconds:
                return None
        if due >= (FIRST, self._seconds, math.inf)[len(self.cpu)]:
            self.cpu.append(time.process_time())
        self.messages += len(self.cpu) == 1
        self._next = next(self._times, None)
        return sender, data

    def process(self, address: int) -> None:
        """Unknown."""

    def on_order(self, *_: Any) -> None:
        """The simulated roles answer none."""

    def order(self, *_: Any) -> None:
        """The same."""

    def send(self, *_: Any) -> None:
        """The same."""


def _reports(run: Run, seconds: float) -> tuple[list[tuple[float, int, bytes]], float]:
    """All messages of the ranks, in the order of their times; and the CPU us of a match's report at its rank."""
    chance, every = random.Random(1), report_seconds(run.plan)
    ranks, due = {}, []
    for match in run.plan.matches:
        rank = run.plan.rank_of(Role(RoleKind.ENVIRONMENT, match.match))
        reports = ranks.setdefault(rank, Reports(rank))
        reports.begin(match.match, 0)
        due.append((chance.random() * every, match.match, reports, chance.randrange(EPISODE), 0))
    heapify(due)
    found, count, began = [], 0, time.process_time()
    while due[0][0] < seconds:
        now, match, reports, left, tick = due[0]
        reached = max(tick + 1, int(SPEED * now))
        first = tick + 1 + -(tick + 1 + left) % EPISODE
        ended = [_episode(match, one) for one in range(first, reached + 1, EPISODE)]
        reports.add(match, reached, ended, {}, last=False)
        if now - reports.taken_at >= every:
            address = run.address(Role(RoleKind.ENVIRONMENT, match))
            found.append((now, address, pack(reports.take(now))))
        count += 1
        heapreplace(due, (now + every, match, reports, left, reached))
    used = 1e6 * (time.process_time() - began) / count
    for reports in ranks.values():  # the end of the leg
        match = next(iter(reports._playing))
        for one in list(reports._playing):
            reports.add(one, run.plan.ticks, [], {}, last=True)
        found.append((seconds, run.address(Role(RoleKind.ENVIRONMENT, match)), pack(reports.take(seconds))))
    return found, used


def _episode(match: int, tick: int) -> EpisodeRecord:
    seats = (SeatRecord("blue", (0,), 1.0, "win"), SeatRecord("red", (1,), -1.0, "loss"))
    return EpisodeRecord(0, match, "game", 0, tick // EPISODE, tick, EPISODE, True, False, seats)


def measure(size: Size) -> Sample:
    """The root of one simulated run."""
    config = {
        "name": "root_load",
        "ticks": int(SPEED * size.seconds) + SPEED,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {name: {"algorithm": "random"} for name in ("blue", "red")},
        "matches": [{"env": "game", "seats": ["blue", "red"], "copies": size.matches}],
    }
    began = time.process_time()
    plan = make_plan(parse_config(config, source="root_load"), ranks=size.ranks)
    planned = time.process_time() - began
    with tempfile.TemporaryDirectory() as path:
        run = Run(plan, RunFolder.open(Path(path) / "run").path)
        results = RunResults(run.folder, plan, tick=0, steps_at=lambda tick: Steps(tick, 2 * tick))
        endpoint: Any = Messages(run, size)
        root = Root(endpoint, run, silent_display(), RunState(results=results))
        root.wait_until_ready()
        with Recorder(run.folder, run.first_ticks, results=results, scalars=False) as recorder:
            root.record(recorder)
        lines = run.folder.episodes.read_bytes().count(b"\n")
    watched, used = size.seconds - FIRST, endpoint.cpu[1] - endpoint.cpu[0]
    return {
        "root, % of a core": 100 * used / watched,
        "us of the root per message": 1e6 * used / endpoint.messages,
        "messages per s": endpoint.messages / watched,
        "s between two messages of a rank": report_seconds(plan),
        "episodes per s": lines / size.seconds,
        "us of a rank per report of a match": endpoint.reporting,
        "CPU s of the plan": planned,
    }


def benchmark(settings: Settings) -> Report:
    """Measures runs of more and more matches."""
    seconds = settings.pick(16.0, 3.0)
    sizes = {
        "3,000 matches, each on a rank": Size(3_000, 3_000, seconds),
        "3,000 matches on 30 ranks": Size(3_000, 30, seconds),
        "100,000 matches on 1,000 ranks": Size(100_000, 1_000, seconds),
        "100,000 matches on 16,000 ranks": Size(100_000, 16_000, 2 * seconds),
    }
    if settings.quick:
        sizes = {"300 matches on 30 ranks": Size(300, 30, seconds)}
    measured = interleave(
        [Case(name, partial(measure, size)) for name, size in sizes.items()], settings.repeats, say=say
    )
    report = Report("root_load", "The root of many matches", measured, method(__doc__))
    for name, size in sizes.items():
        if size.matches == 3_000:
            report.at_most(
                f"{name}: CPU share of the root, % of a core", measured.summary(name, "root, % of a core"), 20
            )
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
