"""Every configuration that the project ships is valid and runs; the examples learn what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.records.journal import JournalReader
from working_folder import working_directory

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ELSEWHERE = ("external", "shared_memory", "experiments", "imitate")  # tested in `test_external_examples.py` and others
EXAMPLES = CONFIGS / "examples"
SMALL = {
    "ppo": "n_steps=8",
    "losses:SimplePPO": "n_steps=8",
    "sac": "learning_starts=4",
    "dqn": "learning_starts=4",
    "qmix": "learning_starts=4",
}  # so that 20 ticks are enough to learn something
ROUNDS = 2  # of a league
LEARNED = {
    "gym": ("learner", 0.9),
    "vector": ("learner", 150.0),
    "parallel": ("team", 7.4),
    "list_game": ("hunter", 0.8),
    "own_loss": ("learner", 150.0),
    "memory": ("learner", 150.0),
    "logger": ("learner", 150.0),
    "curriculum": ("learner", 150.0),
    "dictionaries": ("buyer", 2.0),
    "units": ("pickers", 1.1),
}

FILES = sorted(
    file for file in CONFIGS.rglob("*.yaml") if not any(word in str(file.relative_to(CONFIGS)) for word in ELSEWHERE)
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pygame", "ignore::UserWarning:pygame")


def test_there_are_configurations_to_test() -> None:
    assert len(FILES) >= 12
    assert set(LEARNED) == {path.parent.name for path in EXAMPLES.glob("*/match.yaml")} - {"external", "shared_memory"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIGS)))
def test_a_configuration_is_valid_and_trains(file: Path, tmp_path: Path) -> None:
    config = _read(file)
    algorithms = {name: policy["algorithm"] for name, policy in config["policies"].items()}
    learners = [name for name, algorithm in algorithms.items() if algorithm == "ppo"]
    small = [f"policies.{name}.options.{SMALL[given]}" for name, given in algorithms.items() if given in SMALL]
    small += [f"rounds={ROUNDS}"] if "rounds" in config else []
    run = tmp_path / "run"
    with working_directory(file.parent):
        assert main(["check", file.name]) == 0
        given = [part for change in small for part in ("--set", change)]
        assert main(["train", file.name, "--ranks", "1", "--ticks", "20", "--run-dir", str(run), *given]) == 0
    updates = [(line["policy"], line["ticks"]) for line in JournalReader(run / "metrics.jsonl")]
    assert {(name, ticks) for name in learners for ticks in (8, 16)} <= set(updates)
    if "rounds" in config:
        assert [line["round"] for line in JournalReader(run / "rounds.jsonl")] == list(range(ROUNDS))


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((CONFIGS / "experiments").glob("*.yaml")), ids=lambda file: file.name)
def test_an_experiment_is_valid(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with working_directory(CONFIGS.parent):
        assert main(["experiment", str(file), "--plan"]) == 0
    assert capsys.readouterr().out.startswith(f"{file.stem}: ")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in ("parallel", "units"))) for name in LEARNED]
)
def test_an_example_learns(name: str, tmp_path: Path) -> None:
    policy, expected = LEARNED[name]
    with working_directory(EXAMPLES / name):
        assert main(["train", "match.yaml", "--ranks", "1", "--run-dir", str(tmp_path / "run")]) == 0
    returns = [
        seat["return"]
        for line in JournalReader(tmp_path / "run" / "episodes.jsonl")
        for seat in line["seats"]
        if seat["policy"] == policy
    ]
    last = returns[-50:]
    assert sum(last) / len(last) >= expected > sum(returns[:20]) / 20


def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))
