"""The arguments of `make: shared_memory`, checked."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from arena import registry
from arena.config.decode import convert
from arena.config.fields import Count, Natural, Seconds
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, located, nearest
from arena.external.shared_memory.driver import Driver
from arena.external.shared_memory.layout import GroupSpec
from arena.external.shared_memory.messages import Channel, Engine, Message, parameter_message, property_message

_ATTACH = re.compile(r"[A-Za-z0-9_-]{0,63}[A-Za-z0-9-]")  # the files after the first one end in `_`
_NUMBERS = ("properties", "parameters")  # keys of settings: numbers by name
_OF_DRIVER = ("attach", "profile", "side_channel_bytes", "start_s", "step_s", "close_s", "folder", "cwd", "environment")
_STEP_S, _ATTACHED_STEP_S = 30.0, 3600.0  # an editor that is attached may be paused by hand


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group as a configuration writes it; `GroupSpec` checks the rest."""

    agents: Count
    observations: tuple[tuple[int, ...], ...]
    continuous: Count | None = None
    branches: tuple[Count, ...] | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a match of simulators is, see `docs/simulators.md`; exactly one of `command` and `attach` is given."""

    GAME: ClassVar = (  # a resumed run may have other values of all other keys
        *("groups", "split", "profile", "engine", "properties", "parameters", "seed_property", "channels"),
        *("action_range", "unseen"),
    )

    command: tuple[str, ...] | None = None  # program and arguments: `{seed}`, `{number}`, `{python}`, `{memory_path}`
    attach: str | None = None  # the name under which a program that is started by hand finds the file
    simulators: Annotated[int, Meta(ge=1, le=256)] = 1  # how many of the program the match has
    groups: dict[str, Any] | None = None  # of the simulators, in the order of the entities; null: learned from them
    split: dict[str, Any] = {}  # by group, the number of entities that play it
    profile: Literal["published", "release-0.2"] = "published"  # of the protocol
    side_channel_bytes: Annotated[int, Meta(ge=4, le=2**24)] | None = None  # room of the first file for messages
    engine: Engine | None = None  # the engine configuration that is sent at the first reset
    properties: dict[str, Any] = {}  # float properties that are sent at the first reset
    parameters: dict[str, Any] = {}  # environment parameters, likewise
    seed_property: str | None = None  # the float property that gets the seed
    channels: tuple[str, ...] = ()  # classes of side channels
    action_range: tuple[float, ...] = (-1.0, 1.0)  # the bounds of continuous actions
    start_s: Seconds = 60.0  # seconds from the start of a program to its first hand-over
    step_s: Seconds = _STEP_S  # seconds from a give to the next hand-over
    close_s: Seconds = 5.0  # seconds for a program to end
    unseen: Count = 1000  # hand-overs of its group after which an agent without a row may lose its slot
    restarts: Natural = 0  # how often in ten minutes a simulator that fails is started again
    cwd: str | None = None  # the folder of the program
    environment: dict[str, str] = {}  # variables of the program
    folder: str | None = None  # where the files are made

    @classmethod
    def of(cls, kwargs: Mapping[str, Any], copy: int) -> Settings:
        """The settings that a configuration describes, for this copy of a match; else a `ConfigError`."""
        values = {key: value for key, value in kwargs.items() if value is not None and value != {}}
        command, attach = values.get("command"), values.get("attach")
        if (command is None) == (attach is None):
            found = "neither" if command is None else "both"
            raise ConfigError(f"found {found} of `command` and `attach`; exactly one is needed", path="command")
        if attach is not None:
            values.setdefault("step_s", _ATTACHED_STEP_S)
            if "groups" not in values:
                raise ConfigError("is needed with `attach`; `arena fake driver --attach NAME` prints it", path="groups")
            if not isinstance(attach, str) or not _ATTACH.fullmatch(attach):
                raise ConfigError(
                    f"found {attach!r}; expected `default`, or 1 to 64 of A-Z a-z 0-9 _ -, not ending in _",
                    path="attach",
                )
            values["attach"] = f"{attach}-{copy}" if copy else attach
        elif not isinstance(command, Sequence) or isinstance(command, str) or not command:
            raise ConfigError(f"found {command!r}; expected a list: the program and its arguments", path="command")
        else:
            values["command"] = [str(part) for part in command]
        if isinstance(values.get("environment"), Mapping):
            values["environment"] = {str(key): str(value) for key, value in values["environment"].items()}
        settings = convert(cls, values, "")
        if attach is not None and settings.simulators > 1:
            raise ConfigError(f"found {settings.simulators}; with `attach` there is 1", path="simulators")
        checked_split(settings.split, settings.specs)
        named = [(path, key, value) for path in _NUMBERS for key, value in getattr(settings, path).items()]
        if settings.seed_property is not None:
            named.append(("seed_property", settings.seed_property, 0.0))
        for path, key, value in named:
            if not key or not key.isascii():
                raise ConfigError(f"found {key!r}; expected a text of ASCII characters", path=path)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"found {value!r}; expected a number", path=f"{path}.{key}")
        if len(settings.action_range) != 2 or settings.action_range[0] >= settings.action_range[1]:
            bounds = [*settings.action_range]
            raise ConfigError(f"found {bounds!r}; expected [low, high], low less than high", path="action_range")
        for name in ("cwd", "folder"):
            place = getattr(settings, name)
            if place is not None and not anchored(place).is_dir():
                raise ConfigError(f"found {place!r}; expected a folder that is there", path=name)
        settings.channel_classes()
        if settings.command is not None:
            program = sys.executable if settings.command[0] == "{python}" else settings.command[0]
            if os.sep in program:
                file = anchored(settings.cwd or ".") / program
                if shutil.which(file) is None:
                    what = "is not executable" if file.is_file() else "does not exist"
                    raise ConfigError(f"the program {file} {what}", path="command")
            else:
                searched = settings.environment.get("PATH") or os.environ.get("PATH")
                if shutil.which(program, path=searched) is None:
                    raise ConfigError(f"there is no program {program!r} in PATH ({searched})", path="command")
        return settings

    @property
    def specs(self) -> tuple[GroupSpec, ...] | None:
        """The groups; None: they are learned from the program. A `ConfigError` if a value is not allowed."""
        if self.groups is None:
            return None
        specs = []
        for name, written in self.groups.items():
            path = f"groups.{name}"
            group = convert(_Group, written, path)
            if not group.observations:
                raise ConfigError("found []; expected a list of shapes, at least one", path=f"{path}.observations")
            try:
                specs.append(GroupSpec(name, group.agents, group.observations, group.continuous, group.branches))
            except ValueError as error:
                raise ConfigError(str(error), path=path) from error
        return tuple(specs)

    def channel_classes(self) -> list[type[Channel]]:
        """The classes of side channels; a `ConfigError` if one is no channel, or has the guid of another one."""
        with located(path="channels"):
            channels = [registry.load_object(target) for target in self.channels]
        by_guid: dict[Any, type[Channel]] = {}
        for channel in channels:
            for name in ("guid", "receive", "outgoing"):
                if not hasattr(channel, name):
                    raise ConfigError(f"{channel.__name__} has no `{name}`; a channel needs it", path="channels")
            if channel.guid in by_guid:
                both = f"{by_guid[channel.guid].__name__} and {channel.__name__}"
                raise ConfigError(f"{both} have the same guid {channel.guid}", path="channels")
            by_guid[channel.guid] = channel
        return channels

    def messages(self, seed: float | None) -> list[Message]:
        """The messages of the first reset: engine, properties, parameters; the seed as `seed_property` if it is set."""
        found = [] if self.engine is None else self.engine.messages()
        properties = dict(self.properties)
        if self.seed_property is not None and seed is not None:
            properties[self.seed_property] = seed
        found += [property_message(key, value) for key, value in properties.items()]
        return found + [parameter_message(key, value) for key, value in self.parameters.items()]

    def driver(self, number: int, seed: int, messages: Sequence[Message], output: IO[bytes] | None) -> Driver:
        """A new link to the simulator of this number, with a seed of 32 bits, and messages for the first reset."""
        command = None
        if self.command is not None:
            command = [part.replace("{seed}", str(seed)).replace("{number}", str(number)) for part in self.command]
        values = {name: getattr(self, name) for name in _OF_DRIVER}
        return Driver(command, messages=messages, output=output, **values)


def checked_split(split: Mapping[str, Any], groups: Sequence[GroupSpec] | None) -> None:
    """Checks the key `split`; `groups` are None if they are not known yet.

    Raises:
        ConfigError: a number is no integer of at least 2, there is no such group, or the name of a part is taken.
    """
    names = None if groups is None else {spec.name for spec in groups}
    for name, parts in split.items():
        if names is not None and name not in names:
            raise ConfigError(f"there is no group {name!r}; {nearest(name, sorted(names))}", path="split")
        if isinstance(parts, bool) or not isinstance(parts, int) or parts < 2:
            raise ConfigError(f"found {parts!r}; expected a whole number, at least 2", path=f"split.{name}")
        taken = [part for part in range(parts) if f"{name}.{part}" in (names or ())]
        if taken:
            raise ConfigError(f"there is a group of the name {name}.{taken[0]} already", path=f"split.{name}")
