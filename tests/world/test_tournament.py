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

from arena import open_run, tournament
from arena.config import load_config
from arena.experiment.folder import ExperimentFolder, StateLine, now, write_state
from arena.experiment.scheduler import State
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
from arena.roles.root.progress import RunProgress
from arena.roles.root.root import Root
from arena.roles.status import run_status
from arena.run.players import players_of, read_sources
from command import Command, Printed
from experiment_folders import write_experiment
from games import Pair
from in_process import play, train

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


class Games:
    """`arena tournament` with a folder of its own, and what it prints."""

    def __init__(self, home: Path, command: Command) -> None:
        self.home, self._command = home, command
        self.folder = RunFolder(home / "games")

    def write(self, data: Any, name: str = "ladder.yaml") -> str:
        (self.home / name).write_text(yaml.safe_dump(data))
        return str(self.home / name)

    def play(self, *arguments: str, code: int = 0) -> Printed:
        return self._command("tournament", *arguments, "--run-dir", self.folder.path, code=code)

    def text(self, *arguments: str) -> str:
        printed = self.play(*arguments)
        assert printed.err == ""
        return printed.out

    def data(self, *arguments: str) -> Any:
        return json.loads(self.play(*arguments, "--json").out)

    def refused(self, *arguments: str) -> str:
        """The message of a mistake, which leaves no folder."""
        error = self.play(*arguments, code=2).err
        assert not self.folder.path.exists()
        return error

    def forget(self) -> Path:
        """Moves the folder away."""
        return self.folder.path.rename(self.home / f"games-{len([*self.home.iterdir()])}")


@pytest.fixture
def games(tmp_path: Path, command: Command) -> Games:
    return Games(tmp_path, command)


def numbers(folder: RunFolder) -> Any:
    """Those of the report."""
    return msgspec.to_builtins(page_data(read_run(folder.path)))


# what is played


def test_players_of_known_order_are_ranked_early(games: Games) -> None:
    out = games.text(games.write(ladder()), "--elo", "50")
    table = [line.split()[:2] for line in out.splitlines() if re.match(r" +[0-9]+ ", line)]
    assert table == [["1", "high"], ["2", "middle"], ["3", "low"]]
    assert "the order is decided after " in out
    assert "all games between" in out
    folder = games.folder
    reading = read(folder)
    assert reading.episodes == reading.results.games < 200
    seats = [tuple(seat["policy"] for seat in line["seats"]) for line in JournalReader(folder.episodes)]
    assert all(seats.count(pair) == seats.count(pair[::-1]) for pair in set(seats)), "both sides are played alike"
    config = load_config(folder.config)
    assert {*config.policies} == {"low", "high", "middle"}
    assert all(policy.frozen for policy in config.policies.values())
    assert not [*folder.checkpoints.iterdir()]


def test_equal_players_use_a_small_budget_and_are_reported_as_equal_with_a_larger_one(games: Games) -> None:
    path = games.write(ladder({"one": plays(1), "other": plays(1)}))
    data = games.data(path, "--episodes", "36")
    assert not data["decided"]
    assert data["games"] == 32  # four meetings of four lanes on both sides
    assert [(pair["open"], pair["probability"] > 0.1) for pair in data["neighbors"]] == [(True, True)]
    assert {row["draws"] for row in data["players"]} == {32}
    out = games.text(path, "--episodes", "1000", "--resume")
    assert re.search("the order is decided after [0-9]{2,3} games", out)
    assert (
        "as good as each other, as nearly all of their games are drawn, or won by the same side: one and other" in out
    )


def test_batches_are_rounds_with_streams_of_their_own(games: Games) -> None:
    path = games.write(ladder({"one": {"algorithm": "random"}, "other": {"algorithm": "random"}}))
    assert "weak prior" not in games.text(path, "--episodes", "128"), "both win some games"
    folder = games.folder
    played = rounds_file.read(folder)
    assert len(played) > 2
    assert [planned.number for planned in played] == [*range(len(played))]
    starts = [planned.start for planned in played]
    assert sorted(set(starts)) == starts
    by_round: dict[int, list[Any]] = {}
    for line in JournalReader(folder.episodes):
        by_round.setdefault(line["round"], []).append([seat["return"] for seat in line["seats"]])
    assert by_round[1] != by_round[2]


class NamesDraws(Pair):
    """Its infos name a draw if both do the same, else nothing."""

    outcome = "info"

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        said = {"outcome": "draw"} if actions[0] == actions[1] else {}
        return [0, 0], [3.0, 3.0], True, [said, said]


def test_uncounted_games_do_not_enter_the_decision(games: Games) -> None:
    game = {"g": {"make": f"{__name__}:NamesDraws"}}
    path = games.write(ladder({name: {"algorithm": "random"} for name in ("one", "other")}, envs=game))
    out = games.text(path, "--episodes", "36")
    found = read(games.folder)
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


def players_in(path: str, arguments: list[str]) -> list[str]:
    """Arguments of which those with a `:` are players of a configuration; without such it plays whole."""
    named = [f"{path}{argument}" for argument in arguments if argument.startswith(":")]
    return [*(named or [path]), *(argument for argument in arguments if not argument.startswith(":"))]


def players(data: Any) -> set[str]:
    return {row["player"] for row in data["players"]}


def test_checkpoints_and_tournaments_are_sources_of_players(games: Games, runs: tuple[str, str]) -> None:
    data = games.data(runs[0], "--checkpoints", "first", "10", "last", "--episodes", "32")
    assert players(data) == {"blue@0", "blue@10", "blue@20", "fixed"}
    loads = {name: policy.load for name, policy in load_config(games.folder.config).policies.items()}
    assert loads["blue@10"] == str(Path(runs[0], "checkpoints", "blue", "000000000010.ckpt").resolve())
    assert loads["fixed"] is None
    before = games.forget()
    data = games.data(f"{runs[0]}:fixed", f"{runs[0]}:blue@0", "--episodes", "16")
    assert players(data) == {"fixed", "blue@0"}
    told = {row["player"]: row["elo"] for row in data["players"]}
    listed = {row["player"]: row["elo"] for row in open_run(games.folder.path).standings()}
    assert listed == pytest.approx(told) and sum(listed.values()) == pytest.approx(0), "blue plays as blue@0 alone"
    games.forget()
    data = games.data(str(before), "--episodes", "32")
    assert players(data) == {"blue@0", "blue@10", "blue@20", "fixed"}, "a tournament can be a source of the next"


def test_an_experiment_stands_for_the_runs_of_its_trials_that_are_over(games: Games, command: Command) -> None:
    made = train(learners(), games.home / "made").path
    path = write_experiment(games.home / "rates", {"run": learners(), "repeat": 5}, lambda *_: 0.0, results=1)
    folder = ExperimentFolder(path)  # trial 4 is in error
    for trial in folder.trials.iterdir():
        shutil.copytree(made, trial, dirs_exist_ok=True)
    shutil.copytree(made, folder.trials / "0002_seed=2.attempt-1")
    write_state(folder.state_path(0), [StateLine(now(), State.TERMINATED, wanted=False)])
    write_state(folder.state_path(1), [StateLine(now(), State.PAUSED)])
    players = games.data(f"{path}:blue", f"{path}:blue@10", "--episodes", "64")["players"]
    names = [f"{number:04}_seed-{number}.blue{tick}" for number in (2, 3) for tick in ("", "@10")]
    assert sorted(player["player"] for player in players) == names
    lines = command("evaluate", path, "--episodes", "4").out.splitlines()
    trials = [folder.trials / f"{number:04}_seed={number}" for number in (2, 3)]
    assert [line for line in lines if line.endswith(":")] == [f"{trial}:" for trial in trials]
    assert sum(line.startswith("blue at tick 20 (last): ") for line in lines) == 2
    assert lines[-1] == f"records: {', '.join(str(trial / 'evaluations/last') for trial in trials)}"
    write_state(folder.state_path(2), [StateLine(now(), State.RUNNING)])
    write_state(folder.state_path(3), [StateLine(now(), State.RUNNING)])
    assert "rates: no trial of this experiment is over" in command("evaluate", path, code=2).err


def test_snapshots_of_a_league_play_with_their_own_options(games: Games, runs: tuple[str, str]) -> None:
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
    data = games.data(*(f"{run}:{name}" for name in ("blue@10", "blue@15", "blue", "fixed")), "--episodes", "32")
    assert players(data) == {"blue@10", "blue@15", "blue", "fixed"}
    found = load_config(games.folder.config).policies
    every = {name: policy.options["every"] for name, policy in found.items() if name != "fixed"}
    assert every == {"blue": 7, "blue@15": 3, "blue@10": 3}
    assert str(found["blue@15"].load).endswith("snapshots/blue/000000000015.ckpt")


def runs_called(tmp_path: Path, *names: str, policies: dict[str, Any] | None = None) -> list[str]:
    """Runs of the same configuration, in folders of these names."""
    left = [play(ladder(policies), tmp_path / str(place)).folder.path for place, _ in enumerate(names)]
    return [str(path.rename(path.with_name(name))) for path, name in zip(left, names, strict=True)]


def test_run_name_collision_loses_no_player(tmp_path: Path) -> None:
    """The number follows the folder: the second `duel` of three sources is not `duel-2` where the third is."""
    sources = read_sources(runs_called(tmp_path, "duel", "duel", "duel-2"))
    assert [source.label for source in sources] == ["duel", "duel-3", "duel-2"]


def test_policy_name_collision_loses_no_player(games: Games, tmp_path: Path) -> None:
    learn = {"blue": {"algorithm": "workers:Counts"}, "fixed": plays(1)}
    first, second = runs_called(tmp_path, "duel", "other", policies=learn)
    more = games.write(ladder({"duel.blue": plays(2), "dice": {"algorithm": "random"}}))
    found = players_of(read_sources([first, second, more]), ["last"])
    assert set(found) == {"duel.blue", "duel-2.blue", "other.blue", "fixed", "dice"}
    assert found["duel.blue"].load is None
    assert str(found["duel-2.blue"].load).startswith(str(Path(first).resolve()))


def test_policies_that_do_not_play_prefix_no_name(tmp_path: Path) -> None:
    learn = {"blue": {"algorithm": "workers:Counts"}, "fixed": plays(1)}
    first, second = runs_called(tmp_path, "one", "other", policies=learn)
    assert {*players_of(read_sources([f"{first}:fixed", f"{second}:blue"]), ["last"])} == {"fixed", "blue"}
    chosen = read_sources([f"{first}:fixed", f"{first}:blue", f"{second}:blue"])
    assert {*players_of(chosen, ["last"])} == {"fixed", "one.blue", "other.blue"}


def test_folder_without_a_usable_name_takes_the_configurations(tmp_path: Path) -> None:
    assert [source.label for source in read_sources(runs_called(tmp_path, "日本", "日 1"))] == ["ladder", "1"]


# where strengths say nothing


def circle() -> dict[str, Any]:
    """Rock, paper and scissors, of which each beats one."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 1}}
    return ladder({name: plays(move) for move, name in enumerate(("rock", "paper", "scissors"))}, envs={"g": game})


def test_cyclic_order_uses_the_whole_budget(games: Games) -> None:
    path = games.write(circle())
    out = games.text(path, "--episodes", "600")
    assert "the games of some pairs contradict the order: " in out
    assert re.search(r"(rock|paper|scissors) scores 100\.0 % \[9[0-9]\.[0-9] %, 100\.0 %\] against ", out)
    assert re.search(
        "no order fits players that beat each other in a circle: [a-z]+ beats [a-z]+ beats [a-z]+ beats ", out
    )
    assert re.search("the order is not decided after [0-9,]+ games: those of .* contradict it\n", out)
    data = games.data(path, "--episodes", "600", "--resume")
    assert not data["decided"]
    assert {*data["contradictions"][0]["circle"]} == {"rock", "paper", "scissors"}
    assert data["unmet"] == []
    assert data["games"] > 550
    found = read_run(games.folder.path)
    standings = msgspec.to_builtins(page_data(found))["standings"]
    assert (standings["order"]["decided"], standings["order"]["not_met"]) == (False, 0)
    assert standings["contradicting"] == len(data["contradictions"])
    words = page(found)
    assert "The games of some pairs contradict the order: " in words
    assert " need no order" in words


def test_data_has_the_statements_of_the_text(games: Games) -> None:
    arguments = [games.write(ladder()), "--episodes", "96"]
    words = games.text(*arguments)
    assert "the strengths have a weak prior" in words
    assert "began alike and had the same length and returns" in words and "--sample plays with chance" in words
    data = games.data(*arguments, "--resume")
    assert data["prior"]
    assert ["high", "low"] in data["alike"]
    assert data["not_counted"] == {"without_winner": 0, "cut_short": 0, "interrupted": 0}
    assert (data["contradictions"], data["unmet"]) == ([], [])
    ratings = fit(read(games.folder).results)
    for row in data["players"]:
        assert row["games"] == ratings.of(row["player"]).games
        assert row["score_interval"] == pytest.approx(of_share(row["wins"] + row["draws"] / 2, row["games"]))


UNTRAINED = {
    "blue": {"algorithm": "workers:Counts"},
    "red": {"algorithm": "workers:Counts"},
    "fixed": plays(1),
}


def test_learners_without_checkpoints_are_refused(games: Games, runs: tuple[str, str]) -> None:
    path = games.write(ladder(UNTRAINED), "fresh.yaml")
    error = games.refused(path)
    assert "policies.blue: learns and has no checkpoint (also red)" in error
    for remedy in ("`load:`", "run folder", "`--untrained`"):
        assert remedy in error
    loaded = {name: entry | {"load": runs[0]} if name == "blue" else entry for name, entry in UNTRAINED.items()}
    assert "policies.red: learns" in games.refused(games.write(ladder(loaded), "half.yaml"))


@pytest.mark.parametrize("arguments", [["--untrained"], [":fixed", ":blue"]])
def test_initial_weights_play_on_request_or_if_frozen(games: Games, arguments: list[str]) -> None:
    frozen = {} if arguments == ["--untrained"] else {"frozen": True}
    policies = UNTRAINED | {"blue": UNTRAINED["blue"] | frozen}
    data = games.data(*players_in(games.write(ladder(policies)), arguments), "--episodes", "48")
    assert "blue" in players(data)


# without opponents


def offers(**policies: Any) -> dict[str, Any]:
    """A game of one seat that pays what was drawn at its start, and the action."""
    return ladder(policies, envs={"g": {"make": "games:Offer"}}, matches=[{"env": "g", "seats": ["low"], "lanes": 3}])


def test_players_of_one_seat_play_the_same_games_alone(games: Games) -> None:
    path = games.write(offers(low=plays(1), high=plays(3), lower=plays(0)))
    data = games.data(path, "--episodes", "64")
    best, *others = data["players"]
    assert best["player"] == "high" and best["games"] == 64 and data["decided"]
    assert best["return_low"] < best["return"] < best["return_high"]
    for row, expected in zip(others, (-2, -3), strict=True):  # exactly: what was drawn is the same for all
        assert [row[name] for name in ("difference", "difference_low", "difference_high")] == pytest.approx(
            [expected] * 3
        )
    seats = [line["seats"][0] for line in JournalReader(games.folder.episodes)]
    earned = [seat["return"] - 3 for seat in seats if seat["policy"] == "high"]
    assert len({round(each, 6) for each in earned}) == 64, "no game is played twice"
    assert best["return"] - 3 == pytest.approx(sum(earned) / 64)
    games.forget()
    text = games.text(path, "--episodes", "64")
    assert "high is the best: differences are from high in the same games" in text
    games.forget()
    result = tournament(path, 64, run_dir=games.folder.path)
    assert [*result.standings] == data["players"]
    assert (result.decided, result.games, [*result.undecided]) == (True, 192, [])


def test_a_request_to_requeue_ends_games_alone_by_name(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Root.record

    def requested(root: Root, *given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return record(root, *given)

    monkeypatch.setattr(Root, "record", requested)
    path = games.write(offers(low=plays(1), high=plays(3)))
    with pytest.raises(KeyboardInterrupt, match=r"^SIGUSR1$"):
        tournament(path, 64, run_dir=games.folder.path)


def test_a_team_plays_all_seats_and_equal_players_are_not_separated(games: Games) -> None:
    cover = {"g": {"make": "cover", "kwargs": {"players": 2, "max_steps": 4}}}
    seats = [{"env": "g", "seats": ["one", "one"]}]
    path = games.write(ladder({"one": plays(0), "other": plays(0), "chance": {"algorithm": "random"}}, envs=cover,
                              matches=seats))  # fmt: skip
    data = games.data(f"{path}:one", f"{path}:other")
    assert [(row["difference"], row["games"]) for row in data["players"]] == [(None, 112), (0.0, 112)]
    assert not data["decided"]
    played = {
        (line["match"], *(seat["policy"] for seat in line["seats"])) for line in JournalReader(games.folder.episodes)
    }
    assert played == {(0, "one", "one"), (1, "other", "other")}
    games.forget()
    assert "other may be as good as one: " in games.text(f"{path}:one", f"{path}:other", "--episodes", "16")
    games.forget()
    assert "players that play alone do so once" in games.refused(path, "--resume")
    policies = {"one": plays(0), "other": plays(0)}
    unknown = {"make": "matrix", "kwargs": {"payoffs": [[[1, 1], [0, 0]], [[0, 0], [1, 1]]]}}
    path = games.write(ladder(policies, envs={"g": unknown}, matches=seats))
    assert "set none, which fits" in (error := games.refused(path)) and "(--set envs.g.outcome=none)" in error
    free = unknown | {"outcome": "none"}
    path = games.write(ladder(policies, envs={"g": free}))
    assert "or name players whose matches have one policy in all seats" in games.refused(path)
    path = games.write(ladder(policies, envs={"g": free}, matches=seats), "team.yaml")
    assert games.data(path, "--episodes", "8")["players"][1]["difference"] == 0


# what goes wrong


OTHER = {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 2}}
SOLO = {"make": "cover", "kwargs": {"players": 1}}
LANES = {"env": "g", "seats": ["low", "high"], "lanes": 4}


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ["--players", "low,high"], "--players has been removed: name each as RUN:POLICY@TICK"),
        ({}, [f":low@{'1' * 5000}", ":high"], "there is no checkpoint "),
        ({}, [":low@²", ":high"], "there is no checkpoint "),
        ({}, [":low"], "other policies; `arena evaluate` plays without an opponent"),
        ({}, [":low", ":hihg"], "did you mean 'high'?"),
        ({}, ["--episodes", "7"], "--episodes: found 7, but when two players meet they play 8"),
        ({}, ["--error", "0.6"], "expected a number above 0"),
        ({}, ["--elo", "x"], "expected a number above 0"),
        ({"envs": {"g": {"make": "cover"}}, "matches": [{"env": "g", "seats": ["low", "middle", "high"]}]},
         [], "matches[0]: a match of 3 seats, without `sides`"),
        ({"envs": {**ladder()["envs"], "alone": SOLO}, "matches": [LANES, {"env": "alone", "seats": ["low"]}]},
         [], "plays several games (g, alone), and a match of 'alone' has not two sides; a tournament is of one"),
    ],
)  # fmt: skip
def test_mistake_is_refused_before_play(
    games: Games, changes: dict[str, Any], arguments: list[str], words: str
) -> None:
    assert words in games.refused(*players_in(games.write(ladder(**changes)), arguments))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"envs": {"g": {"make": "touchdown"}}}, "game touchdown, there matrix"),
        (
            {"envs": {"g": OTHER}},
            "kwargs.rounds 2, there 1; all players need the same game, as with `--set envs.g.kwargs.ro",
        ),
        ({"matches": [{**LANES, "entities": [1, 0]}]}, "entities [[1], [0]]"),
    ],
)
def test_another_game_is_refused_with_the_difference(games: Games, other: dict[str, Any], words: str) -> None:
    error = games.refused(games.write(ladder()), games.write(ladder(name="other") | other, "other.yaml"))
    assert "other.yaml: plays another game than" in error
    assert words in error


def test_equal_games_may_be_written_differently(games: Games) -> None:
    """In another order, and with the default of an argument."""
    game = ladder()["envs"]["g"]
    spelled = {
        "g": {"make": "matrix", "kwargs": {"render_mode": "rgb_array", **dict(reversed(game["kwargs"].items()))}}
    }
    other = ladder({"random": {"algorithm": "random"}}, name="other", envs=spelled)
    games.text(games.write(ladder()), games.write(other, "other.yaml"), "--episodes", "40")


def test_wrong_missing_or_damaged_run_is_refused(games: Games, tmp_path: Path, runs: tuple[str, str]) -> None:
    assert "is named twice; " in games.refused(runs[0], runs[0])
    (tmp_path / "link").symlink_to(runs[0])
    assert f"is named twice, as {runs[0]} too" in games.refused(runs[0], str(tmp_path / "link"))
    error = games.refused(f"{runs[0]}:blue@11", f"{runs[0]}:fixed")
    assert "there is no checkpoint '11' of 'blue'" in error and "10" in error
    assert "no checkpoint '11' of 'blue'" in games.refused(runs[0], "--checkpoints", "11")
    (tmp_path / "empty").mkdir()
    assert "not a run folder: config.yaml is missing" in games.refused(str(tmp_path / "empty"))
    Path(runs[0], "checkpoints", "blue", "000000000020.ckpt").write_bytes(b"no zip")
    assert "000000000020.ckpt: is not a checkpoint" in games.refused(runs[0])
    Path(runs[1], "rounds.jsonl").write_bytes(msgspec.json.encode({"version": 99, "round": 0}) + b"\n")
    assert "version 99" in games.refused(runs[1])
    Path(runs[1], "config.yaml").write_text("ticks: [")
    assert "config.yaml" in games.refused(runs[1])


def test_games_that_do_not_count_end_the_tournament(games: Games) -> None:
    data = ladder(envs={"g": {"make": "matrix", "kwargs": {"game": "stag_hunt"}, "outcome": "info"}})
    data["policies"] = {"one": plays(0), "other": plays(1)}
    data["matches"] = [{"env": "g", "seats": ["one", "other"]}]
    assert "none of 32 games counts" in games.play(games.write(data), code=2).err
    games.forget()
    assert "not counted: 2 without a winner" in games.play(games.write(data), "--episodes", "2").out
    games.forget()
    data["envs"]["g"].pop("outcome")
    assert "'matrix' declares none, but the tournament needs winners" in games.refused(games.write(data))


@pytest.mark.parametrize("first", [0, 1], ids=["before a game has ended", "in the second batch"])
def test_interrupt_ends_the_tournament_with_the_played_games(
    first: int, games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Root.record

    def interrupted(root: Any, *given: Any) -> Any:
        if root._run.plan.round == first:
            signal.raise_signal(signal.SIGINT)
        return record(root, *given)

    monkeypatch.setattr(Root, "record", interrupted)
    changes = {} if first else {"envs": {"g": {"make": "matrix", "kwargs": {"payoffs": LADDER, "rounds": 10**9}}}}
    out, err = games.play(games.write(dice(**changes)), code=130)
    assert "the order is not decided" in out
    assert "arena: stopped at tick" in err or first
    assert not first or f"what was played is in {games.folder.path}" in err
    assert not first or "--resume goes on after the last batch that is whole" in err


# going on with it


def dice(**changes: Any) -> dict[str, Any]:
    return ladder({name: {"algorithm": "random"} for name in ("one", "other", "third")}, **changes)


def left_by(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("episodes.jsonl", "rounds.jsonl", "config.yaml")}


BUDGET = ["--episodes", "120"]


@pytest.fixture
def interrupted(games: Games, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tournament that was ended in the middle of its third batch; its command line."""
    advance = RunProgress.advance

    def ended(progress: Any, report: Any) -> None:
        advance(progress, report)
        if progress._run.plan.round == 2:
            progress.recorder.sync()
            raise KeyboardInterrupt

    arguments = [games.write(dice()), *BUDGET]
    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "advance", ended)
        assert "--resume" in games.play(*arguments, code=130).err
    return arguments


def test_resumed_tournament_equals_an_uninterrupted_one(games: Games, interrupted: list[str]) -> None:
    def ended() -> str:
        folder = games.folder
        return run_status(folder, load_config(folder.config), played=0).value

    assert max(line["round"] for line in JournalReader(games.folder.path / "episodes.jsonl")) == 2, "in its middle"
    assert ended() == "ended early"
    resumed = games.data(*interrupted, "--resume")
    assert ended() == "finished"
    found = left_by(games.folder.path)
    games.forget()
    whole = games.data(*interrupted)
    assert found == left_by(games.folder.path)
    assert resumed == whole


def test_finished_tournament_shows_its_table_or_plays_more(games: Games) -> None:
    path = games.write(dice())
    first = games.data(path, *BUDGET)
    assert games.data(path, *BUDGET, "--resume") == first
    more = games.data(path, "--episodes", "168", "--resume")
    assert first["games"] == 120 < more["games"] <= 168
    assert [one.number for one in rounds_file.read(games.folder)][-1] > 2


def test_interrupted_batch_does_not_count(games: Games, interrupted: list[str]) -> None:
    before, folder = left_by(games.folder.path), games.folder
    whole, again = read(folder, last=1), read(folder).episodes - read(folder, last=1).episodes
    assert again > 0
    fewer = [interrupted[0], "--episodes", str(whole.episodes)]
    assert games.data(*fewer, "--resume")["games"] == whole.results.games
    assert f"\nnot counted: {again} of the batch that was interrupted\n" in games.text(*fewer, "--resume")
    assert left_by(games.folder.path) == before, "no game was played, so there is nothing to remove"
    assert numbers(folder)["standings"]["games"] == whole.results.games, "on the page as well"


def test_decision_is_recorded_and_kept(games: Games) -> None:
    path, folder = games.write(dice()), games.folder

    def asked(*arguments: str) -> tuple[float, float]:
        data = games.data(path, "--episodes", "24", *arguments)
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


def test_other_tournament_is_not_resumed(games: Games, interrupted: list[str]) -> None:
    before = left_by(games.folder.path)

    def refused(*arguments: str) -> str:
        return games.play(*arguments, "--resume", code=2).err

    assert "it was played without --sample" in refused(*interrupted, "--sample")
    assert "players.third is missing" in refused(
        *(f"{interrupted[0]}:{name}" for name in ("one", "other")), *interrupted[1:]
    )
    assert "envs.g.kwargs.rounds was 1, is 2" in refused(games.write(dice(envs={"g": OTHER}), "other.yaml"), *BUDGET)
    assert left_by(games.folder.path) == before
    for damaged in ('{"greedy": true, "error": 7}', '{"greedy": true, "elo": -5}', '{"error": 0.1}', "{"):
        games.folder.tournament.write_text(damaged)
        assert "tournament.json: " in refused(*interrupted)
