"""Every algorithm of the registry acts in each of the ways that Python and a server have for its policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arena
from arena import Trainer, registry
from arena.config import load_config
from arena.game.spaces import row, stack
from arena.records.folder import RunFolder
from arena.serving.models import model_of
from arena.serving.policy import configured_policy
from in_process import one_match, train

ENTITIES = ("blue_0", "blue_1")
OPTIONS: dict[str, Any] = {
    **{"n_steps": 20, "minibatch_size": 20, "learning_starts": 20, "batch_size": 8, "buffer_size": 400},
    **{"gradient_steps": 4, "learning_rate": 0.01, "hidden_sizes": [8], "shared_actor": False},
    "action": 1,
}
CONTINUOUS = {"ddpg", "td3", "maddpg", "masac", "sb3:DDPG", "sb3:TD3", "sb3:SAC"}


def configuration(name: str, folder: Path, seats: list[Any], **options: Any) -> dict[str, Any]:
    """A short run in which `name` plays the two entities of `blue`."""
    known = registry.option_parameters(registry.algorithm(name)).names
    options |= {option: value for option, value in OPTIONS.items() if option in known}
    kinds = {"blue_actions": "continuous"} if name in CONTINUOUS else {}
    game = {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 20, **kinds}}
    if "data" in known:
        recorded = one_match(game, {"blue": {"algorithm": "random"}}, ticks=60, seats=seats, record="samples")
        options["data"] = str(train({**recorded, "seed": 1}, folder / "recorded").path)
    blue = {"algorithm": name, "options": options}
    red: Any = {"algorithm": "random"}
    return {"name": "test", **one_match(game, {"blue": blue, "red": red}, ticks=80, seats=seats, seed=1)}


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("seats", [[["blue", "blue"], ["red", "red"]], ["blue", "blue", "red", "red"]], ids=["1", "2"])
@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_every_algorithm_acts_in_every_way_as_in_its_run(name: str, seats: list[Any], tmp_path: Path) -> None:
    if package := registry.ALGORITHMS[name].package:
        pytest.importorskip(package)
    with Trainer(configuration(name, tmp_path, seats), run_dir=tmp_path / "run") as trainer:
        while not trainer.done:
            trainer.train()
        policy = arena.load_policy(f"{tmp_path / 'run'}:blue")
        policy.observation_space.seed(3)
        seen = [policy.observation_space.sample() for _ in ENTITIES]
        both = stack(policy.observation_space, seen)
        # As the run's own evaluations play: the algorithm's actor, with the rows of a whole seat.
        expected = policy.actor(2, greedy=True)(both, {})
        each = [row(policy.action_space, expected, place) for place in range(2)]
        run = RunFolder(tmp_path / "run")
        model = model_of(configured_policy(load_config(run.config), run, "blue"), 4, greedy=True)
        served, _ = model.act(np.array([3, 0]), both, None, np.zeros((2, model.memory_size), np.float32), None)
        ways = {
            "one by one": [policy.act(one, entity=place) for place, one in enumerate(seen)],
            "a batch of a team": policy.act(both),
            "a player": [trainer.policy("blue").act(one, entity=place) for place, one in enumerate(seen)],
            "Trainer.compute_action": [
                trainer.compute_action(one, policy="blue", entity=place) for place, one in enumerate(seen)
            ],
            "Trainer.compute_actions": [*trainer.compute_actions(dict(zip(ENTITIES, seen, strict=True))).values()],
        }
        for way, found in ways.items():
            for one in found:
                assert policy.action_space.contains(np.asarray(one, policy.action_space.dtype)[()]), way
            if name != "random":
                same(found, each)
        if name != "random":
            same(served, policy.act(stack(policy.observation_space, seen[::-1]))[::-1])
