"""Several runs on one page: means over runs of the same configuration, with 95 % intervals over their seeds.

Runs whose configurations differ in nothing but seed, name and processes are a **group**, and its runs are the samples:
an interval is Student's t over the means of the runs, and one run has none. Of runs with the same seed one
counts. Games of one run are no such samples, as the same policies play them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from arena import __version__
from arena.config.fields import flat
from arena.config.matches import Team
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.league.ratings.intervals import half_of_mean
from arena.report.colors import SPARE
from arena.report.episodes import MOST_PARTS, Curve, Floats, Ints, curve, edges_for
from arena.report.learning import Series
from arena.report.page import rendered, write_html
from arena.report.read_run import RunFiles, read_run
from arena.report.summary import Summary, summarize

_LAST = 100  # episodes of a policy, at the end of a run
_FREE = ("name", "seed", "ranks", "callbacks", "watchdog_s", "env_timeout_s", "transport", "restarts")


class ComparedRun(msgspec.Struct, frozen=True):
    """One run: its folder, the number of its group, and its summary."""

    folder: str
    group: int
    summary: Summary


class Estimate(msgspec.Struct, frozen=True):
    """A mean over runs, with half of its 95 % interval; None for one run."""

    runs: int
    mean: float
    margin: float | None


class ComparedPolicy(msgspec.Struct, frozen=True):
    """A policy in a group: the means of its last episodes, and the share of points in its last games."""

    group: int
    policy: str
    returns: Estimate
    won: Estimate | None


class GroupCurves(msgspec.Struct, frozen=True):
    """The curves of a group: of each of its runs if there are several, and their mean as of `mean_curve`."""

    group: int
    runs: list[Series]
    mean: Curve


class Group(msgspec.Struct, frozen=True):
    """Runs of the same configuration."""

    label: str  # its name on the page
    color: str  # of its curves
    runs: list[str]  # their folders
    differs: dict[str, str]  # per key that is not the same in all groups, the value here


class Comparison(msgspec.Struct, frozen=True):
    """The numbers of the page."""

    arena: str
    groups: list[Group]
    differing: Literal["games", "seats", ""]  # what makes returns of two groups incomparable, where something does
    repeated: list[str]  # labels of groups of which two runs have the same seed: the longest of these counts
    runs: list[ComparedRun]
    policies: list[ComparedPolicy]
    curves: dict[str, list[GroupCurves]]  # by the title of their chart


def write_comparison(paths: Sequence[Path | str], output: Path | str) -> Path:
    """Makes the page of several runs; returns where it is.

    Raises:
        ConfigError: one of them is not a run folder, or is damaged, or is named twice; or the file cannot be there.
        WriteError: the file cannot be written.
    """
    known = [anchored(path).resolve() for path in paths]
    for place, path in enumerate(known):
        if path in known[:place]:
            raise ConfigError("is named twice, and would count as two runs", source=str(paths[place]))
    return write_html(output, output, lambda: rendered("comparison.html", compared([read_run(path) for path in paths])))


def compared(files: Sequence[RunFiles]) -> Comparison:
    """The comparison of several runs."""
    # The runs of each group, by their places, in the order in which they are named.
    found: dict[str, list[int]] = {}
    for place, run in enumerate(files):
        found.setdefault(repr(sorted(_settings(run).items())), []).append(place)
    members = list(found.values())
    configs = [_settings(files[places[0]]) for places in members]
    keys = dict.fromkeys(key for one in configs for key in one)
    unlike = [key for key in keys if len({one.get(key, "") for one in configs}) > 1]
    unlike = [key for key in unlike if not any(one.startswith((f"{key}.", f"{key}[")) for one in keys)]
    names = [_name(files[places[0]]) for places in members]
    labels = [
        name if names.count(name) == 1 else f"{name} ({files[places[0]].folder.path.resolve().name})"
        for name, places in zip(names, members, strict=True)
    ]
    groups = [
        Group(
            label,
            SPARE[number % len(SPARE)],
            [str(files[place].folder.path) for place in places],
            {key: one.get(key, "") for key in unlike},
        )
        for number, (label, places, one) in enumerate(zip(labels, members, configs, strict=True))
    ]
    summaries = [summarize(run) for run in files]
    runs = [
        ComparedRun(str(files[place].folder.path), number, summaries[place])
        for number, places in enumerate(members)
        for place in places
    ]
    ranked = [sorted(places, key=lambda place: summaries[place].ticks) for places in members]
    samples = [[*{files[place].config.seed: place for place in places}.values()] for places in ranked]
    repeated = [label for label, each, some in zip(labels, members, samples, strict=True) if len(some) < len(each)]
    names = list(dict.fromkeys(name for run in files for name in run.config.policies if name in run.episodes.policies))
    policies = []
    for name in names:
        for number, places in enumerate(samples):
            returns, won = (
                [
                    values[-_LAST:].mean()
                    for place in places
                    if len(values := _numbers(files[place], name, of_games=of_games)[1])
                ]
                for of_games in (False, True)
            )
            if returns:
                policies.append(ComparedPolicy(number, name, estimate(returns), estimate(won) if won else None))
    counts = [len(_numbers(run, name, of_games=False)[1]) for run in files for name in names]
    fewest = min(filter(None, counts), default=0)  # without runs that lack a policy
    edges = edges_for(max(summary.ticks for summary in summaries), numbers=fewest)
    charts: dict[str, list[GroupCurves]] = {}
    for name in names:
        for title, of_games in (("return", False), ("share of points", True)):
            found_curves = []
            for number, places in enumerate(samples):
                curves = []  # of each run the mean of each part of the ticks in which episodes have ended
                for place in places:
                    ticks, values = _numbers(files[place], name, of_games=of_games)
                    curves.append(curve(ticks, values, matches=np.zeros(len(ticks), np.int64), edges=edges))
                mean = mean_curve([dict(zip(one.ticks, one.mean, strict=True)) for one in curves])
                if mean.ticks:
                    single = [Series(one.ticks, [*one.mean]) for one in curves if len(curves) > 1]
                    found_curves.append(GroupCurves(number, single, mean))
            if found_curves:
                charts[f"{name}: {title}"] = found_curves
    games, seats = ({repr(part) for part in parts} for parts in zip(*map(_games_and_seats, files), strict=True))
    differing: Literal["games", "seats", ""] = "games" if len(games) > 1 else "seats" if len(seats) > 1 else ""
    return Comparison(__version__, groups, differing, repeated, runs, policies, charts)


def _name(run: RunFiles) -> str:
    """The configuration's name; of a trial, whose name ends with a number, that of its experiment and its values."""
    experiment, _, number = run.config.name.rpartition("-")
    trial, _, values = run.folder.path.resolve().name.partition("_")  # as `ExperimentFolder.folder_name` makes it
    if not experiment or not number.isdecimal() or number != trial:
        return run.config.name
    return f"{experiment} {re.sub('(^|,)seed=[0-9]+$', '', values)}".rstrip()


def _games_and_seats(run: RunFiles) -> tuple[list[str], list[Team]]:
    """The games of a run's matches with their arguments, and the policies in the seats of each match."""
    matches = [match for _, match in run.config.known_matches()]
    games = [(run.config.envs[one.env], one.env_kwargs) for one in matches]
    settings = [(env.make, {**env.kwargs, **more}, env.wrapped_in) for env, more in games]
    return sorted({json.dumps(one, sort_keys=True, default=repr) for one in settings}), [one.names for one in matches]


def _settings(run: RunFiles) -> dict[str, str]:
    """The values of a run that make its group, with those that a resume has changed."""
    now = {key: value for key, value in flat(run.config).items() if key.partition(".")[0] not in _FREE}
    return now | {f"{line.key} until tick {line.tick}": line.was for line in reversed(run.resumes)}


def _numbers(run: RunFiles, policy: str, *, of_games: bool) -> tuple[Ints, Floats]:
    """Ticks and values of the episodes of a policy: returns, or what it has scored in games that were decided."""
    mine = run.episodes.of(policy)
    ticks = run.episodes.tick[mine.episode]
    if not of_games:
        return ticks, mine.returns
    decided = mine.decided
    return ticks[decided], mine.shares[decided, 0] + mine.shares[decided, 1] / 2


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one number per run, and half of its 95 % interval."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Estimate(len(values), float(np.mean(values)), half_of_mean(len(values), deviation))


def mean_curve(curves: Sequence[Mapping[Any, float]]) -> Curve:
    """The mean over runs of values by tick, at some ticks of many; low and high are the ends of its 95 % interval.

    `count` is of runs: a single one has no interval.
    """
    columns: dict[float, list[float]] = {}
    for one in curves:
        for tick, value in one.items():
            columns.setdefault(tick, []).append(value)
    ticks = sorted(columns)[:: max(1, -(-len(columns) // MOST_PARTS))]
    points = [estimate(columns[tick]) for tick in ticks]
    mean, low, high = ([one.mean + sign * (one.margin or 0.0) for one in points] for sign in (0, -1, 1))
    return Curve(ticks, mean, low, high, [one.runs for one in points])
