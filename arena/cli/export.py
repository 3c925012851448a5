"""`arena export`: a policy's network as an ONNX file that is verified against its checkpoint, and timed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from arena.cli.arguments import RemovedOption, positive_int
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, ExportError, RunFailed, pluralize, shown
from arena.league.sources import FORM
from arena.records.formats import ExportReport, document_text
from arena.serving.export import BATCH_SIZES, LEAST_SAMPLES, SAMPLES, export, verify
from arena.terminal.output import complain, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes model.onnx, model.json and report.json. A file that differs from the checkpoint is exit code 1 and not "
        "written; nor is a file that is not faster than torch. Needs the extra `onnx`."
    )
    parser.add_argument("policy", metavar="RUN:POLICY@TICK", nargs="?", help="a policy of a run; with --verify the run")
    for option in ("--policy", "--checkpoint"):
        parser.add_argument(option, action=RemovedOption, instead="name the policy as RUN:POLICY@TICK")
    parser.add_argument(
        "--output", metavar="DIR", help="the folder to write (default: models/<policy>/<tick> in the run's folder)"
    )
    parser.add_argument(
        "--samples",
        type=_samples,
        metavar="N",
        help=f"rows to verify with: recorded observations, else drawn ones (default: {SAMPLES}; at least "
        f"{LEAST_SAMPLES})",
    )
    parser.add_argument(
        "--batch",
        type=lambda text: tuple(sorted({positive_int(size) for size in text.split(",")})),
        metavar="SIZES",
        help=f"batch sizes to verify and to time (default: {','.join(map(str, BATCH_SIZES))})",
    )
    parser.add_argument(
        "--hub",
        metavar="FOLDER",
        help="write a folder for the Hugging Face hub: a model card with the numbers of an evaluation, the "
        "configuration, the checkpoint, the network, a video",
    )
    parser.add_argument(
        "--episodes", type=positive_int, metavar="N", help="of the evaluation for --hub, at least (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="print report.json, or with --verify what is wrong")
    parser.add_argument("--verify", metavar="DIR", help="compare an exported model with the checkpoint that it names")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Exports or verifies, and prints; returns the exit status."""
    samples, sizes = arguments.samples or SAMPLES, arguments.batch or BATCH_SIZES
    try:
        for option, idle in (
            ("verify", ("output", "hub", "episodes")),
            ("hub", ("output", "samples", "batch", "json")),
        ):
            for name in idle if getattr(arguments, option) is not None else ():
                if getattr(arguments, name) not in (None, False):
                    raise ConfigError(f"is not allowed with --{option}; leave it out", path=f"--{name}")
        if arguments.verify is not None:
            problems = verify(arguments.verify, arguments.policy, samples=samples, batch_sizes=sizes)
            if arguments.json:
                say(json.dumps({"verified": not problems, "problems": problems}, indent=2))
            elif not problems:
                say(f"{arguments.verify}: fits its checkpoint")
            for problem in problems:
                complain(f"arena: failed: {problem}\n")
            return 1 if problems else 0
        if arguments.episodes is not None and arguments.hub is None:
            raise ConfigError("is for --hub, which evaluates", path="--episodes")
        if arguments.policy is None:
            raise ConfigError(f"name the policy of a run, by {FORM}", path="arena export")
        if arguments.hub is not None:
            from arena.run.hub import export_hub  # imports all that plays

            for line in export_hub(arguments.policy, arguments.hub, episodes=arguments.episodes or 100):
                say(line)
            say(f"{shown(arguments.hub)}: {', '.join(sorted(path.name for path in anchored(arguments.hub).iterdir()))}")
            return 0
        if sys.stderr.isatty():
            complain("makes the ONNX file, compares and times it: about 10 s for a small network\n")
        found = export(arguments.policy, output=arguments.output, samples=samples, batch_sizes=sizes)
    except (ExportError, RunFailed) as error:
        complain(f"arena: failed: {error}\n")
        return 1
    if arguments.json:
        say(document_text(found.report))
    else:
        for line in export_lines(found.report, recorded=found.recorded):
            say(line)
        say(f"{shown(found.folder)}: {', '.join(sorted(path.name for path in found.folder.iterdir()))}")
    return 0 if found.verified else 1


def _samples(text: str) -> int:
    found = positive_int(text)
    if found < LEAST_SAMPLES:
        raise argparse.ArgumentTypeError(f"expected an integer >= {LEAST_SAMPLES}, got {text!r}")
    return found


def export_lines(report: ExportReport, *, recorded: int) -> Iterator[str]:
    """A report, line by line."""
    sizes = ", ".join(map(str, report.batch_sizes))
    rows = pluralize(report.samples, "row")

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    yield f"{report.policy} ({report.algorithm}), tick {report.tick}: {rows}, {recorded} recorded, batches of {sizes}"
    body = [
        (engine.name, output.name, figure(output.max_abs), figure(output.l1_relative), figure(output.agreement))
        for engine in report.engines
        if engine.name != "eager"
        for output in engine.outputs
    ]
    timed = [
        (engine.name, *(f"{engine.latency_us[str(size)]:.0f}" for size in report.batch_sizes))
        for engine in report.engines
        if engine.latency_us
    ]
    tables: list[list[Sequence[str]]] = [
        [("engine", "output", "max abs", "l1 relative", "agreement"), *body],
        [("us per call, batches of", *map(str, report.batch_sizes)), *timed],
    ]
    for table in tables:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for first, *numbers in table if len(table) > 1 else ():
            cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            yield "  ".join([first.ljust(widths[0]), *cells])
    for engine in report.engines:
        if engine.verdict != "ok":
            yield f"{engine.name}: {engine.verdict}: {engine.reason}"
    yield f"chosen: {report.chosen}"
