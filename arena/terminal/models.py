"""What `arena export` prints: the figures of every engine, and its times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arena.errors import pluralize
from arena.records.formats import ExportReport


def export_lines(report: ExportReport, *, recorded: int) -> Iterator[str]:
    """A report, line by line."""
    sizes = ", ".join(map(str, report.batch_sizes))
    rows = pluralize(report.samples, "row")
    yield f"{report.policy} ({report.algorithm}), tick {report.tick}: {rows}, {recorded} recorded, batches of {sizes}"
    body = [
        (engine.name, output.name, _figure(output.max_abs), _figure(output.l1_relative), _figure(output.agreement))
        for engine in report.engines
        if engine.name != "eager"
        for output in engine.outputs
    ]
    yield from _table(("engine", "output", "max abs", "l1 relative", "agreement"), body)
    timed = [
        (engine.name, *(f"{engine.latency_us[str(size)]:.0f}" for size in report.batch_sizes))
        for engine in report.engines
        if engine.latency_us
    ]
    yield from _table(("us per call, batches of", *map(str, report.batch_sizes)), timed)
    for engine in report.engines:
        if engine.verdict != "ok":
            yield f"{engine.name}: {engine.verdict}: {engine.reason}"
    yield f"chosen: {report.chosen}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned columns, the numbers at the right; nothing without a body."""
    if body:
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        for cells in (head, *body):
            yield "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
