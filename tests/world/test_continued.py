"""`arena train NEW --continue RUN`: a new run with the policies, snapshots and ratings of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.records import checkpoint
from command import Command, Printed
from in_process import one_match
from run_cli import write

TICKS = 60


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a league of three rounds."""
    home = tmp_path_factory.mktemp("old")
    assert main(["train", written(home, league()), "--ranks", "1", "--run-dir", str(home / "old")]) == 0
    return home / "old"


def written(home: Path, data: dict[str, Any]) -> str:
    return str(home / write(home, data, "new.yaml"))


def league(**keys: Any) -> dict[str, Any]:
    learner, game = {"algorithm": "learners:LearnerWithActor"}, {"make": "touchdown", "kwargs": {"max_steps": 20}}
    met = {"env": "game", "policies": ["blue", "red"], "against": ["rock"], "rule": "fictitious", "copies": 2}
    given = {"seed": 4, "rounds": 3, "checkpoint_every": TICKS // 2, "matches": [{"matchmaking": met}]}
    policies = {"blue": learner, "red": learner, "rock": {"algorithm": "random"}}
    return one_match(game, policies, ticks=TICKS, **given) | keys


OTHERS = {
    "policies": {name: {"algorithm": "learners:LearnerWithActor"} for name in ("green", "gold")},
    "matches": [{"matchmaking": {"env": "game", "policies": ["green", "gold"], "rule": "past_selves"}}],
}


@pytest.fixture
def train(tmp_path: Path, command: Command) -> Callable[..., Printed]:
    """Trains a new run in the folder `new`, or in another one."""

    def trained(data: dict[str, Any], *more: object, into: str = "new", code: int = 0) -> Printed:
        given = ["--ranks", "1", "--run-dir", tmp_path / into, *more]
        return command("train", written(tmp_path, data), *given, code=code)

    return trained


def test_policies_snapshots_and_ratings_are_taken_over(
    command: Command, train: Callable[..., Printed], old: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    data = league(envs={"game": {"make": "touchdown", "kwargs": {"max_steps": 30}}})
    assert f"goes on with {old}: blue, red; 4 snapshots of its league" in train(data, "--continue", old).out
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before, "it is left as it was"
    new = yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())
    past = {f"{name}-{tick}": (name, tick) for name in ("blue", "red") for tick in (TICKS, 2 * TICKS)}
    assert [*new["policies"]] == ["blue", "red", "rock", *past]
    for name in ("blue", "red"):
        assert new["policies"][name]["load"] == str(old / "checkpoints" / name / f"{3 * TICKS:012d}.ckpt")
    for name, (policy, tick) in past.items():
        assert new["policies"][name]["load"] == str(old / "snapshots" / policy / f"{tick:012d}.ckpt")
        assert new["policies"][name]["frozen"]
    assert new["matches"][0]["matchmaking"]["against"] == ["rock", *past]
    shown = json.loads(command("standings", old, "--json").out)["players"]
    assert new["league"]["prior"] == {row["player"].replace("@", "-"): round(row["elo"], 1) for row in shown}
    played = {seat["policy"] for line in episodes(tmp_path / "new") for seat in line["seats"]}
    assert played & past.keys(), "past selves are met"


@pytest.mark.parametrize(("against", "taken"), [(["red", "rock"], "4 snapshots"), (["rock"], "2 of 4 snapshots")])
def test_snapshots_are_taken_over_where_they_can_be_drawn(
    against: list[str], taken: str, train: Callable[..., Printed], old: Path, tmp_path: Path
) -> None:
    met = {"env": "game", "policies": ["blue"], "against": against, "rule": "fictitious", "copies": 2}
    every = {"env": "game", "policies": ["blue", "red", "rock"]}
    data = league(ticks=2, rounds=2, checkpoint_every=2, matches=[{"matchmaking": met}, {"round_robin": every}])
    assert f": blue, red; {taken} of its league" in train(data, "--continue", old).out
    new = yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())
    past = [f"{name}-{tick}" for name in ("blue", "red") if name in ("blue", *against) for tick in (TICKS, 2 * TICKS)]
    assert new["matches"][0]["matchmaking"]["against"] == [*against, *past]
    assert [*new["policies"]] == ["blue", "red", "rock", *past]


def test_policies_start_with_their_learned_weights(train: Callable[..., Printed], old: Path, tmp_path: Path) -> None:
    data = league(policies={**league()["policies"], "red": {"algorithm": "learners:RenamedLearner"}})
    data["policies"]["green"] = data["policies"]["blue"]
    told = train(data | {"rounds": 2, "ticks": 2, "checkpoint_every": 2}, "--continue", old).out
    assert "red starts over: the checkpoint" in told and "goes on with" in told
    (last,) = checkpoint.list_checkpoints(old / "checkpoints" / "blue")[-1:]
    held, first = checkpoint.load(last).state, {}
    for name in ("blue", "red"):
        first[name] = checkpoint.load(checkpoint.list_checkpoints(tmp_path / "new" / "checkpoints" / name)[0]).state
    assert first["blue"]["meetings"] >= held["meetings"] > first["red"]["meetings"]


def test_resumed_run_equals_an_uninterrupted_one(
    command: Command, train: Callable[..., Printed], old: Path, tmp_path: Path
) -> None:
    train(league(), "--continue", old)
    train(league(), "--continue", old, "--set", "rounds=2", into="half")
    half = tmp_path / "half"
    command("train", half / "config.yaml", "--ranks", "1", "--resume", "--run-dir", half, "--set", "rounds=3")
    assert episodes(tmp_path / "half") == episodes(tmp_path / "new")
    for name in ("blue", "red"):
        whole, mine = (
            (tmp_path / run / "checkpoints" / name / f"{3 * TICKS:012d}.ckpt").read_bytes() for run in ("new", "half")
        )
        assert whole == mine


def test_resume_without_the_past_selves_names_the_configuration_of_the_run(
    train: Callable[..., Printed], old: Path, tmp_path: Path
) -> None:
    train(league(), "--continue", old, "--set", "rounds=2")
    said = train(league(), "--resume", code=2).err
    assert "policies.blue-60 is missing" in said
    assert f"(--resume with the configuration in its folder, {tmp_path / 'new' / 'config.yaml'}), or start" in said


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["--continue", "nowhere"], {}, "nowhere: not a run folder"),
        (["--continue", "OLD", "--resume"], {}, "is resumed from the configuration in its folder"),
        (["--continue", "OLD"], OTHERS, "no policy of new can begin as one of"),
        (
            ["--continue", "OLD", "--set", "policies.blue.load=OLD", "--set", "policies.red.load=OLD"],
            {},
            "no policy of",
        ),
        (["--continue", "OLD", "--set", "league.prior.green=1"], {}, "unknown policy 'green'"),
    ],
)
def test_run_that_cannot_be_continued_is_refused_before_play(
    arguments: list[str], change: dict[str, Any], message: str, old: Path, tmp_path: Path, train: Callable[..., Printed]
) -> None:
    given = [one.replace("OLD", str(old)) for one in arguments]
    assert message in train(league(**change), *given, code=2).err
    assert not (tmp_path / "new").exists()


def episodes(run: Path) -> list[Any]:
    return [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
