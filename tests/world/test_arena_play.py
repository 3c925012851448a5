"""`arena play` through a pipe: a human's answers drive a seat, against a run's policies."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.cli.main import main
from arena.cli.play import human
from arena.cli.play.human import Console

RPS = """
ticks: 100
envs: {game: {make: matrix, kwargs: {game: rock_paper_scissors, rounds: 2}}}
policies:
  blue: {algorithm: random}
  red: {algorithm: scripted, options: {action: 1}}
  green: {algorithm: ppo}
matches: [{env: game, seats: [blue, red], lanes: 4}, {env: game, seats: [green, red]}]
"""
LAKE = """
ticks: 10
envs: {game: {make: "gymnasium:FrozenLake-v1", kwargs: {is_slippery: false}}}
policies: {blue: {algorithm: random}}
matches: [{env: game, seats: [blue]}]
"""

PENDULUM = (
    LAKE.replace("FrozenLake-v1", "Pendulum-v1").replace(", kwargs: {is_slippery: false}", "").replace("random", "ppo")
)

FORCED = LAKE.replace("gymnasium:FrozenLake-v1", "games:OddTicksForced").replace(", kwargs: {is_slippery: false}", "")

CHERRIES = """
ticks: 10
envs: {game: {make: unit_task, kwargs: {task: cherry_pick, cherries: 4}}}
policies: {blue: {algorithm: ppo, options: {transformer: {d_model: 8, layers: 1}}}}
matches: [{env: game, seats: [blue]}]
"""
XOR = CHERRIES.replace("cherry_pick, cherries: 4", "xor").replace(
    "ppo, options: {transformer: {d_model: 8, layers: 1}}", "random"
)

seats: list[str] = []
"""Who played which seat, of the last game."""
Play = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Plays a configuration with these answers; the exit status, and the lines shown after who plays which seat."""
    monkeypatch.chdir(tmp_path)

    def play(config: str, answers: str, *options: str, target: str = "game.yaml") -> tuple[int, list[str]]:
        Path("game.yaml").write_text(config)
        reader, writer = os.pipe()
        os.write(writer, answers.encode())
        os.close(writer)
        monkeypatch.setattr(human, "Console", functools.partial(Console, reader))
        capsys.readouterr()
        try:
            status = main(["play", target, *options])
        finally:
            os.close(reader)
        out, err = capsys.readouterr()
        lines = [*out.splitlines(), *err.splitlines()]
        first = next((place for place, line in enumerate(lines) if not re.match(r"seat \d", line)), 0)
        seats[:] = lines[:first]
        return status, lines[first:]

    return play


def test_answers_are_actions_and_an_episode_ends_with_its_return(played: Play) -> None:
    status, shown = played(RPS, "2\n9\nwords\n\nr\n")
    assert status == 0
    options = "0 rock, 1 paper, 2 scissors"
    assert [line for line in shown if not line.startswith(("  ", "scissors "))] == [
        "tick 0, reward 0, return 0",
        "own rock=0, own paper=0, own scissors=0, other rock=0, other paper=0, other scissors=0, none yet=1",
        f"action: {options}",
        "> 2",  # scissors beat paper
        "tick 1, reward 1, return 1",
        "own rock=0, own paper=0, own scissors=1, other rock=0, other paper=1, other scissors=0, none yet=0",
        f"action: {options}",
        "> 9",
        f"'9' is no choice here: {options}",
        "> words",
        f"'words' is no choice here: {options}",
        "> ",
        f"'' is no choice here: {options}",
        "> r",  # rock loses
        "episode over after 2 ticks: return 0",
        "you drew, red drew",
    ]
    assert "scissors    -1, 1  [1, -1]     0, 0" in shown  # the picture of the game
    assert seats == ["seat 0, player_0: you", "seat 1, player_1: red (scripted)"]
    assert os.listdir() == ["game.yaml"]  # nothing is kept


def test_only_choice_is_played_without_a_question(played: Play) -> None:
    status, shown = played(FORCED, "0\n0\n0\n")
    assert status == 0
    assert [line for line in shown if line.startswith(("action", "> ", "tick", "episode over"))] == [
        "tick 0, reward 0, return 0",
        "action: 0, 1",
        "> 0",
        "tick 1, reward 0, return 0",
        "action: 1, the only choice",
        "tick 2, reward 1, return 1",
        "action: 0, 1",
        "> 0",
        "tick 3, reward 0, return 1",
        "action: 1, the only choice",
        "tick 4, reward 1, return 2",
        "action: 0, 1",
        "> 0",
        "episode over after 5 ticks: return 2",
    ]
    assert len([line for line in shown if line.startswith("observation")]) == 3, "no observation without a decision"


def test_second_seat_and_several_episodes_are_played(played: Play) -> None:
    status, shown = played(RPS, "0\n0\n0\n0\n", "--match", "1", "--seat", "1", "--episodes", "2", "--seed", "3")
    assert status == 0
    over = [line for line in shown if "over" in line]
    assert len(over) == 2 and all(line.startswith("episode over after 2") for line in over)
    assert len([line for line in shown if re.fullmatch("green (won|lost|drew), you (won|lost|drew)", line)]) == 2
    assert sum(line == "> 0" for line in shown) == 4


@pytest.mark.parametrize("answers", ["1\nq\n", "1\n", "1\nq", "1\n?\nq\n"])
def test_q_and_the_end_of_the_input_end_the_game(played: Play, answers: str) -> None:
    status, shown = played(RPS, answers)
    assert (status, shown[-1]) == (0, "ended by the player at tick 1")
    assert any(line.startswith("an answer is the number") for line in shown) == ("?" in answers)


def test_both_seats_may_be_human(played: Play) -> None:
    status, shown = played(RPS, "0\n1\n0\n1\n", "--seat", "0", "--seat", "1", "--run-dir", "kept")
    assert status == 0
    assert [line for line in shown if ":" in line and "over" in line] == [
        "player_0: episode over after 2 ticks: return -2",
        "player_1: episode over after 2 ticks: return 2",
    ]
    assert shown[-1] == "you in seat 0 lost, you in seat 1 won"
    assert Path("kept/episodes.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "opponent"),
    [
        (["--against", "random"], "random"),
        (["--against", "green"], "green (ppo)"),
        (["--against", "policies.random:Random"], "Random (policies.random:Random)"),
        (["--against", "random", "--against", "1=green"], "green (ppo)"),
    ],
)
def test_other_seats_are_taken_by_chosen_policies(played: Play, options: list[str], opponent: str) -> None:
    status, shown = played(RPS, "0\n", "--set", "envs.game.kwargs.rounds=1", *options)
    assert (status, seats[1]) == (0, f"seat 1, player_1: {opponent}")
    assert shown[-1].rpartition(" ")[0].endswith(opponent.partition(" ")[0])


def test_numbers_of_a_box_are_asked(played: Play) -> None:
    status, shown = played(PENDULUM, "2\n2.5\n-1\nq\n")
    assert status == 0
    assert "action: a number from -2 to 2" in shown and "'2.5' is no choice here: a number from -2 to 2" in shown
    assert shown[1].startswith("observation=[") and shown[-1] == "ended by the player at tick 2"


def test_advice_on_a_number_is_taken_by_an_empty_line(played: Play) -> None:
    status, shown = played(PENDULUM, "\nq\n", "--advice", "blue")
    assert status == 0 and shown[-1] == "ended by the player at tick 1"
    assert re.fullmatch(r"action: a number from -2 to 2, -?[\d.e-]+\*", shown[shown.index("> ") - 1])


def test_advice_shows_probabilities_and_an_empty_line_takes_the_best(played: Play) -> None:
    status, shown = played(RPS, "\n\n", "--match", "1", "--advice", "green")
    assert status == 0
    asked = [line for line in shown if line.startswith("action")]
    assert len(asked) == 2
    for line in asked:
        shares = re.findall(r"(\d) [a-z]+ (\d+) %(\*?)", line)
        assert [number for number, _, _ in shares] == ["0", "1", "2"]
        assert sum(int(share) for _, share, _ in shares) in (99, 100, 101)
        best = max(shares, key=lambda one: int(one[1]))
        assert [star for _, _, star in shares].count("*") == 1
        assert best[1] == next(share for _, share, star in shares if star)


def test_text_picture_of_the_game_comes_first(played: Play) -> None:
    status, shown = played(LAKE, "2\nq\n")
    assert status == 0
    grid = [line for line in shown if re.fullmatch("[SFHG]{4}", line)]
    assert grid == ["SFFF", "FHFH", "FFFH", "HFFG"] * 2
    assert "observation=1" in shown and "action: 0 left, 1 down, 2 right, 3 up" in shown


def test_units_are_listed_and_selected_by_their_index(played: Play) -> None:
    status, shown = played(CHERRIES, "7\n\n3\n0\n", "--seed", "5")
    assert status == 0
    place = shown.index("tick 0, reward 0, return 0")
    picture, shown = [line.split() for line in shown[:place]], shown[place:]
    assert [[*line[0:2], *line[3:5]] for line in picture[:2]] == [
        ["0", "Cherry", "1", "Cherry"],
        ["2", "Cherry", "3", "Cherry"],
    ]
    assert [re.sub("=.*", "", line) for line in shown[1:6]] == [
        *(f"{index} Cherry: quality" for index in range(4)),
        "4 Player",
    ]
    assert "Pick Cherry of 4 Player at: 0 Cherry, 1 Cherry, 2 Cherry, 3 Cherry" in shown
    assert "'7' is no choice here: 0 Cherry, 1 Cherry, 2 Cherry, 3 Cherry" in shown
    assert "Pick Cherry of 3 Player at: 0 Cherry, 1 Cherry, 2 Cherry" in shown
    qualities = [float(line.partition("=")[2]) for line in shown[1:5]]
    (end,) = [line for line in shown if line.startswith("episode over after 2 ticks: return ")]
    assert float(end.rpartition(" ")[2]) == pytest.approx(qualities[3] + qualities[0], abs=1e-4)


def test_global_choice_is_asked_with_the_global_features(played: Play) -> None:
    status, shown = played(XOR, "1\n", "--seed", "1")
    assert status == 0
    assert re.fullmatch("negate [01]", shown[1]) and f"globals: {shown[1].replace(' ', '=')}" == shown[3]
    assert "output: 0 0, 1 1" in shown


@pytest.mark.slow
def test_best_and_earlier_players_of_a_run_are_opponents(played: Play) -> None:
    run = RPS.replace("ticks: 100", "ticks: 400\ncheckpoint_every: 200").replace("lanes: 4", "lanes: 2")
    scissors = "  gold: {algorithm: scripted, options: {action: 2}}\nmatches: [{env: game, seats: [gold, red]}, "
    Path("run.yaml").write_text(run.replace("matches: [", scissors))
    assert main(["train", "run.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    for options, place, name in (
        (["--against", "best", "--seat", "1"], 0, "gold"),  # which has won all games of the first seat
        (["--against", "best"], 1, "red"),  # the only player of the second seat
        (["--against", "green@200", "--match", "1"], 1, "green@200"),
    ):
        assert played(RPS, "0\n0\n", *options, target="run")[0] == 0
        assert seats[place].partition(": ")[2].partition(" ")[0] == name
    status, shown = played(RPS, "", "--against", "green@201", target="run")
    assert status == 2 and "there is no checkpoint '201' of 'green'; did you mean '200'?" in shown[-1]


def test_rated_games_stand_in_the_standings(played: Play, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text(RPS)
    assert main(["train", "run.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    status, shown = played(RPS, "2\n2\n", "--rated", target="run")  # scissors, twice, cut red's paper
    assert (status, shown[-1]) == (0, "The game counts for the ratings.")
    status, shown = played(RPS, "2\nq\n", "--rated", target="run")
    assert (status, shown[-1]) == (0, "ended by the player at tick 1; no game of this command is rated")
    assert [path.name for path in Path("run/evaluations").iterdir()] == ["human-0001"]  # what was left is no game
    assert main(["standings", "run", "--json"]) == 0
    players = {row["player"]: row for row in json.loads(capsys.readouterr().out)["players"]}
    assert (players["human"]["games"], players["human"]["score"]) == (1, 1.0)
    status, shown = played(RPS, "2\n2\n", "--rated")
    assert status == 2 and "--rated: a configuration has no standings" in shown[-1]


OWN = """
from policies.ppo import PPO
from policies.random import Random


class Broken(Random):
    def log_prob(self, observations, actions, masks):
        raise KeyError("lost")


class Bare(PPO):
    def log_prob(self, observations, actions, masks):
        return super().log_prob(observations, actions, masks)

    def state_value(self, observations):
        raise AssertionError("a policy with a memory is not asked without it")
"""


def test_policies_that_cannot_be_asked_are_dropped_and_told(played: Play) -> None:
    Path("own_asked.py").write_text(OWN)
    config = RPS.replace("seats: [blue, red]", "seats: [red, red]")
    broken = config.replace("scripted, options: {action: 1}", "'own_asked:Broken'")
    status, shown = played(broken, "0\n1\n", "--advice", "red")
    assert status == 0
    told = [line for line in shown if line.startswith("red is not asked any more: KeyError: 'lost' (")]
    assert len(told) == 1
    assert shown.index(told[0]) < next(place for place, line in enumerate(shown) if line.startswith("tick 1"))
    bare = config.replace("scripted, options: {action: 1}", "'own_asked:Bare', options: {recurrent: lstm}")
    status, shown = played(bare, "0\n1\n", "--advice", "red")
    assert status == 0
    assert not [line for line in shown if "not asked" in line]
    assert re.search(r"(?m)^action: .*100 ?%", "\n".join(shown)), "its own choice has all of the probability"


@pytest.mark.slow
def test_advice_of_a_policy_with_units_has_a_value(played: Play) -> None:
    status, shown = played(CHERRIES, "\n\n", "--advice", "blue")
    assert status == 0
    shown = shown[shown.index("tick 0, reward 0, return 0, value 0") :]
    assert re.fullmatch(
        r"Pick Cherry of 4 Player at: 0 Cherry \d+ %\*?, 1 Cherry \d+ %\*?, 2 Cherry \d+ %\*?, 3 Cherry \d+ %\*?",
        shown[6],
    )
    assert shown[6].count("*") == 1


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (RPS, ["--seat", "2"], "--seat: got 2, but match 0 has 2 seats"),
        (RPS, ["--match", "2"], "--match: got 2, but there are 2 matches"),
        (RPS, ["--advice", "gren"], "--advice: there is no player 'gren'; did you mean 'green'?"),
        (RPS, ["--checkpoints", "last"], "--checkpoints: a configuration has no checkpoints"),
        (RPS, ["--against", "blu"], "--against: 'blu' is no policy and no algorithm; did you mean 'blue'?"),
        (RPS, ["--against", "0=red"], "--against: '0' is no other seat; they are 1"),
        (RPS, ["--against", "01=red"], "--against: '01' is no other seat; they are 1"),
        (RPS, ["--against", "red", "--seat", "0", "--seat", "1"], "--against: all seats are yours"),
        (RPS, ["--against", "best"], "--against: a configuration has no ratings"),
        (RPS, ["--against", "blue@5"], "--against: there is no checkpoint '5' of 'blue'"),
        (RPS, ["--set", "envs.game.kwargs.round=1"], "Matrix"),
    ],
)
def test_mistakes_end_with_status_2(played: Play, config: str, options: list[str], message: str) -> None:
    status, shown = played(config, "", *options)
    assert status == 2
    assert message in shown[-1]


@pytest.mark.slow
def test_interrupt_ends_a_waiting_game_with_status_130(tmp_path: Path) -> None:
    (tmp_path / "game.yaml").write_text(RPS)
    command = [sys.executable, "-m", "arena", "play", "game.yaml"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "action" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=600)
    assert (process.returncode, complaint) == (130, "arena: ended by SIGINT\n")
