"""Games for benchmarks: a game without work, and a clock around any other game.

They run in environment processes, so this module imports neither torch nor MPI.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena import registry
from arena.game.api import BatchedEnv, Frame, Interface, Step
from arena.game.ragged import Ragged
from arena.game.spaces import flatten
from arena.game.units import Choice, UnitSpace
from stamps import Stamps

GOAL, RECENT = 0.9, 200  # a game counts as learned when this share of this many recent episodes is won


class Empty:
    """A game without work: every tick gives the same observations.

    Args:
        lanes: games that step together.
        entities: number of entities.
        shape: of an observation.
        dtype: of an observation; `uint8` makes it an image.
        actions: number of possible actions.
        episode: ticks per episode; 0: one endless episode.
        delay: seconds that a tick takes, asleep.
    """

    batched = True

    def __init__(
        self,
        *,
        lanes: int,
        entities: int = 4,
        shape: Sequence[int] = (8,),
        dtype: str = "float32",
        actions: int = 5,
        episode: int = 0,
        delay: float = 0.0,
    ) -> None:
        self.lanes = lanes
        self._episode, self._delay, self._tick = episode, delay, 0
        high = 255 if dtype == "uint8" else 1
        space = spaces.Box(0, high, tuple(shape), np.dtype(dtype).type)
        self.interface = Interface(
            entities=tuple(f"player_{index}" for index in range(entities)),
            observation_spaces=(space,) * entities,
            action_spaces=(spaces.Discrete(actions),) * entities,
            mask_sizes=(0,) * entities,
        )
        observations = [np.full((lanes, *shape), high // 2, dtype) for _ in range(entities)]  # [E] of [L, *shape]
        yes, no = np.ones((lanes, entities), np.bool_), np.zeros((lanes, entities), np.bool_)
        rewards, masks = np.zeros((lanes, entities)), (None,) * entities
        self._begin = Frame(observations, yes, masks)
        self._goes_on = Step(self._begin, rewards, no, no)
        self._ends = Step(Frame(observations, no, masks), rewards, yes, no)

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """All lanes begin and end together, so nothing is kept per lane."""
        return self._begin

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; ignores the actions."""
        if self._delay:
            time.sleep(self._delay)
        self._tick += 1
        return self._ends if self._episode and self._tick % self._episode == 0 else self._goes_on

    def render(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class Computing(Empty):
    """A game of one entity whose tick takes a millisecond of processor time for every 8 lanes."""

    def __init__(self, *, lanes: int) -> None:
        super().__init__(lanes=lanes, entities=1)
        self.interface = replace(self.interface, action_spaces=(spaces.Box(-1.0, 1.0, (2,), np.float32),))

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; ignores the actions."""
        end = time.process_time() + 1e-3 * self.lanes / 8
        while time.process_time() < end:
            pass
        return super().step(actions)


class Units:
    """A game without work, in which every tick shows the same units, which may all do anything.

    Args:
        lanes: games that step together.
        units: in each lane.
    """

    batched = True

    def __init__(self, *, lanes: int, units: int = 7) -> None:
        self.lanes = lanes
        space = UnitSpace({"Unit": ["x", "y"]}, actions={"Move": Choice(["left", "right"])})
        self.interface = Interface(("player",), (space,), (space.action_space,), (0,))
        counts = np.full(lanes, units)
        shown = {
            "actors": Ragged(np.tile(np.arange(units), lanes), counts),
            "mask": Ragged(np.ones((lanes * units, 2), np.int8), counts),
        }
        seen = {
            "units": {"Unit": Ragged(np.full((lanes * units, 2), 0.5, np.float32), counts)},
            "actions": {"Move": shown},
        }
        leaves = flatten(space, seen)
        self.nbytes = sum(leaf.values.nbytes + leaf.lengths.nbytes for leaf in leaves) // lanes  # of one observation
        yes, no = np.ones((lanes, 1), np.bool_), np.zeros((lanes, 1), np.bool_)
        self._begin = Frame([seen], yes, (None,))
        self._goes_on = Step(self._begin, np.zeros((lanes, 1)), no, no)

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """All lanes begin together, and never end."""
        return self._begin

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; ignores the actions."""
        return self._goes_on

    def render(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def adapted(*, lanes: int, make: str, kwargs: Mapping[str, Any] | None = None) -> BatchedEnv:
    """A game of any interface, by its name in a configuration."""
    return registry.adapt_environment(make, kwargs or {}, lanes)


class Clocked:
    """A natively batched game with a clock, which notes the time of its ticks.

    Args:
        lanes: games that step together.
        game: the game's class, or a function that makes it, as `package.module:Class`.
        kwargs: for the game.
        notes: the folder for the stamps, written when the game is closed.
        every: ticks between two stamps.
        score: also note when entity 0 has won `GOAL` of the last `RECENT` episodes.
    """

    batched = True

    def __init__(
        self,
        *,
        lanes: int,
        game: str,
        kwargs: Mapping[str, Any] | None = None,
        notes: str | None = None,
        every: int = 1,
        score: bool = False,
    ) -> None:
        module, _, name = game.partition(":")
        self._game: BatchedEnv = getattr(importlib.import_module(module), name)(lanes=lanes, **(kwargs or {}))
        self.lanes, self.interface = lanes, self._game.interface
        self.reset, self.render = self._game.reset, self._game.render
        self._stamps = Stamps(notes, every=every)
        self._wins: deque[bool] | None = deque(maxlen=RECENT) if score else None

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick of the game."""
        step = self._game.step(actions)
        if self._wins is not None:
            self._score(step)
        self._stamps.add()
        return step

    def _score(self, step: Step) -> None:
        assert self._wins is not None
        ended = step.terminated[:, 0] | step.truncated[:, 0]
        if ended.any():
            self._wins.extend((step.rewards[ended, 0] > 0).tolist())
            if len(self._wins) == RECENT and sum(self._wins) >= GOAL * RECENT:
                self._stamps.goal()

    def close(self) -> None:
        """Closes the game and writes the stamps."""
        self._game.close()
        self._stamps.write()


class Transition(NamedTuple):
    """One tick of all lanes as blue sees it."""

    observations: NDArray[np.float32]  # [L, 4], of the next episode where one has ended
    rewards: NDArray[np.float64]  # [L]
    terminated: NDArray[np.bool_]  # [L]
    truncated: NDArray[np.bool_]  # [L]
    final: NDArray[np.float32]  # [L, 4], the last one before the reset


class VersusRandom:
    """Touchdown 1v1 in this process: blue is played from outside, red moves at random.

    Args:
        lanes: games that step together.
        seed: of the game and of red.
        notes: the folder for the stamps.
        every: ticks between two stamps.
    """

    def __init__(self, *, lanes: int, seed: int, notes: str | None = None, every: int = 1) -> None:
        self.lanes = lanes
        self._game = Clocked(lanes=lanes, game="envs.touchdown:Touchdown", notes=notes, every=every, score=True)
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self.observation_space = self._game.interface.observation_spaces[0]
        self.action_space = self._game.interface.action_spaces[0]

    def reset(self) -> NDArray[np.float32]:
        """Begins an episode in every lane; returns blue's observations, [L, 4]."""
        seeds = np.random.SeedSequence(self._seed).generate_state(self.lanes).tolist()
        return np.asarray(self._game.reset(np.ones(self.lanes, np.bool_), seeds).observations[0])

    def step(self, actions: NDArray[np.int64]) -> Transition:
        """One tick; lanes that end begin anew at once."""
        red = self._rng.integers(0, 5, self.lanes)
        step = self._game.step([actions, red])
        terminated, truncated = step.terminated[:, 0], step.truncated[:, 0]
        seen = final = np.asarray(step.frame.observations[0])
        over = terminated | truncated
        if over.any():
            begun = np.asarray(self._game.reset(over).observations[0])
            seen = np.where(over[:, None], begun, final)
        return Transition(seen, step.rewards[:, 0], terminated, truncated, final)

    def close(self) -> None:
        """Writes the stamps."""
        self._game.close()
