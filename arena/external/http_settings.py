"""The arguments of `make: http`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from arena.config.decode import convert
from arena.config.fields import Count, Natural
from arena.errors import ConfigError
from arena.external.builtin_actors import JsonActor, raw_actor
from arena.external.declaration import declared_interface
from arena.external.thread import interface_of
from arena.game.api import Interface
from arena.registry import load_object

Port = Annotated[int, Meta(ge=0, le=65535)]
_Pause = Annotated[float, Meta(ge=0, le=31_536_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How games over HTTP are served, see `docs/http-games.md`."""

    GAME: ClassVar = ("actor", "config", "entities", "like")  # a resumed run may have other values of all other keys

    host: str = "127.0.0.1"  # at which to listen
    port: Port = 8000  # copy i of a match listens at port + i; 0: any free one
    actor: str = "json"  # `json`, `raw`, or `package.module:Class`, see `arena.external.Actor`
    config: Any = None  # given to each actor
    entities: Any = None  # the interface, see `arena.external.declaration`
    like: Any = None  # the interface is that of this environment
    token_file: str | None = None  # a file with the token that clients have to send
    insecure: bool = False  # allows another host than loopback without a token
    max_body: Count = 2**26  # the largest body of a request in bytes
    queue: Natural = 16  # requests of one game that wait
    actor_threads: Count | None = None  # for actors whose methods are functions; null: one per slot
    stateless_actors: Count = 1  # for requests without a game
    dialect: Literal["published", "later"] = "published"  # later: `session`, `stop`, and `auto` without `step_kind`
    drain_s: _Pause = 10.0  # how long running games may go on when `arena serve` is to end; not used in training
    keep_alive_s: _Pause = 300.0  # how long a connection without requests stays open, and how long a request may take
    allowed_hosts: tuple[str, ...] = ()  # names of this server besides loopback's and `host`, as of a reverse proxy

    @classmethod
    def of(cls, kwargs: Mapping[str, Any], copy: int) -> Settings:
        """The settings that a configuration describes, for this copy of a match; else a `ConfigError`."""
        settings = convert(cls, kwargs, "")
        port = convert(cls, {"port": settings.port + copy if settings.port else 0}, "").port
        return msgspec.structs.replace(settings, port=port)

    def actor_and_interface(self) -> tuple[Any, Interface]:
        """The class of the actors, and the interface of their games; a `ConfigError` if they do not fit."""
        if self.actor in ("json", "raw"):
            interface = declared_interface(self.entities, self.like)
            return JsonActor if self.actor == "json" else raw_actor(interface), interface
        if ":" not in self.actor:
            raise ConfigError(f"{self.actor!r} is no actor; expected json, raw, or package.module:Class", path="actor")
        actor = load_object(self.actor)
        if not isinstance(actor, type) or not all(callable(getattr(actor, name, None)) for name in ("tick", "end")):
            message = f"{self.actor} is no actor: a class with the methods tick(data) and end(data)"
            raise ConfigError(message, path="actor")
        has_spaces = any(getattr(actor, name, None) for name in ("observation_space", "observation_spaces"))
        key = "entities" if self.entities is not None else "like"
        if has_spaces and getattr(self, key) is not None and not isinstance(self.entities, Interface):
            raise ConfigError(f"{self.actor} has spaces itself; leave this key out", path=key)
        if not has_spaces and getattr(self, key) is None:
            text = "is missing, and `like` too: one of them has to describe the games, as the actor has no spaces"
            raise ConfigError(text, path="entities")
        return actor, interface_of(actor) if has_spaces else declared_interface(self.entities, self.like)
