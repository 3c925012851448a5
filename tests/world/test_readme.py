"""What the README shows is what happens."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest
import yaml

import readme
from arena.cli.main import main
from arena.records.journal import JournalReader
from working_folder import visiting

ERRORS = {
    "an unknown key": ["touchdown_2v2.yaml", "--set", "matches[0].lane=4"],
    "an empty seat": ["touchdown_2v2.yaml", "--set", "matches[0].seats=[blue, blue, red]"],
    "a face that the seat cannot give": ["my_match.yaml", "--set", "matches[0].lanes=2"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the README's files and a configuration of ours."""
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copy(readme.ROOT / "configs" / "touchdown_2v2.yaml", tmp_path)
    return tmp_path


def test_the_worker_of_ones_own_has_at_most_twenty_lines() -> None:
    (worker,) = [node for node in ast.parse(readme.files()["my_worker.py"]).body if isinstance(node, ast.ClassDef)]
    assert worker.end_lineno is not None
    assert worker.end_lineno - worker.lineno + 1 <= 20


def test_the_worker_of_ones_own_learns(folder: Path) -> None:
    with visiting(folder):
        assert main(["train", "my_match.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    returns = [line["seats"][0]["return"] for line in JournalReader(folder / "run" / "episodes.jsonl")]
    assert sum(returns[:20]) / 20 <= 5.0
    assert sum(returns[-100:]) / 100 >= 8.0  # 10 are possible, 9 with a tenth of random actions


def test_the_callback_ends_the_run_of_that_worker(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (callbacks,) = [yaml.safe_load(body)["callbacks"] for body in readme.blocks("yaml") if body.startswith("callbacks")]
    with visiting(folder):
        assert main(["train", "my_match.yaml", "--ranks", "1", "--set", f"callbacks=[{json.dumps(callbacks[0])}]"]) == 0
    assert "asked to stop by callback my_callbacks:StopWhenGood" in "".join(capsys.readouterr())


@pytest.mark.filterwarnings("ignore")
def test_the_worker_around_another_library_runs(folder: Path) -> None:
    options = {"blue": {"algorithm": "PPO", "n_steps": 64}, "red": {"algorithm": "DQN", "learning_starts": 20}}
    match = {
        "ticks": 150,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 40}}},
        "policies": {
            name: {"algorithm": "sb3_worker:StableBaselines", "options": given} for name, given in options.items()
        },
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
    }
    (folder / "match.yaml").write_text(yaml.safe_dump(match))
    with visiting(folder):
        assert main(["train", "match.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    lengths = [line["length"] for line in JournalReader(folder / "run" / "episodes.jsonl")]
    assert sum(lengths) > 100


def test_the_plan_of_the_example_is_the_one_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readme.ROOT)
    assert main(["plan", "configs/touchdown_2v2.yaml", "--ranks", "one_per_role"]) == 0
    assert capsys.readouterr().out.strip() in readme.TEXT


def test_the_packing_of_the_round_robin_is_the_one_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(readme.ROOT)
    assert main(["plan", "configs/round_robin_4x5.yaml", "--ranks", "3"]) == 0
    (packing,) = [part for part in capsys.readouterr().out.split("\n\n") if part.startswith("processes: ")]
    assert packing in readme.TEXT


def test_the_configuration_of_the_example_is_the_one_shown() -> None:
    shown = next(body for body in readme.blocks("yaml") if "touchdown" in body)
    real = yaml.safe_load((readme.ROOT / "configs" / "touchdown_2v2.yaml").read_text(encoding="utf-8"))
    without = {key: value for key, value in real.items() if key != "name"}
    for policy in without["policies"].values():
        policy.pop("color")
    assert yaml.safe_load(shown) == without


@pytest.mark.parametrize("mistake", ERRORS)
def test_a_mistake_is_told_in_the_words_shown(mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with visiting(folder):
        assert main(["plan", *ERRORS[mistake]]) == 2
    assert capsys.readouterr().err.strip() in readme.TEXT


def test_a_folder_that_is_taken_is_told_in_the_words_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runs" / "t").mkdir(parents=True)
    (folder / "runs" / "t" / "config.yaml").touch()
    with visiting(folder):
        assert main(["train", "touchdown_2v2.yaml", "--ranks", "1", "--run-dir", "runs/t"]) == 2
    assert capsys.readouterr().err.strip() in readme.TEXT
