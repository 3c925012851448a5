"""How a policy plays that does not learn: its actor, stepped through whatever face it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

Actor = Callable[[Any, Any], Any]
"""Observations and infos in, actions out, in the form of the algorithm's face."""


def play(face: str, env: Any, actor: Actor) -> NoReturn:
    """Plays until the budget is used.

    Raises:
        BudgetReached: always, at the end.
    """
    while True:
        observations, infos = env.reset()
        over = False
        while not over:
            observations, _, terminated, truncated, infos = env.step(actor(observations, infos))
            # A vector environment begins the next episodes itself; the others say that they want to be reset.
            over = (face == "gym" and (terminated or truncated)) or (face == "parallel" and not env.agents)
