"""`play` steps an actor through every face, episode after episode."""

from __future__ import annotations

from typing import Any

import pytest

from arena.errors import BudgetReached
from arena.seat.play import play


class Gym:
    """Ends every third step, now terminated, now truncated; the budget is 7 steps."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.steps = 0

    def reset(self) -> Any:
        self.calls.append("reset")
        return 0, {}

    def step(self, action: Any) -> Any:
        if self.steps == 7:
            raise BudgetReached
        self.steps += 1
        self.calls.append(f"step {action}")
        return self.steps, 0.0, self.steps == 3, self.steps == 6, {"seen": self.steps}


class Vector(Gym):
    """The same, as a vector environment that resets itself."""

    num_envs = 1


def actor(observation: Any, info: Any) -> Any:
    assert info.get("seen", 0) in (0, observation)
    return observation


def test_play_resets_a_gymnasium_environment_after_every_end() -> None:
    env = Gym()
    with pytest.raises(BudgetReached):
        play(env, actor)
    first, second = ["step 0", "step 1", "step 2"], ["step 0", "step 4", "step 5"]
    assert env.calls == ["reset", *first, "reset", *second, "reset", "step 0"]


def test_play_resets_a_vector_environment_once() -> None:
    env = Vector()
    with pytest.raises(BudgetReached):
        play(env, actor)
    assert env.calls == ["reset", *(f"step {number}" for number in range(7))]


class Remembers:
    """The actor of a recurrent model of another library: it needs to know when an episode begins."""

    def begin_episode(self) -> None:
        self.state: int | None = None

    def __call__(self, observation: Any, info: Any) -> int:
        self.state = 0 if self.state is None else self.state + 1
        return self.state


def test_play_tells_an_actor_when_an_episode_begins() -> None:
    env = Gym()
    with pytest.raises(BudgetReached):
        play(env, Remembers())
    steps = [f"step {state}" for state in (0, 1, 2)]
    assert env.calls == ["reset", *steps, "reset", *steps, "reset", "step 0"]
