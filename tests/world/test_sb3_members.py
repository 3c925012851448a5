"""Algorithms of Stable-Baselines3 in the whole arena: beside others, in groups, through legs, frozen and evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3

from arena import Trainer
from arena.config import parse_config
from arena.errors import ConfigError
from arena.preflight.examine import examine
from arena.records import boundary, checkpoint
from arena.roles.protocol import RoleFailed
from arena.run.planning import checked_plan
from in_process import Played, one_match, play
from policies.sb3.member import ARCHIVE

NET = {"policy_kwargs": {"net_arch": [16]}}
PPO: dict[str, Any] = {"algorithm": "sb3:PPO", "options": {"n_steps": 20, "batch_size": 40, "n_epochs": 2, **NET}}
A2C = {"algorithm": "sb3:A2C", "options": {"n_steps": 7, "log_every": 20, **NET}}
DQN = {"algorithm": "sb3:DQN", "options": {"learning_starts": 40, "buffer_size": 150, "train_freq": 3, **NET}}
SAC = {
    "algorithm": "sb3:SAC",
    "options": {"learning_starts": 20, "train_freq": 4, "buffer_size": 150, "batch_size": 16, **NET},
}
RANDOM = {"algorithm": "random"}


def league(*matches: Mapping[str, Any], make: Any = None, **policies: Any) -> dict[str, Any]:
    game = make or {"make": "touchdown", "kwargs": {"max_steps": 60}}
    entries = [{"env": "game", **match} for match in matches]
    return one_match(game, policies, ticks=120, seed=3, checkpoint_every=30, matches=entries)


def left_by(played: Played) -> dict[str, Any]:
    """All files that must not depend on where a run was interrupted."""
    folder = played.folder
    states = {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.checkpoints.rglob("*.ckpt")}
    updates = [json.dumps({**line, "seconds": 0}) for line in played.updates]  # as text: nan is equal to nan
    return {**states, "episodes": folder.episodes.read_bytes(), "updates": updates}


DUEL = {"seats": ["blue", "red"]}
PENDULUM = {"make": "gymnasium:Pendulum-v1"}
CASES = {
    "ppo and dqn": lambda: league({**DUEL, "lanes": 2, "copies": 2}, blue=PPO, red=DQN),
    "a2c, overlapped": lambda: league({**DUEL, "lanes": 4, "pipeline": 2}, blue=A2C, red=RANDOM),
    "sac": lambda: league({"seats": ["blue"], "lanes": 2, "copies": 2}, make=PENDULUM, blue=SAC),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] * (case != "ppo and dqn")) for case in CASES]
)
def test_killed_and_resumed_run_is_bit_equal(case: str, tmp_path: Path) -> None:
    data = CASES[case]()
    whole = play(data, tmp_path, given=True)
    expected = left_by(whole)
    assert {name for name in expected if name.endswith("120.ckpt")}
    assert whole.updates[-1]["ticks"] > 90, "it has learned to the end"
    boundary.discard_after(whole.folder, 60)
    again = play(data, tmp_path, resume=True)
    assert again.run.leg.start == 60
    assert left_by(again) == expected


def test_member_randomness_does_not_depend_on_placement(tmp_path: Path) -> None:
    """The numbers of its first update depend on its own streams, and on the actions of its opponents in the game."""
    solo = league({"seats": ["blue"], "lanes": 2}, make={"make": "gymnasium:CartPole-v1"}, blue=PPO)
    both = {**solo, "policies": {"blue": PPO, "red": DQN}}
    both["matches"] = [*solo["matches"], {"env": "game", "seats": ["red"], "lanes": 2}]
    alone, beside = (
        [{**line, "seconds": 0} for line in play(data, tmp_path).updates if line["policy"] == "blue"]
        for data in (solo, both)
    )
    assert len(alone) == 6
    assert json.dumps(alone) == json.dumps(beside)


def test_library_loads_a_checkpoint_and_plays_like_the_frozen_policy(tmp_path: Path) -> None:
    data = league({"seats": ["blue"], "lanes": 2}, make={"make": "gymnasium:CartPole-v1"}, blue=PPO)
    folder = play(data, tmp_path).folder.checkpoints_path("blue")
    (tmp_path / "blue.zip").write_bytes(checkpoint.load(folder).state[ARCHIVE].tobytes())
    model = stable_baselines3.PPO.load(tmp_path / "blue.zip", device="cpu")
    assert model.num_timesteps == 240
    held = model.policy.state_dict()
    frozen = league({"seats": ["blue"], "lanes": 2}, make={"make": "gymnasium:CartPole-v1"}, blue=PPO)
    frozen["policies"]["blue"] = {**PPO, "frozen": True, "load": str(folder)}
    assert len(play(frozen, tmp_path).episodes) > 2
    assert all(np.isfinite(value.numpy()).all() for value in held.values())


def test_trainer_takes_over_a_file_of_the_library(tmp_path: Path) -> None:
    """Its options make the file longer or shorter than the run's own."""
    library = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", **NET, n_steps=64, device="cpu", seed=5)
    library.learn(64).save(tmp_path / "model.zip")
    blue = {**PPO, "options": {**PPO["options"], "batch_size": 20}}
    data = league({"seats": ["blue"]}, make={"make": "gymnasium:CartPole-v1"}, blue=blue)
    with Trainer(data, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        state = {ARCHIVE: np.fromfile(tmp_path / "model.zip", np.uint8)}
        assert state[ARCHIVE].shape != trainer.state("blue")[ARCHIVE].shape
        trainer.set_state("blue", state)
        seen = np.linspace(-0.1, 0.1, 4, dtype=np.float32)
        assert trainer.compute_action(seen) == library.predict(seen, deterministic=True)[0]
        trainer.train()


@pytest.mark.long
def test_two_workers_learn_to_balance_a_pole(tmp_path: Path) -> None:
    line = {"learning_rate": {"start": 1e-3, "end": 0.0}, "clip_range": {"start": 0.2, "end": 0.0}}
    options = {"n_steps": 32, "batch_size": 128, "n_epochs": 10, "gae_lambda": 0.8, "gamma": 0.98, **line}
    blue = {"algorithm": "sb3:PPO", "options": options}
    cartpole = {"make": "gymnasium:CartPole-v1"}
    data = league({"seats": ["blue"], "lanes": 4, "copies": 2}, make=cartpole, blue=blue)
    episodes = play({**data, "ticks": 1200, "checkpoint_every": 1000}, tmp_path).episodes
    late = [episode["length"] for episode in episodes if episode["tick"] > 800]
    assert np.mean([episode["length"] for episode in episodes if episode["tick"] < 100]) < 40
    assert np.mean(late) > 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "sb3:PP0"}, r"policies\.blue\.algorithm: unknown algorithm 'sb3:PP0'; did you mean 'sb3:PPO'"),
        ({"options": {"gamma": 3}}, r"policies\.blue\.options\.gamma: found 3"),
        ({"options": {"n_steps": 500}}, r"options\.n_steps: a rollout of 500 ticks does not fit"),
        ({"algorithm": "sb3:SAC", "options": {}}, r"matches\[0\]\.seats\[0\]: .*SAC cannot play .*Box"),
    ],
)
def test_mistake_is_refused_before_play(change: dict[str, Any], message: str) -> None:
    data = league(DUEL, blue={**PPO, **change}, red=RANDOM)
    with pytest.raises(ConfigError, match=message):
        examine(checked_plan(parse_config({"name": "test", **data}, source="test"), ranks=None))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: league(DUEL, blue={**PPO, "sync": "samples"}, red=RANDOM), "blue.sync: got 'samples'"),
        (
            lambda: league({**DUEL, "lanes": 2}, make={"make": "games:Alternate"}, blue=PPO, red=RANDOM),
            "may not act on this tick, in a game with turns",
        ),
    ],
    ids=["samples", "turns"],
)
def test_unsupported_library_feature_ends_the_run(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(RoleFailed) as caught:
        play(data(), tmp_path)
    assert message in str(caught.value)
    assert caught.value.failure.exit_code == 2
