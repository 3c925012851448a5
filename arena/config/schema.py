"""The configuration of a run: a YAML file, read, overridden (`--set`), checked, frozen.

    load_config(path)      the file to a Config, or a ConfigError that says where the mistake is and what is allowed
    resolved_yaml(config)  a Config to YAML that loads to an equal Config: every default is written out

Types and ranges are declared on the structs below, one documented line per field; `_convert` walks the data and the
structs together, so every error knows its place.
"""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from arena.config import overrides as overriding
from arena.config import yaml_text
from arena.errors import ConfigError, close_name, nearest
from arena.plan import MOST_ROLES

Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]  # from 2**53 on, a float no longer holds every integer
Halves = Annotated[int, Meta(ge=1, le=2)]
Natural = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # a year: what is longer, or no number, no clock can wait for
Text = Annotated[str, Meta(min_length=1)]
Color = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}\Z")]
SeatEntry = str | tuple[str, ...]
WrapperEntry = str | dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_NAME_RULE = "a name becomes a folder: letters, digits, '_', '-' and '.', the first a letter or digit, at most 100"
_SHOWN = 80  # characters of a wrong value in a message


class EnvConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `envs`."""

    make: Text  # short name | "gymnasium:ID" | "pettingzoo:NAME" | "package.module:callable"
    kwargs: dict[str, Any] = {}  # given to the environment when it is made
    wrappers: tuple[WrapperEntry, ...] = ()  # around it, the innermost first: a name, or {name: its arguments}
    idle_action: Any = None  # what a seat does that nobody plays; null: the space's no-op

    @property
    def wrapped_in(self) -> tuple[tuple[str, Any], ...]:
        """Name and argument of each wrapper; None where it has none."""
        return tuple((item, None) if isinstance(item, str) else next(iter(item.items())) for item in self.wrappers)


class PolicyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `policies`."""

    algorithm: Text  # short name | "package.module:Class"
    options: dict[str, Any] = {}  # of the algorithm
    color: Color | None = None  # "#rrggbb", in displays and diagrams
    frozen: bool = False  # plays, does not learn
    load: Text | None = None  # checkpoint to begin with; relative to the current directory
    sync: Literal["gradients", "samples"] = "gradients"  # what the workers of the policy pool
    reduce: Literal["ordered", "fast"] = "ordered"  # gradients are summed in the workers' order, or as MPI likes


class MatchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `matches`: a game and who plays in it."""

    env: str  # a name of `envs`
    seats: tuple[SeatEntry, ...]  # i-th entry: the policy that plays entity i; a list: one worker drives several
    entities: tuple[Natural | Text, ...] | None = None  # what the entries stand for; null: 0, 1, 2, ...
    env_kwargs: dict[str, Any] = {}  # over the environment's kwargs, for this match and its copies
    copies: Count = 1  # identical matches made from this description
    lanes: Count = 1  # environment instances that each match steps together
    pipeline: Halves = 1  # 2: in two halves, one is stepped while the workers think about the other


class RoundRobinConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every policy against every other one."""

    env: str  # a name of `envs`
    policies: tuple[str, ...]  # at least two of `policies`
    team_size: Count = 1  # seats of each side
    copies: Count = 1  # of each pairing
    lanes: Count = 1  # of each match
    pipeline: Halves = 1  # 2: each match steps its lanes in two halves
    both_sides: bool = False  # each pairing with the sides exchanged as well
    env_kwargs: dict[str, Any] = {}  # over the environment's kwargs

    @property
    def roles(self) -> int:
        """Environments and workers of all pairings, counted without writing them out."""
        pairings = len(self.policies) * (len(self.policies) - 1) // (1 if self.both_sides else 2)
        return pairings * self.copies * (1 + 2 * self.team_size)

    def matches(self) -> tuple[MatchConfig, ...]:
        """The pairings written out, in the order in which the policies are listed."""
        pairs = list(itertools.combinations(self.policies, 2))
        if self.both_sides:
            pairs = [side for first, second in pairs for side in ((first, second), (second, first))]
        return tuple(
            MatchConfig(
                env=self.env,
                seats=(first,) * self.team_size + (second,) * self.team_size,
                env_kwargs=self.env_kwargs,
                copies=self.copies,
                lanes=self.lanes,
                pipeline=self.pipeline,
            )
            for first, second in pairs
        )


class RoundRobinEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry of `matches` that stands for many."""

    round_robin: RoundRobinConfig


class EvaluationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the policies are evaluated while they learn: frozen copies of them play matches of their own."""

    every: Count  # ticks; a multiple of checkpoint_every
    episodes: Count = 20  # at least so many of each policy; every lane plays the same number
    seats: tuple[SeatEntry, ...] | None = None  # who plays; null: as in each match
    greedy: bool = True  # the most likely action rather than a sampled one


class CallbackConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `callbacks` that has options."""

    class_: Text = msgspec.field(name="class")  # "package.module:Class"
    options: dict[str, Any] = {}  # given to the class when it is made


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole configuration."""

    name: str  # of the run and its folder; default: the file's name
    seed: Natural = 0  # all random streams derive from it
    ticks: Count  # of every match
    rounds: Count = 1  # plans of matches in a row
    envs: dict[str, EnvConfig]  # by name
    policies: dict[str, PolicyConfig]  # by name
    matches: tuple[MatchConfig | RoundRobinEntry, ...]  # what is played
    scale: bool = False  # repeat all matches until the ranks are used up
    checkpoint_every: Count = 10_000  # ticks from one boundary to the next: everything is saved, and can go on from it
    evaluation: EvaluationConfig | None = None  # while they learn; null: none
    callbacks: tuple[Text | CallbackConfig, ...] = ()  # classes that are told what happens; or "package.module:Class"
    record: Literal["nothing", "samples"] = "nothing"  # samples: all that is played, as columns of numbers
    transport: Literal["auto", "mpi"] = "auto"  # auto: shared memory within a node; mpi: MPI messages everywhere
    watchdog_s: Seconds = 60.0  # when nothing has moved for so long, the run ends and says who waits for what
    env_timeout_s: Seconds | None = None  # as long as one call of a game or an algorithm may take; null: watchdog_s
    on_env_error: Literal["stop", "restart"] = "stop"  # restart: make a game that fails anew, drop its episodes
    fault_tolerance: Literal["auto", "on", "off"] = "auto"  # go on when a process dies; auto: where MPI can (ULFM)
    spares: Natural = 0  # processes that wait to take the place of one that dies

    @property
    def roles(self) -> int:
        """Environments and workers of all matches, without the root and without repetitions."""
        return sum(
            entry.copies * (1 + len(entry.seats)) if isinstance(entry, MatchConfig) else entry.round_robin.roles
            for entry in self.matches
        )

    def entries(self) -> tuple[tuple[str, MatchConfig], ...]:
        """Every match description with its place in the configuration; round robins are written out."""
        found: list[tuple[str, MatchConfig]] = []
        for index, entry in enumerate(self.matches):
            if isinstance(entry, MatchConfig):
                found.append((f"matches[{index}]", entry))
            else:
                found.extend((f"matches[{index}].round_robin", match) for match in entry.round_robin.matches())
        return tuple(found)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads, overrides and checks a configuration file.

    Args:
        path: of a YAML file.
        overrides: of the form `key.path=value`, as `--set` takes them; later ones win.

    Raises:
        ConfigError: anything that is wrong with the file or an override.
    """
    source = str(path)
    data = yaml_text.load(_read(Path(path)), source=source)
    if data is None:
        raise ConfigError("the file is empty; a configuration needs ticks, envs, policies and matches", source=source)
    return parse_config(data, source=source, overrides=overrides)


def parse_config(data: Mapping[str, Any], *, source: str, overrides: Sequence[str] = ()) -> Config:
    """Overrides and checks configuration data that is already in memory.

    Args:
        data: as the YAML file would give it; not changed.
        source: where it came from; its stem is the default of `name`.
        overrides: of the form `key.path=value`.

    Raises:
        ConfigError: anything that is wrong.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"a configuration is a mapping of keys to values, found {_show(data)}", source=source)
    overridden = overriding.apply(data, overrides)
    try:
        config = _convert(Config, {"name": Path(source).stem, **overridden.data}, "")
        _check(config)
    except ConfigError as error:
        raise overridden.blame(error, source) from error
    return config


def resolved_yaml(config: Config) -> str:
    """The configuration as YAML with every default written out; it loads to an equal `Config`."""
    return yaml_text.dump(msgspec.to_builtins(config))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(yaml_text.MOST_CHARACTERS + 1)  # a device has no end
        if len(content) > yaml_text.MOST_CHARACTERS:
            raise ConfigError(f"is longer than {yaml_text.MOST_CHARACTERS} bytes", source=str(path))
        return content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no such file{_similar_file(path)}", source=str(path)) from error
    except IsADirectoryError as error:
        raise ConfigError("is a directory; name a YAML file", source=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start} is wrong)", source=str(path)) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ConfigError(f"cannot be read: {error}", source=str(path)) from error


def _similar_file(path: Path) -> str:
    others = {other.stem: other.name for pattern in ("*.yaml", "*.yml") for other in path.parent.glob(pattern)}
    close = close_name(path.stem, others)  # the ending is no likeness
    hint = "" if close is None else f"did you mean {others[close]!r}? "
    return f"; {hint}known: {', '.join(sorted(others.values()))}" if others else ""


S = TypeVar("S", bound=msgspec.Struct)


def _convert(kind: type[S], value: Any, path: str) -> S:
    """The data as a struct of this kind."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}  # by their keys in the file
    _require_mapping(value, path)
    for key in value:
        if key not in fields:
            raise ConfigError(f"unknown key {key!r}; {nearest(str(key), fields)}", path=_join(path, key))
    for name, field in fields.items():
        if field.required and name not in value:
            raise ConfigError(f"the key {name!r} is missing, and has no default", path=path)
    hints = _hints(kind)
    items = ((fields[key].name, item, _join(path, key)) for key, item in value.items())
    return kind(**{name: _convert_value(hints[name], item, place) for name, item, place in items})


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _convert_value(kind: Any, value: Any, path: str) -> Any:
    """The value as this type: walks into structs, lists and mappings, leaves the rest to msgspec."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = _arm(kind, value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _convert(kind, value, path)
    if get_origin(kind) is tuple:
        _require_list(value, path)
        return tuple(_convert_value(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if get_origin(kind) is dict and _is_struct(get_args(kind)[1]):
        return _convert_named(get_args(kind)[1], value, path)
    return _convert_leaf(kind, value, path)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _arm(union: Any, value: Any) -> Any:
    """The alternative of a union that the value is meant for, or the union itself where msgspec can tell."""
    arms = get_args(union)
    if RoundRobinEntry in arms:
        return RoundRobinEntry if isinstance(value, Mapping) and "round_robin" in value else MatchConfig
    if isinstance(value, (list, tuple)):
        return next((arm for arm in arms if get_origin(arm) is tuple), union)
    if isinstance(value, Mapping):
        return next((arm for arm in arms if _is_struct(arm)), union)
    return union


def _convert_named(kind: type[S], value: Any, path: str) -> dict[str, S]:
    _require_mapping(value, path)
    for name in value:
        _check_name(name, path)
    return {name: _convert(kind, item, _join(path, name)) for name, item in value.items()}


def _convert_leaf(kind: Any, value: Any, path: str) -> Any:
    if get_origin(kind) is Literal:
        if isinstance(value, bool) and "off" in get_args(kind):
            value = "on" if value else "off"  # YAML 1.1 reads the words so
        if value in get_args(kind):
            return value
        raise ConfigError(f"found {_show(value)}; {nearest(str(value), get_args(kind))}", path=path)
    if isinstance(value, float) and value.is_integer() and _takes_integers(kind):
        value = int(value)  # 1e6 ticks
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"found {_show(value)}: {_plain(str(error))}", path=path) from error


def _takes_integers(kind: Any) -> bool:
    """Whether a type is an integer, or a union that has one."""
    if get_origin(kind) in (Annotated, Union, types.UnionType):
        return any(_takes_integers(part) for part in get_args(kind))
    return kind is int


def _plain(message: str) -> str:
    """msgspec's message in the words of a YAML file."""
    names = {"array": "list", "object": "mapping", "int": "integer", "bool": "true or false", "str": "text"}
    message = re.sub(r" - at `[^`]*`$", "", message)
    for name, word in names.items():
        message = re.sub(rf"`{name}\b", f"`{word}", message).replace(f"| {name}", f"| {word}")
    message = message.replace(r"`text` matching regex '^#[0-9a-fA-F]{6}\\Z'", 'a colour as "#1f77b4"')
    return message[:1].lower() + message[1:].replace("`", "")


def _require_mapping(value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"found {_show(value)}; expected a mapping of keys to values", path=path)


def _require_list(value: Any, path: str) -> None:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"found {_show(value)}; expected a list", path=path)


def _check_name(name: Any, path: str) -> None:
    if not (isinstance(name, str) and _NAME.match(name)):
        raise ConfigError(f"the name {_show(name)} cannot be used; {_NAME_RULE}", path=path)


def _show(value: Any) -> str:
    """A value as the file has it, shortened."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _check(config: Config) -> None:
    """What no single field can tell."""
    if not _NAME.match(config.name):
        raise ConfigError(
            f"the run's name {config.name!r} (by default the file's) cannot be used; {_NAME_RULE}", path="name"
        )
    if config.rounds > 1:
        raise ConfigError(
            f"found {config.rounds}; more than one round is not yet possible: rounds need a matchmaking rule, which "
            "this version does not have",
            path="rounds",
        )
    for path in ("envs", "policies", "matches"):
        if not getattr(config, path):
            raise ConfigError("is empty; at least one is needed", path=path)
    for name, env in config.envs.items():
        _check_wrappers(env.wrappers, f"envs.{name}.wrappers")
    for index, entry in enumerate(config.matches):
        if isinstance(entry, MatchConfig):
            _check_match(config, entry, f"matches[{index}]")
        else:
            _check_round_robin(config, entry.round_robin, f"matches[{index}].round_robin")
    if config.evaluation is not None:
        _check_evaluation(config, config.evaluation)
    if config.roles >= MOST_ROLES:
        raise ConfigError(f"asks for {config.roles + 1} roles, more than {MOST_ROLES}; lower `copies`", path="matches")


def _check_wrappers(wrappers: Sequence[WrapperEntry], path: str) -> None:
    for index, entry in enumerate(wrappers):
        if not isinstance(entry, str) and len(entry) != 1:
            raise ConfigError(
                f"found {_show(entry)}; expected a name, or one name with its arguments, as `frame_stack: 4`: each "
                "wrapper is an item of the list, after a dash of its own",
                path=f"{path}[{index}]",
            )


def _check_match(config: Config, match: MatchConfig, path: str) -> None:
    _check_known(match.env, config.envs, "environment", f"{path}.env")
    if not match.seats:
        raise ConfigError("is empty; a match needs at least one seat", path=f"{path}.seats")
    for index, seat in enumerate(match.seats):
        _check_seat(config, seat, f"{path}.seats[{index}]")
    if match.entities is not None:
        _check_entities(match.entities, match.seats, f"{path}.entities")
    _check_pipeline(match, path)


def _check_seat(config: Config, seat: SeatEntry, path: str) -> None:
    if isinstance(seat, str):
        return _check_known(seat, config.policies, "policy", path)
    if not seat:
        raise ConfigError("is empty; a seat that drives entities together lists its policy once per entity", path=path)
    for index, name in enumerate(seat):
        _check_known(name, config.policies, "policy", f"{path}[{index}]")
    if len(set(seat)) > 1:
        raise ConfigError(
            f"found {', '.join(seat)}: one worker drives these entities together, so they are all of one policy; "
            "give each policy a seat of its own",
            path=path,
        )
    return None


def _check_entities(entities: Sequence[int | str], seats: Sequence[SeatEntry], path: str) -> None:
    needed = _entities(seats)
    if len(entities) != needed:
        raise ConfigError(f"lists {len(entities)} entities for {needed} entries of `seats`; one for each", path=path)
    for index, entity in enumerate(entities):
        if entity in entities[:index]:
            raise ConfigError(f"{entity!r} is listed twice", path=f"{path}[{index}]")


def _check_pipeline(entry: MatchConfig | RoundRobinConfig, path: str) -> None:
    if entry.pipeline > entry.lanes:
        raise ConfigError(
            f"found {entry.pipeline}, but there is {entry.lanes} lane: each half needs one; set `lanes: 2` or more, or "
            "`pipeline: 1`",
            path=f"{path}.pipeline",
        )


def _check_round_robin(config: Config, entry: RoundRobinConfig, path: str) -> None:
    _check_known(entry.env, config.envs, "environment", f"{path}.env")
    for index, name in enumerate(entry.policies):
        _check_known(name, config.policies, "policy", f"{path}.policies[{index}]")
        if name in entry.policies[:index]:
            raise ConfigError(f"{name!r} is listed twice", path=f"{path}.policies[{index}]")
    if len(entry.policies) < 2:
        raise ConfigError(
            f"lists {len(entry.policies)} policies; a round robin needs two or more", path=f"{path}.policies"
        )
    _check_pipeline(entry, path)


def _check_evaluation(config: Config, evaluation: EvaluationConfig) -> None:
    if evaluation.every % config.checkpoint_every:
        raise ConfigError(
            f"found {evaluation.every}: policies are evaluated where they are saved, every {config.checkpoint_every} "
            f"ticks; set a multiple of it, or `checkpoint_every: {evaluation.every}`",
            path="evaluation.every",
        )
    if evaluation.seats is None:
        return
    for index, seat in enumerate(evaluation.seats):
        _check_seat(config, seat, f"evaluation.seats[{index}]")
    for path, entry in config.entries():
        found, needed = _entities(evaluation.seats), _entities(entry.seats)
        if found != needed:
            raise ConfigError(f"play {found} entities, {path} has {needed}", path="evaluation.seats")


def _entities(seats: Sequence[SeatEntry]) -> int:
    """How many entities play in these seats."""
    return sum(1 if isinstance(seat, str) else len(seat) for seat in seats)


def _check_known(name: str, known: Mapping[str, Any], what: str, path: str) -> None:
    if name not in known:
        raise ConfigError(f"unknown {what} {name!r}; {nearest(name, known)}", path=path)
