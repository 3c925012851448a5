"""A client in a process of its own: walks along a line over a socket or HTTP, until the run ends.

python line_client.py ADDRESS NAME STEPS: prints the reason of its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from arena.external import ExternalClosed, PolicyClient
from http_client import HttpClient


def client_process(address: str, name: str, steps: int) -> subprocess.Popen[str]:
    """Starts a client."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, address, name, str(steps)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def connected(address: str) -> Any:
    """Waits until the run listens."""
    if address.startswith("http:"):
        return HttpClient(address)
    while True:
        try:
            return PolicyClient(address)
        except ExternalClosed:
            time.sleep(0.05)


def main(address: str, name: str, steps: int) -> None:
    outcome: Any = {"outcome": "win"} if address.startswith("http:") else {"info": {"outcome": "win"}}
    with connected(address) as client:
        try:
            number = 0
            while True:
                episode = client.start_episode(f"{name}-{number}")
                for step in range(steps):
                    client.get_action(episode, np.array([step], np.float32))
                    client.log_returns(episode, float(step))
                client.end_episode(episode, np.array([steps], np.float32), **outcome)
                number += 1
        except ExternalClosed as error:
            print(error)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
