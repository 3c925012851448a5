"""Output whose reader may leave, as `head` does, and that may have no room: what cannot be written is said once.

From then on it goes nowhere, so that nothing fails at the rest, not even Python at its end.
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
    """A file descriptor that goes nowhere from its first error on.

    Args:
        descriptor: stays open.
        lasts: whether it goes on after the reader has left.
    """

    def __init__(self, descriptor: int, *, lasts: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._lasts = lasts

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes.

        Raises:
            BrokenPipeError: the reader has left, and the output does not last.
            WriteError: there is no room.
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
    """Stdout and stderr are guarded while this is open; streams without a file behind them stay as they are.

    Args:
        lasts: whether stdout goes on after its reader has left; stderr always does.
    """
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guarded(sys.stdout, lasts=lasts), _guarded(sys.stderr, lasts=True)
    try:
        yield
    finally:
        written = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = kept
        for stream in written:
            if stream is not None:  # as Python has it where a descriptor is closed: `2>&-`
                with suppress(OSError):  # of text that was not flushed: there is another error to report
                    stream.flush()


def present_streams() -> None:
    """Lets output go nowhere that was closed before Python began, as by `>&-`: what writes to it need not ask.

    No file that is opened later gets its descriptor, and with it what is printed.
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
    """Writes on stderr why a command ends, or a hint; if stderr takes nothing, the exit code has to do."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


def discard(descriptor: int) -> None:
    """Lets whatever is written from now on go nowhere, in this process and those that it starts."""
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
