"""How a policy plays that does not learn: a function from what it sees to what it does, stepped through any face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

Actor = Callable[[Any, Any], Any]
"""Observations and infos in, actions out, in the form of the algorithm's face."""


def play(env: Any, actor: Actor) -> NoReturn:
    """Plays until the budget is used.

    Args:
        env: a proxy of any face. A vector environment begins new episodes by itself; a PettingZoo parallel environment
            is reset when nobody is left in it, a Gymnasium environment when its episode has ended.
        actor: what to do.

    Raises:
        BudgetReached: always, at the end.
    """
    batched, parallel = hasattr(env, "num_envs"), hasattr(env, "possible_agents")
    while True:
        observations, infos = env.reset()
        over = False
        while not over:
            observations, _, terminated, truncated, infos = env.step(actor(observations, infos))
            over = not batched and (not env.agents if parallel else terminated or truncated)
