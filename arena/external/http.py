"""External games over HTTP: the game's server calls `POST /step` once per step; an actor translates its bytes.

The server runs in a thread with an event loop of its own (uvicorn, without a web framework). The state of games and
requests belongs to that thread; the desk takes requests and brings actions from the environment's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

from arena.config.schema import TickRules
from arena.errors import ConfigError
from arena.external.access import Access, Ends
from arena.external.actor import Agent, Clone, EntityLink, RemoteBuffer, RemoteModel
from arena.external.builtin_actors import BuiltinActor, JsonActor, Starting, raw_actor
from arena.external.declaration import declared_interface
from arena.external.desk import Desk, DeskGame, entity_index
from arena.external.http_metrics import Metrics
from arena.external.interface import Answers, ExternalError
from arena.external.slots import Slots
from arena.external.thread import interface_of
from arena.external.threads import ActorThreads
from arena.game.api import Interface

_log = logging.getLogger(__name__)

_LOOK_S = 0.25  # between two looks at limits of time
_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"auto": "auto"}
_NAME = re.compile(rb"[\x21-\x7e]{1,256}")
_LATER_KINDS = {**_KINDS, b"stop": "end"}
_BYTES = [(b"content-type", b"application/octet-stream")]
_JSON = [(b"content-type", b"application/json")]
_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]

STATUSES: dict[int, tuple[str, ...]] = {
    400: (
        "missing_step_kind",
        "bad_step_kind",
        "missing_game_id",
        "bad_game_id",
        "conflicting_headers",
        "bad_observation",
        "bad_mask",
        "bad_action",
        "bad_reward",
        "already_asking",
        "ended",
        "unknown_entity",
        "bad_body",
        "bad_request",
    ),
    401: ("unauthorized",),
    404: ("not_found", "unknown_game"),
    405: ("method_not_allowed",),
    409: ("already_started",),
    413: ("too_large",),
    414: ("url_too_long",),
    421: ("wrong_host",),
    429: ("too_many_requests",),
    431: ("headers_too_large",),
    500: ("actor_error", "actor_bad_return", "policy_error"),
    503: ("no_slot", "not_ready", "draining", "over", "too_many_connections"),
    504: ("timeout",),
}
"""The codes of refusals, by status."""

_STATUS = {code: status for status, codes in STATUSES.items() for code in codes}
_HEADERS = {
    "unauthorized": [(b"www-authenticate", b"Bearer")],
    "no_slot": [(b"retry-after", b"1")],
    "not_ready": [(b"retry-after", b"1")],
    "too_large": [(b"connection", b"close")],
}


class HttpGames:
    """The games that clients play over HTTP; see `ExternalGames`.

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
        rules: of the match; this connection applies `idle_s` and `answer_s` itself.
        policies: by entity, the name of the policy that plays it.
        metrics: of `GET /metrics`.

    Raises:
        ConfigError: an argument is wrong, or the extra `http` is not installed.
    """

    closed_loop = False
    exhausted = False
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
        check_installed()
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
        self.address = ""
        self.interface, self._actor = _interface_and_actor(actor, entities, like)
        self.rules = TickRules()
        self.policies: Sequence[str] = [""] * len(self.interface.entities)
        self.metrics = Metrics()
        self.clone: Clone | None = None
        self._host, self._port = host, port + copy if port else 0
        if isinstance(allowed_hosts, str) or not all(isinstance(name, str) for name in allowed_hosts):
            raise ConfigError(f"{allowed_hosts!r}; expected a list of names", path="allowed_hosts")
        self._access = Access(host, token_file, insecure, "host", allowed_hosts)
        self._config = {} if config is None else config
        self._max_body, self._queue, self._keep_alive_s, self.drain_s = max_body, queue, keep_alive_s, drain_s
        self._later = dialect == "later"
        self._actor_threads, self._stateless = actor_threads, stateless_actors
        self._is_async = {name: inspect.iscoroutinefunction(getattr(self._actor, name)) for name in ("tick", "end")}
        self._desk = Desk(self.interface, self._forget)
        self._sessions: dict[str, _Session] = {}
        self._unnamed: list[_Session] = []  # of requests without a game
        self._ends = Ends()
        self._last_slots: OrderedDict[Any, int] = OrderedDict()  # by connection, the slot of its last game
        self._slots = 0
        self._playing = self._draining = self._over = False
        self._paused_at: float | None = None
        self._closed = False
        self._failure: BaseException | None = None
        self._calls: deque[Callable[[], None]] = deque()  # for the loop
        self._calls_lock = threading.Lock()
        self._calls_wanted = False  # whether the loop will make them
        self._loop_open = False
        self._loop_thread = 0
        self._turn: Callable[[], float | None] = lambda: None
        self._turn_wanted = False
        self._turn_timer: asyncio.TimerHandle | None = None
        self._turns_over = threading.Event()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------ the environment's thread

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Binds the port and starts the thread.

        Raises:
            ConfigError: the port is taken, or cannot be bound.
        """
        import uvicorn
        import uvloop

        from arena.external.http_connection import Connections, FewRecords, HttpConnection

        self._slots, self._desk.ring = slots, ring
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host.strip("[]"), self._port), family=family, backlog=1024)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise ConfigError(f"cannot listen at {where}: {error.strerror or error}", path="port") from error
        host = f"[{self._host.strip('[]')}]" if family == socket.AF_INET6 else self._host
        self.address = f"http://{host}:{listener.getsockname()[1]}/step"
        self._threads = ActorThreads(self._actor_threads or slots, self._deliver)
        self._connections = Connections(4 * slots + 64, self._keep_alive_s, self._access)
        for logger in map(logging.getLogger, ("uvicorn.error", HttpConnection.__module__)):  # what clients cause
            if not any(isinstance(one, FewRecords) for one in logger.filters):  # of another server in this process
                logger.addFilter(FewRecords())
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                http=partial(HttpConnection, self._connections),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=self._keep_alive_s,  # type: ignore[arg-type]
                timeout_graceful_shutdown=max(1, round(self.rules.close_s)),
            )
        )
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._loop_open = True
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name="external games over HTTP", daemon=True
        )
        self._thread.start()

    def poll(self, table: Slots) -> float | None:
        """Tells the table what clients have sent; raises the error that has ended the server's thread."""
        if self._failure is not None:
            raise self._failure
        self._desk.poll(table)
        return None

    def run_on_loop(self, turn: Callable[[], float | None]) -> None:
        """Calls `turn` on the server's loop whenever a request has come; returns after the last call.

        `turn` polls, answers and drops, and returns the seconds until it is to be called again, None at the end.
        """
        self._turn = turn
        self._desk.ring = self._want_turn
        self._want_turn()
        while not self._turns_over.wait(_LOOK_S):  # a signal delivered to another thread would not end a longer wait
            pass
        self._desk.ring = lambda: None
        if self._failure is not None:
            raise self._failure

    def answer(self, actions: Answers) -> None:
        """Sends the actions to the actors; does not wait for clients."""
        self._desk.answer(actions)
        rows = len(actions.slots)
        versions = dict(zip(self.policies, actions.versions, strict=True))
        self._deliver(lambda: self._note(rows, versions))

    def drop(self, slot: int, reason: str) -> None:
        """Ends a game; its next request is told `reason`."""
        self._desk.drop(slot, reason)

    def pause(self, on: bool) -> None:
        """Requests are taken and wait; games may begin from the first leg on."""
        now = time.monotonic()
        self._deliver(lambda: self._pause(on, now))

    def drain(self) -> None:
        """No game may begin any more; running ones go on."""
        self._deliver(self._drain)

    def close(self, reason: str) -> None:
        """Answers all requests with `over`, closes all connections and ends the threads."""
        if self._closed:
            return
        self._closed = True
        self._deliver(self._end_all)
        self._desk.close(reason)
        if self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(self.rules.close_s + 1.0)
        if self._thread.is_alive():
            _log.warning("an actor blocks the server's loop, %g s after the end", self.rules.close_s)
        left = self._threads.close(self.rules.close_s)
        if left:
            _log.warning("%d actors have not returned %g s after the end", len(left), self.rules.close_s)

    def _forget(self, game: DeskGame) -> None:
        """Drops a game that is over; a game that has ended itself waits for the request `end`."""
        if game.over != "ended":
            self._deliver(lambda: self._drop(game))

    def _deliver(self, call: Callable[[], None]) -> None:
        """Calls a function on the loop, in order; from any thread."""
        if threading.get_ident() == self._loop_thread and not self._calls:
            call()
            return
        with self._calls_lock:
            if not self._loop_open:
                return
            self._calls.append(call)
            if self._calls_wanted:
                return
            self._calls_wanted = True
            self._soon(self._call_delivered)

    def _soon(self, call: Callable[[], None]) -> None:
        """Calls a function in the loop's next round; from any thread."""
        on_loop = threading.get_ident() == self._loop_thread
        (self._loop.call_soon if on_loop else self._loop.call_soon_threadsafe)(call)

    def _want_turn(self) -> None:
        if self._turn_wanted:
            return
        with self._calls_lock:
            if self._loop_open and not self._turn_wanted:
                self._turn_wanted = True
                self._soon(self._take_turn)

    # --------------------------------------------------------------------------------------------- the server's thread

    def _serve(self, listener: socket.socket) -> None:
        self._loop_thread = threading.get_ident()
        try:
            self._loop.call_later(_LOOK_S, self._look)
            self._loop.run_until_complete(self._server.serve(sockets=[listener]))
        except BaseException as error:
            self._failure = error  # raised by the next `poll`
            self._desk.ring()
        finally:
            with self._calls_lock:
                self._loop_open = False
            listener.close()
            self._loop.close()
            self._turns_over.set()

    def _take_turn(self) -> None:
        self._turn_wanted = False
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        if self._turns_over.is_set():
            return
        try:
            seconds = self._turn()
        except BaseException as error:
            self._failure, seconds = error, None
        if seconds is None:
            self._turns_over.set()
        elif seconds == 0.0:
            self._want_turn()
        else:
            self._turn_timer = self._loop.call_later(seconds, self._take_turn)

    def _call_delivered(self) -> None:
        with self._calls_lock:
            calls, self._calls, self._calls_wanted = self._calls, deque(), False
        for call in calls:
            call()

    def _note(self, rows: int, versions: Mapping[str, int]) -> None:
        if rows:
            self.metrics.batch_rows.add(rows)
        self.metrics.versions.update(versions)

    def _pause(self, on: bool, now: float) -> None:
        if on:
            self._paused_at = now if self._paused_at is None else self._paused_at
            return
        self._playing = True
        if self._paused_at is not None:
            passed, self._paused_at = now - self._paused_at, None
            for session in self._all_sessions():
                session.heard_at += passed
                for ticket in session.tickets:
                    ticket.since += passed

    def _drain(self) -> None:
        self._draining = True

    def _end_all(self) -> None:
        self._over = self._draining = True
        for session in self._all_sessions():
            if not (session.game.over == "ended" and session.tickets):  # its `end` is about to be answered
                self._leave(session, "over")

    def _drop(self, game: DeskGame) -> None:
        for session in self._all_sessions():
            if session.game is game:
                self._leave(session, game.over)

    def _all_sessions(self) -> list[_Session]:
        return [*self._sessions.values(), *self._unnamed]

    def _look(self) -> None:
        """Ends games whose client is silent or whose request was not answered in time, and overdue connections."""
        now = time.monotonic()
        self._connections.close_overdue(now)
        if self._paused_at is None:
            for session in self._all_sessions():
                if session.tickets:
                    if now - session.tickets[0].since >= self.rules.answer_s:
                        self._lose(session, "timeout")
                elif session.name and now - session.heard_at >= self.rules.idle_s:
                    self._lose(session, "expired")
        self._loop.call_later(_LOOK_S, self._look)

    # ------------------------------------------------------------------------------------------------------- requests

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Handles one request (ASGI)."""
        since, kind, name = time.monotonic(), "", None
        try:
            path = scope["path"]
            if path == "/step":
                kind = "step"
                self._check_method(scope, b"POST")
                self._check_token(scope)
                kind, name, length = self._step_headers(scope)
                if length > self._max_body:
                    raise _Refused("too_large", f"{length} bytes; at most {self._max_body} are taken")
                reply = await self._step(kind, name, scope, receive, since)
            else:
                reply = self._page(path, scope)
        except _Refused as refused:
            reply = refused.reply(name)
        except _Gone:
            return
        if kind:
            self.metrics.requests[kind, reply.status] += 1
            if kind != "step":
                self.metrics.answer_seconds.add(time.monotonic() - since)
        size = str(len(reply.body)).encode()
        headers = [*reply.headers, (b"content-length", size)]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _page(self, path: str, scope: Any) -> _Reply:
        """The answer to a request for anything but a step."""
        if path not in ("/healthz", "/readyz", "/metrics"):
            raise _Refused("not_found", f"there is no {path[:256]}; games call /step")
        self._check_method(scope, b"GET")
        if path == "/healthz":
            return _Reply(200, b"ok", _TEXT)
        if path == "/readyz":
            is_ready = self._playing and not self._draining
            return _Reply(200, b"ok", _TEXT) if is_ready else _Reply(503, b"not ready", _TEXT)
        self._check_token(scope)
        return _Reply(200, self.metrics.text(len(self._sessions)).encode(), _TEXT)

    def _check_method(self, scope: Any, method: bytes) -> None:
        found = scope["method"].encode()
        if found != method and not (found == b"HEAD" and method == b"GET"):
            allowed = b"GET, HEAD" if method == b"GET" else method
            raise _Refused("method_not_allowed", f"expected {method.decode()}", headers=[(b"allow", allowed)])

    def _check_token(self, scope: Any) -> None:
        if self._access.is_open:
            return
        sent = b""
        for key, value in scope["headers"]:
            if key == b"authorization" and value[:7].lower() == b"bearer ":
                sent = value[7:].strip()
            elif key == b"token":
                sent = value.strip()
            else:
                continue
            if self._access.allows(sent):
                return
        where = "" if sent else "; send the header `token`, or `authorization: Bearer`"
        raise _Refused("unauthorized", self._access.refusal(sent) + where)

    def _step_headers(self, scope: Any) -> tuple[str, str, int]:
        """Kind of a request, name of its game (empty for `auto`), and `content-length` (0 if missing)."""
        kinds, names, size = set(), set(), 0
        for key, value in scope["headers"]:
            if key == b"content-length":
                size = int(value)
            elif key.endswith((b"kind", b"id", b"session")):
                known = key.replace(b"_", b"-").removeprefix(b"x-")
                if known == b"step-kind":
                    kinds.add(value)
                elif known == b"game-id" or (known == b"session" and self._later):
                    names.add(value)
        if not kinds and self._later:
            return "auto", "", size
        if not kinds:
            raise _Refused("missing_step_kind", "the header step_kind says start, tick, end or auto")
        if len(kinds) > 1:
            raise _Refused("conflicting_headers", "the header step_kind comes with different values")
        written = kinds.pop()
        kind = (_LATER_KINDS if self._later else _KINDS).get(written)
        if kind is None:
            raise _Refused("bad_step_kind", f"{written[:64].decode('latin-1')!r}; expected start, tick, end or auto")
        if kind == "auto":
            return kind, "", size
        if not names:
            raise _Refused("missing_game_id", "the header game_id names the game")
        if len(names) > 1:
            raise _Refused("conflicting_headers", "the header game_id comes with different values")
        name = names.pop()
        if _NAME.fullmatch(name) is None:
            raise _Refused("bad_game_id", "the header game_id has 1 to 256 visible ASCII characters")
        return kind, name.decode("ascii"), size

    async def _step(self, kind: str, name: str, scope: Any, receive: Any, since: float) -> _Reply:
        if kind == "start":
            session = self._new_session(name, scope["client"])
        elif kind == "auto":
            data = await self._body(receive)  # before the request takes its turn: others must not wait for its body
            session = self._unnamed_session()
        elif name in self._sessions:
            session = self._sessions[name]
        else:
            raise self._unknown(name)
        if len(session.tickets) > self._queue:
            raise _Refused("too_many_requests", f"{self._queue} requests of this game wait already")
        task = asyncio.current_task()
        assert task is not None, "a request is a task"
        ticket = _Ticket(task, since)
        session.tickets.append(ticket)
        try:
            if kind != "auto":
                data = await self._body(receive)
            if session.tickets[0] is not ticket:
                ticket.turn = self._loop.create_future()
                await ticket.turn
            ticket.served = True
            if session.over:
                raise self._unknown(name)
            if kind == "start":
                body = await self._start(session, data)
            elif kind == "auto":
                body = await self._auto(session, data)
            else:
                body = await self._call(session, kind, data)
                if kind == "end":
                    await self._end(session)
            return _Reply(200, body, _BYTES)
        except asyncio.CancelledError:
            if not ticket.over:
                raise
            raise self._why_over(name, ticket.over, served=ticket.served) from None
        finally:
            if kind == "start" and not session.begun and not session.over:
                self._leave(session, "never")
            session.tickets.remove(ticket)
            session.heard_at = time.monotonic()
            if session.tickets:
                turn = session.tickets[0].turn
                if turn is not None and not turn.done():
                    turn.set_result(None)

    async def _body(self, receive: Any) -> bytes:
        message = await receive()
        data: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message["more_body"] and len(data) <= self._max_body:
            return data
        parts, size = [data], len(data)
        while True:
            if message["type"] == "http.disconnect":
                raise _Gone
            if size > self._max_body:
                raise _Refused("too_large", f"at most {self._max_body} bytes are taken")
            if not message["more_body"]:
                return b"".join(parts)
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])

    # ---------------------------------------------------------------------------------------------------------- games

    def _new_session(self, name: str, client: Any) -> _Session:
        if self._draining:
            raise _Refused("draining", "no game may begin any more")
        if name in self._sessions:
            raise _Refused("already_started", f"the game {name!r} is running")
        if not self._playing:
            raise _Refused("not_ready", "the run has not begun")
        self._check_capacity()
        session = self._sessions[name] = _Session(name, client, time.monotonic())
        return session

    def _unnamed_session(self) -> _Session:
        """The actor with the fewest requests among those for requests without a game."""
        if self._over:
            raise _Refused("over", "the run has ended")
        if not self._playing:
            raise _Refused("not_ready", "the run has not begun")
        if len(self._unnamed) < self._stateless and all(session.tickets for session in self._unnamed):
            self._unnamed.append(_Session("", None, time.monotonic()))
        session = min(self._unnamed, key=lambda session: len(session.tickets))
        if not session.tickets:
            self._check_capacity()
        return session

    def _check_capacity(self) -> None:
        if len(self._sessions) + sum(bool(session.tickets) for session in self._unnamed) >= self._slots:
            raise _Refused("no_slot", f"all {self._slots} slots hold a game")

    async def _start(self, session: _Session, data: bytes) -> bytes:
        """Gives a game its slot and makes its actor."""
        try:
            builtin = issubclass(self._actor, BuiltinActor)
            said = self._actor.starting(data) if builtin else Starting()
            count = range(len(self.interface.entities))
            names = self.interface.entities if said.entities is None else said.entities
            entities = sorted({entity_index(self.interface, count, name) for name in names})
            if not entities:
                raise ExternalError("unknown_entity", "a game needs at least one entity")
            after = self._last_slots.get(session.client)
            await self._begin(session, DeskGame(session.name, tuple(entities), said.training, after=after))
        except ExternalError as error:
            raise _Refused(error.code, error.message) from None
        session.begun = True
        self.metrics.begun += 1
        await self._make_actor(session, data)
        return await self._guarded(session, lambda: self._start_reply(session))

    async def _start_reply(self, session: _Session) -> Any:
        return getattr(session.actor, "start_reply", b"Game started.")

    async def _begin(self, session: _Session, game: DeskGame) -> None:
        """Waits until the table has given the game a slot.

        Raises:
            ExternalError: it has not.
        """
        session.game = game
        await self._told(lambda told: self._desk.begin(game, told))
        if not session.links:
            interface, desk = self.interface, self._desk
            session.links = [
                EntityLink(desk, entity, self.policies[entity], self._deliver, self.clone)
                for entity in range(len(interface.entities))
            ]
        for link in session.links:
            link.play(game)

    async def _make_actor(self, session: _Session, data: bytes) -> None:
        if issubclass(self._actor, BuiltinActor):
            session.actor = self._actor(session.links)
            return
        agents = {link.name: Agent(RemoteModel(link), RemoteBuffer(link)) for link in session.links if link.takes_part}

        async def make() -> None:
            def call() -> Any:
                return self._actor(agents, self._config, session.name, data)

            session.actor = call() if self._is_async["tick"] else await self._threads.run(partial(session.run, call))

        await self._guarded(session, make)

    async def _call(self, session: _Session, kind: str, data: bytes) -> bytes:
        """Calls `tick` or `end` of the actor."""

        method = getattr(session.actor, kind)
        call = partial(method, data)
        if not self._is_async[kind]:
            call = partial(self._threads.run, partial(session.run, call))
        body = await self._guarded(session, call)
        for link in session.links:
            link.pay()
        return body

    async def _guarded(self, session: _Session, call: Callable[[], Awaitable[Any]]) -> bytes:
        """What an actor returns, as bytes; if it fails, the game is over.

        Raises:
            _Refused: the actor has failed, or a built-in one has refused the request.
        """
        try:
            return _as_bytes(await call())
        except ExternalError as error:
            if error.code in ("over", "timeout", "expired", "lost", "policy_error"):
                reason = "over" if error.code == "lost" else error.code
                self._leave(session, reason)
                raise self._why_over(session.name, reason, served=True) from None
            if isinstance(session.actor, BuiltinActor) and _STATUS.get(error.code) == 400:
                raise _Refused(error.code, error.message) from None
            refused = _Refused("actor_error", str(error))
            self._log_failure(session, error)
        except _BadReturn as error:
            refused = _Refused("actor_bad_return", f"the actor has returned {error}; expected bytes, text or nothing")
            self._log_failure(session, error)
        except BaseException as error:  # also an actor that exits, or that cancels its own work
            if isinstance(error, asyncio.CancelledError) and (self._over or any(one.over for one in session.tickets)):
                raise
            refused = _Refused("actor_error", f"{type(error).__name__} in the actor; its traceback is in the log")
            self._log_failure(session, error)
        if session.name:
            self._lose(session, "failed")
        raise refused from None

    def _log_failure(self, session: _Session, error: BaseException) -> None:
        _log.error("the actor of the game %r has failed", session.name, exc_info=error)

    async def _end(self, session: _Session) -> None:
        """After `end` of the actor: all entities have ended, and the slot is free."""
        playing = [link for link in session.links if link.takes_part and not link.ended]
        for link in playing[:-1]:
            link.end()
        if playing:
            try:
                await self._told(lambda told: playing[-1].end(told=told))
            except ExternalError:  # the arena has given the game up meanwhile
                reason = session.game.over or "over"
                self._leave(session, reason)
                raise self._why_over(session.name, reason, served=True) from None
        self.metrics.ended += 1
        if session.game.slot is not None and session.client is not None:
            self._last_slots[session.client] = session.game.slot
            if len(self._last_slots) > 4 * self._slots + 64:
                self._last_slots.popitem(last=False)
        self._leave(session, "ended")

    async def _auto(self, session: _Session, data: bytes) -> bytes:
        """A request without a game: it takes a slot until it is answered, and is not learned from."""
        game = DeskGame("", tuple(range(len(self.interface.entities))), training=False)
        try:
            await self._begin(session, game)
        except ExternalError as error:
            raise _Refused(error.code, error.message) from None
        try:
            if session.actor is None:
                await self._make_actor(session, b"")
            return await self._call(session, "tick", data)
        except _Refused:
            session.actor = None if not isinstance(session.actor, BuiltinActor) else session.actor
            raise
        finally:
            for link in session.links:
                if not link.ended:
                    link.end()

    async def _told(self, put: Callable[[Callable[[ExternalError | None], None]], None]) -> None:
        """Puts a request to the desk and waits until the table has taken it.

        Raises:
            ExternalError: the table has refused it.
        """
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(error: ExternalError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        put(lambda error: self._deliver(lambda: settle(error)))
        await future

    def _lose(self, session: _Session, reason: str) -> None:
        """Ends a game, also in the table."""
        self._leave(session, reason)
        self._desk.lose(session.game, reason)

    def _leave(self, session: _Session, reason: str) -> None:
        """A game is over; its requests that wait are answered with the reason.

        Without a game, only the request that is served is over, unless the server ends.
        """
        if session.over:
            return
        if session.name or reason == "over":
            session.over = reason
        if session.name:
            self._sessions.pop(session.name, None)
            if reason != "never":
                self._ends.add(session.name, "failed" if reason == "policy_error" else reason)
            if reason != "ended" and session.begun:
                self.metrics.lost[reason] += 1
        if reason in ("ended", "never"):
            return
        current = asyncio.current_task()
        for ticket in session.tickets:
            if ticket.task is not current and (session.over or ticket.served):
                ticket.over = reason
                ticket.task.cancel()
        close = getattr(session.actor, "close", None)
        if close is not None:
            session.when_free(lambda: self._deliver(lambda: self._begin_close(session, partial(close, reason))))
        if not session.name and not isinstance(session.actor, BuiltinActor):
            session.actor = None

    def _begin_close(self, session: _Session, close: Callable[[], Any]) -> None:
        session.closing = self._loop.create_task(self._close_actor(session, close))

    async def _close_actor(self, session: _Session, close: Callable[[], Any]) -> None:
        try:
            found = await self._threads.run(close)
            if inspect.isawaitable(found):
                await found
        except Exception as error:
            self._log_failure(session, error)

    def _why_over(self, name: str, reason: str, *, served: bool) -> _Refused:
        """The answer to a request whose game is over meanwhile."""
        if reason == "timeout" and served:
            return _Refused("timeout", f"no answer within {self.rules.answer_s:g} s; the game is over")
        if reason == "policy_error" and served:
            return _Refused("policy_error", "the policy has failed on this observation; the game is over")
        return self._unknown(name, "failed" if reason == "policy_error" else reason)

    def _unknown(self, name: str, reason: str = "") -> _Refused:
        reason = reason or self._ends.reason(name)
        if reason == "over" or self._over:
            return _Refused("over", "the run has ended")
        if reason == "timeout" and not name:
            return _Refused("timeout", f"no answer within {self.rules.answer_s:g} s")
        words = {"never": "no game of this name has begun", "ended": "this game has ended"}
        return _Refused("unknown_game", words.get(reason, f"this game is over: {reason}"), reason=reason)


class _Ticket:
    """A request of a game, from its headers to its answer."""

    def __init__(self, task: asyncio.Task[Any], since: float) -> None:
        self.task, self.since = task, since
        self.served = False  # its turn has come
        self.over = ""  # why the game is over, if the request was cancelled for that
        self.turn: asyncio.Future[None] | None = None


class _Session:
    """A game, its actor, and its requests in order; the first one is served."""

    def __init__(self, name: str, client: Any, now: float) -> None:
        self.name, self.client = name, client
        self.game = DeskGame(name, ())
        self.links: list[EntityLink] = []
        self.actor: Any = None
        self.begun = False
        self.over = ""
        self.heard_at = now
        self.tickets: deque[_Ticket] = deque()
        self.closing: asyncio.Task[None] | None = None  # the loop holds only a weak reference to tasks
        self._lock = threading.Lock()
        self._in_call = False
        self._when_free: Callable[[], None] | None = None

    def run(self, call: Callable[[], Any]) -> Any:
        """Calls the actor; in a thread."""
        with self._lock:
            self._in_call = True
        try:
            return call()
        finally:
            with self._lock:
                self._in_call, then, self._when_free = False, self._when_free, None
            if then is not None:
                then()

    def when_free(self, then: Callable[[], None]) -> None:
        """Calls a function as soon as no thread is in the actor; a call that was given up may still go on."""
        with self._lock:
            if self._in_call:
                self._when_free = then
                return
        then()


class _Reply(NamedTuple):
    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]]


class _Gone(Exception):
    """The client has closed the connection before its request was complete."""


class _BadReturn(Exception):
    """An actor has returned something else than bytes."""


class _Refused(Exception):
    """A request is answered with an error."""

    def __init__(
        self, code: str, detail: str, *, reason: str = "", headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(code)
        self.code, self._detail, self._reason, self._headers = code, detail, reason, headers

    def reply(self, name: str | None) -> _Reply:
        """The answer to the request, of the game of this name."""
        reason = {"reason": self._reason} if self._reason else {}
        body = {"error": self.code, "detail": self._detail, "game_id": name or None, **reason}
        headers = [*_JSON, *_HEADERS.get(self.code, ()), *self._headers]
        return _Reply(_STATUS[self.code], msgspec.json.encode(body), headers)


def _as_bytes(found: Any) -> bytes:
    if type(found) is bytes:
        return found
    if isinstance(found, (bytes, bytearray, memoryview)):
        return bytes(found)
    if isinstance(found, str):
        return found.encode()
    if found is None:
        return b""
    raise _BadReturn(type(found).__name__)


def _interface_and_actor(
    actor: str, entities: Mapping[str, Any] | Interface | None, like: Mapping[str, Any] | None
) -> tuple[Interface, Any]:
    """The interface of the games and the class of their actors."""
    if actor in ("json", "raw"):
        interface = declared_interface(entities, like)
        return interface, JsonActor if actor == "json" else raw_actor(interface)
    if ":" not in actor:
        raise ConfigError(f"{actor!r} is no actor; expected json, raw, or package.module:Class", path="actor")
    from arena.registry import load_object

    found = load_object(actor)
    if (
        not isinstance(found, type)
        or not callable(getattr(found, "tick", None))
        or not callable(getattr(found, "end", None))
    ):
        raise ConfigError(f"{actor} is no actor: a class with the methods tick(data) and end(data)", path="actor")
    has_spaces = any(getattr(found, name, None) for name in ("observation_space", "observation_spaces"))
    if has_spaces and not isinstance(entities, Interface) and (entities is not None or like is not None):
        given = "entities" if entities is not None else "like"
        raise ConfigError(f"{actor} has spaces itself; leave this key out", path=given)
    if has_spaces:
        return interface_of(found), found
    if entities is None and like is None:
        raise ConfigError("says neither `entities` nor `like`, and the actor has no spaces")
    return declared_interface(entities, like), found


def check_installed() -> None:
    """Raises `ConfigError` unless the packages of the extra `http` are installed."""
    missing = [package for package in ("uvicorn", "httptools", "uvloop") if find_spec(package) is None]
    if missing:
        raise ConfigError(f"games over HTTP need the extra `http` ({', '.join(missing)} is missing)")
