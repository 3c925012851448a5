"""Policies of units in whole runs: imitation of recorded play, without a barrier, loaded after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from arena.cli.main import main
from arena.records import checkpoint
from arena.serving import load_policy
from in_process import one_match, play

SKIRMISH = {"make": "skirmish", "kwargs": {"max_steps": 20, "team_size": 3}}
SMALL = {"d_model": 16, "layers": 1}


def duel(blue: Any, red: Any, *, ticks: int = 60, lanes: int = 8, copies: int = 1, **more: Any) -> dict[str, Any]:
    policies, match = {"blue": blue, "red": red}, {"lanes": lanes, "copies": copies}
    return one_match(SKIRMISH, policies, ticks=ticks, seed=3, match=match, **more)


FOCUS = {"algorithm": "scripted", "options": {"function": "policies.scripts:focus"}}
RANDOM = {"algorithm": "random"}


def ppo(**policy: Any) -> dict[str, Any]:
    options = {"n_steps": 15, "minibatch_size": 64, "n_epochs": 2, "transformer": SMALL}
    return {"algorithm": "ppo", "options": options, **policy}


def cloning(data: Path, **policy: Any) -> dict[str, Any]:
    options = {"data": str(data), "policy": "blue", "train_every": 10, "gradient_steps": 40, "learning_rate": 3e-3}
    return {"algorithm": "bc", "options": {**options, "transformer": SMALL}, **policy}


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["gradients", pytest.param("samples", marks=pytest.mark.long)])
def test_a_script_of_units_is_imitated(sync: str, tmp_path: Path) -> None:
    data = play({**duel(FOCUS, RANDOM, ticks=80), "record": "samples"}, tmp_path).folder.path
    learned = play(duel(cloning(data, sync=sync), RANDOM, ticks=60, lanes=2, copies=2), tmp_path)
    losses = [line["loss"] for line in learned.updates]
    agreements = [line["agreement"] for line in learned.updates]
    assert losses[-1] < 0.7 * losses[0]
    assert agreements[-1] > max(0.6, agreements[0])
    assert all(
        1.0 <= line["decisions"] <= 3.0 and line["decisions"] <= line["units"] <= 6.0 for line in learned.updates
    )


def test_samples_are_pooled_without_a_barrier(tmp_path: Path) -> None:
    played = play(duel(ppo(sync="samples", max_lag=2), RANDOM, copies=2), tmp_path)
    assert len(played.updates) >= 2
    for line in played.updates:
        assert np.isfinite([line[name] for name in ("policy_loss", "approx_kl", "entropy", "units", "decisions")]).all()
        assert 1.0 <= line["decisions"] <= 3.0
        assert line["decisions"] <= line["units"] <= 6.0


def test_a_loaded_policy_answers_as_it_has_learned(tmp_path: Path) -> None:
    played = play(duel(ppo(), RANDOM, ticks=30), tmp_path)
    policy = load_policy(f"{played.folder.path}:blue")
    space = policy.observation_space
    space.seed(1)
    for _ in range(20):
        sample = space.sample()
        action = policy.act(sample)
        for name, shown in sample["actions"].items():
            assert len(action[name]) == len(shown["actors"])
            limit = len(shown["actees"]) if "actees" in shown else 5
            assert ((action[name] >= 0) & (action[name] < limit)).all()


@pytest.mark.parametrize(
    ("game", "width", "message"),
    [
        (SKIRMISH, 32, "policies.blue.load: {path}: the stored weights do not fit this network: they were learned with "
         "options.transformer.d_model: 16, here it is 32"),
        ({"make": "minesweeper"}, 16, "number 0 of types was 'Own', here it is 'Mine'"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_does_not_fit_is_refused_before_the_run(
    game: Any, width: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = play(duel(ppo(), RANDOM, ticks=15), tmp_path).folder
    policy = ppo(load=str(run.path))
    policy["options"]["transformer"] = {**SMALL, "d_model": width}
    seats = ["blue", "blue"] if game is SKIRMISH else ["blue"]
    config = {"envs": {"game": game}, "policies": {"blue": policy}, "matches": [{"env": "game", "seats": seats}]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"name": "test", "ticks": 15, "seed": 1, **config}))
    assert main(["check", str(tmp_path / "config.yaml")]) == 2
    found = checkpoint.find(str(run.path), "blue")
    assert message.format(path=found) in capsys.readouterr().err
