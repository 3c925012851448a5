"""Random leagues, and the workers that play in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from arena.plan.deadlock import Circle, Worker
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

    def as_told(self, circle: Circle) -> League:
        """The league with the games and cadences that close a circle."""
        early = {wait.worker for wait in circle if self.schedules()[wait.policy] == "episodes"}

        def lengths(number: int, match: Match) -> tuple[int, ...]:
            return tuple(1 if (number, seat) in early else self.ticks + 1 for seat in range(len(match.seats)))

        patient = {name: {**policy, "options": {}} for name, policy in self.policies.items()}
        matches = tuple(replace(match, lengths=lengths(number, match)) for number, match in enumerate(self.matches))
        return replace(self, leg=self.ticks, policies=patient, matches=matches)


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


# ----------------------------------------------------------------------------------------------------- a naive runtime

Condition = Callable[[], bool]


def naive_run(league: League) -> list[int]:
    """Plays a league of `AtTicks` and `AtEpisodes` in the simplest way: a barrier waits for all workers.

    Returns:
        The ticks that each match has played when no role can proceed.
    """
    said: list[set[int]] = [set() for _ in league.matches]
    played = [0] * len(league.matches)
    come: dict[Worker, int] = {}
    groups: dict[str, list[Worker]] = {}

    def environment(number: int, match: Match) -> Iterator[Condition]:
        for _ in range(league.ticks):
            yield lambda: len(said[number]) == len(match.seats)
            said[number].clear()
            played[number] += 1

    def worker(me: Worker, name: str, length: int, period: int) -> Iterator[Condition]:
        number, seat = me
        for tick in range(1, league.ticks + 1):
            said[number].add(seat)
            yield lambda tick=tick: played[number] >= tick  # type: ignore[misc]
            schedule = league.schedules()[name]
            if league.policies[name]["algorithm"] != "random" and (
                schedule == "ticks" or tick % period == length % period
            ):
                come[me] += 1
                yield lambda mine=come[me]: all(come[other] >= mine for other in groups[name])  # type: ignore[misc]

    tasks = []
    for number, match in enumerate(league.matches):
        assert match.lengths is not None
        tasks.append(environment(number, match))
        for seat, (name, length) in enumerate(zip(match.seats, match.lengths, strict=True)):
            come[number, seat] = 0
            groups.setdefault(name, []).append((number, seat))
            tasks.append(worker((number, seat), name, length, max(match.lengths)))
    _until_nothing_moves(tasks)
    return played


def _until_nothing_moves(tasks: Sequence[Iterator[Condition]]) -> None:
    awaited: dict[Iterator[Condition], Condition] = {task: (lambda: True) for task in tasks}
    still = 0
    for task in cycle(tasks):
        if task in awaited and awaited[task]():
            still = 0
            after = next(task, None)
            if after is None:
                del awaited[task]
            else:
                awaited[task] = after
        else:
            still += 1
            if still > len(tasks):
                return
