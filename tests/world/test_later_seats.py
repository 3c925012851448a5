"""`arena plan`, `check` and `train` refuse a policy that cannot fill a seat of a later round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from in_process import play

STAYS = {"algorithm": "random"}
LEARNS = {"algorithm": "learners:LearnerWithActor"}
SMALL = {"n_steps": 8, "minibatch_size": 8, "hidden_sizes": [4]}
ALONE = {"algorithm": "workers:GymActorWithoutState", "frozen": True}
PPO = {"algorithm": "ppo", "options": SMALL}
GAME = {"make": "touchdown", "kwargs": {"max_steps": 8}}
NUMBERS = {"make": "touchdown", "kwargs": {"max_steps": 8, "red_actions": "continuous"}}
BOTH_NUMBERS = {"make": "touchdown", "kwargs": {**NUMBERS["kwargs"], "blue_actions": "continuous"}}


def league(entry: dict[str, Any], game: Any = GAME, /, rounds: int = 4, **policies: Any) -> dict[str, Any]:
    matches = [{kind: {"env": "game", **part} for kind, part in entry.items()}]
    common = {"seed": 2, "ticks": 20, "rounds": rounds, "checkpoint_every": 10, "envs": {"game": game}}
    return {"name": "league", **common, "policies": policies, "matches": matches}


KNOCKOUT = {"knockout": {"policies": ["last", "one", "two"]}}  # the first one listed rests in the first round
SWISS = {"swiss": {"policies": ["one", "two"]}}
MEETS = {"matchmaking": {"policies": ["one"], "against": ["last"], "rule": "fictitious"}}  # at first itself

MISTAKES = {
    "a newcomer that cannot take the actions": (
        league(KNOCKOUT, BOTH_NUMBERS, one=STAYS, two=STAYS, last={"algorithm": "dqn"}),
        r"matches\[0\]\.knockout: policy 'last'.*: DQN needs a value for every action",
    ),
    "a newcomer that can never fill a rollout": (
        league(KNOCKOUT, one=STAYS, two=STAYS, last={"algorithm": "ppo", "options": {**SMALL, "n_steps": 100}}),
        r"policies\.last\.options\.n_steps: ",
    ),
    "a newcomer that would forget": (
        league(KNOCKOUT, one=STAYS, two=STAYS, last={"algorithm": "odd_workers:Forgetful"}),
        r"rounds: is asked for, but what 'last' learns would end with a round",
    ),
    "a newcomer without the face": (
        league({"knockout": {**KNOCKOUT["knockout"], "lanes": 2}}, one=STAYS, two=STAYS, last=ALONE),
        r"matches\[0\]\.knockout: policy 'last'.*: the seat cannot give the face",
    ),
    "the other side, with other spaces": (
        league(SWISS, NUMBERS, one=LEARNS, two=LEARNS),
        r"matches\[0\]\.swiss: policy '(one|two)'.*: observes",
    ),
}


def run(command: str, data: dict[str, Any]) -> int:
    Path("league.yaml").write_text(yaml.safe_dump(data))
    return main([command, "league.yaml", *(["--ranks", "1"] if command == "train" else [])])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        *((command, "a newcomer that would forget") for command in ("plan", "train")),
        *(("check", one) for one in MISTAKES),
    ],
)
def test_a_policy_that_cannot_fill_a_later_seat_is_refused(
    command: str, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, words = MISTAKES[mistake]
    assert run(command, data) == 2
    assert re.search(words, capsys.readouterr().err)
    assert not list(Path("runs").glob("*")), "nothing is left of it"


def test_a_checkpoint_that_does_not_fit_a_later_seat_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = play(league(SWISS, one=PPO, two=STAYS, rounds=2), tmp_path).folder.path
    larger = {"algorithm": "ppo", "options": {**SMALL, "hidden_sizes": [5]}, "frozen": True}
    data = league(MEETS, one=LEARNS, last={**larger, "load": str(learned / "checkpoints/one")})
    assert run("check", data) == 2
    assert "policies.last.load: " in capsys.readouterr().err


def test_seats_that_a_policy_never_gets_are_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    data = league({"knockout": {"policies": ["one", "two"]}}, NUMBERS, one=PPO, two=PPO, rounds=2)
    assert [run(command, data) for command in ("plan", "check")] == [0, 0], capsys.readouterr().err
