"""Serving over HTTP: requests per second of `arena serve`, compared with a bare server that sends each body back.

The policy has 128 inputs, two layers of 256 and 16 choices (103,000 weights), the actor is `raw`. `http_games.py`
plays on the same machine, with one connection for each game. `echo` is an ASGI application of four lines under uvicorn
with the same settings, which receives the same requests. `CPU us` is the processor time of the server's process for
each request, which depends less on what else the machine does.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import runs
from harness import HERE, Case, Report, Sample, Settings, interleave, main, method, say

INPUTS, CHOICES = 128, 16
BODY = bytes(8 + 4 * INPUTS)  # reward and observation
END = "@" * 8 + "\1"  # some reward; truncated


def policy(folder: Path) -> Path:
    """The folder of a run of a few ticks."""
    config = {
        "name": "served",
        "seed": 1,
        "ticks": 32,
        "envs": {"game": {"make": "games:Empty", "kwargs": {"entities": 1, "shape": [INPUTS], "actions": CHOICES}}},
        "policies": {"blue": {"algorithm": "ppo", "options": {"hidden_sizes": [256, 256], "n_steps": 16}}},
        "matches": [{"env": "game", "seats": ["blue"], "lanes": 2}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "arena", "train", "config.yaml", "--ranks", "1", "--run-dir", "run"]
    runs.ended_well(command, folder)
    return folder / "run"


@contextmanager
def server(command: Sequence[str], folder: Path, port: int) -> Iterator[int]:
    """A server, from its first answer on; the number of its process."""
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=runs.environment(), stdout=log, stderr=log)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None:
                    raise RuntimeError((folder / "server.log").read_text()) from None
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def processor_s(process: int) -> float:
    """Seconds of processor time of all threads of a process that run."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def play(folder: Path, process: int, port: int, games: int, ticks: int) -> Sample:
    """What `http_games.py` has counted, and the processor time of the server's process."""
    (folder / "body").write_bytes(BODY)
    command = [sys.executable, str(HERE / "http_games.py"), "--url", f"http://127.0.0.1:{port}/step", "--json"]
    command += ["--games", str(games), "--ticks", str(ticks), "--pause", "0", "--body-file", "body", "--end-data", END]
    before = processor_s(process)
    done = subprocess.run(command, cwd=folder, env=runs.environment(), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    spent = (processor_s(process) - before) / sum(found["statuses"].values()) * 1e6
    speed = {"requests/s": found["requests_per_second"], "p50 ms": found["p50_ms"], "p99 ms": found["p99_ms"]}
    return {**speed, "CPU us": spent}


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


def served(run: Path, engine: str, games: int, ticks: int) -> Sample:
    """`arena serve` with an engine."""
    port = free_port()
    command = [sys.executable, "-m", "arena", "serve", f"{run}:blue", "--http", str(port)]
    command += ["--actor", "raw", "--engine", engine, "--drain", "0"]
    with server(command, run.parent, port) as process:
        return play(run.parent, process, port, games, ticks)


def bare(folder: Path, games: int, ticks: int) -> Sample:
    """The server that sends bodies back."""
    port = free_port()
    with server([sys.executable, str(HERE / "external_http_echo.py"), str(port)], folder, port) as process:
        return play(folder, process, port, games, ticks)


def benchmark(settings: Settings) -> Report:
    """Measures 64 games, and one."""
    many, one = settings.pick(400, 50), settings.pick(3_000, 300)
    with runs.scratch() as folder:
        run = policy(folder)
        cases = []
        for name, games, ticks in (("64 games", 64, many), ("1 game", 1, one)):
            cases.append(Case(f"echo, {name}", partial(bare, folder, games, ticks)))
            for engine in ("onnx", "torch"):
                cases.append(Case(f"{engine}, {name}", partial(served, run, engine, games, ticks)))
        measured = interleave(cases, settings.repeats, say=say)
    report = Report("external_http", "Serving over HTTP", measured, method(__doc__))
    for engine, limit in (("onnx", 0.5), ("torch", 0.35)):
        found = measured.ratio((f"{engine}, 64 games", "requests/s"), ("echo, 64 games", "requests/s"))
        report.at_least(f"64 games: requests/s, {engine} / echo", found, limit)
        found = measured.ratio((f"{engine}, 64 games", "CPU us"), ("echo, 64 games", "CPU us"))
        report.at_most(f"64 games: processor time per request, {engine} / echo", found, 1 / limit)
        found = measured.ratio((f"{engine}, 64 games", "p99 ms"), ("echo, 64 games", "p99 ms"))
        report.at_most(f"64 games: p99, {engine} / echo", found, 2.5)
        found = measured.ratio((f"{engine}, 1 game", "p50 ms"), ("echo, 1 game", "p50 ms"))
        report.at_most(f"1 game: median, {engine} / echo", found, 3)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
