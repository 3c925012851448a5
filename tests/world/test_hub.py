"""`arena export --hub`: a model card as the Hugging Face hub documents it, beside a run folder with one checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import arena
from arena.cli.main import main
from arena.config import yaml
from arena.errors import WriteError
from arena.serving import load_policy
from in_process import one_match, train

pytestmark = pytest.mark.slow
PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [16]}}
RANDOM = {"algorithm": "random"}
DUEL = one_match({"make": "touchdown"}, {"blue": PPO, "red": RANDOM}, ticks=40, match={"lanes": 4})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train({**DUEL, "seed": 5, "checkpoint_every": 20}, tmp_path_factory.mktemp("hub") / "run").path


def metadata_of(folder: Path) -> Any:
    _, head, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.load(head, source="card")


def test_card_has_the_numbers_of_the_evaluation(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", f"{run}:blue", "--hub", str(tmp_path / "card"), "--episodes", "16"]) == 0
    assert "card: README.md, checkpoints, config.yaml, models, replay.mp4" in capsys.readouterr().out
    found = metadata_of(tmp_path / "card")
    assert found["library_name"] == "mpi-policy-arena"
    assert {"reinforcement-learning", "deep-reinforcement-learning", "ppo", "touchdown"} == set(found["tags"])
    (model,) = found["model-index"]
    (result,) = model["results"]
    assert model["name"] == "test-blue" and result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"] == {"type": "touchdown", "name": "touchdown"}
    row = next(one for one in arena.evaluate(run, 16, run_dir=tmp_path / "again") if one["policy"] == "blue")
    half = stats.t.ppf(0.975, row["episodes"] - 1) * row["return_std"] / math.sqrt(row["episodes"])
    assert (row["return_low"], row["return_high"]) == pytest.approx((row["return"] - half, row["return"] + half))
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values["mean_reward"] == f"{row['return']:.2f} +/- {half:.2f}" and half > 0
    assert float(values["win_rate"].split()[0]) == pytest.approx(row["wins"], abs=1e-3)
    assert f"{row['episodes']} episodes" in (tmp_path / "card" / "README.md").read_text()


def test_folder_is_a_run_folder_with_the_chosen_checkpoint(run: Path, tmp_path: Path) -> None:
    options = ["--episodes", "4"]
    assert main(["export", f"{run}:blue@20", *options, "--hub", str(tmp_path / "card")]) == 0
    there, here = load_policy(f"{tmp_path}/card:blue"), load_policy(f"{run}:blue@20")
    observations = np.stack([there.observation_space.sample() for _ in range(32)])
    assert there.ticks == 20 and np.array_equal(there.act(observations), here.act(observations))
    assert main(["export", "--verify", str(tmp_path / "card" / "models" / "blue" / "20")]) == 0


def test_what_cannot_be_made_is_left_out_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = {"algorithm": "learners:LearnerWithActor"}
    run = train(one_match({"make": "games:Countdown"}, {"blue": learner}, ticks=20), tmp_path / "run").path
    assert main(["export", f"{run}:blue", "--hub", str(tmp_path / "card"), "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    words = "without a network for other runtimes: step 1, restore: the algorithm 'learners:LearnerWithActor'"
    assert words in shown
    assert "without a video: the game 'games:Countdown' draws no pictures" in shown
    assert {path.name for path in (tmp_path / "card").iterdir()} == {"README.md", "checkpoints", "config.yaml"}
    assert metadata_of(tmp_path / "card")["tags"][2:] == ["LearnerWithActor", "Countdown"]
    assert "It imports games, learners, which must be installed" in (tmp_path / "card" / "README.md").read_text()


def test_games_that_are_alike_have_no_interval_on_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = {"algorithm": "learners:LearnerWithActor"}
    run = train(one_match({"make": "games:Countdown"}, {"blue": learner}, ticks=20), tmp_path / "run").path
    (row,) = arena.evaluate(run, 12, run_dir=tmp_path / "played")
    assert row["alike"] and row["episodes"] == 12
    assert main(["export", f"{run}:blue", "--hub", str(tmp_path / "card"), "--episodes", "12"]) == 0
    words = (
        f"mean_reward {row['return']:.2f}, 12 episodes, without intervals: games of the same players all began alike"
    )
    assert words in capsys.readouterr().out
    assert words in (tmp_path / "card" / "README.md").read_text()
    (metric,) = metadata_of(tmp_path / "card")["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == f"{row['return']:.2f}"


def test_one_episode_has_no_interval(tmp_path: Path) -> None:
    learner = {"algorithm": "learners:LearnerWithActor"}
    run = train(one_match({"make": "games:Countdown"}, {"blue": learner}, ticks=20), tmp_path / "run").path
    assert main(["export", f"{run}:blue", "--hub", str(tmp_path / "card"), "--episodes", "1"]) == 0
    (metric,) = metadata_of(tmp_path / "card")["model-index"][0]["results"][0]["metrics"]
    assert "+/-" not in metric["value"]


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two learners, with a logger that has a key; blue alone has a checkpoint of tick 20."""
    secret = {"class": "recorders:RecordsAll", "options": {"name": "a-key"}}
    duel = {**DUEL, "policies": {"blue": PPO, "red": PPO}, "loggers": [secret], "callbacks": [secret]}
    run = train({**duel, "seed": 5, "checkpoint_every": 20}, tmp_path_factory.mktemp("hub") / "run").path
    next((run / "checkpoints" / "red").glob("*20.ckpt")).unlink()
    return run


def test_opponents_play_and_are_written_at_their_newest_checkpoints(league: Path, tmp_path: Path) -> None:
    card = tmp_path / "card"
    assert main(["export", f"{league}:blue@20", "--hub", str(card), "--episodes", "8"]) == 0
    assert [int(path.stem) for path in sorted(card.glob("checkpoints/*/*.ckpt"))] == [20, 40]
    (metric, *_) = metadata_of(card)["model-index"][0]["results"][0]["metrics"]
    rows = arena.evaluate(card, 8, run_dir=tmp_path / "again")
    returns = {row["policy"]: row["return"] for row in rows}
    assert metric["value"].split()[0] == f"{returns['blue']:.2f}"
    published = (card / "config.yaml").read_text()
    assert "a-key" not in published and "a-key" in (league / "config.yaml").read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left")])
def test_failure_leaves_nothing_behind(
    run: Path, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr("arena.run.hub.write_newest", fails)
    with pytest.raises((KeyboardInterrupt, WriteError)):
        arena.export_hub(f"{run}:blue", tmp_path / "card", episodes=4)
    assert not [*tmp_path.iterdir()]


def test_video_that_cannot_be_written_is_left_out(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise WriteError("the encoder has failed")

    monkeypatch.setattr("arena.run.hub.write_newest", fails)
    lines = arena.export_hub(f"{run}:blue", tmp_path / "card", episodes=4)
    assert "without a video: the encoder has failed" in lines
    assert [path.name for path in tmp_path.iterdir()] == ["card"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([":blu"], "there is no policy 'blu'; did you mean 'blue'?"),
        ([":red"], "there is no checkpoint 'last'"),
        ([":blue@7"], "there is no checkpoint '7'"),
        ([":blue", "--output", "x"], "--output: is not allowed with --hub"),
        ([":blue", "--samples", "300"], "--samples: is not allowed with --hub"),
        ([":blue", "--batch", "1"], "--batch: is not allowed with --hub"),
        ([":blue", "--json"], "--json: is not allowed with --hub"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(
    run: Path, tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", f"{run}{options[0]}", *options[1:], "--hub", str(tmp_path / "card")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "card").exists()


def test_folder_with_files_is_not_touched(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["export", f"{run}:blue", "--hub", str(tmp_path)]) == 2
    assert "holds files already" in capsys.readouterr().err
    assert main(["export", f"{run}:blue", "--episodes", "3"]) == 2
    assert "--episodes: is for --hub" in capsys.readouterr().err


@pytest.mark.long
def test_card_is_read_by_the_hubs_own_package(run: Path, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    assert main(["export", f"{run}:blue", "--hub", str(tmp_path / "card"), "--episodes", "4"]) == 0
    card = ModelCard.load(tmp_path / "card" / "README.md")
    assert card.data.library_name == "mpi-policy-arena"
    assert [(one.task_type, one.dataset_name, one.metric_type) for one in card.data.eval_results] == [
        ("reinforcement-learning", "touchdown", "mean_reward"),
        ("reinforcement-learning", "touchdown", "win_rate"),
    ]
