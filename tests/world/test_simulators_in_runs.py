"""The example of a simulator in C, compiled here, in whole runs in one process."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena import Trainer
from arena.cli.main import main
from arena.external.shared_memory import Driver
from arena.records.journal import JournalReader
from in_process import one_match, play
from link_programs import command, environment
from working_folder import working_directory

PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "configs" / "examples" / "shared_memory"
FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pursuit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled game."""
    program = tmp_path_factory.mktemp("program") / "pursuit"
    subprocess.run(["cc", *FLAGS, "-o", str(program), "pursuit.c", "-lm"], cwd=EXAMPLE, check=True)
    return program


def config(pursuit: Path, folder: Path, **kwargs: Any) -> dict[str, Any]:
    command = [str(pursuit), "--worlds", "4", "--seed", "{seed}"]
    game = {"make": "shared_memory", "kwargs": {"command": command, "folder": str(folder), **kwargs}}
    policies = {"chaser": {"algorithm": "random"}, "runner": {"algorithm": "random"}}
    return one_match(game, policies, ticks=600, seed=3, checkpoint_every=250, match={"lanes": 8})


def told(episodes: list[dict[str, Any]]) -> list[Any]:
    """The results that must be equal in two runs of one seed."""
    return [(line["game"], line["lane"], line["tick"], line["length"], line["seats"]) for line in episodes]


def test_two_policies_play_a_c_simulator_reproducibly(pursuit: Path, tmp_path: Path) -> None:
    first, again = (play(config(pursuit, tmp_path), tmp_path / name) for name in ("first", "again"))
    assert told(first.episodes) == told(again.episodes)
    by_policy: dict[str, list[float]] = {"chaser": [], "runner": []}
    for line in first.episodes:
        (seat,) = line["seats"]
        assert line["game"].split("/")[1] == seat["policy"]
        by_policy[seat["policy"]].append(seat["return"])
    assert len(by_policy["chaser"]) == len(by_policy["runner"]) > 20
    assert sum(by_policy["chaser"]) == pytest.approx(-sum(by_policy["runner"])), "the game is zero-sum"
    (*_, last) = JournalReader(first.folder.games)
    (link,) = last["links"]
    assert (link["handovers"], link["starts"], link["changes"], link["lost"]) == (601, 1, 1, 0)
    assert not list(tmp_path.glob("mpi-policy-arena-*/*"))


def test_example_is_valid_and_declares_the_groups_of_the_program(
    pursuit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fake", "driver", "--handovers", "200", "--json", "--", str(pursuit), "--worlds", "8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["handovers"], found["faults"]) == (200, 0)
    assert found["groups"] == {
        "chaser": {"agents": 16, "observations": [[4]], "continuous": 2},
        "runner": {"agents": 16, "observations": [[4]], "branches": [5]},
    }
    written = (EXAMPLE / "config.yaml").read_text()
    assert "chaser: {agents: 16, observations: [[4]], continuous: 2}" in written
    assert "runner: {agents: 16, observations: [[4]], branches: [5]}" in written


def test_documented_commands_build_check_and_train_the_example(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / EXAMPLE.relative_to(PROJECT), ignore=shutil.ignore_patterns("pursuit"))
    subprocess.run(["make", "-C", str(folder)], check=True)
    with working_directory(tmp_path):
        file = "configs/examples/shared_memory/config.yaml"
        assert main(["check", file]) == 0
        small = [part for name in ("chaser", "runner") for part in ("--set", f"policies.{name}.options.n_steps=8")]
        assert main(["train", file, "--ranks", "1", "--ticks", "20", "--run-dir", "run", *small]) == 0
    updates = [(line["policy"], line["ticks"]) for line in JournalReader(tmp_path / "run" / "metrics.jsonl")]
    assert {(name, ticks) for name in ("chaser", "runner") for ticks in (8, 16)} <= set(updates)


def test_cartpole_through_a_file_is_valid_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    file = str(PROJECT / "configs" / "shared_memory_cartpole.yaml")
    with working_directory(tmp_path):
        assert main(["check", file]) == 0
        small = ["--set", "policies.learner.options.n_steps=32", "--set", "policies.learner.options.minibatch_size=64"]
        assert main(["train", file, "--ranks", "1", "--ticks", "40", "--run-dir", "run", *small]) == 0
    assert [line["ticks"] for line in JournalReader(tmp_path / "run" / "metrics.jsonl")][:1] == [32]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_through_a_file_is_learned(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    file = str(PROJECT / "configs" / "shared_memory_cartpole.yaml")
    assert main(["train", file, "--ranks", "1", "--run-dir", str(tmp_path / "run"), "--set", f"seed={seed}"]) == 0
    returns = [line["seats"][0]["return"] for line in JournalReader(tmp_path / "run" / "episodes.jsonl")]
    assert np.mean(returns[-20:]) >= 450


def test_the_plan_says_how_many_simulators_and_slots(
    pursuit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    groups = {
        "chaser": {"agents": 8, "observations": [[4]], "continuous": 2},
        "runner": {"agents": 8, "observations": [[4]], "branches": [5]},
    }
    file.write_text(json.dumps(config(pursuit, tmp_path, simulators=2, groups=groups)))
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "match 0: game (shared_memory, 2 simulators), 8 slots, 600 ticks: chaser runner\n" in said
    assert "\nup to 32 rows may come at once, and there are 8 slots: `lanes: 32` is enough; fewer are if" in said


def test_check_plays_some_hand_overs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    written = config(tmp_path / "unused", tmp_path)
    groups = {
        "walker": {"agents": 3, "observations": [[3], [2, 2]], "continuous": 2},
        "chooser": {"agents": 2, "observations": [[2], [1]], "branches": [3, 2]},
    }
    written["envs"]["game"]["kwargs"].update(command=command("killed"), environment=environment(), groups=groups)
    file.write_text(json.dumps(written))
    assert main(["check", str(file)]) == 2
    assert "was killed by SIGKILL after 5 hand-overs" in capsys.readouterr().err
    assert not list(tmp_path.glob("mpi-policy-arena-*/*"))


def test_a_change_of_a_trainer_starts_no_further_program(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    counted = ["sh", "-c", 'echo start >> "$0"; exec "$@"', str(starts), *command("plays")]
    game = {"make": "shared_memory", "kwargs": {"command": counted, "environment": environment()}}
    game["kwargs"]["folder"] = str(tmp_path)
    policies = {"walker": {"algorithm": "ppo", "options": {"n_steps": 8}}, "chooser": {"algorithm": "random"}}
    data = one_match(game, policies, ticks=400, seed=3, match={"lanes": 8})
    with Trainer({"name": "test", **data}, run_dir=tmp_path / "run", every=20) as trainer:
        trainer.train()
        begun = starts.read_text()
        trainer.change({"policies.walker.options.learning_rate": 0.002})
        trainer.train()
        assert starts.read_text() == begun


def test_current_file_is_found_by_the_name_of_the_first_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Driver(command("plays"), environment=environment(), folder=tmp_path) as driver:
        driver.reset()
        first = driver.first_path
        assert driver.path != first and not first.exists()
        assert main(["inspect", str(first)]) == 0
        path, *lines = capsys.readouterr().out.splitlines()
        assert path == str(driver.path)
        fields = dict(line.split("  ", 2)[1:] if "  " in line[6:] else (line, "") for line in map(str.strip, lines))
        assert not [name for name, value in fields.items() if not value]
        (spec, *_) = driver.groups.values()
        assert fields[f"{spec.name}.action size"] == str(spec.action_size)
        assert fields[f"{spec.name}.observation count"] == str(len(spec.observations))
    assert main(["inspect", str(first)]) == 2
    assert f"{first}: cannot be read: No such file" in capsys.readouterr().err


def test_a_file_is_shown_field_by_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = Path(__file__).parents[1] / "golden" / "shared_memory" / "g1_new.bin"
    assert main(["inspect", str(golden), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "length": 38, "version": 0, "turn": 1, "command": 1, "capacity": 20, "messages": [], "groups": []
    }  # fmt: skip
    assert main(["inspect", str(golden)]) == 0
    assert "turn      1 (the simulator's)" in capsys.readouterr().out
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x26\0\0\0\7\0\0\0" + golden.read_bytes()[8:])
    assert main(["inspect", str(damaged)]) == 2
    assert "byte 4: version: found 7, expected 0" in capsys.readouterr().err
