"""Changes recorded replays so that they are valid but wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from arena.replay.format import Chunk, chunks_in, framed


def tamper(path: Path, change: Callable[[Chunk], Chunk]) -> None:
    """Rewrites a file with all chunks changed."""
    path.write_bytes(b"".join(framed(change(chunk)) for chunk in list(chunks_in(path))))


def other_action(path: Path, *, tick: int, lane: int, column: int = 0, choices: int = 2, dtype: Any = np.uint8) -> None:
    """Replaces the choice of one lane, by its place in the file, on a tick."""

    def change(chunk: Chunk) -> Chunk:
        row = tick - chunk.tick - 1
        if not 0 <= row < chunk.ticks:
            return chunk
        done = np.frombuffer(chunk.actions[column], dtype).reshape(chunk.ticks, chunk.lanes, -1).copy()
        done[row, lane, 0] = (done[row, lane, 0] + 1) % choices
        actions = [done.tobytes() if place == column else kept for place, kept in enumerate(chunk.actions)]
        return msgspec.structs.replace(chunk, actions=actions)

    tamper(path, change)
