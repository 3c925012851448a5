"""`arena tournament`: its players, its end, output and files, error messages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from gymnasium import spaces

from arena.cli.main import main
from arena.cli.players import players_of, read_sources
from arena.config import load_config
from arena.league import rounds_file
from arena.league.ratings.intervals import of_share
from arena.league.ratings.ratings import fit
from arena.league.read_results import read
from arena.league.tournament import read_terms
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.report.page import page
from arena.report.read_run import read_run
from arena.report.sections import page_data
from arena.roles.status import run_status
from in_process import play

LADDER = [[0, -1, -1], [1, 0, -1], [1, 1, 0]]  # a higher action beats a lower one


def plays(action: int) -> dict[str, Any]:
    return {"algorithm": "scripted", "options": {"action": action}}


def ladder(policies: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Players of known order in a game of one tick."""
    policies = policies or {"low": plays(0), "high": plays(2), "middle": plays(1)}
    names = [*policies]
    return {
        "name": "ladder",
        "ticks": 10,
        "envs": {"g": {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 1}}},
        "policies": policies,
        "matches": [{"env": "g", "seats": [names[0], names[-1]], "lanes": 4}],
        **changes,
    }


def learners(**changes: Any) -> dict[str, Any]:
    """A run that leaves checkpoints at 0, 10 and 20."""
    data = ladder({"blue": {"algorithm": "workers:Counts"}, "fixed": plays(1)}, ticks=20, checkpoint_every=10)
    return data | changes


def written(folder: Path, data: Any, name: str = "ladder.yaml") -> str:
    (folder / name).write_text(yaml.safe_dump(data))
    return str(folder / name)


def tournament(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["tournament", *arguments, "--run-dir", str(tmp_path / "games")]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def as_data(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["tournament", *arguments, "--json", "--run-dir", str(tmp_path / "games")]) == 0
    return json.loads(capsys.readouterr().out)


def mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> str:
    capsys.readouterr()
    try:
        status = main(["tournament", *arguments, "--run-dir", str(tmp_path / "games")])
    except SystemExit as error:
        status = int(str(error.code))
    captured = capsys.readouterr()
    assert status == 2
    assert "Traceback" not in captured.err
    assert not (tmp_path / "games").exists()
    return captured.err


def numbers(folder: RunFolder) -> Any:
    """Those of the report."""
    return msgspec.to_builtins(page_data(read_run(folder.path)))


# what is played


@pytest.mark.parametrize(
    ("policies", "expected"),
    [(None, True), ({name: {"algorithm": "random"} for name in "ab"}, False)],
    ids=["one-wins-all", "all-win-some"],
)
def test_table_notes_the_prior(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policies: Any, expected: bool
) -> None:
    out = tournament(capsys, tmp_path, written(tmp_path, ladder(policies)), "--episodes", "100", "--sample")
    table, _, below = out.partition("the order is ")
    assert ("\nthe strengths have a weak prior" in table) is expected
    assert "short games count too often" not in out
    assert below


def test_players_of_known_order_are_ranked_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tournament(capsys, tmp_path, written(tmp_path, ladder()), "--elo", "50")
    table = [line.split()[:2] for line in out.splitlines() if re.match(r" +[0-9]+ ", line)]
    assert table == [["1", "high"], ["2", "middle"], ["3", "low"]]
    assert "the order is decided after " in out
    assert "all games between" in out
    folder = RunFolder(tmp_path / "games")
    reading = read(folder)
    assert reading.episodes == reading.results.games < 200
    seats = [tuple(seat["policy"] for seat in line["seats"]) for line in JournalReader(folder.episodes)]
    assert all(seats.count(pair) == seats.count(pair[::-1]) for pair in set(seats)), "both sides are played alike"
    config = load_config(folder.config)
    assert {*config.policies} == {"low", "high", "middle"}
    assert all(policy.frozen for policy in config.policies.values())
    assert not [*folder.checkpoints.iterdir()]


def test_equal_players_use_the_budget_and_stay_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ladder({"one": plays(1), "other": plays(1)}))
    data = as_data(capsys, tmp_path, path, "--episodes", "36")
    assert not data["decided"]
    assert data["games"] == 32  # four meetings of four lanes on both sides
    assert [(pair["open"], pair["probability"] > 0.1) for pair in data["neighbors"]] == [(True, True)]
    assert {row["draws"] for row in data["players"]} == {32}


@pytest.mark.parametrize(("chance", "told"), [([], True), (["--sample"], False)])
def test_identical_games_are_reported_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chance: list[str], told: bool
) -> None:
    path = written(tmp_path, ladder({"one": plays(1), "other": plays(1)}))
    out = tournament(capsys, tmp_path, path, "--episodes", "36", *chance)
    assert ("all games between one and other were alike" in out and "--sample plays with chance" in out) is told


def test_players_that_always_draw_are_reported_as_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ladder({"one": plays(1), "other": plays(1)}))
    out = tournament(capsys, tmp_path, path, "--episodes", "1000")
    assert re.search("the order is decided after [0-9]{2,3} games", out)
    assert (
        "as good as each other, as nearly all of their games are drawn, or won by the same side: one and other" in out
    )


def test_batches_are_rounds_with_streams_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ladder({"one": {"algorithm": "random"}, "other": {"algorithm": "random"}}))
    tournament(capsys, tmp_path, path, "--episodes", "128")
    folder = RunFolder(tmp_path / "games")
    played = rounds_file.read(folder)
    assert len(played) > 2
    assert [planned.number for planned in played] == [*range(len(played))]
    starts = [planned.start for planned in played]
    assert sorted(set(starts)) == starts
    by_round: dict[int, list[Any]] = {}
    for line in JournalReader(folder.episodes):
        by_round.setdefault(line["round"], []).append([seat["return"] for seat in line["seats"]])
    assert by_round[1] != by_round[2]


def test_a_budget_of_one_batch_is_a_run_of_one_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_data(capsys, tmp_path, written(tmp_path, ladder()), "--episodes", "8")
    assert data["games"] == 8
    assert not data["decided"]


class NamesDraws:
    """A game of one tick for two: its infos name a draw if both do the same, else nothing; returns are shared."""

    outcome = "info"

    def __init__(self) -> None:
        self.observation_spaces = [spaces.Discrete(1)] * 2
        self.action_spaces = [spaces.Discrete(2)] * 2

    def reset(self) -> list[int]:
        return [0, 0]

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        said = {"outcome": "draw"} if actions[0] == actions[1] else {}
        return [0, 0], [3.0, 3.0], True, [said, said]


def test_uncounted_games_do_not_enter_the_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = {"g": {"make": f"{__name__}:NamesDraws"}}
    path = written(tmp_path, ladder({name: {"algorithm": "random"} for name in ("one", "other")}, envs=game))
    out = tournament(capsys, tmp_path, path, "--episodes", "36")
    found = read(RunFolder(tmp_path / "games"))
    assert found.results.games > 0 < found.unrated
    assert f"after {found.results.games} games" in out
    assert f"not counted: {found.unrated} without a winner\n" in out


# who plays


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, each with a blue that has learned and the same fixed player."""
    home = tmp_path_factory.mktemp("played")
    for seed, name in enumerate("ab"):
        play(learners(seed=seed), home / name)
    return home


@pytest.fixture
def runs(tmp_path: Path, played: Path) -> tuple[str, str]:
    """Copies of the two runs."""
    shutil.copytree(played, tmp_path, dirs_exist_ok=True)
    first, second = (str(next((tmp_path / name).iterdir())) for name in "ab")
    return first, second


def players(data: Any) -> set[str]:
    return {row["player"] for row in data["players"]}


def test_players_of_runs_are_distinguished_and_duplicates_merged(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = as_data(capsys, tmp_path, *runs, "--episodes", "24")
    assert players(data) == {"run.blue", "run-2.blue", "fixed"}


def test_checkpoints_are_players(tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    data = as_data(capsys, tmp_path, runs[0], "--checkpoints", "first", "10", "last", "--episodes", "32")
    assert players(data) == {"blue@0", "blue@10", "blue@20", "fixed"}
    loads = {name: policy.load for name, policy in load_config(tmp_path / "games" / "config.yaml").policies.items()}
    assert loads["blue@10"] == str(Path(runs[0], "checkpoints", "blue", "000000000010.ckpt").resolve())
    assert loads["fixed"] is None


def test_players_can_be_chosen_with_their_ticks(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = as_data(capsys, tmp_path, runs[0], "--players", "blue,blue@0", "--episodes", "16")
    assert players(data) == {"blue", "blue@0"}


def test_snapshots_of_a_league_play_with_their_own_options(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(runs[0])
    (run / "snapshots" / "blue").mkdir(parents=True)
    shutil.copy(run / "checkpoints/blue/000000000010.ckpt", run / "snapshots/blue/000000000015.ckpt")
    played = [{"blue": {"every": 3}}, {"blue": {"every": 7}, "blue@15": {"every": 3}}]
    described = {"env": "game", "seats": ["blue", "fixed"]}
    lines = [
        {"version": 1, "round": number, "start": 15 * number, "descriptions": [described], "options": options}
        for number, options in enumerate(played)
    ]
    (run / "rounds.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    data = as_data(capsys, tmp_path, str(run), "--players", "blue@10,blue@15,blue,fixed", "--episodes", "32")
    assert players(data) == {"blue@10", "blue@15", "blue", "fixed"}
    found = load_config(tmp_path / "games" / "config.yaml").policies
    every = {name: policy.options["every"] for name, policy in found.items() if name != "fixed"}
    assert every == {"blue": 7, "blue@15": 3, "blue@10": 3}
    assert str(found["blue@15"].load).endswith("snapshots/blue/000000000015.ckpt")


def test_a_configuration_adds_its_members(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = written(tmp_path, ladder({"high": plays(2), "dice": {"algorithm": "random"}}))
    data = as_data(capsys, tmp_path, runs[0], more, "--players", "blue,high,dice", "--elo", "50", "--episodes", "400")
    assert players(data) == {"blue", "high", "dice"}
    assert data["players"][0]["player"] == "high"


def runs_called(tmp_path: Path, *names: str, policies: dict[str, Any] | None = None) -> list[str]:
    """Runs of the same configuration, in folders of these names."""
    left = [play(ladder(policies), tmp_path / str(place)).folder.path for place, _ in enumerate(names)]
    return [str(path.rename(path.with_name(name))) for path, name in zip(left, names, strict=True)]


def test_run_name_collision_loses_no_player(tmp_path: Path) -> None:
    """The number follows the folder: the second `duel` of three sources is not `duel-2` where the third is."""
    sources = read_sources(runs_called(tmp_path, "duel", "duel", "duel-2"))
    assert [source.label for source in sources] == ["duel", "duel-3", "duel-2"]


def test_policy_name_collision_loses_no_player(tmp_path: Path) -> None:
    learn = {"blue": {"algorithm": "workers:Counts"}, "fixed": plays(1)}
    first, second = runs_called(tmp_path, "duel", "other", policies=learn)
    more = written(tmp_path, ladder({"duel.blue": plays(2), "dice": {"algorithm": "random"}}))
    found = players_of(read_sources([first, second, more]), ["last"])
    assert set(found) == {"duel.blue", "duel-2.blue", "other.blue", "fixed", "dice"}
    assert found["duel.blue"].load is None
    assert str(found["duel-2.blue"].load).startswith(str(Path(first).resolve()))


def test_folder_without_a_usable_name_takes_the_configurations(tmp_path: Path) -> None:
    assert [source.label for source in read_sources(runs_called(tmp_path, "日本", "日 1"))] == ["ladder", "1"]


def test_a_tournament_can_be_a_source_of_the_next(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    tournament(capsys, tmp_path, runs[0], "--checkpoints", "first", "last", "--episodes", "24")
    (tmp_path / "games").rename(tmp_path / "before")
    data = as_data(capsys, tmp_path, str(tmp_path / "before"), "--episodes", "24")
    assert players(data) == {"blue@0", "blue@20", "fixed"}


# where strengths say nothing


def circle() -> dict[str, Any]:
    """Rock, paper and scissors, of which each beats one."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 1}}
    return ladder({name: plays(move) for move, name in enumerate(("rock", "paper", "scissors"))}, envs={"g": game})


def test_cyclic_order_uses_the_whole_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, circle())
    out = tournament(capsys, tmp_path, path, "--episodes", "1200")
    assert "the games of some pairs contradict the order: " in out
    assert re.search(r"(rock|paper|scissors) scores 100\.0% \[9[0-9]\.[0-9]%, 100\.0%\] against ", out)
    assert re.search(
        "no order fits players that beat each other in a circle: [a-z]+ beats [a-z]+ beats [a-z]+ beats ", out
    )
    assert re.search("the order is not decided after [0-9,]+ games: those of .* contradict it\n", out)
    data = as_data(capsys, tmp_path, path, "--episodes", "1200", "--resume")
    assert not data["decided"]
    assert {*data["contradictions"][0]["circle"]} == {"rock", "paper", "scissors"}
    assert data["unmet"] == []
    assert data["games"] > 1100
    found = read_run(tmp_path / "games")
    order = msgspec.to_builtins(page_data(found))["standings"]["order"]
    assert (order["decided"], order["contradicting"], order["not_met"]) == (False, len(data["contradictions"]), 0)
    words = page(found)
    assert "The games of some pairs contradict the order: " in words
    assert " need no order" in words


def test_data_has_the_statements_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [written(tmp_path, ladder()), "--episodes", "96"]
    words = tournament(capsys, tmp_path, *arguments)
    assert "the strengths have a weak prior" in words
    assert "were alike" in words
    data = as_data(capsys, tmp_path, *arguments, "--resume")
    assert data["prior"]
    assert ["high", "low"] in data["alike"]
    assert data["not_counted"] == {"without_winner": 0, "cut_short": 0, "interrupted": 0}
    assert (data["contradictions"], data["unmet"]) == ([], [])
    ratings = fit(read(RunFolder(tmp_path / "games")).results)
    for row in data["players"]:
        assert row["games"] == ratings.of(row["player"]).games
        assert row["score_interval"] == pytest.approx(of_share(row["wins"] + row["draws"] / 2, row["games"]))


def test_pairs_that_the_budget_does_not_reach_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tournament(capsys, tmp_path, written(tmp_path, ladder()), "--episodes", "16")
    assert "1 of 3 pairs have not met in a game that counts: " in out


UNTRAINED = {
    "blue": {"algorithm": "workers:Counts"},
    "red": {"algorithm": "workers:Counts"},
    "fixed": plays(1),
}


def test_learners_without_checkpoints_are_refused(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, ladder(UNTRAINED), "fresh.yaml")
    error = mistake(capsys, tmp_path, path)
    assert "policies.blue: learns and has no checkpoint (also red)" in error
    for remedy in ("`load:`", "run folder", "`--untrained`"):
        assert remedy in error
    loaded = {name: entry | {"load": runs[0]} if name == "blue" else entry for name, entry in UNTRAINED.items()}
    assert "policies.red: learns" in mistake(capsys, tmp_path, written(tmp_path, ladder(loaded), "half.yaml"))


@pytest.mark.parametrize("arguments", [["--untrained"], ["--players", "fixed,blue"]])
def test_initial_weights_play_on_request_or_if_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    frozen = {} if arguments == ["--untrained"] else {"frozen": True}
    policies = UNTRAINED | {"blue": UNTRAINED["blue"] | frozen}
    data = as_data(capsys, tmp_path, written(tmp_path, ladder(policies)), "--episodes", "48", *arguments)
    assert "blue" in players(data)


# what goes wrong


def test_wrong_choice_of_players_is_refused(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is named twice; " in mistake(capsys, tmp_path, runs[0], runs[0])
    (tmp_path / "link").symlink_to(runs[0])
    assert f"is named twice, as {runs[0]} too" in mistake(capsys, tmp_path, runs[0], str(tmp_path / "link"))
    for nothing in ("", ",", " , "):
        assert "expected names of players" in mistake(capsys, tmp_path, runs[0], "--players", nothing)
    for tick in ("²", "٢", "1" * 5000):
        assert "there is no player " in mistake(capsys, tmp_path, runs[0], "--players", f"blue@{tick},fixed")
    assert "needs two players, found blue" in mistake(capsys, tmp_path, runs[0], "--players", "blue")


def test_missing_player_or_checkpoint_is_refused(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "did you mean 'blue'?" in mistake(capsys, tmp_path, runs[0], "--players", "bleu,fixed")
    error = mistake(capsys, tmp_path, runs[0], "--players", "blue@11,fixed")
    assert "no player 'blue@11'" in error
    assert "blue@10" in error
    assert "no checkpoint '11' of 'blue'" in mistake(capsys, tmp_path, runs[0], "--checkpoints", "11")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"envs": {"g": {"make": "touchdown"}}}, "game touchdown, there matrix"),
        ({"envs": {"g": {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 2}}}}, 'kwargs {"payoffs"'),
        ({"matches": [{"env": "g", "seats": ["low", "high"], "entities": [1, 0]}]}, "entities [[1], [0]]"),
    ],
)
def test_another_game_is_refused_with_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any], words: str
) -> None:
    paths = written(tmp_path, ladder()), written(tmp_path, ladder(name="other") | other, "other.yaml")
    error = mistake(capsys, tmp_path, *paths)
    assert "other.yaml: plays another game than" in error
    assert words in error


@pytest.mark.parametrize(
    ("seats", "words"),
    [
        (["low", "middle", "high"], "matches[0]: a match of 3 seats, without `sides`"),
        (["low"], "a match of 1 seat, without `sides`; two players meet where there are two sides\n"),
    ],
)
def test_a_match_without_two_sides_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seats: list[str], words: str
) -> None:
    envs = {"g": {"make": "cover", "kwargs": {"players": len(seats)}}}
    data = ladder(envs=envs, matches=[{"env": "g", "seats": seats}])
    assert words in mistake(capsys, tmp_path, written(tmp_path, data))


def test_mixed_games_with_a_solo_game_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ladder()
    data["envs"]["alone"] = {"make": "cover", "kwargs": {"players": 1}}
    data["matches"] = [*data["matches"], {"env": "alone", "seats": ["low"]}]
    error = mistake(capsys, tmp_path, written(tmp_path, data))
    assert "plays several games (g, alone), and a match of 'alone' has not two sides; a tournament is of one" in error
    assert "say `sides" not in error


def test_games_that_do_not_count_end_the_tournament(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ladder(envs={"g": {"make": "matrix", "kwargs": {"game": "stag_hunt"}, "outcome": "info"}})
    data["policies"] = {"one": plays(0), "other": plays(1)}
    data["matches"] = [{"env": "g", "seats": ["one", "other"]}]
    capsys.readouterr()
    assert main(["tournament", written(tmp_path, data), "--run-dir", str(tmp_path / "games")]) == 2
    assert "none of 32 games counts" in capsys.readouterr().err
    data["envs"]["g"].pop("outcome")
    assert main(["tournament", written(tmp_path, data), "--run-dir", str(tmp_path / "again")]) == 2
    assert "'matrix' declares none, but the tournament needs winners" in capsys.readouterr().err


def test_a_budget_that_is_too_small_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = mistake(capsys, tmp_path, written(tmp_path, ladder()), "--episodes", "7")
    assert "--episodes: found 7, but when two players meet they play 8" in error


@pytest.mark.parametrize(("option", "value"), [("--error", "0"), ("--error", "0.6"), ("--elo", "0"), ("--elo", "x")])
def test_undecidable_error_or_difference_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert "expected a number above 0" in mistake(capsys, tmp_path, written(tmp_path, ladder()), option, value)


def test_a_folder_that_is_damaged_or_no_run_is_refused(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert "not a run folder: config.yaml is missing" in mistake(capsys, tmp_path, str(tmp_path / "empty"))
    Path(runs[0], "checkpoints", "blue", "000000000020.ckpt").write_bytes(b"no zip")
    assert "000000000020.ckpt: is not a checkpoint" in mistake(capsys, tmp_path, runs[0])
    Path(runs[1], "rounds.jsonl").write_bytes(msgspec.json.encode({"version": 99, "round": 0}) + b"\n")
    assert "version 99" in mistake(capsys, tmp_path, runs[1])
    Path(runs[1], "config.yaml").write_text("ticks: [")
    assert "config.yaml" in mistake(capsys, tmp_path, runs[1])


def test_interrupt_ends_the_tournament_with_the_played_games(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arena.roles.root.root import Root

    record = Root.record

    def interrupted(root: Any, *given: Any) -> Any:
        if root._run.plan.round == 1:
            signal.raise_signal(signal.SIGINT)
        return record(root, *given)

    monkeypatch.setattr(Root, "record", interrupted)
    path = written(tmp_path, ladder({"one": {"algorithm": "random"}, "other": {"algorithm": "random"}}))
    assert main(["tournament", path, "--run-dir", str(tmp_path / "games")]) == 130
    captured = capsys.readouterr()
    assert f"what was played is in {tmp_path / 'games'}" in captured.err
    assert "--resume goes on after the last batch that is whole" in captured.err
    assert "the order is not decided" in captured.out


def test_an_interrupt_before_a_game_has_ended_is_no_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arena.roles.root.root import Root

    record = Root.record

    def interrupted(root: Any, *given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return record(root, *given)

    monkeypatch.setattr(Root, "record", interrupted)
    endless = {"envs": {"g": {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 10**9}}}}
    assert main(["tournament", written(tmp_path, ladder(**endless)), "--run-dir", str(tmp_path / "games")]) == 130
    captured = capsys.readouterr()
    assert "arena: stopped at tick" in captured.err
    assert "the order is not decided" in captured.out


# going on with it


def dice(**changes: Any) -> dict[str, Any]:
    return ladder({name: {"algorithm": "random"} for name in ("one", "other", "third")}, **changes)


def left_by(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("episodes.jsonl", "rounds.jsonl", "config.yaml")}


BUDGET = ["--episodes", "240"]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A tournament that was ended in the middle of its third batch; its command line."""
    from arena.roles.root.progress import RunProgress

    advance = RunProgress.advance

    def ended(progress: Any, report: Any) -> None:
        advance(progress, report)
        if progress._run.plan.round == 2:
            progress.recorder.sync()
            raise KeyboardInterrupt

    arguments = [written(tmp_path, dice()), *BUDGET]
    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "advance", ended)
        assert main(["tournament", *arguments, "--run-dir", str(tmp_path / "games")]) == 130
    assert "--resume" in capsys.readouterr().err
    return arguments


def test_resumed_tournament_equals_an_uninterrupted_one(
    tmp_path: Path, interrupted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def ended() -> str:
        folder = RunFolder(tmp_path / "games")
        return run_status(folder, load_config(folder.config), played=0).value

    assert max(line["round"] for line in JournalReader(tmp_path / "games" / "episodes.jsonl")) == 2, "in its middle"
    assert ended() == "ended early"
    resumed = as_data(capsys, tmp_path, *interrupted, "--resume")
    assert ended() == "finished"
    found = left_by(tmp_path / "games")
    (tmp_path / "games").rename(tmp_path / "broken")
    whole = as_data(capsys, tmp_path, *interrupted)
    assert found == left_by(tmp_path / "games")
    assert resumed == whole


def test_finished_tournament_shows_its_table_or_plays_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, dice())
    first = as_data(capsys, tmp_path, path, *BUDGET)
    assert as_data(capsys, tmp_path, path, *BUDGET, "--resume") == first
    more = as_data(capsys, tmp_path, path, "--episodes", "320", "--resume")
    assert first["games"] == 240 < more["games"] == 320
    assert [one.number for one in rounds_file.read(RunFolder(tmp_path / "games"))][-1] > 2


def test_interrupted_batch_does_not_count(
    tmp_path: Path, interrupted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before, folder = left_by(tmp_path / "games"), RunFolder(tmp_path / "games")
    whole, again = read(folder, last=1), read(folder).episodes - read(folder, last=1).episodes
    assert again > 0
    fewer = [interrupted[0], "--episodes", str(whole.episodes)]
    assert as_data(capsys, tmp_path, *fewer, "--resume")["games"] == whole.results.games
    assert f"\nnot counted: {again} of the batch that was interrupted\n" in tournament(
        capsys, tmp_path, *fewer, "--resume"
    )
    assert left_by(tmp_path / "games") == before, "no game was played, so there is nothing to remove"
    assert numbers(folder)["standings"]["games"] == whole.results.games, "on the page as well"


def test_decision_is_recorded_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder = written(tmp_path, dice()), RunFolder(tmp_path / "games")

    def asked(*arguments: str) -> tuple[float, float]:
        data = as_data(capsys, tmp_path, path, "--episodes", "48", *arguments)
        assert (data["error"], data["elo"]) == (read_terms(folder).error, read_terms(folder).elo)
        order = numbers(folder)["standings"]["order"]
        assert {name: order[name] for name in ("decided", "error", "elo")} == {
            name: data[name] for name in ("decided", "error", "elo")
        }
        return data["error"], data["elo"]

    assert asked("--error", "0.2") == (0.2, 20)
    assert asked("--resume") == (0.2, 20)
    assert asked("--resume", "--elo", "400") == (0.2, 400)
    shutil.rmtree(folder.path)
    assert asked() == (0.05, 20)


def test_action_mode_is_recorded_before_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arena.roles.root.root import Root

    def killed(*_: Any) -> None:
        raise RuntimeError("as by a kill, which leaves what is there")

    arguments = ["tournament", written(tmp_path, dice()), *BUDGET, "--run-dir", str(tmp_path / "games")]
    with monkeypatch.context() as patched:
        patched.setattr(Root, "record", killed)
        assert main(arguments) == 1
    assert main([*arguments, "--resume", "--sample"]) == 2
    assert "it was played without --sample" in capsys.readouterr().err


def test_other_tournament_is_not_resumed(
    tmp_path: Path, interrupted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = left_by(tmp_path / "games")

    def refused(*arguments: str) -> str:
        assert main(["tournament", *arguments, "--run-dir", str(tmp_path / "games"), "--resume"]) == 2
        return capsys.readouterr().err

    assert "it was played without --sample" in refused(*interrupted, "--sample")
    assert "players.third is missing" in refused(*interrupted, "--players", "one,other")
    other = ladder(dice()["policies"], envs={"g": {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 2}}})
    assert "envs.g.kwargs was" in refused(written(tmp_path, other), *BUDGET)
    assert left_by(tmp_path / "games") == before
    for damaged in ('{"greedy": true, "error": 7}', '{"greedy": true, "elo": -5}', '{"error": 0.1}', "{"):
        RunFolder(tmp_path / "games").tournament.write_text(damaged)
        assert "tournament.json: " in refused(*interrupted)
        assert main(["report", str(tmp_path / "games")]) == 2
        assert "tournament.json: " in capsys.readouterr().err
