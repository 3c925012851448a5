"""Games that fail in mid-run: the run ends with their error, or continues with a new game."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from arena.records.faults import losses
from arena.roles.environment.restart import MOST_RESTARTS
from arena.roles.protocol import RoleFailed
from command import Command
from faulty_games import FAULTS, Faulty, InMemory
from in_process import one_match, play


@pytest.fixture(autouse=True)
def _nothing_was_made_yet() -> None:
    Faulty.forget()


def alone(*, on_env_error: str = "restart", ticks: int = 20, lanes: int = 1, player: Any = None, **kwargs: Any) -> Any:
    """One policy in one match of a game that fails; in its first instance's seventh step, if nothing else is said."""
    game = {"make": kwargs.pop("make", "faulty_games:Faulty"), "kwargs": kwargs}
    blue = player or {"algorithm": "workers:Stepper", "options": {"action": 1}}
    given = {"seed": 5, "on_env_error": on_env_error, "checkpoint_every": ticks}
    return one_match(game, {"blue": blue}, ticks=ticks, match={"lanes": lanes}, **given)


def test_restarted_game_truncates_its_episodes(tmp_path: Path) -> None:
    played = play(alone(), tmp_path)
    _, _, seen, reward, terminated, truncated, _ = [note for note in played.notes if note[1] == "step"][6]
    assert (float(seen[0]), reward, terminated, truncated) == (4.0, 0.0, False, True), (
        "the last observation, without a reward"
    )
    after = played.notes[played.notes.index(next(n for n in played.notes if n[1] == "step" and n[5])) + 1]
    assert (after[1], float(after[2][0])) == ("reset", 5.0)
    assert Faulty.made == 2
    assert Faulty.closed == 2, "the failed instance, and the last one"


def test_dropped_episode_is_not_recorded_but_costs_ticks(tmp_path: Path) -> None:
    played = play(alone(ticks=17), tmp_path)
    assert [(e["episode"], e["tick"], e["length"]) for e in played.episodes] == [(0, 5, 5), (1, 12, 5), (2, 17, 5)]
    assert played.scoreboard.policies["blue"].episodes == 3


def test_restart_is_recorded_shown_and_summarized(tmp_path: Path) -> None:
    played = play(alone(lanes=3, player={"algorithm": "random"}), tmp_path)
    (line,) = map(json.loads, played.folder.faults.read_text().splitlines())
    assert line["hosts"] == [os.uname().nodename]
    assert {"kind": "environment", "match": 0, "tick": 7, "lanes": [0, 1, 2]}.items() <= line.items()
    assert line["error"] == "RuntimeError: the game cannot be stepped"
    assert line["time"].endswith("+00:00")
    assert 0 <= line["seconds"] < 60
    assert losses(played.folder.faults) == (1, 3)
    assert "match 0, tick 7: the game was made again, 3 unfinished episodes dropped: RuntimeError" in played.shown


def test_end_of_the_run_counts_restarted_games(command: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(alone(lanes=3, player={"algorithm": "random"})))
    out = command("train", tmp_path / "config.yaml", "--ranks", "1", "--run-dir", tmp_path / "run").out
    assert "games that failed were made again 1 time, 3 unfinished episodes dropped: see faults.jsonl" in out


def test_restarted_game_gets_unused_seeds(tmp_path: Path) -> None:
    play(alone(lanes=2, faulty=6, at=2, player={"algorithm": "random"}), tmp_path)
    given = [seed for seed in Faulty.seeds if seed is not None]
    assert len(given) == 3 * 4, "a first game and three more: a reset that looks for masks, and those of two lanes"
    assert len(set(given[::3])) == 1, "the masks of a game are looked for with one seed"
    played = [seed for place, seed in enumerate(given) if place % 3]
    assert len(set(played)) == len(played)
    first = list(Faulty.seeds)
    Faulty.forget()
    play(alone(lanes=2, faulty=6, at=2, player={"algorithm": "random"}), tmp_path)
    assert Faulty.seeds == first, "and the same ones every time"


@pytest.mark.parametrize("fault", [*FAULTS, "info"])
def test_invalid_value_of_a_game_ends_the_run_with_its_entity(fault: str, tmp_path: Path) -> None:
    data = alone(on_env_error="stop", fault=fault, lanes=2, player={"algorithm": "random"})
    with pytest.raises(RoleFailed, match=r"the game gave 'agent_0' in lane 0 .*; .*") as caught:
        play(data, tmp_path)
    assert caught.value.failure.exit_code == 1
    assert "environment of match 0 ('game')" in caught.value.failure.who


@pytest.mark.parametrize("fault", [*FAULTS, "info"])
def test_invalid_value_of_a_game_reaches_no_worker_after_restart(fault: str, tmp_path: Path) -> None:
    played = play(alone(fault=fault), tmp_path)
    steps = [note for note in played.notes if note[1] == "step"]
    assert len(steps) == 20
    assert all(np.isfinite(step[2]).all() and np.isfinite(step[3]) for step in steps)
    assert steps[6][5], "truncated"


def test_lanes_have_match_wide_numbers_in_errors(tmp_path: Path) -> None:
    player = {"algorithm": "test_pipeline:Calls", "options": {"calls": ["step"], "repeat": True}}
    data = alone(on_env_error="stop", fault="nan reward", lanes=4, at=2, faulty=[4], player=player)
    data["matches"][0]["pipeline"] = 2
    with pytest.raises(RoleFailed, match="in lane 3 on tick 2 the reward nan; expected a finite number that"):
        play(data, tmp_path)


def test_broadcastable_rewards_of_another_shape_are_refused(tmp_path: Path) -> None:
    data = alone(on_env_error="stop", make="faulty_games:Transposed", lanes=1, player={"algorithm": "random"})
    data["matches"][0]["seats"] = ["blue", "blue"]
    with pytest.raises(
        RoleFailed, match=r"the game gave on tick 3 rewards as float64 \(2, 1\); expected float64 \(1, 2\)"
    ):
        play(data, tmp_path)


def test_failed_reset_keeps_ended_episodes(tmp_path: Path) -> None:
    player = {"algorithm": "faulty_workers:Rows"}
    played = play(alone(fault="reset", at=3, length=[3, 5], lanes=2, ticks=8, player=player), tmp_path)
    rewards, terminated, truncated, final = played.notes[2]  # of the third tick
    assert rewards == [1.0, 1.0]
    assert (terminated, truncated) == ([True, False], [False, True])
    assert final == [0.0, 2.0], "both rows show their last observations"
    assert [(e["lane"], e["tick"]) for e in played.episodes if "cut" not in e] == [(0, 3), (0, 6), (1, 8)]
    assert losses(played.folder.faults) == (1, 1)


def test_restart_during_a_reset_uses_the_requested_seeds(
    tmp_path: Path,
) -> None:
    data = alone(fault="reset", at=3, player={"algorithm": "faulty_workers:ResetsWithSeed", "options": {"seed": 11}})
    play(data, tmp_path)
    assert Faulty.made == 2
    seeds = [seed for seed in Faulty.seeds if seed is not None]
    assert [seed for seed in seeds[1:] if seed != seeds[0]] == [11, 11], "the failed game, and its replacement"


def test_seats_of_a_restarted_match_continue(tmp_path: Path) -> None:
    data = alone(make="faulty_games:FaultyDropout", at=3, ticks=20)
    data["policies"]["red"] = {"algorithm": "random"}
    data["matches"][0]["seats"] = ["red", "red", "blue"]
    played = play(data, tmp_path)
    steps = [note for note in played.notes if note[1] == "step"]
    assert [index for index, step in enumerate(steps) if step[5]] == [2, 19], "cut by the fault, and by the end"
    whole = [(e["tick"], e["length"]) for e in played.episodes if "cut" not in e]
    assert whole == [(9, 6), (15, 6)]
    assert losses(played.folder.faults) == (1, 1)


def test_already_ended_entity_is_not_truncated_again(tmp_path: Path) -> None:
    data = alone(make="faulty_games:FaultyDropout", at=3, ticks=4, player={"algorithm": "faulty_workers:Rows"})
    data["matches"][0]["seats"] = [["blue", "blue", "blue"]]
    played = play(data, tmp_path)
    _, terminated, truncated, _ = played.notes[2]
    assert (terminated, truncated) == ([False] * 3, [False, True, True]), "e0 has ended a tick before"


def test_repeatedly_failing_game_ends_the_run_with_its_last_error(tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match="RuntimeError: the game cannot be stepped") as caught:
        play(alone(at=1, faulty=99, ticks=500, player={"algorithm": "random"}), tmp_path)
    assert Faulty.made == 1 + MOST_RESTARTS
    assert caught.value.failure.message.count("Traceback") == 1
    assert f"failed more than {MOST_RESTARTS} times" in caught.value.failure.message
    assert losses(tmp_path / "run" / "faults.jsonl").restarts == MOST_RESTARTS


def test_restarts_of_earlier_legs_count_for_the_limit(tmp_path: Path) -> None:
    data = {**alone(at=3, faulty=99, ticks=80, player={"algorithm": "workers:Counts"}), "checkpoint_every": 4}
    with pytest.raises(RoleFailed, match=f"failed more than {MOST_RESTARTS} times"):
        play(data, tmp_path)
    assert losses(tmp_path / "run" / "faults.jsonl").restarts == MOST_RESTARTS


def test_game_of_a_leg_is_freed_before_the_next_one_is_made(tmp_path: Path) -> None:
    InMemory.counts.clear()
    data = alone(make="faulty_games:InMemory", ticks=12, player={"algorithm": "workers:Counts"})
    play({**data, "checkpoint_every": 4}, tmp_path)
    assert InMemory.counts == [1, 1, 1]


@pytest.mark.parametrize(("fault", "at"), [("make", 2), ("reset", 1)])  # the reset that asks for masks
def test_failing_game_constructor_leaves_no_folder(fault: str, at: int, tmp_path: Path) -> None:
    words = (
        rf"could not be made with .*'fault': '{fault}'.*: RuntimeError: the game cannot be "
        rf"{fault.replace('make', 'made')} \(.*faulty_games.py, line \d+\)$"
    )
    with pytest.raises(RoleFailed, match=words) as caught:
        play(alone(fault=fault, at=at, lanes=2, faulty=2, player={"algorithm": "random"}), tmp_path)
    assert caught.value.failure.exit_code == 2
    assert "Traceback" not in caught.value.failure.message
    assert not list(tmp_path.iterdir())


def test_unclosable_game_is_abandoned_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    played = play(alone(close=True), tmp_path)
    assert losses(played.folder.faults) == (1, 1)
    assert "a game that is given up cannot be closed" in caplog.text
    assert "RuntimeError: the game cannot be closed" in caplog.text


def test_killed_simulator_is_restarted(tmp_path: Path) -> None:
    played = play(alone(make="faulty_games:External", dies_at=7, ticks=20), tmp_path)
    assert losses(played.folder.faults) == (2, 2), "every instance dies in its seventh step"
    errors = [json.loads(line)["error"] for line in played.folder.faults.read_text().splitlines()]
    assert all(error.startswith(("EOFError", "BrokenPipeError", "ConnectionResetError")) for error in errors)
    assert all(step[3] == 2.0 for step in played.notes if step[1] == "step" and not step[5])


def test_non_finite_action_is_named_in_the_error_of_the_game(tmp_path: Path) -> None:
    data = alone(on_env_error="stop", make="faulty_games:Sum", player={"algorithm": "workers:NanActions"})
    with pytest.raises(RoleFailed) as caught:
        play(data, tmp_path)
    assert (
        "in lane 0 on tick 3 the reward nan; expected a finite number that float32 holds; the action of 'agent_0' was "
        "[nan]: the weights of its policy are not finite"
    ) in caught.value.failure.message
