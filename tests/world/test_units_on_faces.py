"""Games with units on all faces: each worker sees only its own observations and draws allowed actions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from arena import ConfigError
from arena.config import parse_config
from arena.plan.build import make_plan
from arena.preflight.examine import examine
from arena.replay.reader import read_replays
from arena.replay.verify import verify
from arena.roles.protocol import RoleFailed
from in_process import one_match, play


def solo(make: str, algorithm: str, *, ticks: int = 60, lanes: int = 1, options: Any = None, **kwargs: Any) -> Any:
    """One policy alone in one match."""
    policies = {"p": {"algorithm": algorithm, "options": options or {}}}
    return one_match({"make": make, "kwargs": kwargs}, policies, ticks=ticks, match={"lanes": lanes})


def duel(algorithm: str = "unit_workers:VectorSampler", *, ticks: int = 60, lanes: int = 3, **kwargs: Any) -> Any:
    """Two policies in a match of two entities, whose units carry the marks 1 and 2."""
    policies = {
        name: {"algorithm": algorithm, "options": {"mark": number + 1, "name": name}}
        for number, name in enumerate("pq")
    }
    return one_match({"make": "crowd:Crowd", "kwargs": kwargs}, policies, ticks=ticks, match={"lanes": lanes})


@pytest.mark.parametrize("make", ["CrowdEnv", "ItemsEnv"])
def test_vector_face_equals_gymnasiums(make: str, tmp_path: Path) -> None:
    options = {"env_id": make, "steps": 60}
    played = play(solo(f"crowd:{make}", "unit_workers:MatchesSync", ticks=200, lanes=3, options=options), tmp_path)
    assert played.notes[0] >= 3, "no episode has ended: nothing was compared"


@pytest.mark.parametrize("kwargs", [{}, {"turns": True}, {"alone": True}])
def test_each_seat_sees_its_own_units_alone(kwargs: Any, tmp_path: Path) -> None:
    played = play(duel(**kwargs), tmp_path)
    assert {name for name, *_ in played.notes} == {"p", "q"}
    assert all(seen > 100 for _, seen, *_ in played.notes)
    assert len(played.episodes) > 20


@pytest.mark.parametrize("kwargs", [{"turns": True}, {"alone": True}])
def test_the_gym_and_parallel_faces_see_their_own_units(kwargs: Any, tmp_path: Path) -> None:
    played = play(duel("unit_workers:GymSampler", lanes=1, **kwargs), tmp_path)
    assert all(seen > 50 for _, seen in played.notes) and len(played.notes) == 2
    data = solo("crowd:Crowd", "unit_workers:ParallelSampler", players=3, **kwargs)
    data["matches"][0]["seats"] = [["p"] * 3]
    assert play(data, tmp_path).notes[0] > 50


def test_departed_worker_plays_the_idle_action(tmp_path: Path) -> None:
    data = duel(lanes=2)
    data["envs"]["game"]["idle_action"] = {"walk": "right", "end": "no"}
    data["policies"]["q"] = {"algorithm": "unit_workers:Leaver"}
    played = play(data, tmp_path)
    assert sum(seat["idle_ticks"] for episode in played.episodes for seat in episode["seats"][1:]) > 50
    assert all(seat["idle_ticks"] == 0 for episode in played.episodes for seat in episode["seats"][:1])


def test_a_seat_with_units_plays_beside_one_without(tmp_path: Path) -> None:
    data = duel()
    data["envs"]["game"] = {"make": "crowd:BesideNumbers"}
    data["policies"]["q"] = {"algorithm": "random"}
    played = play(data | {"record": "replays"}, tmp_path)
    assert played.notes[0][1] > 100 and len(played.episodes) > 20
    (match,) = read_replays(played.folder.path).matches
    assert [found for _, found in verify(match)] == [[]]


def test_blocks_play_the_same_game(tmp_path: Path) -> None:
    found = []
    for pipeline in (1, 2):
        data = duel("unit_workers:BlockAnswerer", lanes=4)
        data["matches"][0]["pipeline"] = pipeline
        found.append(
            [
                (episode["lane"], episode["episode"], episode["length"], [seat["return"] for seat in episode["seats"]])
                for episode in play(data, tmp_path).episodes
            ]
        )
    assert len(found[0]) > 20 and len({str(returns) for *_, returns in found[0]}) > 10
    assert found[1] == found[0]


def test_two_entities_of_one_vector_seat_are_told_apart(tmp_path: Path) -> None:
    data = solo("crowd:Crowd", "unit_workers:ParallelSampler")
    data["policies"]["p"]["algorithm"] = "unit_workers:SharedSampler"
    data["matches"][0] |= {"seats": [["p", "p"]], "lanes": 3}
    played = play(data, tmp_path)
    assert played.notes[0] > 100


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("few", r"ValueError: action 'walk', row 2: got \d choices for \d actors"),
        ("range", r"ValueError: action 'walk', row 2: \d is no choice; they go from 0 to 2"),
        ("place", r"ValueError: action 'bite', row \d: 10\d\d is no choice; they go from 0 to \d"),
        ("float", r"TypeError: action 'walk': float64 values .*; choices are whole numbers"),
        ("rows", r"ValueError: \['walk'\] of the actions 'walk', .*: 3 rows .* are needed, got 2 rows"),
    ],
)
def test_a_wrong_action_is_refused_before_anything_is_sent(fault: str, message: str, tmp_path: Path) -> None:
    data = solo("crowd:Crowd", "unit_workers:Wrong", lanes=3, options={"fault": fault}, players=1)
    (note,) = play(data, tmp_path).notes
    assert re.match(message, note), note


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"idle_action": {"walk": "lef"}}, "idle_action: .*no label 'lef'.*left"),
        ({"idle_action": {"walks": 0}}, "idle_action: .*no action 'walks'.*walk"),
        ({"idle_action": 0}, "idle_action: .*no mapping"),
        ({"make": "crowd:OtherActions"}, "use the `action_space` of the UnitSpace"),
        ({"wrappers": [{"frame_stack": 2}]}, "frame_stack.*any number of items"),
        ({"wrappers": ["grayscale"]}, "grayscale"),
    ],
)
def test_impossible_configurations_are_refused_before_the_run(change: Any, words: str, tmp_path: Path) -> None:
    data = duel()
    data["envs"]["game"] |= change
    with pytest.raises(ConfigError, match=words):
        examine(make_plan(parse_config({"name": "test", **data}, source="test")))


def test_wrappers_of_rewards_and_time_go_around_units(tmp_path: Path) -> None:
    data = duel()
    data["envs"]["game"]["wrappers"] = [{"clip_reward": 0.01}, {"time_limit": 2}]
    played = play(data, tmp_path)
    assert {episode["length"] for episode in played.episodes} == {2}
    assert all(abs(seat["return"]) <= 0.02 for episode in played.episodes for seat in episode["seats"])


def test_a_tick_that_is_too_long_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.seat.ragged_parts.MOST_BYTES", 4000)
    words = (
        r"environment of match 0.*on tick \d+ observations of \d,\d+ bytes for seat \d \(\d+ \w+, \d+ \w+, \d+ \w+\)"
    )
    with pytest.raises(RoleFailed, match=f"(?s){words}"):
        play(duel(most=30) | {"on_env_error": "restart"}, tmp_path)


WRONG = {
    "type": "no type 'Bear'.*Zebra",
    "features": r"units of type 'Zebra': the shape must be \[n, 2\], got \[1, 3\]",
    "action": "no action 'walks'.*walk",
    "hidden": "action 'walk': actor 2 is hidden",
    "forbids": "actor 0: its mask forbids everything",
    "mask": r"action 'walk': mask: the shape must be \[n, 3\], got \[1, 2\]",
    "nan": "feature 'mark' of Zebra 0 is nan",
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_observation_is_named_before_the_run(fault: str) -> None:
    data = {"name": "test", **solo("crowd:WrongEnv", "unit_workers:GymSampler", options={"mark": 0}, fault=fault)}
    with pytest.raises(ConfigError, match=WRONG[fault]):
        examine(make_plan(parse_config(data, source="test")), conformance=True)


def test_a_wrong_observation_is_a_fault_of_the_game(tmp_path: Path) -> None:
    data = solo("crowd:WrongEnv", "unit_workers:GymSampler", options={"mark": 0}, fault="mask")
    with pytest.raises(RoleFailed) as caught:
        play(data, tmp_path)
    assert caught.value.failure.who.startswith("environment of match 0 ('game')")
    assert re.match(f"the game gave 'agent_0' in lane 0 on tick 2.*{WRONG['mask']}", caught.value.failure.message)


def test_items_of_any_number_are_seen_and_answered(tmp_path: Path) -> None:
    played = play(solo("crowd:ItemsEnv", "unit_workers:ItemsAnswerer"), tmp_path)
    assert len({*played.notes[::2]}) > 2 and sum(played.notes[1::2]) > 10
