"""External games: how long a game waits for an action, what silence costs, and what the table of games costs.

`pipes` is the round trip of a byte through two pipes between two processes. `thread`, `client` and `http` are runs of
three processes in which one game asks a `random` policy for actions, in a thread, by `PolicyClient`, and over HTTP with
the actor `raw`; the figure is the median time from a request to its action, over 2,000 requests after 200 others. `1
slot` and `64 slots` are the same over threads with `ppo`. `silent` is a run with no game at all: the CPU share of
environment and worker together. `table` is one request of a game with 128 numbers, and one of 64 games at once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

import runs
from arena.external import Ask, Slots
from arena.game import Interface
from external_clients import ENTITIES, WARM
from harness import HERE, Case, Report, Sample, Settings, interleave, main, method, say

REQUESTS = 2_000


def config(env: dict[str, Any], ticks: int, *, slots: int = 1, algorithm: str = "random") -> dict[str, Any]:
    """A run of one match of external games."""
    options = {"options": {"n_steps": 64}} if algorithm == "ppo" else {}
    return {
        "name": "external",
        "ticks": ticks,
        "envs": {"live": {**env, "external": {"max_delay_s": 0.0, "idle_tick_s": 0.5}}},
        "policies": {"blue": {"algorithm": algorithm, **options}},
        "matches": [{"env": "live", "seats": ["blue"], "lanes": slots}],
    }


def median(path: Path) -> float:
    """The median of the noted microseconds."""
    return statistics.median(json.loads(path.read_text()))


def echo(reading: int, writing: int) -> None:
    """Sends each byte back, until there are no more."""
    while byte := os.read(reading, 1):
        os.write(writing, byte)


def pipes(requests: int) -> Sample:
    """A byte through two pipes."""
    there, back = os.pipe(), os.pipe()
    child = multiprocessing.get_context("fork").Process(target=echo, args=(there[0], back[1]), daemon=True)
    child.start()
    waits = []
    for _ in range(WARM + requests):
        begin = time.perf_counter()
        os.write(there[1], b"x")
        os.read(back[0], 1)
        waits.append((time.perf_counter() - begin) * 1e6)
    child.terminate()
    child.join()
    for end in (*there, *back):
        os.close(end)
    return {"us": statistics.median(waits[WARM:])}


def thread(requests: int, *, slots: int = 1, algorithm: str = "random") -> Sample:
    """One game in a thread of the environment."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        waits = Path(folder) / "waits"
        env = {"make": "external_clients:Asking", "kwargs": {"requests": requests, "waits": str(waits)}}
        with runs.arena(config(env, requests + WARM, slots=slots, algorithm=algorithm), ranks=3):
            return {"us": median(waits)}


def client(kind: str, requests: int) -> Sample:
    """One game in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        waits = Path(folder) / "waits"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        address, kwargs = f"127.0.0.1:{port}", {"port": port, "actor": "raw" if kind == "http" else "json"}
        command = [sys.executable, str(HERE / "external_clients.py"), kind, address, str(requests), str(waits)]
        process = subprocess.Popen(command, env=runs.environment())
        try:
            env = {"make": "http", "kwargs": {**kwargs, "entities": ENTITIES}}
            with runs.arena(config(env, requests + WARM + 1), ranks=3):
                process.wait(60)
                return {"us": median(waits)}
        finally:
            process.kill()
            process.wait()


def silent(seconds: float) -> Sample:
    """No client connects: an empty tick every half second."""
    env = {"make": "external_clients:Asking", "kwargs": {"requests": 0}}
    with runs.arena(config(env, int(seconds * 2)), ranks=3) as run:
        times = [run.finished.of_rank(rank) for role in ("environment", "worker") for rank in run.ranks(role)]
        end = run.finished.begun + run.finished.wall - 2.0
        begin = end - seconds / 2
        used = sum(usage.cpu(begin, end) for usages in times for usage in usages)
        return {"% of a core": 100 * used / (end - begin)}


def table(repeats: int) -> Sample:
    """`Slots.ask` of 128 numbers and `Slots.ask_rows` of 64 games."""
    interface = Interface(("agent",), (Box(-1.0, 1.0, (128,), np.float32),), (Discrete(4),), (0,))
    slots, actions = Slots(interface, 64), [np.zeros(64, np.int64)]
    rows, seen = np.arange(64), np.zeros((64, 128), np.float32)
    for number in range(64):
        slots.begin(str(number))
    one, many = [], []
    for repeat in range(repeats):
        if repeat % 2:
            begin = time.perf_counter()
            slots.ask_rows(rows, 0, seen, rewards=np.zeros(64))
            many.append((time.perf_counter() - begin) * 1e6)
        else:
            for row in rows:
                begin = time.perf_counter()
                slots.ask(row, {0: Ask(seen[row])})
                one.append((time.perf_counter() - begin) * 1e6)
        slots.form(at_once=True)
        slots.answers(actions)
    return {"us of one": statistics.median(one), "us of 64 rows": statistics.median(many)}


def benchmark(settings: Settings) -> Report:
    """Measures all of it in turns."""
    requests = settings.pick(REQUESTS, 200)
    cases = [
        Case("pipes", partial(pipes, requests)),
        Case("thread", partial(thread, requests)),
        Case("client", partial(client, "client", requests)),
        Case("http", partial(client, "http", requests)),
        Case("1 slot", partial(thread, requests, algorithm="ppo")),
        Case("64 slots", partial(thread, requests, slots=64, algorithm="ppo")),
        Case("silent", partial(silent, settings.pick(20.0, 6.0))),
        Case("table", partial(table, settings.pick(2_000, 100))),
    ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("external_games", "External games", measured, method(__doc__))
    for kind, limit in (("thread", 20), ("client", 100), ("http", 60)):
        found = measured.ratio((kind, "us"), ("pipes", "us"))
        report.at_most(f"one game, random: {kind} / a byte through two pipes", found, limit)
    report.at_most("one game, ppo: 64 slots / 1 slot", measured.ratio(("64 slots", "us"), ("1 slot", "us")), 1.5)
    found = measured.summary("silent", "% of a core")
    report.at_most("no game: environment and worker, % of a core", found, 2)
    report.at_most("Slots.ask of 128 numbers, us", measured.summary("table", "us of one"), 10)
    report.at_most("Slots.ask_rows of 64, us", measured.summary("table", "us of 64 rows"), 40)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
