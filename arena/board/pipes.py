"""The pipes between the server and a process that plays a game for a page: one process per watched or played game.

server -> process    stdin: lines of JSON; its end ends the process
process -> server    messages: two lengths (uint32, little endian), JSON, and the bytes of a picture, PNG, or none

A page gets the same messages as they are. The process writes them to a descriptor of its own, since what a game prints
goes to stderr, of which the last line is kept to say why a process has ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import struct
import sys
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Fields = Mapping[str, Any]

_HEAD: Final = struct.Struct("<II")
_PATIENCE = 2.0  # seconds from the end of its stdin until a process is killed
_LONGEST = 500  # characters of a line of stderr that are kept


def message(fields: Fields, picture: bytes = b"") -> bytes:
    """A message with its head; numbers that are not finite are null in it."""
    text = msgspec.json.encode(fields)
    return _HEAD.pack(len(text), len(picture)) + text + picture


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture `[height, width, 3]` as a PNG file, without loss."""
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = picture.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


class GamePipe:
    """The end of the process: made once, before anything is printed.

    When the server closes the pipe, or has died, the process gets SIGTERM, and is ended if it does not end by that.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        self._in = os.fdopen(os.dup(0), "rb", buffering=0)  # without a lock, which a thread would keep at the end
        os.dup2(2, 1)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        # by seat, for those that have one
        self._lines: dict[int | None, queue.SimpleQueue[dict[str, Any]]] = defaultdict(queue.SimpleQueue)
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, fields: Fields, picture: NDArray[np.uint8] | None = None) -> None:
        """Sends a message; waits while the page has not read earlier ones."""
        data = memoryview(message(fields, b"" if picture is None else png(picture)))
        while data:
            data = data[self._out.write(data) or 0 :]

    def receive(self, seat: int | None = None, *, wait: bool = False) -> dict[str, Any] | None:
        """The next line of the server, for a seat; None if there is none yet, and the caller does not `wait`."""
        with suppress(queue.Empty):
            return self._lines[seat].get(block=wait)
        return None

    def _read(self) -> None:
        for line in self._in:
            said = json.loads(line)
            self._lines[said.get("seat")].put(said)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(1)


@cache
def game_pipe() -> GamePipe:
    """The pipe of this process."""
    return GamePipe()


class GameProcess:
    """The end of the server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = ""  # the last line of stderr
        self._tasks = [asyncio.create_task(self._read_stderr())]

    @classmethod
    async def start(cls, module: str, *arguments: str) -> GameProcess:
        """Starts a module of Python with arguments."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", module, *arguments)
        # in a session of its own: Ctrl-C ends the server, and the server its processes
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**20, start_new_session=True
            )
        )

    def say(self, fields: Fields) -> None:
        """Sends a line; nothing happens if the process has ended."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")

    async def messages(self) -> AsyncIterator[bytes]:
        """The messages of the process with their heads, to its end; the last one says why, if it ends by an error."""
        assert self._process.stdout is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await self._process.stdout.readexactly(_HEAD.size)
                yield head + await self._process.stdout.readexactly(sum(_HEAD.unpack(head)))
        if await self._process.wait() > 0:
            await self._tasks[0]
            yield message(
                {"kind": "error", "text": f"The game's process has ended: {self._said or 'it has said nothing'}"}
            )

    def close(self) -> None:
        """Ends the process: at once by the end of its stdin, after some seconds by force."""
        self._tasks.append(asyncio.create_task(self.ended()))

    async def ended(self) -> None:
        """Ends the process, and waits for that."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _PATIENCE)
        except asyncio.TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(2**16):
            lines = data.decode(errors="replace").split("\n")
            self._said = next((line.strip()[:_LONGEST] for line in lines[::-1] if line.strip()), self._said)


def fields_of(sent: bytes) -> dict[str, Any]:
    """The fields of a message with its head."""
    found: dict[str, Any] = json.loads(sent[_HEAD.size : _HEAD.size + _HEAD.unpack_from(sent)[0]])
    return found
