"""The games of an HTTP server, on its loop: their requests in order, their actors, and how they end."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from arena.external.access import Ends
from arena.external.actor import Agent, Clone, EntityLink, RemoteBuffer, RemoteModel
from arena.external.builtin_actors import BuiltinActor, GameStart
from arena.external.errors import ExternalError
from arena.external.http_metrics import Metrics
from arena.external.http_settings import Settings
from arena.external.request_queue import ConnectedGame, RequestQueue, Settled, entity_index
from arena.external.threads import ActorThreads

_log = logging.getLogger(__name__)

STATUSES: dict[int, tuple[str, ...]] = {
    400: (
        *("missing_step_kind", "bad_step_kind", "missing_game_id", "bad_game_id", "conflicting_headers", "bad_request"),
        *("bad_observation", "bad_mask", "bad_action", "bad_reward", "bad_body"),
        *("already_asking", "ended", "unknown_entity"),
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

STATUS_OF = {code: status for status, codes in STATUSES.items() for code in codes}


class RequestError(Exception):
    """A request is answered with an error."""

    def __init__(self, code: str, detail: str, *, reason: str = "", headers: bytes = b"") -> None:
        super().__init__(code)
        self.code, self.detail, self.headers = code, detail, headers
        self._body = {"error": code, "detail": detail, "game_id": None, **({"reason": reason} if reason else {})}

    def body(self, game: str | None) -> bytes:
        """The answer to a request of the game of this name."""
        return msgspec.json.encode({**self._body, "game_id": game or None})


@dataclass(eq=False)
class Sessions:
    """The games that clients play, and what becomes of each request."""

    requests: RequestQueue
    settings: Settings
    actor: Any  # the class of the actors
    slots: int
    deliver: Callable[[Callable[[], None]], None]  # calls a function on the loop, from any thread
    clone: Clone | None  # see `RemoteModel.clone`
    policies: Sequence[str]  # by entity
    metrics: Metrics

    def __post_init__(self) -> None:
        self.threads = ActorThreads(self.settings.actor_threads or self.slots, self.deliver)
        self._config = {} if self.settings.config is None else self.settings.config
        self._is_async = {name: inspect.iscoroutinefunction(getattr(self.actor, name)) for name in ("tick", "end")}
        self.is_builtin = issubclass(self.actor, BuiltinActor)
        self._sessions: dict[str, _Session] = {}
        self._unnamed: list[_Session] = []  # of requests without a game
        self._ends = Ends()
        self._last_slots: OrderedDict[Any, int] = OrderedDict()  # by connection, the slot of its last game
        self._playing = self._over = self.draining = False
        self._paused_at: float | None = None

    @property
    def running(self) -> int:
        """The number of games that go on."""
        return len(self._sessions)

    @property
    def ready(self) -> bool:
        """Whether games may begin."""
        return self._playing and not self.draining

    def _all(self) -> list[_Session]:
        return [*self._sessions.values(), *self._unnamed]

    def pause(self, on: bool, now: float) -> None:
        """Limits of time stand still from now on, or go on; games may begin from the first leg on."""
        if on:
            self._paused_at = now if self._paused_at is None else self._paused_at
            return
        self._playing = True
        if self._paused_at is not None:
            passed, self._paused_at = now - self._paused_at, None
            self._postpone(passed)

    def _postpone(self, seconds: float) -> None:
        """So many seconds count for no limit."""
        for session in self._all():
            session.active_at += seconds
            for ticket in session.tickets:
                ticket.since += seconds

    def drain(self) -> None:
        """No game may begin any more."""
        self.draining = True

    def look(self, stopped: float) -> None:
        """Ends games whose client is silent, or whose request was not answered in time.

        `stopped`: seconds since the last look in which the process did not run.
        """
        if self._paused_at is not None:
            return
        self._postpone(stopped)
        now = time.monotonic()
        for session in self._all():
            if session.tickets:
                if now - session.tickets[0].since >= self.requests.rules.answer_s:
                    self._lose(session, "timeout")
            elif session.name and now - session.active_at >= self.requests.rules.idle_s:
                self._lose(session, "expired")

    def drop(self, game: ConnectedGame) -> None:
        """The arena has given a game up."""
        for session in self._all():
            if session.game is game:
                self._leave(session, game.over)

    def end_all(self) -> None:
        """The run is over: all requests that wait are answered so."""
        self._over = self.draining = True
        for session in self._all():
            if not (session.game.over == "ended" and session.tickets):  # its `end` is about to be answered
                self._leave(session, "over")

    async def step(
        self, kind: str, name: str, client: Any, read: Callable[[], Awaitable[bytes]], since: float, task: Any
    ) -> bytes:
        """The body of the answer to a request, which is served in its turn; `RequestError` if there is no answer."""
        data = await read() if kind == "auto" else b""  # others must not wait for the body of a request without a game
        if kind in ("start", "auto"):
            if kind == "auto" and self._over:
                raise RequestError("over", "the run has ended")
            if kind == "start" and self.draining:
                raise RequestError("draining", "no game may begin any more")
            if name in self._sessions:
                raise RequestError("already_started", f"the game {name!r} is running; end it, or choose another name")
            if not self._playing:
                raise RequestError("not_ready", "the run has not begun; try again after a second")
            if kind == "auto":  # the actor with the fewest requests
                if len(self._unnamed) < self.settings.stateless_actors and all(
                    session.tickets for session in self._unnamed
                ):
                    self._unnamed.append(_Session("", None))
                session = min(self._unnamed, key=lambda session: len(session.tickets))
            else:
                session = _Session(name, client)
            playing = len(self._sessions) + sum(bool(session.tickets) for session in self._unnamed)
            if not session.tickets and playing >= self.slots:
                idle = f"{self.requests.rules.idle_s:g} s without a request (`idle_s`)"
                raise RequestError(
                    "no_slot", f"all {self.slots} slots hold a game; try again when one has ended, by `end` or {idle}"
                )
            if name:
                self._sessions[name] = session
        elif name in self._sessions:
            session = self._sessions[name]
        else:
            raise self._refusal(name)
        if len(session.tickets) > self.settings.queue:
            raise RequestError("too_many_requests", f"{self.settings.queue} requests of this game wait already")
        ticket = _Ticket(task or asyncio.current_task(), since)
        session.tickets.append(ticket)
        try:
            if kind != "auto":
                data = await read()
            if session.tickets[0] is not ticket:
                ticket.turn = asyncio.get_running_loop().create_future()
                await ticket.turn
            ticket.served = True
            if session.over:
                raise self._refusal(name)
            if kind == "tick":
                return await self._call(session, kind, data)
            return await self._serve(session, kind, data)
        except asyncio.CancelledError:
            if not ticket.over:
                raise
            raise self._refusal(name, ticket.over, served=ticket.served) from None
        finally:
            if kind == "start" and not session.begun and not session.over:
                self._leave(session, "never")
            session.tickets.remove(ticket)
            session.active_at = time.monotonic()
            if session.tickets:
                turn = session.tickets[0].turn
                if turn is not None and not turn.done():
                    turn.set_result(None)

    async def _serve(self, session: _Session, kind: str, data: bytes) -> bytes:
        """The answer to a request that begins or ends a game, and whose turn has come."""
        interface = self.requests.interface
        if kind in ("start", "auto"):
            game = ConnectedGame("", tuple(range(len(interface.entities))), training=False)
            try:
                if kind == "start":
                    start = self.actor.starting(data) if self.is_builtin else GameStart()
                    names = interface.entities if start.entities is None else start.entities
                    entities = sorted({entity_index(interface, range(len(interface.entities)), one) for one in names})
                    if not entities:
                        raise ExternalError("unknown_entity", "a game needs at least one entity")
                    after = self._last_slots.get(session.client)
                    game = ConnectedGame(session.name, tuple(entities), start.training, after=after)
                session.game = game
                await self._taken(lambda settled: self.requests.begin(game, settled))
            except ExternalError as error:
                raise RequestError(error.code, error.message) from None
            session.links = session.links or [
                EntityLink(self.requests, entity, policy, self.deliver, self.clone)
                for entity, policy in enumerate(self.policies)
            ]
            for link in session.links:
                link.play(game)
        if kind == "start":
            session.begun = True
            self.metrics.begun += 1
            await self._make_actor(session, data)

            async def start_reply() -> Any:
                return getattr(session.actor, "start_reply", b"Game started.")

            return await self._guarded(session, start_reply)
        if kind == "auto":  # it has a slot until it is answered, and is not learned from
            try:
                if session.actor is None:
                    await self._make_actor(session, b"")
                return await self._call(session, "tick", data)
            except RequestError:
                session.actor = None if not self.is_builtin else session.actor
                raise
            finally:
                for link in session.links:
                    if not link.ended:
                        link.end()
        body = await self._call(session, kind, data)
        playing = [link for link in session.links if link.takes_part and not link.ended]
        for link in playing[:-1]:
            link.end()
        if playing:
            try:
                await self._taken(lambda settled: playing[-1].end(settled=settled))
            except ExternalError:  # the arena has given the game up meanwhile
                reason = session.game.over or "over"
                self._leave(session, reason)
                raise self._refusal(session.name, reason, served=True) from None
        self.metrics.ended += 1
        if session.game.slot is not None and session.client is not None:
            self._last_slots[session.client] = session.game.slot
            if len(self._last_slots) > 4 * self.slots + 64:
                self._last_slots.popitem(last=False)
        self._leave(session, "ended")  # the slot is free
        return body

    async def _taken(self, put: Callable[[Settled], None]) -> None:
        """Puts a request to the queue and waits until the table has taken it; raises `ExternalError` if it has not."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: ExternalError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        put(lambda error: self.deliver(partial(settle, error)))
        await future

    async def _make_actor(self, session: _Session, data: bytes) -> None:
        if self.is_builtin:
            session.actor = self.actor(session.links)
            return
        agents = {link.name: Agent(RemoteModel(link), RemoteBuffer(link)) for link in session.links if link.takes_part}

        async def make() -> None:
            call = partial(self.actor, agents, self._config, session.name, data)
            session.actor = call() if self._is_async["tick"] else await self.threads.run(partial(session.run, call))

        await self._guarded(session, make)

    async def _call(self, session: _Session, kind: str, data: bytes) -> bytes:
        """Calls `tick` or `end` of the actor."""
        call = partial(getattr(session.actor, kind), data)
        if not self._is_async[kind]:
            call = partial(self.threads.run, partial(session.run, call))
        body = await self._guarded(session, call)
        for link in session.links:
            link.pay()
        return body

    async def _guarded(self, session: _Session, call: Callable[[], Awaitable[Any]]) -> bytes:
        """What an actor returns, as bytes; if it fails, the game is over, and if a built-in one refuses, it goes on."""
        try:
            found = await call()
            if found is None or isinstance(found, (bytes, bytearray, memoryview, str)):
                return found.encode() if isinstance(found, str) else bytes(found or b"")
            error: BaseException = TypeError(f"the actor has returned {type(found).__name__}")
            refused = RequestError("actor_bad_return", f"{error}; expected bytes, text or nothing")
        except ExternalError as raised:
            error, refused = raised, RequestError("actor_error", str(raised))
            if error.code in ("over", "timeout", "expired", "lost", "policy_error"):
                reason = "over" if error.code == "lost" else error.code
                self._leave(session, reason)
                raise self._refusal(session.name, reason, served=True) from None
            if self.is_builtin and STATUS_OF.get(error.code) == 400:
                raise RequestError(error.code, error.message) from None
        except BaseException as raised:  # also an actor that exits, or that cancels its own work
            if isinstance(raised, asyncio.CancelledError) and (self._over or any(one.over for one in session.tickets)):
                raise
            error = raised
            refused = RequestError("actor_error", f"{type(error).__name__} in the actor; its traceback is in the log")
        _log_failure(session, error)
        if session.name:
            self._lose(session, "failed")
        raise refused from None

    def _lose(self, session: _Session, reason: str) -> None:
        """Ends a game, also in the table."""
        self._leave(session, reason)
        self.requests.lose(session.game, reason)

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
        actor = session.actor
        if hasattr(actor, "close"):

            async def close() -> None:
                try:
                    found = await self.threads.run(partial(actor.close, reason))
                    if inspect.isawaitable(found):
                        await found
                except Exception as error:
                    _log_failure(session, error)

            def begin() -> None:
                session.closing = asyncio.get_running_loop().create_task(close())

            session.when_free(lambda: self.deliver(begin))
        if not session.name and not self.is_builtin:
            session.actor = None

    def _refusal(self, name: str, reason: str = "", *, served: bool = False) -> RequestError:
        """The answer to a request without a game, which may be over since the request was `served`."""
        late = f"no answer within {self.requests.rules.answer_s:g} s"
        if reason == "timeout" and served:
            return RequestError("timeout", f"{late}; the game is over")
        if reason == "policy_error" and served:
            return RequestError("policy_error", "the policy has failed on this observation; the game is over")
        reason = "failed" if reason == "policy_error" else reason or self._ends.reason(name)
        if reason == "over" or self._over:
            return RequestError("over", "the run has ended")
        if reason == "timeout" and not name:
            return RequestError("timeout", late)
        why = {"never": "no game of this name has begun", "ended": "this game has ended"}
        why["expired"] = f"this game is over: no request within {self.requests.rules.idle_s:g} s (`idle_s`)"
        text = f"{why.get(reason, f'this game is over: {reason}')}; begin one with step_kind: start"
        return RequestError("unknown_game", text, reason=reason)


def _log_failure(session: _Session, error: BaseException) -> None:
    _log.error("the actor of the game %r has failed", session.name, exc_info=error)


@dataclass(eq=False)
class _Ticket:
    """A request of a game, from its headers to its answer."""

    task: Any  # of asyncio, or `Steps`
    since: float
    served: bool = False  # its turn has come
    over: str = ""  # why the game is over, if the request was cancelled for that
    turn: asyncio.Future[None] | None = None


class _Session:
    """A game, its actor, and its requests in order; the first one is served."""

    def __init__(self, name: str, client: Any) -> None:
        self.name, self.client = name, client
        self.game = ConnectedGame(name, ())
        self.links: list[EntityLink] = []
        self.actor: Any = None
        self.begun = False
        self.over = ""
        self.active_at = time.monotonic()
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
        """Calls a function as soon as no thread is in the actor; a call that timed out may still go on."""
        with self._lock:
            if self._in_call:
                self._when_free = then
                return
        then()
