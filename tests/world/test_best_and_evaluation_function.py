"""The best checkpoints of a run are kept; a user's function evaluates the policies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_results_in_runs import DUEL, train

from arena.cli.main import main
from arena.config import parse_config, yaml
from arena.errors import ConfigError
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.run.planning import checked_plan
from arena.run.prepare import prepare
from in_process import NOTES
from slow_results import flat, json_lines, without_clock

SHORT = {**DUEL, "ticks": 200, "checkpoint_every": 20, "results": {"every": 20, "smoothing": 1}}


METRIC = "info/learner/blue/drawn"


def best_tick(run: Path, metric: str, *, highest: bool = True) -> int:
    """By a plain search through the lines; the earliest of equals."""
    values = [(line["ticks"], dict(flat(line))[metric]) for line in json_lines(run / "result.json")]
    return (max if highest else min)(values, key=lambda one: (one[1], -one[0] if highest else one[0]))[0]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with a best checkpoint."""
    return train({**SHORT, "best": {"metric": METRIC}}, tmp_path_factory.mktemp("kept") / "run")


@pytest.mark.parametrize("mode", ["max", "min"])
def test_best_checkpoint_is_that_of_the_best_result(mode: str, tmp_path: Path) -> None:
    run = train({**SHORT, "best": {"metric": METRIC, "mode": mode}}, tmp_path / "run")
    known = best_tick(run, METRIC, highest=mode == "max")
    found = json.loads((run / "best.json").read_text())
    assert (found["tick"], found["metric"]) == (known, METRIC)
    kept = checkpoint.load(run / "checkpoints" / "blue" / "best.ckpt")
    assert kept.boundary == known


def test_best_checkpoint_can_be_loaded_evaluated_and_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {**SHORT, "best": {"metric": METRIC}, "name": "duel"}
    run = train(data, tmp_path / "run")
    tick = json.loads((run / "best.json").read_text())["tick"]
    assert tick not in (0, 160, 180, 200), "so its numbered checkpoint is gone"
    frozen = {**DUEL["policies"]["blue"], "load": str(run / "checkpoints/blue/best.ckpt"), "frozen": True}
    train({**DUEL, "policies": {**DUEL["policies"], "blue": frozen}}, tmp_path / "again")
    assert main(["evaluate", "run", "--checkpoints", "best", "--episodes", "4"]) == 0
    assert main(["tournament", "run", "--checkpoints", "best", "last", "--episodes", "40"]) == 0
    out = capsys.readouterr().out
    assert f"blue at tick {tick} (best): " in out
    assert f"blue@{tick}" in out


def test_best_later_than_the_boundary_is_forgotten_on_resume(tmp_path: Path) -> None:
    data = {**SHORT, "best": {"metric": "ticks"}}
    run = train(data, tmp_path / "run")
    assert json.loads((run / "best.json").read_text())["tick"] == 200
    boundary.discard_after(RunFolder(run), 160)
    (run / "checkpoints/blue/best.ckpt").unlink()
    train({**data, "ticks": 180, "best": {"metric": "ticks", "mode": "min"}}, run, resume=True)
    assert json.loads((run / "best.json").read_text())["tick"] == 160
    assert checkpoint.load(run / "checkpoints/blue/best.ckpt").boundary == 160


@pytest.mark.parametrize(
    ("harm", "file"),
    [("value", "best.json"), ("no json", "best.json"), ("half", "best.json"), ("no checkpoint", "best.ckpt")],
)
def test_resume_refuses_a_best_result_that_is_not_known(harm: str, file: str, kept: Path, tmp_path: Path) -> None:
    data, run = {**SHORT, "best": {"metric": METRIC}}, Path(shutil.copytree(kept, tmp_path / "run"))
    known, best = run / "best.json", run / "checkpoints/blue/best.ckpt"
    if harm == "value":
        known.write_text(json.dumps({**json.loads(known.read_text()), "value": 0.0}))
    elif harm == "half":
        known.write_bytes(known.read_bytes()[:20])
    else:
        (known if harm == "no json" else best).unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.parent.name != "logs"}
    with pytest.raises(ConfigError, match=rf"{file}: (is|was) .*; put it back, or move best\.json and the files check"):
        train({**data, "ticks": 240}, run, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    for path in (known, best):
        path.unlink(missing_ok=True)
    config = parse_config({"name": "test", **data, "ticks": 240}, source="test")
    words = prepare(config, ranks=1, run_dir=str(run), resume=True).text
    assert [line for line in words if "best.json is missing" in line]
    train({**data, "ticks": 240}, run, resume=True)
    assert json.loads(known.read_text())["tick"] in (220, 240)


EVALUATED = {**DUEL, "evaluation": {"every": 40, "episodes": 2, "function": "recorders:measure"}}


def measured() -> list[int]:
    """The ticks at which the function of the last run was called."""
    return [note[1] for note in NOTES if note[0] == "measured"]


def test_function_is_called_with_each_evaluation_and_is_in_the_results(tmp_path: Path) -> None:
    run = train(EVALUATED, tmp_path / "run")
    assert measured() == [40, 80, 120]
    for line in json_lines(run / "result.json"):
        games = len(json_lines(RunFolder(run).evaluation_path(line["ticks"]) / "episodes.jsonl"))
        assert line["evaluation"]["custom"] == {"games": games, "at": {"tick": line["ticks"], "none": None}}
        assert line["off_policy_estimator"] == {"is": 0.5}


def test_function_without_games_is_called_also_when_resumed(tmp_path: Path) -> None:
    evaluation = {"every": 40, "episodes": 0, "function": "recorders:measure"}
    data = {**DUEL, "evaluation": evaluation, "stop": {"evaluation/custom/at/tick": 1000}}
    run = train(data, tmp_path / "run")
    known = without_clock(run)
    assert [line["evaluation"]["custom"]["at"]["tick"] for line in known] == [40, 80, 120]
    assert not (run / "evaluations.jsonl").exists()
    boundary.discard_after(RunFolder(run), 80)
    RunFolder(run).custom_path(80).unlink()  # it was killed before the function had come to its end
    lines = (run / "result.json").read_text().splitlines(keepends=True)
    (run / "result.json").write_text(lines[0])
    train(data, run, resume=True)
    assert measured() == [80, 120]
    assert without_clock(run) == known
    stopped = train({**data, "stop": {"evaluation/custom/at/tick": 80}}, tmp_path / "stopped")
    assert without_clock(stopped)[-1]["ticks"] == 80


@pytest.mark.parametrize(
    ("options", "episodes", "words"),
    [
        ({"fails_at": 80}, 2, "ZeroDivisionError: fails at 80"),
        ({"gives": [1]}, 0, "TypeError: it has returned [1]; expected a mapping of names to numbers"),
        ({"gives": {"a": {"b": "text"}}}, 0, "TypeError: 'b' is 'text'; expected a number"),
    ],
)
def test_function_that_raises_ends_the_run_and_is_named(
    options: Any, episodes: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evaluation = {**EVALUATED["evaluation"], "episodes": episodes, "options": options}
    train({**DUEL, "evaluation": evaluation}, tmp_path / "run", code=1)
    said = capfd.readouterr().err
    assert "evaluation function recorders:measure" in said
    assert words in said


@pytest.mark.parametrize(
    ("evaluation", "path", "words"),
    [
        ({"function": "recorders:measur"}, "evaluation.function", "did you mean 'measure'"),
        ({"function": "recorders:NOTES"}, "evaluation.function", "it has to be a function"),
        ({"function": "recorders:measure", "options": {"fail_at": 1}}, "evaluation.options", "argument 'fail_at'"),
        ({"episodes": 0}, "evaluation.episodes", ""),
        ({"options": {"a": 1}}, "evaluation.options", ""),
    ],
)
def test_wrong_or_missing_function_is_refused(evaluation: Any, path: str, words: str) -> None:
    data = {**DUEL, "name": "test", "evaluation": {"every": 40, **evaluation}}
    with pytest.raises(ConfigError) as caught:
        checked_plan(parse_config(yaml.load(yaml.dump(data), source="x"), source="x"), ranks=1)
    assert caught.value.path == path
    assert words in caught.value.message
