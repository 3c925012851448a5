"""The command line, with a disk that is full for the root's journals after FLUSHES flushes."""

from __future__ import annotations

import errno
import os
import sys

from arena.cli.main import main
from arena.records.journal import Journal

flush = Journal.flush
left = int(os.environ["FLUSHES"])


def flush_until_full(journal: Journal) -> None:
    global left
    left -= 1
    if left < 0:
        journal._file = FullFile(journal._file)  # type: ignore[assignment]
    flush(journal)


class FullFile:
    """Raises ENOSPC on every write."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    flush = fileno = close = lambda self: self.write(b"")


Journal.flush = flush_until_full  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
