"""The page of an experiment: one HTML file that opens offline, in the form of the page of a run.

As there, every number stands in it twice: where it is read, and as JSON in the element `#data`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from html import escape  # Plotly takes some tags for its own
from pathlib import Path
from typing import Any

import msgspec

from arena import __version__
from arena.diagnostics.start_folder import anchored
from arena.experiment.config import ExperimentConfig, MetricConfig
from arena.experiment.display import combination_text
from arena.experiment.folder import ExperimentFolder
from arena.experiment.outcome import Combination, rank
from arena.experiment.scheduler import State
from arena.experiment.tables import FollowedExperiment, labels_of
from arena.experiment.values import FollowedResults, TrialRow
from arena.experiment.variation import short_text
from arena.records.atomic import check_place, replacing
from arena.report.charts import Figure
from arena.report.colors import palette
from arena.report.comparison import mean_curve, scale_of_means
from arena.report.page import rendered

CONTENTS = {
    "summary": "Summary",
    "ranking": "Combinations",
    "learning": "Learning curves",
    "values": "Values",
    "trials": "Trials",
    "experiment": "Experiment",
}
_MOST_CURVES = 30  # combinations whose curves are drawn, the best ones
_PLAIN = "#7a8594"
_MOST_NAMED = 6  # values that stand below an axis, which may be as narrow as a phone


class RankedCombination(Combination, frozen=True, kw_only=True):
    """A combination in the table; `low` and `high` are the ends of its interval, or its mean without one."""

    rank: int
    name: str
    color: str
    low: float | None
    high: float | None
    errors: int


class ExperimentPage(msgspec.Struct, frozen=True):
    """Every number of the page.

    Args:
        state: `under way`, or `finished`, or `ended early` with trials that are not over.
        read: when the files were read, ISO 8601, UTC; None where nothing is written any more.
        states: the number of trials in each.
        span: the ends of all intervals.
        seeds: the most trials of a combination.
    """

    arena: str
    name: str
    folder: str
    state: str
    read: str | None
    metric: MetricConfig
    trials: list[TrialRow]
    states: dict[str, int]
    combinations: list[RankedCombination]
    best: int | None
    best_value: float | None
    span: tuple[float, float]
    seeds: int
    attempts: int
    ticks: int
    seconds: float


def write_page(path: Path | str, output: Path | str | None = None) -> Path:
    """Makes the page of an experiment; returns where it is.

    Raises:
        ConfigError: this is not the folder of an experiment, or it is damaged; or there can be no file at `output`.
        WriteError: the file cannot be written.
    """
    folder = ExperimentFolder.existing(path)
    target = folder.report if output is None else anchored(output)
    check_place(target, option="" if output is None else "--output")
    text = page(folder)
    with replacing(target) as file:
        file.write(text.encode())
    return target


def page(folder: ExperimentFolder) -> str:
    """The HTML of an experiment."""
    followed = FollowedExperiment(folder, folder.read_config())
    data, figures, context = parts(folder, followed, followed.look())
    return rendered("experiment.html", data, figures, **context)


def parts(
    folder: ExperimentFolder, followed: FollowedExperiment, rows: Sequence[TrialRow]
) -> tuple[ExperimentPage, dict[str, Figure], dict[str, Any]]:
    """The numbers of the page from the newest rows, its figures, and what else `experiment.html` needs."""
    data, names = page_data(folder, followed.config, rows), labels_of(rows)
    context = {
        "contents": CONTENTS,
        "indexed": [*enumerate(data.trials)],
        "labels": names,
        "short_text": short_text,
        "most_curves": _MOST_CURVES,
        "config_text": folder.config.read_text(),
        "runs": "trials/",  # the address of the folders of trials
        "asks": "",  # the address that takes requests to stop or prune a trial; empty: there is none
    }
    forms = {path: content for path, content in followed.config.set.items() if isinstance(content, dict)}
    logarithmic = [path for path, form in forms.items() if form.keys() & {"loguniform", "logintegers"}]
    return data, _figures(data, names, followed.results, logarithmic), context


def page_data(folder: ExperimentFolder, config: ExperimentConfig, rows: Sequence[TrialRow]) -> ExperimentPage:
    """The numbers of the page."""
    ranking, names = rank(rows, config.metric), labels_of(rows)
    counts = Counter(row.state for row in rows)
    states = {row.number: row.state for row in rows}
    colors = palette(min(_MOST_CURVES, len(ranking.combinations)))
    combinations = []
    for number, each in enumerate(ranking.combinations):
        combinations.append(
            RankedCombination(
                rank=number + 1,
                name=combination_text(each, names) or "all trials",
                color=colors[number] if number < len(colors) else _PLAIN,
                low=None if each.mean is None else each.mean - (each.half or 0.0),
                high=None if each.mean is None else each.mean + (each.half or 0.0),
                errors=sum(states[trial] == State.ERROR.value for trial in each.trials),
                **msgspec.structs.asdict(each),
            )
        )
    ends = [end for each in combinations for end in (each.low, each.high) if end is not None]
    going = folder.is_going_on
    over = all(State(row.state).is_over for row in rows if row.wanted)
    best = next((row for row in rows if row.number == ranking.best), None)
    return ExperimentPage(
        arena=__version__,
        name=config.name,
        folder=str(folder.path),
        state="under way" if going else "finished" if over else "ended early",
        read=datetime.now(timezone.utc).isoformat(timespec="seconds") if going else None,
        metric=config.metric,
        trials=[*rows],
        states={state.value: counts[state.value] for state in State if counts[state.value]},
        combinations=combinations,
        best=ranking.best,
        best_value=None if best is None else best.value,
        span=(min(ends, default=0.0), max(ends, default=0.0)),
        seeds=max((len(each.trials) for each in combinations), default=0),
        attempts=sum(row.attempts for row in rows),
        ticks=sum(row.ticks for row in rows),
        seconds=sum(row.seconds for row in rows),
    )


def _figures(
    data: ExperimentPage,
    names: Mapping[str, str],
    results: Mapping[int, FollowedResults],
    logarithmic: Collection[str],
) -> dict[str, Figure]:
    """Every figure of the page by the name under which the page asks for it; `logarithmic`: keys drawn so."""
    metric = data.metric.name
    curves = []
    for each in data.combinations[:_MOST_CURVES]:
        of_trials = [dict(zip(results[trial].at, results[trial].values, strict=True)) for trial in each.trials]
        curves += mean_curve(each.name, of_trials, each.color)
    found: dict[str, Figure] = {}
    if curves:
        yaxis = {"title": {"text": metric}, **scale_of_means(curves)}
        layout = {"xaxis": {"title": {"text": "ticks"}}, "yaxis": yaxis, "hovermode": "closest"}
        found["learning"] = {"data": curves, "layout": layout}
    by_trial = {trial: each for each in data.combinations for trial in each.trials}
    judged = [row for row in data.trials if row.value is not None and row.number in by_trial]
    for place, path in enumerate(names):
        mine = [row for row in judged if path in row.params]
        if not mine:
            continue
        values = [row.params[path] for row in mine]
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        pruned = [row.state == State.PRUNED.value for row in mine]
        points = {
            "type": "scatter",
            "mode": "markers",
            "x": values if numeric else [escape(str(value)) for value in values],
            "y": [row.value for row in mine],
            "marker": {
                "color": [by_trial[row.number].color for row in mine],
                "symbol": ["x" if early else "circle" for early in pruned],
                "size": 8,
                "opacity": 0.8,
            },
            "text": [
                escape(f"{by_trial[row.number].name}, seed {row.seed}" + ", pruned" * early)
                for row, early in zip(mine, pruned, strict=True)
            ],
            "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
        }
        axis: Figure = {}
        if numeric and min(values) > 0 and (path in logarithmic or max(values) >= 20 * min(values)):
            known = sorted({*values})  # a tick at each value if they are few
            axis = {"type": "log", "tickvals": known, "ticktext": [short_text(value) for value in known]}
            if len(known) > _MOST_NAMED or path in logarithmic:
                within = max(values) < 100 * min(values)  # then with the ticks 2 and 5
                axis = {"type": "log", "dtick": "D2" if within else 1, "exponentformat": "power"}
        found[f"value-{place}"] = {"data": [points], "layout": {"xaxis": axis, "hovermode": "closest"}}
    return found
