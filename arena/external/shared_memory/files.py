"""The files of a link: private folders, files that are made exclusively, and checks of the files that a peer has made.

A driver that starts its program has a folder of its own, `<folder>/mpi-policy-arena-<uid>/<20 random letters>/`. An
advisory lock on it (`flock`) says that its driver lives; folders without a lock are removed when the next link is made.
A driver that waits for a program shares the folder `ml-agents` with other drivers, and locks its files instead.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import string
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from arena.errors import NoRoom, UnsafeFile
from arena.external.shared_memory.keeper import files_of, keeper
from arena.records.lock import lock_descriptor

SHARED_MEMORY = Path("/dev/shm")
_LEAST_ROOM = 64 * 2**20  # bytes
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW


def default_folder() -> Path:
    """Where files are made: in shared memory if it is writable and has 64 MiB free, else among temporary files."""
    with suppress(OSError):
        if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= _LEAST_ROOM:
            return SHARED_MEMORY
    return Path(tempfile.gettempdir())


class LinkFolder:
    """The folder of one link, with a lock; made in `parent`, or in `default_folder()`; errors: see `private_folder`.

    Attributes:
        first: the path of the first file, which is not made yet.
    """

    def __init__(self, parent: Path | None = None) -> None:
        outer = private_folder((parent or default_folder()).absolute() / f"mpi-policy-arena-{os.getuid()}")
        guard = os.open(outer, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        try:
            lock_descriptor(guard, wait=True)  # else another driver takes the new folder for a leftover
            for other in outer.iterdir():
                try:
                    lock = os.open(other, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
                except OSError:  # a file, or a folder that is being removed
                    continue
                if lock_descriptor(lock):  # its driver is dead
                    shutil.rmtree(other, ignore_errors=True)
                os.close(lock)
            inner, first = ("".join(random.SystemRandom().choices(string.ascii_letters, k=20)) for _ in range(2))
            self.path, self.first = outer / inner, outer / inner / first
            keeper.add(self.first, self.path)  # before it is made: this process may be killed at any moment
            try:
                private_folder(self.path)
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
            except BaseException:
                keeper.remove(self.first)
                raise
            lock_descriptor(self._lock, wait=True)
        finally:
            os.close(guard)

    def remove(self) -> None:
        """Removes the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        keeper.remove(self.first)


def private_folder(path: Path, *, others_may_read: bool = False) -> Path:
    """A folder of this user, made if it is missing; returns its path.

    Raises:
        UnsafeFile: it is not a folder, belongs to another user, or other users may access it, or write to it.
        NoRoom: it cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            raise NoRoom(f"the folder cannot be made: {error.strerror}", source=str(path)) from error
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFile("this is not a folder", source=str(path))
    if found.st_uid != os.getuid():
        raise UnsafeFile(f"the folder belongs to user {found.st_uid}, not to {os.getuid()}", source=str(path))
    if found.st_mode & (0o022 if others_may_read else 0o077):
        what = "write to" if others_may_read else "access"
        raise UnsafeFile(f"other users may {what} the folder (mode {found.st_mode & 0o777:o})", source=str(path))
    return path


def make_file(path: Path, nbytes: int) -> int:
    """Makes a file of zeros for this user alone, with its room reserved; returns its descriptor.

    Raises:
        UnsafeFile: a file of this name is there.
        NoRoom: the file system has no room for it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
    except FileExistsError as error:
        raise UnsafeFile("a file of this name is there already", source=str(path)) from error
    except OSError as error:
        raise NoRoom(f"the file cannot be made: {error.strerror}", source=str(path)) from error
    try:
        os.posix_fallocate(descriptor, 0, nbytes)  # else a full disk would be a signal (SIGBUS) in the peer, later
    except OSError as error:
        os.close(descriptor)
        os.unlink(path)
        free = shutil.disk_usage(path.parent).free
        message = f"no room for {nbytes:,} bytes ({error.strerror}); {free:,} are free: set `folder` to another place"
        raise NoRoom(message, source=str(path)) from error
    return descriptor


def open_file(path: Path) -> int:
    """Opens a file that the peer has made; returns its descriptor. Nothing is written.

    Raises:
        UnsafeFile: it is not there, or is no regular file of this user with a single name.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | _SAFE)
    except FileNotFoundError as error:
        raise UnsafeFile("there is no such file", source=str(path)) from error
    except OSError as error:
        what = "this is a symbolic link" if path.is_symlink() else f"the file cannot be opened: {error.strerror}"
        raise UnsafeFile(what, source=str(path)) from error
    found, fault = os.fstat(descriptor), ""
    if not stat.S_ISREG(found.st_mode):
        fault = "this is not a regular file"
    elif found.st_uid != os.getuid():
        fault = f"the file belongs to user {found.st_uid}, not to {os.getuid()}"
    elif found.st_nlink != 1:
        fault = f"the file has {found.st_nlink} names (hard links)"
    if fault:
        os.close(descriptor)
        raise UnsafeFile(fault, source=str(path))
    return descriptor


def remove_unused(first: Path) -> None:
    """Removes the files of an earlier link that has ended.

    Raises:
        UnsafeFile: a driver or simulator uses them, or they are not this user's.
    """
    with ExitStack() as opened:
        found = files_of(first)
        for path in found:
            descriptor = open_file(path)
            opened.callback(os.close, descriptor)
            if lock_descriptor(descriptor) is False:
                raise UnsafeFile("another driver uses this file; give `attach` another name", source=str(path))
        for path in found:
            path.unlink()
