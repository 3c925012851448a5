"""RLlib's example games through the arena's dictionaries, against RLlib's own loop with the same actions.

    .venv-peers/bin/python benchmarks/peer_rllib_games.py [EPISODES]

Prints a line per game, and fails if a return differs.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envs.adapters import adapt

_GAMES = {
    "rock_paper_scissors": ("rock_paper_scissors:RockPaperScissors", "config"),
    "tic_tac_toe": ("tic_tac_toe:TicTacToe", "config"),
    "two_step": ("two_step_game:TwoStepGame", "env_config"),
    "guess_the_number": ("guess_the_number_game:GuessTheNumberGame", "config"),
}
Returns = list[dict[str, float]]


def main() -> None:
    """Plays all games both ways."""
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, (target, argument) in _GAMES.items():
        module, _, cls = target.partition(":")
        package = "ray.rllib.examples.envs.classes.multi_agent"
        make = getattr(__import__(f"{package}.{module}", fromlist=[cls]), cls)
        known = own_loop(make(**{argument: {}}), episodes)
        found = through_dictionaries(lambda make=make, argument=argument: make(**{argument: {}}), episodes)
        same = known == found
        means = {agent: sum(one[agent] for one in known) / episodes for agent in known[0]}
        print(json.dumps({"game": name, "episodes": episodes, "same": same, "means": means}), flush=True)
        if not same:
            raise SystemExit(f"{name}: the returns differ")


def own_loop(env: Any, episodes: int) -> Returns:
    """The returns by agent, as RLlib's own runners collect them: an agent acts when its observation is there."""
    draw, returns = _drawer(), []
    random.seed(5)  # TicTacToe draws who begins
    for episode in range(episodes):
        observations, _ = env.reset(seed=None if episode else 7)
        earned: dict[str, float] = {}
        over = False
        while not over:
            ordered = sorted(observations, key=str)
            actions = {agent: draw(_space_of(env, agent)) for agent in ordered}
            observations, rewards, terminateds, truncateds, _ = env.step(actions)
            for agent, reward in rewards.items():
                earned[str(agent)] = earned.get(str(agent), 0.0) + float(reward)
            over = bool(terminateds["__all__"] or truncateds.get("__all__", False))
        returns.append(earned)
    return returns


def through_dictionaries(make: Callable[[], Any], episodes: int) -> Returns:
    """The same through the arena's adapter."""
    env = adapt(make, {}, 1)
    names = env.interface.entities
    assert list(names) == sorted(names), "actions are drawn in the same order"
    draw, returns = _drawer(), []
    random.seed(5)
    for episode in range(episodes):
        frame = env.reset(np.ones(1, np.bool_), None if episode else [7])
        earned, ended = np.zeros(len(names)), np.zeros(len(names), np.bool_)
        while not ended.all():
            actions = [
                np.asarray(draw(space) if active else np.zeros(space.shape, space.dtype))[None]
                for space, active in zip(env.interface.action_spaces, frame.active[0], strict=True)
            ]
            frame, rewards, terminated, truncated = env.step(actions)
            earned += rewards[0]
            ended |= terminated[0] | truncated[0]
        returns.append(dict(zip(names, earned.tolist(), strict=True)))
    return returns


def _space_of(env: Any, agent: Any) -> Any:
    return env.action_spaces[agent] if env.action_spaces else env.action_space


def _drawer() -> Callable[[Any], Any]:
    stream = np.random.default_rng(3)
    return lambda space: stream.integers(space.nvec) if hasattr(space, "nvec") else np.int64(stream.integers(space.n))


if __name__ == "__main__":
    main()
