"""Boundaries, from which a run can be resumed: a small file each, written when all files that it names are on the disk.

`boundaries/<tick>.json` has the tick that all matches have reached, the numbers of episodes and updates on record, the
lengths of the journals, and the checkpoint of each policy. A resumed run cuts its journals to these lengths, so no line
is lost or doubled. The ticks after the newest boundary are played, and recorded, again.

It also lists every file that a resumed run reads, with size and SHA-256: checkpoints, the own states of workers,
snapshots in the league, and the journals up to here. A boundary of which one is missing or damaged is passed over.
No byte is hashed for it twice: a checkpoint has the hash of its content in it, a journal grows. SHA-256, which the
processor computes, takes 0.75 ms per MB here, BLAKE2b 1.7 ms, CRC-32 0.4 ms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from arena.errors import ConfigError, parser_text
from arena.records import checkpoint, checksums
from arena.records.atomic import make_folder
from arena.records.checkpoint import DamagedFile
from arena.records.folder import RunFolder
from arena.records.formats import BOUNDARY_VERSION, Boundary, FileMark, digest_of
from arena.records.journal import JournalReader

_IN_FOLDER = re.compile(r"[^/.][^/]*(/[^/.][^/]*)*")
_CHUNK = 2**20


class FileDigests:
    """Marks of files, for the boundaries of one process: of a file that has grown only the new bytes are read."""

    def __init__(self) -> None:
        self._journals: dict[Path, tuple[Any, int]] = {}  # the hash of so many first bytes
        self._checkpoints: dict[Path, tuple[tuple[int, int, int], FileMark]] = {}  # by what `os.stat` says of them
        self._dropped, self._dropped_until = set[str](), 0  # by the rounds before so many bytes of rounds.jsonl

    def journal(self, path: Path, size: int) -> FileMark:
        """The mark of the first bytes of a journal, which has at least so many."""
        found, start = self._journals.get(path, (hashlib.sha256(), 0))
        if start > size:  # it was cut
            found, start = hashlib.sha256(), 0
        if size > start:
            with path.open("rb") as file:
                file.seek(start)
                while start < size and (chunk := file.read(min(_CHUNK, size - start))):
                    found.update(chunk)
                    start += len(chunk)
        self._journals[path] = found, start
        return FileMark(start, found.hexdigest())

    def checkpoint(self, path: Path) -> FileMark:
        """The mark of a checkpoint, which is never modified under its name."""
        known, state = self._checkpoints.get(path), path.stat()
        now = state.st_ino, state.st_size, state.st_mtime_ns
        if known is None or known[0] != now:
            known = self._checkpoints[path] = now, FileMark(state.st_size, checkpoint.written_digest(path))
        return known[1]

    def dropped(self, folder: RunFolder) -> set[str]:
        """The snapshots that have left the league, whose files are removed later."""
        if folder.rounds.exists() and folder.rounds.stat().st_size < self._dropped_until:  # rounds are planned again
            self._dropped, self._dropped_until = set(), 0
        reader = JournalReader(folder.rounds, start=self._dropped_until)
        found, start = set(self._dropped), self._dropped_until
        for line in reader.lines(_Dropped, missing_ok=True):
            self._dropped, self._dropped_until = set(found), start  # the newest line may be replaced
            found.update(line.dropped)
            start = reader.position
        return found


def save(folder: RunFolder, boundary: Boundary, digests: FileDigests | None = None) -> None:
    """Writes a boundary, whose checkpoints and journals are on the disk already, with its files; removes old ones.

    The digests are those of the boundaries before; None: this is the first one of the process.

    Raises:
        OSError: the disk is full, or the folder cannot be written; older boundaries stay as they are.
    """
    make_folder(folder.boundaries)
    digests = digests or FileDigests()
    files = {name: digests.journal(folder.path / name, size) for name, size in boundary.journals.items()}
    # The checkpoints, states of single workers, snapshots and loaded copies from which a run continues here.
    paths: list[Path] = []
    for policy, tick in boundary.checkpoints.items():
        paths.append(boundary.checkpoint(folder, policy))
        paths += sorted(checkpoint.worker_files(folder.checkpoints_path(policy), tick))
    if snapshots := sorted((folder.path / "snapshots").glob("*/*.ckpt")):
        left = digests.dropped(folder)
        paths += [path for path in snapshots if f"{path.parent.name}@{checkpoint.ticks_of(path)}" not in left]
    paths += sorted(folder.loaded.glob("*/*.ckpt"))
    for path in paths:
        files[path.relative_to(folder.path).as_posix()] = digests.checkpoint(path)
    listed = msgspec.structs.replace(boundary, files=files)
    sealed = msgspec.structs.replace(listed, sha256=digest_of(listed))
    checksums.replace(folder.boundaries / f"{boundary.tick:012d}.json", msgspec.json.encode(sealed) + b"\n")
    for path in _files(folder)[: -checkpoint.KEPT]:
        checksums.drop(path)
        path.unlink(missing_ok=True)


class _Dropped(msgspec.Struct):
    """Of a line of `rounds.jsonl`: the snapshots that leave the league, whose files are removed later."""

    dropped: tuple[str, ...] = ()


def last(folder: RunFolder) -> Boundary | None:
    """The newest boundary that can be read, whether or not its files are complete; None if there is none."""
    for path in reversed(_files(folder)):
        try:
            return _read(path)
        except DamagedFile:
            pass
    return None


def newest(folder: RunFolder) -> Boundary | None:
    """The newest boundary whose files are complete; None if there is none.

    Raises:
        ConfigError: it was written by a newer arena.
    """
    return next(whole(folder, []), None)


def whole(folder: RunFolder, passed_over: list[str]) -> Iterator[Boundary]:
    """The boundaries whose files are complete, the newest one first.

    `passed_over` receives a line for each boundary that is not complete: which of its files is bad, and why.

    Raises:
        ConfigError: one was written by a newer arena, or by an older one.
    """
    for path in reversed(_files(folder)):
        try:
            boundary = _read(path)
            if boundary.version < BOUNDARY_VERSION:
                raise ConfigError(
                    f"has format version {boundary.version}, of an older arena: it can be read, but not resumed; begin "
                    "a new run whose policies `load` its checkpoints",
                    source=str(path),
                )
            for name, mark in boundary.files.items():
                is_journal, file = name in boundary.journals, folder.path / name
                if not _IN_FOLDER.fullmatch(name):
                    raise DamagedFile("is not a file of this run", source=str(file))
                size = file.stat().st_size if file.is_file() else None
                if size is None and (mark.bytes or not is_journal):
                    raise DamagedFile("is missing", source=str(file))
                if (size or 0) < mark.bytes or (size != mark.bytes and not is_journal):
                    found = f"it has {size:,} bytes, had {mark.bytes:,} at this boundary"
                    raise DamagedFile(f"is damaged: {found}", source=str(file))
                digest = FileDigests().journal(file, mark.bytes).sha256 if is_journal and mark.bytes else mark.sha256
                if not is_journal:
                    digest = checkpoint.verified_digest(file)
                if digest != mark.sha256:
                    found = "is damaged, or of another run: its SHA-256 is not that of this boundary"
                    raise DamagedFile(found, source=str(file))
        except DamagedFile as error:
            passed_over.append(f"the boundary at tick {int(path.stem)} is passed over: {error}")
        else:
            yield boundary


def newest_tick(folder: RunFolder) -> int | None:
    """The tick of the newest boundary, by the names of the files; None if there is none."""
    return max((int(path.stem) for path in _files(folder)), default=None)


def checkpoints_of(folder: RunFolder, policy: str) -> list[Path]:
    """The checkpoints of a policy up to the newest boundary, for a reader, the oldest one first.

    A run that was killed while it saved a boundary may have later ones of some of its policies.

    Raises:
        ConfigError: the one of the newest boundary is missing.
    """
    newest = last(folder)  # first: another one may be saved meanwhile
    found = checkpoint.list_checkpoints(folder.checkpoints_path(policy))
    if newest is None or policy not in newest.checkpoints:
        return found
    path = newest.checkpoint(folder, policy)
    if path not in found:
        raise ConfigError(f"is missing; the boundary at tick {newest.tick} has it", source=str(path))
    return found[: found.index(path) + 1]


def discard_after(folder: RunFolder, tick: int) -> None:
    """Removes the boundaries that are newer than a tick."""
    of_lost = (folder.checksums / folder.boundaries.name).glob("*.json")  # boundaries that are gone have checksums yet
    for path in {*_files(folder), *(folder.boundaries / file.name for file in of_lost if file.stem.isdecimal())}:
        if int(path.stem) > tick:
            checksums.drop(path)
            path.unlink(missing_ok=True)


def journal_bytes(folder: RunFolder) -> dict[str, int]:
    """How long the journals are that a resumed run reads; those that are not there yet are left out."""
    journals = (folder.episodes, folder.metrics, folder.results, folder.measures, folder.evaluations, folder.changes)
    return {path.name: path.stat().st_size for path in (*journals, folder.rounds) if path.exists()}


def cut_journals(folder: RunFolder, boundary: Boundary) -> None:
    """Cuts the journals that are recorded tick by tick to their lengths at a boundary."""
    for path in (folder.episodes, folder.metrics):
        if path.exists():
            checksums.cut(path, boundary.journals.get(path.name, 0))


def _files(folder: RunFolder) -> list[Path]:
    found = (path for path in folder.boundaries.glob("*.json") if path.stem.isdecimal())
    return sorted(found, key=lambda path: int(path.stem))


def _read(path: Path) -> Boundary:
    """What the file says."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Boundary)
    except (OSError, msgspec.MsgspecError) as error:
        raise DamagedFile(f"is damaged: {parser_text(error)}", source=str(path)) from error
    if found.version > BOUNDARY_VERSION:
        raise ConfigError(
            f"has format version {found.version}, this arena reads up to {BOUNDARY_VERSION}: install a newer one",
            source=str(path),
        )
    if (found.version > 1 or found.sha256) and found.sha256 != digest_of(found):
        raise DamagedFile("is damaged: its content does not have the sha256 that was written with it", source=str(path))
    if found.tick != int(path.stem):
        raise DamagedFile(f"is the boundary at tick {found.tick}, under another name", source=str(path))
    return found
