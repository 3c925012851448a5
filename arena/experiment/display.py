"""What the console shows of an experiment: a live table on a terminal, lines elsewhere; and the outcome at its end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from arena.config.load import load_config
from arena.errors import pluralize, shown
from arena.experiment.config import MetricConfig
from arena.experiment.folder import ExperimentFolder
from arena.experiment.outcome import Combination, rank
from arena.experiment.scheduler import State
from arena.experiment.tables import FollowedExperiment, labels_of
from arena.experiment.values import TrialRow
from arena.experiment.variation import short_text
from arena.roles.status import planned_ticks
from arena.terminal.display import LivePanel, PlainLines
from arena.terminal.output import printable

Clock = Callable[[], float]

LINE_EVERY = 60.0
"""Seconds between two lines where there is no terminal."""
_LOOK_SECONDS = 1.0
_PATIENCE = 5  # looks: an experiment that has just begun has no trials yet
_MOST_RUNNING = 16  # trials in the live table
_MOST_RANKED = 20  # combinations in the table at the end


class Progress:
    """How far an experiment is, from the states and ticks of its trials."""

    def __init__(self, ticks: int | None, number: int, metric: MetricConfig, clock: Clock = time.monotonic) -> None:
        self._ticks, self.number, self.metric, self._clock = ticks, number, metric, clock
        # Of trials under way, by number and attempt: when it was first seen, its first result, and its newest one; each
        # time with the part that was played by then.
        self._seen: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self.rows: Sequence[TrialRow] = ()

    def take(self, rows: Sequence[TrialRow]) -> None:
        """Takes the state of all trials."""
        seen, self._seen, self.rows = self._seen, {}, rows
        for row in (row for row in rows if row.state == State.RUNNING.value):
            part = min(1.0, row.ticks / self._ticks) if self._ticks else 0.0
            known = self._seen[row.number, row.attempts] = seen.get((row.number, row.attempts), [])
            if not known or known[-1][1] != part:
                known[2:] = [(self._clock(), part)]

    @property
    def counts(self) -> str:
        """`5 terminated, 2 running, 5 pending`."""
        states = Counter(row.state for row in self.rows)
        states[State.PENDING.value] += max(0, self.number - len(self.rows))
        return ", ".join(f"{states[state.value]} {state.value}" for state in State if states[state.value])

    @property
    def best(self) -> str:
        """The best combination so far, in a line; empty without a value, or while no trial has ended."""
        ranking = rank(self.rows, self.metric)
        if ranking.best is None or not any(State(row.state).is_over for row in self.rows):
            return ""
        first = ranking.combinations[0]
        some = "" if None not in first.values else f" ({trials_text(first)})"
        return f"best so far: {combination_text(first, labels_of(self.rows))}: {mean_text(first)}{some}"

    @property
    def left(self) -> str:
        """The time left, in words; empty before a trial has ended, or has two results from which its speed is known."""
        ended = [row.seconds for row in self.rows if row.seconds and row.state in (State.TERMINATED, State.PRUNED)]
        results = [known[1:] for known in self._seen.values() if len(known) > 2]  # no time of a start
        played = [(last[0] - first[0], last[1] - first[1]) for first, last in results]
        parts = len(ended) + sum(part for _, part in played)
        if parts <= 0 or not self._seen:
            return ""
        each = (sum(ended) + sum(seconds for seconds, _ in played)) / parts  # seconds of a trial
        now, over = self._clock(), sum(State(row.state).is_over for row in self.rows)
        running = [max(0.0, each * (1 - known[-1][1]) - (now - known[-1][0])) for known in self._seen.values()]
        waiting = max(self.number, len(self.rows)) - over - len(running)
        seconds = max((sum(running) + each * waiting) / len(running), *running)
        minutes = round(seconds / 60)
        left = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
        return f"about {left if seconds >= 90 else f'{seconds:.0f} s'} left"


class PlainExperimentDisplay(PlainLines):
    """A line when something happens, and one a minute."""

    def __init__(
        self, stream: IO[str], progress: Progress, clock: Clock = time.monotonic, *, at_once: bool = False
    ) -> None:
        super().__init__(stream)
        self._progress, self._clock, self._at_once = progress, clock, at_once
        self._line_at = 0.0

    def start(self) -> None:
        """Begins to count the time to the first line."""
        self._line_at = self._clock() + (0.0 if self._at_once else LINE_EVERY)

    def update(self, rows: Sequence[TrialRow]) -> None:
        """Prints a line if it is time."""
        self._progress.take(rows)
        if self._clock() >= self._line_at:
            self._line_at = self._clock() + LINE_EVERY
            text = [self._progress.counts, self._progress.best, self._progress.left]
            self.message("; ".join(filter(None, text)) or "no trial has begun")

    def stop(self) -> None:
        """Nothing is held."""


class LiveExperimentDisplay(LivePanel):
    """Counts by state, the trials that run, the best so far and the time left, drawn again in place."""

    def __init__(self, stream: IO[str], progress: Progress, *, width: int) -> None:
        super().__init__(stream, width=width)
        self._progress = progress

    def update(self, rows: Sequence[TrialRow]) -> None:
        """Draws."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        progress = self._progress
        progress.take(rows)
        names = labels_of(progress.rows)
        running = [row for row in progress.rows if row.state == State.RUNNING.value]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("trial", *names.values(), "seed"):
            table.add_column(Text(printable(name)), no_wrap=True)
        for name in ("ticks", progress.metric.name):
            table.add_column(Text(printable(name)), justify="right", no_wrap=True)
        for row in running[:_MOST_RUNNING]:
            values = [short_text(row.params[path]) if path in row.params else "" for path in names]
            value = "-" if row.last is None else number_text(row.last)
            table.add_row(f"{row.number:04d}", *map(Text, map(printable, values)), str(row.seed), str(row.ticks), value)
        more = [Text(f"and {len(running) - _MOST_RUNNING} more")] if len(running) > _MOST_RUNNING else []
        head = "  ".join(filter(None, [progress.counts, progress.left]))
        self._live.update(Group(Text(head), table, *more, Text(printable(progress.best))), refresh=True)


ExperimentDisplay = PlainExperimentDisplay | LiveExperimentDisplay


def display_for(progress: Progress, stream: IO[str], *, at_once: bool = False) -> ExperimentDisplay:
    """The display that fits the stream: a live table on a terminal, else lines, the first one `at_once`."""
    if stream.isatty() and (columns := os.get_terminal_size(stream.fileno()).columns):
        return LiveExperimentDisplay(stream, progress, width=columns)
    return PlainExperimentDisplay(stream, progress, at_once=at_once)


def watch_experiment(path: str | Path, stream: IO[str], *, wait: Callable[[float], None] = time.sleep) -> int:
    """Shows an experiment from its files until no process writes into its folder; returns the exit status.

    Raises:
        ConfigError: this is not the folder of an experiment, or it is damaged.
    """
    folder = ExperimentFolder.existing(path)
    config = folder.read_config()
    followed = FollowedExperiment(folder, config)
    for _ in range(_PATIENCE):
        if folder.read():
            break
        wait(_LOOK_SECONDS)
    planned = min(folder.configs.glob("*.yaml"), default=None)
    ticks = None if planned is None else planned_ticks(load_config(planned))
    display = display_for(Progress(ticks, 0, config.metric), stream, at_once=True)
    display.start()
    try:
        while True:
            going = folder.is_going_on  # first: the last look takes what was written last
            rows = followed.look()
            display.update(rows)
            if not going:
                break
            wait(_LOOK_SECONDS)
    finally:
        display.stop()
    display.message("\n".join(outcome_lines(rows, config.metric)))
    return 0


def outcome_lines(rows: Sequence[TrialRow], metric: MetricConfig) -> list[str]:
    """The ranked combinations, the best trial, and what has failed."""
    ranking, names = rank(rows, metric), labels_of(rows)
    if not rows:
        return ["no trial"]
    scope = "" if metric.scope == "last" else f", {metric.scope}"
    lines = [f"{metric.name} ({metric.mode}{scope}), mean over seeds with its 95 % interval:"]
    leading = ranking.combinations[:_MOST_RANKED]
    text = [combination_text(each, names) or "all trials" for each in leading]
    means = [mean_text(each) for each in leading]
    for number, (each, left, mean) in enumerate(zip(leading, text, means, strict=True), start=1):
        states = Counter(row.state for row in rows if row.number in each.trials)
        failed = states[State.ERROR.value]
        trials = trials_text(each) + (f", {failed} in error" if failed else "")
        trials += f", {each.pruned} pruned" if each.pruned else ""
        cells = f"{number:3}", f"{left:{max(map(len, text))}}", f"{mean:{max(map(len, means))}}", trials
        compared = ""  # with the best one, over shared seeds
        if each.difference is not None:
            compared = f"from the best with {pluralize(each.shared, 'seed')}: {number_text(each.difference)}"
            compared += "" if each.interval is not None else ", without an interval"
            if each.interval is not None:
                ends = ", ".join(map(number_text, each.interval))
                compared = f"{'' if each.separable else 'not '}separable {compared} [{ends}]"
        lines.append("  ".join([*cells, compared]).rstrip())
    if len(ranking.combinations) > _MOST_RANKED:
        lines.append(f"     and {len(ranking.combinations) - _MOST_RANKED} more: trials.csv, arena report")
    if left_out := sum(not State(row.state).is_over for row in rows):
        lines.append(f"the ranking is provisional: {left_out} of {pluralize(len(rows), 'trial')} are not over")
    if ranking.best is not None:
        best = next(row for row in rows if row.number == ranking.best)
        pruned = ", pruned" if best.state == State.PRUNED.value else ""
        lines.append(f"best trial: {shown(best.folder)} ({number_text(best.value or 0.0)}{pruned})")
    if len(ranking.combinations) > 1 and all(len(each.trials) == 1 for each in ranking.combinations):
        lines.append("each combination has one seed, which proves little: `repeat: 5` without `prune` gives intervals")
    return lines


def combination_text(each: Combination, names: dict[str, str]) -> str:
    """The values of a combination, with the short names of their keys."""
    parts = [f"{names[path]}={short_text(value)}" for path, value in each.params.items()]
    return " ".join([*([each.variant] if each.variant else []), *parts])


def trials_text(each: Combination) -> str:
    """`3 trials`, or `1 of 3 trials` where only one has a value."""
    valued = sum(value is not None for value in each.values)
    return ("" if valued == len(each.values) else f"{valued} of ") + pluralize(len(each.trials), "trial")


def mean_text(each: Combination) -> str:
    """`231.5 +- 20.1`; a dash without a value."""
    if each.mean is None:
        return "-"
    return number_text(each.mean) + ("" if each.half is None else f" +- {number_text(each.half)}")


def number_text(value: float) -> str:
    """A number with four digits or more."""
    return f"{value:.1f}" if 100 <= abs(value) < 100_000 else f"{value:.4g}"
