"""The page of an experiment: one HTML file that opens offline, in the form of the page of a run.

As there, every number stands in it twice: where it is read, and as JSON in the element `#data`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

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
from arena.experiment.variation import value_text
from arena.records.atomic import check_place, replacing
from arena.report.charts import without_few
from arena.report.colors import faded, palette
from arena.report.comparison import estimate, scale_of_means
from arena.report.page import asset, numbered_templates, plotly_script, script_json

CONTENTS = {
    "summary": "Summary",
    "ranking": "Combinations",
    "learning": "Learning curves",
    "values": "Values",
    "trials": "Trials",
    "experiment": "Experiment",
}
_MOST_CURVES = 30  # combinations whose curves are drawn, the best ones
_MOST_POINTS = 80  # of a curve
_PLAIN = "#7a8594"
_SHADES = 8  # of the lines of trials, by their values
_MOST_TICKS = 12  # values that stand beside a vertical axis
_MOST_NAMED = 6  # values that stand below a horizontal one, which may be as narrow as a phone


class Ranked(Combination, frozen=True, kw_only=True):
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
    combinations: list[Ranked]
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
    config = folder.read_config()
    followed = FollowedExperiment(folder, config)
    rows = followed.look()
    data = page_data(folder, config, rows)
    names = labels_of(rows)
    numbers = msgspec.to_builtins(data)
    drawn, few = without_few(_figures(data, names, followed.results))
    templates = numbered_templates(numbers)
    templates.globals.update(few=few)
    return templates.get_template("experiment.html").render(
        contents=CONTENTS,
        page=data,
        indexed=[*enumerate(data.trials)],
        labels=names,
        most_curves=_MOST_CURVES,
        config_text=folder.config.read_text(),
        data_json=script_json(numbers),
        charts_json=script_json(drawn),
        plotly=plotly_script(),
        style=asset(templates, "report.css"),
        program=asset(templates, "report.js"),
    )


def page_data(folder: ExperimentFolder, config: ExperimentConfig, rows: Sequence[TrialRow]) -> ExperimentPage:
    """The numbers of the page."""
    ranking, names = rank(rows, config.metric), labels_of(rows)
    counts = Counter(row.state for row in rows)
    states = {row.number: row.state for row in rows}
    colors = palette(min(_MOST_CURVES, len(ranking.combinations)))
    combinations = []
    for number, each in enumerate(ranking.combinations):
        combinations.append(
            Ranked(
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


Figure = dict[str, Any]


def _figures(
    data: ExperimentPage, names: Mapping[str, str], results: Mapping[int, FollowedResults]
) -> dict[str, Figure]:
    """Every figure of the page by the name under which the page asks for it."""
    metric = data.metric.name
    curves = [trace for each in data.combinations[:_MOST_CURVES] for trace in _curve(each, results)]
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
            "x": values if numeric else [str(value) for value in values],
            "y": [row.value for row in mine],
            "marker": {
                "color": [by_trial[row.number].color for row in mine],
                "symbol": ["x" if early else "circle" for early in pruned],
                "size": 8,
                "opacity": 0.8,
            },
            "text": [
                f"{by_trial[row.number].name}, seed {row.seed}" + ", pruned" * early
                for row, early in zip(mine, pruned, strict=True)
            ],
            "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
        }
        axis: Figure = {}
        if _is_wide(values):  # a tick at each value if they are few
            known = sorted({*values})
            axis = {"type": "log", "tickvals": known, "ticktext": [value_text(value) for value in known]}
            if len(known) > _MOST_NAMED:
                axis = {"type": "log", "dtick": 1, "exponentformat": "power"}
        found[f"value-{place}"] = {"data": [points], "layout": {"xaxis": axis, "hovermode": "closest"}}
    if judged and len(names) > 1:
        found["parallel"] = _parallel(judged, names, metric)
    return found


def _curve(each: Ranked, results: Mapping[int, FollowedResults]) -> list[Figure]:
    """The mean over the seeds of a combination, tick by tick, and its 95 % interval where two or more have a value."""
    columns: dict[int, list[float]] = {}
    for trial in each.trials:
        followed = results[trial]
        for tick, value in zip(followed.at, followed.values, strict=True):
            columns.setdefault(tick, []).append(value)
    ticks = sorted(columns)
    ticks = ticks[:: -(-len(ticks) // _MOST_POINTS)] if ticks else []
    if not ticks:
        return []
    means = [estimate(columns[tick]) for tick in ticks]
    known = [(tick, found.mean, found.margin) for tick, found in zip(ticks, means, strict=True) if found.margin]
    common: Figure = {"type": "scatter", "meta": {"policy": each.name}}
    edge = {**common, "x": [tick for tick, *_ in known], "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    lows, highs = ([mean + sign * half for _, mean, half in known] for sign in (-1, 1))
    band = [{**edge, "y": lows}, {**edge, "y": highs, "fill": "tonexty", "fillcolor": faded(each.color, 0.12)}]
    line = {
        **common,
        "name": each.name,
        "x": ticks,
        "y": [found.mean for found in means],
        "mode": "lines" if len(ticks) > 1 else "markers",
        "line": {"color": each.color, "width": 2},
        "marker": {"color": each.color},
        "hovertemplate": f"{each.name} %{{y:.4g}}<extra></extra>",
    }
    return [*(band if known else []), line]


def _is_wide(values: Sequence[Any]) -> bool:
    """Whether numbers are read better on a logarithmic axis."""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return len(numbers) == len(values) and min(numbers) > 0 and max(numbers) >= 20 * min(numbers)


def _parallel(rows: Sequence[TrialRow], names: Mapping[str, str], metric: str) -> Figure:
    """A line per trial through the values that vary to its result: the greater, the darker.

    Plotly's own parallel coordinates need WebGL, which not every browser has.
    """
    columns = {name: _scaled([row.params.get(path) for row in rows]) for path, name in names.items()}
    reached = _scaled([row.value for row in rows], most_ticks=1)
    columns[metric] = reached
    traces = []
    for place in range(_SHADES):
        mine = [number for number, share in enumerate(reached.shares) if int(share * (_SHADES - 1e-9)) == place]
        x: list[int | None] = []
        y: list[float | None] = []
        for number in mine:
            x += [*range(len(columns)), None]  # null: the next line begins
            y += [*(column.shares[number] for column in columns.values()), None]
        line = {"color": faded("#22629e", 0.15 + 0.8 * (place / (_SHADES - 1)) ** 2), "width": 1.6}
        traces.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"})
    words: Figure = {"showarrow": False, "font": {"size": 11}, "xanchor": "left", "xshift": 6, "yshift": 8}
    notes = [
        {**words, "x": place, "y": at, "text": text}
        for place, column in enumerate(columns.values())
        for at, text in column.ticks
    ]
    shapes = [
        {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": {"color": _PLAIN, "width": 1}}
        for place in range(len(columns))
    ]
    hidden = {"showgrid": False, "zeroline": False}
    xaxis = {"tickvals": [*range(len(columns))], "ticktext": [*columns], "range": [-0.1, len(columns) - 0.6], **hidden}
    yaxis = {"showticklabels": False, "range": [-0.08, 1.08], **hidden}
    layout = {"xaxis": xaxis, "yaxis": yaxis, "annotations": notes, "shapes": shapes, "hovermode": False}
    return {"data": traces, "layout": layout}


class _Scaled(NamedTuple):
    """A column of the parallel coordinates: the height of each trial, from 0 to 1, and what stands beside the axis."""

    shares: list[float]
    ticks: list[tuple[float, str]]


def _scaled(values: Sequence[Any], *, most_ticks: int = _MOST_TICKS) -> _Scaled:
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    known: list[Any] = sorted({*values}) if numeric else sorted({*map(value_text, values)})
    if numeric and len(known) > most_ticks:
        low, high = known[0], known[-1]
        if _is_wide(values):
            shares = [math.log(value / low) / math.log(high / low) for value in values]
        else:
            shares = [(value - low) / (high - low) for value in values]
        return _Scaled(shares, [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")])
    places = {value: number / max(1, len(known) - 1) for number, value in enumerate(known)}
    shares = [places[value if numeric else value_text(value)] for value in values]
    return _Scaled(shares, [(place, value_text(value)[:24]) for value, place in places.items()])
