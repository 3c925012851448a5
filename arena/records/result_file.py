"""`result.json`: a JSON object per line and result; how it is read, cut, and flattened.

JSON has no NaN: a number that is not finite is null in the file, and is read back as NaN.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.config.result_keys import CLOCK_NUMBERS
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError
from arena.records import checksums
from arena.records.atomic import refuse_links
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader

TEXTS = frozenset({"stopped_by", "date", "hostname"})
"""Keys of a result that hold text, and may be null."""
CLOCK_KEYS = frozenset({*CLOCK_NUMBERS, "sampler_perf", "date", "pid", "hostname"})
"""Keys of a result that depend on when and where a run is played."""


def read_results(path: Path | str) -> list[dict[str, Any]]:
    """The results of a run, with NaN for null; none if the folder has no such file. An incomplete last line is skipped.

    Args:
        path: the run folder, or its `result.json`.

    Raises:
        ConfigError: there is no such folder; a line is damaged, with its number; or the file was changed after it was
            written.
    """
    check_path(path, "the path of a run folder, or of its result.json")
    path = anchored(path)
    file = path if path.suffix == ".json" else RunFolder(path).results
    if file != path:
        refuse_links(path, {file.name: None})
    if not file.parent.is_dir():
        raise ConfigError("there is no such folder; name a run folder, as runs/<name>", source=str(file.parent))
    checksums.check(file)
    return results_in(file)


def results_in(file: Path) -> list[dict[str, Any]]:
    """As `read_results`, of a file that may have lost what a run that goes on will write again."""
    return list(JournalReader(file).made(lambda line: with_nan(_checked(line)), missing_ok=True))


def with_nan(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as its file holds it, with NaN for null."""

    def converted(value: Any) -> Any:
        if value is None:
            return math.nan
        return {key: converted(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value

    return {key: value if key in TEXTS else converted(value) for key, value in result.items()}


def flat(result: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a result under flat names, as `policy_reward_mean/blue`.

    They stand in the order of the result, those of its mappings in the order of their keys.
    """
    for key, value in sorted(result.items()) if inside else result.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{inside}{key}/")
        else:
            yield f"{inside}{key}", value


_MOST = sys.float_info.max  # an integer may be too large for a float


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a result under flat names."""
    return {name: value for name, value in flat(result) if type(value) in (int, float) and -_MOST <= value <= _MOST}


def forget_after(folder: RunFolder, tick: int) -> None:
    """Brings `result.json` back to a boundary: removes later lines, and the mark that the run was over."""
    if not folder.results.exists():
        checksums.drop(folder.results)
        return
    lines = list(JournalReader(folder.results).made(_checked))
    kept = [{**line, "done": False, "stopped_by": None} for line in lines if line["ticks"] <= tick]
    if kept != lines:
        write_all(folder.results, kept)
    else:  # lines that are missing at the end are written again
        checksums.renew(folder.results)


def write_all(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes the file with these lines, atomically."""
    checksums.replace(path, msgspec.json.Encoder().encode_lines(lines))


def _checked(line: dict[str, Any]) -> dict[str, Any]:
    for key in ("training_iteration", "ticks"):
        if not isinstance(line[key], int):
            raise TypeError(f"{key} is {line[key]!r}, no whole number")
    return line
