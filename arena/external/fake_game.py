"""Clients of `POST /step` without a game, with random or given bodies: a stand-in, and a load generator.

Each game has a connection of its own and sends start, ticks and end, each when the one before it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
from httptools import HttpParserError, HttpResponseParser

from arena.errors import ConfigError
from arena.external.builtin_actors import raw_actor
from arena.external.samples import as_json
from arena.game.api import Interface

_RETRY_S = 30.0  # longest time that a server may be down
_PAUSES_S = 0.05, 2.0  # between two attempts: the first and the longest pause
_GOES_ON = (200, 400, 429)  # statuses after which a game is not over
_DRAWN = 256  # different observations


class Bodies(NamedTuple):
    """What the games send; the bodies of ticks are used in turn."""

    start: bytes
    ticks: Sequence[bytes]
    end: bytes


def drawn_bodies(interface: Interface, actor: str) -> Bodies:
    """Random observations for the actor `json` or `raw`; all actions are allowed.

    Raises:
        ConfigError: the actor cannot play such games.
    """
    spaces, sizes = interface.observation_spaces, interface.mask_sizes
    for space in spaces:
        space.seed(0)
    if actor == "raw":
        codec = raw_actor(interface).codec
        mask = b"\1" * codec.mask_size
        observations = [codec.observation.pack(spaces[0].sample(), "sample", "bad_observation") for _ in range(_DRAWN)]
        return Bodies(b"", [struct.pack("<d", 1.0) + seen + mask for seen in observations], struct.pack("<dB", 1.0, 0))
    ticks = []
    for _ in range(_DRAWN):
        said = {}
        for name, space, size in zip(interface.entities, spaces, sizes, strict=True):
            said[name] = {"observation": as_json(space, space.sample()), "reward": 1.0}
            if size:
                said[name]["mask"] = [1] * size
        ticks.append(msgspec.json.encode({"entities": said} if len(said) > 1 else next(iter(said.values()))))
    return Bodies(b"", ticks, b"")


@dataclass
class Outcome:
    """What was answered.

    Attributes:
        starts: requests answered with 200, by kind, as `ticks` and `ends`.
        errors: requests that were refused, or not answered at all.
        seconds: from the first request to the last answer.
        statuses: the number of answers by status; `unreachable`: requests without an answer.
        first_error: in words; empty: none.
    """

    starts: int = 0
    ticks: int = 0
    ends: int = 0
    errors: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    _microseconds: Counter[int] = field(default_factory=Counter)  # of answers

    @property
    def requests_per_second(self) -> float:
        """Answers of any status per second."""
        return sum(self._microseconds.values()) / self.seconds if self.seconds else 0.0

    def milliseconds(self, quantile: float) -> float | None:
        """A quantile of the times from request to answer; None: there was no answer."""
        rank = math.ceil(quantile * sum(self._microseconds.values()))
        for microseconds in sorted(self._microseconds):
            rank -= self._microseconds[microseconds]
            if rank <= 0:
                return microseconds / 1000
        return None

    def answered(self, status: int, seconds: float) -> None:
        """Counts an answer."""
        self.statuses[str(status)] += 1
        self._microseconds[round(seconds * 1e6)] += 1

    def failed(self, words: str) -> None:
        """Counts an error."""
        self.errors += 1
        self.first_error = self.first_error or words


class FakeGames:
    """Plays games side by side.

    Args:
        url: of the server, `http://HOST:PORT/step` or `https://...`.
        games: their number.
        ticks: of each game.
        pause: seconds between two ticks.
        bodies: what the games send.
        new_connections: whether each request has a connection of its own.

    Attributes:
        outcome: so far.

    Raises:
        ConfigError: the URL is not valid.
    """

    def __init__(
        self, url: str, games: int, ticks: int, pause: float, bodies: Bodies, *, new_connections: bool = False
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r}: {error}", path="--url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r}; expected http://HOST:PORT/step", path="--url")
        self.outcome = Outcome()
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port or (443 if self._secure else 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        closes = "connection: close\r\n" if new_connections else ""
        self._head = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n{closes}"
        self._games, self._ticks, self._pause = games, ticks, pause
        self._bodies, self._drawn = bodies, itertools.cycle(bodies.ticks)
        self._new_connections = new_connections
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """All games end after the request that they wait for. Called on the loop."""
        self._stop.set()

    async def play(self) -> None:
        """Plays all games to their end."""
        since = time.monotonic()
        try:
            await asyncio.gather(*(self._play() for _ in range(self._games)))
        finally:
            self.outcome.seconds = time.monotonic() - since

    async def _play(self) -> None:
        """Plays one game; if the server gives it up, another game plays the remaining ticks."""
        left, game = self._ticks, _Game()
        try:
            while True:
                game.name = f"fake-{secrets.token_hex(8)}"
                status = await self._call(game, "start", self._bodies.start)
                if status != 200:
                    return
                while left and status in _GOES_ON and not self._stop.is_set():
                    left -= 1
                    status = await self._call(game, "tick", next(self._drawn))
                    if self._pause and left:
                        await self._sleep(self._pause)
                if status in _GOES_ON:
                    await self._call(game, "end", self._bodies.end)
                    return
                if not (status and left) or self._stop.is_set():
                    return
        finally:
            game.hang_up()

    async def _call(self, game: _Game, kind: str, body: bytes) -> int:
        """The status of the answer to a request; 0: the server could not be reached.

        A connection that is refused or lost, and a start that the server asks to send again, are tried again.
        """
        outcome, (pause, longest) = self.outcome, _PAUSES_S
        head = f"{self._head}step_kind: {kind}\r\ngame_id: {game.name}\r\ncontent-length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        deadline = math.inf
        while True:
            try:
                connection = game.connection or await self._connect(game)
                since = time.perf_counter()
                answer = await connection.ask(request)
            except OSError as error:
                game.hang_up()
                words = f"{kind} of {game.name}: {error or type(error).__name__}"
            else:
                outcome.answered(answer.status, time.perf_counter() - since)
                if self._new_connections or answer.closes:
                    game.hang_up()
                if answer.status == 200:
                    counter = f"{kind}s"
                    setattr(outcome, counter, getattr(outcome, counter) + 1)
                    return 200
                words = f"{kind} of {game.name}: {answer.status} {answer.body[:500].decode(errors='replace')}"
                if not (kind == "start" and answer.status == 503 and answer.try_again):
                    outcome.failed(words)
                    return answer.status
            now = time.monotonic()
            deadline = min(deadline, now + _RETRY_S)
            if now >= deadline or self._stop.is_set():
                outcome.statuses["unreachable"] += 1
                outcome.failed(words)
                return 0
            await self._sleep(pause)
            pause = min(2 * pause, longest)

    async def _connect(self, game: _Game) -> _Connection:
        loop = asyncio.get_running_loop()
        _, game.connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._secure or None)
        return game.connection

    async def _sleep(self, seconds: float) -> None:
        """Waits, at most until `stop`."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)


@dataclass
class _Game:
    name: str = ""
    connection: _Connection | None = None

    def hang_up(self) -> None:
        """Closes the connection, if there is one."""
        if self.connection is not None:
            self.connection.transport.close()
            self.connection = None


class _Answer(NamedTuple):
    status: int
    try_again: bool  # has the header `retry-after`
    closes: bool  # the server closes the connection
    body: bytes


class _Connection(asyncio.Protocol):
    """Sends one request at a time."""

    transport: asyncio.WriteTransport

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._answer: asyncio.Future[_Answer] | None = None
        self._lost = False

    async def ask(self, request: bytes) -> _Answer:
        """Sends a request and waits for the answer.

        Raises:
            ConnectionError: the connection is lost before the answer is complete.
        """
        if self._lost:
            raise ConnectionError("the connection is lost")
        self._body, self._try_again = b"", False
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is connected."""
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Passes data to the parser."""
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._lose(f"the server does not speak HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """The server or `hang_up` has closed the connection."""
        self._lose("the connection is lost")

    def _lose(self, words: str) -> None:
        self._lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(words))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        if name.lower() == b"retry-after":
            self._try_again = True

    def on_body(self, body: bytes) -> None:
        """A part of the answer."""
        self._body += body

    def on_message_complete(self) -> None:
        """The answer is complete."""
        status = self._parser.get_status_code()
        if status >= 200 and self._answer is not None and not self._answer.done():
            closes = not self._parser.should_keep_alive()
            self._answer.set_result(_Answer(status, self._try_again, closes, self._body))
