"""The protocol of 2022, the origin of this project's idea, reimplemented from its description as an MPI program.

    gather      every seat pickles its action to the environment
    bcast       the environment pickles all replies (observations, rewards, ends, infos of all entities) to all seats
    bcast       when an episode has ended, also the first observations of all entities
    allgather   at every step all workers of a policy exchange whether an episode has ended, and its result

The root, and each process that has finished, waits in a blocking gather, as in the original.

    mpirun -n 6 python benchmarks/protocol_2022.py \
        '{"matches": [["blue", "blue", "red", "red"]], "game": "envs.touchdown:Touchdown",
          "kwargs": {"team_size": 2}, "lanes": 1, "random": true, "seconds": 5, "notes": null}'

The games are the same classes that the arena plays, in the environment's process. Workers take random actions, or
always action 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

import baseline
from games import Clocked

ACTIONS = 5  # of every game of the comparison


class Environment:
    """The process that steps the game of a match; rank 0 of the match."""

    def __init__(self, match: MPI.Comm, told: Mapping[str, Any]) -> None:
        self.game = Clocked(
            lanes=told["lanes"], game=told["game"], kwargs=told["kwargs"], notes=told["notes"], every=told["every"]
        )
        self._match = match
        self._all_lanes = np.ones(told["lanes"], np.bool_)
        frame = self.game.reset(self._all_lanes, list(range(told["lanes"])))
        match.bcast(list(frame.observations))

    def tick(self) -> None:
        """One step of the game."""
        gathered = self._match.gather(None)
        assert gathered is not None, "the environment is the root of its match"
        actions = gathered[1:]
        step = self.game.step(actions)
        over = (step.terminated | step.truncated).all(axis=1)
        self._match.bcast([list(step.frame.observations), step.rewards, over, [{} for _ in actions]])
        if over.any():
            self._match.bcast(list(self.game.reset(over).observations))


class Worker:
    """The process of a seat."""

    def __init__(self, match: MPI.Comm, policy: MPI.Comm, told: Mapping[str, Any]) -> None:
        self._match, self._policy = match, policy
        self._seat = match.rank - 1
        self._lanes = told["lanes"]
        self._rng = np.random.default_rng(policy.rank) if told["random"] else None
        self._return, self._length = 0.0, 0
        self.seen = match.bcast(None)[self._seat]

    def tick(self) -> None:
        """One action, and the exchange with all workers."""
        self._match.gather(self._action())
        observations, rewards, over, _ = self._match.bcast(None)
        self.seen = observations[self._seat]
        self._return += float(rewards[0, self._seat])
        self._length += 1
        result = None
        if over.any():
            self.seen = self._match.bcast(None)[self._seat]
            result, self._return, self._length = (self._return, self._length), 0.0, 0
        self._policy.allgather(result)

    def _action(self) -> Any:
        if self._rng is None:
            return np.zeros(self._lanes, np.int64)
        return self._rng.integers(0, ACTIONS, self._lanes)


def take_part(playing: MPI.Comm, told: Mapping[str, Any]) -> None:
    """Plays this rank's part, from the first reset to the last tick."""
    seats = len(told["matches"][0])
    number, place = divmod(playing.rank, seats + 1)
    match = playing.Split(number, place)
    policies = sorted({name for row in told["matches"] for name in row})
    color = policies.index(told["matches"][number][place - 1]) if place else len(policies)
    policy = playing.Split(color, playing.rank)  # of the workers of one policy; the environments do not use theirs
    if place == 0:
        environment = Environment(match, told)
        baseline.play(playing, environment.tick, told)
        environment.game.close()
    else:
        baseline.play(playing, Worker(match, policy, told).tick, told)


if __name__ == "__main__":
    baseline.perform(lambda playing: take_part(playing, baseline.options()), baseline.block)
