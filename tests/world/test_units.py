"""Games with units on all faces: what each worker sees is its own, and what it draws is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from in_process import play


def solo(make: str, algorithm: str, *, ticks: int = 60, lanes: int = 1, options: Any = None, **kwargs: Any) -> Any:
    """One policy alone in one match."""
    return {
        "ticks": ticks,
        "envs": {"game": {"make": make, "kwargs": kwargs}},
        "policies": {"p": {"algorithm": algorithm, "options": options or {}}},
        "matches": [{"env": "game", "seats": ["p"], "lanes": lanes}],
    }


def duel(algorithm: str = "unit_workers:VectorSampler", *, ticks: int = 60, lanes: int = 3, **kwargs: Any) -> Any:
    """Two policies in a match of two entities, whose units carry the marks 1 and 2."""
    return {
        "ticks": ticks,
        "envs": {"game": {"make": "crowd:Crowd", "kwargs": kwargs}},
        "policies": {
            name: {"algorithm": algorithm, "options": {"mark": number + 1, "name": name}}
            for number, name in enumerate("pq")
        },
        "matches": [{"env": "game", "seats": ["p", "q"], "lanes": lanes}],
    }


@pytest.mark.parametrize("make", ["crowd:HerdEnv", "crowd:ItemsEnv"])
def test_the_gym_face_passes_gymnasiums_check(make: str, tmp_path: Path) -> None:
    assert play(solo(make, "workers:CheckGymnasium", ticks=10_000), tmp_path).notes == ["conforms"]


def test_the_parallel_face_passes_pettingzoos_check(tmp_path: Path) -> None:
    data = solo("crowd:Crowd", "workers:CheckParallel", ticks=10_000, players=3, alone=True)
    data["matches"][0]["seats"] = [["p"] * 3]
    assert play(data, tmp_path).notes == ["conforms"]


@pytest.mark.parametrize("make", ["CrowdEnv", "ItemsEnv"])
def test_the_vector_face_does_what_gymnasiums_own_does(make: str, tmp_path: Path) -> None:
    options = {"make": make, "steps": 60}
    played = play(solo(f"crowd:{make}", "unit_workers:MatchesSync", ticks=200, lanes=3, options=options), tmp_path)
    assert played.notes[0] >= 3, "no episode has ended: nothing was compared"


@pytest.mark.parametrize("kwargs", [{}, {"turns": True}, {"alone": True}])
def test_each_seat_sees_its_own_units_alone(kwargs: Any, tmp_path: Path) -> None:
    played = play(duel(**kwargs), tmp_path)
    assert {name for name, *_ in played.notes} == {"p", "q"}
    assert all(seen > 100 for _, seen, *_ in played.notes)
    assert len(played.episodes) > 20


@pytest.mark.parametrize("kwargs", [{}, {"turns": True}, {"alone": True}])
def test_the_gym_and_parallel_faces_see_their_own_units(kwargs: Any, tmp_path: Path) -> None:
    played = play(duel("unit_workers:GymSampler", lanes=1, **kwargs), tmp_path)
    assert all(seen > 50 for _, seen in played.notes) and len(played.notes) == 2
    data = solo("crowd:Crowd", "unit_workers:ParallelSampler", players=3, **kwargs)
    data["matches"][0]["seats"] = [["p"] * 3]
    assert play(data, tmp_path).notes[0] > 50


def test_blocks_play_the_same_game(tmp_path: Path) -> None:
    data = duel("unit_workers:BlockSampler", lanes=4)
    data["matches"][0]["pipeline"] = 2
    played = play(data, tmp_path)
    assert len(played.episodes) > 20


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
        ("many", r"ValueError: action 'walk', row 2: got \d choices for \d actors"),
        ("range", r"ValueError: action 'walk', row 2: \d is no choice; they go from 0 to 2"),
        ("place", r"ValueError: action 'bite', row \d: 10\d\d is no choice; they go from 0 to \d"),
        ("float", r"TypeError: action 'walk': float64 values .*; choices are whole numbers"),
        ("rows", r"ValueError: 3 rows .* are needed at \['walk'\] .*, got 2 rows"),
        ("missing", r"ValueError: \['walk'\] is missing"),
        ("none", "TypeError: None is no batch"),
    ],
)
def test_a_wrong_action_is_refused_before_anything_is_sent(fault: str, message: str, tmp_path: Path) -> None:
    data = solo("crowd:Crowd", "unit_workers:Wrong", lanes=3, options={"fault": fault}, players=1)
    (note,) = play(data, tmp_path).notes
    assert re.match(message, note), note


def test_items_of_any_number_are_seen_and_answered(tmp_path: Path) -> None:
    played = play(solo("crowd:ItemsEnv", "unit_workers:ItemsAnswerer"), tmp_path)
    assert len({*played.notes[::2]}) > 2 and sum(played.notes[1::2]) > 10
