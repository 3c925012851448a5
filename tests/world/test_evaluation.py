"""Evaluation during training: it is played and recorded, and does not change the training."""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.cli.train_run import TrainRun
from arena.config import parse_config
from arena.errors import ConfigError
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.lock import RunLock
from arena.run import evaluation as evaluating
from arena.run import lead, loop
from arena.run.evaluate import evaluate
from arena.run.prepare import prepare
from in_process import one_match

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
LEARNER = {"algorithm": "learners:LearnerWithActor"}
RANDOM = {"algorithm": "random"}
STILL = {"algorithm": "scripted", "options": {"action": 0}}
EVALUATION = {"every": 40, "episodes": 6}


def duel(evaluation: Mapping[str, Any] | None = EVALUATION, *, ticks: int = 100, **changes: Any) -> dict[str, Any]:
    """A learner against random actions, in legs of 20 ticks."""
    game, policies = {"make": "touchdown", "kwargs": {"max_steps": 15}}, {"blue": LEARNER, "red": RANDOM}
    given = {"name": "duel", "seed": 5, "checkpoint_every": 20, "match": {"lanes": 2, "copies": 2}}
    return one_match(game, policies, ticks=ticks, evaluation=evaluation, **given) | changes


def train(data: Mapping[str, Any], path: Path, *, resume: bool = False, code: int = 0) -> RunFolder:
    """Plays and prints as `arena train`, to the exit status `code`; what is left."""
    run = prepare(parse_config(data, source="test"), ranks=1, run_dir=str(path), resume=resume)
    assert loop.run_single_process(run, TrainRun(argparse.Namespace()).present) == code
    return run.folder


def weights(folder: RunFolder) -> bytes:
    return checkpoint.list_checkpoints(folder.checkpoints_path("blue"))[-1].read_bytes()


def lines(folder: RunFolder) -> list[dict[str, Any]]:
    return list(JournalReader(folder.evaluations))


def test_each_policy_has_a_line_per_interval_and_at_the_end(tmp_path: Path) -> None:
    folder = train(duel(), tmp_path / "run")
    found = lines(folder)
    assert [(line["ticks"], line["policy"]) for line in found] == [
        (tick, name) for tick in (40, 80, 100) for name in ("blue", "red")
    ]
    assert all(line["episodes"] == 6 for line in found)
    for line in found:
        assert line["wins"] + line["draws"] + line["losses"] == pytest.approx(1)
    for blue, red in zip(found[::2], found[1::2], strict=True):
        assert blue["return"] == -red["return"]


def test_evaluation_does_not_change_the_training(tmp_path: Path) -> None:
    """Also that of a game which draws from the global streams."""
    changes = {
        "envs": {"game": {"make": "games:RandomRewards"}, "duel": duel()["envs"]["game"]},
        "matches": [
            {"env": "duel", "seats": ["blue", "red"], "lanes": 2},
            {"env": "game", "seats": ["solo"], "lanes": 2},
        ],
        "policies": {"blue": LEARNER, "red": RANDOM, "solo": LEARNER},
    }
    evaluation = {"every": 20, "episodes": 10}
    without = train(duel(None, **changes), tmp_path / "without")
    evaluated = train(duel(evaluation, **changes), tmp_path / "evaluated")
    solo = [line["seats"][0]["return"] for line in JournalReader(without.episodes) if line["env"] == "game"]
    assert len({*solo}) > 3
    assert evaluated.episodes.read_bytes() == without.episodes.read_bytes()
    assert weights(evaluated) == weights(without)


def test_evaluation_only_policies_appear_only_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = {"blue": LEARNER, "red": RANDOM, "still": STILL}
    folder = train(duel({**EVALUATION, "seats": ["blue", "still"]}, policies=policies), tmp_path / "run")
    progress, _, rest = capsys.readouterr().out.partition("\nrun folder: ")
    assert {line["policy"] for line in lines(folder)} == {"blue", "still"}
    told = [line for line in [*progress.splitlines(), *rest.splitlines()] if "evaluation of" not in line]
    assert not any("still" in line for line in told)
    assert any(line.startswith("red ") for line in told)


@pytest.mark.parametrize("tick", [40, 100], ids=["the first", "the last"])
def test_interrupted_evaluation_is_played_on_resume(tick: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(duel(), tmp_path / "whole")
    keep = evaluating.evaluations.keep

    def killed(folder: RunFolder, at: int, *rest: Any) -> None:
        if at == tick:
            raise RuntimeError("killed")
        keep(folder, at, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(evaluating.evaluations, "keep", killed)
        folder = train(duel(), tmp_path / "run", code=1)
        assert tick not in evaluating.evaluations.evaluated(folder)
    folder = train(duel(), tmp_path / "run", resume=True)
    assert folder.evaluations.read_bytes() == whole.evaluations.read_bytes()
    assert folder.episodes.read_bytes() == whole.episodes.read_bytes()
    assert weights(folder) == weights(whole)


def test_evaluation_after_resume_drops_later_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(duel(), tmp_path / "whole")
    save = boundary.save

    def killed(folder: RunFolder, found: boundary.Boundary) -> None:
        if found.tick > 40:
            raise RuntimeError("killed")
        save(folder, found)

    with monkeypatch.context() as patched:
        patched.setattr(boundary, "save", killed)
        train(duel(None), tmp_path / "run", code=1)  # in the leg after tick 40, of which there are records
    folder = train(duel(), tmp_path / "run", resume=True)
    updates = [line["update"] for line in JournalReader(folder.metrics)]
    assert updates == [line["update"] for line in JournalReader(whole.metrics)]
    assert folder.episodes.read_bytes() == whole.episodes.read_bytes()
    assert "every: 40" in folder.config.read_text()


def test_folder_is_locked_during_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    played = lead.play_legs

    def watched(scheduler: Any, roles: Any, run: Any, *given: Any) -> Any:
        if "evaluations" in str(run.path):
            with pytest.raises(ConfigError) as caught:
                RunLock.take(tmp_path / "run")
            held.append(str(caught.value))
        return played(scheduler, roles, run, *given)

    monkeypatch.setattr(lead, "play_legs", watched)
    train(duel(), tmp_path / "run")
    assert len(held) == 3
    assert all("another run writes into this folder" in words for words in held)


def test_a_signal_during_an_evaluation_ends_the_run_at_its_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(duel(), tmp_path / "whole")
    prepared = evaluating.prepare

    def signaled(*given: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return prepared(*given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(evaluating, "prepare", signaled)
        folder = train(duel(), tmp_path / "run", code=143)
    assert "stopped at tick 40" in capsys.readouterr().err
    assert not folder.evaluations.exists()
    train(duel(), tmp_path / "run", resume=True)
    assert folder.evaluations.read_bytes() == whole.evaluations.read_bytes()
    assert weights(folder) == weights(whole)


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        ({"every": 30}, "set a multiple of it, or `checkpoint_every: 30`"),
        ({"every": 40, "seats": ["blue", "rde"]}, "did you mean 'red'"),
        ({"every": 40, "seats": ["blue"]}, "play 1 entities, matches[0] has 2"),
    ],
)
def test_impossible_combinations_are_refused(evaluation: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(duel(evaluation), source="test")
    assert words in str(caught.value)
    assert "evaluation" in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [("workers:Uniform", "an algorithm needs actor()"), ("workers:ActorWithoutState", "has no state_dict()")],
)
def test_unsavable_policies_cannot_be_evaluated(
    algorithm: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = {"blue": {"algorithm": algorithm}, "red": RANDOM}
    folder = train(duel(policies=policies), tmp_path / "run", code=2)
    assert words in capsys.readouterr().err
    assert not folder.path.exists()


YARDSTICK = {"algorithm": "dqn", "frozen": True}
ONE_LANE = {"algorithm": "workers:GymActorWithoutState"}
NUMBERS = {"make": "touchdown", "kwargs": {"max_steps": 15, "red_actions": "continuous"}}
PICTURES = {"make": "touchdown", "kwargs": {"max_steps": 15, "red_obs": "image"}}


@pytest.mark.parametrize(
    ("command", "policies", "game", "seats", "words"),
    [
        *(
            (command, {}, PICTURES, ["red", "blue"], r"evaluation\.seats\[1\]: policy 'blue'[^:]*: observes")
            for command in ("plan", "check", "train")
        ),
        ("check", {"other": YARDSTICK}, NUMBERS, ["blue", "other"], "DQN needs a value for every action"),
        ("check", {"other": ONE_LANE}, PICTURES, ["blue", "other"], "the seat cannot give the face"),
    ],
)
def test_unfit_evaluation_seat_is_refused_before_training(
    command: str,
    policies: dict[str, Any],
    game: Any,
    seats: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"policies": {"blue": PPO, "red": RANDOM, **policies}, "envs": {"game": game}}
    Path("duel.yaml").write_text(yaml.safe_dump(duel({**EVALUATION, "seats": seats}, **changes)))
    assert main([command, "duel.yaml", *(["--ranks", "1"] if command == "train" else [])]) == 2
    assert re.search(words, capsys.readouterr().err)
    assert not list(Path("runs").glob("*")), "nothing is left of it"


def test_a_checkpoint_that_does_not_fit_an_evaluation_seat_is_refused(tmp_path: Path) -> None:
    policies = {"blue": PPO, "red": RANDOM}
    learned = train(duel(None, ticks=20, policies=policies), tmp_path / "learned").checkpoints_path("blue")
    larger = {**PPO, "options": {**PPO["options"], "hidden_sizes": [9]}, "frozen": True, "load": str(learned)}
    with pytest.raises(ConfigError, match=r"policies\.old\.load: "):
        train(duel({**EVALUATION, "seats": ["blue", "old"]}, policies=policies | {"old": larger}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluate_prints_what_the_game_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    still = {"algorithm": "scripted", "options": {"action": 1}}
    data = {"name": "test", **one_match({"make": "games:WithMetrics"}, {"still": still}, ticks=20)}
    Path("run.yaml").write_text(yaml.safe_dump(data))
    assert main(["evaluate", "run.yaml", "--episodes", "6"]) == 0
    # In episodes 2, 4 and 6 their number + 1: the mean 5, and the t-interval 4.303 * 2 / sqrt(3).
    assert "score of still: 5 +- 5 in 3 episodes\n" in capsys.readouterr().out
    assert [row["metrics/score"] for row in evaluate("run.yaml", 6)] == [5.0]


def test_metrics_of_an_evaluation_are_those_of_each_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = {name: {"algorithm": "random"} for name in ("even", "odd")}
    data = {"name": "test", **one_match({"make": "games:MeteredSeats"}, policies, ticks=20)}
    data["matches"] = [{"env": "game", "seats": ["even", "odd", "even"]}]
    Path("run.yaml").write_text(yaml.safe_dump(data))
    # Entity i measures i: the seats of `even` 0 and 2, the seat of `odd` 1, and `last` is measured by entity 2 alone.
    rows = evaluate("run.yaml", 4)
    assert [(row["policy"], row["metrics/place"], row["metrics/last"]) for row in rows] == [
        ("even", 1.0, 1.0),
        ("odd", 1.0, None),
    ]
    data["matches"] = [{"env": "game", "seats": ["even", "even", "odd"]}]
    Path("run.yaml").write_text(yaml.safe_dump(data))
    assert [row["metrics/place"] for row in evaluate("run.yaml", 4)] == [0.5, 2.0]
    assert main(["evaluate", "run.yaml", "--episodes", "4"]) == 0
    out = capsys.readouterr().out
    assert "place of even: 0.5 in each of 4 episodes\nplace of odd: 2 in each of 4 episodes\n" in out


def test_a_metric_of_zeros_and_ones_has_the_interval_of_a_share() -> None:
    assert (
        evaluating.measured_text("met", [1.0] * 112) == "met: 1 [0.967, 1] in 112 episodes"
    )  # Wilson: 1 / (1 + 1.96^2 / 112)
    assert evaluating.measured_text("met", [1.0, 2.0, 3.0]) == "met: 2 +- 2.5 in 3 episodes"  # 4.303 / sqrt(3)
    assert evaluating.measured_text("met", [2.0]) == "met: 2 in 1 episode"
