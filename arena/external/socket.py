"""External games over TCP or a Unix socket; the frames are in `arena.external.codec`, the client in `client`.

One thread reads all connections, decodes frames and puts requests to the desk. Answers are sent by the thread of the
environment as far as the connection takes them at once; the rest is sent by the reading thread.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.errors import ConfigError
from arena.external import codec
from arena.external.access import Access, Ends
from arena.external.codec import MAX_BODY, EntityCodec, FrameReader, framed, info_of, match_to_wire, names_of
from arena.external.declaration import declared_interface
from arena.external.desk import Desk, DeskGame, entity_index
from arena.external.interface import Answers, ExternalError, check_outcome
from arena.external.slots import Slots
from arena.game.api import Interface

_CHUNK = 2**16  # bytes of one read
_BEFORE_HELLO = 2**16  # bytes of the first frame
_MOST_REQUESTS = 64  # requests of a connection, per slot, that may wait; with more, the connection is not read
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # no descriptors or no memory for a client
_SHORT_S = 0.05  # seconds until the next attempt to accept after such an error
_GIVEN_UP = ("timeout", "expired", "over", "policy_error")


class SocketGames:
    """The games that clients play over a socket; see `ExternalGames`.

    Args:
        address: `host:port`, port 0 for any free one, or `unix:PATH`.
        entities: the interface, see `arena.external.declaration`.
        like: the interface is that of this environment.
        token_file: a file with the token that clients have to send.
        insecure: allows another host than loopback without a token.
        max_body: the largest frame in bytes.
        copy: the number of the match among its copies: copy i listens at port + i, or `PATH.i`.

    Raises:
        ConfigError: the address, the token file or the interface is wrong.
    """

    closed_loop = False
    exhausted = False

    def __init__(
        self,
        address: str = "127.0.0.1:0",
        *,
        entities: Mapping[str, Any] | Interface | None = None,
        like: Mapping[str, Any] | None = None,
        token_file: str | None = None,
        insecure: bool = False,
        max_body: int = MAX_BODY,
        copy: int = 0,
    ) -> None:
        self.interface: Interface = declared_interface(entities, like)
        self.address = ""
        self._codecs = [EntityCodec(self.interface, entity) for entity in range(len(self.interface.entities))]
        self._place = _place(address, copy)
        if not isinstance(max_body, int) or max_body < 1024:
            raise ConfigError(f"{max_body!r} bytes; at least 1024", path="max_body")
        self._max_body = max_body
        host = self._place[0] if isinstance(self._place, tuple) else None
        self._access = Access(host, token_file, insecure, "address")
        self.policies: Sequence[str] = ()
        self._desk = Desk(self.interface, self._forget)
        self._lock = threading.Lock()
        self._games: dict[str, _Game] = {}
        self._ends = Ends()
        self._playing = False  # the run has begun
        self._slots = 0
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="external games over a socket", daemon=True)
        self._connections: set[_Connection] = set()
        self._accepts_at: float | None = None  # when clients are accepted again; None: they are accepted now
        self._closed = self._stopping = False
        self._failure: Exception | None = None

    # ------------------------------------------------------------------------------------ the environment's thread

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Binds the address and starts the thread.

        Raises:
            ConfigError: the address is taken, or cannot be bound.
        """
        self._slots, self._desk.ring = slots, ring
        self._listener, self.address = _listening(self._place)
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        for end in (self._listener, self._woken, self._wake):
            end.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._tend)
        self._thread.start()

    def poll(self, table: Slots) -> float | None:
        """Tells the table what clients have sent; raises the error that has ended the reading thread."""
        if self._failure is not None:
            raise self._failure
        self._desk.poll(table)
        return None

    def answer(self, actions: Answers) -> None:
        """Sends the actions; does not wait for clients."""
        self._desk.answer(actions)

    def drop(self, slot: int, reason: str) -> None:
        """Tells the client of a game that it is given up."""
        self._desk.drop(slot, reason)

    def pause(self, on: bool) -> None:
        """Requests are taken and wait; games may begin from the first leg on."""
        self._playing = self._playing or not on

    def close(self, reason: str) -> None:
        """Tells all clients, closes all connections and ends the thread."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            playing = {game.connection for game in self._games.values()}
        self._desk.close(reason)  # which sends the reason for all games that have begun
        with self._lock:
            games, self._games = list(self._games.values()), {}
        for game in games:  # without a slot
            game.connection.send(codec.Dropped(game.desk.name, reason))
        for connection in self._connections - playing:
            if connection.welcome and reason == "over":
                connection.send(codec.Error(None, "over", "the run has ended"))
        if self._listener is not None:
            self._stopping = True
            self.wake()
            self._thread.join()
            for end in (self._listener, self._woken, self._wake):
                end.close()
            self._selector.close()
            if isinstance(self._place, str):
                Path(self._place).unlink(missing_ok=True)

    def wake(self) -> None:
        """Wakes the reading thread, which then checks what it has to send and to read."""
        try:
            self._wake.send(b"\0")
        except (BlockingIOError, OSError):  # full: it is awake already; or closed
            return

    def _forget(self, desk: DeskGame) -> None:
        """A game is over."""
        with self._lock:
            game = self._games.get(desk.name)
            if game is None or game.desk is not desk:
                return
            del self._games[desk.name]
            self._ends.add(desk.name, desk.over)
        if desk.slot is not None:
            game.connection.last_slot = desk.slot
        if desk.over == "ended":
            game.connection.send(codec.Ended(desk.name))
        elif not desk.gone:
            game.connection.send(codec.Dropped(desk.name, desk.over))

    # ----------------------------------------------------------------------------------------- the reading thread

    def _serve(self) -> None:
        try:
            while not self._stopping:
                pause = None if self._accepts_at is None else max(0.0, self._accepts_at - time.monotonic())
                for key, events in self._selector.select(pause):
                    key.data(events)
                if self._accepts_at is not None and time.monotonic() >= self._accepts_at:
                    assert self._listener is not None, "it is listening"
                    self._accepts_at = None
                    self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        except Exception as error:
            self._failure = error  # raised by the next `poll`
            self._desk.ring()
        for connection in list(self._connections):
            connection.flush()
            self._disconnect(connection)

    def _tend(self, _: int) -> None:
        """After `wake`: connections have something to send, or may be read from again."""
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            pass
        for connection in list(self._connections):
            self._select(connection)

    def _accept(self, _: int) -> None:
        assert self._listener is not None, "it is listening"
        try:
            accepted, _address = self._listener.accept()
        except OSError as error:
            if error.errno in _SHORT:  # the client stays in the queue of the listener until the next attempt
                self._selector.unregister(self._listener)
                self._accepts_at = time.monotonic() + _SHORT_S
            return
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = _Connection(accepted, self, self._max_body)
        if len(self._connections) >= 4 * self._slots:
            connection.send(codec.Error(None, "no_slot", f"there are {len(self._connections)} connections already"))
            accepted.close()
            return
        self._connections.add(connection)
        connection.events = selectors.EVENT_READ
        self._selector.register(accepted, connection.events, self._mover(connection))

    def _move(self, connection: _Connection, events: int) -> None:
        """Sends and reads what is possible."""
        if events & selectors.EVENT_WRITE:
            connection.flush()
        if events & selectors.EVENT_READ and not connection.failed:
            try:
                data = connection.socket.recv(_CHUNK)
                connection.failed = not data
                for body in connection.reader.feed(data):
                    self._take(connection, codec.from_client(body), len(body))
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                connection.failed = True
            except ExternalError as error:  # of the connection, not of one game
                connection.send(codec.Error(None, error.code, error.message))
                connection.failed = True
        self._select(connection)

    def _select(self, connection: _Connection) -> None:
        """Chooses what to wait for; a connection that has failed is left."""
        if connection.failed:
            self._disconnect(connection)
            return
        events = selectors.EVENT_WRITE if connection.unsent else 0
        events |= selectors.EVENT_READ if connection.may_read(_MOST_REQUESTS * self._slots, self._max_body) else 0
        if events == connection.events:
            return
        move = self._mover(connection)
        if not connection.events:
            self._selector.register(connection.socket, events, move)
        elif not events:
            self._selector.unregister(connection.socket)
        else:
            self._selector.modify(connection.socket, events, move)
        connection.events = events

    def _mover(self, connection: _Connection) -> Callable[[int], None]:
        return lambda events: self._move(connection, events)

    def _disconnect(self, connection: _Connection) -> None:
        """All games of a connection are lost."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if connection.events:
            self._selector.unregister(connection.socket)
        connection.leave()
        with self._lock:
            games = [game for game in self._games.values() if game.connection is connection]
        for game in games:
            self._desk.lose(game.desk, "lost")

    def _take(self, connection: _Connection, frame: codec.FromClient, size: int) -> None:
        """Handles one frame; after an `ExternalError` the connection is to be closed."""
        if not connection.welcome:
            self._greet(connection, frame)
            return
        if isinstance(frame, codec.Ping):
            connection.send(codec.Pong(frame.number))
            return
        if isinstance(frame, codec.Hello):
            raise ExternalError("bad_frame", "hello came twice")
        try:
            if isinstance(frame, codec.Start):
                self._start(connection, frame)
            else:
                self._request(connection, frame, size)
        except ExternalError as error:
            if error.code in ("bad_frame", "too_large"):
                raise
            connection.send(codec.Error(frame.id, error.code, error.message))

    def _greet(self, connection: _Connection, frame: codec.FromClient) -> None:
        if not isinstance(frame, codec.Hello) or frame.version != codec.VERSION:
            raise ExternalError("bad_frame", f'the first frame is ["hello", {codec.VERSION}, token or nil, name]')
        token = (frame.token or "").encode()
        if not self._access.allows(token):
            raise ExternalError("unauthorized", self._access.refusal(token))
        connection.welcome = True
        connection.reader.max_body = self._max_body
        free = max(0, self._slots - len(self._games))
        connection.send(codec.Welcome(codec.VERSION, match_to_wire(self.interface, self.policies, self._slots, free)))

    def _start(self, connection: _Connection, frame: codec.Start) -> None:
        name, count = frame.id, len(self.interface.entities)
        codec.check_id(name)
        names = names_of(frame.entities)
        every = range(count)
        entities = tuple(every if names is None else {entity_index(self.interface, every, one) for one in names})
        if not entities:
            raise ExternalError("unknown_entity", "a game needs at least one entity")
        if not self._playing:
            raise ExternalError("not_ready", "the run has not begun")
        desk = DeskGame(name, tuple(sorted(entities)), frame.training, after=connection.last_slot)
        with self._lock:
            if name in self._games:
                raise ExternalError("already_started", f"the game {name!r} is running")
            if len(self._games) >= self._slots:
                raise ExternalError("no_slot", f"all {self._slots} slots hold a game")
            self._games[name] = _Game(desk, connection)

        def told(error: ExternalError | None) -> None:
            if error is None and desk.slot is not None:
                connection.send(codec.Started(name, desk.slot))
            elif error is not None and error.code not in _GIVEN_UP:
                self._forget_refused(desk)
                connection.send(codec.Error(name, error.code, error.message))

        self._desk.begin(desk, told)

    def _forget_refused(self, desk: DeskGame) -> None:
        with self._lock:
            self._games.pop(desk.name, None)

    def _request(self, connection: _Connection, frame: codec.Ask | codec.Pay | codec.End, size: int) -> None:
        codec.check_id(frame.id)
        codec.check_entity(frame.entity)
        with self._lock:
            game = self._games.get(frame.id)
            reason = self._ends.reason(frame.id)
        if game is None or game.connection is not connection:
            raise ExternalError("unknown_game", reason)
        desk, counted = game.desk, iter((True,))

        def told(error: ExternalError | None) -> None:
            if not next(counted, False):  # second call: an end, or `drop`, has replaced the answer
                return
            connection.told(size)
            if error is not None and error.code not in _GIVEN_UP and not desk.over:
                connection.send(codec.Error(desk.name, error.code, error.message))

        if isinstance(frame, codec.Pay):
            entity = entity_index(self.interface, desk.entities, frame.entity)
            connection.asked(size)
            self._desk.pay(desk, entity, frame.reward, told)
            return
        info = info_of(frame.info)
        if isinstance(frame, codec.End):
            check_outcome((info or {}).get("outcome"))
            index = None if frame.entity is None else entity_index(self.interface, desk.entities, frame.entity)
            observation = None
            if frame.observation is not None:
                entity = entity_index(self.interface, desk.entities, frame.entity)
                observation = self._seen(entity, frame.observation)
            connection.asked(size)
            self._desk.end(
                desk, index, observation, reward=frame.reward, truncated=frame.truncated, info=info, told=told
            )
            return
        entity = entity_index(self.interface, desk.entities, frame.entity)
        about, given = self._codecs[entity], None
        if frame.given is not None:
            given = about.action.unpack(frame.given, f"action of {about.name!r}", "bad_action")
        observation, mask = self._seen(entity, frame.observation), about.unpack_mask(frame.mask)

        def answered(action: Any, version: int) -> None:
            packed = about.action.pack(action, "action", "policy_error")
            connection.send(codec.Action(desk.name, about.name, memoryview(packed), version))

        connection.asked(size)
        self._desk.ask(
            desk,
            entity,
            observation,
            reward=frame.reward,
            mask=mask,
            given=given,
            info=info,
            told=told,
            answered=answered if given is None else None,
        )

    def _seen(self, entity: int, data: memoryview) -> Any:
        about = self._codecs[entity]
        return about.observation.unpack(data, f"observation of {about.name!r}", "bad_observation")


class _Game:
    """A game and its connection."""

    def __init__(self, desk: DeskGame, connection: _Connection) -> None:
        self.desk, self.connection = desk, connection


class _Connection:
    """The connection of one client."""

    def __init__(self, connected: socket.socket, server: SocketGames, max_body: int) -> None:
        self.socket, self._server = connected, server
        self.reader = FrameReader(min(max_body, _BEFORE_HELLO))
        self.failed = self.welcome = False  # whether it is to be closed; whether it has said hello
        self.last_slot: int | None = None  # of its last game
        self.events = 0  # what the reading thread waits for
        self.unsent = bytearray()
        self._lock = threading.Lock()
        self._requests = self._bytes = 0  # number and bytes of requests that wait for the environment
        self._held = False  # whether it is not read
        self._left = False

    def send(self, frame: Any) -> None:
        """Sends what the connection takes now; the rest is left to the reading thread. Called by any thread."""
        data = framed(frame)
        with self._lock:
            if self._left:
                return
            waiting = bool(self.unsent)
            self.unsent += data
            if waiting:
                return
            self._send()
            waiting = bool(self.unsent)
        if waiting or self.failed:
            self._server.wake()

    def flush(self) -> None:
        """Sends what is left, as far as possible."""
        with self._lock:
            self._send()

    def _send(self) -> None:
        try:
            sent = self.socket.send(self.unsent)
            del self.unsent[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.failed = True

    def asked(self, size: int) -> None:
        """A request waits for the environment."""
        with self._lock:
            self._requests += 1
            self._bytes += size

    def told(self, size: int) -> None:
        """The environment has taken it."""
        with self._lock:
            self._requests -= 1
            self._bytes -= size
            wake, self._held = self._held, False
        if wake:
            self._server.wake()

    def may_read(self, requests: int, size: int) -> bool:
        """Whether there is room for another request, and the client takes its answers."""
        with self._lock:
            self._held = self._requests >= requests or self._bytes >= size // 2 or len(self.unsent) >= size
            return not self._held

    def leave(self) -> None:
        """Closes the connection; nothing is sent any more."""
        with self._lock:
            self._left = True
            self.socket.close()


def _place(address: str, copy: int) -> tuple[str, int] | str:
    """Host and port, or the path of a Unix socket."""
    kind, colon, path = str(address).partition(":")
    if kind == "unix" and colon and path:
        return f"{path}.{copy}" if copy else path
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{address!r} is no address; expected host:port, or unix:PATH", path="address")
    return host, int(port) + copy if int(port) else 0


def _listening(place: tuple[str, int] | str) -> tuple[socket.socket, str]:
    """A socket that listens, and its address as clients write it."""
    try:
        if isinstance(place, tuple):
            host, port = place
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host.strip("[]"), port), family=family)
            return listener, f"{host}:{listener.getsockname()[1]}"
        _remove_abandoned(place)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(place)
            os.chmod(place, 0o600)
            listener.listen()
        except OSError:
            listener.close()
            raise
        return listener, f"unix:{place}"
    except OSError as error:
        where = place if isinstance(place, str) else f"{place[0]}:{place[1]}"
        raise ConfigError(f"cannot listen at {where}: {error.strerror or error}", path="address") from error


def _remove_abandoned(path: str) -> None:
    """Removes a Unix socket whose server was killed; one that answers is left, and binding it fails."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
