"""Plays games without a game against a server of `POST /step`, with given or random bodies, and measures.

    python benchmarks/http_games.py --url http://localhost:8000/step --games 64 --ticks 1000 --pause 0

Each game has a connection of its own and sends start, ticks and end, each when the one before it is answered. Needs the
extra `http`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import secrets
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import uvloop
from httptools import HttpParserError, HttpResponseParser

from arena.cli.arguments import non_negative_int, positive_int
from arena.config import yaml
from arena.errors import ConfigError
from arena.external.builtin_actors import raw_actor
from arena.external.declaration import declared_interface
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
        codec, mask = raw_actor(interface).observation, b"\1" * sizes[0]
        observations = [codec.pack(spaces[0].sample()) for _ in range(_DRAWN)]
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


# -------------------------------------------------------------------------------------------------------- command line


def main(given: Sequence[str] | None = None) -> int:
    """Plays, and prints what was answered; returns the exit status."""
    try:
        return _play(_arguments(given))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(
            "So many games side by side, each with one start, its ticks and one end. A server that is down is tried "
            "again for 30 s. Prints what was answered, requests per second, and times from request to answer; exit "
            "code 1 if a request has failed. Ctrl-C ends the games."
        )
    )
    parser.add_argument(
        "--url", default="http://localhost:8000/step", help="of the server (default: http://localhost:8000/step)"
    )
    parser.add_argument("--games", type=positive_int, default=2, metavar="N", help="side by side (default: 2)")
    parser.add_argument(
        "--ticks", type=non_negative_int, default=1_000_000, metavar="N", help="of each game (default: 1000000)"
    )
    parser.add_argument(
        "--pause", type=_seconds, default=0.5, metavar="S", help="between two ticks of a game (default: 0.5)"
    )
    parser.add_argument(
        "--start-data", metavar="TEXT", help="the body of a start (default: fake_gamecore_step_start_data)"
    )
    tick = parser.add_mutually_exclusive_group()
    tick.add_argument("--tick-data", metavar="TEXT", help="the body of a tick (default: fake_gamecore_step_tick_data)")
    tick.add_argument("--body-file", metavar="FILE", help="the body of a tick is what this file holds")
    tick.add_argument("--random", action="store_true", help="random observations, for the actors json and raw")
    parser.add_argument("--end-data", metavar="TEXT", help="the body of an end (default: fake_gamecore_step_end_data)")
    parser.add_argument("--actor", choices=("json", "raw"), help="with --random: the server's (default: json)")
    seen = parser.add_mutually_exclusive_group()
    seen.add_argument("--like", metavar="GAME", help="with --random: observations of this game, named as in `make`")
    seen.add_argument(
        "--entities",
        metavar="FILE",
        help="with --random: observations of these entities, as the key `entities` has them",
    )
    parser.add_argument(
        "--connections", choices=("keep", "new"), default="keep", help="one for each game, or for each request"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(given)


def _play(arguments: argparse.Namespace) -> int:
    bodies = _bodies(arguments)
    new = arguments.connections == "new"
    signals: list[int] = []
    loop = uvloop.new_event_loop()
    try:
        games = FakeGames(arguments.url, arguments.games, arguments.ticks, arguments.pause, bodies, new_connections=new)

        def stop(number: int) -> None:
            signals.append(number)
            loop.remove_signal_handler(number)  # the next one ends the program
            games.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        loop.run_until_complete(games.play())
    finally:
        loop.close()
    found = games.outcome
    p50, p99 = found.milliseconds(0.5), found.milliseconds(0.99)
    if arguments.json:
        counts = {key: getattr(found, key) for key in ("starts", "ticks", "ends", "errors", "seconds")}
        speed = {"requests_per_second": found.requests_per_second, "p50_ms": p50, "p99_ms": p99}
        print(json.dumps({**counts, **speed, "statuses": dict(sorted(found.statuses.items()))}))
    else:
        times = "" if p50 is None else f", p50 {p50:.2f} ms, p99 {p99:.2f} ms"
        print(f"{found.requests_per_second:.1f} requests/s{times}")
        print(", ".join(f"{status}: {count}" for status, count in sorted(found.statuses.items())))
        print(f"{found.starts} starts, {found.ticks} ticks, {found.ends} ends, {found.errors} errors")
    if found.errors:
        print(f"failed: {found.first_error}", file=sys.stderr)
        return 1
    return 128 + signals[0] if signals else 0


def _bodies(arguments: argparse.Namespace) -> Bodies:
    """What the games send.

    Raises:
        ConfigError: an argument does not fit the others, or a file cannot be read.
    """
    start, end = arguments.start_data, arguments.end_data
    if arguments.random:
        if arguments.like is None and arguments.entities is None:
            raise ConfigError("needs the observations: give --like or --entities", path="--random")
        entities = None
        if arguments.entities is not None:
            entities = yaml.load(_content(arguments.entities, "--entities").decode(), source=arguments.entities)
        like = None if arguments.like is None else {"make": arguments.like}
        drawn = drawn_bodies(declared_interface(entities, like), arguments.actor or "json")
        return drawn._replace(
            start=drawn.start if start is None else start.encode(), end=drawn.end if end is None else end.encode()
        )
    for option in ("actor", "like", "entities"):
        if getattr(arguments, option) is not None:
            raise ConfigError("is for --random; leave it out", path=f"--{option}")
    tick = "fake_gamecore_step_tick_data" if arguments.tick_data is None else arguments.tick_data
    body = tick.encode() if arguments.body_file is None else _content(arguments.body_file, "--body-file")
    return Bodies(
        ("fake_gamecore_step_start_data" if start is None else start).encode(),
        [body],
        ("fake_gamecore_step_end_data" if end is None else end).encode(),
    )


def _content(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", path=option) from error


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
