"""Worker algorithms that do something unusual: disagree, forget, wait in a cycle."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from typing import Any

import numpy as np

from arena.errors import ConfigError
from leagues import AtEpisodes
from workers import Player


class Disagrees(Player):
    """Half of the group averages while the other half pools."""

    face = "vector"
    schedule = "ticks"

    def run(self) -> None:
        self.env.reset()
        if self.group.is_root:
            self.group.mean(1.0)
        else:
            self.group.pool(1)


class SaysTicks(AtEpisodes):
    """Synchronizes after each of its episodes, and declares otherwise: it is not refused, and deadlocks."""

    schedule = "ticks"


class Refuses(Player):
    """Raises ConfigError when it is built."""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        raise ConfigError("not with these options")

    def run(self) -> None: ...


class Forgetful(Player):
    """Learns, but has no state; records its history."""

    def run(self) -> None:
        while True:
            self.env.reset()
            over = False
            while not over:
                _, _, terminated, truncated, _ = self.env.step(0)
                over = terminated or truncated
            self.group.log(loss=1.0)


class Forgets(Player):
    """Has a state that cannot be loaded, and raises late."""

    face = "vector"
    schedule = "ticks"

    def run(self) -> None:
        self.env.reset()
        for _ in range(100):
            self.env.step(np.zeros_like(self.env.action_space.sample()))
        raise ZeroDivisionError("brittle")

    def state_dict(self) -> dict[str, Any]:
        return {}


class Averages(Player):
    """Averages gradients of several sizes with its group; worker 1 leaves after half of them, the root before the end.

    A digest of the averages is logged.
    """

    schedule = "ticks"

    def run(self) -> None:
        import torch

        self.env.reset()
        for turn in range([10, 6, 12, 12][self.group.rank]):
            size = (5, 1000, 40000)[turn % 3]
            rng = np.random.default_rng([self.group.rank, turn])
            parameter = torch.nn.Parameter(torch.zeros(size))
            parameter.grad = torch.from_numpy(np.float32(rng.standard_normal(size) * 10.0 ** rng.integers(-6, 3, size)))
            means = self.group.average_gradients([parameter], weight=0.1 + self.group.rank, kl=rng.standard_normal())
            digest = hashlib.sha256(parameter.grad.numpy().tobytes() + np.float64(means["kl"]).tobytes()).digest()
            assert set(self.group.pool(digest)) == {digest}
            self.group.log(digest=float(int.from_bytes(digest[:6], "little")))


class SlowConstruction(Player):
    """Its construction takes long."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        time.sleep(20)

    def run(self) -> None: ...


class NeverSteps(Player):
    """Resets its game, or calls its group, until a file `go` is there; then it plays."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, calls: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.calls = calls

    def run(self) -> None:
        self.env.reset()
        go = 0.0
        while not go:
            if self.calls == "reset":
                self.env.reset()
            go = self.group.maximum(float(os.path.exists("go"))) if self.calls == "group" else os.path.exists("go")
        while True:
            self.env.step(np.zeros(self.env.num_envs, np.int64))


class Pauses(Player):
    """Acts after a pause, and after a long one before its twentieth action."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, pause: float, long_pause: float = 0.0) -> None:
        super().__init__(env, group, ticks=ticks)
        self.pause, self.long_pause = pause, long_pause

    def run(self) -> None:
        self.env.reset()
        for number in itertools.count(1):
            time.sleep(self.long_pause if number == 20 and self.long_pause else self.pause)
            self.env.step(np.zeros(self.env.num_envs, np.int64))
