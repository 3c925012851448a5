"""Checksums of the files of a run folder: `checksums/<file>` has the length of a file, and its CRC-32.

All readers refuse alike a file that was shortened, changed, doubled or lost after it was written: `check_folder`. This
detects damage, not forgery: the checksums are in the same folder. A file without a checksum is not checked.

    checksums/episodes.jsonl    000000002345 01234567    the file before its newest write
                                000000002400 fedcba98    and after it; the same if it is not being written

The checksum of a journal is written before its lines and after them, so the file of a killed run fits it, whenever that
was. A file that is replaced has none meanwhile. After a power failure a checksum may be newer than its file; `--resume`
looks at what the boundary lists, and cuts the rest.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import IO, NamedTuple

from arena.errors import ConfigError
from arena.records.atomic import make_folder, private, replacing, writing
from arena.records.lock import is_locked

FOLDER = "checksums"
_INNER = "boundaries"  # a folder whose files have their checksums in `checksums/boundaries/`
_LINE = re.compile(rb"([0-9]{12,}) ([0-9a-f]{8})\n")
_PART = 2**20  # bytes that are read at once
_LOOKS = 100  # at a file whose checksum changes at each of them, as it is being written


class Checksum(NamedTuple):
    """The length of the beginning of a file, and its CRC-32."""

    size: int = 0  # bytes
    crc: int = 0

    def plus(self, data: bytes) -> Checksum:
        """The checksum with these bytes appended."""
        return Checksum(self.size + len(data), zlib.crc32(data, self.crc))


class _Checksums(NamedTuple):
    """The content of a checksum file."""

    before: Checksum
    after: Checksum


class JournalChecksum:
    """The checksum of a file that one writer appends to; it is open for reading, up to its last whole line."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        known, size = _read(_path_of(path)), file.seek(0, os.SEEK_END)
        if known is None or known.after != known.before or known.after.size != size:
            file.seek(0)
            whole = _checksum_of(file, size)
            known = _Checksums(whole, whole)
            _write(path, known)
        self._known = known

    def begin(self, data: bytes) -> int:
        """Records the bytes that are appended next; returns the size of the file before them, in bytes.

        If they cannot be written, the caller cuts the file to this size, and may begin again.
        """
        self._known = self._known._replace(after=self._known.before.plus(data))
        _write(self._path, self._known)
        return self._known.before.size

    def end(self) -> None:
        """Records that they were written."""
        self._known = self._known._replace(before=self._known.after)
        _write(self._path, self._known)

    def sync(self) -> None:
        """Waits until the checksum is on the disk."""
        _write(self._path, self._known, sync=True)


def replace(path: Path, content: bytes) -> None:
    """Replaces a file atomically, and its checksum; raises as `replacing`."""
    drop(path)
    with replacing(path) as file:
        file.write(content)
    whole = Checksum().plus(content)
    _write(path, _Checksums(whole, whole))


def cut(path: Path, size: int) -> None:
    """Cuts a file to a length, and renews its checksum; raises WriteError if it cannot be cut."""
    with writing(path):
        if path.stat().st_size != size:
            drop(path)
            with open(path, "r+b", opener=private) as file:
                file.truncate(size)
    renew(path)


def renew(path: Path) -> None:
    """Writes the checksum of a file as it is, which no process is writing."""
    with path.open("rb") as file:
        whole = _checksum_of(file, path.stat().st_size)
    _write(path, _Checksums(whole, whole))


def drop(path: Path) -> None:
    """Removes the checksum of a file, which is removed or replaced next."""
    _path_of(path).unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Checks all files of a folder that have checksums, also while they are written.

    Raises:
        ConfigError: one was shortened, changed or lost after it was written.
    """
    home = folder / FOLDER
    for path in sorted([*home.glob("*"), *(home / _INNER).glob("*")]):
        if not path.is_dir() and not path.name.startswith("."):  # which is of a file system or a copying program
            check(folder / path.relative_to(home))


def check(path: Path) -> None:
    """Checks a file, if it has a checksum, also while it is written.

    Raises:
        ConfigError: it was shortened, changed or lost after it was written.
    """
    for _ in range(_LOOKS):
        known = _read(_path_of(path))
        wrong = "" if known is None else _difference(path, known)
        if not wrong:
            return
        if _read(_path_of(path)) == known:  # else the file has grown since the checksum was read
            raise ConfigError(
                f"was changed or damaged after the arena wrote it: {wrong}. Restore it; or, if it is to be taken as "
                f"it is, delete {_path_of(path)}",
                source=str(path),
            )


def _difference(path: Path, known: _Checksums) -> str:
    """How a file differs from its checksum; empty if it does not."""
    try:
        opened = open(path, "rb", opener=private)  # noqa: SIM115 - closed by the block below
    except FileNotFoundError:
        return f"it is missing, and had {known.after.size} bytes"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    with opened as file:
        status = os.fstat(file.fileno())
        due = known.after if status.st_size >= known.after.size else known.before  # killed while it was written
        if status.st_size < due.size:
            late = is_locked(path.parent)  # a network file system may show a checksum before the bytes of another host
            return "" if late else f"it has {status.st_size} bytes, and had {due.size}"
        if _checksum_of(file, due.size) != due:
            return f"its first {due.size} bytes are others"
        rest = status.st_size - due.size if due == known.after else 0
        while rest > 0 and (part := file.read(min(_PART, rest))):
            rest -= len(part)
            if b"\n" in part:  # without: a line whose writer was killed
                return f"it has {status.st_size} bytes, and had {due.size}"
    return ""


def _checksum_of(file: IO[bytes], size: int) -> Checksum:
    """The checksum of the next bytes of a file, or of fewer if it ends before."""
    found = Checksum()
    while found.size < size and (part := file.read(min(_PART, size - found.size))):
        found = found.plus(part)
    return found


def _path_of(path: Path) -> Path:
    inner = path.parent.name == _INNER
    home = (path.parent.parent if inner else path.parent) / FOLDER
    if home.is_symlink():
        raise ConfigError("is a link; remove it", source=str(home))
    return (home / _INNER if inner else home) / path.name


def _read(path: Path) -> _Checksums | None:
    """The content of a checksum file; None if it is not there, or a kill or a power failure has left it empty."""
    try:
        with open(path, "rb", opener=private) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    if not content.strip(b"\0"):
        return None
    lines = [Checksum(int(match[1]), int(match[2], 16)) for match in _LINE.finditer(content)]
    if len(lines) != len(_Checksums._fields) or b"".join(map(_line, lines)) != content:
        raise ConfigError("is damaged: it is no checksum file; delete it to go on without it", source=str(path))
    return _Checksums(*lines)


def _write(path: Path, known: _Checksums, *, sync: bool = False) -> None:
    target = _path_of(path)
    with writing(target):
        if not target.parent.exists():
            make_folder(target.parent.parent if target.parent.name == _INNER else target.parent)
            make_folder(target.parent)
        descriptor = private(str(target), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            content = b"".join(map(_line, known))
            os.ftruncate(descriptor, os.pwrite(descriptor, content, 0))
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _line(one: Checksum) -> bytes:
    return f"{one.size:012d} {one.crc:08x}\n".encode()
