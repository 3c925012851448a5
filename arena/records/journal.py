"""A file of JSON lines that survives a kill: appended by one writer, read by anybody.

A line is whole only with its newline. What stands after the last newline is the rest of a write that was killed:
readers count and skip it, the next writer cuts it off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from arena.errors import ConfigError, WriteError
from arena.records.atomic import private, writing

S = TypeVar("S", bound=msgspec.Struct)


def _plain(value: Any) -> Any:
    """The Python number of a numpy scalar or of an array with one item, which msgspec does not know."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be written to a JSON line: {value!r}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode_lines  # writes null for what JSON cannot say: NaN and infinities


def as_read(line: Mapping[str, Any] | msgspec.Struct) -> dict[str, Any]:
    """The object that a reader of the journal will see."""
    seen: dict[str, Any] = msgspec.json.decode(_encode([line]))
    return seen


class Journal:
    """Appends JSON objects to a file; they reach the file at `flush` and `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[bytes] = []
        with writing(path):
            self._file: IO[bytes] = open(path, "ab+", opener=private)  # noqa: SIM115 - closed by close()
            _cut_rest(self._file)

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
            Unwritable: the file cannot take it, or is not where it was, so that no reader would find it.
        """
        with writing(self._path):
            if self._pending:
                self._file.write(b"".join(self._pending))
                self._pending = []
            self._file.flush()
            if not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                raise WriteError(f"{self._path} is another file now: it was replaced during the run")

    def sync(self) -> None:
        """Flushes, and waits until everything is on the disk."""
        self.flush()
        with writing(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flushes and closes; a second call does nothing."""
        if not self._file.closed:
            try:
                self.flush()
            finally:
                with writing(self._path):
                    self._file.close()


def _cut_rest(file: IO[bytes]) -> None:
    """Cuts off what follows the last newline of a file, reading backwards from its end."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        end = start if newline < 0 else start + newline + 1
        if newline >= 0:
            break
    file.truncate(end)


class JournalReader:
    """Iterates over the objects of a journal; `unfinished` counts the lines that a kill left incomplete (0 or 1).

    Args:
        path: of the journal.
        start: the byte at which to begin: the beginning of a line.
        stop: the byte before which to end, as if the file ended there; None: at its end, which may move meanwhile.
    """

    def __init__(self, path: Path | str, *, start: int = 0, stop: int | None = None) -> None:
        self.path = Path(path)
        self._start, self._stop = start, stop
        self.unfinished = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _, line in self.lines():
            yield line

    def lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Every whole line, as written and as an object.

        Raises:
            ConfigError: the file cannot be read, or a whole line of it is not a JSON object.
        """
        for number, raw in self._whole():
            yield raw, self._parse(raw, number)

    def structs(self, kind: type[S]) -> Iterator[S]:
        """Every whole line as a struct of these fields, others left out: several times as fast as objects.

        Raises:
            ConfigError: the file cannot be read, or a whole line of it is something else.
        """
        decode = msgspec.json.Decoder(kind).decode
        for number, raw in self._whole():
            try:
                line = decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"is damaged: {error}", path=f"line {number}", source=str(self.path)) from error
            yield line

    def _whole(self) -> Iterator[tuple[int, bytes]]:
        self.unfinished = 0
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", source=str(self.path)) from error
        with file:
            at = file.seek(self._start)
            for number, raw in enumerate(file, start=1):
                if at == self._stop:
                    return
                at += len(raw)
                if raw.endswith(b"\n") and (self._stop is None or at <= self._stop):
                    yield number, raw
                else:
                    self.unfinished += 1
                    return

    def _parse(self, raw: bytes, number: int) -> dict[str, Any]:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:  # the latter where there are ten thousand brackets
            raise ConfigError(f"is damaged: {error}", path=f"line {number}", source=str(self.path)) from error
        if not isinstance(line, dict):
            raise ConfigError(
                f"is damaged: a JSON object expected, got {raw[:40]!r}", path=f"line {number}", source=str(self.path)
            )
        return line


Keep = Callable[[Mapping[str, Any]], bool]
"""Whether a line of a journal is to stay."""


def kept_lines(path: Path | str, keep: Keep) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines that are to stay, as written and as objects; none of a file that does not exist.

    Raises:
        ConfigError: the file is damaged before its end, or a line of it lacks what `keep` asks for.
    """
    if not Path(path).exists():
        return
    for raw, line in JournalReader(path).lines():
        try:
            stays = keep(line)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"is damaged: {error!r} in the line {raw[:80]!r}", source=str(path)) from error
        if stays:
            yield raw, line
