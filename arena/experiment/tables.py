"""The tables of an experiment: a row per trial, `trials.csv`, `best.json`, and the outcome as data."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.experiment.config import ExperimentConfig
from arena.experiment.folder import DIGITS, ExperimentFolder, Record
from arena.experiment.outcome import rank
from arena.experiment.scheduler import State
from arena.experiment.values import FollowedResults, TrialRow, judged
from arena.experiment.variation import labels, value_text
from arena.records.atomic import replacing
from arena.records.checkpoint import list_checkpoints
from arena.records.folder import RunFolder

_BEST = "best.ckpt"
_COLUMNS = ("number", "name", "variant", "params", "seed", "state", "attempts", "ticks", "value", "folder", "why")


def run_name(experiment: str, trial: int) -> str:
    """The name of a trial's run."""
    return f"{experiment}-{trial:0{DIGITS}d}"


def trial_row(folder: ExperimentFolder, record: Record, results: FollowedResults, config: ExperimentConfig) -> TrialRow:
    """The row of a trial, from what is on record of it and of its run."""
    values = results.values
    return TrialRow(
        number=record.number,
        name=run_name(config.name, record.number),
        variant=record.variant,
        params=record.params,
        seed=record.seed,
        state=record.state.value,
        attempts=record.last.attempt if record.started else 0,
        ticks=max(results.ticks, record.last.tick or 0),
        seconds=record.seconds,
        value=judged(values, config.metric),
        highest=max(values, default=None),
        lowest=min(values, default=None),
        last=values[-1] if values else None,
        folder=str(folder.run_folder(record).path),
        why=record.last.why,
    )


class FollowedExperiment:
    """The trials of an experiment as its files tell them; of results only what is new is read."""

    def __init__(self, folder: ExperimentFolder, config: ExperimentConfig) -> None:
        self._folder, self.config = folder, config
        self.results: dict[int, FollowedResults] = {}

    def look(self) -> list[TrialRow]:
        """The rows of the trials that the experiment asks for.

        Raises:
            ConfigError: a file is damaged.
        """
        rows = []
        for record in self._folder.read():
            if not record.wanted:
                continue
            path = self._folder.run_folder(record).results
            followed = self.results.setdefault(record.number, FollowedResults(path, self.config.metric.name))
            followed.look()
            rows.append(trial_row(self._folder, record, followed, self.config))
        return rows


def write_table(folder: ExperimentFolder, names: Mapping[str, str], rows: Sequence[TrialRow]) -> None:
    """Writes `trials.csv`: RFC 4180, one header, an empty field where there is no number."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    variants = ["variant"] if any(row.variant for row in rows) else []
    head = ["number", "name", "state", "attempts", *variants, *names.values(), "seed", "ticks", "seconds"]
    writer.writerow([*head, "value", "max", "min", "last"])
    for row in rows:
        values = [value_text(row.params[path]) if path in row.params else "" for path in names]
        cells = [row.number, row.name, row.state, row.attempts, *([row.variant] if variants else []), *values]
        numbers = ["" if value is None else value for value in (row.value, row.highest, row.lowest, row.last)]
        writer.writerow([*cells, row.seed, row.ticks, f"{row.seconds:.3f}", *numbers])
    with replacing(folder.table) as file:
        file.write(text.getvalue().encode())


def write_best(folder: ExperimentFolder, config: ExperimentConfig, rows: Sequence[TrialRow]) -> None:
    """Writes `best.json`: the best combination, its best trial and where its checkpoints are."""
    ranking = rank(rows, config.metric)
    if ranking.best is None:
        return
    best = next(row for row in rows if row.number == ranking.best)
    checkpoints = {}  # the best one of each policy, or the newest where none was kept as the best
    every = RunFolder(Path(best.folder)).checkpoints
    for policy in sorted(every.iterdir()) if every.is_dir() else ():
        kept = [policy / _BEST] if (policy / _BEST).is_file() else list_checkpoints(policy)
        if kept:
            checkpoints[policy.name] = str(kept[-1])
    found = {
        "combination": msgspec.to_builtins(ranking.combinations[0]),
        "trial": best.number,
        "value": best.value,
        "checkpoints": checkpoints,
        "config": str(folder.config_path(best.number)),
    }
    with replacing(folder.best) as file:
        file.write(json.dumps(found, indent=2, default=str).encode() + b"\n")


def outcome_data(folder: ExperimentFolder, config: ExperimentConfig, rows: Sequence[TrialRow]) -> dict[str, Any]:
    """The outcome as `arena experiment --json` prints it."""
    ranking, states = rank(rows, config.metric), Counter(row.state for row in rows)
    return {
        "name": config.name,
        "folder": str(folder.path),
        "metric": msgspec.to_builtins(config.metric),
        "states": {state.value: states[state.value] for state in State if states[state.value]},
        "combinations": msgspec.to_builtins(ranking.combinations),
        "best": ranking.best,
        "provisional": not all(State(row.state).is_over for row in rows),
        "trials": [{name: getattr(row, name) for name in _COLUMNS} | {"variant": row.variant or None} for row in rows],
    }


def labels_of(rows: Sequence[TrialRow]) -> dict[str, str]:
    """The short names of what varies, by key path, from the trials on record."""
    return labels([*dict.fromkeys(path for row in rows for path in row.params)])
