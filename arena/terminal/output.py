"""Output to a pipe whose reader may exit, as `head` does, or to a disk that may be full: the first error is raised.

Later output is discarded, so that no further write fails, not even Python's flush at its exit.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, BinaryIO

from arena.errors import WriteError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD = 2  # the last of the descriptors that a process is given: stderr's


class _Guarded(io.FileIO):
    """A file descriptor whose output is discarded from its first error on.

    Args:
        descriptor: stays open.
        lasts: whether a reader that has left is no error.
    """

    def __init__(self, descriptor: int, *, lasts: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._lasts = lasts

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes.

        Raises:
            BrokenPipeError: the reader has left, unless `lasts`.
            WriteError: any other error, such as a full disk.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            discard(self.fileno())
            if self._lasts:
                return memoryview(data).nbytes
            raise
        except OSError as error:
            discard(self.fileno())
            raise WriteError(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def guarded_output(*, lasts: bool) -> Iterator[None]:
    """Guards stdout and stderr inside this context; streams without a file behind them stay as they are.

    Args:
        lasts: whether a reader of stdout that has left is no error; for stderr it is never one.
    """
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guarded(sys.stdout, lasts=lasts), _guarded(sys.stderr, lasts=True)
    try:
        yield
    finally:
        written = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = kept
        for stream in written:
            if stream is not None:  # None where the descriptor was closed: `2>&-`
                with suppress(OSError):  # of text that was not flushed: there is another error to report
                    stream.flush()


def present_streams() -> None:
    """Opens standard streams that were closed before Python began, as by `>&-`, on /dev/null.

    So no code needs to check for None, and no file that is opened later gets such a descriptor and the printed text.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def say(text: str) -> None:
    """Prints a line and flushes it; raises what `guarded_output` raises."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Writes on stderr why a command ends, or a hint; errors are ignored, as the exit code reports the failure, too."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


def discard(descriptor: int) -> None:
    """Discards everything that is written from now on, in this process and those that it starts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _guarded(stream: IO[str], *, lasts: bool) -> IO[str]:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        raw = _Guarded(stream.fileno(), lasts=lasts)
    except OSError:  # it is in memory
        return stream
    buffer: BinaryIO = raw if stream.write_through else io.BufferedWriter(raw)  # PYTHONUNBUFFERED means both layers
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
