"""Follows the checkpoints of a run that goes on: newer ones are loaded beside the server, and replace older ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from arena.errors import ConfigError
from arena.records import checkpoint
from arena.serving.exported import ExportFailed
from arena.serving.models import Model

_LOOK_S = 1.0


class Follower:
    """Looks at the checkpoints of one policy every second, in a thread."""

    def __init__(
        self,
        folder: Path,
        load: Callable[[int], Model],
        swap: Callable[[Model], None],
        say: Callable[[str], None],
        newest: int,
    ) -> None:
        self._folder, self._load, self._swap, self._say, self._newest = folder, load, swap, say, newest
        self._damaged: set[int] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"checkpoints of {folder.name}", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, if it has begun."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _follow(self) -> None:
        while not self._ends.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Takes the newest checkpoint, if it is newer and whole."""
        ticks = [checkpoint.ticks_of(path) for path in checkpoint.list_checkpoints(self._folder)]
        for tick in sorted(ticks, reverse=True):
            if tick <= self._newest:
                return
            if tick in self._damaged:
                continue
            try:
                model = self._load(tick)
            except (ConfigError, ExportFailed, OSError) as error:  # OSError: removed as there are newer ones
                self._damaged.add(tick)
                self._say(f"the checkpoint of tick {tick} is passed over: {error}")
                continue
            self._newest = tick
            self._swap(model)
            return
