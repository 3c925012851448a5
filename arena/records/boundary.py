"""Boundaries, from which a run can be resumed: a small file each, written when all files that it names are on the disk.

`boundaries/<tick>.json` has the tick that all matches have reached, the numbers of episodes and updates on record, the
lengths of the journals, and the checkpoint of each policy. A resumed run cuts its journals to these lengths, so no line
is lost or doubled. The ticks after the newest boundary are played, and recorded, again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from arena.errors import ConfigError
from arena.records import checkpoint
from arena.records.atomic import make_folder, replacing
from arena.records.folder import RunFolder
from arena.records.formats import BOUNDARY_VERSION, Boundary


def save(folder: RunFolder, boundary: Boundary) -> None:
    """Writes a boundary, whose checkpoints and journals are on the disk already; then removes old ones.

    Raises:
        OSError: the disk is full, or the folder cannot be written; older boundaries stay as they are.
    """
    make_folder(folder.boundaries)
    with replacing(_path(folder, boundary.tick)) as file:
        file.write(msgspec.json.encode(boundary) + b"\n")
    for path in _files(folder)[: -checkpoint.KEPT]:
        path.unlink(missing_ok=True)


def last(folder: RunFolder) -> Boundary | None:
    """The newest boundary that can be read, whether or not its files are complete; None if there is none."""
    return next((found for path in reversed(_files(folder)) if (found := _read(path)) is not None), None)


def newest(folder: RunFolder) -> Boundary | None:
    """The newest boundary whose files are complete; None if there is none.

    Raises:
        ConfigError: it was written by a newer arena.
    """
    return next(whole(folder), None)


def whole(folder: RunFolder) -> Iterator[Boundary]:
    """The boundaries whose files are complete, the newest one first.

    Raises:
        ConfigError: one was written by a newer arena.
    """
    for path in reversed(_files(folder)):
        boundary = _read(path)
        if boundary is not None and _is_whole(folder, boundary):
            yield boundary


def newest_tick(folder: RunFolder) -> int | None:
    """The tick of the newest boundary, by the names of the files; None if there is none."""
    return max((int(path.stem) for path in _files(folder)), default=None)


def discard_after(folder: RunFolder, tick: int) -> None:
    """Removes the boundaries that are newer than a tick."""
    for path in _files(folder):
        if int(path.stem) > tick:
            path.unlink()


def journal_bytes(folder: RunFolder) -> dict[str, int]:
    """How long the journals are."""
    return {path.name: path.stat().st_size if path.exists() else 0 for path in (folder.episodes, folder.metrics)}


def cut_journals(folder: RunFolder, boundary: Boundary) -> None:
    """Cuts the journals to their lengths at a boundary."""
    for path in (folder.episodes, folder.metrics):
        if path.exists():
            os.truncate(path, boundary.journals[path.name])


def _path(folder: RunFolder, tick: int) -> Path:
    return folder.boundaries / f"{tick:012d}.json"


def _files(folder: RunFolder) -> list[Path]:
    found = (path for path in folder.boundaries.glob("*.json") if path.stem.isdecimal())
    return sorted(found, key=lambda path: int(path.stem))


def _read(path: Path) -> Boundary | None:
    """What the file says; None if it is damaged."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Boundary)
    except msgspec.MsgspecError:
        return None
    if found.version > BOUNDARY_VERSION:
        raise ConfigError(
            f"has format version {found.version}, this arena reads up to {BOUNDARY_VERSION}: install a newer one",
            source=str(path),
        )
    return found


def _is_whole(folder: RunFolder, boundary: Boundary) -> bool:
    """Whether the journals are long enough and all its checkpoints can be read."""
    for path in (folder.episodes, folder.metrics):
        if (path.stat().st_size if path.exists() else 0) < boundary.journals.get(path.name, 0):
            return False
    try:
        for policy in boundary.checkpoints:
            path = boundary.checkpoint(folder, policy)
            for file in (path, *checkpoint.own_files(path.parent, checkpoint.ticks_of(path))):
                checkpoint.load(file)
    except ConfigError:
        return False
    return True
