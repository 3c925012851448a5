"""Connections of `HttpGames`: limits on connections and on requests, which hold before a token is checked."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from arena.external.access import Access
from arena.external.http_requests import HEALTH

HEAD_S = 10.0
"""Seconds from the first byte of a request to the end of its headers."""

_LINGER_S = 2.0  # seconds in which a client may read why its request was refused
_MOST_HEAD = 2**15  # bytes without a byte of a body: request line and headers, or framing between two parts of a body
_MOST_URL = 2**11  # bytes
_MOST_HEADERS = 100
_MOST_PIPELINED = 64  # requests of a connection that wait for the one that is answered
_MOST_EXTRA = 64  # connections beyond the limits, which wait for a request of `HEALTH`
_MOST_RECORDS = 10  # records of a logger ...
_RECORDS_S = 60.0  # ... within these seconds


class Connections:
    """All connections of a server, and their limits.

    Args:
        most: connections in all; one peer (an IP address) may have half of them.
        keep_alive_s: seconds from the first byte of a request to its last one.
    """

    def __init__(self, most: int, keep_alive_s: float, access: Access) -> None:
        self.keep_alive_s, self.access = keep_alive_s, access
        self._most = most
        self._all: set[HttpConnection] = set()
        self._of_peer: Counter[str] = Counter()
        self._extra: OrderedDict[HttpConnection, None] = OrderedDict()  # beyond the limits, the oldest one first

    def add(self, connection: HttpConnection) -> None:
        """Takes a connection, or marks it as one beyond the limits; of those, the newest ones are kept."""
        peer = connection.peer
        if len(self._all) < self._most and self._of_peer[peer] < max(1, self._most // 2):
            self._all.add(connection)
            self._of_peer[peer] += 1
            return
        self._extra[connection] = None
        if len(self._extra) > _MOST_EXTRA:
            self._extra.popitem(last=False)[0].transport.abort()

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

    def close_overdue(self, now: float) -> None:
        """Closes the connections whose request takes too long to come."""
        for one in [*self._all, *self._extra]:
            if one.since is None:
                continue
            last = one.cycle  # the newest request whose headers are complete
            if one.pipeline or (last is not None and not last.response_complete and not last.more_body):
                one.since = now  # a request is being answered, and nothing is read meanwhile
            elif now - one.since > one.limit_s:
                one.transport.close()


class HttpConnection(HttpToolsProtocol):
    """One connection: uvicorn's protocol with limits on what a client may send.

    uvicorn itself bounds neither headers nor the time that they take, and its parser takes time quadratic in the
    length of one header; so data are parsed in parts, and not at all beyond `_MOST_HEAD`.

    Attributes:
        since: when the request began that is not complete; None: there is none.
        limit_s: seconds that it may take.
    """

    def __init__(self, connections: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._of = connections
        self.since: float | None = None
        self.limit_s = self._head_s = min(HEAD_S, connections.keep_alive_s)
        self._bytes = self._headers = 0  # since the last byte of a body; of this request
        self._refused = False

    @property
    def peer(self) -> str:
        """The client's IP address."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._of.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.since is None:
            self.since, self.limit_s = time.monotonic(), self._head_s
        while data and not self._refused:
            part, data = data[: _MOST_HEAD - self._bytes], data[_MOST_HEAD - self._bytes :]
            self._bytes += len(part)
            try:
                self.parser.feed_data(part)
            except HttpParserUpgrade:
                self._unsupported_upgrade_warning()  # and the request is answered as HTTP/1.1
            except HttpParserError:
                self._refuse(400, "bad_request", "this is not HTTP/1.1")
            else:
                if self._bytes >= _MOST_HEAD:
                    self._refuse(431, "headers_too_large", f"at most {_MOST_HEAD} bytes of headers are taken")
                elif len(self.pipeline) > _MOST_PIPELINED:
                    self._refuse(429, "too_many_requests", f"{_MOST_PIPELINED} requests of this connection wait")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._headers = 0
        if self.since is None:  # another request was complete before this one began
            self.since, self.limit_s = time.monotonic(), self._head_s

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > _MOST_URL:
            self._refuse(414, "url_too_long", f"at most {_MOST_URL} bytes of a URL are taken")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > _MOST_HEADERS:
            self._refuse(431, "headers_too_large", f"at most {_MOST_HEADERS} headers are taken")
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        hosts = [value for name, value in self.headers if name == b"host"]
        wrong = self._of.access.wrong_host(hosts, self.server)
        if wrong:
            self._refuse(421, "wrong_host", wrong)
            return
        is_extra = self._of.is_extra(self)
        if is_extra and self.url not in [page.encode() for page in HEALTH]:
            self._refuse(503, "too_many_connections", "there are as many connections as are taken")
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
        if not self._refused:
            self._bytes, self.since = 0, None
            super().on_message_complete()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answers with an error, unless another request is being answered, and closes the connection."""
        if self._refused:
            return
        self._refused = True
        logging.getLogger(__name__).warning("%s: a request is refused: %s", self.peer, detail)
        if self.cycle is None or self.cycle.response_complete:
            body = msgspec.json.encode({"error": code, "detail": detail, "game_id": None})
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
            self.transport.write_eof()  # and what still comes is discarded: to close now would discard the answer
            self.since, self.limit_s = time.monotonic(), _LINGER_S
        else:
            self.transport.close()


class RateLimitedRecords(logging.Filter):
    """Lets at most 10 records of a logger pass within a minute, so that clients cannot fill a disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self.since, self._count = -math.inf, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes; the first one of a minute has the number of those left out before."""
        now = self._clock()
        if now - self.since >= _RECORDS_S:
            left = max(0, self._count - _MOST_RECORDS)
            self.since, self._count = now, 0
            if left:
                record.msg, record.args = f"{record.getMessage()} ({left} more messages were left out)", ()
        self._count += 1
        return self._count <= _MOST_RECORDS
