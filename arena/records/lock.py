"""One writer per run folder: a lock that the kernel releases when its process ends, for any reason.

`<folder>/lock` is locked with `flock`, so a killed run never leaves its folder locked. On Linux the lock also holds
across the hosts of a network file system. The file's text names the holder, for the error message of a second process;
the text itself locks nothing, and the file stays.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from arena.errors import ConfigError
from arena.records.atomic import private

_NAME = "lock"
FAILED = "failed"  # the text that the writer of a run leaves that has ended with an error
_UNKNOWN_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of file systems without locks
_MOST_BYTES = 4096  # of the text that names the holder
_LOCKS: weakref.WeakSet[RunLock] = weakref.WeakSet()  # of this process


def lock_descriptor(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool | None:
    """Locks an open file or folder until all its descriptors are closed, as the kernel does when processes end.

    Returns:
        whether it is locked: False: another process holds the lock; None: the file system knows no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNKNOWN_HERE:
            return None
        raise
    return True


class RunLock:
    """The right to write into a run folder, from `take` to `release`; also a context manager.

    Args:
        path: the lock file.
        descriptor: of the open file that holds the lock; None: the file system knows no locks, nothing is held.
        after_failure: whether the writer before had ended with an error, see `has_failed`.
    """

    def __init__(self, path: Path, descriptor: int | None, *, after_failure: bool = False) -> None:
        self.path, self.after_failure = path, after_failure
        self._descriptor = descriptor
        _LOCKS.add(self)

    @classmethod
    def take(cls, folder: Path | str) -> RunLock:
        """Locks a folder that exists.

        Raises:
            ConfigError: another process, which the message names, writes into it; or the lock file cannot be made.
        """
        path = Path(folder) / _NAME
        descriptor, locked = _locked(path, os.O_RDWR | os.O_CREAT)
        if not locked:
            os.close(descriptor)
            return cls(path, None)
        after_failure = os.pread(descriptor, _MOST_BYTES, 0) == FAILED.encode()
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        _write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
        return cls(path, descriptor, after_failure=after_failure)

    @property
    def locked(self) -> bool:
        """False where the file system knows no locks, and after the release."""
        return self._descriptor is not None

    def release(self, text: str | None = "") -> None:
        """Releases the lock, and leaves a text if the writer does not end normally. Further calls do nothing.

        None: in a forked child, which only closes its descriptor: lock and text are the parent's.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if text is not None:
                _write(descriptor, text)
            os.close(descriptor)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def sharing(folder: Path | str) -> Iterator[None]:
    """Holds a shared lock, with which `RunLock.take` fails; any number of processes may hold it.

    Raises:
        ConfigError: another process, which the message names, writes into it; or the lock file cannot be made.
    """
    descriptor, _ = _locked(Path(folder) / _NAME, os.O_RDWR | os.O_CREAT, shared=True)
    try:
        _write(descriptor, "")  # the text of a killed holder would be taken for that of a living one
        yield
    finally:
        os.close(descriptor)


def refuse_locked(folder: Path | str) -> None:
    """Refuses a folder into which a process writes now; leaves the lock and the text of a killed writer as they are."""
    with suppress(FileNotFoundError, NotADirectoryError):  # no process has ever written here
        os.close(_locked(Path(folder) / _NAME, os.O_RDWR)[0])


def is_locked(folder: Path | str) -> bool:
    """Whether a process writes into a folder now; does not disturb a process that is about to lock it.

    A process that ends normally removes the text from the file, so the lock is tried only if there is text. On a file
    system without locks the text alone decides.
    """
    try:
        descriptor = private(str(Path(folder) / _NAME), os.O_RDONLY)
    except OSError:
        return False
    try:
        return bool(os.pread(descriptor, 1, 0)) and not lock_descriptor(descriptor, shared=True)
    except OSError:
        return True
    finally:
        os.close(descriptor)


def is_left(folder: Path | str) -> bool:
    """Whether the last writer of a folder did not end normally: the text is there, and the lock is free."""
    path = Path(folder) / _NAME
    return path.is_file() and path.stat().st_size > 0 and not is_locked(folder)


def has_failed(folder: Path | str) -> bool:
    """Whether the last writer of a folder has ended with an error."""
    path = Path(folder) / _NAME
    return path.is_file() and path.read_bytes() == FAILED.encode()


def _locked(path: Path, flags: int, *, shared: bool = False) -> tuple[int, bool]:
    """Opens and locks the lock file of a run folder.

    Returns:
        its descriptor, and False on a file system without locks, which does not prevent training.

    Raises:
        FileNotFoundError: there is no such file, or NotADirectoryError, if it is not to be created.
    """
    try:
        descriptor = private(str(path), flags)
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)) and not flags & os.O_CREAT:
            raise
        raise ConfigError(f"the run folder cannot be locked: {error.strerror}", source=str(path)) from error
    with ExitStack() as on_error:
        on_error.callback(os.close, descriptor)
        try:
            locked = lock_descriptor(descriptor, shared=shared)
        except OSError as error:
            raise ConfigError(f"the run folder cannot be locked: {error.strerror}", source=str(path)) from error
        if locked is False:
            raise _other_writer(descriptor, path.parent)
        on_error.pop_all()
    return descriptor, bool(locked)


def _other_writer(descriptor: int, folder: Path) -> ConfigError:
    try:
        text = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        process = f"process {text['pid']!r:.80} on host {text['host']!r:.80} since {text['since']!r:.80}"
    except (ValueError, KeyError, TypeError):  # it may not have been written yet
        process = "an unnamed process, such as a trial of an experiment that is run alone"
    found = f"another run writes into this folder: {process}; wait for its end, or name another folder"
    return ConfigError(found, source=str(folder))


def _write(descriptor: int, text: str) -> None:
    """Writes the text that names the holder; a full disk is ignored, as the lock itself is the kernel's."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _forget_locks() -> None:
    for lock in list(_LOCKS):
        lock.release(None)


os.register_at_fork(after_in_child=_forget_locks)
