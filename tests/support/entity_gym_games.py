"""Plays the 13 example games of the package `entity-gym` by its own `EnvList` and by `ListEnv`; they must agree.

Run in an environment that has the package (`benchmarks/requirements-peers-units.txt`):

    python tests/support/entity_gym_games.py 200

Prints one line per game; the first difference ends the program with status 1.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from entity_gym.env import EnvList as TheirEnvList
from entity_gym.env import ObsSpace, SelectEntityActionSpace
from entity_gym.examples import ENV_REGISTRY
from ragged_buffer import RaggedBufferI64 as TheirRagged

from arena.entity_env import ListEnv
from arena.game.ragged import Ragged
from arena.testing import check_entity_env

ENVIRONMENTS = 8
GAMES: Mapping[str, Callable[[], Any]] = {
    **ENV_REGISTRY,
    "MineSweeper with a cannon": partial(ENV_REGISTRY["MineSweeper"], orbital_cannon=True, cooldown_period=0),
    "PickMatchingBalls of colors": partial(ENV_REGISTRY["PickMatchingBalls"], one_hot=True, randomize=True),
    "RockPaperScissors with cheat": partial(ENV_REGISTRY["RockPaperScissors"], cheat=True),
}
SHIFTED = "FloorIsLava"
"""Types without ids come before the actor's here: the package counts only units with ids, and gives another index."""


def seed() -> None:
    """Seeds the global random streams, from which the games draw."""
    random.seed(5)
    np.random.seed(5)


def as_rows(buffer: Any) -> list[Any]:
    """Rows of one of the package's buffers as nested lists."""
    ends = np.cumsum(buffer.size1())
    return [part.tolist() for part in np.split(buffer.as_array(), ends[:-1])] if len(ends) else []


def masks_of(vec_obs: Any, rows: Callable[[Any], Any]) -> dict[str, Any]:
    """The action masks of an observation, as nested lists."""
    return {
        name: {
            part: None if (found := getattr(mask, part, None)) is None else rows(found)
            for part in ("actors", "actees", "mask")
            if hasattr(mask, part)
        }
        for name, mask in vec_obs.action_masks.items()
    }


def as_lists(vec_obs: Any, rows: Callable[[Any], Any]) -> dict[str, Any]:
    """A `VecObs` of either kind as plain lists."""
    masks = masks_of(vec_obs, rows)
    for parts in masks.values():
        if "actees" in parts:
            parts.pop("mask", None)  # the package has none of Select
    return {
        "features": {name: rows(buffer) for name, buffer in vec_obs.features.items()},
        "visible": {name: rows(buffer) for name, buffer in vec_obs.visible.items()},
        "masks": masks,
        "reward": vec_obs.reward.tolist(),
        "done": vec_obs.done.tolist(),
    }


def drawn(seen: Mapping[str, Any], env: Any, rng: np.random.Generator) -> dict[str, list[list[int]]]:
    """Random allowed choices for every actor."""
    choices: dict[str, list[list[int]]] = {}
    for name, space in env.action_space().items():
        parts, choices[name] = seen["masks"][name], []
        for row, actors in enumerate(parts["actors"]):
            allowed: list[Any]
            if isinstance(space, SelectEntityActionSpace):
                allowed = [range(len(parts["actees"][row]))] * len(actors)
            elif parts["mask"] is None:
                allowed = [range(len(space))] * len(actors)
            else:
                allowed = [np.flatnonzero(mask) for mask in parts["mask"][row]]
            choices[name].append([int(rng.choice(one)) for one in allowed])
    return choices


def their_buffer(rows: list[list[int]]) -> Any:
    values = np.array([[number] for row in rows for number in row], np.int64).reshape(-1, 1)
    return TheirRagged.from_flattened(values, lengths=np.array([len(row) for row in rows], np.int64))


def play_theirs(make: Callable[[], Any], ticks: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """The observations of `EnvList`, and the choices made."""
    seed()
    rng = np.random.default_rng(1)
    env = TheirEnvList(make, ENVIRONMENTS)
    space: ObsSpace = env.obs_space()
    seen = [as_lists(env.reset(space), as_rows)]
    played = []
    for _ in range(ticks):
        choices = drawn(seen[-1], env, rng)
        played.append(choices)
        vec_obs = env.act({name: their_buffer(rows) for name, rows in choices.items()}, space)
        seen.append(as_lists(vec_obs, as_rows))
    return seen, played


def play_ours(make: Callable[[], Any], played: list[Any]) -> list[dict[str, Any]]:
    """The observations of `ListEnv` for the same choices."""
    seed()
    env = ListEnv(make, ENVIRONMENTS)
    seen = [as_lists(env.reset(), Ragged.tolist)]
    seen += [as_lists(env.act(choices), Ragged.tolist) for choices in played]
    return seen


def compare(name: str, theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Exits with status 1 at the first difference."""
    for tick, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if name == SHIFTED:
            wrong, right = (seen["masks"]["move"].pop("actors") for seen in (one, other))
            others = [len(lava) + 1 for lava in other["features"]["Lava"]]
            assert wrong == [[[0]]] * ENVIRONMENTS, wrong
            assert right == [[[count]] for count in others], right
        if one != other:
            parts = [key for key in one if one[key] != other[key]]
            sys.exit(f"{name}, tick {tick}: {parts[0]}: entity-gym {one[parts[0]]}, here {other[parts[0]]}")


def main() -> None:
    ticks = int(sys.argv[1])
    for name, make in GAMES.items():
        theirs, played = play_theirs(make, ticks)
        compare(name, theirs, play_ours(make, played))
        check_entity_env(make, ticks=ticks)
        ended = sum(sum(seen["done"]) for seen in theirs)
        print(f"{name}: {ticks} ticks, {ended} episodes, equal")


if __name__ == "__main__":
    main()
