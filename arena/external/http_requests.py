"""The requests that an HTTP server of games takes: `POST /step`, and pages for operators."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from arena.errors import nearest, nearest_key
from arena.external.access import Access
from arena.external.http_sessions import STATUS_OF, RequestError, Sessions

_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"auto": "auto"}
_LATER_KINDS = {**_KINDS, b"stop": "end"}
_PREFIXES = (b"", b"x-", b"x_")
_KIND_KEYS = {prefix + name for prefix in _PREFIXES for name in (b"step-kind", b"step_kind")}
_GAME_KEYS = {prefix + name for prefix in _PREFIXES for name in (b"game-id", b"game_id")}
_LATER_GAME_KEYS = {prefix + b"session" for prefix in _PREFIXES}
_NAME = re.compile(rb"[\x21-\x7e]{1,256}")
HEALTH = ("/healthz", "/readyz")
"""Pages that need no token and are also answered on connections beyond the limits, for load balancers."""
_PAGES = (*HEALTH, "/metrics", "/interface")
_BYTES = b"content-type: application/octet-stream\r\n"
_JSON = b"content-type: application/json\r\n"
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"
_HEADERS = {
    "unauthorized": b"www-authenticate: Bearer\r\n",
    "no_slot": b"retry-after: 1\r\n",
    "not_ready": b"retry-after: 1\r\n",
}


Reply: TypeAlias = tuple[int, bytes, bytes, bool]
"""Status, lines of the headers besides `content-length` and `connection`, body, and whether the connection closes."""


class Requests:
    """Reads requests, checks what holds for all games, and makes the answers.

    `interface` is the page `/interface`.
    """

    def __init__(self, sessions: Sessions, access: Access, interface: bytes) -> None:
        self._sessions, self._access, self._interface = sessions, access, interface
        self._has_token = bool(access.refusal(()))
        self._max_body, self._later = sessions.settings.max_body, sessions.settings.dialect == "later"

    async def __call__(self, cycle: RequestResponseCycle, task: Any) -> Reply | None:
        """The answer to one request; None: its client has gone."""
        scope, sessions = cycle.scope, self._sessions
        since, kind, name, path, status, content, closes = time.monotonic(), "", None, scope["path"], 200, _TEXT, False
        try:
            if path == "/step":
                kind = "step"
                self._check(scope, "POST", needs_token=True)
                kind, name, length = step_headers(scope["headers"], self._later)
                if length > self._max_body:
                    raise RequestError("too_large", f"{length} bytes; at most {self._max_body} are taken")
                content = _BYTES
                body = await sessions.step(kind, name, scope["client"], partial(self._body, cycle), since, task)
            elif path not in _PAGES:
                known = nearest(path[:256], ("/step", *_PAGES))
                raise RequestError("not_found", f"there is no {path[:256]}; {known}; games call /step")
            else:
                self._check(scope, "GET", needs_token=path not in HEALTH)
                body = b"ok"
                if path == "/interface":
                    body, content = self._interface, _JSON
                elif path == "/metrics":
                    body = sessions.metrics.text(sessions.running).encode()
                elif path == "/readyz" and not sessions.ready:
                    status, body = 503, b"not ready"
        except RequestError as refused:
            code, game = refused.code, name or _sent_name(scope["headers"], self._later)
            status, body = STATUS_OF[code], refused.body(game)
            content, closes = _JSON + _HEADERS.get(code, refused.headers), code == "too_large"
            if kind:
                sessions.metrics.refused_by[code] += 1
                # With 503 the request is right: clients send it again each second.
                if status != 503 and sessions.metrics.note_refusal(code, refused.detail, game):
                    sessions.requests.ring()
        except _Gone:
            return None
        if kind:
            sessions.metrics.requests[kind, status] += 1
            if kind != "step":
                sessions.metrics.answer_seconds.add(time.monotonic() - since)
        return status, content, body, closes

    def _check(self, scope: Any, method: str, *, needs_token: bool) -> None:
        found = scope["method"]
        if found != method and not (found == "HEAD" and method == "GET"):
            allowed = b"GET, HEAD" if method == "GET" else method.encode()
            wrong = f"found {found}; expected {method}"
            raise RequestError("method_not_allowed", wrong, headers=b"allow: %s\r\n" % allowed)
        if needs_token and self._has_token:
            tokens = []
            for key, value in scope["headers"]:
                if key == b"authorization" and value[:7].lower() == b"bearer ":
                    tokens.append(value[7:].strip())
                elif key == b"token":
                    tokens.append(value.strip())
            if refusal := self._access.refusal(tokens):
                raise RequestError("unauthorized", refusal)

    async def _body(self, cycle: RequestResponseCycle) -> bytes:
        if not (cycle.more_body or cycle.waiting_for_100_continue) and len(cycle.body) <= self._max_body:
            return bytes(cycle.body)
        parts, size, more = [], 0, True
        while more:
            message: Any = await cycle.receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            parts.append(message["body"])
            size, more = size + len(parts[-1]), message["more_body"]
            if size > self._max_body:
                raise RequestError("too_large", f"at most {self._max_body} bytes are taken")
        return b"".join(parts)


def step_headers(headers: Iterable[tuple[bytes, bytes]], later: bool) -> tuple[str, str, int]:
    """Kind of a request, name of its game (empty for `auto`), and `content-length` (0 if missing)."""
    kinds, names, size = list[bytes](), list[bytes](), 0
    for key, value in headers:
        if key in _KIND_KEYS:
            kinds.append(value)
        elif key in _GAME_KEYS or (later and key in _LATER_GAME_KEYS):
            names.append(value)
        elif key == b"content-length":
            size = int(value)
    if not kinds and later:
        return "auto", "", size
    if not kinds:
        raise RequestError("missing_step_kind", "the header step_kind says start, tick, end or auto")
    if len(kinds) > 1 and len({*kinds}) > 1:
        raise RequestError("conflicting_headers", "the header step_kind comes with different values")
    written = kinds.pop()
    kind = (_LATER_KINDS if later else _KINDS).get(written)
    if kind is None:
        found = written[:64].decode("latin-1")
        raise RequestError("bad_step_kind", f"{found!r}; {nearest_key(found, _KINDS.values())}")
    if kind == "auto":
        return kind, "", size
    if not names:
        raise RequestError("missing_game_id", "the header game_id names the game")
    if len(names) > 1 and len({*names}) > 1:
        raise RequestError("conflicting_headers", "the header game_id comes with different values")
    name = names.pop()
    if _NAME.fullmatch(name) is None:
        raise RequestError("bad_game_id", "the header game_id has 1 to 256 visible ASCII characters")
    return kind, name.decode("ascii"), size


def _sent_name(headers: Iterable[tuple[bytes, bytes]], later: bool) -> str | None:
    """The name of a game in a request whose other headers are wrong; None: it has none, or several, or a wrong one."""
    keys = _GAME_KEYS | _LATER_GAME_KEYS if later else _GAME_KEYS
    names = {value for key, value in headers if key in keys}
    name = names.pop() if len(names) == 1 else b""
    return name.decode("ascii") if _NAME.fullmatch(name) else None


class _Gone(Exception):
    """The client has closed the connection before its request was complete."""
