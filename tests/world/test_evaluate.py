"""`arena evaluate`: players and their weights, output and files, error messages."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.records import checkpoint
from arena.records.journal import JournalReader
from in_process import play
from working_folder import working_directory

COUNTS = {"algorithm": "workers:Counts"}
RANDOM = {"algorithm": "random"}
ROCK = {"algorithm": "scripted", "options": {"action": 0}}


def duel(**changes: Any) -> dict[str, Any]:
    """A learner and a random policy, a few short episodes."""
    return {
        "ticks": 20,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 5}}},
        "policies": {"blue": COUNTS, "red": RANDOM},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 2}],
        **changes,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose blue has checkpoints at 0 and 20."""
    return play(duel(), tmp_path).folder.path


def evaluate(capsys: pytest.CaptureFixture[str], target: Path | str, *arguments: str) -> list[str]:
    """The lines that it prints."""
    capsys.readouterr()
    assert main(["evaluate", str(target), "--episodes", "4", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    *lines, last = captured.out.splitlines()
    assert last.startswith("records: ")
    assert all((Path(target).parent / path).is_dir() for path in last.removeprefix("records: ").split(", "))
    return lines


def mistake(capsys: pytest.CaptureFixture[str], target: Path | str, *arguments: str) -> str:
    """The one message of a mistake."""
    capsys.readouterr()
    assert main(["evaluate", str(target), "--episodes", "4", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("arena: error: ") == 1
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return captured.err


def titles(lines: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in lines]


def players(records: Path) -> set[tuple[str, ...]]:
    """The players of an evaluation's episodes."""
    return {tuple(seat["policy"] for seat in line["seats"]) for line in JournalReader(records / "episodes.jsonl")}


def plan(records: Path) -> Any:
    return json.loads((records / "plan.json").read_text())


def configured(records: Path) -> Any:
    return yaml.safe_load((records / "config.yaml").read_text())


def written(folder: Path, data: Any) -> str:
    (folder / "duel.yaml").write_text(yaml.safe_dump(data))
    return str(folder / "duel.yaml")


def test_configuration_has_no_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, written(tmp_path, duel()), "--checkpoints", "last")
    assert "--checkpoints: a configuration has no checkpoints; name a run folder" in said


@pytest.mark.parametrize("red", [ROCK, RANDOM], ids=["scripted", "random"])
def test_identical_games_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], red: Any) -> None:
    data = duel(
        envs={"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 1}}},
        policies={"blue": ROCK, "red": red},
    )
    data["matches"][0]["lanes"] = 5
    path = written(tmp_path, data)
    with working_directory(tmp_path):
        *_, said = evaluate(capsys, path, "--episodes", "10")
        sampled = evaluate(capsys, path, "--episodes", "10", "--sample")
    assert (said.startswith("all games between blue and red were alike") and "--sample" in said) is (red is ROCK)
    assert len(sampled) == 2


# what is played


def test_lines_and_folders_name_policies_and_checkpoints(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = evaluate(capsys, run, "--checkpoints", "first", "last", "20", "--against", "random")
    assert titles(lines) == [
        "blue at its first checkpoint against random",
        "blue at its last checkpoint against random",
        "blue at tick 20 against random",
    ]
    assert {path.name for path in (run / "evaluations").iterdir()} == {
        "blue-first-against-random",
        "blue-last-against-random",
        "blue-20-against-random",
    }
    assert titles(evaluate(capsys, run)) == ["blue at its last checkpoint", "red, as configured"]
    assert (run / "evaluations" / "last").is_dir()
    evaluate(capsys, run)
    assert (run / "evaluations" / "last-2").is_dir()


def test_evaluated_weights_equal_the_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, run, "--checkpoints", "first", "last")
    for label, ticks in (("first", 0), ("last", 20)):
        load = configured(run / "evaluations" / label)["policies"]["blue"]["load"]
        assert checkpoint.load(load).state["count"] == ticks


def test_log_lists_the_roles_of_the_process(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, run)
    first = (run / "evaluations" / "last" / "logs" / "rank-0000.log").read_text().splitlines()[0]
    assert " INFO arena: hosts root, environment of match 0 ('game'), worker of policy 'blue' in seat 0" in first


def test_a_configuration_is_evaluated_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, duel())
    with working_directory(tmp_path):
        assert titles(evaluate(capsys, path)) == ["blue, as configured", "red, as configured"]
        assert titles(evaluate(capsys, path, "--against", "random")) == [
            "blue, as configured, against random",
            "red, as configured, against random",
        ]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "duel-evaluation",
        "duel-evaluation-blue-against-random",
        "duel-evaluation-red-against-random",
    }


def test_every_lane_plays_the_same_number_of_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = duel(policies=dict.fromkeys(("a", "b", "c", "unseated"), RANDOM))
    data["matches"] = [
        {"env": "game", "seats": ["a", "b"], "lanes": 3},
        {"env": "game", "seats": ["a", "c"], "lanes": 2},
    ]
    lines = evaluate(capsys, written(tmp_path, data), "--run-dir", str(tmp_path / "records"))
    episodes = {line.partition(",")[0]: int(re.findall(r": (\d+) episodes", line)[0]) for line in lines}
    assert episodes == {"a": 10, "b": 6, "c": 4}


def test_a_match_without_the_policy_is_not_played_against_an_opponent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = duel()
    data["envs"]["game"]["kwargs"]["team_size"] = 2
    data["policies"] = dict.fromkeys(("blue", "red", "green"), RANDOM)
    data["matches"] = [
        {"env": "game", "seats": [["red", "red"], ["green", "green"]]},
        {"env": "game", "seats": [["blue", "blue"], ["red", "red"]]},
        {"env": "game", "seats": [["blue", "blue"], ["green", "green"]]},
        {"env": "game", "seats": [["blue", "blue"], ["blue", "blue"]]},
    ]
    evaluate(capsys, written(tmp_path, data), "--against", "random", "--run-dir", str(tmp_path / "records"))
    records = tmp_path / "records" / "duel-evaluation-blue-against-random"
    assert players(records) == {("blue", "opponent")}
    assert len(plan(records)["matches"]) == 1


def test_opponent_gets_a_free_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = duel(policies={"blue": RANDOM, "opponent": RANDOM})
    data["matches"] = [{"env": "game", "seats": ["blue", "opponent"]}]
    evaluate(capsys, written(tmp_path, data), "--against", "random", "--run-dir", str(tmp_path / "records"))
    records = tmp_path / "records"
    assert players(records / "duel-evaluation-blue-against-random") == {("blue", "opponent-2")}
    assert players(records / "duel-evaluation-opponent-against-random") == {("opponent-2", "opponent")}


def test_a_policy_that_is_the_opponent_keeps_its_own_checkpoint(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`load: <run>` means the checkpoint of the policy's own name, also when it plays under another one."""
    data = duel(policies={"blue": {**COUNTS, "load": str(run)}, "red": RANDOM})
    evaluate(capsys, written(tmp_path, data), "--against", "blue", "--run-dir", str(tmp_path / "records"))
    records = tmp_path / "records" / "duel-evaluation-red-against-blue"
    load = configured(records)["policies"]["opponent"]["load"]
    assert checkpoint.load(load).policy == "blue"
    assert players(records) == {("opponent", "red")}


# mistakes


def test_scripted_opponent_without_options_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = mistake(capsys, run, "--against", "scripted")
    assert "--against: the algorithm 'scripted' cannot take the other seats without options" in error
    assert "either `action` or `function`" in error
    assert not (run / "evaluations").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "randm"], "--against: 'randm' is no policy and no algorithm; did you mean 'random'?"),
        (["--against", "workers:Stepper"], "an algorithm needs actor()"),
        (["--checkpoints", "last", "7"], "--checkpoints: there is no checkpoint '7'; known: 0, "),
    ],
)
def test_command_line_mistake_is_reported_before_play(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in mistake(capsys, run, *arguments)
    assert not (run / "evaluations").exists()


def test_solo_policy_cannot_have_an_opponent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = duel(policies={"blue": RANDOM}, matches=[{"env": "game", "seats": ["blue", "blue"]}])
    with working_directory(tmp_path):
        error = mistake(capsys, written(tmp_path, data), "--against", "random")
        assert not Path("runs").exists()
    assert "--against: blue has no match with seats of others: there is no other seat to oppose from" in error


def test_unfreezable_policy_ends_with_one_message_and_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = duel(policies={"blue": {"algorithm": "workers:Stepper"}, "red": RANDOM})
    data["matches"][0]["lanes"] = 1
    with working_directory(tmp_path):
        error = mistake(capsys, written(tmp_path, data))
        assert not Path("runs").exists()
    assert "policies.blue.algorithm: to play without learning an algorithm needs actor(); 'workers:Stepper'" in error


def test_mistake_keeps_other_evaluations(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["envs"]["game"]["idle_action"] = 99
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "checksums" / "config.yaml").unlink()  # as the message about a changed file says
    assert "envs.game.idle_action: 99 is no action of blue_0" in mistake(capsys, run)
    assert [path.name for path in (run / "evaluations").iterdir()] == ["last"]


def test_a_game_that_raises_ends_with_its_own_traceback_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = duel(envs={"game": {"make": "games:Raises", "kwargs": {"where": "step"}}}, policies={"blue": RANDOM})
    data["matches"] = [{"env": "game", "seats": ["blue"]}]
    with working_directory(tmp_path):
        assert main(["evaluate", written(tmp_path, data)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("arena: the run has ended: environment of match 0")
    assert error.count("Traceback") == 1
    assert "RuntimeError: the game cannot be stepped" in error


@pytest.mark.parametrize(("given", "status"), [((), 130), ((signal.SIGTERM,), 143)], ids=["SIGINT", "SIGTERM"])
def test_interrupt_is_reported_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[int, ...],
    status: int,
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(*given)

    name = signal.Signals(status - 128).name
    for place, words in (
        ("arena.run.lead.Root.record", "what was played is in runs/duel-evaluation"),
        ("arena.run.lead.Root.wait_until_ready", "before any tick was played"),
    ):
        with monkeypatch.context() as patch, working_directory(tmp_path):
            patch.setattr(place, interrupted)
            assert main(["evaluate", written(tmp_path, duel())]) == status
        error = capsys.readouterr().err
        assert f"ended by {name}; {words}" in error
        assert "--resume" not in error
        assert "Traceback" not in error
    assert len(list((tmp_path / "runs").iterdir())) == 1, "a run that was not played leaves nothing"


def test_opponent_may_be_a_policy_at_a_tick(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = titles(evaluate(capsys, run, "--against", "blue@0"))
    assert line == "blue at its last checkpoint against blue@0"
    (records,) = (run / "evaluations").iterdir()
    loads = {name: policy["load"] for name, policy in configured(records)["policies"].items() if policy.get("load")}
    assert {checkpoint.ticks_of(Path(file)) for file in loads.values()} == {0, 20}


@pytest.mark.parametrize("version", ["blue@7", "blue@", "green@0", "red@0", "blue@0@0", "blue@-0", "blue@last"])
def test_unknown_version_of_a_policy_is_named(version: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--against: there is no player {version!r}" in mistake(capsys, run, "--against", version)


def test_opponent_of_the_name_of_an_algorithm_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = {"blue": COUNTS, "random": ROCK | {"options": {"action": 2}}}
    matches = [{"env": "game", "seats": ["blue", "random"]}]
    target = written(tmp_path, duel(policies=policies, matches=matches))
    place = ("--run-dir", str(tmp_path / "records"))
    assert "against the policy random" in titles(evaluate(capsys, target, "--against", "random", *place))[0]
    policies["random"] = RANDOM
    target = written(tmp_path, duel(policies=policies, matches=matches))
    assert titles(evaluate(capsys, target, "--against", "random", *place))[0].endswith("against random")
