"""Output whose reader may leave, as `head` does: from then on it goes nowhere, and whoever writes it goes on."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Lasting(io.FileIO):
    """A file descriptor that still takes what nobody reads any more."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes, or lets the bytes go; other errors, as of a full disk, are raised."""
        try:
            return super().write(data)
        except BrokenPipeError:
            discard(self.fileno())
            return memoryview(data).nbytes


@contextmanager
def lasting_output() -> Iterator[None]:
    """Stdout and stderr last while this is open, whoever reads them; streams without a file behind them always do."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_lasting, kept)
    try:
        yield
    finally:
        written = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = kept
        for stream in written:
            if stream is not None:  # as Python has it where a descriptor is closed: `2>&-`
                stream.flush()


def discard(descriptor: int) -> None:
    """Lets whatever is written from now on go nowhere, in this process and those that it starts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _lasting(stream: IO[str]) -> IO[str]:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        descriptor = stream.fileno()
    except OSError:  # it is in memory
        return stream
    raw = _Lasting(descriptor, "wb", closefd=False)
    buffer: BinaryIO = raw if stream.write_through else io.BufferedWriter(raw)  # PYTHONUNBUFFERED means both layers
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
