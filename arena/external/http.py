"""External games over HTTP: the game's server calls `POST /step` once per step; an actor translates its bytes.

    http              `HttpGames`: the arguments, and the environment's thread
    http_loop         the server's thread: uvicorn, without a web framework
    http_connection   limits of connections and of requests, which hold before a token is checked
    http_requests     headers and bodies of requests, and pages for operators
    http_sessions     games and their actors

The queue of requests takes requests from the server's thread to the environment's and actions back.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from arena.errors import ConfigError
from arena.external.access import Access
from arena.external.actor import Clone
from arena.external.builtin_actors import JsonActor, raw_actor
from arena.external.declaration import declared_interface
from arena.external.http_loop import ServerLoop
from arena.external.http_metrics import Metrics
from arena.external.http_requests import Requests
from arena.external.http_sessions import Sessions
from arena.external.request_queue import ConnectedGame, ConnectedGames
from arena.external.slots import Answers
from arena.external.thread import interface_of
from arena.external.threads import ActorThreads
from arena.game.api import Interface
from arena.records.space_json import space_to_json

_log = logging.getLogger(__name__)


class HttpGames(ConnectedGames):
    """The games that clients play over HTTP.

    Args:
        host: at which to listen.
        port: copy i of a match listens at port + i; 0: any free one.
        actor: `json`, `raw`, or `package.module:Class`, see `arena.external.Actor`.
        config: given to each actor.
        entities: the interface, see `arena.external.declaration`.
        like: the interface is that of this environment.
        token_file: a file with the token that clients have to send.
        insecure: allows another host than loopback without a token.
        max_body: the largest body of a request in bytes.
        queue: requests of one game that wait.
        actor_threads: for actors whose methods are functions; None: one per slot.
        stateless_actors: for requests without a game.
        dialect: `published`, or `later`: `session` for `game_id`, `stop` for `end`, `auto` if there is no `step_kind`.
        drain_s: as long as running games may go on when `arena serve` is to end; not used in training.
        keep_alive_s: as long as a connection without requests stays open, and as a request may take to come.
        allowed_hosts: names of this server besides loopback's and `host`, such as those of a reverse proxy.
        copy: the number of the match among its copies.

    Attributes:
        policies: by entity, the name of the policy that plays it.
        clone: see `RemoteModel.clone`; set before `open`.
        metrics: of `GET /metrics`.

    Raises:
        ConfigError: an argument is wrong, or the extra `http` is not installed.
    """

    own_limits = True

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        actor: str = "json",
        config: Any = None,
        entities: Mapping[str, Any] | Interface | None = None,
        like: Mapping[str, Any] | None = None,
        token_file: str | None = None,
        insecure: bool = False,
        max_body: int = 2**26,
        queue: int = 16,
        actor_threads: int | None = None,
        stateless_actors: int = 1,
        dialect: str = "published",
        drain_s: float = 10.0,
        keep_alive_s: float = 300.0,
        allowed_hosts: Sequence[str] = (),
        copy: int = 0,
    ) -> None:
        missing = [package for package in ("uvicorn", "httptools", "uvloop") if find_spec(package) is None]
        if missing:
            raise ConfigError(f"games over HTTP need the extra `http` ({', '.join(missing)} is missing)")
        for key, number, least in (
            ("port", port, 0),
            ("max_body", max_body, 1),
            ("queue", queue, 0),
            ("actor_threads", actor_threads, 1),
            ("stateless_actors", stateless_actors, 1),
        ):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < least):
                raise ConfigError(f"{number!r}; expected a whole number of at least {least}", path=key)
        for key, seconds in (("drain_s", drain_s), ("keep_alive_s", keep_alive_s)):
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
                raise ConfigError(f"{seconds!r}; expected a number >= 0", path=key)
        if port + copy > 65535:
            raise ConfigError(f"{port + copy}; expected at most 65535", path="port")
        if dialect not in ("published", "later"):
            raise ConfigError(f"{dialect!r}; expected published or later", path="dialect")
        if isinstance(allowed_hosts, str) or not all(isinstance(name, str) for name in allowed_hosts):
            raise ConfigError(f"{allowed_hosts!r}; expected a list of names", path="allowed_hosts")
        self._actor: Any = JsonActor
        if actor in ("json", "raw"):
            interface = declared_interface(entities, like)
            self._actor = JsonActor if actor == "json" else raw_actor(interface)
        elif ":" not in actor:
            raise ConfigError(f"{actor!r} is no actor; expected json, raw, or package.module:Class", path="actor")
        else:
            from arena.registry import load_object

            self._actor = load_object(actor)
            methods = [getattr(self._actor, name, None) for name in ("tick", "end")]
            if not isinstance(self._actor, type) or not all(map(callable, methods)):
                message = f"{actor} is no actor: a class with the methods tick(data) and end(data)"
                raise ConfigError(message, path="actor")
            has_spaces = any(getattr(self._actor, name, None) for name in ("observation_space", "observation_spaces"))
            is_declared = entities is not None or like is not None
            if has_spaces and is_declared and not isinstance(entities, Interface):
                key = "entities" if entities is not None else "like"
                raise ConfigError(f"{actor} has spaces itself; leave this key out", path=key)
            if not has_spaces and not is_declared:
                raise ConfigError("says neither `entities` nor `like`, and the actor has no spaces")
            interface = interface_of(self._actor) if has_spaces else declared_interface(entities, like)
        super().__init__(interface)
        self.policies: Sequence[str] = [""] * len(self.interface.entities)
        self.metrics = Metrics()
        self.clone: Clone | None = None
        self._host, self._port = host, port + copy if port else 0
        self._access = Access(host, token_file, insecure, allowed_hosts)
        self._config = {} if config is None else config
        self._max_body, self._queue, self._keep_alive_s, self.drain_s = max_body, queue, keep_alive_s, drain_s
        self._actor_name, self._later = actor, dialect == "later"
        self._actor_threads, self._stateless = actor_threads, stateless_actors
        self._loop = ServerLoop()
        self._sessions: Sessions | None = None
        self._closed = False

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Binds the port and starts the server's thread.

        Raises:
            ConfigError: the port is taken, or cannot be bound.
        """
        from arena.external.http_connection import Connections

        self.requests.ring = ring
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host.strip("[]"), self._port), family=family, backlog=1024)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise ConfigError(f"cannot listen at {where}: {error.strerror or error}", path="port") from error
        host = f"[{self._host.strip('[]')}]" if family == socket.AF_INET6 else self._host
        self.address = f"http://{host}:{listener.getsockname()[1]}/step"
        sessions = self._sessions = Sessions(
            self.requests,
            self._actor,
            self._config,
            slots=slots,
            rules=self.rules,
            queue=self._queue,
            stateless=self._stateless,
            threads=ActorThreads(self._actor_threads or slots, self._loop.deliver),
            deliver=self._loop.deliver,
            clone=self.clone,
            policies=self.policies,
            metrics=self.metrics,
        )
        connections = Connections(4 * slots + 64, self._keep_alive_s, self._access)
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
        page = msgspec.json.encode({"actor": self._actor_name, "entities": entities})  # for `PolicyClient`

        def look() -> None:
            connections.close_overdue(time.monotonic())
            sessions.look()

        self._loop.start(
            Requests(sessions, self._access, page, self._max_body, self._later),
            listener,
            connections,
            self.rules.close_s,
            look,
            failed=self.fail,
        )

    def run_on_loop(self, turn: Callable[[], float | None]) -> None:
        """Calls `turn` on the server's loop whenever a request has come; see `ServerLoop.take_turns`."""
        self.requests.ring = self._loop.want_turn
        self._loop.take_turns(turn)
        self.requests.ring = lambda: None
        if self.failure is not None:
            raise self.failure

    def answer(self, actions: Answers) -> None:
        """Sends the actions to the actors; does not wait for clients."""
        self.requests.answer(actions)
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
        if self._closed:
            return
        self._closed = True
        sessions, seconds = self._sessions, self.rules.close_s
        if sessions is not None:
            self._loop.deliver(sessions.end_all)
        self.requests.close(reason)
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
