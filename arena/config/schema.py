"""The configuration of a run: a YAML file, read, overridden (`--set`), checked, frozen.

    load_config(path)      the file to a Config, or a ConfigError that says where the mistake is and what is allowed
    resolved_yaml(config)  a Config to YAML that loads to an equal Config: every default is written out

Types and ranges are declared on structs, one documented line per field: here, of matches in `matches`, of leagues in
`league`. `converting` walks the data and the structs together; `checking` says what no single field can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from arena.config import overrides as overriding
from arena.config import yaml
from arena.config.check import check
from arena.config.check_league import may_be_frozen
from arena.config.decode import convert, show
from arena.config.fields import Color, Count, Natural, Seconds, Text
from arena.config.independent import expanded
from arena.config.league import LeagueConfig
from arena.config.matches import GeneratorEntry, MatchConfig, RoundRobinConfig, SeatEntry, generator_of
from arena.errors import ConfigError, close_name
from arena.plan.plan import ONLY_ACT, OutcomeRule

__all__ = [
    "CallbackConfig",
    "Config",
    "EnvConfig",
    "EvaluationConfig",
    "MatchConfig",
    "PolicyConfig",
    "RoundRobinConfig",
    "SeatEntry",
    "load_config",
    "parse_config",
    "resolved_yaml",
]

WrapperEntry = str | dict[str, Any]


class EnvConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `envs`."""

    make: Text  # short name | "gymnasium:ID" | "pettingzoo:NAME" | "package.module:callable"
    kwargs: dict[str, Any] = {}  # given to the environment when it is made
    wrappers: tuple[WrapperEntry, ...] = ()  # around it, the innermost first: a name, or {name: its arguments}
    idle_action: Any = None  # what a seat does that nobody plays; null: the space's no-op
    outcome: OutcomeRule | None = None  # who has won; null: the infos, else the returns as long as the game is zero-sum

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
    independent: bool = False  # each worker learns alone, as a policy of its own: blue#0, blue#1, ...

    @property
    def learns(self) -> bool:
        """Whether it is another player after a round than before."""
        return not self.frozen and self.algorithm not in ONLY_ACT


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
    matches: tuple[MatchConfig | GeneratorEntry, ...]  # what is played
    league: LeagueConfig | None = None  # what happens between two rounds; null: the defaults of its keys
    scale: bool = False  # repeat all matches until the ranks are used up
    ranks: Literal["auto", "one_per_role"] | Count = "auto"  # processes that `arena train` starts; auto: one per core
    checkpoint_every: Count = 10_000  # ticks from one boundary to the next: everything is saved, and can go on from it
    evaluation: EvaluationConfig | None = None  # while they learn; null: none
    callbacks: tuple[Text | CallbackConfig, ...] = ()  # classes that are told what happens; or "package.module:Class"
    record: Literal["nothing", "samples", "replays"] = "nothing"  # of all that is played: columns, or what replays it
    transport: Literal["auto", "mpi"] = "auto"  # auto: shared memory within a node; mpi: MPI messages everywhere
    watchdog_s: Seconds = 60.0  # when nothing has moved for so long, the run ends and says who waits for what
    env_timeout_s: Seconds | None = None  # as long as one call of a game or an algorithm may take; null: watchdog_s
    on_env_error: Literal["stop", "restart"] = "stop"  # restart: make a game that fails anew, drop its episodes
    fault_tolerance: Literal["auto", "on", "off"] = "auto"  # go on when a process dies; auto: where MPI can (ULFM)
    spares: Natural = 0  # processes that wait to take the place of one that dies

    @property
    def roles(self) -> int:
        """Environments and workers of the first round, without the root and without repetitions; later ones have no
        more.
        """
        return sum(
            entry.copies * (1 + len(entry.seats)) if isinstance(entry, MatchConfig) else generator_of(entry).roles
            for entry in self.matches
        )

    def entries(self) -> tuple[tuple[str, MatchConfig], ...]:
        """Every match description of the first round, generators written out, with its place in the configuration."""
        found: list[tuple[str, MatchConfig]] = []
        learns = self.learners
        for path, entry in self.places():
            matches = (entry,) if isinstance(entry, MatchConfig) else generator_of(entry).matches(learns=learns)
            found.extend((path, match) for match in matches)
        return tuple(found)

    @property
    def learners(self) -> frozenset[str]:
        """The policies that learn."""
        return frozenset(name for name, policy in self.policies.items() if policy.learns)

    @property
    def snapshotted(self) -> frozenset[str]:
        """The policies of which snapshots may play in later rounds."""
        return may_be_frozen(self)

    def places(self) -> tuple[tuple[str, MatchConfig | GeneratorEntry], ...]:
        """The items of `matches` with their places in the configuration, as `matches[1].round_robin`."""
        return tuple(
            (f"matches[{index}]" if isinstance(entry, MatchConfig) else f"matches[{index}].{entry.kind}", entry)
            for index, entry in enumerate(self.matches)
        )


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads, overrides and checks a configuration file.

    Args:
        path: of a YAML file.
        overrides: of the form `key.path=value`, as `--set` takes them; later ones win.

    Raises:
        ConfigError: anything that is wrong with the file or an override.
    """
    source = str(path)
    data = yaml.load(_read(Path(path)), source=source)
    if data is None:
        raise ConfigError("the file is empty; a configuration needs ticks, envs, policies and matches", source=source)
    return parse_config(data, source=source, overrides=overrides)


def parse_config(data: Mapping[str, Any], *, source: str, overrides: Sequence[str] = ()) -> Config:
    """Overrides and checks configuration data that is already in memory.

    Args:
        data: as the YAML file would give it; not changed.
        source: where it came from; its stem is the default of `name`.
        overrides: of the form `key.path=value`.

    Returns:
        the configuration, in which each worker of an independent policy is a policy of its own.

    Raises:
        ConfigError: anything that is wrong.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"a configuration is a mapping of keys to values, found {show(data)}", source=source)
    overridden = overriding.apply(data, overrides)
    try:
        config = convert(Config, {"name": Path(source).stem, **overridden.data}, "")
        check(config)
        config = expanded(config)
    except ConfigError as error:
        raise overridden.blame(error, source) from error
    return config


def resolved_yaml(config: Config) -> str:
    """The configuration as YAML with every default written out; it loads to an equal `Config`."""
    return yaml.dump(msgspec.to_builtins(config))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(yaml.MOST_CHARACTERS + 1)  # a device has no end
        if len(content) > yaml.MOST_CHARACTERS:
            raise ConfigError(f"is longer than {yaml.MOST_CHARACTERS} bytes", source=str(path))
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
