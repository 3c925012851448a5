"""The connection of a run with the program that holds it: the run waits at its boundaries until it is told to go on.

    run      -> {"held": tick}                   at each boundary except the last
    program  -> {"go": {key path: value}}        plays the next leg, with changes
                {"stop": true}                   ends the run at this boundary

The program listens at an address of `multiprocessing.connection`; address and key are in the environment. When the
program ends, the run is saved and ends too.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection
from typing import Any

ADDRESS_VARIABLE, KEY_VARIABLE = "ARENA_HOLDER_ADDRESS", "ARENA_HOLDER_KEY"


def is_held() -> bool:
    """Whether a program holds the run of this process."""
    return ADDRESS_VARIABLE in os.environ


def send(connection: Connection, message: Mapping[str, Any]) -> None:
    """Sends a message as JSON."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """Receives a message.

    Raises:
        EOFError: the other side has ended.
    """
    found: dict[str, Any] = json.loads(connection.recv_bytes())
    return found


class Holder:
    """The run's side of the connection, in the process that leads the run.

    Attributes:
        has_ended: whether the program has ended the run, or itself.
    """

    def __init__(self) -> None:
        key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
        self._connection: Connection = Client(os.environ[ADDRESS_VARIABLE], authkey=key)
        self._orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._waits = False
        self.has_ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def hold(self, tick: int) -> dict[str, Any] | None:
        """Waits at a boundary; returns the changes with which the run goes on, None if it ends here."""
        if self.has_ended:
            return None
        try:
            send(self._connection, {"held": tick})
        except OSError:
            self.has_ended = True
            return None
        self._waits = True
        order = self._orders.get()
        self._waits = False
        self.has_ended = order is None or "go" not in order
        return None if order is None or self.has_ended else dict(order["go"])

    def _listen(self) -> None:
        try:
            while True:
                self._orders.put(receive(self._connection))
        except (EOFError, OSError):
            waits = self._waits
            self._orders.put(None)
            if not waits:
                os.kill(os.getpid(), signal.SIGUSR2)  # in mid-leg: saved as soon as possible, as `arena train` asks
