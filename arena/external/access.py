"""Access tokens, names of hosts, and the reasons why games have ended: shared by all servers."""

from __future__ import annotations

import hmac
import logging
import re
import socket
import stat
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from shlex import quote

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError

_log = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
_PORT = re.compile(r":\d*$")
_MOST_ENDS = 10_000
_ENDS_KEPT_S = 3600.0


class Access:
    """The token that clients have to send, if there is one.

    Args:
        host: at which the server listens.
        insecure: allows another host than loopback without a token.
        allowed_hosts: names of this server that a request's header Host may have, besides its own ones.

    Raises:
        ConfigError: the file cannot be read, or other machines could connect without a token.
    """

    def __init__(self, host: str, token_file: str | None, insecure: bool, allowed_hosts: Iterable[str]) -> None:
        self._hosts = [host, *allowed_hosts, *([] if host in _LOOPBACK else [socket.gethostname()])]
        self._token: bytes | None = None
        if token_file is not None:
            file = anchored(token_file)
            try:
                self._token, mode = file.read_bytes().strip(), file.stat().st_mode
            except OSError as error:
                raise ConfigError(f"{file} cannot be read: {error.strerror}", path="token_file") from error
            if not self._token:
                raise ConfigError(f"{file} is empty", path="token_file")
            if mode & (stat.S_IRGRP | stat.S_IROTH):
                _log.warning(
                    "the token in %s can be read by other users of this machine: chmod 600 %s", file, quote(str(file))
                )
        if host not in _LOOPBACK and self._token is None and not insecure:
            raise ConfigError(
                f"{host} can be reached by other machines: set `token_file` (arena serve: --token-file), or "
                "`insecure: true` (--insecure) if that is meant",
                path="host",
            )

    def refusal(self, tokens: Sequence[bytes]) -> str:
        """The message for a request with these tokens; empty if one is allowed, or none is needed.

        Comparing takes the same time for all wrong tokens.
        """
        if self._token is None or any(hmac.compare_digest(token, self._token) for token in tokens):
            return ""
        if tokens and tokens[-1]:
            return "this server needs another token"
        return "no token was sent, and this server needs one; send the header `token`, or `authorization: Bearer`"

    def wrong_host(self, sent: Sequence[bytes], local: tuple[str, int | None] | None) -> str:
        """The message for a request with these headers Host that came to this address; empty if they are allowed."""
        if is_allowed_host(sent, [*self._hosts, *([] if local is None else local[:1])]):
            return ""
        if len(sent) != 1:
            return f"{len(sent)} headers Host were sent, and one is needed"
        name = sent[0][:256].decode("latin-1")
        return f"the header Host is {name!r}, no name of this server; add it to `allowed_hosts` (serve: --allowed-host)"


def is_allowed_host(sent: Sequence[bytes], allowed: Iterable[str]) -> bool:
    """Whether a request's header Host names this server.

    A foreign web page can make a browser send requests to this machine, under a name that it has given to the
    machine's address (DNS rebinding), but not under a name of ours.

    Args:
        sent: the values of the header; exactly one is allowed.
        allowed: names and addresses of this server besides those of loopback.
    """
    names = {name.strip("[]").lower() for name in (*_LOOPBACK, *allowed)}
    return len(sent) == 1 and _PORT.sub("", sent[0].decode("latin-1")).strip("[]").lower() in names


class Ends:
    """Why games are over, by name: the newest 10,000 of the last hour."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def add(self, name: str, reason: str) -> None:
        """A game is over."""
        self._ends.pop(name, None)
        self._ends[name] = reason, time.monotonic()
        if len(self._ends) > _MOST_ENDS:
            self._ends.popitem(last=False)

    def reason(self, name: str) -> str:
        """Why the game of this name is over; `never` if none has ended."""
        limit = time.monotonic() - _ENDS_KEPT_S
        while self._ends and next(iter(self._ends.values()))[1] < limit:
            self._ends.popitem(last=False)
        return self._ends.get(name, ("never", 0.0))[0]
