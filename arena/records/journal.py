"""A file of JSON lines that survives a kill: one writer appends, any process reads.

A line is whole only with its newline. Bytes after the last newline are from a write that was killed: readers count and
skip them, the next writer cuts them off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, WriteError, parser_text
from arena.records import checksums
from arena.records.atomic import private, regular, writing

T = TypeVar("T")


def _plain(value: Any) -> Any:
    """The Python number of a numpy scalar or of an array with one item, which msgspec does not know."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be written to a JSON line: {value!r}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode_lines  # writes null for what JSON cannot say: NaN and infinities


def as_read(line: Mapping[str, Any] | msgspec.Struct) -> dict[str, Any]:
    """The object that a reader of the journal will see."""
    found: dict[str, Any] = msgspec.json.decode(_encode([line]))
    return found


class Journal:
    """Appends JSON objects to a file; they reach the file at `flush` and `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[bytes] = []
        with writing(path), ExitStack() as on_error:
            self._file: IO[bytes] = on_error.enter_context(open(path, "ab+", buffering=0, opener=private))
            # Cuts off what follows the last newline of a file, reading backwards from its end.
            end = self._file.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - 65536)
                self._file.seek(start)
                newline = self._file.read(end - start).rfind(b"\n")
                end = start if newline < 0 else start + newline + 1
                if newline >= 0:
                    break
            self._file.truncate(end)
            self._checksum = checksums.JournalChecksum(path, self._file)
            on_error.pop_all()  # closed by close()

    def append(self, line: Mapping[str, Any]) -> None:
        """Keeps a line for the next flush; as `extend`."""
        self.extend([line])

    def extend(self, lines: Sequence[Mapping[str, Any] | msgspec.Struct]) -> None:
        """Keeps lines for the next flush: all of them, or none if one cannot be written.

        Raises:
            TypeError: one holds something that JSON has no form for.
            ValueError: the journal is closed.
        """
        if self._file.closed:
            raise ValueError(f"the journal {self._file.name} is closed; nothing can be recorded any more")
        self._pending.append(_encode(lines))

    def flush(self) -> None:
        """Hands everything that was appended to the operating system, in one write.

        Raises:
            WriteError: the file cannot take it, or is not where it was, so that no reader would find it.
        """
        with writing(self._path):
            if self._pending:
                data = b"".join(self._pending)
                size = self._checksum.begin(data)
                try:
                    while data:
                        data = data[self._file.write(data) :]
                except OSError:
                    self._file.truncate(size)  # the lines wait for the next flush
                    raise
                self._checksum.end()
                self._pending = []
            if not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                raise WriteError(f"{self._path} is another file now: it was replaced during the run")

    def sync(self) -> None:
        """Flushes, and waits until everything is on the disk."""
        self.flush()
        with writing(self._path):
            os.fsync(self._file.fileno())
            self._checksum.sync()

    def close(self) -> None:
        """Flushes and closes; a second call does nothing."""
        if not self._file.closed:
            try:
                self.flush()
            finally:
                with writing(self._path):
                    self._file.close()


def forget_after(path: Path, kind: type[T], tick: Callable[[T], int], last: int) -> None:
    """Cuts off the lines after the `last` tick, from which a run continues; does nothing if there is no file.

    The lines, of one type, are in the order of their ticks.
    """
    journal, end = JournalReader(path), 0
    for line in journal.lines(kind, missing_ok=True):
        if tick(line) > last:
            break
        end = journal.position
    if path.exists():
        checksums.cut(path, end)
    else:
        checksums.drop(path)


class JournalReader:
    """Iterates over the lines of a journal, as objects or as structs.

    The bytes `start`, the beginning of a line, and `stop` limit it; without `stop` the file may grow meanwhile.

    Attributes:
        unfinished: the lines that a kill left incomplete: 0 or 1.
        position: the byte after the last whole line that was read.
        count: the whole lines that were read.
    """

    def __init__(self, path: Path | str, *, start: int = 0, stop: int | None = None) -> None:
        self.path = anchored(path)
        self._start, self._stop = start, stop
        self.unfinished = self.count = 0
        self.position = start

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.lines(dict[str, Any])

    def lines(self, kind: type[T], *, missing_ok: bool = False) -> Iterator[T]:
        """Every whole line, decoded as a struct of `arena.records.formats` or as another type.

        With `missing_ok` a file that is not there has no lines.

        Raises:
            ConfigError: the file cannot be read, or a whole line of it is not of this type.
        """
        return self._decoded(msgspec.json.Decoder(kind).decode, missing_ok=missing_ok)

    def batches(self, kind: type[T], *, size: int = 2**20) -> Iterator[tuple[list[T], list[int]]]:
        """As `lines`, in less time: lists of lines, about `size` bytes each, and the bytes of every line."""
        decode, rest = msgspec.json.Decoder(kind).decode_lines, b""
        with self._opened() as file:
            self.position = file.seek(self._start)
            stop = os.fstat(file.fileno()).st_size if self._stop is None else self._stop
            while data := file.read(max(0, min(size, stop - self.position - len(rest)))):
                *lines, rest = (rest + data).split(b"\n")
                if not lines:
                    continue
                begin, sizes = self.position, [len(line) + 1 for line in lines]
                try:
                    found = decode(b"\n".join(lines))
                except (ValueError, RecursionError):
                    found = []
                if len(found) != len(lines):
                    found = [*JournalReader(self.path, start=begin, stop=begin + sum(sizes)).lines(kind)]  # says which
                self.position, self.count = begin + sum(sizes), self.count + len(sizes)
                yield found, sizes
        self.unfinished = int(bool(rest))

    def made(self, make: Callable[[dict[str, Any]], T], *, missing_ok: bool = False) -> Iterator[T]:
        """The result of `make` for every whole line, for lines with keys of any names; as `lines`.

        It raises KeyError, TypeError or ValueError for an object that does not fit.
        """
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        return self._decoded(lambda raw: make(decode(raw)), missing_ok=missing_ok)

    def _decoded(self, decode: Callable[[bytes], T], *, missing_ok: bool) -> Iterator[T]:
        if missing_ok and not self.path.exists():
            return
        with self._opened() as file:
            self.position = file.seek(self._start)
            for number, raw in enumerate(file, start=1):
                if self.position == self._stop:
                    return
                end = self.position + len(raw)
                if not raw.endswith(b"\n") or (self._stop is not None and end > self._stop):
                    self.unfinished += 1
                    return
                self.position, self.count = end, self.count + 1
                try:
                    line = decode(raw)
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    found = f"lacks {error}" if isinstance(error, KeyError) else parser_text(error)
                    reason = f"is damaged, or of another version of the arena: {found}"
                    file.seek(0)
                    number += file.read(self._start).count(b"\n")
                    raise ConfigError(reason, path=f"line {number}", source=str(self.path)) from error
                yield line

    def _opened(self) -> IO[bytes]:
        self.unfinished = 0
        try:
            return open(self.path, "rb", opener=regular)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", source=str(self.path)) from error


class FollowedJournal:
    """A journal that is read while it grows: each time the whole lines that are new.

    Attributes:
        position: the byte after the last line that was read.
        unfinished: as of `JournalReader`, at the last reading.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = self.unfinished = 0

    @property
    def was_cut(self) -> bool:
        """Whether a resumed run has taken lines away that were read before."""
        return self.position > 0 and (not self.path.exists() or self.path.stat().st_size < self.position)

    def fresh(self, read: Callable[[JournalReader], Iterator[T]], stop: int | None = None) -> Iterator[T]:
        """What a method of `JournalReader` gives of the new lines before the byte `stop`; it raises as that does."""
        if not self.path.exists():
            return
        journal = JournalReader(self.path, start=self.position, stop=stop)
        for found in read(journal):
            self.position = journal.position
            yield found
        self.unfinished = journal.unfinished


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Identifies a version of a file, which changes when it is written again; None where it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
