"""The folder in which the arena was started, which relative paths are meant from.

The working directory belongs to the games: one of them may change it at any time (`os.chdir`), and other roles of the
run share its process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena.errors import ConfigError, Start


def anchored(path: Path | str) -> Path:
    """A path as an absolute one: a relative path is meant from the folder in which the arena was started."""
    check_path(path, "the path of a file or folder")
    return Path(Start.folder or os.getcwd(), path)


def check_path(given: object, expected: str) -> str:
    """A path as text; refuses what is no path, as a program may give."""
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigError(f"found {given!r:.60}, of the class {type(given).__name__}; expected {expected}")
    return str(given)


@contextmanager
def started_here() -> Iterator[None]:
    """Inside this context the arena has been started in the current folder; the outermost context decides.

    Entries of `sys.path` that are relative are absolute meanwhile. Both, and the working directory, are restored.
    """
    if Start.folder:
        yield
        return
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was deleted; then no file is found there
        folder = os.environ.get("PWD", "/")
    relative = {os.path.join(folder, entry): entry for entry in sys.path if not os.path.isabs(entry)}
    before = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    Start.folder = folder
    sys.path[:] = [os.path.join(folder, entry) for entry in sys.path]
    try:
        yield
    finally:
        Start.folder = ""
        sys.path[:] = [relative.get(entry, entry) for entry in sys.path]
        os.fchdir(before)
        os.close(before)
