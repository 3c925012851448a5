"""Shared parts of all benchmarks: interleaved cases, medians, ratios within one run, a table and a JSON file.

    A B C  A B C  A B C ...      cases are interleaved, so that a machine that becomes slower slows all of them
    ratio                        of two cases in the same turn, then the median of these ratios

A benchmark is a function from `Settings` to a `Report`, run by `main`. The results of record are the JSON files in
`benchmarks/results`; `--quick` shows that a benchmark works, and its results are kept apart.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"

Sample: TypeAlias = Mapping[str, float]


class Unavailable(Exception):
    """A case that cannot be measured here; the text says why."""


class Settings(NamedTuple):
    """The options of the command line."""

    quick: bool
    repeats: int

    def pick(self, usual: Any, quick: Any) -> Any:
        """The first of two sizes, or with `--quick` the second."""
        return quick if self.quick else usual


class Case(NamedTuple):
    """A name, and a function that measures it once."""

    name: str
    measure: Callable[[], Sample]


@dataclass(frozen=True)
class Summary:
    """The values of one figure over the repeats."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else math.nan

    @property
    def low(self) -> float:
        return min(self.values, default=math.nan)

    @property
    def high(self) -> float:
        return max(self.values, default=math.nan)

    def line(self) -> dict[str, Any]:
        """The summary in the JSON file; a value that is not finite becomes null."""
        figures = {"median": self.median, "min": self.low, "max": self.high}
        return {**{name: finite(value) for name, value in figures.items()}, "values": [finite(v) for v in self.values]}


def finite(value: float) -> float | None:
    """The value, None where JSON has no number for it."""
    return value if math.isfinite(value) else None


class Measured:
    """The samples of all cases, turn by turn."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.unavailable: dict[str, str] = {}

    def summary(self, case: str, figure: str) -> Summary:
        """One figure of one case; empty where the case could not be measured."""
        return Summary(tuple(sample[figure] for sample in self.samples.get(case, ()) if figure in sample))

    def ratio(self, over: tuple[str, str], under: tuple[str, str]) -> Summary:
        """The ratios of two figures, each (case, figure), turn by turn."""
        pairs = zip(self.summary(*over).values, self.summary(*under).values, strict=False)
        return Summary(tuple(a / b for a, b in pairs if b))

    def each(self, function: Callable[[Callable[[str, str], float]], float], cases: Sequence[str]) -> Summary:
        """A figure made of several figures, turn by turn: `function` gets a look-up of (case, figure) in a turn."""
        turns = min((len(self.samples.get(case, ())) for case in cases), default=0)
        values = []
        for turn in range(turns):
            values.append(function(lambda case, figure, turn=turn: self.samples[case][turn][figure]))  # type: ignore[misc]
        return Summary(tuple(values))


def interleave(cases: Sequence[Case], repeats: int, *, say: Callable[[str], None] = lambda _: None) -> Measured:
    """Measures every case `repeats` times, all of them in each turn.

    A case that raises `Unavailable` is not measured again; its reason is kept. Any other error ends the benchmark.
    """
    measured = Measured()
    for turn in range(repeats):
        for case in cases:
            if case.name in measured.unavailable:
                continue
            try:
                sample = dict(case.measure())
            except Unavailable as error:
                measured.unavailable[case.name] = str(error)
                say(f"{case.name}: not available: {error}")
                continue
            measured.samples.setdefault(case.name, []).append(sample)
            figures = ", ".join(f"{name} {value:.4g}" for name, value in sample.items())
            say(f"turn {turn + 1} of {repeats}, {case.name}: {figures}")
    return measured


@dataclass(frozen=True)
class Promise:
    """A claim about a figure, and whether it holds: its median decides."""

    claim: str
    measured: Summary
    limit: float
    at_most: bool

    @property
    def holds(self) -> bool | None:
        """None where nothing could be measured."""
        if math.isnan(self.measured.median):
            return None
        return self.measured.median <= self.limit if self.at_most else self.measured.median >= self.limit

    def line(self) -> dict[str, Any]:
        """The promise in the JSON file."""
        bound = "at most" if self.at_most else "at least"
        figures = self.measured.line()
        return {"claim": self.claim, "bound": bound, "limit": self.limit, "holds": self.holds, "measured": figures}


@dataclass
class Report:
    """The result of a benchmark.

    Args:
        name: of the file.
        title: in the words of the promise.
        measured: all samples.
        method: paragraphs on how it was measured.
    """

    name: str
    title: str
    measured: Measured
    method: Sequence[str] = ()
    promises: list[Promise] = field(default_factory=list)

    def at_most(self, claim: str, measured: Summary, limit: float) -> None:
        """Adds a claim that a figure is not larger than a limit."""
        self.promises.append(Promise(claim, measured, limit, at_most=True))

    def at_least(self, claim: str, measured: Summary, limit: float) -> None:
        """Adds a claim that a figure is not smaller than a limit."""
        self.promises.append(Promise(claim, measured, limit, at_most=False))

    def data(self) -> dict[str, Any]:
        """The content of the JSON file, without place and time of the measurement."""
        return {
            "name": self.name,
            "title": self.title,
            "method": list(self.method),
            "cases": {case: self._figures(case) for case in self.measured.samples},
            "unavailable": self.measured.unavailable,
            "promises": [promise.line() for promise in self.promises],
        }

    def _figures(self, case: str) -> dict[str, Any]:
        names = dict.fromkeys(name for sample in self.measured.samples[case] for name in sample)
        return {name: self.measured.summary(case, name).line() for name in names}


def main(benchmark: Callable[[Settings], Report], arguments: Sequence[str] | None = None) -> int:
    """Runs a benchmark from the command line: measures, prints its table, writes its file. Broken promises exit 0."""
    parser = argparse.ArgumentParser(description=sys.modules[benchmark.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    parser.add_argument("--repeats", type=int, help="turns (default: 5; quick: 1)")
    parser.add_argument("--results", type=Path, help=f"folder for the result (default: {RESULTS.name}/)")
    given = parser.parse_args(arguments)
    settings = Settings(given.quick, given.repeats or (1 if given.quick else 5))
    before, begun = machine.load(), time.time()
    report = benchmark(settings)
    data = {**report.data(), "quick": given.quick, "repeats": settings.repeats, "begun": round(begun)}
    data |= {"seconds": round(time.time() - begun, 1), "machine": machine.describe()}
    data["load"] = {"before": before, "after": machine.load()}
    folder = given.results or (RESULTS / "quick" if given.quick else RESULTS)
    path = write(data, folder)
    sys.stdout.write("\n".join([*table(data), "", f"written to {path.name}"]) + "\n")
    return 0


def method(doc: str | None) -> list[str]:
    """The paragraphs of a module's docstring after its title: how the benchmark measures."""
    return [" ".join(paragraph.split()) for paragraph in (doc or "").split("\n\n")[1:]]


def say(text: str) -> None:
    """Prints the progress of a benchmark to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def write(data: Mapping[str, Any], folder: Path) -> Path:
    """Writes a result atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{data['name']}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")
    draft.rename(path)
    return path


def table(data: Mapping[str, Any]) -> list[str]:
    """A result as Markdown: the promises, then all figures."""
    lines = [f"## {data['title']}", ""]
    if data.get("quick"):
        lines += ["A quick run: it shows that the benchmark works; its figures mean little.", ""]
    lines += rows(("promise", "bound", "measured: median (min .. max)", "holds"), map(_promise_row, data["promises"]))
    figures = [
        (case, name, spread(summary)) for case, found in data["cases"].items() for name, summary in found.items()
    ]
    figures += [(case, "not available", reason) for case, reason in data["unavailable"].items()]
    if figures:
        lines += ["", *rows(("case", "figure", "median (min .. max)"), figures)]
    for one in data.get("tables", ()):
        lines += ["", *rows(one["head"], one["rows"])]
    if data.get("curves"):
        curves = [(case, " ".join(map(_point, curve))) for case, curve in data["curves"].items()]
        lines += ["", *rows(("case", "curve, in equal parts of the run"), curves)]
    lines += ["", *(f"- {sentence}" for sentence in data["method"])]
    return lines


def _point(value: float | None) -> str:
    return "-" if value is None else number(value)


def _promise_row(promise: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = {True: "yes", False: "**no**", None: "not measured"}[promise["holds"]]
    return promise["claim"], f"{promise['bound']} {promise['limit']:g}", spread(promise["measured"]), verdict


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def spread(summary: Mapping[str, Any]) -> str:
    """Median and range of a figure, as text."""
    if summary["median"] is None:
        return "-"
    if len(summary["values"]) < 2:
        return number(summary["median"])
    return f"{number(summary['median'])} ({number(summary['min'])} .. {number(summary['max'])})"


def number(value: float) -> str:
    """Three significant digits, without an exponent for usual sizes."""
    if abs(value) >= 1000:
        return f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.0f}"
    return f"{value:.3g}"
