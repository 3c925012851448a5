"""The connection of a run with the program that controls it: the run waits at its boundaries until it is to go on.

    run      -> {"waits": tick}                  at each boundary except the last
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
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from typing import Any

ADDRESS_VARIABLE, KEY_VARIABLE = "ARENA_CONTROLLER_ADDRESS", "ARENA_CONTROLLER_KEY"


def is_controlled() -> bool:
    """Whether a program controls the run of this process."""
    return ADDRESS_VARIABLE in os.environ


def send(connection: Connection, message: Mapping[str, Any]) -> None:
    """Sends a message as JSON."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """Receives a message; raises EOFError if the other side has ended."""
    found: dict[str, Any] = json.loads(connection.recv_bytes())
    return found


class Controller:
    """The run's side of the connection, in the process that leads the run."""

    def __init__(self) -> None:
        key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
        self._connection: Connection = Client(os.environ[ADDRESS_VARIABLE], authkey=key)
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._waits = False

        def listen() -> None:
            try:
                while True:
                    self._orders.put(receive(self._connection))
            except (EOFError, OSError):
                waits = self._waits
                self._orders.put({"stop": True})
                if not waits:
                    os.kill(os.getpid(), signal.SIGUSR2)  # in mid-leg: saved as soon as possible, as `arena train` asks

        threading.Thread(target=listen, daemon=True).start()

    def wait(self, tick: int) -> dict[str, Any] | None:
        """Waits at a boundary; returns the changes with which the run goes on, None if the run ends here."""
        order: dict[str, Any] = {}
        self._waits = True
        with suppress(OSError):  # the program has ended
            send(self._connection, {"waits": tick})
            order = self._orders.get()
        self._waits = False
        return dict(order["go"]) if "go" in order else None
