"""The client of games over HTTP: `PolicyClient`, with the methods of `ExternalEnv`, in any process or machine.

with PolicyClient("http://127.0.0.1:8000") as client:
    episode = client.start_episode()
    action = client.get_action(episode, observation)
    client.log_returns(episode, reward)
    client.end_episode(episode, observation)
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from arena.external.errors import ClosedCode, Code, ExternalClosed, ExternalError, check_outcome
from arena.external.request_queue import entity_index
from arena.external.samples import as_json, checked_reward, fitted, fitted_mask
from arena.game.api import Info, Interface
from arena.records.space_json import space_from_json

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0  # between two tries to connect or to begin an episode
_LOST = ("timeout", "expired", "failed", "lost", "policy_error")  # why an episode is over that has not ended
_encoder = msgspec.json.Encoder()


class PolicyClient:
    """Asks the policies of a run for actions; the server has `make: http` with the actor `json`.

    The methods are those of `arena.external.ExternalEnv`, and may be called from any thread. When the run is over, or
    the server is gone, every blocked or later call raises `ExternalClosed`; then `reconnect` begins again, with no
    episode. When no episode may begin any more, `start_episode` raises it, and running episodes go on. Rewards, and
    infos that come with them, are sent with the entity's next observation, or with its end.

    Args:
        address: `http://host:port/step`, as in the run's `external.json`, or `host:port`.
        token: needed if the server has one; as read from its `token_file`, with or without the end of the line.
        timeout_s: seconds for attempts to connect, and for a free slot. A server that has not answered a request for so
            long is asked whether it is alive.

    Attributes:
        interface: entities, spaces and sizes of masks of the match.
        policies: the policy of each entity, in the order of `interface`; empty texts if the server names none.

    Raises:
        ValueError: the address has no port, or the token has characters that no header may have.
        ExternalClosed: no server can be reached at the address.
        ExternalError: `unauthorized`, `not_found`: the server has no games; `bad_body`: it has another actor.
    """

    interface: Interface
    policies: tuple[str, ...]

    def __init__(self, address: str, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        place = address.removeprefix("http://").partition("/")[0]
        host, colon, port = place.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise ValueError(f"{address!r} is no address; it is http://host:port/step or host:port")
        self._place, self._timeout_s = (host.strip("[]"), int(port)), timeout_s
        token = None if token is None else token.strip()  # as the server strips its file
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError(
                "the token has characters that a header may not have; visible ASCII characters may be sent"
            )
        self._headers = {} if token is None else {"token": token}
        self._episodes: dict[str, _Episode] = {}
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._gone: tuple[str, ClosedCode] | None = None  # why no call is possible
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether every call raises `ExternalClosed`."""
        return self._gone is not None

    def close(self) -> None:
        """Ends the episodes that wait for no action as truncated, and closes the connections."""
        for name, episode in list(self._episodes.items()):
            with contextlib.suppress(ExternalError, ExternalClosed):
                if not episode.waits:
                    self.end_episode(name, truncated=True)
        self._gone = self._gone or ("closed", "over")
        self._episodes = {}
        for connection in [*self._idle, *self._busy]:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for connection in self._idle:
            connection.close()
        self._idle = []

    def reconnect(self) -> None:
        """Connects again, with growing pauses for at most `timeout_s`, else `ExternalClosed`; no episode is left."""
        self.close()
        self._connect()

    def _connect(self) -> None:
        """Asks for the interface of the games; a server that does not listen yet is tried again."""

        def attempt() -> Any:
            self._gone = None
            return self._call("GET", "/interface")

        try:
            answer = self._retried(attempt, lambda error: isinstance(error, ExternalClosed))
        except (ExternalClosed, ExternalError) as error:
            raise error.with_traceback(None) from None  # the frames of the attempts say nothing
        try:
            page = msgspec.json.decode(answer, type=dict[str, Any])
            actor, entities = page["actor"], page["entities"]
        except (KeyError, ValueError):
            raise ExternalError(cast("Code", "not_found"), f"no server of games: it sent {answer[:40]!r}") from None
        if actor != "json":
            raise ExternalError("bad_body", f"the server has the actor {actor}; `actor: json` is expected")
        self.interface = Interface(
            tuple(entity["name"] for entity in entities),
            tuple(space_from_json(entity["observation"]) for entity in entities),
            tuple(space_from_json(entity["action"]) for entity in entities),
            tuple(entity["mask_size"] for entity in entities),
        )
        self.policies = tuple(entity["policy"] for entity in entities)

    def _retried(self, attempt: Callable[[], Any], is_temporary: Callable[[Exception], bool]) -> Any:
        """Calls a function until it succeeds, with growing pauses for at most `timeout_s`; returns its result."""
        deadline, pause = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except (ExternalClosed, ExternalError) as error:
                if not is_temporary(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def start_episode(
        self, episode_id: str | None = None, *, training_enabled: bool = True, entities: Sequence[str] | None = None
    ) -> str:
        """See `ExternalEnv.start_episode`; without a free slot in `timeout_s`, it raises `no_slot` or `not_ready`."""
        name = uuid.uuid4().hex if episode_id is None else episode_id
        if not isinstance(name, str) or not name.isascii() or not name.isprintable() or " " in name:
            raise ExternalError("bad_body", f"the id {name!r}: expected 1 to 256 visible ASCII characters")
        playing = {self.interface.entities[self._index(entity)] for entity in entities or self.interface.entities}
        body = {"entities": None if entities is None else list(entities), "training": training_enabled}
        self._retried(
            lambda: self._call("POST", "/step", "start", name, body),
            lambda error: isinstance(error, ExternalError) and error.code in ("no_slot", "not_ready"),
        )
        self._episodes[name] = _Episode(playing)
        return name

    def get_action(self, episode_id: str, observation: Any, *, entity: str | None = None, mask: Any = None) -> Any:
        """See `ExternalEnv.get_action`."""
        name = self.interface.entities[self._index(entity)]
        return self.get_actions(episode_id, {name: observation}, {name: mask})[name]

    def get_actions(
        self, episode_id: str, observations: Mapping[str, Any], masks: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """See `ExternalEnv.get_actions`."""
        parts = {
            name: self._part(name, observation, (masks or {}).get(name)) for name, observation in observations.items()
        }
        body = msgspec.json.decode(self._send("tick", episode_id, parts))["entities"]
        spaces = self.interface.action_spaces
        return {
            name: fitted(spaces[self._index(name)], body[name]["action"], f"action of {name!r}", "bad_action")
            for name in observations
        }

    def log_action(
        self, episode_id: str, observation: Any, action: Any, *, entity: str | None = None, mask: Any = None
    ) -> None:
        """See `ExternalEnv.log_action`; does not wait for a tick."""
        index = self._index(entity)
        name, space = self.interface.entities[index], self.interface.action_spaces[index]
        given = as_json(space, fitted(space, action, f"action of {name!r}", "bad_action"))
        self._send("tick", episode_id, {name: {**self._part(name, observation, mask), "given": given}})

    def log_returns(
        self, episode_id: str, reward: float, info: Info | None = None, *, entity: str | None = None
    ) -> None:
        """See `ExternalEnv.log_returns`; sends nothing yet."""
        episode, name = self._episode(episode_id), self.interface.entities[self._index(entity)]
        episode.check_plays(name, episode_id)
        episode.rewards[name] = episode.rewards.get(name, 0.0) + checked_reward(reward, name)
        if info:
            episode.infos[name] = {**episode.infos.get(name, {}), **info}

    def end_episode(
        self,
        episode_id: str,
        observation: Any = None,
        *,
        entity: str | None = None,
        truncated: bool = False,
        info: Info | None = None,
    ) -> None:
        """See `ExternalEnv.end_episode`."""
        episode = self._episode(episode_id)
        if entity is None and observation is not None and len(episode.playing) > 1:
            raise ExternalError("bad_observation", f"say of which entity it is: {', '.join(sorted(episode.playing))}")
        ending = set(episode.playing) if entity is None else {self.interface.entities[self._index(entity)]}
        flags: dict[str, Any] = {"truncated": truncated, "end": True, "info": info}
        parts = {
            name: (self._part(name, observation, None) if observation is not None else {}) | flags for name in ending
        }
        self._send("tick" if episode.playing - ending else "end", episode_id, parts)
        episode.playing -= ending
        if not episode.playing:
            self._episodes.pop(episode_id, None)

    def _index(self, entity: str | None) -> int:
        return entity_index(self.interface, range(len(self.interface.entities)), entity)

    def _episode(self, name: str) -> _Episode:
        if self._gone is not None:
            raise ExternalClosed(*self._gone)
        episode = self._episodes.get(name)
        if episode is None:
            raise ExternalError("unknown_game", f"no episode {name!r} is running: it has ended, or never began")
        if episode.lost:
            raise ExternalError(cast("Code", episode.lost), f"the arena has given up the episode {name!r}")
        return episode

    def _part(self, name: str, observation: Any, mask: Any) -> dict[str, Any]:
        """The part of a request for an entity that shows an observation, checked here already."""
        index = self._index(name)
        space = self.interface.observation_spaces[index]
        sample = fitted(space, observation, f"observation of {name!r}", "bad_observation")
        part: dict[str, Any] = {"observation": as_json(space, sample)}
        actions, size = self.interface.action_spaces[index], self.interface.mask_sizes[index]
        if (allowed := fitted_mask(actions, size, mask, name)) is not None:
            part["mask"] = allowed.tolist()
        return part

    def _send(self, kind: str, game: str, parts: dict[str, dict[str, Any]]) -> bytes:
        """Sends the parts of entities, with their rewards and infos; a request that is refused takes neither."""
        episode = self._episode(game)
        for name, one in parts.items():
            episode.check_plays(name, game)
            infos = {**episode.infos.get(name, {}), **(one.get("info") or {})}
            if one.get("end") and "outcome" in infos:
                one["outcome"] = infos.pop("outcome")
                check_outcome(one["outcome"], name)
            one["info"], one["reward"] = infos or None, episode.rewards.get(name, 0.0)
        episode.waits = True
        try:
            answer = self._call("POST", "/step", kind, game, {"entities": parts})
        except ExternalError as error:
            if error.code in _LOST:
                episode.lost = error.code
            raise
        finally:
            episode.waits = False
        for name, one in parts.items():
            episode.infos.pop(name, None)
            episode.rewards[name] = episode.rewards.get(name, 0.0) - one["reward"]
        return answer

    def _call(self, method: str, path: str, kind: str = "", game: str = "", content: Any = None) -> bytes:
        """The body of the answer to one request."""
        headers = {**self._headers, "step_kind": kind, "game_id": game} if kind else self._headers
        body = None if content is None else _encoder.encode(content)
        while True:
            if self._gone is not None:
                raise ExternalClosed(*self._gone)
            reused = bool(self._idle)
            connection = self._idle.pop() if reused else http.client.HTTPConnection(*self._place, self._timeout_s)
            self._busy.add(connection)
            try:
                connection.request(method, path, body, headers)
                waiting = select.poll()
                waiting.register(connection.sock, select.POLLIN)
                while not waiting.poll(self._timeout_s * 1000):
                    if path != "/step":
                        raise TimeoutError(f"no answer within {self._timeout_s:g} s")
                    self._call("GET", "/healthz")  # an answer may take long: while a run evaluates, limits stand still
                reply = connection.getresponse()
                answer = reply.read()
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if reused and isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                    continue  # the server closes a connection that is idle for long
                lost = f"no server at {self._place[0]}:{self._place[1]}: {error}"
                gone: tuple[str, ClosedCode] = self._gone or (lost, "unreachable")
                self._gone = gone
                raise ExternalClosed(*gone) from None
            finally:
                self._busy.discard(connection)
        if self._gone is None:
            self._idle.append(connection)
        if reply.status == http.HTTPStatus.OK:
            return answer
        try:
            refusal = msgspec.json.decode(answer, type=_Refusal)
        except msgspec.MsgspecError:
            refusal = _Refusal("not_found", f"{reply.status} from {method} {path}: this is no server of games")
        if refusal.error == "over":
            self._gone = "over", "over"
            raise ExternalClosed("over")
        if refusal.error == "draining":
            raise ExternalClosed(refusal.detail, "draining")
        code = refusal.reason if refusal.reason in _LOST else refusal.error
        raise ExternalError(cast("Code", code), refusal.detail)


@dataclass
class _Episode:
    """An episode that runs, as its client knows it."""

    playing: set[str]
    rewards: dict[str, float] = field(default_factory=dict)  # by entity, of no request yet
    infos: dict[str, Info] = field(default_factory=dict)
    waits: bool = False  # for an answer
    lost: str = ""  # why the arena has given it up

    def check_plays(self, entity: str, name: str) -> None:
        if entity not in self.playing:
            raise ExternalError("ended", f"{entity!r} has ended in the episode {name!r}, or takes no part in it")


class _Refusal(msgspec.Struct):
    error: str
    detail: str = ""
    reason: str = ""
