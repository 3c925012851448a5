"""A client in a process of its own: walks along a line over HTTP, until the run ends.

python line_client.py ADDRESS NAME STEPS: prints the reason of its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from arena.external import ExternalClosed, PolicyClient


def client_process(address: str, name: str, steps: int) -> subprocess.Popen[str]:
    """Starts a client."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, address, name, str(steps)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def main(address: str, name: str, steps: int) -> None:
    with PolicyClient(address) as client:
        try:
            number = 0
            while True:
                episode = client.start_episode(f"{name}-{number}")
                for step in range(steps):
                    client.get_action(episode, np.array([step], np.float32))
                    client.log_returns(episode, float(step))
                client.end_episode(episode, np.array([steps], np.float32), info={"outcome": "win"})
                number += 1
        except ExternalClosed as error:
            print(error)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
