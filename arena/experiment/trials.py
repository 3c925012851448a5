"""From an experiment to its trials: which configurations there are, their digests, and the names of their folders."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from arena.config import Config, parse_config
from arena.config import overrides as overriding
from arena.config.decode import joined
from arena.config.fields import plain
from arena.config.load import load_data
from arena.config.overrides import Override
from arena.config.schema import Best
from arena.errors import ConfigError, Origin, OverriddenPlace
from arena.experiment.config import MOST_TRIALS, ExperimentFile, VariantConfig
from arena.experiment.variation import (
    Grid,
    Params,
    VariedPlace,
    find,
    grid,
    in_order,
    labels,
    short_text,
    value_text,
    without_forms,
)

_UNDIGESTED = ("name", "stop", "best", "loggers")  # a trial stays the same trial when one of these changes
_UNSAFE = re.compile(r"[^A-Za-z0-9_.,=+-]")
_LONGEST_TAG = 100
_CHANGE = "--set "  # how errors name the text of a change


@dataclass(frozen=True)
class Variant:
    """One `set` of an experiment over its run: what is fixed, and what varies."""

    name: str  # of the entry of `variants`; empty without variants
    data: Mapping[str, Any]  # the configuration with null in the place of what varies
    varied: tuple[VariedPlace, ...]  # the places that vary, in the order of the file
    seed: int  # of the run
    places: tuple[OverriddenPlace, ...]  # that the experiment has filled, each with its place in the experiment file

    @property
    def searched(self) -> tuple[VariedPlace, ...]:
        """The places whose values a search suggests."""
        return tuple(each for each in self.varied if not isinstance(each.form, Grid))

    def place_of(self, path: str) -> str:
        """A place of the configuration as a place of the experiment file."""
        return _moved(path, self.places) or joined("run", path)

    @property
    def grids(self) -> int:
        """The number of combinations of the values of the grids."""
        return math.prod(len(each.form.values) for each in self.varied if isinstance(each.form, Grid))


class Trial(msgspec.Struct, frozen=True):
    """One run of an experiment."""

    variant: str  # its name; empty without variants
    params: Params  # the values that vary, by key path
    seed: int  # of the run
    digest: str  # of its configuration: trials with equal ones play the same bits
    roles: int  # of its plan, the root included


class Trials:
    """The trials of an experiment; makes the configuration of each when it is needed.

    Raises:
        ConfigError: the run or `set` of the experiment cannot be read.
    """

    def __init__(self, file: ExperimentFile) -> None:
        self.file = file
        config = file.config
        given = {name: entry.set for name, entry in (config.variants or {"": VariantConfig()}).items()}
        self.variants = tuple(self._variant(name, sets, path=f"variants.{name}.set") for name, sets in given.items())
        self.labels = labels([*dict.fromkeys(each.path for variant in self.variants for each in variant.varied)])

    def _variant(self, name: str, sets: Mapping[str, Any], *, path: str) -> Variant:
        config, source, run = self.file.config, self.file.source, self.file.config.run
        everywhere = not isinstance(run, str)
        if isinstance(run, str):
            try:
                run = load_data(run)
            except ConfigError as error:
                raise ConfigError(str(error), path="run", source=source) from error
        if not isinstance(run, Mapping):
            raise ConfigError("is empty; a trial needs a configuration", path="run", source=source)
        values = {**config.set, **sets}
        changes = [Override(key, value, f"{path if key in sets else 'set'}.{key}") for key, value in values.items()]
        if config.stop:
            stop = run.get("stop")
            changes.append(Override("stop", {**(stop if isinstance(stop, Mapping) else {}), **config.stop}, "stop"))
        try:
            data, places = overriding.apply(run, changes)
        except ConfigError as error:
            raise self._blamed(error) from error
        try:
            found = [*find(data, "")]
        except ConfigError as error:
            path = _moved(error.path, places) or joined("run", error.path)
            raise ConfigError(error.message, path=path, source=source) from error
        ordered = []
        for each in found:
            set_here = [not place.made and _is_inside(each.path, place.path) for place in places]
            if any(set_here) or everywhere:
                ordered.append((max((order for order, inside in enumerate(set_here) if inside), default=-1), each))
        varied = tuple(each for _, each in sorted(ordered, key=lambda pair: pair[0]))
        nulls = [Override(each.path, None, "") for each in varied]
        base = without_forms(data) if everywhere else overriding.apply(data, nulls)[0]
        seed = data.get("seed", 0)  # no number: it varies, or the check of the configuration refuses it
        return Variant(name, base, varied, seed if isinstance(seed, int) else 0, places)

    def config_of(self, variant: str, params: Params, repetition: int = 0, *, name: str = "trial") -> Config:
        """The checked configuration of a trial.

        Raises:
            ConfigError: the run refuses a value; the message names the trial's values.
        """
        base = next(each for each in self.variants if each.name == variant)
        seed = params.get("seed", base.seed)
        seeds = {"seed": seed + repetition} if repetition and isinstance(seed, int) else {}
        try:
            data = overriding.apply_values(base.data, {**params, "name": name, **seeds}, source=self._run_source)
            config = parse_config(data, source=self._run_source)
        except ConfigError as error:
            raise self.blamed(error, variant, params) from error
        if config.best is not None:
            return config
        metric = self.file.config.metric
        return msgspec.structs.replace(config, best=Best(metric=metric.name, mode=metric.mode))

    @property
    def _run_source(self) -> str:
        return self.file.config.run if isinstance(self.file.config.run, str) else self.file.source

    def blamed(self, error: ConfigError, variant: str, params: Params) -> ConfigError:
        """An error of a trial's configuration with its place in the experiment file and the trial's values."""
        base = next(each for each in self.variants if each.name == variant)
        varied = [OverriddenPlace(path, base.place_of(path)) for path in params]
        found = self._blamed(error, (*base.places, *varied))
        text = self.text(variant, params)
        message = f"{found.message} (trial {text})" if text else found.message
        return ConfigError(message, path=found.path, source=found.source)

    def _blamed(self, error: ConfigError, places: Sequence[OverriddenPlace] = ()) -> ConfigError:
        """The error with its place in the experiment file, or the option of the command line that it comes from."""
        message, path, source = error.message, error.path, error.source
        if source in ("", self._run_source) or source.startswith(_CHANGE):
            blamed = Origin(overridden=tuple(places)).blame(ConfigError(message, path=path))
            if not places and source.startswith(_CHANGE):  # a path that leads nowhere, as its text
                path, source = source.removeprefix(_CHANGE), ""
            elif blamed.source:
                message, path, source = blamed.message, _moved(path, places) or blamed.source.removeprefix(_CHANGE), ""
            elif not isinstance(self.file.config.run, str):
                path, source = joined("run", path), ""
            else:
                source = self._run_source
        key = path.removeprefix("set.")
        for given, text in self.file.given.items():
            if _is_inside(key, given):
                return ConfigError(message, path=key, source=f"--set {text}")
        return ConfigError(message, path=path, source=source or self.file.source)

    def text(self, variant: str, params: Params, seed: int | None = None) -> str:
        """The values of a trial in a few words, as the name of its folder has them."""
        parts = [*([variant] if variant else [])]
        parts += [f"{self.labels.get(path, path)}={value_text(value)}" for path, value in params.items()]
        return ",".join([*parts, *([] if seed is None else [f"seed={seed}"])])

    def tag(self, trial: Trial) -> str:
        """The words of a trial as a part of the name of its folder; empty where nothing varies."""
        seed = trial.seed if self.file.config.repeat > 1 and "seed" not in trial.params else None
        drawn = {path: float(short_text(one)) if isinstance(one, float) else one for path, one in trial.params.items()}
        return _UNSAFE.sub("_", self.text(trial.variant, drawn, seed))[:_LONGEST_TAG]

    def combinations(self, draws: Sequence[Mapping[str, Any]] = ({},)) -> Iterator[tuple[Variant, dict[str, Any]]]:
        """The combinations of the grids with each of the draws of a search, in order.

        Raises:
            ConfigError: there are too many.
        """
        number = sum(variant.grids for variant in self.variants) * len(draws) * self.file.config.repeat
        if number > MOST_TRIALS:
            raise ConfigError(f"asks for {number} trials; at most {MOST_TRIALS}", source=self.file.source)
        for variant in self.variants:
            for draw in draws:
                mine = {each.path: draw[each.path] for each in variant.searched if each.path in draw}
                for values in grid(variant.varied):
                    yield variant, in_order(variant.varied, {**mine, **values})

    def repeated(self, variant: str, params: Params) -> Iterator[Trial]:
        """The trials of a combination, one for each seed.

        Raises:
            ConfigError: the run refuses a value.
        """
        first = self.config_of(variant, params)
        self.config_of(variant, params, self.file.config.repeat - 1)  # a seed may be too large
        for repetition in range(self.file.config.repeat):
            config = msgspec.structs.replace(first, seed=first.seed + repetition)
            yield Trial(variant, params, config.seed, digest_of(config), config.roles + 1)


def digest_of(config: Config) -> str:
    """SHA-256 of the canonical JSON of a configuration, without its name and what does not change the bits played."""
    kept = {key: value for key, value in plain(config).items() if key not in _UNDIGESTED}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def covering(variant: Variant) -> Iterator[dict[str, Any]]:
    """A few combinations in which every value occurs; of a range that is searched, both of its ends."""
    columns = {
        each.path: each.form.values if isinstance(each.form, Grid) else each.form.ends for each in variant.varied
    }
    for number in range(max(map(len, columns.values()), default=1)):
        yield {path: values[min(number, len(values) - 1)] for path, values in columns.items()}


def _moved(path: str, places: Sequence[OverriddenPlace]) -> str:
    """A place of the configuration as a place of the experiment file; empty where it comes from the run itself."""
    found = [place for place in places if not place.made and _is_inside(path, place.path)]
    return found[-1].text + path.removeprefix(found[-1].path) if found else ""


def _is_inside(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))
