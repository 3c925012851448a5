"""Whole runs in one process: groups, records, checkpoints, frozen policies, failures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError, Deadlock
from arena.records import checkpoint
from arena.roles.protocol import RoleFailed
from in_process import one_match, play


def duel(*, ticks: int = 40, blue: Any = None, red: Any = None, copies: int = 2, lanes: int = 2, **kwargs: Any) -> Any:
    """Two policies in some copies of touchdown."""
    policies = {"blue": blue or {"algorithm": "workers:Counts"}, "red": red or {"algorithm": "random"}}
    game = {"make": "touchdown", "kwargs": {"max_steps": 15, **kwargs}}
    return one_match(game, policies, ticks=ticks, seed=5, match={"copies": copies, "lanes": lanes})


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    data = duel(red={"algorithm": "random"}, blue={"algorithm": "random"}, ticks=60)
    data["envs"]["game"] = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    first, again = play(data, tmp_path), play(data, tmp_path)
    other = play({**data, "seed": 6}, tmp_path)
    assert first.episodes == again.episodes
    assert first.episodes != other.episodes


def test_additional_copy_changes_no_other_match(tmp_path: Path) -> None:
    random = {"algorithm": "random"}
    two = play(duel(blue=random, copies=2), tmp_path).episodes
    three = play(duel(blue=random, copies=3), tmp_path).episodes
    assert two == [episode for episode in three if episode["match"] < 2]


def test_run_folder_has_the_documented_files(tmp_path: Path) -> None:
    played = play(duel(), tmp_path)
    folder = played.folder.path
    assert {"config.yaml", "plan.json", "episodes.jsonl", "metrics.jsonl", "checkpoints", "logs"} <= {
        path.name for path in folder.iterdir()
    }
    episode = played.episodes[0]
    assert set(episode) - {"cut"} == {
        "round", "match", "env", "lane", "episode", "tick", "length", "terminated", "truncated", "seats",
    }  # fmt: skip
    assert {"policy", "entities", "return", "outcome"} <= set(episode["seats"][0])
    update = played.updates[0]
    assert {"policy", "update", "ticks", "samples", "seconds", "count", "mean"} == set(update)
    assert (update["policy"], update["update"], update["ticks"], update["samples"]) == ("blue", 1, 10, 40)
    plan = json.loads((folder / "plan.json").read_text())
    assert len(plan["matches"]) == 2
    assert plan["processes"] == 1
    assert list((folder / "tensorboard" / "blue").iterdir())


def test_workers_of_a_policy_are_one_group_over_all_matches(tmp_path: Path) -> None:
    played = play(duel(copies=3), tmp_path)
    assert [update["mean"] for update in played.updates] == [1.0] * 4  # the mean of the group ranks 0, 1 and 2


def test_checkpoints_are_written_at_the_start_when_due_and_at_the_end(tmp_path: Path) -> None:
    played = play({**duel(ticks=45), "checkpoint_every": 20}, tmp_path)
    files = checkpoint.list_checkpoints(played.folder.checkpoints_path("blue"))
    assert [checkpoint.ticks_of(file) for file in files] == [0, 20, 40, 45]
    assert checkpoint.load(files[-1]).state["count"] == 45
    assert checkpoint.load(files[1]).update == 2


def test_a_checkpoint_loads_into_another_number_of_copies_and_lanes(tmp_path: Path) -> None:
    first = play(duel(ticks=40, copies=1, lanes=1), tmp_path)
    data = duel(ticks=20, copies=3, lanes=4)
    data["policies"]["blue"]["load"] = str(first.folder.path)
    assert play(data, tmp_path).notes == [("loaded", 40)] * 3


def test_a_frozen_policy_plays_its_checkpoint_and_learns_nothing(tmp_path: Path) -> None:
    first = play(duel(ticks=40), tmp_path)
    data = duel(ticks=40)
    data["policies"]["blue"] |= {"frozen": True, "load": str(first.folder.path)}
    played = play(data, tmp_path)
    assert played.notes == [("loaded", 40)] * 2
    assert played.updates == []
    assert checkpoint.list_checkpoints(played.folder.checkpoints_path("blue")) == []


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"algorithm": "workers:Stepper", "frozen": True}, "an algorithm needs actor"),
        ({"algorithm": "workers:Countz"}, "did you mean 'Counts'"),
        ({"algorithm": "workers:Counts", "options": {"evry": 3}}, "did you mean 'every'"),
    ],
)
def test_mistake_in_a_policy_is_refused_before_play(policy: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=message) as caught:
        play(duel(blue=policy, lanes=1), tmp_path)
    assert caught.value.failure.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        ("policies", {"algorithm": "pppo"}, r"^policies.unseated.algorithm: unknown algorithm 'pppo'; .*'ppo'"),
        ("envs", {"make": "tuchdown"}, r"^envs.unseated.make: unknown environment 'tuchdown'; .*'touchdown'"),
    ],
)
def test_unknown_name_is_refused_even_if_unused(key: str, entry: Any, message: str, tmp_path: Path) -> None:
    data = duel()
    data[key]["unseated"] = entry
    with pytest.raises(ConfigError, match=message):
        play(data, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_weights_of_other_spaces_are_refused_before_play(tmp_path: Path) -> None:
    data = duel(red={"algorithm": "workers:Counts"}, red_obs="image", copies=1)
    assert play(data, tmp_path).episodes, "each policy has its own spaces"
    data["matches"][0]["seats"] = ["blue", "blue"]
    with pytest.raises(RoleFailed, match=r"matches\[0\].seats\[1\]: policy 'blue': observes Box\(0, 255") as caught:
        play(data, tmp_path)
    assert caught.value.failure.exit_code == 2
    data["policies"]["blue"] = {"algorithm": "random"}
    assert play(data, tmp_path).episodes, "without weights all spaces are welcome"


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    first = play(duel(), tmp_path)
    data = duel(blue={"algorithm": "ppo", "options": {"n_steps": 8}, "load": str(first.folder.path)})
    with pytest.raises(RoleFailed, match="is of the algorithm 'workers:Counts'"):
        play(data, tmp_path)


def test_different_collectives_are_reported(tmp_path: Path) -> None:
    data = duel(blue={"algorithm": "odd_workers:Disagrees"}, copies=2)
    with pytest.raises(RoleFailed, match="called different collectives"):
        play(data, tmp_path)


def test_deadlock_is_an_error_that_names_the_waits(tmp_path: Path) -> None:
    data = duel(ticks=100)
    data["policies"] = {name: {"algorithm": "leagues:AtEpisodes"} for name in ("blue", "red")}
    data["envs"]["game"] = {"make": "games:Dropout", "kwargs": {"lengths": [3, 5]}}
    data["matches"] = [
        {"env": "game", "seats": ["blue", "red"]},
        {"env": "game", "seats": ["red", "blue"]},
    ]
    with pytest.raises(RoleFailed, match=r"the run can deadlock: .*blue, red") as caught:
        play(data, tmp_path, given=True)
    assert caught.value.failure.exit_code == 2
    assert not (tmp_path / "run").exists(), "nothing has begun"
    with pytest.raises(Deadlock, match="worker of policy 'blue' in seat 0 of match 0 waits for"):
        play({**data, "policies": {name: {"algorithm": "odd_workers:SaysTicks"} for name in ("blue", "red")}}, tmp_path)


def test_profile_shares_of_every_role_sum_to_its_time(tmp_path: Path) -> None:
    ppo = {"algorithm": "ppo", "options": {"n_steps": 20}}
    played = play(duel(blue=ppo, ticks=100), tmp_path, profile=True)
    roles = json.loads(played.folder.profile.read_text())["roles"]
    assert [role["role"] for role in roles] == ["root", *["environment", "worker", "worker"] * 2]
    for role in roles:
        assert sum(role["seconds"].values()) == pytest.approx(role["wall"], rel=0.02)
    by_kind = {(role["role"], role["policy"]): set(role["seconds"]) for role in roles}
    assert {"environment", "waiting for actions", "communication"} <= by_kind["environment", None]
    assert {"learning", "inference", "waiting for the match", "waiting for the group"} <= by_kind["worker", "blue"]
    assert "learning" not in by_kind["worker", "red"]


def test_profile_counts_the_processor_time_of_shared_process_once(tmp_path: Path) -> None:
    game = {"make": "games:BusyTouchdown", "kwargs": {"max_steps": 60, "seconds": 0.005}}
    data = one_match(game, {name: {"algorithm": "random"} for name in ("blue", "red")}, ticks=100, match={"copies": 2})
    before = time.process_time()
    played = play(data, tmp_path, profile=True)
    spent = time.process_time() - before  # as the system counts it
    roles = json.loads(played.folder.profile.read_text())["roles"]
    games = [role["cpu"] for role in roles if role["role"] == "environment"]
    assert min(games) >= 0.5
    assert sum(games) <= sum(role["cpu"] for role in roles) <= spent
    assert max(role["cpu"] for role in roles if role["role"] == "worker") < 0.5, "the games' time is not theirs"


def test_run_on_one_rank_does_not_import_mpi4py(tmp_path: Path) -> None:
    config, folder = tmp_path / "duel.json", tmp_path / "run"  # JSON is YAML
    config.write_text(json.dumps(duel(blue={"algorithm": "random"})))
    program = f"""
import sys
from arena.cli.main import main
assert main(["train", {str(config)!r}, "--ranks", "1", "--run-dir", {str(folder)!r}]) == 0
assert "mpi4py" not in sys.modules
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "episodes.jsonl").stat().st_size
