"""Learners with Dict actions in whole runs: recorded, resumed, evaluated, loaded again; refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.dataset.reader import open_dataset
from arena.records import checkpoint
from arena.serving import load_policy
from fakes import all_equal
from in_process import one_match, train

SMALL = {"n_steps": 8, "hidden_sizes": [8]}


def every_space(algorithm: str, *, ticks: int, **options: Any) -> dict[str, Any]:
    """A game with Dict observations and actions, in which one policy plays alone."""
    policies = {"p": {"algorithm": algorithm, "options": options}}
    more = {"checkpoint_every": 20, "record": "samples", "evaluation": {"every": 40, "episodes": 2}}
    return one_match({"make": "games:EverySpace"}, policies, ticks=ticks, match={"lanes": 3}, seed=2, **more)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("ppo", {"recurrent": "gru", "hidden_size": 4}), ("a2c", {"learning_rate_schedule": "constant"})],
)
def test_dict_actions_are_learned_recorded_and_resumed(algorithm: str, options: Any, tmp_path: Path) -> None:
    whole, parted = (
        [
            train(every_space(algorithm, ticks=ticks, **SMALL, **options), tmp_path / name, resume=resume)
            for ticks, resume in legs
        ]
        for name, legs in (("whole", [(40, False)]), ("parted", [(20, False), (40, True)]))
    )
    states = [checkpoint.load(folders[-1].checkpoints_path("p")).state for folders in (whole, parted)]
    assert states[0]["updates"] > 2
    assert all_equal(*states)
    assert whole[-1].episodes.read_bytes() == parted[-1].episodes.read_bytes()
    policy = load_policy(f"{whole[-1].path}:p")
    spaces = [match.entities[0].action_space for match in open_dataset(whole[-1].path).matches]
    for episode in open_dataset(whole[-1].path).episodes("p"):
        assert {*episode.actions} == {"move", "force"}
        assert np.isfinite(policy.log_prob(episode.observations, episode.actions, None)).all()
        policy.reset()
        acted = policy.act(episode.final_observation)
        assert spaces[0].contains(acted)


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "ddpg"])
def test_dict_actions_of_other_algorithms_are_refused(algorithm: str, tmp_path: Path, capfd: Any) -> None:
    train(every_space(algorithm, ticks=40), tmp_path / "run", code=2)
    assert "ppo and a2c take such actions" in " ".join(capfd.readouterr().err.split())
