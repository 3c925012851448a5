"""Atomic writes: a crash at any instant leaves the old file or the new one, never a part.

Everything that a run writes is private to its owner: folders 0700, files 0600. A run folder may come from somebody
else, so nothing is written through a link: new files are made where nothing is, and `private` opens no others.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from arena.errors import ConfigError, WriteError, shown

Names: TypeAlias = "Mapping[str, Names | None]"


def private(path: str, flags: int) -> int:
    """An opener for `open` of files to write: creates files which only their owner can read, and follows no link."""
    return regular(path, flags | os.O_NOFOLLOW)


def regular(path: str, flags: int) -> int:
    """An opener for `open` that refuses all but regular files: a FIFO would wait for its other end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def refuse_links(folder: Path, names: Names | None = None) -> None:
    """Refuses a folder in which something is neither a file nor a folder: a link, a FIFO, a device or a socket.

    It may be a link itself, as the user has named it; one that is not there holds nothing. `names` are those of what is
    looked at in it, `*`: any, each with the names inside of it; None: all.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name if names is None or entry.name in names else "*"
                if names is not None and name not in names:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    refuse_links(Path(entry.path), None if names is None else names[name])
                elif not entry.is_file(follow_symlinks=False):
                    what = "a link" if entry.is_symlink() else "a FIFO, a device or a socket"
                    raise ConfigError(
                        f"is {what}; in this folder all must be files and folders of its own: remove it, or put a copy "
                        "of what it stands for in its place",
                        source=entry.path,
                    )
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(folder)) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Converts an OSError in the block to a WriteError that names the file.

    Raises:
        WriteError: instead of any other OSError.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise WriteError(f"{shown(path)} cannot be written: it, or its folder, is not there any more") from error
        why = error.strerror or str(error)
        raise WriteError(f"{shown(path)} cannot be written: {why}. What was written before stays") from error


def make_folder(path: Path) -> None:
    """Makes a folder that only its owner can enter; it may exist already.

    Its parent must exist: a run folder that was deleted in mid-run must not come back with half of its files.

    Raises:
        WriteError: it cannot be made.
    """
    with writing(path):
        path.mkdir(mode=0o700, exist_ok=True)


def check_place(path: Path, *, option: str = "") -> None:
    """Refuses a path, which an option of the command line names, at which no file can be written."""

    def mode(path: Path) -> int | None:
        """The type and permission bits at a path; None if nothing is there."""
        try:
            return path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None

    try:
        folder, there = mode(path.parent), mode(path)
        if path.name:  # neither `.` nor `/`
            mode(part_of(path))  # raises if this longer name is too long
    except OSError as error:
        raise ConfigError(f"{shown(path)!r} cannot be written: {error.strerror}", path=option) from error
    if folder is None or not stat.S_ISDIR(folder):
        raise ConfigError(f"there is no folder {shown(path.parent)!r}", path=option)
    if there is not None and not stat.S_ISREG(there):
        what = "a folder" if stat.S_ISDIR(there) else "no file that can be replaced"
        raise ConfigError(f"{shown(path)!r} is {what}; name a file", path=option)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"the folder {shown(path.parent)!r} cannot be written to", path=option)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Writes a new version of a file beside it, which replaces the old one atomically at the end of the block.

    The bytes are on the disk before the name points to them, so a crash at any instant leaves the old file or the
    new one. If the block raises, the old file stays. A kill may leave `part_of(path)` beside it.

    Raises:
        WriteError: the disk is full, or the folder cannot be written to.
    """
    part = part_of(path)
    with writing(path):
        part.unlink(missing_ok=True)  # of a process that was killed; or a link, which must not be followed
        try:
            with open(part, "xb", opener=private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        _sync_folder(path.parent)


def replace_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Replaces a folder by one with these files, all of them or none.

    A crash leaves the old folder or the new one; between the two renames, the old one as `.<name>.old`.

    Raises:
        WriteError: the disk is full, or the parent cannot be written to; the old folder stays.
    """
    part, old = part_of(path), path.with_name(f".{path.name}.old")
    with writing(path):
        _remove(part)
        try:
            part.mkdir(mode=0o700)
            for name, content in files.items():
                with open(part / name, "xb", opener=private) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            _sync_folder(part)
            if path.exists():
                _remove(old)
                os.replace(path, old)
            os.replace(part, path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            if old.exists() and not path.exists():
                os.replace(old, path)
        _sync_folder(path.parent)
        _remove(old)


def _remove(path: Path) -> None:
    """Removes a folder, or whatever else is in its place; a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """The path of the new version of a file while it is written."""
    return path.with_name(f".{path.name}.part")


def _sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to the disk; otherwise a power failure may lose a new name."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
