"""The keys of an experiment file, and reading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from arena.config import overrides as overriding
from arena.config import yaml
from arena.config.decode import convert, is_name, joined, show
from arena.config.fields import Count, Natural, ShortForm, Text
from arena.config.load import load_data
from arena.config.plain_data import from_python
from arena.config.schema import Config
from arena.errors import ConfigError, located

MOST_TRIALS = 100_000
_LONGEST_NAME = 90  # with the number of a trial it is the name of a run
_OF_A_RUN = {"envs", "policies", "matches", "ticks"}


class MetricConfig(ShortForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a trial is judged by."""

    name: Text = "episode_reward_mean"  # of a number of `result.json`, parts with `/`
    mode: Literal["max", "min"] = "max"  # which of two values is better
    scope: Literal["last", "best", "mean", "last-5", "last-10"] = "last"  # of which results
    short: ClassVar[Any] = Text

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        """`name` alone stands for `{name: name}`."""
        return {"name": value} if isinstance(value, str) else value


class VariantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `variants`."""

    set: dict[str, Any] = {}  # over the common `set`


class ExperimentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole experiment."""

    name: str  # of the experiment and its folder; default: the file's name
    run: Text | dict[str, Any]  # the configuration of each trial: its file, or the configuration itself
    set: dict[str, Any] = {}  # over it, in every trial: by key path as `--set` takes it, a value or what varies
    variants: dict[str, VariantConfig] = {}  # by name: experiments with a `set` of their own, in order
    repeat: Count = 1  # trials of each combination, with the run's seed, + 1, + 2, ...
    stop: dict[str, Any] = {}  # over the run's own `stop`
    metric: MetricConfig = MetricConfig()  # what a trial is judged by; or the name of a number of `result.json`
    search: dict[str, dict[str, Any]] | None = None  # how values are suggested: random, tpe, qmc or gp, and options
    prune: dict[str, dict[str, Any]] | None = None  # which trials end early: one of Optuna's pruners, and its options
    ranks: Count | None = None  # processes of a trial; null: slots / trials at the same time, at most one per role
    at_once: Count | None = None  # trials at the same time, at most; null: as many as fit
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0  # devices of a trial; 0.5: two trials share one
    retries: Natural = 1  # further attempts of a trial that fails
    most_errors: Count | None = None  # no new trial starts after so many have failed for good; null: no limit


class ExperimentFile(NamedTuple):
    """An experiment as it was read."""

    config: ExperimentConfig  # with `--set` in its `set`
    source: str  # the file; empty: data of Python
    given: Mapping[str, str]  # by key path, the `--set` of the command line that it comes from


def is_experiment_data(data: Any) -> bool:
    """Whether the data of a file are those of an experiment, and not of a run."""
    return isinstance(data, Mapping) and "run" in data and not data.keys() & {"envs", "policies", "matches"}


def read_experiment(path: str | Path, *, overrides: Sequence[str] = (), **changes: Any) -> ExperimentFile:
    """Reads an experiment file.

    Raises:
        ConfigError: it cannot be read, is the configuration of a run, or holds something that is not allowed.
    """
    return parse_experiment(load_data(path), source=str(path), overrides=overrides, **changes)


def parse_experiment(data: Any, *, source: str = "", overrides: Sequence[str] = (), **changes: Any) -> ExperimentFile:
    """Checks the data of an experiment file; as `read_experiment`."""
    with located(source=source):
        if isinstance(data, Mapping) and "run" not in data and data.keys() & _OF_A_RUN:
            raise ConfigError(f"is the configuration of a run; start it with `arena train {source}`")
        if isinstance(data, Mapping):
            data = {"name": Path(source).stem or "experiment", **from_python(data)}
            data |= {key: value for key, value in changes.items() if value is not None}
        config = convert(ExperimentConfig, data, "")
        if not is_name(config.name) or len(config.name) > _LONGEST_NAME:
            raise ConfigError(
                f"found {show(config.name)}; a name becomes a folder: letters, digits, '_', '-' and '.', the first a "
                f"letter or digit, at most {_LONGEST_NAME}",
                path="name",
            )
        for name, value in (("search", config.search), ("prune", config.prune)):
            if value is not None and len(value) != 1:
                message = f"found {show(value)}; expected a mapping with one key, such as {{...: {{}}}}"
                raise ConfigError(message, path=name)
        if config.gpus > 1 and not config.gpus.is_integer():
            raise ConfigError(f"found {config.gpus:g}; expected a whole number, or a share of one device", path="gpus")
        given = [overriding.read(text) for text in overrides]
        own = {*ExperimentConfig.__struct_fields__} - {*Config.__struct_fields__}
        for item in given:
            if (key := item.path.partition(".")[0]) in own:
                message = f"`{key}` is a key of the experiment's file; `--set` changes the run"
                raise ConfigError(message, source=f"--set {item.text}")
        sets = {"set": config.set} | {f"variants.{name}.set": entry.set for name, entry in config.variants.items()}
        for place, key in ((place, key) for place, values in sets.items() for key in values):
            if not overriding.is_path(str(key)):
                message = "is no key path; expected such as policies.blue.options.gamma"
                raise ConfigError(message, path=joined(place, str(key)))
        values = {item.path: item.value for item in given}
        variants = {
            name: VariantConfig(set={**entry.set, **values})  # also over what a variant sets as a part of a mapping
            for name, entry in config.variants.items()
        }
        config = msgspec.structs.replace(config, set={**config.set, **values}, variants=variants)
        return ExperimentFile(config, source, {item.path: item.text for item in given})


def experiment_yaml(config: ExperimentConfig) -> str:
    """The experiment with every default written out."""
    return yaml.WRITTEN + yaml.dump(msgspec.to_builtins(config))
