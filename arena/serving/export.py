"""Exports a policy's network: restore, inputs, reference, ONNX file, verify, time, choose, write; and verifies it.

    report, folder, recorded = export("runs/duel:blue")
    problems = verify("runs/duel/models/blue/4000")

A step that fails raises `ExportError`, which names it. A file that cannot be made or differs from the reference is in
the report, and nothing but the report and the description is written.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from arena import registry
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, ExportError, located
from arena.league.sources import named_in_run
from arena.records.atomic import make_folder, refuse_links, replace_folder
from arena.records.folder import NAMES, RunFolder
from arena.records.formats import EngineReport, ExportReport, ModelFile, document_text
from arena.serving.onnx_model import (
    DESCRIPTION,
    METADATA,
    MODEL,
    REPORT,
    describe,
    differences,
    first_line,
    metadata_text,
    onnx_packages,
    read_description,
    read_onnx,
    session_of,
    sha256,
)
from arena.serving.policy import load_algorithm
from arena.serving.verification import Outputs, Rows, Run, compare, rows_of

EAGER, ONNX = "eager", "onnx"
"""The module itself, by torch: the reference. An ONNX file by ONNX Runtime."""

SAMPLES, LEAST_SAMPLES = 512, 256
BATCH_SIZES = (1, 7, 64)
_WARM_UP, _CALLS, _ROUNDS = 50, 200, 5
_FASTER = 0.95  # the file is chosen if it needs at most so much of eager's time


class Engine(NamedTuple):
    """A way to run a model."""

    run: Run
    content: bytes | None = None  # of its file


def eager(exported: Any) -> Engine:
    """The reference."""
    return Engine(registry.load_object("policies.exporting:eager")(exported))


def onnx_engine(exported: Any, file: ModelFile) -> Engine:
    """The engine of ONNX Runtime.

    Raises:
        ValueError: the file has other inputs or outputs than it should.
        Exception: whatever torch, onnx and the runtime find wrong with the model.
    """
    onnx, _ = onnx_packages()
    content = registry.load_object("policies.exporting:onnx_bytes")(exported)
    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model)
    onnx.helper.set_model_props(model, {METADATA: metadata_text(file)})
    content = model.SerializeToString(deterministic=True)
    session = session_of(content, "the exported file")
    if problems := differences(session, file):
        raise ValueError(problems[0])
    return Engine(runner(session, file), content)


def runner(session: Any, file: ModelFile) -> Run:
    """A session as a function of the arrays of all inputs, in the order of the description, to all outputs."""
    inputs, outputs = [tensor.name for tensor in file.inputs], [node.name for node in session.get_outputs()]
    return lambda arrays: session.run(outputs, dict(zip(inputs, arrays, strict=True)))


class Export(NamedTuple):
    """What `export` has written.

    Args:
        report: what was verified, and how fast it is: `report.json`.
        folder: with `model.onnx`, unless the file differs or is slow.
        recorded: how many of the rows to verify with were recorded in the run.
    """

    report: ExportReport
    folder: Path
    recorded: int

    @property
    def verified(self) -> bool:
        """Whether the file fits the reference."""
        return all(engine.verdict == "ok" for engine in self.report.engines)


def export(
    name: Path | str,
    *,
    output: Path | str | None = None,
    samples: int = SAMPLES,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> Export:
    """Exports a policy's network as an ONNX file that is verified against its checkpoint, as `arena export`.

    Args:
        name: `RUN:POLICY@TICK`: the run folder, the policy, and `last`, `first`, `best` or a tick; without `@TICK`
            the newest checkpoint.
        output: the folder to write; None: `models/<policy>/<tick>` in the run folder.
        samples: rows to verify with.
        batch_sizes: each row is in a batch of each size.

    Raises:
        ConfigError: a user's mistake: no such run, policy or checkpoint; an algorithm without `exported()`; a package
            that is missing; an output folder that holds other files.
        ExportError: a step has failed.
        WriteError: the files cannot be written.
    """
    runtime = onnx_packages(export=True)[1].__version__
    source, named = named_in_run(name)
    run, policy = source.path, named.policy
    with _step("1, restore", mistakes=True):
        loaded = load_algorithm(run, policy, named.label or "last")
        exported = loaded.algorithm.exported()
    folder = RunFolder(Path(run)).models / policy / str(loaded.tick) if output is None else anchored(output)
    option = "" if output is None else "output"
    if output is not None and not folder.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {str(folder.absolute().parent)!r}", path=option)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is a file; name a folder", path=option)
    others = sorted({path.name for path in folder.glob("*")} - {MODEL, DESCRIPTION, REPORT})
    if others:
        raise ConfigError(
            f"the folder {str(folder)!r} holds other files, as {others[0]!r}; name a new folder", path=option
        )
    with _step("1, restore"):
        home = Path(os.path.relpath(anchored(run).resolve(), folder.resolve()))
        file = describe(
            exported, policy=policy, algorithm=loaded.name, tick=loaded.tick, run=home.as_posix(), engine=EAGER
        )
        reference = eager(exported)
    with _step("2, inputs"):
        rows = rows_of(RunFolder(Path(run)), policy, loaded.observation_space, file.inputs, reference.run, samples)
    with _step("3, reference"):
        expected = _reference(reference.run, rows, file, batch_sizes)
    made, reports = {EAGER: reference}, [EngineReport(name=EAGER, seconds=0.0, verdict="ok")]
    begun, reason = time.perf_counter(), ""  # 4
    try:
        made[ONNX] = onnx_engine(exported, msgspec.structs.replace(file, engine=ONNX))
    except Exception as error:  # torch, onnx and the runtime have no common class of errors
        reason = f"step 4, ONNX file: {_described(error)}"
    seconds = round(time.perf_counter() - begun, 3)
    if reason:
        reports.append(EngineReport(name=ONNX, seconds=seconds, verdict="failed", reason=reason))
    else:
        nbytes = len(made[ONNX].content or b"")
        reports.append(EngineReport(name=ONNX, bytes=nbytes, seconds=seconds, verdict="ok"))
    for number, report in enumerate(reports):  # 5
        if report.verdict == "ok":
            reports[number] = _verified(report, made[report.name].run, rows, expected, file)
    with _step("6, time"):
        latencies = _latencies(
            {report.name: made[report.name].run for report in reports if report.verdict == "ok"}, rows, batch_sizes
        )
    reports = [msgspec.structs.replace(report, latency_us=latencies.get(report.name, {})) for report in reports]
    chosen = EAGER  # 7: the file only if all fits the reference, and it is clearly faster
    if all(report.verdict == "ok" for report in reports):
        logs = {report.name: [math.log(value) for value in report.latency_us.values()] for report in reports}
        means = {name: math.exp(statistics.fmean(values)) for name, values in logs.items()}
        chosen = ONNX if means[ONNX] <= _FASTER * means[EAGER] else EAGER
    document = ExportReport(
        policy=policy,
        algorithm=loaded.name,
        tick=loaded.tick,
        torch=str(registry.load_object("torch:__version__")),
        onnxruntime=runtime,
        samples=samples,
        batch_sizes=tuple(batch_sizes),
        engines=tuple(reports),
        chosen=chosen,
    )
    content = made[chosen].content
    file = msgspec.structs.replace(
        file,
        engine=chosen,
        weights_sha256=sha256(loaded.checkpoint.read_bytes()),
        onnx_sha256=None if content is None else sha256(content),
    )
    documents: dict[str, ModelFile | ExportReport] = {DESCRIPTION: file, REPORT: document}
    files = {name: document_text(one).encode() + b"\n" for name, one in documents.items()}
    if output is None:
        make_folder(folder.parent.parent)
        make_folder(folder.parent)
    replace_folder(folder, files if content is None else {MODEL: content, **files})  # 8
    return Export(document, folder, rows.recorded)


def verify(
    folder: Path | str, run: str | None = None, *, samples: int = SAMPLES, batch_sizes: Sequence[int] = BATCH_SIZES
) -> list[str]:
    """Compares the files of an export with the checkpoint that they name, of a run; None: the export lies in it.

    Returns:
        what is wrong: the file, or engine, output, figure and limit; empty: nothing.

    Raises:
        ConfigError: there is no such folder, a package is missing, or the export names a run in which it does not lie.
        ExportError: a step has failed.
    """
    folder = anchored(folder)
    if not folder.is_dir():
        raise ConfigError("there is no such folder; name one that `arena export` has written", source=str(folder))
    refuse_links(folder)
    problems: list[str] = []
    try:
        file = read_description(folder)
    except ConfigError as error:
        return [str(error)]
    if file.onnx_sha256 is not None:
        onnx_packages()
    elif (folder / MODEL).exists():
        problems.append(f"{folder / MODEL}: is not of this export: {DESCRIPTION} says that {file.engine!r} was chosen")
    session, home = None, (folder / file.run).resolve()
    if run is None and folder.resolve().parents[2:3] != (home,):
        raise ConfigError(
            f"names the run folder {file.run!r}, in which it does not lie, and a description cannot name code; name "
            f"that folder: arena export RUN --verify {folder}",
            source=str(folder / DESCRIPTION),
        )
    home = home if run is None else Path(run)
    refuse_links(home, NAMES)
    try:
        with _step("1, restore", mistakes=True):
            loaded = load_algorithm(home, file.policy, str(file.tick))
            exported = loaded.algorithm.exported()
        if sha256(loaded.checkpoint.read_bytes()) != file.weights_sha256:
            problems.append(f"{loaded.checkpoint}: its sha256 is not the weights_sha256 of {DESCRIPTION}")
        if file.onnx_sha256 is not None:
            content = read_onnx(folder)
            if sha256(content) != file.onnx_sha256:
                problems.append(f"{folder / MODEL}: its sha256 is not the onnx_sha256 of {DESCRIPTION}")
            session = session_of(content, str(folder / MODEL))
    except ConfigError as error:
        return [*problems, str(error)]
    with _step("1, restore"):
        expected = describe(
            exported,
            policy=file.policy,
            algorithm=loaded.name,
            tick=loaded.tick,
            run=file.run,
            engine=file.engine,
        )
    for name, value in file.metadata.items():
        if value != expected.metadata[name]:
            found = f"{name}: found {json.dumps(value)}, the checkpoint has {json.dumps(expected.metadata[name])}"
            problems.append(f"{folder / DESCRIPTION}: {found}")
    if session is None:
        return problems
    problems += [f"{folder / MODEL}: {difference}" for difference in differences(session, expected)]
    with _step("2, inputs"):
        reference = eager(exported).run
        rows = rows_of(RunFolder(home), file.policy, loaded.observation_space, expected.inputs, reference, samples)
    with _step("3, reference"):
        outputs = _reference(reference, rows, expected, batch_sizes)
    report = EngineReport(name=file.engine, seconds=0.0, verdict="ok")
    verified = _verified(report, runner(session, expected), rows, outputs, expected)
    if verified.verdict != "ok":
        problems.append(f"{folder / MODEL}: {file.engine}: {verified.reason}")
    return problems


@contextmanager
def _step(name: str, *, mistakes: bool = False) -> Iterator[None]:
    """Converts what fails in a step into an `ExportError` that names it; with `mistakes` not configuration errors."""
    try:
        with located(who=f"step {name}"):
            yield
    except Exception as error:  # of an algorithm, torch or a damaged file
        if mistakes and isinstance(error, ConfigError):
            raise
        raise ExportError(
            _described(error) if isinstance(error, ConfigError) else f"step {name}: {_described(error)}"
        ) from error


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {first_line(error)}"


def _outputs(run: Run, rows: Rows, batch_sizes: Sequence[int]) -> dict[int, list[Any]]:
    """By batch size, every output of all rows."""
    count, found = len(rows.arrays[0]), {}
    for size in batch_sizes:
        parts = [run([array[start : start + size] for array in rows.arrays]) for start in range(0, count, size)]
        found[size] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return found


def _reference(run: Run, rows: Rows, file: ModelFile, batch_sizes: Sequence[int]) -> Outputs:
    """The reference, which must be finite."""
    found = _outputs(run, rows, batch_sizes)
    for size, outputs in found.items():
        for tensor, output in zip(file.outputs, outputs, strict=True):
            if not np.isfinite(output).all():
                raise ValueError(f"output {tensor.name!r}, batches of {size}: NaN or infinite numbers; limit: none")
    return found


def _verified(report: EngineReport, run: Run, rows: Rows, reference: Outputs, file: ModelFile) -> EngineReport:
    """The report with figures of all outputs, and the verdict."""
    names = [tensor.name for tensor in file.outputs]
    try:
        found = reference if report.name == EAGER else _outputs(run, rows, list(reference))
    except Exception as error:  # of the runtime
        return msgspec.structs.replace(report, verdict="failed", reason=f"step 5, verify: {_described(error)}")
    counts = {len(outputs) for outputs in found.values()}
    if counts != {len(names)}:
        reason = f"step 5, verify: {max(counts)} outputs, expected {len(names)}: {', '.join(names)}"
        return msgspec.structs.replace(report, verdict="mismatch", reason=reason)
    compared = compare(found, reference, names, file.decoding)
    if not compared.problems:
        return msgspec.structs.replace(report, outputs=compared.figures)
    more = f" (and {len(compared.problems) - 1} more)" if compared.problems[1:] else ""
    reason = f"step 5, verify: {compared.problems[0]}{more}"
    return msgspec.structs.replace(report, outputs=compared.figures, verdict="mismatch", reason=reason)


def _latencies(runs: Mapping[str, Run], rows: Rows, batch_sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    """Microseconds of a call, by engine and batch size: medians over rounds in which the engines take turns."""
    timed: dict[str, dict[str, float]] = {name: {} for name in runs}
    for size in batch_sizes:
        batch = [np.resize(array, (size, *array.shape[1:])) for array in rows.arrays]
        calls: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            for _ in range(_WARM_UP):
                run(batch)
        for _ in range(_ROUNDS):
            for name, run in runs.items():
                for _ in range(_CALLS // _ROUNDS):
                    begun = time.perf_counter()
                    run(batch)
                    calls[name].append(time.perf_counter() - begun)
        for name, seconds in calls.items():
            timed[name][str(size)] = round(statistics.median(seconds) * 1e6, 2)
    return timed
