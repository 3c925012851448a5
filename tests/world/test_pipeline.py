"""A match whose lanes are stepped in two halves (`pipeline: 2`) plays the same games as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import Deadlock, RunStopped
from arena.records import checkpoint
from arena.roles.root.root import RoleFailed
from in_process import Played, one_match, play

GAMES = {
    "touchdown": {"make": "touchdown", "kwargs": {"max_steps": 12}},
    "chance": {"make": "games:RandomLengths"},
    "dropout": {"make": "games:Dropout", "kwargs": {"lengths": [2, 5]}},
    "turns": {"make": "games:Alternate"},
    "matrix": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}},
    "rich": {"make": "games:EverySpace"},
}


def duel(pipeline: int, *, env: str = "touchdown", lanes: int = 5, ticks: int = 70, **policies: Any) -> dict[str, Any]:
    """Two policies in one match; an odd number of lanes makes unequal halves."""
    players = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}, **policies}
    seats = ["blue"] if env == "rich" else ["blue", "red"]
    match = {"lanes": lanes, "pipeline": pipeline}
    return one_match(GAMES[env], players, ticks=ticks, seats=seats, seed=3, match=match)


def both(tmp_path: Path, **given: Any) -> tuple[Played, Played]:
    return play(duel(1, **given), tmp_path), play(duel(2, **given), tmp_path)


@pytest.mark.parametrize("env", GAMES)
def test_random_policies_play_the_same_episodes_in_every_lane(env: str, tmp_path: Path) -> None:
    without, overlapped = both(tmp_path, env=env)
    assert len(without.episodes) >= 5
    assert overlapped.episodes == without.episodes


def test_a_seat_of_several_entities_has_the_rows_of_all_lanes_in_order(tmp_path: Path) -> None:
    runs = []
    for pipeline in (1, 2):
        data = duel(pipeline)
        data["matches"][0]["seats"] = [["blue", "blue"]]
        runs.append(play(data, tmp_path))
    assert runs[0].episodes == runs[1].episodes != []


def test_vector_face_in_blocks_equals_gymnasiums_vector_environment(tmp_path: Path) -> None:
    data = {
        "ticks": 1000,
        "envs": {"game": {"make": "gymnasium:CartPole-v1"}},
        "policies": {"p": {"algorithm": "workers:MatchesSync", "options": {"env_id": "CartPole-v1", "steps": 450}}},
        "matches": [{"env": "game", "seats": ["p"], "lanes": 3, "pipeline": 2}],
    }
    assert play(data, tmp_path).notes[0] >= 3, "no episode has ended: nothing was compared"


# ------------------------------------------------------------------------------------------------------------- PPO


def weights(played: Played, policy: str) -> dict[str, Any]:
    files = checkpoint.list_checkpoints(played.folder.checkpoints_path(policy))
    return dict(checkpoint.load(files[-1]).state["network"])


@pytest.mark.parametrize(
    ("actions", "recurrent"), [pytest.param("discrete", "lstm", marks=pytest.mark.long), ("continuous", None)]
)
def test_ppo_learns_the_same_weights_from_the_same_games(actions: str, recurrent: str | None, tmp_path: Path) -> None:
    """The actor sees half of the rows at a time, which may change the last bits of what it computes: hence 1e-6."""
    ppo = {"algorithm": "ppo", "options": {"n_steps": 20, "minibatch_size": 32, "recurrent": recurrent}}
    runs = []
    for pipeline in (1, 2):
        data = duel(pipeline, lanes=6, ticks=110, blue=ppo, red=ppo)
        kwargs = {"max_steps": 12, "blue_actions": actions, "red_actions": actions}
        data["envs"]["game"] = {"make": "touchdown", "kwargs": kwargs}
        runs.append(play(data, tmp_path))
    without, overlapped = runs
    assert len(without.updates) == 10
    assert [u["ticks"] for u in overlapped.updates] == [u["ticks"] for u in without.updates]
    assert overlapped.episodes == without.episodes
    for policy in ("blue", "red"):
        expected = weights(without, policy)
        for name, array in weights(overlapped, policy).items():
            np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-6, err_msg=f"{policy}: {name}")


def test_ppo_sends_one_blocks_actions_before_it_waits_for_the_other(tmp_path: Path) -> None:
    """Workers that overlap and workers that do not can play in one match."""
    ppo = {"algorithm": "block_workers:NotesCallsOfPPO", "options": {"n_steps": 4}}
    played = play(duel(2, lanes=4, ticks=4, blue=ppo), tmp_path)
    first_tick, steady = played.notes[:2], played.notes[2:14]
    assert first_tick == [("async", 0), ("async", 2)]
    assert steady == [(word, row) for _ in range(3) for row in (0, 2) for word in ("wait", "async")]
    assert played.notes[14:] == [("wait", 0), ("wait", 2), ("async", 0)], "the last one is refused: the budget is used"


# ----------------------------------------------------------------------------------------- allowed and refused calls


def alone(algorithm: str, *, pipeline: int = 2, lanes: int = 4, ticks: int = 12, **options: Any) -> dict[str, Any]:
    game = {"make": "games:Countdown", "kwargs": {"length": 5}}
    policies = {"p": {"algorithm": algorithm, "options": options}}
    return one_match(game, policies, ticks=ticks, match={"lanes": lanes, "pipeline": pipeline})


def test_reset_in_mid_episode_restarts_all_lanes_of_an_unshared_game(tmp_path: Path) -> None:
    played = play(alone("block_workers:ResetsOften"), tmp_path)
    assert played.notes == [3, 6, 9, 12]
    assert [(e["cut"], e["length"]) for e in played.episodes] == [(True, 3)] * 4, "what the end of the run has cut"


def test_reset_of_some_lanes_keeps_the_other_block(tmp_path: Path) -> None:
    runs = [play(alone("block_workers:ResetsSome", pipeline=pipeline), tmp_path) for pipeline in (1, 2)]
    assert runs[0].notes == runs[1].notes
    assert runs[0].notes[0] == [3, 3, 5, 3]
    assert runs[0].episodes == runs[1].episodes


def test_reset_of_a_shared_game_idles_until_all_lanes_reset(tmp_path: Path) -> None:
    runs = both(tmp_path, env="chance", ticks=100, blue={"algorithm": "block_workers:ResetsOften"})
    assert runs[0].notes == runs[1].notes
    assert len(set(np.diff(runs[1].notes))) > 1, "the lanes have ended at different ticks"
    assert runs[0].episodes == runs[1].episodes
    assert sum(e["seats"][0]["idle_ticks"] for e in runs[1].episodes) > 0


def test_worker_that_leaves_early_idles_in_both_halves(tmp_path: Path) -> None:
    leaves = {"algorithm": "block_workers:LeavesEarly", "options": {"steps": 7}}
    without, overlapped = both(tmp_path, env="dropout", blue=leaves)
    assert without.episodes == overlapped.episodes
    assert max(e["tick"] for e in overlapped.episodes) == 70


@pytest.mark.parametrize(("order", "pending"), [([0, 1], 1), ([1, 0], 1), ([1, 0], 2)])
def test_a_worker_may_leave_with_results_that_it_has_not_fetched(
    order: list[int], pending: int, tmp_path: Path
) -> None:
    leaves = {"algorithm": "block_workers:LeavesPending", "options": {"order": order, "pending": pending}}
    played = play(duel(2, env="dropout", ticks=30, blue=leaves), tmp_path)
    assert max(e["tick"] for e in played.episodes) == 30
    assert play(alone("block_workers:LeavesPending", order=order, pending=pending), tmp_path).episodes == []


def test_budget_reached_is_raised_by_each_block(tmp_path: Path) -> None:
    played = play(alone("block_workers:IgnoresBudgetPerBlock", ticks=3), tmp_path)
    assert played.notes == ["over", "over", "over", 3]


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("s0 w0 s0", "block 0 is a tick ahead of block 1"),
        ("s1 w1", "block 1 is answered after block 0, which has no actions"),
        ("s0 s0", "call step_wait\\(\\) first"),
        ("w0", "call step_async\\(\\) first"),
        ("s0 step", "call step_wait\\(\\) first"),
        ("reset0", "call reset\\(\\) of the whole environment"),
    ],
)
def test_wrong_call_order_is_an_error_with_a_remedy(calls: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=message) as caught:
        play(alone("block_workers:Calls", calls=calls.split()), tmp_path)
    assert not isinstance(caught.value, (Deadlock, RunStopped))


def test_blocks_may_be_stepped_in_any_feasible_order(tmp_path: Path) -> None:
    calls = "s0 w0 s1 w1 s1 s0 w0 w1 s0 s1 w1 w0 step s0 w0 s1 w1"
    assert play(alone("block_workers:Calls", calls=calls.split()), tmp_path).notes == [5]


def test_an_action_for_too_many_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=r"has the shape \(4,\), got \(5,\)"):
        play(alone("block_workers:TooManyActions"), tmp_path)


def test_the_blocks_draw_different_actions(tmp_path: Path) -> None:
    first, second = play(alone("block_workers:Draws", lanes=40), tmp_path).notes
    assert first != second
