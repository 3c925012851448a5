"""Games that fail in a way and at a moment that the test chooses."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
from gymnasium import spaces

from games import Countdown, Dropout

FAULTS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {  # (observation, reward) -> their faulty replacements
    "nan reward": lambda seen, reward: (seen, float("nan")),
    "infinite reward": lambda seen, reward: (seen, float("inf")),
    "no reward": lambda seen, reward: (seen, None),
    "nan observation": lambda seen, reward: (seen * np.nan, reward),
    "infinite observation": lambda seen, reward: (seen - np.inf, reward),
    "other shape": lambda seen, reward: (np.zeros(2, np.float32), reward),
    "other dtype": lambda seen, reward: (seen + 1j, reward),
}


class Faulty(Countdown):
    """A countdown whose first instances fail once, by `fault`.

    Args:
        length: of the episodes; of several lanes one for each, in turn.
        fault: one of `FAULTS`; or `raise` and `exit`, in a step; `info`: one that cannot be pickled; `reset`, `make`:
            an exception there.
        at: in which step, or which reset, of the instance it fails; from 1.
        faulty: how many instances fail, or their numbers, from 1.
        close: whether closing them fails too.
    """

    made: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    seeds: ClassVar[list[int | None]] = []

    @classmethod
    def forget(cls) -> None:
        """Resets the counters of instances before a test."""
        cls.made, cls.closed, cls.seeds = 0, 0, []

    def __init__(
        self, length: Any = 5, fault: str = "raise", at: int = 7, faulty: Any = 1, close: bool = False
    ) -> None:
        lengths = length if isinstance(length, list) else [length]
        super().__init__(lengths[Faulty.made % len(lengths)])
        Faulty.made += 1
        self.fault, self.at, self.fails_to_close = fault, at, close
        self.faulty = Faulty.made in faulty if isinstance(faulty, list) else Faulty.made <= faulty
        self.steps = self.resets = 0
        if fault == "make" and self.faulty and Faulty.made == at:
            raise RuntimeError("the game cannot be made")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        Faulty.seeds.append(seed)
        if self.faulty and self.fault == "reset" and self.resets == self.at:
            raise RuntimeError("the game cannot be reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, *rest = super().step(action)
        if self.faulty and self.steps == self.at:
            if self.fault == "raise":
                raise RuntimeError("the game cannot be stepped")
            if self.fault == "exit":
                sys.exit(3)
            if self.fault == "info":
                rest[-1] = {"handle": lambda: self}
            if self.fault in FAULTS:
                observation, reward = FAULTS[self.fault](observation, reward)
        return observation, reward, *rest

    def close(self) -> None:
        Faulty.closed += 1
        if self.fails_to_close:
            raise RuntimeError("the game cannot be closed")


class InMemory(Countdown):
    """A countdown that counts its instances in memory."""

    alive: ClassVar[WeakSet[InMemory]] = WeakSet()
    counts: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__(5)
        gc.collect()
        self.alive.add(self)
        self.counts.append(len(self.alive))


_CHILD = """
import sys
for line in sys.stdin:
    print(int(line) + 1, flush=True)
"""


class External(Countdown):
    """A countdown whose reward is computed by another process, which is killed in its step `dies_at`, from 1."""

    def __init__(self, length: int = 5, dies_at: int = 7) -> None:
        super().__init__(length)
        self.child = subprocess.Popen(
            [sys.executable, "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.dies_at, self.steps = dies_at, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.dies_at:
            os.kill(self.child.pid, signal.SIGKILL)
            self.child.wait()
        observation, _, *rest = super().step(action)
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(f"{int(action)}\n")
        line = self.child.stdout.readline()
        if not line:
            raise EOFError("the simulator has gone")
        return observation, float(line), *rest

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the data is lost with its reader
                pipe.close()


class Transposed:
    """A natively batched game that gives the rewards of its two entities as [E, L] from its third step on."""

    batched = True

    def __init__(self, *, lanes: int) -> None:
        from arena.game.api import Interface

        self.lanes = lanes
        box = spaces.Box(-1, 1, (1,), np.float32)
        self.interface = Interface(("a", "b"), (box,) * 2, (spaces.Discrete(2),) * 2, (0, 0))
        self.steps = 0

    def frame(self) -> Any:
        from arena.game.api import Frame

        seen = np.zeros((2, self.lanes, 1), np.float32)
        return Frame(list(seen), np.ones((self.lanes, 2), np.bool_), (None, None))

    def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Any:
        return self.frame()

    def step(self, actions: Any) -> Any:
        from arena.game.api import Step

        self.steps += 1
        none = np.zeros((self.lanes, 2), np.bool_)
        rewards = np.zeros((self.lanes, 2)) if self.steps < 3 else np.zeros((2, self.lanes))
        return Step(self.frame(), rewards, none, none)

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None


class FaultyDropout(Dropout):
    """`Dropout` of which the first instance raises in its step `at`, from 1."""

    def __init__(self, at: int, lengths: tuple[int, ...] = (2, 4, 6)) -> None:
        super().__init__(lengths)
        Faulty.made += 1
        self.at, self.faulty = at, Faulty.made == 1

    def step(self, actions: dict[str, Any]) -> Any:
        if self.faulty and self.steps + 1 == self.at:
            raise RuntimeError("the game cannot be stepped")
        return super().step(actions)


class Sum(Countdown):
    """A countdown whose reward is the action, a number."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(0)
        return observation, float(action[0]), *rest


class OldStep(Countdown):
    """Its `step` gives four values, as before Gymnasium 0.26."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class Parts(Countdown):
    """It observes a Dict, of which a part is missing."""

    def __init__(self) -> None:
        super().__init__()
        part = self.observation_space
        self.observation_space: Any = spaces.Dict({"here": part, "there": part})

    def seen(self, observation: Any) -> Any:
        """What it shows."""
        return {"here": observation}

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        return self.seen(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return self.seen(observation), *rest


class Bare(Parts):
    """Likewise, without the Dict."""

    def seen(self, observation: Any) -> Any:
        return observation


class Objectives(Countdown):
    """Its reward has two parts."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, np.ones(2), terminated, truncated, info


class Outside(Countdown):
    """Observes what is not in its space after a step."""

    def step(self, action: Any) -> Any:
        observation, *others = super().step(action)
        return observation + 1000, *others


class SmallSeeds(Countdown):
    """Takes seeds below 2^31."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None and seed >= 2**31:
            raise OverflowError("too large")
        return super().reset(seed=seed)
