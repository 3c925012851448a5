"""`arena evaluate`: players and their weights, output and files, error messages."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.records import checkpoint
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome
from arena.records.scoreboard import Scoreboard
from arena.run.evaluation import result_text
from command import Command
from in_process import one_match, play
from working_folder import working_directory

COUNTS = {"algorithm": "workers:Counts"}
RANDOM = {"algorithm": "random"}
ROCK = {"algorithm": "scripted", "options": {"action": 0}}


def duel(**changes: Any) -> dict[str, Any]:
    """A learner and a random policy, a few short episodes."""
    game = {"make": "touchdown", "kwargs": {"max_steps": 5}}
    return one_match(game, {"blue": COUNTS, "red": RANDOM}, ticks=20, match={"lanes": 2}) | changes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose blue has checkpoints at 0 and 20."""
    return play(duel(), tmp_path).folder.path


def evaluate(command: Command, target: Path | str, *arguments: str) -> list[str]:
    """The lines that it prints."""
    printed = command("evaluate", target, "--episodes", "4", *arguments)
    assert printed.err == ""
    *lines, last = printed.out.splitlines()
    assert last.startswith("records: ")
    assert all((Path(target).parent / path).is_dir() for path in last.removeprefix("records: ").split(", "))
    return lines


def mistake(command: Command, target: Path | str, *arguments: str) -> str:
    """The one message of a mistake."""
    printed = command("evaluate", target, "--episodes", "4", *arguments, code=2)
    assert printed.err.count("arena: error: ") == 1
    assert printed.out == ""
    return printed.err


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


@pytest.mark.parametrize("red", [ROCK, RANDOM], ids=["scripted", "random"])
def test_identical_games_are_reported(command: Command, tmp_path: Path, red: Any) -> None:
    data = duel(
        envs={"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 1}}},
        policies={"blue": ROCK, "red": red},
    )
    data["matches"][0]["lanes"] = 5
    path = written(tmp_path, data)
    with working_directory(tmp_path):
        *_, said = evaluate(command, path, "--episodes", "10")
        sampled = evaluate(command, path, "--episodes", "10", "--sample")
    assert (
        said.startswith("all games between blue and red began alike and had the same length and returns")
        and "--sample" in said
    ) is (red is ROCK)
    assert [line for line in sampled if "did not vary" in line] == [
        "the returns of blue and red did not vary: an interval of width 0 says nothing about rarer ones"
    ] * (red is ROCK)


def test_equal_returns_of_unlike_games_are_reported(command: Command, tmp_path: Path) -> None:
    # Two ticks are too few for a touchdown.
    data = duel(
        policies={"blue": RANDOM, "red": RANDOM}, envs={"game": {"make": "touchdown", "kwargs": {"max_steps": 2}}}
    )
    path = written(tmp_path, data)
    with working_directory(tmp_path):
        first, second, *said = evaluate(command, path, "--episodes", "10")
        rows = arena.evaluate(path, 10)
    assert "return 0.00 +- 0.00" in first and "return 0.00 +- 0.00" in second
    assert [line for line in said if "did not vary" in line] == [
        "the returns of blue and red did not vary: an interval of width 0 says nothing about rarer ones"
    ]
    assert [(row["alike"], row["return_low"], row["return_high"]) for row in rows] == [(False, 0.0, 0.0)] * 2


@pytest.mark.parametrize(("numbers", "alike"), [(1, True), (1000, False)], ids=["no chance", "chance"])
def test_only_games_that_began_alike_are_alike(numbers: int, alike: bool, tmp_path: Path) -> None:
    game = {"make": "games:Drawn", "kwargs": {"numbers": numbers}}
    data = one_match(game, {"blue": ROCK}, ticks=20, match={"lanes": 2})
    data["name"] = "drawn"
    for episodes in (6, 24):
        (row,) = arena.evaluate(data, episodes, run_dir=tmp_path / "played")
        assert row["episodes"] == episodes and row["return"] == 1.5
        assert row["alike"] is alike
        assert (row["return_low"], row["return_high"]) == ((None, None) if alike else (1.5, 1.5))


# what is played


def test_lines_and_folders_name_policies_and_checkpoints(command: Command, run: Path) -> None:
    lines = evaluate(command, run, "--checkpoints", "first", "last", "20", "0", "--against", "random")
    assert titles(lines) == [
        "blue at tick 0 (first) against random",
        "blue at tick 20 (last) against random",
    ], "a tick that has two names is played once"
    assert {path.name for path in (run / "evaluations").iterdir()} == {
        "blue-first-against-random",
        "blue-last-against-random",
    }
    assert titles(evaluate(command, run, "--checkpoints", "20"))[0] == "blue at tick 20"
    rows = arena.evaluate(run, 4, checkpoints=["last", 20])
    assert [(row["checkpoint"], row["policy"]) for row in rows] == [
        (label, policy) for policy in ("blue", "red") for label in ("last", "20")
    ], "a row for each name"
    assert len({row["folder"] for row in rows}) == 1
    assert titles(evaluate(command, run)) == ["blue at tick 20 (last)", "red, as configured"]
    assert (run / "evaluations" / "last").is_dir()
    evaluate(command, run)
    assert (run / "evaluations" / "last-3").is_dir()


def test_evaluated_weights_equal_the_checkpoint(command: Command, run: Path) -> None:
    evaluate(command, run, "--checkpoints", "first", "last")
    for label, ticks in (("first", 0), ("last", 20)):
        load = configured(run / "evaluations" / label)["policies"]["blue"]["load"]
        assert checkpoint.load(load).state["count"] == ticks


def test_a_configuration_is_evaluated_as_it_is(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path, duel())
    with working_directory(tmp_path):
        assert titles(evaluate(command, path)) == ["blue, as configured", "red, as configured"]
        assert titles(evaluate(command, path, "--against", "random")) == [
            "blue, as configured, against random",
            "red, as configured, against random",
        ]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "duel-evaluation",
        "duel-evaluation-blue-against-random",
        "duel-evaluation-red-against-random",
    }


@pytest.mark.parametrize("declares", [True, False])
def test_only_games_that_may_have_winners_are_said_to_have_none(
    command: Command, tmp_path: Path, declares: bool
) -> None:
    """A game declares that it has no winners; the configuration says nothing."""
    game = {"make": "cover", "kwargs": {"players": 2, "max_steps": 5}} if declares else {"make": "games:Pair"}
    data = one_match(game, {"blue": RANDOM, "red": RANDOM}, ticks=20)
    lines = evaluate(command, written(tmp_path, data), "--run-dir", str(tmp_path / "records"))
    assert any("no winners in" in line for line in lines) != declares


def test_every_lane_plays_the_same_number_of_episodes(command: Command, tmp_path: Path) -> None:
    data = duel(policies=dict.fromkeys(("a", "b", "c", "unseated"), RANDOM))
    data["matches"] = [
        {"env": "game", "seats": ["a", "b"], "lanes": 3},
        {"env": "game", "seats": ["a", "c"], "lanes": 2},
    ]
    lines = evaluate(command, written(tmp_path, data), "--run-dir", str(tmp_path / "records"))
    episodes = {
        line.partition(",")[0]: int(found[1]) for line in lines if (found := re.search(r": (\d+) episodes", line))
    }
    assert episodes == {"a": 10, "b": 6, "c": 4}


def test_a_match_without_the_policy_is_not_played_against_an_opponent(command: Command, tmp_path: Path) -> None:
    data = duel()
    data["envs"]["game"]["kwargs"]["team_size"] = 2
    data["policies"] = dict.fromkeys(("blue", "red", "green"), RANDOM)
    data["matches"] = [
        {"env": "game", "seats": [["red", "red"], ["green", "green"]]},
        {"env": "game", "seats": [["blue", "blue"], ["red", "red"]]},
        {"env": "game", "seats": [["blue", "blue"], ["green", "green"]]},
        {"env": "game", "seats": [["blue", "blue"], ["blue", "blue"]]},
    ]
    evaluate(command, written(tmp_path, data), "--against", "random", "--run-dir", str(tmp_path / "records"))
    records = tmp_path / "records" / "duel-evaluation-blue-against-random"
    assert players(records) == {("blue", "opponent")}
    assert len(plan(records)["matches"]) == 1


def test_a_policy_that_is_the_opponent_keeps_its_own_checkpoint(command: Command, tmp_path: Path, run: Path) -> None:
    """`load: <run>` means the checkpoint of the policy's own name, also when it plays under another one."""
    data = duel(policies={"blue": {**COUNTS, "load": str(run)}, "red": RANDOM})
    evaluate(command, written(tmp_path, data), "--against", "blue", "--run-dir", str(tmp_path / "records"))
    records = tmp_path / "records" / "duel-evaluation-red-against-blue"
    load = configured(records)["policies"]["opponent"]["load"]
    assert checkpoint.load(load).policy == "blue"
    assert players(records) == {("opponent", "red")}


# mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "randm"], "--against: 'randm' is no policy and no algorithm; did you mean 'random'?"),
        (["--against", "workers:Stepper"], "an algorithm needs actor()"),
        (["--against", "scripted"], "the algorithm 'scripted' cannot take the other seats without options"),
        (["--against", "blue@7"], "--against: there is no checkpoint '7' of 'blue'"),
        (["--against", "blue@-0"], "--against: there is no checkpoint '-0' of 'blue'"),
        (["--checkpoints", "last", "7"], "--checkpoints: there is no checkpoint '7' of 'blue'; known: 0, "),
    ],
)
def test_command_line_mistake_is_reported_before_play(
    command: Command, run: Path, arguments: list[str], message: str
) -> None:
    assert message in mistake(command, run, *arguments)
    assert not (run / "evaluations").exists()


def test_solo_policy_cannot_have_an_opponent(command: Command, tmp_path: Path) -> None:
    data = duel(policies={"blue": RANDOM}, matches=[{"env": "game", "seats": ["blue", "blue"]}])
    with working_directory(tmp_path):
        error = mistake(command, written(tmp_path, data), "--against", "random")
        assert not Path("runs").exists()
    assert (
        "--against: blue has no match with seats of others, or of two `sides`: there is no seat to oppose from" in error
    )


def test_one_policy_in_all_seats_has_no_win_rate(command: Command, tmp_path: Path) -> None:
    data = duel(policies={"blue": RANDOM}, matches=[{"env": "game", "seats": ["blue", "blue"]}])
    with working_directory(tmp_path):
        line = evaluate(command, written(tmp_path, data))[0]
    assert "against itself" in line and "won " not in line


@pytest.mark.parametrize(("other", "words"), [("win", "won 75.0 %"), ("loss", "against itself")])
def test_a_team_that_wins_together_has_a_win_rate(other: Outcome, words: str) -> None:
    board = Scoreboard()
    for number, ends in enumerate([("win", other)] * 3 + [("loss", "loss" if other == "win" else "win")]):
        seats = tuple(SeatRecord("blue", (seat,), 1.0, end) for seat, end in enumerate(ends))  # type: ignore[arg-type]
        board.take([EpisodeRecord(0, 0, "game", 0, number, number + 1, 1, True, False, seats)])
    assert words in result_text(board.policies["blue"], itself=True)


@pytest.mark.parametrize("size", [1, 2])
def test_self_play_leaves_the_other_side_to_an_opponent(command: Command, tmp_path: Path, size: int) -> None:
    """The first round of a league, in which a policy meets itself."""
    meets = {"env": "game", "policies": ["blue"], "against": ["red"], "rule": "fictitious", "team_size": size}
    data = duel(matches=[{"matchmaking": {**meets, "both_sides": True}}], rounds=2, checkpoint_every=20)
    data["envs"]["game"]["kwargs"]["team_size"] = size
    league = play(data, tmp_path).folder.path
    assert all(seat["policy"] == "blue" for line in plan(league)["matches"] for seat in line["seats"])
    alone, *_ = evaluate(command, league)
    assert re.match(r"blue at tick \d+ \(last\): \d+ episodes, against itself, return ", alone)
    (line,) = evaluate(command, league, "--against", "random")
    assert "won " in line
    assert re.fullmatch(r"blue at tick \d+ \(last\) against random", titles([line])[0])
    records = league / "evaluations" / "blue-last-against-random"
    assert players(records) == {("blue",) * size + ("opponent",) * size}


def test_mistake_keeps_other_evaluations(command: Command, run: Path) -> None:
    evaluate(command, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["envs"]["game"]["idle_action"] = 99
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "checksums" / "config.yaml").unlink()  # as the message about a changed file says
    assert "envs.game.idle_action: 99 is no action of blue_0" in mistake(command, run)
    assert [path.name for path in (run / "evaluations").iterdir()] == ["last"]


def test_interrupt_is_reported_in_one_line(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(signal.SIGTERM)

    for place, words in (
        ("arena.run.lead.Root.record", "; what was played is in runs/duel-evaluation"),
        ("arena.run.lead.Root.wait_until_ready", " before any tick was played; nothing of it is kept"),
    ):
        with monkeypatch.context() as patch, working_directory(tmp_path):
            patch.setattr(place, interrupted)
            error = command("evaluate", written(tmp_path, duel()), code=143).err
        assert f"arena: ended by SIGTERM{words}" in error
        assert "--resume" not in error
        assert "Traceback" not in error
    assert len(list((tmp_path / "runs").iterdir())) == 1, "a run that was not played leaves nothing"


@pytest.mark.parametrize("play", [arena.evaluate, partial(arena.tournament, untrained=True)])
def test_a_signal_that_ends_a_function_is_named(play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(signal.SIGTERM)

    monkeypatch.setattr("arena.run.lead.Root.record", interrupted)
    with working_directory(tmp_path), pytest.raises(KeyboardInterrupt, match=r"^SIGTERM$"):
        play(written(tmp_path, duel()))


def test_opponent_may_be_a_policy_at_a_tick(command: Command, run: Path) -> None:
    (line,) = titles(evaluate(command, run, "--against", "blue@0"))
    assert line == "blue at tick 20 (last) against blue@0"
    (records,) = (run / "evaluations").iterdir()
    loads = {name: policy["load"] for name, policy in configured(records)["policies"].items() if policy.get("load")}
    assert {checkpoint.ticks_of(Path(file)) for file in loads.values()} == {0, 20}


def test_opponent_of_the_name_of_an_algorithm_is_told(command: Command, tmp_path: Path) -> None:
    policies = {"blue": COUNTS, "random": ROCK | {"options": {"action": 2}}}
    matches = [{"env": "game", "seats": ["blue", "random"]}]
    target = written(tmp_path, duel(policies=policies, matches=matches))
    place = ("--run-dir", str(tmp_path / "records"))
    assert "against the policy random" in titles(evaluate(command, target, "--against", "random", *place))[0]
    policies["random"] = RANDOM
    target = written(tmp_path, duel(policies=policies, matches=matches))
    assert titles(evaluate(command, target, "--against", "random", *place))[0].endswith("against random")
