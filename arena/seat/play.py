"""Plays with a fixed policy, a function from observations to actions, through any face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

Actor = Callable[[Any, Any], Any]
"""A function from observations and infos to actions, in the form of the algorithm's face.

It may have a method `begin_episode()`, which is called before it sees the first observation of an episode; not on the
vector face, where each row has its own episodes and `infos` say where one has ended.
"""


def play(env: Any, actor: Actor) -> NoReturn:
    """Plays until the budget is used.

    Args:
        env: a proxy of any face. A vector environment resets itself; a PettingZoo parallel environment is reset when no
            agent is left, a Gymnasium environment when its episode has ended.
        actor: chooses the actions.

    Raises:
        BudgetReached: always, at the end.
    """
    batched, parallel = hasattr(env, "num_envs"), hasattr(env, "possible_agents")
    begin_episode = None if batched else getattr(actor, "begin_episode", None)
    if not callable(actor):
        raise TypeError(f"actor() returned {actor!r:.40}; it returns a function of observations and infos to actions")
    while True:
        observations, infos = env.reset()
        if begin_episode is not None:
            begin_episode()
        over = False
        while not over:
            observations, _, terminated, truncated, infos = env.step(actor(observations, infos))
            over = not batched and (not env.agents if parallel else terminated or truncated)
