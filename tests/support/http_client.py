"""Games outside of a run, for tests: the address of a run, and a thread that plays it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def address_of(run: Path) -> str:
    """Waits until a run listens; the address of its first match."""
    deadline = time.monotonic() + 600
    while not (run / "external.json").is_file():
        assert time.monotonic() < deadline, f"{run} does not listen"
        time.sleep(0.02)
    (place, *_) = json.loads((run / "external.json").read_text())
    return str(place["address"])


@contextmanager
def played_from_outside(run: Path, play: Callable[[str], None]) -> Iterator[None]:
    """In the block a thread plays the run in this folder, as soon as it listens."""
    thread = threading.Thread(target=lambda: play(address_of(run)), name="outside")
    thread.start()
    yield
    thread.join(600)
    assert not thread.is_alive()
