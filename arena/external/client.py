"""The client of games over a socket: `PolicyClient`, with the methods of `ExternalEnv`, in any process or machine.

with PolicyClient("127.0.0.1:40123") as client:
    episode = client.start_episode()
    action = client.get_action(episode, observation)
    client.log_returns(episode, reward)
    client.end_episode(episode, observation)
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from arena.external import codec
from arena.external.codec import EntityCodec, FrameReader, framed, raw
from arena.external.interface import CODES, Code, ExternalClosed, ExternalError, check_outcome
from arena.game.api import Info, Interface

_MOST_DROPPED = 10_000  # episodes given up by the arena whose reason is remembered
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0  # between two tries to connect or to begin an episode
_CHUNK = 2**16


class PolicyClient:
    """Asks the policies of a run for actions, over one connection; all methods may be called from any thread.

    The methods are those of `arena.external.ExternalEnv`. When the run is over, or the connection is lost, every
    blocked or later call raises `ExternalClosed`; after a loss, `reconnect` begins again, with no episode. When no
    episode may begin any more, `start_episode` raises it, and running episodes go on.

    Args:
        address: `host:port` or `unix:PATH`, as in the run's `external.json`.
        token: needed if the server has one.
        timeout_s: seconds for attempts to connect, and for a free slot. During a call, a server that is silent for so
            long is pinged, and for twice as long is given up.

    Attributes:
        interface: entities, spaces and sizes of masks of the match.
        policies: the policy of each entity, in the order of `interface`; empty texts if the server names none.

    Raises:
        ExternalClosed: no server can be reached at the address.
        ExternalError: `unauthorized`.
    """

    interface: Interface
    policies: tuple[str, ...]

    def __init__(self, address: str, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        self._address, self._token, self._timeout_s = address, token, timeout_s
        self._lock = threading.Lock()  # of the dictionaries
        self._sending = threading.Lock()
        self._episodes: dict[str, _Episode] = {}
        self._dropped: OrderedDict[str, str] = OrderedDict()
        self._gone: str | None = None  # why there is no connection
        self._connect_in_time()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the arena takes no more episodes over this connection."""
        return self._gone is not None

    def close(self) -> None:
        """Closes the connection; episodes that are not over are lost."""
        self._leave(self._socket, "closed")
        self._reader.join(self._timeout_s)

    def reconnect(self) -> None:
        """Connects again, with growing pauses for at most `timeout_s`; no episode is left.

        Raises:
            ExternalClosed: no server can be reached.
        """
        self.close()
        self._connect_in_time()

    def _connect_in_time(self) -> None:
        """Connects; a server that does not listen yet is tried again."""
        deadline, pause = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            try:
                self._connect()
                return
            except ExternalClosed:
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def start_episode(
        self,
        episode_id: str | None = None,
        *,
        training_enabled: bool = True,
        entities: Sequence[str] | None = None,
    ) -> str:
        """See `ExternalEnv.start_episode`; waits for a free slot for at most `timeout_s`."""
        name = uuid.uuid4().hex if episode_id is None else episode_id
        codec.check_id(name)
        playing = {self._codec(entity).name for entity in (self._codecs if entities is None else entities)}
        names = raw(None if entities is None else list(entities))
        deadline, pause = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            with self._lock:
                self._check_open()
                if name in self._episodes:
                    raise ExternalError("already_started", f"the episode {name!r} is running")
                episode = self._episodes[name] = _Episode(name, playing)
                self._dropped.pop(name, None)
            call = _Call()
            episode.calls[None] = call
            try:
                self._send(codec.Start(name, names, training_enabled))
                self._wait(call)
                return name
            except ExternalError as error:
                with self._lock:
                    self._episodes.pop(name, None)
                if error.code == "draining":
                    raise ExternalClosed(error.message) from None
                if error.code not in ("no_slot", "not_ready") or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def get_action(self, episode_id: str, observation: Any, *, entity: str | None = None, mask: Any = None) -> Any:
        """See `ExternalEnv.get_action`."""
        name = self._codec(entity).name
        return self.get_actions(episode_id, {name: observation}, {name: mask})[name]

    def get_actions(
        self, episode_id: str, observations: Mapping[str, Any], masks: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """See `ExternalEnv.get_actions`."""
        episode, masks = self._episode(episode_id), masks or {}
        calls = {}
        frames = [self._ask(episode, name, seen, masks.get(name)) for name, seen in observations.items()]
        with self._lock:
            self._check_runs(episode)
            for name in observations:
                if name in episode.calls:
                    raise ExternalError("already_asking", f"{name!r} has a request without an answer")
            for name in observations:
                calls[name] = episode.calls[name] = _Call()
        self._send(*frames)
        actions = {}
        for name, call in calls.items():
            packed = self._wait(call)
            actions[name] = self._codecs[name].action.unpack(packed, f"action of {name!r}", "bad_frame")
        return actions

    def log_action(
        self, episode_id: str, observation: Any, action: Any, *, entity: str | None = None, mask: Any = None
    ) -> None:
        """See `ExternalEnv.log_action`; does not wait for the server."""
        episode, about = self._episode(episode_id), self._codec(entity)
        self._send(self._ask(episode, about.name, observation, mask, about.pack_action(action)))

    def log_returns(
        self, episode_id: str, reward: float, info: Info | None = None, *, entity: str | None = None
    ) -> None:
        """See `ExternalEnv.log_returns`; does not wait for the server."""
        episode, name = self._episode(episode_id), self._codec(entity).name
        episode.check_plays(name)
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise ExternalError("bad_reward", f"the reward {reward!r} is no number") from None
        if not math.isfinite(value):
            raise ExternalError("bad_reward", f"the reward {reward!r} is not finite")
        if info:
            episode.infos[name] = {**episode.infos.get(name, {}), **info}
        self._send(codec.Pay(episode_id, name, value))

    def end_episode(
        self,
        episode_id: str,
        observation: Any = None,
        *,
        entity: str | None = None,
        truncated: bool = False,
        info: Info | None = None,
    ) -> None:
        """See `ExternalEnv.end_episode`; waits until the server has ended the episode, if all entities have ended."""
        episode = self._episode(episode_id)
        if entity is None and observation is not None and len(episode.playing) > 1:
            raise ExternalError("bad_observation", f"say of which entity it is: {', '.join(sorted(episode.playing))}")
        if entity is not None:
            episode.check_plays(self._codec(entity).name)
        check_outcome((info or {}).get("outcome"))
        ending = set(episode.playing) if entity is None else {entity}
        packed = None
        if observation is not None:
            (name,) = ending
            packed = self._codecs[name].observation.pack(observation, f"observation of {name!r}", "bad_observation")
        several_infos = any(name in episode.infos for name in ending)  # then each entity needs a frame of its own
        infos = {name: {**episode.infos.pop(name, {}), **(info or {})} or None for name in ending}
        frames = [
            codec.End(episode_id, name, 0.0, None if packed is None else memoryview(packed), truncated, raw(said))
            for name, said in (infos.items() if several_infos or len(ending) == 1 else [(None, info or None)])
        ]
        episode.playing -= ending
        if episode.playing:
            self._send(*frames)
            for name in ending:
                if (replaced := episode.calls.pop(name, None)) is not None:
                    replaced.finish(None, ExternalError("ended", f"{name!r} was ended meanwhile"))
            return
        with self._lock:
            self._check_runs(episode)
            call = episode.calls[None] = _Call()
        self._send(*frames)
        try:
            self._wait(call)
        except ExternalError:
            episode.playing |= ending  # refused: the episode goes on
            raise

    # ------------------------------------------------------------------------------------------------------- sending

    def _ask(
        self, episode: _Episode, entity: str, observation: Any, mask: Any, given: bytes | None = None
    ) -> codec.Ask:
        about = self._codec(entity)
        episode.check_plays(entity)
        packed = about.observation.pack(observation, f"observation of {entity!r}", "bad_observation")
        packed_mask = about.pack_mask(mask)
        return codec.Ask(
            episode.name,
            entity,
            0.0,
            memoryview(packed),
            None if packed_mask is None else memoryview(packed_mask),
            None if given is None else memoryview(given),
            raw(episode.infos.pop(entity, None)),
        )

    def _send(self, *frames: Any) -> None:
        data = b"".join(map(framed, frames))
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError:
            self._leave(self._socket, "lost")
        with self._lock:
            self._check_open()

    def _wait(self, call: _Call) -> Any:
        """Waits for the outcome of a call; pings a silent server."""
        began = time.monotonic()
        while not call.done.wait(self._timeout_s):
            # Silence before this wait does not count.
            if time.monotonic() - max(began, self._heard_at) > 2 * self._timeout_s:
                self._leave(self._socket, "lost")
            else:
                self._send(codec.Ping(0))
        if call.error is not None:
            raise call.error
        return call.result

    def _codec(self, entity: str | None) -> EntityCodec:
        if entity is None and len(self._codecs) == 1:
            return next(iter(self._codecs.values()))
        if entity not in self._codecs:
            found = "say which entity it is" if entity is None else f"there is no entity {entity!r}"
            raise ExternalError("unknown_entity", f"{found}; known: {', '.join(self._codecs)}")
        return self._codecs[entity]

    def _episode(self, name: str) -> _Episode:
        with self._lock:
            self._check_open()
            episode = self._episodes.get(name)
            if episode is None:
                reason = self._dropped.get(name)
                if reason is not None:
                    raise _given_up(name, reason)
                raise ExternalError("unknown_game", f"no episode {name!r} is running: it has ended, or never began")
            if episode.error is not None:
                error, episode.error = episode.error, None
                raise error
            return episode

    def _check_runs(self, episode: _Episode) -> None:
        """Raises if the server has dropped the episode meanwhile: nothing would wake a later call for it."""
        self._check_open()
        if self._episodes.get(episode.name) is not episode:
            reason = self._dropped.get(episode.name)
            if reason is not None:
                raise _given_up(episode.name, reason)
            raise ExternalError("unknown_game", f"no episode {episode.name!r} is running: it has ended")

    def _check_open(self) -> None:
        if self._gone is not None:
            raise ExternalClosed(self._gone)

    # ---------------------------------------------------------------------------------------------------- connection

    def _connect(self) -> None:
        try:
            connection = _connected(self._address, self._timeout_s)
        except OSError as error:
            raise ExternalClosed(f"no server at {self._address}: {error}") from None
        reader = FrameReader()
        try:
            with contextlib.suppress(BrokenPipeError):  # a server that refuses has closed already: it has said why
                connection.sendall(framed(codec.Hello(codec.VERSION, self._token, f"python {uuid.uuid4().hex[:8]}")))
            frames: list[Any] = []
            while not frames:
                data = connection.recv(_CHUNK)
                if not data:
                    raise ExternalClosed(f"the server at {self._address} has closed the connection")
                frames += map(codec.from_server, reader.feed(data))
            if isinstance(frames[0], codec.Error):
                raise _error(frames[0])
            if not isinstance(frames[0], codec.Welcome):
                raise ExternalError("bad_frame", f"the server at {self._address} does not say hello")
            self.interface = codec.interface_from_wire(frames[0].match)
        except OSError as error:
            connection.close()
            raise ExternalClosed(f"no server at {self._address}: {error}") from None
        except BaseException:
            connection.close()
            raise
        self.policies = tuple(str(entity.get("policy", "")) for entity in frames[0].match["entities"])
        connection.settimeout(None)
        names = self.interface.entities
        self._codecs = {name: EntityCodec(self.interface, entity) for entity, name in enumerate(names)}
        self._socket, self._heard_at = connection, time.monotonic()
        with self._lock:
            self._episodes, self._gone = {}, None
            self._dropped.clear()
        self._reader = threading.Thread(
            target=self._read, args=(connection, reader, frames[1:]), name=f"PolicyClient {self._address}", daemon=True
        )
        self._reader.start()

    def _read(self, connection: socket.socket, reader: FrameReader, frames: list[Any]) -> None:
        reason = "lost"
        try:
            while True:
                for frame in frames:
                    self._take(frame)
                data = connection.recv(_CHUNK)
                if not data:
                    break
                self._heard_at = time.monotonic()
                frames = [codec.from_server(body) for body in reader.feed(data)]
        except OSError:
            pass
        except ExternalError as error:
            reason = str(error)
        self._leave(connection, reason)
        connection.close()

    def _take(self, frame: Any) -> None:
        """Wakes the call that a frame of the server answers."""
        with self._lock:
            episode = self._episodes.get(getattr(frame, "id", None) or "")
            calls: list[_Call] = []
            replaced: list[_Call] = []  # requests that an end has replaced
            error: Exception | None = None
            result: Any = None
            if isinstance(frame, codec.Error) and frame.id is None:  # the server closes the connection now
                self._gone = self._gone or ("over" if frame.code == "over" else f"{frame.code}: {frame.detail}")
            if episode is None:
                return
            if isinstance(frame, codec.Action):
                calls, result = [*filter(None, [episode.calls.pop(frame.entity, None)])], bytes(frame.action)
            elif isinstance(frame, (codec.Started, codec.Ended)):
                calls = [*filter(None, [episode.calls.pop(None, None)])]
                if isinstance(frame, codec.Ended):
                    del self._episodes[frame.id]
                    replaced = list(episode.calls.values())
            elif isinstance(frame, codec.Error):
                error, calls = _error(frame), list(episode.calls.values())
                episode.calls.clear()
                if not calls:
                    episode.error = error
            elif isinstance(frame, codec.Dropped):
                error, calls = _given_up(frame.id, frame.reason), list(episode.calls.values())
                del self._episodes[frame.id]
                self._dropped[frame.id] = frame.reason
                if len(self._dropped) > _MOST_DROPPED:
                    self._dropped.popitem(last=False)
                if frame.reason == "over":
                    self._gone = self._gone or "over"
        for call in calls:
            call.finish(result, error)
        for call in replaced:
            call.finish(None, ExternalError("ended", f"the episode {frame.id!r} was ended meanwhile"))

    def _leave(self, connection: socket.socket, reason: str) -> None:
        """Marks the connection as lost; calls that wait are told the reason."""
        with self._lock:
            if connection is not self._socket:
                return
            self._gone = self._gone or reason
            calls = [call for episode in self._episodes.values() for call in episode.calls.values()]
            self._episodes = {}
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        for call in calls:
            call.finish(None, ExternalClosed(self._gone))


class _Call:
    """A call that waits for the server."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def finish(self, result: Any, error: Exception | None) -> None:
        self.result, self.error = result, error
        self.done.set()


class _Episode:
    """An episode that runs, as its client knows it."""

    def __init__(self, name: str, playing: set[str]) -> None:
        self.name, self.playing = name, playing
        self.calls: dict[str | None, _Call] = {}  # by the entity that asks; None: start or end
        self.infos: dict[str, Info] = {}  # by entity, sent with its next observation
        self.error: ExternalError | None = None  # of a call that did not wait for the server

    def check_plays(self, entity: str) -> None:
        if entity not in self.playing:
            raise ExternalError("ended", f"{entity!r} has ended in the episode {self.name!r}, or takes no part in it")


def _connected(address: str, timeout_s: float) -> socket.socket:
    kind, colon, path = address.partition(":")
    if kind == "unix" and colon:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{address!r} is no address; it is host:port or unix:PATH")
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _error(frame: codec.Error) -> ExternalError:
    code: Code = frame.code if frame.code in CODES else "bad_frame"
    return ExternalError(code, frame.detail)


def _given_up(name: str, reason: str) -> Exception:
    """The exception of a call for an episode that the arena has given up."""
    if reason == "over":
        return ExternalClosed("over")
    code: Code = reason if reason in CODES else "lost"
    return ExternalError(code, f"the arena has given up the episode {name!r}")
