"""A match whose lanes are stepped in two halves (`pipeline: 2`) plays the same games as without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import BudgetReached, Deadlock, RunStopped
from arena.records import checkpoint
from arena.roles.protocol import RoleFailed
from in_process import NOTES, Played, one_match, play
from policies.ppo import PPO
from workers import Player


class Calls(Player):
    """Calls what its options list, and records the tick at the end.

    `step` is a step of all rows with zeros, `s` its first half, `many` one with an action too many; `s0` and `w0` are
    step_async and step_wait of block 0; `reset` is of all rows, `reset0` of a block, `some` of lane 2 alone, whose
    observations are recorded; `ticks` records the tick, `draw` an action of each block.

    Args:
        repeat: whether it begins again at the end.
        insists: whether it goes on after BudgetReached, which it records.
    """

    face = "vector"

    def __init__(
        self, env: Any, group: Any, *, ticks: int, calls: Sequence[str], repeat: bool = False, insists: bool = False
    ) -> None:
        super().__init__(env, group, ticks=ticks)
        self.calls, self.repeat, self.insists = calls, repeat, insists

    def run(self) -> None:
        self.env.reset()
        again = True
        while again:
            for call in self.calls:
                try:
                    self.call(call)
                except BudgetReached:
                    if not self.insists:
                        raise
                    NOTES.append("over")
            again = self.repeat
        NOTES.append(self.env.ticks)

    def call(self, call: str) -> None:
        env = self.env.blocks[int(call[-1])] if call[-1].isdigit() else self.env
        still = np.zeros(env.num_envs, env.single_action_space.dtype)
        match call.rstrip("01"):
            case "step":
                env.step(still)
            case "many":
                env.step(np.append(still, 0))
            case "s":
                env.step_async(still)
            case "w":
                env.step_wait()
            case "reset":
                env.reset()
            case "some":
                seen, _ = env.reset(options={"reset_mask": np.arange(env.num_envs) == 2})
                NOTES.append(seen[:, 0].tolist())
            case "ticks":
                NOTES.append(env.ticks)
            case "draw":
                NOTES.extend(block.action_space.sample().tolist() for block in env.blocks)


class NotesCallsOfPPO(PPO):
    """PPO that records when each block, named by its first row, is stepped and waited for."""

    def __init__(self, env: Any, group: Any, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        for block in env.blocks:
            for word in ("async", "wait"):
                setattr(block, f"step_{word}", self.noted(block, word))

    @staticmethod
    def noted(block: Any, word: str) -> Any:
        call = getattr(block, f"step_{word}")

        def step(*arguments: Any) -> Any:
            NOTES.append((word, block.rows.start))
            return call(*arguments)

        return step


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
    worker = {"algorithm": "workers:MatchesSync", "options": {"env_id": "CartPole-v1", "steps": 450}}
    game, match = {"make": "gymnasium:CartPole-v1"}, {"lanes": 3, "pipeline": 2}
    data = one_match(game, {"p": worker}, ticks=1000, match=match)
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
    ppo = {"algorithm": "test_pipeline:NotesCallsOfPPO", "options": {"n_steps": 4}}
    played = play(duel(2, lanes=4, ticks=4, blue=ppo), tmp_path)
    first_tick, steady = played.notes[:2], played.notes[2:14]
    assert first_tick == [("async", 0), ("async", 2)]
    assert steady == [(word, row) for _ in range(3) for row in (0, 2) for word in ("wait", "async")]
    assert played.notes[14:] == [("wait", 0), ("wait", 2), ("async", 0)], "the last one is refused: the budget is used"


# ----------------------------------------------------------------------------------------- allowed and refused calls


OFTEN: dict[str, Any] = {"calls": "step step step ticks reset", "repeat": True}


def caller(calls: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": "test_pipeline:Calls", "options": {"calls": calls.split(), **options}}


def alone(calls: str, *, pipeline: int = 2, lanes: int = 4, ticks: int = 12, **options: Any) -> dict[str, Any]:
    game = {"make": "games:Countdown", "kwargs": {"length": 5}}
    return one_match(game, {"p": caller(calls, **options)}, ticks=ticks, match={"lanes": lanes, "pipeline": pipeline})


def test_reset_in_mid_episode_restarts_all_lanes_of_an_unshared_game(tmp_path: Path) -> None:
    played = play(alone(**OFTEN), tmp_path)
    assert played.notes == [3, 6, 9, 12]
    assert [(e["cut"], e["length"]) for e in played.episodes] == [(True, 3)] * 4, "what the end of the run has cut"


def test_reset_of_some_lanes_keeps_the_other_block(tmp_path: Path) -> None:
    runs = [play(alone("step step some", pipeline=pipeline, repeat=True), tmp_path) for pipeline in (1, 2)]
    assert runs[0].notes == runs[1].notes
    assert runs[0].notes[0] == [3, 3, 5, 3]
    assert runs[0].episodes == runs[1].episodes


def test_reset_of_a_shared_game_idles_until_all_lanes_reset(tmp_path: Path) -> None:
    runs = both(tmp_path, env="chance", ticks=100, blue=caller(**OFTEN))
    assert runs[0].notes == runs[1].notes
    assert len(set(np.diff(runs[1].notes))) > 1, "the lanes have ended at different ticks"
    assert runs[0].episodes == runs[1].episodes
    assert sum(e["seats"][0]["idle_ticks"] for e in runs[1].episodes) > 0


def test_worker_that_leaves_early_idles_in_both_halves(tmp_path: Path) -> None:
    without, overlapped = both(tmp_path, env="dropout", blue=caller("step " * 7))
    assert without.episodes == overlapped.episodes
    assert max(e["tick"] for e in overlapped.episodes) == 70


@pytest.mark.parametrize("calls", ["step s0", "step s1", "step s1 s0"])
def test_a_worker_may_leave_with_results_that_it_has_not_fetched(calls: str, tmp_path: Path) -> None:
    played = play(duel(2, env="dropout", ticks=30, blue=caller(calls)), tmp_path)
    assert max(e["tick"] for e in played.episodes) == 30
    assert play(alone(calls), tmp_path).episodes == []


def test_budget_reached_is_raised_by_each_block(tmp_path: Path) -> None:
    in_turns = "s0 s1 w0 s0 w1 s1 w0 s0 w1 s1 w0 s0 s w1 s1"
    played = play(alone(in_turns, ticks=3, insists=True), tmp_path)
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
        play(alone(calls), tmp_path)
    assert not isinstance(caught.value, (Deadlock, RunStopped))


def test_blocks_may_be_stepped_in_any_feasible_order(tmp_path: Path) -> None:
    calls = "s0 w0 s1 w1 s1 s0 w0 w1 s0 s1 w1 w0 step s0 w0 s1 w1"
    assert play(alone(calls), tmp_path).notes == [5]


def test_an_action_for_too_many_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=r"has the shape \(4,\), got \(5,\)"):
        play(alone("many"), tmp_path)


def test_the_blocks_draw_different_actions(tmp_path: Path) -> None:
    first, second, _ = play(alone("draw", lanes=40), tmp_path).notes
    assert first != second
