"""The lower bound of a tick's cost with typed collectives: an MPI program of one match.

    bytes   one Gather of the actions and one Scatter of the replies, nothing else
    game    the same, and the work on the bytes at both ends: the game is stepped, every seat's reply is written into
            the message, every worker copies the reply that it receives

Both move the bytes of the arena's step path: actions int64; observations, reward float64 and three flags per entity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import baseline
from games import Clocked
from stamps import Stamps

FLAGS = 3  # terminated, truncated, active


class Layout(NamedTuple):
    """Offsets of the parts of a seat's reply, in bytes."""

    observations: int
    rewards: int
    flags: int

    @property
    def total(self) -> int:
        return self.observations + self.rewards + self.flags


class Match:
    """One rank of a match: its buffers, and one tick.

    Args:
        match: the environment as rank 0, then the seats.
        told: the program's options.
    """

    def __init__(self, match: MPI.Comm, told: Mapping[str, Any]) -> None:
        self._match = match
        self._lanes, seats = told["lanes"], match.size
        kwargs = {**told["kwargs"], "entities": seats - 1}
        self.game = Clocked(
            lanes=self._lanes, game="games:Empty", kwargs=kwargs, notes=told["notes"], every=told["every"]
        )
        self.stamps = Stamps(told["notes"], every=told["every"])
        self._space = self.game.interface.observation_spaces[0]
        self.layout = Layout(self._lanes * self._observation_bytes(), 8 * self._lanes, FLAGS * self._lanes)
        self._action = np.zeros(self._lanes, np.int64)
        self._actions = np.zeros((seats, self._lanes), np.int64)
        self._answer = np.zeros(self.layout.total, np.uint8)
        self._answers = np.zeros((seats, self.layout.total), np.uint8)
        self.seen: list[NDArray[Any]] = []

    def _observation_bytes(self) -> int:
        return int(np.prod(self._space.shape or ()) * np.dtype(self._space.dtype).itemsize)

    def bytes_at_environment(self) -> None:
        """Only the messages."""
        self._match.Gather(self._action, self._actions)
        self._match.Scatter(self._answers, self._answer)
        self.stamps.add()

    def bytes_at_worker(self) -> None:
        """Only the messages."""
        self._match.Gather(self._action, None)
        self._match.Scatter(None, self._answer)

    def game_at_environment(self) -> None:
        """Messages, and the game."""
        self._match.Gather(self._action, self._actions)
        step = self.game.step(list(self._actions[1:]))
        edge, end = self.layout.observations, self.layout.observations + self.layout.rewards
        for seat in range(1, self._match.size):
            row, entity = self._answers[seat], seat - 1
            row[:edge].view(self._space.dtype).reshape(step.frame.observations[entity].shape)[:] = (
                step.frame.observations[entity]
            )
            row[edge:end].view(np.float64)[:] = step.rewards[:, entity]
            flags = row[end:].view(np.bool_).reshape(FLAGS, -1)
            flags[0], flags[1] = step.terminated[:, entity], step.truncated[:, entity]
            flags[2] = step.frame.active[:, entity]
        self._match.Scatter(self._answers, self._answer)

    def game_at_worker(self) -> None:
        """Messages, and copies of their contents."""
        self._action[:] = 0
        self._match.Gather(self._action, None)
        self._match.Scatter(None, self._answer)
        edge, end = self.layout.observations, self.layout.observations + self.layout.rewards
        observations = self._answer[:edge].view(self._space.dtype).reshape(self._lanes, *(self._space.shape or ()))
        flags = self._answer[end:].view(np.bool_).reshape(FLAGS, -1)
        self.seen = [
            observations.copy(),
            self._answer[edge:end].view(np.float64).copy(),
            *(flag.copy() for flag in flags),
        ]

    def close(self) -> None:
        """Writes the stamps, at the environment."""
        self.game.close()
        self.stamps.write()


def take_part(playing: MPI.Comm, told: Mapping[str, Any]) -> None:
    """Plays this rank's part."""
    match = Match(playing, told)
    tick: Callable[[], None] = getattr(match, f"{told['mode']}_at_{'worker' if playing.rank else 'environment'}")
    baseline.play(playing, tick, told)
    match.close()


if __name__ == "__main__":
    baseline.perform(lambda playing: take_part(playing, baseline.options()), baseline.sleep)
