"""Plays CartPole for `configs/external_cartpole.yaml`, over HTTP. Needs Gymnasium; nothing of the arena.

python client.py [URL] [--games N] [--episodes N]
"""

import argparse
import http.client
import json
import threading
import time
import uuid
from urllib.parse import urlsplit

import gymnasium


class Ended(Exception):
    """The run or the server takes no more games."""


class Player:
    """One game after the other, over one connection.

    Args:
        url: of the server.
    """

    def __init__(self, url):
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port)
        self.path = parts.path
        self.answered = False

    def step(self, kind, game, body=None):
        """One request: start, tick or end. Waits for a server that is not ready yet."""
        data = b"" if body is None else json.dumps(body).encode()
        while True:
            try:
                self.connection.request("POST", self.path, data, {"game_id": game, "step_kind": kind})
                reply = self.connection.getresponse()
                answer = reply.read()
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                if self.answered and isinstance(error, ConnectionRefusedError):
                    raise Ended from None
            else:
                if reply.status == 200:
                    self.answered = True
                    return answer
                code = json.loads(answer)["error"]
                if code in ("over", "draining"):
                    raise Ended
                if code not in ("not_ready", "no_slot"):
                    raise RuntimeError(answer.decode())
            time.sleep(0.2)

    def episode(self, env):
        """Plays one game; returns the sum of its rewards."""
        game, total, reward, over, truncated = uuid.uuid4().hex, 0.0, 0.0, False, False
        observation, _ = env.reset()
        self.step("start", game)
        while not over:
            answer = self.step("tick", game, {"observation": observation.tolist(), "reward": reward})
            observation, reward, over, truncated, _ = env.step(json.loads(answer)["action"])
            total += reward
            over = over or truncated
        self.step("end", game, {"observation": observation.tolist(), "reward": reward, "truncated": truncated})
        return total


def play(url, returns, most):
    """Plays until the server takes no more games, or enough are played."""
    player, env = Player(url), gymnasium.make("CartPole-v1")
    try:
        while most is None or len(returns) < most:
            returns.append(player.episode(env))
            print(f"game {len(returns)}: return {returns[-1]:g}", flush=True)
    except Ended:
        pass
    finally:
        player.connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000/step")
    parser.add_argument("--games", type=int, default=8, help="at the same time (default: 8)")
    parser.add_argument("--episodes", type=int, help="in all (default: until the run ends)")
    arguments = parser.parse_args()
    returns = []
    threads = [
        threading.Thread(target=play, args=(arguments.url, returns, arguments.episodes)) for _ in range(arguments.games)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = returns[-50:]
    print(f"{len(returns)} games; mean return of the last {len(last)}: {sum(last) / max(1, len(last)):.1f}")


if __name__ == "__main__":
    main()
