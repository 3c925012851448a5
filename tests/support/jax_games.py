"""Games in JAX: one in the form of Gymnax, and some whose functions are not pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Place(NamedTuple):
    x: Any
    ticks: Any


class Params(NamedTuple):
    goal: float = 5.0
    limit: int = 12


class Line:
    """A point on a line; the actions move it by -1, 0 and 1 and noise; it ends beyond the goal, or at the limit."""

    default_params = Params()
    noise = True

    def action_space(self, params: Params) -> Any:
        return SimpleNamespace(n=3, shape=(), dtype=jnp.int32)

    def reset_env(self, key: Any, params: Params) -> tuple[Any, Place]:
        place = Place(jax.random.uniform(key), jnp.int32(0))
        return self.seen(place), place

    def step_env(self, key: Any, state: Place, action: Any, params: Params) -> tuple[Any, Place, Any, Any, Any]:
        noise = jax.random.uniform(key) if self.noise else 0.0
        state = Place(state.x + (action - 1) + noise, state.ticks + 1)
        return self.seen(state), state, state.x, jnp.abs(state.x) > params.goal, {}

    def is_truncated(self, state: Place, params: Params) -> Any:
        return state.ticks >= params.limit

    def seen(self, state: Place) -> Any:
        return jnp.stack([state.x, state.ticks.astype(jnp.float32)])


class FromOutside(Line):
    """Draws from NumPy."""

    def seen(self, state: Place) -> Any:
        return super().seen(state) + np.random.rand(2)


class Counting(Line):
    """Counts its calls."""

    count = 0

    def seen(self, state: Place) -> Any:
        self.count += 1
        return super().seen(state) + self.count


class Keeping(Line):
    """Keeps a value of its state in the object."""

    def seen(self, state: Place) -> Any:
        self.last = state.x
        return super().seen(state)


class Printing(Line):
    """Calls the host."""

    def seen(self, state: Place) -> Any:
        jax.debug.callback(lambda x: None, state.x)
        return super().seen(state)


class Branching(Line):
    """Decides in Python."""

    def step_env(self, key: Any, state: Place, action: Any, params: Params) -> Any:
        return super().step_env(key, state, action if state.x > 0 else 0, params)


class Growing(Line):
    """Its state has another dtype after a step."""

    def step_env(self, key: Any, state: Place, action: Any, params: Params) -> Any:
        observation, place, *ends = super().step_env(key, state, action, params)
        return observation, place._replace(ticks=place.ticks.astype(jnp.float32)), *ends


def with_params(goal: float) -> tuple[Line, Params]:
    """As Gymnax makes it."""
    return Line(), Params(goal=goal)
