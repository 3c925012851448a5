"""The page of an experiment: one HTML file that opens offline, in the form of the page of a run.

As there, every number stands in it twice: where it is read, and as JSON in the element `#data`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from arena import __version__
from arena.experiment.config import MetricConfig
from arena.experiment.display import combination_text
from arena.experiment.folder import ExperimentFolder
from arena.experiment.outcome import Combination, rank
from arena.experiment.scheduler import State
from arena.experiment.tables import FollowedExperiment, labels_of
from arena.experiment.values import TrialRow
from arena.experiment.variation import short_text
from arena.report.colors import palette
from arena.report.comparison import mean_curve
from arena.report.episodes import Curve
from arena.report.page import rendered, write_html

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
        curves: of the first combinations, over ticks.
        labels: the short names of what varies, by key path.
        logarithmic: which of them are drawn on a logarithmic scale.
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
    curves: list[Curve]
    labels: dict[str, str]
    logarithmic: list[str]


def write_page(path: Path | str, output: Path | str | None = None) -> Path:
    """Makes the page of an experiment; returns where it is.

    Raises:
        ConfigError: this is not the folder of an experiment, or it is damaged; or there can be no file at `output`.
        WriteError: the file cannot be written.
    """
    folder = ExperimentFolder.existing(path)
    return write_html(folder.report, output, lambda: page(folder))


def page(folder: ExperimentFolder) -> str:
    """The HTML of an experiment."""
    followed = FollowedExperiment(folder, folder.read_config())
    data, context = parts(folder, followed, followed.look())
    return rendered("experiment.html", data, **context)


def parts(
    folder: ExperimentFolder, followed: FollowedExperiment, rows: Sequence[TrialRow]
) -> tuple[ExperimentPage, dict[str, Any]]:
    """The numbers of the page from the newest rows, and what else `experiment.html` needs."""
    data = page_data(folder, followed, rows)
    return data, {
        "contents": CONTENTS,
        "indexed": [*enumerate(data.trials)],
        "short_text": short_text,
        "config_text": folder.config.read_text(),
        "runs": "trials/",  # the address of the folders of trials
        "asks": "",  # the address that takes requests to stop or prune a trial; empty: there is none
    }


def page_data(folder: ExperimentFolder, followed: FollowedExperiment, rows: Sequence[TrialRow]) -> ExperimentPage:
    """The numbers of the page."""
    config, results = followed.config, followed.results
    ranking, names = rank(rows, config.metric), labels_of(rows)
    forms = {path: form for path, form in config.set.items() if isinstance(form, dict)}
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
    over = all(State(row.state).is_over for row in rows)
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
        curves=[
            mean_curve([dict(zip(results[trial].at, results[trial].values, strict=True)) for trial in each.trials])
            for each in combinations[:_MOST_CURVES]
        ],
        labels=names,
        logarithmic=[path for path, form in forms.items() if form.keys() & {"loguniform", "logintegers"}],
    )
