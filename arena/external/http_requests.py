"""The requests that an HTTP server of games takes: `POST /step`, and pages for operators (ASGI)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from arena.external.access import Access
from arena.external.http_sessions import STATUS_OF, RequestError, Sessions

_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"auto": "auto"}
_LATER_KINDS = {**_KINDS, b"stop": "end"}
_NAME = re.compile(rb"[\x21-\x7e]{1,256}")
HEALTH = ("/healthz", "/readyz")
"""Pages that need no token and are also answered on connections beyond the limits, for load balancers."""
_PAGES = (*HEALTH, "/metrics", "/interface")
_BYTES = [(b"content-type", b"application/octet-stream")]
_JSON = [(b"content-type", b"application/json")]
_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]
_HEADERS = {
    "unauthorized": [(b"www-authenticate", b"Bearer")],
    "no_slot": [(b"retry-after", b"1")],
    "not_ready": [(b"retry-after", b"1")],
    "too_large": [(b"connection", b"close")],
}


class Requests:
    """Reads requests, checks what holds for all games, and sends the answers.

    `interface` is the page `/interface`.
    """

    def __init__(self, sessions: Sessions, access: Access, interface: bytes) -> None:
        self._sessions, self._access, self._interface = sessions, access, interface
        self._max_body, self._later = sessions.settings.max_body, sessions.settings.dialect == "later"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handles one request."""
        since, kind, name, path, sessions = time.monotonic(), "", None, scope["path"], self._sessions
        status, content = 200, _TEXT
        try:
            if path == "/step":
                kind = "step"
                self._check(scope, b"POST", needs_token=True)
                kind, name, length = step_headers(scope["headers"], self._later)
                if length > self._max_body:
                    raise RequestError("too_large", f"{length} bytes; at most {self._max_body} are taken")
                content = _BYTES
                body = await sessions.step(kind, name, scope["client"], partial(self._body, receive), since)
            elif path not in _PAGES:
                raise RequestError("not_found", f"there is no {path[:256]}; games call /step")
            else:
                self._check(scope, b"GET", needs_token=path not in HEALTH)
                body = b"ok"
                if path == "/interface":
                    body, content = self._interface, _JSON
                elif path == "/metrics":
                    body = sessions.metrics.text(sessions.running).encode()
                elif path == "/readyz" and not sessions.ready:
                    status, body = 503, b"not ready"
        except RequestError as refused:
            status, body = STATUS_OF[refused.code], refused.body(name)
            content = [*_JSON, *_HEADERS.get(refused.code, ()), *refused.headers]
        except _Gone:
            return
        if kind:
            sessions.metrics.requests[kind, status] += 1
            if kind != "step":
                sessions.metrics.answer_seconds.add(time.monotonic() - since)
        headers = [*content, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _check(self, scope: Any, method: bytes, *, needs_token: bool) -> None:
        found = scope["method"].encode()
        if found != method and not (found == b"HEAD" and method == b"GET"):
            allowed = b"GET, HEAD" if method == b"GET" else method
            raise RequestError("method_not_allowed", f"expected {method.decode()}", headers=[(b"allow", allowed)])
        if needs_token:
            tokens = []
            for key, value in scope["headers"]:
                if key == b"authorization" and value[:7].lower() == b"bearer ":
                    tokens.append(value[7:].strip())
                elif key == b"token":
                    tokens.append(value.strip())
            if refusal := self._access.refusal(tokens):
                raise RequestError("unauthorized", refusal)

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
                raise RequestError("too_large", f"at most {self._max_body} bytes are taken")
            if not message["more_body"]:
                return b"".join(parts)
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])


def step_headers(headers: Sequence[tuple[bytes, bytes]], later: bool) -> tuple[str, str, int]:
    """Kind of a request, name of its game (empty for `auto`), and `content-length` (0 if missing)."""
    kinds, names, size = set(), set(), 0
    for key, value in headers:
        if key == b"content-length":
            size = int(value)
        elif key.endswith((b"kind", b"id", b"session")):
            known = key.replace(b"_", b"-").removeprefix(b"x-")
            if known == b"step-kind":
                kinds.add(value)
            elif known == b"game-id" or (known == b"session" and later):
                names.add(value)
    if not kinds and later:
        return "auto", "", size
    if not kinds:
        raise RequestError("missing_step_kind", "the header step_kind says start, tick, end or auto")
    if len(kinds) > 1:
        raise RequestError("conflicting_headers", "the header step_kind comes with different values")
    written = kinds.pop()
    kind = (_LATER_KINDS if later else _KINDS).get(written)
    if kind is None:
        raise RequestError("bad_step_kind", f"{written[:64].decode('latin-1')!r}; expected start, tick, end or auto")
    if kind == "auto":
        return kind, "", size
    if not names:
        raise RequestError("missing_game_id", "the header game_id names the game")
    if len(names) > 1:
        raise RequestError("conflicting_headers", "the header game_id comes with different values")
    name = names.pop()
    if _NAME.fullmatch(name) is None:
        raise RequestError("bad_game_id", "the header game_id has 1 to 256 visible ASCII characters")
    return kind, name.decode("ascii"), size


class _Gone(Exception):
    """The client has closed the connection before its request was complete."""
