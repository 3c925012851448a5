"""Spaces of units: the published example, the rules of an observation, and choices that are drawn."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, Sequence

from arena import Choice, GlobalChoice, Select, UnitSpace
from arena.game.spaces import stack

LABELS = ["+x", "-x", "+y", "-y", "Defuse Mines"]
MINESWEEPER = UnitSpace(
    {"Mine": ["x", "y"], "Robot": ["x", "y"], "Orbital Cannon": ["cooldown"]},
    actions={"Move": Choice(LABELS), "Fire Orbital Cannon": Select()},
)
EVERYTHING = UnitSpace(
    {"Zebra": ["x"], "Ant": []},
    ["step"],
    {"walk": Choice(["a", "b"], masked=False), "hit": Select(masked=True), "end": GlobalChoice(["yes", "no"])},
    hidden=["Ant"],
)


def board() -> dict[str, Any]:
    """Two zebras and two ants, of which the second is hidden; indices 0, 1 and 2, 3."""
    return {
        "globals": np.array([1], np.float32),
        "units": {"Zebra": np.array([[1], [2]], np.float32), "Ant": np.zeros((2, 0), np.float32)},
        "visible": {"Ant": np.array([1, 0], np.int8)},
        "actions": {
            "walk": {"actors": np.array([1, 0])},
            "hit": {
                "actors": np.array([2, 0]),
                "actees": np.array([1, 0, 2]),
                "mask": np.array([1, 0, 0, 0, 1, 1], np.int8),
            },
            "end": {"actors": np.array([4]), "mask": np.array([[0, 1]], np.int8)},
        },
    }


def test_parts_are_the_spaces_that_are_documented() -> None:
    assert list(EVERYTHING) == ["globals", "units", "visible", "actions"] and list(EVERYTHING["units"]) == [
        "Zebra",
        "Ant",
    ]
    assert EVERYTHING["globals"] == Box(-np.inf, np.inf, (1,), np.float32)
    assert EVERYTHING["units"]["Zebra"] == Sequence(Box(-np.inf, np.inf, (1,), np.float32), stack=True)
    assert EVERYTHING["visible"]["Ant"] == Sequence(Box(0, 1, (), np.int8), stack=True)
    index = Sequence(Box(0, 2**31 - 1, (), np.int64), stack=True)
    assert dict(EVERYTHING["actions"]["walk"]) == {"actors": index}
    assert EVERYTHING["actions"]["hit"]["actees"] == index
    assert EVERYTHING["actions"]["hit"]["mask"] == Sequence(Box(0, 1, (), np.int8), stack=True)
    assert EVERYTHING["actions"]["end"]["mask"] == Sequence(MultiBinary(2), stack=True)
    assert EVERYTHING.action_space["walk"] == Sequence(Discrete(2), stack=True)
    assert list(MINESWEEPER) == ["units", "actions"] and list(MINESWEEPER["units"]) == list(MINESWEEPER.types)


def test_equality_and_repr_use_all_attributes() -> None:
    others = [
        UnitSpace({"Ant": [], "Zebra": ["x"]}, actions={"end": GlobalChoice(["yes", "no"])}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": GlobalChoice(["yes", "no"])}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": Choice(["yes", "no"])}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": GlobalChoice(["no", "yes"])}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": GlobalChoice(["yes", "no"], masked=False)}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, ["s"], actions={"end": GlobalChoice(["yes", "no"])}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": GlobalChoice(["yes", "no"])}, hidden=["Zebra"]),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": Select()}),
        UnitSpace({"Zebra": ["x"], "Ant": []}, actions={"end": Select(masked=True)}),
    ]
    assert len({repr(space) for space in others}) == len(others)
    assert all((one == other) == (one is other) for one in others for other in others)
    actions = [space.action_space for space in others]
    assert actions[0] == actions[1] and actions[1] != actions[2] and repr(actions[1]) == repr(actions[0])
    assert pickle.loads(pickle.dumps(EVERYTHING)) == EVERYTHING == copy.deepcopy(EVERYTHING)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: UnitSpace({"Ant": []}), "at least one action"),
        (lambda: UnitSpace({"Ant": ["x", "x"]}, actions={"a": Select()}), "features of 'Ant': 'x' is there twice"),
        (lambda: UnitSpace({"Ant": "xy"}, actions={"a": Select()}), "list of strings, got 'xy'"),
        (lambda: UnitSpace({"Ant": []}, actions={"a": Select()}, hidden=["Ants"]), "no type 'Ants'.*Ant"),
        (lambda: UnitSpace({"Ant": []}, actions={"a": Discrete(2)}), "action 'a' must be a Choice"),  # type: ignore[dict-item]
        (lambda: Choice([]), "at least one label"),
        (lambda: GlobalChoice(["a", "a"]), "'a' is there twice"),
    ],
)
def test_wrong_spaces_are_refused(build: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build()


def test_drawn_observations_keep_the_rules_and_are_varied() -> None:
    EVERYTHING.seed(3)
    samples = [EVERYTHING.sample() for _ in range(200)]
    assert all(sample in EVERYTHING for sample in samples)
    assert EVERYTHING.breach(stack(EVERYTHING, samples)) is None
    hits = [sample["actions"]["hit"] for sample in samples]
    assert max(len(hit["actors"]) for hit in hits) > 3 and min(len(hit["actors"]) for hit in hits) == 0
    assert {len(sample["actions"]["end"]["actors"]) for sample in samples} == {0, 1}
    assert board() in EVERYTHING


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    sample = board()
    inner: Any = sample
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return sample


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["globals"], np.array([np.nan], np.float32), "global feature 'step' is nan"),
        (["units", "Zebra"], np.array([[1], [np.inf]], np.float32), "feature 'x' of Zebra 1 is inf"),
        (["visible", "Ant"], np.array([1], np.int8), "'visible' has 1 items for 2 units of type 'Ant'"),
        (["visible", "Ant"], np.array([1, 2], np.int8), "holds 2; only 0 and 1"),
        (["actions", "walk", "actors"], np.array([0, 4]), "action 'walk': actor 4 is no unit; there are 4"),
        (["actions", "walk", "actors"], np.array([-1]), "action 'walk': actor -1 is no unit"),
        (["actions", "walk", "actors"], np.array([1, 1]), "action 'walk': actor 1 is there twice"),
        (["actions", "walk", "actors"], np.array([3]), "action 'walk': actor 3 is hidden"),
        (["actions", "hit", "actees"], np.array([1, 0, 3]), "action 'hit': actee 3 is hidden"),
        (["actions", "hit", "actees"], np.array([1, 0, 0]), "action 'hit': actee 0 is there twice"),
        (["actions", "hit", "actees"], np.zeros(0, np.int64), "actor 2 has nothing to select"),
        (["actions", "hit", "actors"], np.zeros(0, np.int64), "3 actees, but no actor"),
        (["actions", "hit", "mask"], np.array([1, 0, 0, 0, 1], np.int8), "5 entries for 2 actors with 3 actees each"),
        (["actions", "hit", "mask"], np.array([1, 0, 0, 0, 0, 0], np.int8), "actor 0: its mask forbids everything"),
        (["actions", "hit", "mask"], np.array([1, 0, 0, 0, 7, 0], np.int8), "its mask holds 7"),
        (["actions", "end", "actors"], np.array([3]), "its actor must be 4, the number of units, got 3"),
        (["actions", "end", "actors"], np.array([4, 4]), "2 actors, but the row chooses at most once"),
        (["actions", "end", "mask"], np.zeros((0, 2), np.int8), "its mask has 0 rows for 1 actors"),
        (["actions", "end", "mask"], np.zeros((1, 2), np.int8), "actor 4: its mask forbids everything"),
    ],
)
def test_each_rule_of_an_observation_is_checked_in_its_row(path: list[Any], value: Any, text: str) -> None:
    wrong = changed(path, value)
    assert wrong not in EVERYTHING
    breach = EVERYTHING.breach(stack(EVERYTHING, [board(), wrong, board()]))
    assert breach is not None and breach.row == 1 and text in breach.text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["units", "Zebra"], np.ones((2, 1))),  # float64
        (["units", "Zebra"], np.ones((2, 2), np.float32)),
        (["units", "Zebra"], [[1.0], [2.0]]),
        (["actions", "walk"], {"actors": np.array([0]), "mask": np.ones((1, 2), np.int8)}),
        (["actions", "walk", "actors"], np.array([0.0])),
        (["actions", "end", "mask"], np.ones((1, 3), np.int8)),
        (["other"], 1),
    ],
)
def test_samples_of_another_form_are_not_contained(path: list[Any], value: Any) -> None:
    assert changed(path, value) not in EVERYTHING


def test_allowed_choices_are_drawn_evenly() -> None:
    actions = EVERYTHING.action_space
    actions.seed(5)
    shown = board()["actions"]
    found: dict[str, list[Counter[int]]] = {"walk": [Counter(), Counter()], "hit": [Counter(), Counter()]}
    for _ in range(600):
        drawn = actions.sample(mask=shown)
        assert drawn in actions and drawn["end"].tolist() == [1]
        for name, counters in found.items():
            for counter, choice in zip(counters, drawn[name].tolist(), strict=True):
                counter[choice] += 1
    assert found["hit"][0] == {0: 600} and set(found["hit"][1]) == {1, 2}
    assert all(abs(count - 300) < 85 for counter in (*found["walk"], found["hit"][1]) for count in counter.values())


def test_batched_rows_draw_like_single_ones() -> None:
    EVERYTHING.seed(6)
    samples = [EVERYTHING.sample() for _ in range(50)]
    shown = stack(EVERYTHING, samples)["actions"]
    drawn = EVERYTHING.action_space.draw(shown, np.random.default_rng(1))
    first = EVERYTHING.action_space.first_allowed(shown, {"walk": 1, "end": 0})
    for row, sample in enumerate(samples):
        for name, parts in sample["actions"].items():
            count = len(parts["actors"])
            assert len(drawn[name][row]) == count == len(first[name][row])
            if "mask" not in parts:
                assert name == "walk" and first[name][row].tolist() == [1] * count
                continue
            mask = parts["mask"].reshape(count, -1) if count else np.ones((0, 1))
            assert all(mask[np.arange(count), drawn[name][row]] == 1)
            wanted = [0 if name == "end" and allowed[0] else int(np.argmax(allowed)) for allowed in mask]
            assert first[name][row].tolist() == wanted


def test_an_actor_that_can_choose_nothing_is_named() -> None:
    shown = {"Move": {"actors": [3, 1], "mask": [[1] * 5, [0] * 5]}}
    with pytest.raises(ValueError, match="'Move', row 0: actor 1: its mask forbids everything"):
        MINESWEEPER.action_space.sample(mask=shown)


def test_worker_space_draws_allowed_choices_and_copies_none() -> None:
    standing: list[Any] = [None]
    alone = MINESWEEPER.action_space
    handed = alone.showing(lambda: standing[0])
    assert {name: len(choices) for name, choices in alone.sample().items()} == {"Move": 0, "Fire Orbital Cannon": 0}
    standing[0] = {"Move": {"actors": [5, 6], "mask": [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]}}
    assert {name: choices.tolist() for name, choices in handed.sample().items()} == {
        "Move": [2, 0],
        "Fire Orbital Cannon": [],
    }
    assert handed == alone and len(pickle.loads(pickle.dumps(handed)).sample()["Move"]) == 0


@pytest.mark.parametrize(
    "action",
    [
        {"Move": np.array([5]), "Fire Orbital Cannon": np.zeros(0, np.int64)},
        {"Move": np.array([-1]), "Fire Orbital Cannon": np.zeros(0, np.int64)},
        {"Move": np.array([1.0]), "Fire Orbital Cannon": np.zeros(0, np.int64)},
        {"Move": np.array([[1]]), "Fire Orbital Cannon": np.zeros(0, np.int64)},
        {"Move": np.array([1])},
        {"Move": 1, "Fire Orbital Cannon": np.zeros(0, np.int64)},
    ],
)
def test_actions_of_another_form_or_range_are_not_contained(action: dict[str, Any]) -> None:
    assert action not in MINESWEEPER.action_space
    assert {"Move": np.array([4, 0]), "Fire Orbital Cannon": np.array([10**6])} in MINESWEEPER.action_space


def test_idle_actions_are_labels_or_their_numbers() -> None:
    actions = MINESWEEPER.action_space
    assert actions.parse_idle({"Move": "Defuse Mines"}) == {"Move": 4} == actions.parse_idle({"Move": 4})
    for written, named in (
        ({"Move": "Defuse"}, "'Defuse'.*Defuse Mines"),
        ({"Move": 5}, "from 0 to 4"),
        ({"Move": True}, "no label True"),
        ({"Moves": 1}, "no action 'Moves'.*Move"),
        ({"Fire Orbital Cannon": 0}, "selects a unit"),
        (3, "no mapping"),
    ):
        with pytest.raises(ValueError, match=named):
            actions.parse_idle(written)
