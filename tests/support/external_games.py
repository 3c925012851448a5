"""External games for tests: loops of their own in threads of the environment's process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from arena.external import ExternalClosed, ExternalEnv, ExternalError
from in_process import NOTES


class Poles(ExternalEnv):
    """CartPoles in a thread each; all begin their first episode before the first request.

    Args:
        seeds: of the first episode of each.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._games = [gymnasium.make("CartPole-v1") for _ in seeds]
        self._seeds = seeds
        self.observation_space = self._games[0].observation_space
        self.action_space = self._games[0].action_space

    def run(self) -> None:
        play_poles([self] * len(self._games), self._games, self._seeds)


def play_poles(clients: Sequence[Any], games: Sequence[Any], seeds: Sequence[int]) -> None:
    """Plays CartPoles in parallel until the run ends; all begin their first episode before the first request.

    Args:
        clients: one for each game, with the methods of `ExternalEnv`.
        games: the CartPoles.
        seeds: of the first episode of each.
    """
    first = [client.start_episode(f"first-{number}") for number, client in enumerate(clients)]
    places = zip(clients, games, seeds, first, strict=True)
    threads = [threading.Thread(target=_play_pole, args=place) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _play_pole(client: Any, game: Any, seed: int, episode: str) -> None:
    observation, _ = game.reset(seed=seed)
    while True:
        over = truncated = False
        try:
            while not over:
                observation, reward, over, truncated, _ = game.step(client.get_action(episode, observation))
                client.log_returns(episode, float(reward))
                over = over or truncated
            client.end_episode(episode, observation, truncated=truncated)
            observation, _ = game.reset()
            episode = client.start_episode()
        except ExternalClosed:
            return


class Line(ExternalEnv):
    """Walks along a line: the observation is the number of the step, the reward of a step its number, for `steps`.

    Args:
        steps: of an episode.
        games: episodes that are played one after the other; then `run` returns.
        given: every so many steps the game acts by itself; 0: never.
        truncated: whether an episode is truncated, without a last observation.
        fails_after: step of the first episode at which `run` raises, if `falls` is above 0.
        training: whether algorithms learn.
    """

    observation_space = Box(-1.0, 1e6, (1,), np.float32)
    action_space = Discrete(3)
    falls = 1

    def __init__(
        self,
        steps: int = 10,
        games: int = 1000,
        given: int = 0,
        truncated: bool = False,
        fails_after: int = -1,
        training: bool = True,
    ) -> None:
        self._steps, self._count, self._given = steps, games, given
        self._truncated, self._fails_after, self._training = truncated, fails_after, training

    def run(self) -> None:
        for number in range(self._count):
            episode = self.start_episode(f"walk-{number}", training_enabled=self._training)
            for step in range(self._steps):
                if Line.falls and number == 0 and step == self._fails_after:
                    Line.falls -= 1
                    raise RuntimeError("the walker has fallen")
                observation = np.array([step], np.float32)
                if self._given and step % self._given == 0:
                    self.log_action(episode, observation, 2)
                else:
                    self.get_action(episode, observation)
                self.log_returns(episode, float(step))
            if self._truncated:
                self.end_episode(episode, truncated=True)
            else:
                self.end_episode(episode, np.array([self._steps], np.float32), info={"outcome": "win"})


class Silent(ExternalEnv):
    """Plays nothing; after the run's end, it makes one request, which raises `ExternalClosed`."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def run(self) -> None:
        while not self.closed:
            time.sleep(0.01)


class Wrong(Line):
    """Makes invalid requests, records the codes of their refusals, and then walks."""

    def run(self) -> None:
        seen = np.zeros(1, np.float32)
        episode = self.start_episode("one")
        calls: list[Any] = [
            lambda: self.start_episode("one"),
            lambda: self.get_action("another", seen),
            lambda: self.get_action(episode, np.zeros(2, np.float32)),
            lambda: self.get_action(episode, np.array([np.nan], np.float32)),
            lambda: self.get_action(episode, "text"),
            lambda: self.get_action(episode, seen, entity="unknown"),
            lambda: self.get_action(episode, seen, mask=[1, 1, 1]),
            lambda: self.log_action(episode, seen, 3),
            lambda: self.log_returns(episode, float("inf")),
            lambda: self.start_episode("two", entities=["unknown"]),
        ]
        for call in calls:
            try:
                call()
            except ExternalError as error:
                NOTES.append(error.code)
        self.end_episode(episode)
        try:
            self.end_episode(episode)
        except ExternalError as error:
            NOTES.append(error.code)
        super().run()


def address_of(run: Path) -> str:
    """Waits until a run listens; the address of its first match."""
    deadline = time.monotonic() + 600
    while not (run / "external.json").is_file():
        assert time.monotonic() < deadline, f"{run} does not listen"
        time.sleep(0.02)
    (place, *_) = json.loads((run / "external.json").read_text())
    return str(place["address"])


@contextmanager
def played_from_outside(run: Path, play: Callable[[str], None]) -> Iterator[None]:
    """In the block a thread plays the run in this folder, as soon as it listens."""
    thread = threading.Thread(target=lambda: play(address_of(run)), name="outside")
    thread.start()
    yield
    thread.join(600)
    assert not thread.is_alive()
