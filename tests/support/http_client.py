"""Games outside of a run, for tests: the methods of `ExternalEnv` over HTTP, and a thread that plays a run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arena.external import ExternalClosed
from external_actors import HttpWire, Reply


class HttpClient:
    """Plays one game after the other by the actor `json`, over one connection.

    Args:
        address: of the server.
    """

    def __init__(self, address: str) -> None:
        self._wire = HttpWire(address)
        self._reward = 0.0
        self._number = 0

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.socket.close()

    def start_episode(self, name: str = "") -> str:
        """Waits until the run has begun."""
        self._number += 1
        name, self._reward = name or f"{id(self)}-{self._number}", 0.0
        while self._step("start", name, None).status == 503:
            time.sleep(0.05)
        return name

    def get_action(self, name: str, observation: Any) -> Any:
        reply = self._step("tick", name, {"observation": observation.tolist(), "reward": self._taken()})
        return json.loads(reply.body)["action"]

    def log_returns(self, name: str, reward: float) -> None:
        self._reward += reward

    def end_episode(self, name: str, observation: Any, *, truncated: bool = False, **more: Any) -> None:
        seen = {"observation": observation.tolist(), "reward": self._taken(), "truncated": truncated}
        self._step("end", name, {**seen, **more})

    def _taken(self) -> float:
        reward, self._reward = self._reward, 0.0
        return reward

    def _step(self, kind: str, name: str, said: Any) -> Reply:
        try:
            reply = self._wire.step(kind, name, b"" if said is None else json.dumps(said).encode())
        except (EOFError, ConnectionError) as error:
            raise ExternalClosed("lost") from error
        if reply.status == 503 and reply.error in ("over", "draining"):
            raise ExternalClosed("over")
        assert reply.status == 200 or (kind == "start" and reply.error in ("not_ready", "no_slot")), reply
        return reply


def address_of(run: Path) -> str:
    """Waits until a run listens; the address of its first match."""
    deadline = time.monotonic() + 60
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
    thread.join(60)
    assert not thread.is_alive()
