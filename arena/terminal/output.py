"""Output of a command: to a terminal, a pipe whose reader may exit, as `head` does, or a disk that may be full.

The first error is raised, and later output discarded, so that no further write fails, not even Python's flush at its
exit. Names and messages come from folders, games and algorithms, so a terminal gets no control character of theirs:
`guarded_output` shows them as `\\u001b`, as `printable` does. Escape sequences of our own are `Escapes`.
"""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from arena.errors import WriteError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD = 2  # the last of the descriptors that a process is given: stderr's
_CONTROLS = re.compile(  # C0 without tabs and ends of lines, C1, marks of the writing direction, halves of characters
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)
_STYLE = re.compile("(\x1b\\[[0-9;]*m)")  # ECMA-48, select graphic rendition


def printable(text: str) -> str:
    """The text with each control character as JSON writes it, such as `\\u001b`: a terminal obeys none of them."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Escapes(str):
    """Text whose escape sequences are the arena's own, and reach the terminal."""


class EscapedStream:
    """A stream that gets `printable` text, and `Escapes` as they are; `escapes`: all that is written here is such."""

    def __init__(self, stream: IO[str], *, escapes: bool = False) -> None:
        self.stream, self._escapes = stream, escapes

    def write(self, text: str) -> int:
        """Writes."""
        escapes = self._escapes or isinstance(text, Escapes)
        return self.stream.write(Escapes(text) if escapes else printable(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def drawing(stream: IO[str]) -> IO[str]:
    """The stream for a program that draws with escape sequences, to which all text is given as `printable`."""
    return cast("IO[str]", EscapedStream(stream, escapes=True))


class _Guarded(io.FileIO):
    """A file descriptor, which stays open, whose output is discarded from its first error on.

    If it `lasts`, a reader that has left is no error.
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
    """Guards stdout and stderr inside this context: they get printable text, and raise no error twice.

    `lasts`: whether a reader of stdout that has left is no error; for stderr it is never one.
    """

    def guarded(stream: IO[str] | None, *, lasts: bool) -> IO[str]:
        if isinstance(stream, EscapedStream):
            stream = stream.stream
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # it is in memory
                raw = _Guarded(stream.fileno(), lasts=lasts)
                buffer: BinaryIO = raw if stream.write_through else io.BufferedWriter(raw)  # PYTHONUNBUFFERED: both
                stream = io.TextIOWrapper(
                    buffer,
                    encoding=stream.encoding,
                    errors=stream.errors,
                    line_buffering=stream.line_buffering,
                    write_through=stream.write_through,
                )
        return cast("IO[str]", stream and EscapedStream(stream))

    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = guarded(sys.stdout, lasts=lasts), guarded(sys.stderr, lasts=True)
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


def say(text: str, *, styles: bool = False) -> None:
    """Prints a line and flushes it; raises what `guarded_output` raises.

    Colors and the like in the text of a game, `styles`, count on a terminal alone.
    """
    parts = _STYLE.split(text) if styles else [text]
    keep = len(parts) > 1 and sys.stdout.isatty()
    shown = [part * keep if place % 2 else printable(part) for place, part in enumerate(parts)]
    sys.stdout.write(Escapes("".join([*shown, "\x1b[0m" * keep, "\n"])))
    sys.stdout.flush()


def complain(text: str) -> None:
    """Writes on stderr why a command ends, or a hint; errors are ignored, as the exit code reports the failure, too."""
    with suppress(OSError):
        print(printable(text), end="", file=sys.stderr, flush=True)


def complain_of(*error: Any) -> None:
    """A `sys.excepthook`: the traceback, whose messages may be those of a game."""
    complain("".join(traceback.format_exception(*error)))


def discard(descriptor: int) -> None:
    """Discards everything that is written from now on, in this process and those that it starts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
