"""Policies trained on a GPU: their weights, and the devices on which they play. Some tests need a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from arena.cli.main import main
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.run.api import untouched_process
from arena.serving import load_policy
from damaged_folders import without_checksums
from fakes import all_equal
from gpu import needs_cuda
from in_process import one_match, play
from policies.common.devices import device_of

DUEL = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 20}}
IMAGES = {"make": "touchdown", "kwargs": {**DUEL["kwargs"], "blue_obs": "image", "red_obs": "image"}}  # type: ignore[dict-item]
SKIRMISH = {"make": "skirmish", "kwargs": {"width": 6, "height": 5, "team_size": 2, "max_steps": 20}}
PPO = {"n_steps": 10, "minibatch_size": 32, "n_epochs": 2}
GAMES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "numbers": (DUEL, "ppo", PPO),
    "images": (IMAGES, "ppo", PPO),
    "memory": (DUEL, "ppo", {**PPO, "recurrent": "gru", "sequence_length": 4}),
    "units": (SKIRMISH, "ppo", {**PPO, "transformer": {"d_model": 16}}),
    "sac": ({"make": "gymnasium:Pendulum-v1"}, "sac", {"learning_starts": 40, "batch_size": 32}),
    "images, bf16, recorded": (IMAGES, "ppo", {**PPO, "precision": "bf16", "cuda_graphs": True}),
    "images, acting on the cpu": (IMAGES, "ppo", {**PPO, "device": {"act": "cpu", "learn": "cuda"}}),
    "dqn, images": (IMAGES, "dqn", {"learning_starts": 40, "batch_size": 16, "buffer_size": 500}),
    "a library's": ({"make": "gymnasium:CartPole-v1"}, "sb3:DQN", {"learning_starts": 40, "batch_size": 32}),
}


def learning(name: str, device: str) -> dict[str, Any]:
    """Two copies of one game; its second side, if there is one, plays at random."""
    game, algorithm, options = GAMES[name]
    sync = "samples" if "device" in options else "gradients"
    policies: dict[str, Any] = {
        "learner": {"algorithm": algorithm, "sync": sync, "options": {"device": device, **options}}
    }
    if not game["make"].startswith("gymnasium:"):
        policies["random"] = {"algorithm": "random"}
    return one_match(game, policies, ticks=80, checkpoint_every=40, match={"lanes": 4, "copies": 2})


@needs_cuda
@pytest.mark.parametrize("name", GAMES)
def test_run_resumed_on_a_gpu_equals_an_uninterrupted_one(tmp_path: Path, name: str) -> None:
    whole = play(learning(name, "cuda"), tmp_path, given=True).folder
    learned = checkpoint.load(whole.checkpoints_path("learner")).state
    assert not all_equal(checkpoint.load(checkpoint.path_of(whole.checkpoints_path("learner"), 0)).state, learned)
    shutil.copytree(whole.path, tmp_path / "parted" / "run")
    folder = RunFolder(tmp_path / "parted" / "run")
    (folder.boundaries / "000000000080.json").unlink()  # as if it had been killed just before that was written
    assert play(learning(name, "cuda"), tmp_path / "parted", resume=True).run.leg.start == 40
    assert all_equal(checkpoint.load(folder.checkpoints_path("learner")).state, learned)


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "mappo"])
def test_recorded_calls_on_a_gpu_give_the_bits_of_calls(tmp_path: Path, algorithm: str, precision: str) -> None:
    found = []
    for graphs in (False, True):
        options = {"n_steps": 10, "device": "cuda", "precision": precision, "cuda_graphs": graphs}
        game = {"make": "touchdown", "kwargs": {**IMAGES["kwargs"], "team_size": 2}}
        policies = {"learner": {"algorithm": algorithm, "options": options}, "random": {"algorithm": "random"}}
        seats = ["learner"] * 2 + ["random"] * 2
        config = one_match(game, policies, ticks=80, seats=seats, match={"lanes": 4})
        found.append(checkpoint.load(play(config, tmp_path).folder.checkpoints_path("learner")).state)
    assert all_equal(*found)


@pytest.mark.parametrize(
    "trained_on",
    [
        {"device": "cuda"},
        {"device": "cuda:1", "precision": "bf16", "deterministic": False, "cuda_graphs": True},
        {"device": {"act": "cpu", "learn": "cuda"}, "precision": "bf16"},
    ],
    ids=str,
)
def test_policy_trained_on_a_gpu_plays_on_a_machine_without_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trained_on: dict[str, Any],
) -> None:
    folder = play(learning("numbers", "cpu"), tmp_path).folder
    data = yaml.safe_load(folder.config.read_text())
    data["policies"]["learner"] |= {"sync": "samples"}
    data["policies"]["learner"]["options"] |= trained_on
    without_checksums(folder.path)
    folder.config.write_text(yaml.safe_dump(data))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    policy = load_policy(f"{folder.path}:learner")
    assert policy.act(np.zeros(policy.observation_space.shape, np.float32)) in policy.action_space
    for command in (
        ["evaluate", str(folder.path), "--episodes", "2"],
        ["tournament", str(folder.path), "--checkpoints", "first", "last", "--episodes", "8"],
        ["export", f"{folder.path}:learner", "--samples", "256"],
    ):
        assert main(command) == 0, command
    data["evaluation"] = {"every": 40, "episodes": 2}  # a policy that learns needs its device, also if it is evaluated
    (tmp_path / "anew.yaml").write_text(yaml.safe_dump(data))
    for command in (["check"], ["train", "--ranks", "1", "--run-dir", str(tmp_path / "anew")]):
        capsys.readouterr()
        assert main([*command, str(tmp_path / "anew.yaml")]) == 2
        assert "torch finds no CUDA device on this machine" in capsys.readouterr().err


def test_algorithm_settings_of_the_process_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with untouched_process():
        device_of("cuda")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()
