"""Teams whose entities have a worker each, through the whole arena: they learn together, or are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from arena.records import checkpoint
from arena.roles.protocol import RoleFailed
from command import Command
from fakes import all_equal
from in_process import Played, one_match, play


def two_step(seats: Any, *, ticks: int, **policy: Any) -> dict[str, Any]:
    """A game of two players that have to choose jointly: one by one they get 7, the optimum is 8."""
    game = {"make": "matrix", "kwargs": {"game": "two_step"}}
    return one_match(
        game, {"p": {"algorithm": "maddpg", **policy}}, seats=seats, ticks=ticks, seed=1, match={"lanes": 8}
    )


def spread(algorithm: str, seats: Any, *, ticks: int, **options: Any) -> dict[str, Any]:
    """Three players that share a reward, which grows as they approach three landmarks."""
    game = {"make": "pettingzoo:mpe2.simple_spread_v3", "kwargs": {"N": 3, "max_cycles": 25}}
    policies = {"p": {"algorithm": algorithm, "options": options}}
    return one_match(game, policies, seats=seats, ticks=ticks, seed=1, match={"lanes": 8})


def evaluated(played: Played, data: Any, path: Path) -> float:
    """The mean return of greedy play with the last weights."""
    policies = {
        name: {**given, "frozen": True, "load": str(played.folder.path)} for name, given in data["policies"].items()
    }
    games = play({**data, "ticks": 10**9, "policies": policies}, path, episodes=5, greedy=True).episodes
    return float(np.mean([game["seats"][0]["return"] for game in games]))


def last_state(played: Played) -> Any:
    return checkpoint.load(checkpoint.list_checkpoints(played.folder.checkpoints_path("p"))[-1]).state


@pytest.mark.long
def test_two_workers_learn_a_joint_choice(tmp_path: Path) -> None:
    data = two_step(["p", "p"], ticks=1250)
    assert evaluated(play(data, tmp_path), data, tmp_path) >= 7.5


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_a_team_of_workers_makes_the_gradient_steps_of_one_seat(sync: str, tmp_path: Path) -> None:
    options = {"learning_starts": 100, "batch_size": 32, "training_intensity": 4}
    seats = {"together": [["p", "p"]], "apart": ["p", "p"]}
    states = {
        how: last_state(play(two_step(given, ticks=60, sync=sync, options=options), tmp_path / how, given=True))
        for how, given in seats.items()
    }
    assert states["apart"]["intensity"] == states["together"]["intensity"]
    assert states["apart"]["gradient_steps"] == states["together"]["gradient_steps"] > 30


def test_team_weights_are_valid_in_any_seating(tmp_path: Path) -> None:
    options = {"learning_starts": 50, "batch_size": 32, "training_intensity": 1}
    for here, there in ([["p", "p"]], ["p", "p"]), (["p", "p"], [["p", "p"]]):
        played = play(two_step(here, ticks=40, options=options), tmp_path)
        frozen = {"frozen": True, "load": str(played.folder.path)}
        games = [play(two_step(seats, ticks=40, **frozen), tmp_path, greedy=True).episodes for seats in (here, there)]
        returns = [[game["seats"][0]["return"] for game in games_of] for games_of in games]
        assert returns[0] == returns[1]
        assert len(returns[0]) == 40 * 8 // 2


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("mappo", {"n_steps": 10, "minibatch_size": 64, "normalize_observations": True}),
        pytest.param(
            "qmix",
            {"learning_starts": 40, "batch_size": 16, "training_intensity": 2, "n_step": 2},
            marks=pytest.mark.long,
        ),
        pytest.param(
            "maddpg",
            {"learning_starts": 40, "batch_size": 16, "training_intensity": 2, "n_step": 2},
            marks=pytest.mark.long,
        ),
    ],
)
def test_several_teams_resume_to_the_same_bits(algorithm: str, options: Any, tmp_path: Path) -> None:
    """Copies, boundaries in the middle of rollouts and of what is put together, and a resume."""
    data = spread(algorithm, ["p", "p", "p"], ticks=66, **options)
    data["matches"][0].update(lanes=2, copies=2)
    data["checkpoint_every"] = 33
    whole = play(data, tmp_path)
    play({**data, "ticks": 33}, tmp_path / "parted", given=True)
    parted = play(data, tmp_path / "parted", resume=True)
    assert all_equal(last_state(whole), last_state(parted))


@pytest.mark.long
def test_a_mappo_team_of_three_workers_learns_to_spread(tmp_path: Path) -> None:
    options = {"n_steps": 100, "minibatch_size": 400, "learning_rate": 1e-3, "gamma": 0.95, "n_epochs": 10}
    data = spread("mappo", ["p", "p", "p"], ticks=2000, **options)
    played = play(data, tmp_path)
    returns = np.array([game["seats"][0]["return"] for game in played.episodes])
    order = np.argsort([game["tick"] for game in played.episodes], kind="stable")
    before, after = (returns[part].mean() for part in np.array_split(order, 6)[::5])
    assert after > before + 2


@pytest.mark.parametrize(
    ("policy", "seats", "message"),
    [
        ({"algorithm": "vdn"}, ["p", "q"], r"VDN learns from all entities of a team .* the team has one; .* take dqn"),
        (
            {"algorithm": "qmix", "options": {"state": "state"}},
            [["p", "p"]],
            r"p.*state.*put the game into the wrapper",
        ),
    ],
)
def test_value_decomposition_without_a_team_or_a_state_ends_with_2(
    policy: Any, seats: Any, message: str, command: Command, tmp_path: Path
) -> None:
    data = two_step(seats, ticks=2000, **policy)
    data["policies"]["q"] = {"algorithm": "random"}
    if seats == [["p", "p"]]:
        del data["policies"]["q"]
    file = tmp_path / "team.yaml"
    file.write_text(yaml.safe_dump(data))
    assert re.search(message, " ".join(command("check", file, code=2).err.split()))


@pytest.mark.parametrize("max_lag", [0, 2])
def test_samples_without_a_barrier_are_for_teams_of_one_seat(max_lag: int, tmp_path: Path) -> None:
    options = {"learning_starts": 50, "batch_size": 32, "training_intensity": 1}
    policy = {"sync": "samples", "max_lag": max_lag, "options": options}
    play(two_step([["p", "p"]], ticks=40, **policy), tmp_path)
    if max_lag == 0:
        play(two_step(["p", "p"], ticks=40, **policy), tmp_path)
        return
    with pytest.raises(RoleFailed, match=r"policies\.p\.max_lag: found 2: then no worker waits .* set max_lag: 0"):
        play(two_step(["p", "p"], ticks=40, **policy), tmp_path)
