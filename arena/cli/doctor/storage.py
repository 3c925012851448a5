"""The place where run folders go: can it be written, is there room, does it lock, do its clocks agree with ours?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from arena.cli.doctor.finding import Finding, ok, problem, warning
from arena.cli.doctor.memory import size
from arena.errors import ConfigError
from arena.records.atomic import replacing
from arena.records.lock import RunLock

_NEEDED, _COMFORTABLE = 64 * 2**20, 2**30  # bytes
_LISTENED = 0.2  # seconds over which two clocks are compared
_DRIFT = 0.02  # seconds
_AHEAD = 2.0  # seconds between our clock and that of the file system
_BUILT = 1735689600  # 2025-01-01: a clock that shows an earlier time is wrong


def place() -> Path:
    """The folder in which the run folders are, or will be made."""
    runs = Path.cwd() / "runs"
    return next(folder for folder in (runs, *runs.parents) if folder.is_dir())


def writing() -> Iterator[Finding]:
    """Whether a file can be replaced atomically, and locked."""
    where, subject = place(), "run folders"
    try:
        with tempfile.TemporaryDirectory(prefix=".arena-doctor-", dir=where) as folder:
            with replacing(Path(folder) / "file") as file:
                file.write(b"x")
            with RunLock.take(folder) as lock:
                locks = lock.locked
    except (OSError, ConfigError) as error:
        yield problem(
            subject, f"{where} cannot be written: {error}", "go to another folder, or name one with --run-dir"
        )
        return
    if locks:
        yield ok(subject, f"{where} can be written and locks")
    else:
        remedy = "never start two runs with the same --run-dir, or mount it with locks (Lustre: -o flock)"
        yield warning(subject, f"{where} can be written, but knows no locks", remedy)


def space() -> Iterator[Finding]:
    """The free space there."""
    where = place()
    yield space_finding(where, shutil.disk_usage(where).free)


def space_finding(where: Path, free: int) -> Finding:
    """Whether so many bytes are enough."""
    text, remedy = f"{size(free)} are free in {where}", "make room: checkpoints are kept, three and the first one"
    if free < _NEEDED:
        return problem("disk", text, remedy)
    return warning("disk", text, remedy) if free < _COMFORTABLE else ok("disk", text)


def clocks() -> Iterator[Finding]:
    """Whether the wall clock runs like the monotonic one, and files get the time of this machine."""
    wall, monotonic = time.time(), time.monotonic()
    time.sleep(_LISTENED)
    drift = (time.time() - wall) - (time.monotonic() - monotonic)
    with tempfile.NamedTemporaryFile(prefix=".arena-doctor-", dir=place()) as file:
        file.write(b"x")
        file.flush()
        ahead = Path(file.name).stat().st_mtime - time.time()
    yield clock_finding(wall, drift=drift, ahead=ahead)


def clock_finding(wall: float, *, drift: float, ahead: float) -> Finding:
    """The finding about clocks, in seconds: the wall clock since 1970 and its drift against the monotonic one while we
    looked, and how far the clock of the file system is ahead.
    """
    if wall < _BUILT:
        return warning(
            "clock", f"shows {time.strftime('%Y-%m-%d', time.gmtime(wall))}", "set it: records carry the time"
        )
    if abs(drift) > _DRIFT:
        return warning(
            "clock", f"jumped by {drift:+.3f} s while we looked", "records carry the time; runs go by another"
        )
    if abs(ahead) > _AHEAD:
        remedy = "records of several hosts will not agree; let both take the time from one server (NTP)"
        return warning("clock", f"that of the files is {ahead:+.1f} s ahead", remedy)
    return ok("clock", "agrees with that of the files")
