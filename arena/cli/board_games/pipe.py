"""The end of a game's process of the pipes to the server; see `arena.board.games`."""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.start_folder import started_here
from arena.errors import ArenaError
from arena.game.api import Interface
from arena.replay.verify import without_screen

_PATIENCE = 2.0  # seconds from SIGTERM until the process ends itself


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture `[height, width, 3]` as a PNG file, without loss; Pillow is not installed everywhere."""
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = picture.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def marks_of(interface: Interface) -> list[dict[str, str]]:
    """By entity, the color and the name of its pieces in the picture; empty where the game does not tell."""
    colors = interface.colors or ("",) * len(interface.entities)
    return [{"color": color, "piece": interface.labels_of(entity).piece} for entity, color in enumerate(colors)]


class GamePipe:
    """Messages to the server, and lines from it. What a game prints goes to stderr.

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

    def say(self, fields: Mapping[str, Any], picture: Any = None) -> None:
        """Sends a message, with a picture `[height, width, 3]` of the game or its text; other pictures are left out.

        It waits while the page has not read earlier messages. Numbers that are not finite are null.
        """
        if isinstance(picture, str):
            fields = {**fields, "text": picture}
        elif isinstance(picture, np.ndarray) and picture.shape[2:] == (3,):
            fields = {**fields, "picture": png(picture.astype(np.uint8, copy=False))}
        data = memoryview(msgspec.json.encode(fields) + b"\n")
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


def run_program(body: Callable[[], object]) -> None:
    """Runs what a process is for; its page gets the error that ends it."""
    with started_here():
        pipe = game_pipe()
        without_screen()
        try:
            body()
        except ArenaError as error:
            pipe.say({"kind": "error", "text": str(error)})
