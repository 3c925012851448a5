"""The three faces, against the conformance checks and the semantics of Gymnasium and PettingZoo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.roles.protocol import RoleFailed
from in_process import one_match, play
from reused_games import OURS


def solo(make: str, algorithm: str, *, ticks: int = 100, lanes: int = 1, options: Any = None, **kwargs: Any) -> Any:
    """One policy alone in one match."""
    policies = {"p": {"algorithm": algorithm, "options": options or {}}}
    return one_match({"make": make, "kwargs": kwargs}, policies, ticks=ticks, match={"lanes": lanes})


@pytest.mark.parametrize("make", ["gymnasium:MountainCarContinuous-v0", "gymnasium:Taxi-v4", "games:EverySpace"])
def test_the_gym_face_passes_gymnasiums_check_with_warnings_as_errors(make: str, tmp_path: Path) -> None:
    assert play(solo(make, "workers:CheckGymnasium", ticks=10_000), tmp_path).notes == ["conforms"]


@pytest.mark.parametrize("make", ["pettingzoo:mpe2.simple_spread_v3", "games:Dropout"])
def test_the_parallel_face_passes_pettingzoos_check(make: str, tmp_path: Path) -> None:
    entities = 3
    data = solo(make, "workers:CheckParallel", ticks=10_000)
    data["matches"][0]["seats"] = [["p"] * entities]
    assert play(data, tmp_path).notes == ["conforms"]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Taxi-v4"])
def test_vector_face_equals_gymnasiums_vector_environment(env_id: str, tmp_path: Path) -> None:
    options = {"env_id": env_id, "steps": 450}
    played = play(solo(f"gymnasium:{env_id}", "workers:MatchesSync", ticks=1000, lanes=3, options=options), tmp_path)
    assert played.notes[0] >= 3, "no episode has ended: nothing was compared"


def test_an_episode_is_seen_from_its_first_to_its_last_observation(tmp_path: Path) -> None:
    played = play(solo("games:Countdown", "workers:Stepper", ticks=7, options={"action": 2}, length=3), tmp_path)
    seen = [(note[1], float(note[2][0]), *note[3:]) for note in played.notes]
    assert seen == [
        ("reset", 3.0, {"length": 3}),
        ("step", 2.0, 2.0, False, False, {"left": 2}),
        ("step", 1.0, 2.0, False, False, {"left": 1}),
        ("step", 0.0, 2.0, True, False, {"left": 0}),
        ("reset", 3.0, {"length": 3}),
        ("step", 2.0, 2.0, False, False, {"left": 2}),
        ("step", 1.0, 2.0, False, False, {"left": 1}),
        ("step", 0.0, 2.0, True, False, {"left": 0}),
        ("reset", 3.0, {"length": 3}),
        ("step", 2.0, 2.0, False, True, {"left": 2}),  # the end of the run cuts it
        ("reset", 3.0, {"length": 3}),
    ]
    assert [episode.get("cut") for episode in played.episodes] == [None, None, True]


def steppers(make: str, **kwargs: Any) -> Any:
    """Two workers that record their steps."""
    data = solo(make, "workers:Stepper", ticks=12, **kwargs)
    data["policies"] = {name: {"algorithm": "workers:Stepper", "options": {"name": name}} for name in "pq"}
    data["matches"] = [{"env": "game", "seats": ["p", "q"]}]
    return data


def test_early_ended_entity_blocks_in_reset_until_the_next_episode(tmp_path: Path) -> None:
    played = play(steppers("games:Dropout", lengths=[2, 4]), tmp_path)
    steps = {name: [n for n in played.notes if n[0] == name and n[1] == "step"] for name in "pq"}
    assert [float(n[2][0]) for n in steps["p"]] == [1, 2] * 3
    assert [n[4] for n in steps["p"]] == [False, True] * 3
    assert [float(n[2][0]) for n in steps["q"]] == [1, 2, 3, 4] * 3
    assert [seat["return"] for seat in played.episodes[0]["seats"]] == [2.0, 8.0]
    assert [seat["idle_ticks"] for seat in played.episodes[0]["seats"]] == [0, 0], "out of the game is not idle"


def test_turn_based_step_returns_at_the_next_turn_with_rewards(tmp_path: Path) -> None:
    played = play(steppers("games:Alternate"), tmp_path)
    first = [(float(n[2][0]), n[3], n[4]) for n in played.notes if n[:2] == ("p", "step")]
    second = [(float(n[2][0]), n[3], n[4]) for n in played.notes if n[:2] == ("q", "step")]
    assert first[:3] == [(2.0, 11.0, False), (4.0, 11.0, False), (6.0, 11.0, True)]
    # The first player's opening move paid the second 10 before it could move: that belongs to its first step.
    assert second[:3] == [(3.0, 21.0, False), (5.0, 11.0, False), (6.0, 1.0, True)]
    assert [e["seats"][0]["return"] for e in played.episodes] == [33.0, 33.0]
    assert [e["seats"][1]["return"] for e in played.episodes] == [33.0, 33.0]


def test_reset_in_mid_episode_restarts_an_unshared_game(tmp_path: Path) -> None:
    played = play(solo("games:Countdown", "workers:ResetsOften", ticks=12, length=5), tmp_path)
    assert played.notes == [3, 6, 9, 12]
    assert [(e["cut"], e["length"]) for e in played.episodes] == [(True, 3)], "what the end of the run has cut"


def test_reset_of_a_shared_game_idles_to_its_end(tmp_path: Path) -> None:
    data = solo("games:Dropout", "workers:ResetsOften", ticks=18, lengths=[6, 6])
    data["policies"] = {"p": {"algorithm": "workers:ResetsOften"}, "q": {"algorithm": "random"}}
    data["matches"] = [{"env": "game", "seats": ["p", "q"]}]
    played = play(data, tmp_path)
    assert played.notes == [3, 9, 15]
    assert [[seat["idle_ticks"] for seat in e["seats"]] for e in played.episodes] == [[3, 0]] * 3


def test_a_worker_that_leaves_early_idles_and_the_others_finish(tmp_path: Path) -> None:
    data = solo("touchdown", "random", ticks=60, max_steps=20)
    data["policies"] = {
        "p": {"algorithm": "workers:LeavesEarly", "options": {"steps": 25}},
        "q": {"algorithm": "random"},
    }
    data["matches"] = [{"env": "game", "seats": ["p", "q"]}]
    played = play(data, tmp_path)
    assert sum(e["length"] for e in played.episodes) == 60
    assert sum(e["seats"][0]["idle_ticks"] for e in played.episodes) == 35
    assert sum(e["seats"][1]["idle_ticks"] for e in played.episodes) == 0


def test_match_ends_when_all_seats_have_left(tmp_path: Path) -> None:
    played = play(solo("games:Countdown", "workers:LeavesEarly", ticks=10**7, options={"steps": 8}), tmp_path)
    assert len(played.episodes) == 1


def test_budget_reached_is_raised_again_if_ignored(tmp_path: Path) -> None:
    played = play(solo("games:Countdown", "workers:IgnoresBudget", ticks=12), tmp_path)
    assert played.notes == [12, 12, 12]


@pytest.mark.parametrize(
    ("face", "match", "reason"),
    [
        ("workers:Stepper", {"seats": ["p", "p"], "lanes": 2}, "needs one lane"),
        ("workers:Stepper", {"seats": [["p", "p"]]}, "needs one entity"),
        ("workers:CheckParallel", {"seats": ["p", "p"], "lanes": 2}, "needs one lane"),
    ],
)
def test_a_face_that_the_seat_cannot_give_is_a_configuration_error(
    face: str, match: Any, reason: str, tmp_path: Path
) -> None:
    data = solo("touchdown", face, ticks=10)
    data["matches"] = [{"env": "game", **match}]
    with pytest.raises(RoleFailed, match=reason) as caught:
        play(data, tmp_path)
    assert caught.value.failure.exit_code == 2


@pytest.mark.parametrize(
    ("action", "message"), [(0.5, "0.5 .float64; use integers. for Discrete"), ([1, 2], "has the shape")]
)
def test_an_action_that_the_space_cannot_hold_is_refused(action: Any, message: str, tmp_path: Path) -> None:
    data = solo("games:Countdown", "workers:Stepper", options={"action": action})
    with pytest.raises(RoleFailed, match=message):
        play(data, tmp_path)


def test_seats_that_do_not_cover_the_game_are_a_configuration_error(tmp_path: Path) -> None:
    data = solo("touchdown", "random")
    with pytest.raises(RoleFailed, match="no seat plays red_0") as caught:
        play(data, tmp_path)
    assert caught.value.failure.exit_code == 2


@pytest.mark.parametrize("algorithm", ["workers:Stepper", "workers:SteppedRows"])
def test_invalid_action_is_an_error_of_the_worker(algorithm: str, tmp_path: Path) -> None:
    data = solo("games:Countdown", algorithm, options={"action": 7})
    with pytest.raises(RoleFailed, match=r"7\]? is no action of Discrete\(3\)") as caught:
        play(data, tmp_path)
    assert caught.value.failure.who.startswith("worker of policy 'p'")


def test_a_games_own_keys_change_nothing_that_is_played(tmp_path: Path) -> None:
    """Infos that are full of our own words: every later action would differ if one of them was heeded."""
    played = []
    for keys in ({}, OURS):
        ppo = {"n_steps": 10, "minibatch_size": 20, "hidden_sizes": [8]}
        data = solo("reused_games:Bits", "ppo", ticks=60, lanes=2, options=ppo, keys=keys)
        played.append(play(data, tmp_path).episodes)
    assert played[0] == played[1] and len(played[0]) == 24
