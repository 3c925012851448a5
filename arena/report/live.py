"""`arena report --serve`: the page of a run that may be under way, on this machine alone.

GET /KEY/          the newest page; it is made again if the run has gone on or ended and the last one is old enough
GET /KEY/version   its version, made again likewise: an open page, which knows its own, asks every two seconds, and is
                   loaded again when there is another one

The key is random and part of the address that is printed: other users of the machine and foreign web pages do not
have it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from arena.errors import ConfigError
from arena.external.access import is_allowed_host
from arena.records.folder import RunFolder
from arena.records.lock import is_locked
from arena.report.page import page
from arena.report.read_run import read_run

HOST = "127.0.0.1"
_REST = 3  # a page is kept so many times as long as it took to make: most of the machine is the run's
_AGAIN = 2  # seconds after which a browser asks again for a page that could not be made


class LivePage:
    """The newest page of a run folder, with so many replays.

    `make` makes the page, which knows its version.
    """

    def __init__(
        self,
        path: Path,
        *,
        replays: int,
        make: Callable[[Path, int, str], str] = lambda path, most, live: page(read_run(path), live=live, replays=most),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._replays, self._make, self._clock = path, replays, make, clock
        self._lock = threading.Lock()
        self._version, self._text, self._until = "", "", 0.0

    def version(self) -> str:
        """The version of the newest page; if it is time for a new one, it is made before this returns."""
        return self._newest()[0]

    def text(self) -> str:
        """The newest page; made once, however many ask."""
        return self._newest()[1]

    def _newest(self) -> tuple[str, str]:
        with self._lock:
            if not self._version or self._clock() >= self._until:
                folder = RunFolder(self._path)
                journals = (folder.episodes, folder.metrics, folder.evaluations, folder.rounds, folder.faults)
                watched = (*journals, folder.lock, folder.profile)
                sizes = [path.stat() if path.exists() else None for path in watched]
                stamps = ["" if found is None else f"{found.st_size:x}.{found.st_mtime_ns:x}" for found in sizes]
                # a run that is killed changes no file
                found = "-".join([*stamps, "going" if is_locked(self._path) else "over"])
                if found != self._version:
                    began = self._clock()
                    self._text = self._make(self._path, self._replays, found)
                    self._version, ended = found, self._clock()
                    self._until = ended + _REST * (ended - began)
            return self._version, self._text


class PageServer(ThreadingHTTPServer):
    """A server that is bound, for this machine alone; port 0 takes any that is free.

    Attributes:
        address: of the page, with its key.
    """

    def __init__(self, live: LivePage, port: int) -> None:
        key = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), partial(_Handler, live, key))
        except OSError as error:
            raise ConfigError(f"port {port} cannot be served: {error.strerror}", path="--serve") from error
        self.address = f"http://{HOST}:{self.server_port}/{key}/"


def serve(path: Path, *, port: int, replays: int, say: Callable[[str], None]) -> int:
    """Serves the page of a run folder, with so many replays, until Ctrl-C; returns the exit status.

    Port 0 takes any that is free; `say` gets the address.
    """
    try:
        live = LivePage(path, replays=replays)
        live.text()  # errors of the folder are raised here, not shown in a browser
        with PageServer(live, port) as server:
            say(f"{server.address} shows {path}; Ctrl-C ends it")
            server.serve_forever()
    except KeyboardInterrupt:
        pass
    return 0


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = 10  # seconds of silence after which a connection is closed

    def __init__(self, live: LivePage, key: str, *of_server: object) -> None:
        self._live, self._key = live, key
        super().__init__(*of_server)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page, its version, or nothing else."""
        hosts = [value.encode("latin-1") for value in self.headers.get_all("host", [])]
        _, key, name = [*self.path.split("/", 2), "", "no page"][:3]
        answers = {"": self._live.text, "version": self._live.version}
        with suppress(ConnectionError):  # the reader left before the answer was sent
            if not is_allowed_host(hosts, ()) or not hmac.compare_digest(key.encode(), self._key.encode()):
                self.send_error(HTTPStatus.FORBIDDEN, "the address that arena report prints has a key")
                return
            if name not in answers:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            kind, status = "text/plain" if name else "text/html", HTTPStatus.OK
            try:
                text = answers[name]()
            except ConfigError as error:  # the run goes on, and so does the server
                kind, status, text = "text/plain", HTTPStatus.INTERNAL_SERVER_ERROR, f"arena: error: {error}\n"
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")  # the address has the key
            if status != HTTPStatus.OK:
                self.send_header("Refresh", str(_AGAIN))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The console shows the address and nothing else."""
