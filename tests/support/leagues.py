"""Random leagues, and the workers that play in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workers import Player

TIMED, FREE = (
    ("leagues:AtTicks", "leagues:StatefulAtTicks"),
    ("leagues:AtEpisodes", "leagues:StatefulAtEpisodes"),
)
SCHEDULES = {**dict.fromkeys(TIMED, "ticks"), **dict.fromkeys(FREE, "episodes")}


class AtTicks(Player):
    """Meets its group after every so many ticks; its `run` returns after `leave` of them, if not 0."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, every: int = 1, leave: Sequence[int] = (0,)) -> None:
        super().__init__(env, group, ticks=ticks)
        self.every, self.leave = every, leave[group.rank % len(leave)]

    def run(self) -> None:
        self.env.reset()
        tick = 0
        while not self.leave or tick < self.leave:
            self.env.step(np.zeros(self.env.num_envs, np.int64))
            tick += 1
            if tick % self.every == 0:
                self.group.mean(1.0)


class AtEpisodes(Player):
    """Meets its group after every so many episodes; its `run` returns after `leave` of them, if not 0."""

    face = "gym"

    def __init__(self, env: Any, group: Any, *, ticks: int, every: int = 1, leave: Sequence[int] = (0,)) -> None:
        super().__init__(env, group, ticks=ticks)
        self.every, self.leave = every, leave[group.rank % len(leave)]

    def run(self) -> None:
        episode = 0
        while not self.leave or episode < self.leave:
            self.env.reset()
            over = False
            while not over:
                _, _, terminated, truncated, _ = self.env.step(0)
                over = terminated or truncated
            episode += 1
            if episode % self.every == 0:
                self.group.mean(1.0)


class Stateful:
    """Has a state, so that the run may be divided into legs."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state == {}


class StatefulAtTicks(Stateful, AtTicks): ...


class StatefulAtEpisodes(Stateful, AtEpisodes): ...


@dataclass(frozen=True)
class Match:
    """The policies of the seats, and the episode lengths of the entities in ticks; None: two move in turn."""

    seats: tuple[str, ...]
    lengths: tuple[int, ...] | None


@dataclass(frozen=True)
class League:
    """A league from which a configuration is made. `leg`: the maximal ticks of a leg."""

    ticks: int
    leg: int
    policies: dict[str, dict[str, Any]]
    matches: tuple[Match, ...]

    def data(self) -> dict[str, Any]:
        """As the YAML would give it."""
        return {
            "ticks": self.ticks,
            "checkpoint_every": self.leg,
            "envs": {"dropout": {"make": "games:Dropout"}, "turns": {"make": "games:Alternate"}},
            "policies": self.policies,
            "matches": [
                {"env": "turns", "seats": list(match.seats)}
                if match.lengths is None
                else {"env": "dropout", "seats": list(match.seats), "env_kwargs": {"lengths": list(match.lengths)}}
                for match in self.matches
            ],
        }

    def schedules(self) -> dict[str, str]:
        """The schedule that each policy's algorithm declares."""
        return {name: SCHEDULES.get(policy["algorithm"], "ticks") for name, policy in self.policies.items()}


def random_league(seed: int) -> League:
    """A league of up to five policies and six matches."""
    rng = np.random.default_rng(seed)
    ticks = int(rng.integers(1, 13))
    names = [f"p{number}" for number in range(rng.integers(1, 6))]
    kept = int(rng.random() < 0.2)
    policies = {name: _policy(rng, ticks, kept) for name in names}
    matches = tuple(_match(rng, names) for _ in range(rng.integers(1, 7)))
    return League(ticks, int(rng.integers(max(1, ticks // 3), ticks + 1)), policies, matches)


def _policy(rng: np.random.Generator, ticks: int, kept: int) -> dict[str, Any]:
    algorithm = rng.choice([TIMED[kept], FREE[kept], "random"], p=[0.45, 0.4, 0.15])
    if algorithm == "random":
        return {"algorithm": "random"}
    leave = rng.integers(0, ticks + 1, 3) * (rng.random(3) < 0.3)
    return {"algorithm": str(algorithm), "options": {"every": int(rng.integers(1, 5)), "leave": leave.tolist()}}


def _match(rng: np.random.Generator, names: Sequence[str]) -> Match:
    count, again = int(rng.choice([1, 2, 3], p=[0.3, 0.5, 0.2])), rng.random() < 0.1  # again: a policy may sit twice
    seats = tuple(str(name) for name in rng.choice(names, count if again else min(count, len(names)), replace=again))
    if len(seats) == 2 and rng.random() < 0.3:
        return Match(seats, None)
    alike = rng.random() < 0.3  # all entities end at once
    lengths = rng.integers(1, 7, 1).repeat(len(seats)) if alike else rng.integers(1, 7, len(seats))
    return Match(seats, tuple(lengths.tolist()))
