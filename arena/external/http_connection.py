"""Connections of `HttpGames`: limits on connections and on requests, which hold before a token is checked."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from arena.external.access import Access
from arena.external.http_requests import HEALTH, Reply

HEAD_S = 10.0
"""Seconds from the first byte of a request to the end of its headers."""

_LINGER_S = 2.0  # seconds in which a client may read why its request was refused
_MOST_HEAD = 2**15  # bytes without a byte of a body: request line and headers, or framing between two parts of a body
_MOST_URL = 2**11  # bytes
_MOST_HEADERS = 100
_MOST_PIPELINED = 64  # requests of a connection that wait for the one that is answered
_MOST_EXTRA = 64  # connections beyond the limits, which wait for a request of `HEALTH`
_RECORDS_S = 60.0  # between two records of one kind


class Connections:
    """All connections of a server, and their limits.

    Args:
        most: connections in all; one peer (an IP address) may have half of them.
        keep_alive_s: seconds from the first byte of a request to its last one.
        needs_tasks: whether a request is answered by code of a user, which may need a task of asyncio.
    """

    def __init__(self, most: int, keep_alive_s: float, access: Access, needs_tasks: bool) -> None:
        self.keep_alive_s, self.access, self.needs_tasks = keep_alive_s, access, needs_tasks
        self._most, self._most_of_peer = most, max(1, most // 2)
        self.full = (
            f"the server takes {most} connections, {self._most_of_peer} of one address; play several games over each, "
            "or set more slots (`--slots` of `arena serve`, else `lanes`)"
        )
        self._all: set[HttpConnection] = set()
        self._of_peer: Counter[str] = Counter()
        self._extra: OrderedDict[HttpConnection, None] = OrderedDict()  # beyond the limits, the oldest one first

    def add(self, connection: HttpConnection) -> None:
        """Takes a connection, or marks it as one beyond the limits; of those, the newest ones are kept."""
        peer = connection.peer
        if len(self._all) < self._most and self._of_peer[peer] < self._most_of_peer:
            self._all.add(connection)
            self._of_peer[peer] += 1
            return
        self._extra[connection] = None
        if len(self._extra) > _MOST_EXTRA:
            oldest = self._extra.popitem(last=False)[0]
            oldest.log("too_many_connections", f"{self.full}; this one is closed without an answer")
            oldest.transport.abort()

    def remove(self, connection: HttpConnection) -> None:
        """Forgets a connection that is closed."""
        self._extra.pop(connection, None)
        if connection in self._all:
            self._all.remove(connection)
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]

    def is_extra(self, connection: HttpConnection) -> bool:
        """Whether a connection is beyond the limits."""
        return connection not in self._all

    def close_overdue(self, now: float, stopped: float) -> None:
        """Closes the connections whose request takes too long to come; `stopped` seconds are not counted."""
        for one in [*self._all, *self._extra]:
            if one.since is None:
                continue
            one.since += stopped
            last = one.cycle  # the newest request whose headers are complete
            if one.pipeline or (last is not None and not last.response_complete and not last.more_body):
                one.since = now  # a request is being answered, and nothing is read meanwhile
            elif now - one.since > one.limit_s:
                one.transport.close()


class HttpConnection(HttpToolsProtocol):
    """One connection: uvicorn's protocol with limits on what a client may send.

    uvicorn itself bounds neither headers nor the time that they take, and its parser takes time quadratic in the
    length of one header; so data are parsed in parts, and not at all beyond `_MOST_HEAD`.

    A request is answered by the server's application, a coroutine function from uvicorn's record of the request to the
    `Reply`, which is written at once: two messages of ASGI would take as long as all the rest of uvicorn.

    Attributes:
        since: when the request began that is not complete, or when the wait for the next one began; None: all requests
            that have come are complete, and not all are answered.
        limit_s: seconds that it may take.
    """

    def __init__(self, connections: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._of = connections
        self._head_s = min(HEAD_S, connections.keep_alive_s)
        self._wait_for_request()
        self._bytes = 0  # since the last byte of a body
        self._hosts: list[bytes] = []  # the headers Host of the newest request
        self._refused = False

    def _wait_for_request(self) -> None:
        self.since: float | None = time.monotonic()
        self.limit_s, self._idle = self._of.keep_alive_s, True

    def _expect_head(self) -> None:
        """Begins to count the time of a request, unless it has begun."""
        if self._idle or self.since is None:
            self.since, self.limit_s, self._idle = time.monotonic(), self._head_s, False

    @property
    def peer(self) -> str:
        """The client's IP address."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._of.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._expect_head()
        while data and not self._refused:
            part, data = data[: _MOST_HEAD - self._bytes], data[_MOST_HEAD - self._bytes :]
            self._bytes += len(part)
            try:
                self.parser.feed_data(part)
            except HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(405, "method_not_allowed", "found CONNECT; this server is no proxy")
                    return
                self._bytes = 0  # the head is counted again
                data = self._decline_upgrade() + part[offer.args[0] :] + data
            except HttpParserError:
                self._refuse(400, "bad_request", "this is not HTTP/1.1")
            else:
                if self._bytes >= _MOST_HEAD:
                    self._refuse(431, "headers_too_large", f"at most {_MOST_HEAD} bytes of headers are taken")
                elif len(self.pipeline) > _MOST_PIPELINED:
                    self._refuse(429, "too_many_requests", f"{_MOST_PIPELINED} requests of this connection wait")

    def _decline_upgrade(self) -> bytes:
        """Begins again with a request that offers another protocol, whose body httptools would skip (RFC 9110, 7.8).

        Returns:
            its request line and headers without the offer, for a new parser.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        kept = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        self.parser = HttpRequestParser(self)
        return b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, kept)

    def on_url(self, url: bytes) -> None:
        self._expect_head()  # another request may have been complete in these data
        super().on_url(url)
        if len(self.url) > _MOST_URL:
            self._refuse(414, "url_too_long", f"at most {_MOST_URL} bytes of a URL are taken")

    def on_headers_complete(self) -> None:
        if self._refused or self.parser.should_upgrade():
            return
        if len(self.headers) > _MOST_HEADERS:
            self._refuse(431, "headers_too_large", f"at most {_MOST_HEADERS} headers are taken")
            return
        hosts = [value for name, value in self.headers if name == b"host"]
        if hosts != self._hosts or not hosts:  # else checked with the request before
            if wrong := self._of.access.wrong_host(hosts, self.server):
                self._refuse(421, "wrong_host", wrong)
                return
            self._hosts = hosts
        is_extra = self._of.is_extra(self)
        if is_extra and self.url not in [page.encode() for page in HEALTH]:
            self._refuse(503, "too_many_connections", self._of.full)
            return
        self.limit_s = self._of.keep_alive_s
        super().on_headers_complete()
        if is_extra:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not (self._refused or self.parser.should_upgrade()):
            self._bytes, self.since = 0, None
            super().on_message_complete()
            if self.cycle.response_complete:  # before all of the request had come
                self._wait_for_request()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._of.needs_tasks:
            task: Any = self.loop.create_task(self._answer(cycle, app(cycle, None)))
            task.add_done_callback(self.tasks.discard)
        else:
            task = Steps(self.tasks.discard)
            self.loop.call_soon(task.begin, self._answer(cycle, app(cycle, task)))
        self.tasks.add(task)

    async def _answer(self, cycle: RequestResponseCycle, answer: Awaitable[Reply | None]) -> None:
        del cycle.on_response  # it refers to the connection, which refers to the cycle
        try:
            reply = await answer
        except (Exception, asyncio.CancelledError) as error:
            self.logger.error("a request has failed", exc_info=error)
            reply = 500, b"content-type: text/plain; charset=utf-8\r\n", b"Internal Server Error", True
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if reply is None or cycle.disconnected:
            return
        status, headers, body, closes = reply
        cycle.keep_alive &= not closes
        last = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = b"%s%scontent-length: %d\r\n%s\r\n" % (STATUS_LINE[status], headers, len(body), last)
        self.transport.write(head if cycle.scope["method"] == "HEAD" else head + body)
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.since is None:
            self._wait_for_request()

    def log(self, code: str, detail: str) -> None:
        """Logs a refusal; of each code one line per minute passes, see `RepeatedRecords`."""
        text = "%s: a request is refused: %s: %s"
        logging.getLogger(__name__).warning(text, self.peer, code, detail, extra={"kind": code})

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answers with an error, unless another request is being answered, and closes the connection."""
        if self._refused:
            return
        self._refused = True
        self.log(code, detail)
        if self.cycle is None or self.cycle.response_complete:
            body = msgspec.json.encode({"error": code, "detail": detail, "game_id": None})
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
            self.transport.write_eof()  # and what still comes is discarded: to close now would discard the answer
            self.since, self.limit_s, self._idle = time.monotonic(), _LINGER_S, False
        else:
            self.transport.close()


class Steps:
    """Runs a coroutine as a task does, but goes on at once where what it awaits is done: a future, or a `Forward`.

    The coroutine must not need a task, as the functions of asyncio do that have a time limit.
    """

    def __init__(self, done: Callable[[Steps], None]) -> None:
        self._done = done
        self._waits: Any = None

    def begin(self, coroutine: Coroutine[Any, None, None]) -> None:
        """Runs it up to its first wait."""
        self._coroutine = coroutine
        self._go_on(None)

    def _go_on(self, waits: Any) -> None:
        if waits is not self._waits:  # it was cancelled, or is called once more
            return
        self._waits = None
        try:
            stops = isinstance(waits, asyncio.CancelledError)
            now = self._coroutine.throw(waits) if stops else self._coroutine.send(None)
        except StopIteration:
            self._done(self)
        except Exception:
            self._done(self)
            logging.getLogger(__name__).exception("a request has failed")
        else:
            self._waits = now
            now.add_done_callback(self._go_on)

    def cancel(self, msg: str | None = None) -> None:
        """Raises `CancelledError` in the coroutine where it waits, soon."""
        if self._waits is not None:
            self._waits = asyncio.CancelledError(msg)
            asyncio.get_running_loop().call_soon(self._go_on, self._waits)


class RepeatedRecords(logging.Filter):
    """Passes one record of each kind in a minute and counts the others, so that clients cannot fill a disk.

    The kind of a record is its attribute `kind`, else its text.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._logger, self._clock = logger, clock
        self._passed: dict[str, float] = {}  # by kind, when one has passed
        self._omitted: dict[str, tuple[logging.LogRecord, int]] = {}  # since then the newest one, and their number

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes."""
        kind, now = getattr(record, "kind", record.msg), self._clock()
        if now - self._passed.get(kind, -math.inf) >= _RECORDS_S:
            self._passed[kind] = now
            return True
        self._omitted[kind] = record, self._omitted.get(kind, (record, 0))[1] + 1
        return False

    def flush(self) -> None:
        """Passes a record for those omitted in a minute that is over, with their number."""
        for kind, passed in tuple(self._passed.items()):  # servers in other threads share this filter
            if self._clock() - passed < _RECORDS_S:
                continue
            self._passed.pop(kind, None)
            if (omitted := self._omitted.pop(kind, None)) is None:
                continue
            record, count = omitted
            vars(record)["kind"] = kind  # also where it was the text
            record.msg, record.args = f"{record.getMessage()} ({count} times in {_RECORDS_S:g} s)", ()
            self._logger.handle(record)
