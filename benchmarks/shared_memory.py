"""External simulators that share a file: a hand-over alone, many at once, and through a whole run.

The simulator is a C program (`link_peer.c`) that offers its core 2,000 times and then sleeps. `link` is `Driver.step`
with 64 bytes of actions. `bare` is a loop in Python over the same program that does nothing but store 64 bytes, hand
over the turn, wait with the same yields and sleeps, and read and copy the payload. `grpc` is a unary call with the
same bytes between two Python processes. Figures of these are median times of a step.

`8 links` are eight processes, each with a driver and a simulator that takes 200 us of processor time per step; `8
alone` are the same eight programs without a link. `waiting` is the processor time of a driver whose simulator
computes. `100,000 hand-overs` is a driver with 4 agents: growth of memory and of open files. `few rows` are 4 agents
of 64 numbers among at most 4,096, and among at most 4.

`arena, link` is a run with `random` and one simulator in which 16 agents ask at once: the time from the simulator's
give to its next turn. `arena, threads` are 16 games of the kind `thread`: the time of `get_action`. `ppo, link` are 4
simulators with 8 agents each that compute 1 ms per step; `ppo, in process` is a game in the environment's process
with 32 lanes whose tick computes 1 ms for every 8 lanes. The figure is samples per second.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import runs
from arena.external.shared_memory import Driver
from arena.external.shared_memory.link_file import TurnWait
from harness import HERE, Case, Report, Sample, Settings, Unavailable, interleave, main, method, say

PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
_WARM = 100  # steps that are not counted
_SIZES = {"1 KB": 256, "100 KB": 25_600, "1 MB": 262_144}  # numbers of an observation
_ACTIONS = np.zeros((1, 16), np.float32)  # 64 bytes
_LINKS, _WORK_US = 8, 200
_TURN, _COMMAND = 8, 9  # offsets in the file


@cache
def peer() -> str:
    """The compiled simulator."""
    folder = tempfile.mkdtemp(prefix="bench-")
    program = f"{folder}/link_peer"
    subprocess.run(["cc", "-std=c99", "-O2", "-o", program, str(HERE / "link_peer.c")], check=True)
    return program


def median_us(times: list[float]) -> float:
    """Median time of a step in microseconds, without the first ones."""
    return 1e6 * statistics.median(times[_WARM:])


@contextlib.contextmanager
def driver(**options: Any) -> Iterator[Driver]:
    """A driver whose simulator has handed over once."""
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    with Driver([peer(), *words], step_s=60.0) as link:
        link.reset()
        yield link


def link(floats: int, steps: int) -> Sample:
    """Steps of a driver."""
    with driver(floats=floats) as one:
        return {"us": median_us(timed_steps(one, steps))}


def timed_steps(one: Driver, steps: int, rows: int = 1) -> list[float]:
    """Seconds of each of `steps` steps."""
    times, actions = [], {"agent": np.zeros((rows, 16), np.float32)}
    for _ in range(_WARM + steps):
        begin = time.perf_counter()
        one.step(actions)
        times.append(time.perf_counter() - begin)
    return times


def bare(floats: int, steps: int) -> Sample:
    """The same program without the driver, after its first hand-over."""
    with driver(floats=floats) as one:
        payload_at, actions_at = one.offset_of("agent", "observation 0", 0), one.offset_of("agent", "action", 0)
        file, data, times = os.open(one.path, os.O_RDWR), _ACTIONS.tobytes(), []
        for _ in range(_WARM + steps):
            begin = time.perf_counter()
            os.pwrite(file, data, actions_at)
            os.pwrite(file, b"\1\0", _TURN)
            wait = TurnWait()
            while os.pread(file, 1, _TURN) != b"\0":
                wait.pause()
            np.frombuffer(os.pread(file, 4 * floats, payload_at), np.float32).copy()
            times.append(time.perf_counter() - begin)
        os.close(file)
        return {"us": median_us(times)}


def grpc(floats: int, calls: int) -> Sample:
    """The same bytes over gRPC."""
    if not PEERS.exists():
        raise Unavailable("`make bench-peers` installs grpcio")
    command = [str(PEERS), str(HERE / "peer_grpc.py"), str(4 * floats), str(calls)]
    return {"us": float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)}


def one_of_many(seconds: float, results: Any) -> None:
    """A driver and its simulator, for so many seconds."""
    with driver(work_us=_WORK_US) as one:
        times, actions, end = [], {"agent": _ACTIONS}, time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            one.step(actions)
            times.append(time.perf_counter() - begin)
    results.put(times)


def links(seconds: float) -> Sample:
    """Eight drivers and their simulators at once."""
    peer()  # compiled once, before the processes are forked
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=one_of_many, args=(seconds, results)) for _ in range(_LINKS)]
    for process in processes:
        process.start()
    times = [results.get() for _ in processes]
    for process in processes:
        process.join()
    together = np.concatenate(times)
    return {"steps/s": len(together) / seconds, "p99 ms": 1e3 * float(np.percentile(together, 99))}


def alone(seconds: float) -> Sample:
    """The eight programs without a link."""
    command = [peer(), "--alone", str(seconds), "--work-us", str(_WORK_US)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(_LINKS)]
    found = [process.communicate()[0].split() for process in processes]
    steps, p99_us = sum(int(one[0]) for one in found), max(float(one[1]) for one in found)
    return {"steps/s": steps / seconds, "p99 ms": p99_us / 1e3}


def waiting(seconds: float) -> Sample:
    """A driver whose simulator computes for so long."""
    with driver(work_us=int(1e6 * seconds)) as one:
        begin, cpu = time.perf_counter(), time.process_time()
        one.step({"agent": _ACTIONS})
        return {"% of a core": 100 * (time.process_time() - cpu) / (time.perf_counter() - begin)}


def many_handovers(number: int) -> Sample:
    """What a long link leaves behind."""
    with driver(agents=4, rows=4) as one:
        actions = {"agent": np.zeros((4, 16), np.float32)}
        for _ in range(1000):
            one.step(actions)
        before, files = resident(), len(os.listdir("/proc/self/fd"))
        for _ in range(number):
            one.step(actions)
        return {"MB more": (resident() - before) / 2**20, "files more": len(os.listdir("/proc/self/fd")) - files}


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def few_rows(most: int, steps: int) -> Sample:
    """4 agents of 64 numbers among at most `most`."""
    with driver(agents=most, rows=4, floats=64) as one:
        return {"us": median_us(timed_steps(one, steps, 4))}


def config(env: dict[str, Any], ticks: int, lanes: int, algorithm: str) -> dict[str, Any]:
    """A run of one match."""
    options = {"options": {"n_steps": 64}} if algorithm == "ppo" else {}
    return {
        "name": "links",
        "ticks": ticks,
        "envs": {"world": env},
        "policies": {"blue": {"algorithm": algorithm, **options}},
        "matches": [{"env": "world", "seats": ["blue"], "lanes": lanes}],
    }


def simulators(number: int, agents: int, **options: Any) -> dict[str, Any]:
    """The environment of `number` simulators."""
    given = {"agents": agents, "rows": agents, "floats": 8, "actions": 2, **options}
    command = [peer(), *(word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value)))]
    groups = {"agent": {"agents": agents, "observations": [[8]], "continuous": 2}}
    return {"make": "shared_memory", "kwargs": {"command": command, "simulators": number, "groups": groups}}


def arena_link(ticks: int) -> Sample:
    """One simulator, 16 agents, `random`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        notes = Path(folder) / "notes"
        with runs.arena(config(simulators(1, 16, notes=notes), ticks, 16, "random"), ranks=3):
            return {"us": float(notes.read_text())}


def arena_threads(requests: int) -> Sample:
    """16 games in threads, `random`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        waits = Path(folder) / "waits"
        env = {"make": "external_clients:AskingTogether", "kwargs": {"requests": requests, "waits": str(waits)}}
        with runs.arena(config(env, requests + _WARM, 16, "random"), ranks=3):
            return {"us": float(waits.read_text())}


def ppo(env: dict[str, Any], ticks: int) -> Sample:
    """32 lanes of samples, over the time of the updates in the run's metrics."""
    with runs.arena(config(env, ticks, 32, "ppo"), ranks=3) as run:
        updates = runs.lines_of(run.folder / "metrics.jsonl")
        first, last = updates[0], updates[-1]
        return {"samples/s": 32 * (last["ticks"] - first["ticks"]) / (last["seconds"] - first["seconds"])}


def benchmark(settings: Settings) -> Report:
    """Measures all of it in turns."""
    steps, ticks = settings.pick(2_000, 200), settings.pick(3_000, 400)
    seconds = settings.pick(4.0, 1.0)
    cases = [
        *(
            Case(f"{kind}, {size}", partial(measure, floats, min(steps, 200_000_000 // floats)))
            for size, floats in _SIZES.items()
            for kind, measure in (("bare", bare), ("link", link), ("grpc", grpc))
        ),
        Case("8 links", partial(links, seconds)),
        Case("8 alone", partial(alone, seconds)),
        Case("waiting", partial(waiting, settings.pick(5.0, 1.0))),
        Case("100,000 hand-overs", partial(many_handovers, settings.pick(100_000, 2_000))),
        Case("few rows, at most 4", partial(few_rows, 4, steps)),
        Case("few rows, at most 4,096", partial(few_rows, 4096, steps)),
        Case("arena, link", partial(arena_link, ticks)),
        Case("arena, threads", partial(arena_threads, ticks)),
        Case("ppo, link", partial(ppo, simulators(4, 8, work_us=1000), settings.pick(1500, 256))),
        Case("ppo, in process", partial(ppo, {"make": "games:Computing", "kwargs": {}}, settings.pick(1500, 256))),
    ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("shared_memory", "External simulators by shared memory", measured, method(__doc__))
    report.at_least("1 KB: gRPC / link", measured.ratio(("grpc, 1 KB", "us"), ("link, 1 KB", "us")), 5)
    for size, limit in (("1 KB", 8), ("100 KB", 2), ("1 MB", 1.6)):
        found = measured.ratio((f"link, {size}", "us"), (f"bare, {size}", "us"))
        report.at_most(f"{size}: link / bare", found, limit)
    report.at_least("8 links / 8 alone, steps/s", measured.ratio(("8 links", "steps/s"), ("8 alone", "steps/s")), 0.25)
    report.at_most(
        "8 links: 99th percentile / the larger of 50 ms and twice that of 8 alone",
        measured.each(
            lambda of: of("8 links", "p99 ms") / max(50.0, 2 * of("8 alone", "p99 ms")), ["8 links", "8 alone"]
        ),
        1,
    )
    report.at_most("a driver that waits, % of a core", measured.summary("waiting", "% of a core"), 2)
    report.at_most("100,000 hand-overs: MB more", measured.summary("100,000 hand-overs", "MB more"), 1)
    report.at_most("100,000 hand-overs: open files more", measured.summary("100,000 hand-overs", "files more"), 0)
    found = measured.ratio(("few rows, at most 4,096", "us"), ("few rows, at most 4", "us"))
    report.at_most("4 rows: of at most 4,096 / of at most 4", found, 2)
    report.at_most(
        "16 agents, random: link / threads", measured.ratio(("arena, link", "us"), ("arena, threads", "us")), 1.5
    )
    found = measured.ratio(("ppo, link", "samples/s"), ("ppo, in process", "samples/s"))
    report.at_least("ppo, samples/s: 4 simulators / in process", found, 0.7)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
