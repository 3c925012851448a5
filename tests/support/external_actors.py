"""Actors, as users write them, and a raw HTTP client."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from arena.external import Agent, ExternalClosed, ExternalError
from arena.testing.external_games import Played
from external_connections import Script

ONE = {"hero": {"observation": {"box": {"shape": [2]}}, "action": {"discrete": {"n": 3}}, "masks": True}}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


class HttpWire:
    """One connection to an HTTP server."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._unread = b""

    def __enter__(self) -> HttpWire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, head: bool = False) -> Reply:
        """The next answer.

        Raises:
            EOFError: the server has closed the connection.
        """
        top, _, self._unread = self._until(b"\r\n\r\n").partition(b"\r\n\r\n")
        first, *lines = top.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = 0 if head or first.split()[1] == "100" else int(headers["content-length"])
        while len(self._unread) < size:
            self._more()
        body, self._unread = self._unread[:size], self._unread[size:]
        return Reply(int(first.split()[1]), headers, body)

    def step(self, kind: str | None, name: str | None = "g", data: bytes = b"", *more: str) -> Reply:
        """Sends a request and reads its answer."""
        self.send(request(kind, name, data, *more))
        return self.read()

    def get(self, path: str) -> Reply:
        """Asks for a page."""
        self.send(request(None, None, path=path, method="GET"))
        return self.read()

    def at_end(self) -> bool:
        """Whether the server has closed the connection; waits for it."""
        try:
            return not self._unread and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _until(self, end: bytes) -> bytes:
        while end not in self._unread:
            self._more()
        return self._unread

    def _more(self) -> None:
        data = self.socket.recv(2**16)
        if not data:
            raise EOFError
        self._unread += data


def request(
    kind: str | None,
    name: str | None = "g",
    data: bytes = b"",
    *more: str,
    path: str = "/step",
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    """The bytes of a request; `more` are further headers."""
    lines = [f"{method} {path} HTTP/{version}", "host: localhost", *more]
    lines += [f"step_kind: {kind}"] if kind is not None else []
    lines += [f"game_id: {name}"] if name is not None else []
    if not any(line.lower().startswith("transfer-encoding") for line in more):
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def chunked(data: bytes, size: int = 1000) -> bytes:
    """A body in chunks."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def play_http(games: Any, name: str, requests: int) -> Played:
    """Plays one game of an `HttpGames` with the actor `json`, by a connection of its own."""
    interface = games.interface
    script, names = Script(interface, name), interface.entities
    try:
        with HttpWire(games.address) as wire:
            while (reply := wire.step("start", name)).status == 503 and reply.error == "no_slot":
                time.sleep(0.01)
            _must_be_200(reply)
            for number in range(requests):
                said = {}
                for entity, one in enumerate(names):
                    seen = script.observation(entity)
                    seen = (
                        {key: part.tolist() for key, part in seen.items()} if isinstance(seen, dict) else seen.tolist()
                    )
                    said[one] = {"observation": seen, "reward": script.reward(entity) if number else 0.0}
                reply = wire.step("tick", name, json.dumps({"entities": said}).encode())
                _must_be_200(reply)
                for entity, one in enumerate(names):
                    action = json.loads(reply.body)["entities"][one]["action"]
                    script.actions[entity].append(np.asarray(action, interface.action_spaces[entity].dtype))
            said = {one: {"reward": script.reward(entity)} for entity, one in enumerate(names)}
            _must_be_200(wire.step("end", name, json.dumps({"entities": said}).encode()))
    except (EOFError, ConnectionError) as error:
        raise ExternalClosed("lost") from error
    return script.played()


def _must_be_200(reply: Reply) -> None:
    if reply.status == 200:
        return
    said = json.loads(reply.body)
    if said["error"] in ("over", "draining"):
        raise ExternalClosed("over")
    raise ExternalError(said.get("reason", said["error"]), said["detail"])


class Echo:
    """Replies with the data that it was sent; requests no action."""

    observation_space, action_space = Box(-1.0, 1.0, (2,), np.float32), Discrete(3)

    def __init__(self, agents: dict[str, Agent], config: Any, game_id: str, data: bytes) -> None:
        self.agents, self.config, self.game_id = agents, config, game_id
        self.start_reply = b"started " + data

    async def tick(self, data: bytes) -> bytes:
        return data

    async def end(self, data: bytes) -> bytes:
        return b"ended " + data


class Slow(Echo):
    """A function that sleeps once it is free to go on; counts its concurrent calls."""

    free = threading.Event()
    free.set()
    inside: dict[str, int] = {}
    most: dict[str, int] = {}
    lock = threading.Lock()

    def tick(self, data: bytes) -> bytes:  # type: ignore[override]
        with self.lock:
            self.inside[self.game_id] = self.inside.get(self.game_id, 0) + 1
            self.most[self.game_id] = max(self.most.get(self.game_id, 0), self.inside[self.game_id])
        self.free.wait(60)
        time.sleep(0.02)
        with self.lock:
            self.inside[self.game_id] -= 1
        return data

    def end(self, data: bytes) -> bytes:  # type: ignore[override]
        return data


class Balancer:
    """Requests one action per tick, with `wait` or `record`; the data holds the commands."""

    observation_space, action_space = Box(-10.0, 10.0, (2,), np.float32), Discrete(3)
    closed: list[tuple[str, str]] = []
    overlapping: list[str] = []  # games that were closed during one of their calls

    def __init__(self, agents: dict[str, Agent], config: Any, game_id: str, data: bytes) -> None:
        self.agent, self.game_id = agents["agent_0"], game_id
        self.sleeps = False
        if data == b"raise":
            raise RuntimeError("no")

    def tick(self, data: bytes) -> Any:
        model, buffer = self.agent.remote_model, self.agent.remote_buffer
        word, _, rest = data.decode().partition(" ")
        if word == "ask":
            return str(model.forward([float(rest), 0.0]).result())
        if word == "push":
            buffer.push(float(rest))
        elif word == "record":
            model.record([0.0, 0.0], int(rest))
        elif word == "void":
            buffer.void()
        elif word == "twice":
            model.forward([0.0, 0.0])
            model.forward([0.0, 0.0])
        elif word == "finish":
            buffer.end([1.0, 1.0], truncated=True, outcome=rest)
        elif word == "clone":
            model.clone()
        elif word == "older":
            older = model.clone(int(rest))
            return f"{older.version} {older.forward(np.zeros(older.observation_space.shape)).result()}"
        elif word == "sleep":
            self.sleeps = True
            time.sleep(float(rest))
            self.sleeps = False
        elif word == "return":
            return {"none": None, "text": "ü", "list": [1], "array": bytearray(b"a"), "view": memoryview(b"v")}[rest]
        elif word == "about":
            return f"{model.name} {model.entity} {model.version} {buffer.pushed} {buffer.dropped}"
        elif word == "raise":
            raise RuntimeError("secret")
        elif word == "exit":
            raise SystemExit(3)
        elif word == "stop":
            raise StopIteration
        return b""

    def end(self, data: bytes) -> bytes:
        if data == b"raise":
            raise RuntimeError("no")
        if data:
            self.agent.remote_buffer.push(float(data))
        return b"bye"

    def close(self, reason: str) -> None:
        if self.sleeps:
            self.overlapping.append(self.game_id)
        self.closed.append((self.game_id, reason))


class PoleBalancer(Balancer):
    """The same with the spaces of CartPole."""

    observation_space = Box(
        np.array([-4.8, -np.inf, -0.41887903, -np.inf], np.float32),
        np.array([4.8, np.inf, 0.41887903, np.inf], np.float32),
    )
    action_space = Discrete(2)


class Blocking(Balancer):
    """A coroutine that blocks the loop by mistake."""

    async def tick(self, data: bytes) -> Any:
        return str(self.agent.remote_model.forward([0.0, 0.0]).result())


class Eager(Balancer):
    """A coroutine."""

    async def tick(self, data: bytes) -> Any:
        return str(await self.agent.remote_model.forward([float(data), 0.0]))
