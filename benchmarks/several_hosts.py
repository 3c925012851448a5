"""Ticks between two hosts: a match whose environment is on one host and whose two workers are on the other.

The hosts are namespaces of this machine. Between them is a network that takes 1 ms one way, which a process of its own
stands in for, or one without delay. The game has no work, and its players always play action 0.

A round trip is that of one byte over a TCP connection between the same hosts. A tick cannot take less: the environment
steps when all actions have come. With `pipeline: 2` each half of the lanes takes a round trip, and both are under way
at once; `steps/s` counts the steps of the halves, which have as many lanes as the whole match without it.

Rates are of the median time from one step to the next, in the process of the game.

Within a host, `transport: mpi` plays the same match over MPI's shared memory.

`messages` are those of a tick alone: an MPI program in which three processes send as many bytes with persistent
requests and wait in MPI, which spins. What TCP makes them longer is the least that it adds to a tick within a host.
"""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import yaml

import harness
import runs
import stamps
from arena.plan.hosts import Host
from arena.run import mpirun
from harness import Case, Report, Sample, Settings, interleave, main, method, say

sys.path.append(str(harness.HERE.parent / "tests" / "support"))
import hosts

DELAY = 1e-3  # seconds one way
LANES = 4  # of the match, and of each half with `pipeline: 2`
PORT = 7000
REQUEST, REPLY = 48, 224  # bytes of the match's messages


@contextmanager
def two(delay: float) -> Iterator[hosts.Hosts]:
    """Two hosts whose processes find the modules of the benchmarks."""
    with tempfile.TemporaryDirectory(
        prefix="hosts-"
    ) as name:  # short: the names of sockets have at most 107 characters
        made = hosts.Hosts(Path(name).resolve(), modules=runs.environment()["PYTHONPATH"], delay=delay)
        try:
            made.begin(2)
            yield made
        finally:
            made.end()


def on_host(made: hosts.Hosts, host: str, command: str) -> subprocess.Popen[str]:
    """A command that runs on a host."""
    line = [sys.executable, str(hosts.HERE), str(made.folder), host, command]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def echo() -> None:
    """Answers each byte of one connection."""
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while received := connection.recv(1):
                connection.sendall(received)


def ask(host: str, count: int) -> None:
    """Prints the median time of the round trips to `echo` on a host."""
    times = []
    with socket.create_connection((host, PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begun = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.monotonic() - begun)
    print(statistics.median(times))


def round_trips(count: int) -> Sample:
    """Round trips of one byte per second."""
    with two(DELAY) as made:
        script = f"{sys.executable} {Path(__file__).resolve()}"
        server = on_host(made, "n1", f"{script} --echo")
        assert server.stdout is not None and server.stdout.readline(), "the server has not started"
        out, err = on_host(made, "n0", f"{script} --ask n1 {count}").communicate(timeout=120)
        server.wait()
        if not out:
            raise runs.Failed(err)
        return {"steps/s": 1 / float(out)}


def exchange(count: int) -> None:
    """Rank 0 gets a request from each other rank and replies; it prints the median time of doing so."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    peers = range(1, world.size) if world.rank == 0 else [0]
    incoming, outgoing = (REQUEST, REPLY) if world.rank == 0 else (REPLY, REQUEST)
    receives = [world.Recv_init(np.zeros(incoming, np.uint8), source=peer) for peer in peers]
    sends = [world.Send_init(np.zeros(outgoing, np.uint8), dest=peer) for peer in peers]
    times = []
    for _ in range(count):
        MPI.Prequest.Startall(receives)
        if world.rank > 0:
            MPI.Prequest.Startall(sends)
        MPI.Request.Waitall(receives)
        times.append(time.monotonic())
        if world.rank == 0:
            MPI.Prequest.Startall(sends)
        MPI.Request.Waitall(sends)
    if world.rank == 0:
        print(statistics.median(b - a for a, b in itertools.pairwise(times[count // 5 :])))


def messages(count: int, *, spread: bool) -> Sample:
    """The messages of a tick, nothing else; `spread`: over two hosts."""
    named = [Host("n0", 1), Host("n1", 2)] if spread else [Host("n0", 3)]
    program = [sys.executable, str(Path(__file__).resolve()), "--exchange", str(count)]
    line, settings = mpirun.command(mpirun.find_launcher(), 3, program, hosts=named)
    added = [f"{name}={value}" for name, value in settings.items() if name not in os.environ]
    with two(0.0) as made:
        out, err = on_host(made, "n0", shlex.join(["env", *added, *line])).communicate(timeout=120)
        if not out:
            raise runs.Failed(err)
        return {"steps/s": 1 / float(out)}


def arena(ticks: int, *, delay: float = 0.0, pipeline: int = 1, transport: str = "auto", spread: bool = True) -> Sample:
    """Steps of the game per second, of both halves together with `pipeline: 2`; `spread`: over two hosts."""
    with two(delay) as made:
        (notes := made.folder / "notes").mkdir()
        game = runs.clocked("games:Empty", {"entities": 2})
        game["kwargs"]["notes"] = str(notes)
        config = {
            "name": "hosts",
            "ticks": ticks,
            "checkpoint_every": ticks,
            "transport": transport,
            "envs": {"empty": game},
            "policies": {"blue": {"algorithm": "workers:Constant"}},
            "matches": [{"env": "empty", "seats": ["blue", "blue"], "lanes": LANES * pipeline, "pipeline": pipeline}],
        }
        (made.folder / "config.yaml").write_text(yaml.safe_dump(config))
        named = "n0:2,n1:2" if spread else "n0:4"
        command = f"arena train config.yaml --run-dir run --ranks one_per_role --hosts {named}"
        process = on_host(made, "n0", command)
        out, err = process.communicate(timeout=300)
        if process.returncode:
            raise runs.Failed(f"{command} ended with {process.returncode}\n{out}{err}")
        halves = stamps.read(notes)
        spans = [b - a for half in halves for a, b in itertools.pairwise(half.times[ticks // 5 :])]
        return {"steps/s": len(halves) / statistics.median(spans)}


def benchmark(settings: Settings) -> Report:
    """Measures with and without delay."""
    ticks = settings.pick(1000, 100)
    cases = [
        Case("round trips", partial(round_trips, ticks)),
        Case("1 ms", partial(arena, ticks, delay=DELAY)),
        Case("1 ms, pipeline 2", partial(arena, ticks, delay=DELAY, pipeline=2)),
        Case("no delay", partial(arena, 5 * ticks)),
        Case("one host, MPI", partial(arena, 5 * ticks, transport="mpi", spread=False)),
        Case("messages, no delay", partial(messages, 5 * ticks, spread=True)),
        Case("messages, one host", partial(messages, 5 * ticks, spread=False)),
    ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("several_hosts", "Ticks between two hosts", measured, method(__doc__))
    for name, over, under, least in (
        ("1 ms one way: ticks / round trips", "1 ms", "round trips", 0.8),
        ("1 ms one way: steps, pipeline 2 / pipeline 1", "1 ms, pipeline 2", "1 ms", 1.6),
        ("no delay: ticks, two hosts / MPI within one", "no delay", "one host, MPI", 0.75),
    ):
        report.at_least(name, measured.ratio((over, "steps/s"), (under, "steps/s")), least)

    def of_the_most(rate: Callable[[str, str], float]) -> float:
        seconds = {case.name: 1 / rate(case.name, "steps/s") for case in cases}
        least = seconds["one host, MPI"] + seconds["messages, no delay"] - seconds["messages, one host"]
        return least / seconds["no delay"]

    name = "no delay: ticks, two hosts / the most that the messages alone leave"
    report.at_least(name, measured.each(of_the_most, [case.name for case in cases]), 0.8)
    return report


if __name__ == "__main__":
    if sys.argv[1:2] == ["--echo"]:
        echo()
    elif sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["--exchange"]:
        exchange(int(sys.argv[2]))
    else:
        sys.exit(main(benchmark))
