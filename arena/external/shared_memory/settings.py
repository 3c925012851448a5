"""The arguments of `make: shared_memory`, checked."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from arena import registry
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, nearest
from arena.external.shared_memory.driver import PROFILES, Driver
from arena.external.shared_memory.layout import GroupSpec
from arena.external.shared_memory.messages import ENGINE_DEFAULTS, Channel, Message

_ATTACH = re.compile(r"[A-Za-z0-9_-]{0,63}[A-Za-z0-9-]")  # the files after the first one end in `_`
_MOST_SIMULATORS = 256
_MOST_AREA = 2**24
_STEP_S, _ATTACHED_STEP_S = 30.0, 3600.0  # an editor that is attached may be paused by hand
_GROUP_KEYS = ("agents", "observations", "continuous", "branches")
_INTEGERS = ("width", "height", "quality", "target_frame_rate", "capture_frame_rate")


@dataclass(frozen=True)
class Settings:
    """What a match of simulators is, see `docs/simulators.md`; exactly one of `command` and `attach` is given.

    Args:
        command: a program and its arguments; `{seed}`, `{number}`, `{python}`, `{memory_path}` in them are replaced.
        attach: the name under which a program that is started by hand finds the file.
        simulators: how many of the program the match has.
        groups: what the simulators have, in the order of the entities; None: learned from the program.
        split: by group, the number of entities that play it.
        profile: of the protocol.
        side_channel_bytes: the capacity of the first file for messages.
        engine: the engine configuration that is sent at the first reset.
        properties: float properties that are sent at the first reset.
        parameters: environment parameters, likewise.
        seed_property: the float property that gets the seed.
        channels: classes of side channels.
        action_range: the bounds of continuous actions.
        start_s: seconds from the start of a program to its first hand-over.
        step_s: seconds from a give to the next hand-over.
        close_s: seconds for a program to end.
        unseen: hand-overs of its group after which an agent without a row may lose its slot.
        restarts: how often in ten minutes a simulator that fails is started again.
        cwd: the folder of the program.
        environment: variables of the program.
        folder: where the files are made.
        copy: the number of the match among its copies.
    """

    command: tuple[str, ...] | None = None
    attach: str | None = None
    simulators: int = 1
    groups: tuple[GroupSpec, ...] | None = None
    split: Mapping[str, int] = field(default_factory=dict)
    profile: str = "published"
    side_channel_bytes: int | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    seed_property: str | None = None
    channels: tuple[type[Channel], ...] = ()
    action_range: tuple[float, float] = (-1.0, 1.0)
    start_s: float = 60.0
    step_s: float = _STEP_S
    close_s: float = 5.0
    unseen: int = 1000
    restarts: int = 0
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    copy: int = 0

    @classmethod
    def of(cls, kwargs: Mapping[str, Any], copy: int) -> Settings:
        """The settings that a configuration describes.

        Raises:
            ConfigError: a key is unknown, or its value is not allowed.
        """
        known = [each.name for each in fields(cls) if each.name != "copy"]
        for key in kwargs:
            if key not in known:
                raise ConfigError(f"unknown key {key!r}; {nearest(key, known)}")
        given = {key: value for key, value in kwargs.items() if value is not None}
        command, attach = given.get("command"), given.get("attach")
        if (command is None) == (attach is None):
            found = "neither" if command is None else "both"
            raise ConfigError(f"found {found} of `command` and `attach`; exactly one is needed", path="command")
        attached = attach is not None
        groups = _groups(given["groups"]) if "groups" in given else None
        if attached and groups is None:
            raise ConfigError("is needed with `attach`; `arena fake driver --attach NAME` prints it", path="groups")
        profile = _one_of(given.get("profile", "published"), PROFILES, "profile")
        settings = cls(
            command=None if command is None else _command(command),
            attach=None if attach is None else _attach(attach, copy),
            simulators=_integer(given, "simulators", 1, 1, 1 if attached else _MOST_SIMULATORS),
            groups=groups,
            split=checked_split(given.get("split", {}), groups),
            profile=profile,
            side_channel_bytes=_integer(given, "side_channel_bytes", None, 4, _MOST_AREA),
            engine=_engine(given.get("engine", {})),
            properties=_numbers(given.get("properties", {}), "properties"),
            parameters=_numbers(given.get("parameters", {}), "parameters"),
            seed_property=_ascii(given.get("seed_property"), "seed_property"),
            channels=_channels(given.get("channels", [])),
            action_range=_range(given.get("action_range", [-1.0, 1.0])),
            start_s=_seconds(given, "start_s", 60.0),
            step_s=_seconds(given, "step_s", _ATTACHED_STEP_S if attached else _STEP_S),
            close_s=_seconds(given, "close_s", 5.0),
            unseen=_integer(given, "unseen", 1000, 1, None),
            restarts=_integer(given, "restarts", 0, 0, None),
            cwd=_path(given.get("cwd"), "cwd"),
            environment=_environment(given.get("environment", {})),
            folder=_path(given.get("folder"), "folder"),
            copy=copy,
        )
        if settings.command is not None:
            _check_program(settings.command[0], settings)
        return settings

    def driver(self, number: int, seed: int, messages: Sequence[Message], output: IO[bytes] | None) -> Driver:
        """A new link to a simulator.

        Args:
            number: of the simulator.
            seed: 32 bits.
            messages: for the first reset.
            output: of the program.

        Raises:
            UnsafeFile, NoRoom: the first file cannot be made.
        """
        command = None
        if self.command is not None:
            command = [part.replace("{seed}", str(seed)).replace("{number}", str(number)) for part in self.command]
        return Driver(
            command,
            attach=self.attach,
            profile=self.profile,
            side_channel_bytes=self.side_channel_bytes,
            messages=messages,
            start_s=self.start_s,
            step_s=self.step_s,
            close_s=self.close_s,
            folder=self.folder,
            cwd=self.cwd,
            environment=self.environment,
            output=output,
        )


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ConfigError(f"found {value!r}; expected a list: the program and its arguments", path="command")
    return tuple(map(str, value))


def _check_program(program: str, settings: Settings) -> None:
    if program == "{python}":
        program = sys.executable
    path = (settings.environment.get("PATH") or os.environ.get("PATH")) if os.sep not in program else None
    place = str(anchored(settings.cwd or ".") / program) if os.sep in program else program
    if shutil.which(place, path=path) is None:
        if os.sep not in program:
            raise ConfigError(f"there is no program {program!r} in PATH ({path})", path="command")
        what = "is not executable" if Path(place).is_file() else "does not exist"
        raise ConfigError(f"the program {place} {what}", path="command")


def _attach(value: Any, copy: int) -> str:
    if not isinstance(value, str) or not _ATTACH.fullmatch(value):
        raise ConfigError(
            f"found {value!r}; expected `default`, or 1 to 64 of A-Z a-z 0-9 _ -, not ending in _", path="attach"
        )
    return f"{value}-{copy}" if copy else value


def _integer(given: Mapping[str, Any], key: str, default: Any, low: int, high: int | None) -> Any:
    value = given.get(key, default)
    if key not in given:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"{low} to {high}"
        raise ConfigError(f"found {value!r}; expected an integer, {allowed}", path=key)
    return value


def _seconds(given: Mapping[str, Any], key: str, default: float) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConfigError(f"found {value!r}; expected a number of seconds greater than 0", path=key)
    return float(value)


def _one_of(value: Any, known: Sequence[str], path: str) -> str:
    if value not in known:
        raise ConfigError(f"found {value!r}; known: {', '.join(known)}", path=path)
    return str(value)


def _groups(value: Any) -> tuple[GroupSpec, ...]:
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"found {value!r}; expected a mapping of names to groups", path="groups")
    return tuple(_group(str(name), written) for name, written in value.items())


def _group(name: str, written: Any) -> GroupSpec:
    path = f"groups.{name}"
    example = "{agents: 4, observations: [[3], [2, 2]], continuous: 2}"
    if not isinstance(written, Mapping) or not {"agents", "observations"} <= set(written):
        raise ConfigError(f"found {written!r}; expected {example}, or `branches: [3, 2]`", path=path)
    for key in written:
        if key not in _GROUP_KEYS:
            raise ConfigError(f"unknown key {key!r}; known: {', '.join(_GROUP_KEYS)}", path=path)
    if ("continuous" in written) == ("branches" in written):
        raise ConfigError("exactly one of `continuous` and `branches` is needed", path=path)
    agents = written["agents"]
    if not _is_integer(agents, 1):
        raise ConfigError(f"found {agents!r}; expected an integer, at least 1", path=f"{path}.agents")
    shapes = written["observations"]
    if not isinstance(shapes, Sequence) or isinstance(shapes, str) or not shapes:
        raise ConfigError(f"found {shapes!r}; expected a list of shapes, at least one", path=f"{path}.observations")
    for shape in shapes:
        wrong = not isinstance(shape, Sequence) or isinstance(shape, str) or not 1 <= len(shape) <= 3
        if wrong or not all(_is_integer(size, 1) for size in shape):
            expected = "one to three sizes of at least 1"
            raise ConfigError(f"found the shape {shape!r}; expected {expected}", path=f"{path}.observations")
    continuous, branches = written.get("continuous"), written.get("branches")
    if "continuous" in written and not _is_integer(continuous, 1):
        raise ConfigError(f"found {continuous!r}; expected an integer, at least 1", path=f"{path}.continuous")
    if "branches" in written:
        wrong = not isinstance(branches, Sequence) or isinstance(branches, str) or not branches
        if wrong or not all(_is_integer(choices, 1) for choices in branches or ()):
            raise ConfigError(f"found {branches!r}; expected the choices of each branch", path=f"{path}.branches")
        branches = tuple(branches or ())
    try:
        return GroupSpec(name, agents, tuple(map(tuple, shapes)), continuous, branches)
    except ValueError as error:
        raise ConfigError(str(error), path=path) from error


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def checked_split(value: Any, groups: Sequence[GroupSpec] | None) -> dict[str, int]:
    """The key `split`; `groups` are those of the configuration or of the program, None if they are not known yet.

    Raises:
        ConfigError: it is not a mapping of groups to integers of at least 2, or the name of a part is taken.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"found {value!r}; expected a mapping of groups to their numbers of entities", path="split")
    names = None if groups is None else {spec.name for spec in groups}
    for name, parts in value.items():
        if names is not None and name not in names:
            raise ConfigError(f"there is no group {name!r}; there are {', '.join(sorted(names))}", path="split")
        if not _is_integer(parts, 2):
            raise ConfigError(f"found {parts!r}; expected an integer, at least 2", path=f"split.{name}")
        if names is not None:
            for part in range(parts):
                if f"{name}.{part}" in names:
                    raise ConfigError(f"there is a group of the name {name}.{part} already", path=f"split.{name}")
    return dict(value)


def _engine(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"found {value!r}; expected a mapping", path="engine")
    for key, found in value.items():
        if key not in ENGINE_DEFAULTS:
            raise ConfigError(f"unknown key {key!r}; known: {', '.join(ENGINE_DEFAULTS)}", path="engine")
        if key in _INTEGERS and not (_is_integer(found, -(2**31)) and found < 2**31):
            raise ConfigError(f"found {found!r}; expected an integer", path=f"engine.{key}")
    _one_of(value.get("form", "single"), ("single", "each"), "engine.form")
    scale = value.get("time_scale", 20.0)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale <= 100:
        raise ConfigError(f"found {scale!r}; expected a number greater than 0, at most 100", path="engine.time_scale")
    return dict(value)


def _numbers(value: Any, path: str) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"found {value!r}; expected a mapping of names to numbers", path=path)
    for key, found in value.items():
        _ascii(key, path)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
            raise ConfigError(f"found {found!r}; expected a number", path=f"{path}.{key}")
    return {key: float(found) for key, found in value.items()}


def _ascii(value: Any, path: str) -> Any:
    if value is not None and (not isinstance(value, str) or not value or not value.isascii()):
        raise ConfigError(f"found {value!r}; expected a text of ASCII characters", path=path)
    return value


def _range(value: Any) -> tuple[float, float]:
    numbers = (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each) for each in value)
    )
    if not numbers or value[0] >= value[1]:
        raise ConfigError(f"found {value!r}; expected [low, high], low less than high", path="action_range")
    return float(value[0]), float(value[1])


def _path(value: Any, path: str) -> str | None:
    if value is not None and not (isinstance(value, str) and anchored(value).is_dir()):
        raise ConfigError(f"found {value!r}; expected a folder that is there", path=path)
    return value


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"found {value!r}; expected a mapping of names to values", path="environment")
    return {str(key): str(each) for key, each in value.items()}


def _channels(value: Any) -> tuple[type[Channel], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigError(f"found {value!r}; expected a list of package.module:Class", path="channels")
    channels = tuple(registry.load_object(str(each)) for each in value)
    seen: dict[Any, type[Channel]] = {}
    for channel in channels:
        for name in ("guid", "receive", "outgoing"):
            if not hasattr(channel, name):
                raise ConfigError(f"{channel.__name__} has no `{name}`; a channel needs it", path="channels")
        if channel.guid in seen:
            both = f"{seen[channel.guid].__name__} and {channel.__name__}"
            raise ConfigError(f"{both} have the same guid {channel.guid}", path="channels")
        seen[channel.guid] = channel
    return channels
