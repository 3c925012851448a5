"""External games over HTTP: the game's server calls `POST /step` once per step; an actor translates its bytes.

    http              `HttpGames`: the environment's thread
    http_loop         the server's thread: uvicorn, without a web framework
    http_connection   limits of connections and of requests, which hold before a token is checked
    http_requests     headers and bodies of requests, and pages for operators
    http_sessions     games and their actors
    http_settings     the arguments

The queue of requests takes requests from the server's thread to the environment's and actions back.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from arena.errors import ConfigError
from arena.external.access import Access
from arena.external.actor import Clone
from arena.external.http_loop import LOOK_S, ServerLoop
from arena.external.http_metrics import Metrics
from arena.external.http_requests import Requests
from arena.external.http_sessions import Sessions
from arena.external.http_settings import Settings
from arena.external.request_queue import ConnectedGame, RequestQueue
from arena.external.slots import Answers
from arena.records.space_json import space_to_json

_log = logging.getLogger(__name__)


class HttpGames(RequestQueue):
    """The games that clients play over HTTP. The arguments are those of `Settings`.

    Args:
        copy: the number of the match among its copies.

    Attributes:
        Options: what `arena list` shows.
        policies: by entity, the name of the policy that plays it.
        clone: see `RemoteModel.clone`; set before `open`.
        metrics: of `GET /metrics`; `notices`: theirs.
        most_connections: at the same time; one address may have half of them.

    Raises:
        ConfigError: an argument is wrong.
    """

    Options = Settings
    own_limits = True

    def __init__(self, *, copy: int = 0, **kwargs: Any) -> None:
        self._settings = settings = Settings.of(kwargs, copy)
        self._actor, interface = settings.actor_and_interface()
        super().__init__(interface)
        self.metrics = Metrics()
        self.notices = self.metrics.notices
        self.clone: Clone | None = None
        self.drain_s, self.most_connections = settings.drain_s, 0
        self._access = Access(settings.host, settings.token_file, settings.insecure, settings.allowed_hosts)
        self._loop = ServerLoop()
        self._sessions: Sessions | None = None

    def bind(self) -> socket.socket:
        """A socket that listens at the address, for its owner to close.

        Raises:
            ConfigError: the port is taken, or cannot be bound.
        """
        settings, host = self._settings, self._settings.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host.strip("[]"), settings.port), family=family, backlog=1024)
        except OSError as error:
            text = f"cannot listen at {host}:{settings.port}: {(error.strerror or str(error)).partition(' (')[0]}"
            remedy = "set `port`, or `arena serve --http PORT`, to another one; 0: any free one"
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise ConfigError(f"{text}; set `host` to an address of this machine", path="host") from error
            raise ConfigError(f"{text}; {remedy}", path="port") from error

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Binds the port and starts the server's thread; errors: see `bind`."""
        from arena.external.http_connection import Connections

        self.ring = ring
        settings, host, listener = self._settings, self._settings.host, self.bind()
        bound, port, *_ = listener.getsockname()
        if bound in ("0.0.0.0", "::"):  # all interfaces: no address to which other machines can connect
            host = socket.gethostname()
        host = f"[{host.strip('[]')}]" if ":" in host else host
        self.address = f"http://{host}:{port}/step"
        sessions = self._sessions = Sessions(
            self,
            settings,
            self._actor,
            slots=slots,
            deliver=self._loop.deliver,
            clone=self.clone,
            policies=self.policies,
            metrics=self.metrics,
        )
        self.most_connections = 4 * slots + 64
        connections = Connections(self.most_connections, settings.keep_alive_s, self._access, not sessions.is_builtin)
        interface = self.interface
        entities = [
            {
                "name": name,
                "observation": space_to_json(interface.observation_spaces[entity]),
                "action": space_to_json(interface.action_spaces[entity]),
                "mask_size": interface.mask_sizes[entity],
                "policy": self.policies[entity],
            }
            for entity, name in enumerate(interface.entities)
        ]
        page = msgspec.json.encode({"actor": settings.actor, "entities": entities})  # for `PolicyClient`

        looked_at = time.monotonic()

        def look() -> None:
            nonlocal looked_at
            now = time.monotonic()
            late, looked_at = now - looked_at - LOOK_S, now
            stopped = late if late > LOOK_S else 0.0  # as by SIGSTOP: what has come meanwhile is not read yet
            connections.close_overdue(now, stopped)
            sessions.look(stopped)

        self._loop.start(
            Requests(sessions, self._access, page),
            listener,
            connections,
            self.rules.close_s,
            look,
            failed=self.fail,
        )

    @property
    def refused_by(self) -> dict[str, int]:
        """The numbers of refused requests by code: most never reach the table."""
        return dict(self.metrics.refused_by)

    def run_on_loop(self, turn: Callable[[], float | None]) -> None:
        """Calls `turn` on the server's loop whenever a request has come; see `ServerLoop.take_turns`."""
        self.ring = self._loop.want_turn
        self._loop.take_turns(turn)
        self.ring = lambda: None
        if self.failure is not None:
            raise self.failure

    def answer(self, actions: Answers) -> None:
        """Sends the actions to the actors; does not wait for clients."""
        super().answer(actions)
        rows = len(actions.slots)
        versions = dict(zip(self.policies, actions.versions, strict=True))

        def note() -> None:
            if rows:
                self.metrics.batch_rows.add(rows)
            self.metrics.versions.update(versions)

        self._loop.deliver(note)

    def pause(self, on: bool) -> None:
        """Requests are taken and wait; games may begin from the first leg on."""
        now, sessions = time.monotonic(), self._sessions
        if sessions is not None:
            self._loop.deliver(lambda: sessions.pause(on, now))

    def drain(self) -> None:
        """No game may begin any more; running ones go on."""
        if self._sessions is not None:
            self._loop.deliver(self._sessions.drain)

    def close(self, reason: str) -> None:
        """Answers all requests with `over`, closes all connections and ends the threads."""
        if self.closed:
            return
        sessions, seconds = self._sessions, self.rules.close_s
        if sessions is not None:
            self._loop.deliver(sessions.end_all)
        super().close(reason)
        if sessions is None:
            return
        if not self._loop.stop(seconds + 1.0):
            _log.warning("an actor blocks the server's loop, %g s after the end", seconds)
        left = sessions.threads.close(seconds)
        if left:
            _log.warning("%d actors have not returned %g s after the end", len(left), seconds)

    def forget(self, game: ConnectedGame) -> None:
        """Drops a game that is over, unless it has ended itself (`end` follows) or got no slot (`start` fails)."""
        sessions = self._sessions
        if game.over != "ended" and game.slot is not None and sessions is not None:
            self._loop.deliver(lambda: sessions.drop(game))
