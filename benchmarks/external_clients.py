"""Clients of `external_games.py`: a loop that asks for actions and notes how long it has waited for each.

As a game of the arena (`external_clients:Asking`) it runs in a thread of the environment's process; as a program
(`external_clients.py KIND ADDRESS REQUESTS NOTES`) it asks over HTTP, by `PolicyClient` or as bytes (actor `raw`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from arena.external import ExternalClosed, ExternalEnv, PolicyClient

SIZE = 8  # numbers of an observation
WARM = 200  # requests that are not counted
SEEN = np.zeros(SIZE, np.float32)
ENTITIES = {"agent": {"observation": {"box": {"shape": [SIZE]}}, "action": {"discrete": {"n": 4}}}}


def timed(ask: Callable[[], Any], requests: int, notes: str | Path) -> None:
    """Asks `WARM + requests` times, and writes the microseconds of each of the last `requests`."""
    waits = []
    for _ in range(WARM + requests):
        begin = time.perf_counter()
        ask()
        waits.append((time.perf_counter() - begin) * 1e6)
    Path(notes).write_text(json.dumps(waits[WARM:]))


class Asking(ExternalEnv):
    """One game that asks again and again in a thread; with 0 requests it never begins."""

    observation_space, action_space = Box(-np.inf, np.inf, (SIZE,), np.float32), Discrete(4)

    def __init__(self, requests: int, waits: str = "", notes: Any = None) -> None:
        self._requests, self._waits = requests, waits

    def run(self) -> None:
        """See the class."""
        try:
            if self._requests:
                episode = self.start_episode()
                timed(lambda: self.get_action(episode, SEEN), self._requests, self._waits)
                self.end_episode(episode)
            while not self.closed:
                time.sleep(0.05)
        except ExternalClosed:
            return


class AskingTogether(ExternalEnv):
    """16 games in threads that ask at once; the median microseconds of a request are written."""

    observation_space, action_space = Box(-np.inf, np.inf, (SIZE,), np.float32), Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, requests: int, waits: str) -> None:
        self._requests, self._waits = requests, waits
        self._medians: list[float] = []

    def run(self) -> None:
        """See the class."""
        threads = [threading.Thread(target=self._play) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        Path(self._waits).write_text(str(statistics.median(self._medians)))

    def _play(self) -> None:
        waits: list[float] = []
        with contextlib.suppress(ExternalClosed):
            episode = self.start_episode()
            while len(waits) < self._requests:
                begin = time.perf_counter()
                self.get_action(episode, SEEN)
                waits.append((time.perf_counter() - begin) * 1e6)
            self.end_episode(episode)
        self._medians.append(statistics.median(waits[WARM:]))


def by_client(address: str, requests: int, notes: str) -> None:
    """Asks by `PolicyClient`, with the actor `json`."""
    with PolicyClient(address) as client:
        episode = client.start_episode()
        timed(lambda: client.get_action(episode, SEEN), requests, notes)
        client.end_episode(episode)


def over_http(address: str, requests: int, notes: str) -> None:
    """Asks over one connection, with the actor `raw`."""
    host, _, port = address.rpartition(":")
    connection = connected(host, int(port))

    def step(kind: str, data: bytes = b"") -> tuple[bytes, bytes]:
        head = (
            "POST /step HTTP/1.1",
            "host: 127.0.0.1",
            "game_id: g",
            f"step_kind: {kind}",
            f"content-length: {len(data)}",
        )
        connection.sendall("\r\n".join((*head, "", "")).encode() + data)
        answer = connection.recv(65536)
        while not is_whole(answer):
            answer += connection.recv(65536)
        return answer[9:12], answer

    while step("start")[0] != b"200":
        time.sleep(0.05)
    data = struct.pack("<d", 0.0) + SEEN.tobytes()

    def tick() -> None:
        status, answer = step("tick", data)
        assert status == b"200", answer

    timed(tick, requests, notes)
    step("end", struct.pack("<dB", 0.0, 0))


def is_whole(answer: bytes) -> bool:
    """Whether an answer has its whole body."""
    head, end, body = answer.partition(b"\r\n\r\n")
    return bool(end) and len(body) == int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])


def connected(host: str, port: int) -> socket.socket:
    """A connection to a server that may not listen yet."""
    while True:
        try:
            connection = socket.create_connection((host, port))
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


if __name__ == "__main__":
    kind, address, requests, notes = sys.argv[1:]
    {"client": by_client, "http": over_http}[kind](address, int(requests), notes)
