"""Actors for clients that need no Python: `json` and `raw`. A request that they refuse changes nothing in the game."""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from arena.config.decode import convert, joined, show
from arena.errors import ConfigError, nearest, parser_text
from arena.external.actor import Agent, EntityLink, Forward
from arena.external.errors import ExternalError, check_outcome
from arena.external.samples import as_json, checked_reward
from arena.external.slots import Ask
from arena.game.api import Interface
from arena.game.spaces import flatten, leaves_of, row, unflatten


class GameStart(msgspec.Struct, forbid_unknown_fields=True):
    """What the first request of a game says."""

    entities: list[str] | None = None  # the entities that take part; None: all
    training: bool = True


class BuiltinActor(ABC):
    """Base class: its coroutines raise `ExternalError` for a request that is not allowed; it changes nothing then."""

    def __init__(self, links: Sequence[EntityLink]) -> None:
        self.links = {link.name: link for link in links if link.takes_part}

    @staticmethod
    def starting(data: bytes) -> GameStart:
        """What the body of the first request says; `bad_body` if it is not understood."""
        return GameStart()

    @abstractmethod
    async def tick(self, data: bytes) -> bytes:
        """The answer to a request."""

    @abstractmethod
    async def end(self, data: bytes) -> bytes:
        """The answer to the last request."""


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """The part of a body that is about one entity, in a tick or at the end."""

    observation: Any = None
    reward: float = 0.0
    mask: list[int | bool] | None = None
    given: Any = None
    info: dict[str, Any] | None = None
    end: bool = False
    truncated: bool = False
    outcome: str | None = None  # as `check_outcome` takes it


class _Body(_Part, forbid_unknown_fields=True):
    entities: dict[str, _Part] | None = None


_start = msgspec.json.Decoder(GameStart)
_body = msgspec.json.Decoder(_Body)
_encoder = msgspec.json.Encoder()


class JsonActor(BuiltinActor):
    """Observations, rewards and actions as JSON.

    start: empty, or {"entities": [NAME, ...], "training": true}
    tick:  {"observation": NEST, "reward": 0.0, "mask": [1, 0], "given": ACTION, "info": {}} -> {"action": NEST}
    end:   {"reward": 1.0, "observation": NEST, "truncated": false, "outcome": "win"} -> {}

    A game of several entities has {"entities": {NAME: the same, ...}} in both directions; in a tick, `"end": true` ends
    an entity. An entity without observation is not asked.
    """

    @staticmethod
    def starting(data: bytes) -> GameStart:
        """See the class."""
        start: GameStart = _decoded(_start, data) if data else GameStart()
        return start

    async def tick(self, data: bytes) -> bytes:
        """See the class."""
        body = self._read(data)
        forwards = self._apply(self._parts(body))
        actions = {}
        for link, forward in forwards:
            actions[link.name] = {"action": as_json(link.action_space, await forward)}
        if body.entities is not None:
            return _encoder.encode({"entities": actions})
        return _encoder.encode(next(iter(actions.values()), {}))

    async def end(self, data: bytes) -> bytes:
        """See the class."""
        body = self._read(data) if data else _Body()
        if body.entities is None and not any(value for value in (body.observation, body.reward, body.outcome)):
            whole: _Part = body  # the same for all
            parts = {name: whole for name, link in self.links.items() if not link.ended}
        else:
            parts = self._parts(body)
        for one in parts.values():
            one.end = True
        self._apply(parts)
        return b"{}"

    def _read(self, data: bytes) -> _Body:
        if len(self.links) > 1 and not data.lstrip().startswith(b"{"):
            with suppress(ValueError, RecursionError):  # broken JSON is refused as such below
                msgspec.json.decode(data or b"0")
                self._parts(_Body(), "" if data else "the body is empty: ")  # raises: its message names the entities
        body: _Body = _decoded(_body, data, self.links)
        return body

    def _parts(self, body: _Body, fault: str = "") -> dict[str, _Part]:
        if body.entities is not None:
            return body.entities
        if len(self.links) > 1:
            parts = ", ".join(f'"{name}": {{...}}' for name in self.links)
            form = f'this game has several entities; expected {{"entities": {{{parts}}}}}'
            raise ExternalError("bad_body", fault + form)
        return dict.fromkeys(self.links, body)

    def _apply(self, parts: dict[str, _Part]) -> list[tuple[EntityLink, Forward]]:
        """Checks everything, then passes it on; returns the requests that wait for actions."""
        checked: list[tuple[EntityLink, _Part, Any]] = []
        for name, one in parts.items():
            link = self.links.get(name)
            if link is None:
                raise ExternalError("unknown_entity", f"unknown entity {name!r}; {nearest(name, self.links)}")
            link.check()
            found = None
            if one.end:
                check_outcome(one.outcome, name)
                found = None if one.observation is None else link.fitted_observation(one.observation)
            elif one.truncated or one.outcome is not None:
                key = "outcome" if one.outcome is not None else "truncated"
                text = f"entities.{name}.{key}: is for an end: send step_kind: end, or `end: true` with it"
                raise ExternalError("bad_body", text)
            elif one.observation is not None:
                found = link.prepare(one.observation, one.mask, one.given)
            checked.append((link, one, found))
        forwards = []
        for link, one, found in checked:
            link.reward += one.reward
            link.info.update(one.info or {})
            if one.end:
                link.end(found, truncated=one.truncated, info={"outcome": one.outcome} if one.outcome else None)
            elif found is not None and (forward := link.ask(found)) is not None:
                forwards.append((link, forward))
        return forwards


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes, known: Collection[str] = ()) -> Any:
    if not data:
        raise ExternalError("bad_body", 'the body is empty; expected JSON such as {"observation": ...}')
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        fault = _fault(decoder.type, data, known) or f"the body is no JSON: {parser_text(error)}"
        raise ExternalError("bad_body", fault) from None


def _fault(body: type[Any], data: bytes, known: Collection[str]) -> str:
    """What is wrong with a body, by its place and the known keys; empty if only the decoder can say it.

    `known` are the names of entities, which a client may have put beside `entities`.
    """
    try:
        written = json.loads(data)  # takes NaN, Infinity and 1e999, so that their places are known
        entities = written.get("entities") if isinstance(written, dict) else None
        for name, part in entities.items() if isinstance(entities, dict) else ():
            convert(_Part, part, f"entities.{name}")
        convert(body, written, "")
        return next(_not_finite(written, ""), "")
    except ConfigError as error:
        text = f"{error.message}; put entities below `entities`" if error.path in known else error.message
        if error.path.rpartition(".")[2] == "reward":
            text = text.replace("found null", "found null (JavaScript writes NaN and Infinity so)")
        return f"{error.path}: {text}" if error.path else text
    except (RecursionError, ValueError):
        return ""


def _not_finite(written: Any, path: str) -> Iterator[str]:
    """The faults of numbers in decoded JSON that JSON, or a float, does not have."""
    if isinstance(written, float) and not math.isfinite(written):
        yield f"{path}: found {show(written)}; expected a finite number: JSON has no NaN, and no number beyond 1.8e308"
    items = written.items() if isinstance(written, dict) else enumerate(written) if isinstance(written, list) else ()
    for key, inner in items:
        yield from _not_finite(inner, joined(path, key) if isinstance(key, str) else f"{path}[{key}]")


_REWARD = struct.Struct("<d")
_TRUNCATED, _OBSERVED = 1, 2  # bits of an end


class Codec:
    """The samples of one space as bytes: the leaves in order, little-endian, in C order, without padding.

    Raises:
        ConfigError: the space has no fixed layout.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space, leaves = space, leaves_of(space)
        # Cached: looking them up for each sample would take NumPy longer than the rest of the work.
        self._parts = [(leaf.shape, leaf.dtype, leaf.dtype.newbyteorder("<"), leaf.nbytes) for leaf in leaves]
        self._is_box = isinstance(space, Box)
        self.sizes = [leaf.nbytes for leaf in leaves]
        self.size = sum(self.sizes)

    def pack(self, sample: Any) -> bytes:
        """The bytes of a sample of the space."""
        arrays = zip(self._parts, flatten(self.space, sample), strict=True)
        return b"".join([array.astype(wire_type, copy=False).tobytes() for (_, _, wire_type, _), array in arrays])

    def unpack(self, data: memoryview, what: str) -> Any:
        """The sample in `size` bytes, as a copy.

        Raises:
            ExternalError: `bad_observation`: a bool is neither 0 nor 1.
        """
        arrays: list[NDArray[Any]] = []
        at = 0
        for shape, dtype, wire_type, size in self._parts:
            part = data[at : at + size]
            if dtype.kind == "b" and any(byte > 1 for byte in part):
                raise ExternalError("bad_observation", f"{what}: a bool is {max(part)}; expected 0 or 1")
            arrays.append(np.frombuffer(part, wire_type).astype(dtype).reshape(shape))
            at += size
        if self._is_box:  # the usual case
            return arrays[0]
        return row(self.space, unflatten(self.space, [array[None] for array in arrays]), 0)


class RawActor(BuiltinActor):
    """The bytes of samples, see `Codec`, for games of one entity.

    tick: float64 reward, the leaves of the observation, int8 [n] mask if there is one -> the leaves of the action
    end:  float64 reward, a byte of bits (1: truncated, 2: an observation follows), the leaves -> nothing
    """

    observation: ClassVar[Codec]  # set in a subclass by `raw_actor`
    action: ClassVar[Codec]

    async def tick(self, data: bytes) -> bytes:
        """See the class."""
        (link,) = self.links.values()
        size = self.observation.size
        reward = self._reward(link, data, _REWARD.size + size + link.mask_size)
        view = memoryview(data)[_REWARD.size :]
        link.check()
        mask = link.fitted_mask(np.frombuffer(view[size:], np.int8)) if link.mask_size else None
        link.reward += reward
        forward = link.ask(Ask(self.observation.unpack(view[:size], f"observation of {link.name!r}"), mask=mask))
        assert forward is not None, "no action was given"
        return self.action.pack(await forward)

    async def end(self, data: bytes) -> bytes:
        """See the class."""
        (link,) = self.links.values()
        bits = data[_REWARD.size] if len(data) > _REWARD.size else 0
        begin = _REWARD.size + 1
        reward = self._reward(link, data, begin + (self.observation.size if bits & _OBSERVED else 0))
        if bits & ~(_TRUNCATED | _OBSERVED):
            raise ExternalError("bad_body", f"the bits are {bits}; expected at most {_TRUNCATED | _OBSERVED}")
        link.check()
        last = None
        if bits & _OBSERVED:
            name = f"observation of {link.name!r}"
            last = link.fitted_observation(self.observation.unpack(memoryview(data)[begin:], name))
        link.reward += reward
        link.end(last, truncated=bool(bits & _TRUNCATED))
        return b""

    def _reward(self, link: EntityLink, data: bytes, size: int) -> float:
        if len(data) != size:
            leaves = " + ".join(map(str, self.observation.sizes))
            raise ExternalError("bad_body", f"{len(data)} bytes; expected {size}, of an observation {leaves}")
        return checked_reward(_REWARD.unpack_from(data)[0], link.name)


def raw_actor(interface: Interface) -> type[RawActor]:
    """The class of raw actors for such games.

    Raises:
        ConfigError: there are several entities, or a space has no fixed layout.
    """
    if len(interface.entities) != 1:
        raise ConfigError(f"raw is for games of one entity; there are {', '.join(interface.entities)}; use json")
    spaces = {"observation": interface.observation_spaces[0], "action": interface.action_spaces[0]}
    try:
        codecs = {name: Codec(space) for name, space in spaces.items()}
    except ConfigError as error:
        raise ConfigError(f"raw: {interface.entities[0]!r}: {error.message}") from None
    return type("RawActor", (RawActor,), codecs)


class FakeActor:
    """The actor of `arena fake actor`: answers fixed bytes to every request, without asking a policy.

    Args:
        config: `tick` and `end`, the bytes of the answers.
    """

    observation_space = action_space = Discrete(1)

    def __init__(self, agents: dict[str, Agent], config: Any, game_id: str, data: bytes) -> None:
        self._tick: bytes = config["tick"]
        self._end: bytes = config["end"]

    async def tick(self, data: bytes) -> bytes:
        """See the class."""
        return self._tick

    async def end(self, data: bytes) -> bytes:
        """See the class."""
        return self._end
