"""A client in a process of its own: walks along a line over a socket, until the run ends.

python line_client.py ADDRESS NAME STEPS: prints why it has ended.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from arena.external import ExternalClosed, PolicyClient


def connected(address: str) -> PolicyClient:
    """Waits until the run listens."""
    while True:
        try:
            return PolicyClient(address)
        except ExternalClosed:
            time.sleep(0.05)


def main(address: str, name: str, steps: int) -> None:
    with connected(address) as client:
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
