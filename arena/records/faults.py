"""Faults of a run: `faults.jsonl`, a line per fault that it has survived or that has ended it, written by the root.

Every line has `time` (ISO 8601, UTC), `kind` and `hosts`, the names of the hosts on which something has failed (empty:
not known; earlier versions have no such field); the rest depends on the kind:

    process       ranks (that died), done, replayed (ticks on record that are played again), seconds (from the death
                  until all roles were ready again)
    environment   match, tick, lanes (whose unfinished episodes are dropped), error, seconds (until it went on)
    run           who (which role, or what), error: the line of the message that says most; the run has ended with it

The file exists only if something has failed. A resumed run appends to it, and keeps all earlier faults, also those at
ticks that are played again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from arena.records.journal import Journal, JournalReader


class FaultKind(Enum):
    """What has failed: a process, an environment, or the run."""

    ENVIRONMENT = "environment"
    PROCESS = "process"
    RUN = "run"


def log_fault(path: Path, kind: FaultKind, fields: Mapping[str, Any]) -> None:
    """Appends to a file of faults, which is made with the first one; raises WriteError if it cannot be written."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    with closing(Journal(path)) as journal:
        journal.append({"time": now, "kind": kind.value, **fields})


def process_faults(path: Path) -> int:
    """The number of deaths of processes in a file of faults."""
    return sum(line["kind"] == FaultKind.PROCESS.value for line in JournalReader(path).made(fault_of, missing_ok=True))


def fault_of(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line of a file of faults, with a time, a kind, and what `fault_text` needs of its kind.

    Raises:
        KeyError: a field is missing.
    """
    found = {**line, "time": str(line["time"]), "kind": str(line["kind"])}
    fault_text(found)
    return found


def fault_text(line: Mapping[str, Any]) -> str:
    """A line of a file of faults in words, without its time; raises as `fault_of`."""
    if line["kind"] == FaultKind.PROCESS.value:
        return f"{line['done']}; {line['seconds']:.2f} s lost"
    if line["kind"] == FaultKind.ENVIRONMENT.value:
        lanes = len(line["lanes"])
        dropped = f"{lanes} unfinished episode{'s' * (lanes != 1)} dropped"
        place = f"match {line['match']}, tick {line['tick']}"
        return f"{place}: the game was made again in {line['seconds']:.2f} s, {dropped}: {line['error']}"
    if line["kind"] == FaultKind.RUN.value:
        return f"{line['who']}: {line['error']}; the whole message is in logs/rank-0000.log"
    rest = (f"{name} {value}" for name, value in line.items() if name not in ("time", "kind"))
    return f"{line['kind']}: {', '.join(rest)}"


class Losses(NamedTuple):
    """The losses of a run by faults."""

    restarts: int = 0  # of games
    episodes: int = 0  # that were under way and are dropped


def losses(path: Path) -> Losses:
    """The sums over a file of faults; zeros where there is none."""
    faults = JournalReader(path).made(fault_of, missing_ok=True)
    lines = [line for line in faults if line["kind"] == FaultKind.ENVIRONMENT.value]
    return Losses(len(lines), sum(len(line["lanes"]) for line in lines))
