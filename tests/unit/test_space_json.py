"""Spaces as JSON and back: any space that can be recorded; malformed JSON is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings

import random_spaces
from arena import Choice, GlobalChoice, Select, UnitSpace
from arena.errors import ConfigError
from arena.game.spaces import leaves_of
from arena.records.space_json import space_from_json, space_to_json

UNITS: dict[str, Any] = {
    "types": [["Mine", ["x", "y"]], ["Ant", []]],
    "globals": ["step"],
    "actions": [
        ["Move", {"choice": {"labels": ["+x", "-x"], "masked": True}}],
        ["Fire", {"select": {"masked": False}}],
        ["End", {"global": {"labels": ["yes"], "masked": False}}],
    ],
    "hidden": ["Ant"],
}


def test_unit_spaces_are_written_with_all_their_attributes() -> None:
    actions = {"Move": Choice(["+x", "-x"]), "Fire": Select(), "End": GlobalChoice(["yes"], masked=False)}
    space = UnitSpace({"Mine": ["x", "y"], "Ant": []}, ["step"], actions, hidden=["Ant"])
    assert space_to_json(space) == {"units": UNITS}
    assert space_to_json(space.action_space) == {"unit_actions": UNITS}
    for one in (space, space.action_space):
        found = space_from_json(json.loads(json.dumps(space_to_json(one))))
        assert found == one and type(found) is type(one)


def test_items_of_any_number_are_written_with_their_space() -> None:
    space = spaces.Dict(a=spaces.Sequence(spaces.Box(0, 1, (3,), np.float32), stack=True))
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space
    with pytest.raises(ConfigError, match="no fixed layout"):
        space_to_json(spaces.Sequence(spaces.Discrete(2)))


@pytest.mark.slow
@given(random_spaces.spaces())
@settings(max_examples=60)
def test_space_round_trip_keeps_its_leaves(space: Any) -> None:
    written = json.dumps(space_to_json(space), allow_nan=False)
    found = space_from_json(json.loads(written))
    assert found == space
    assert leaves_of(found) == leaves_of(space)


def test_bounds_are_exact_and_equal_ones_are_one_number() -> None:
    low = np.array([-np.inf, np.float32(0.1), -3e38], np.float32)
    found = space_from_json(json.loads(json.dumps(space_to_json(spaces.Box(low, np.inf, (3,), np.float32)))))
    assert isinstance(found, spaces.Box)
    assert found.low.tobytes() == low.tobytes()
    assert space_to_json(spaces.Box(0, 255, (84, 84, 4), np.uint8))["box"]["high"] == 255


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        {},
        {"text": {}},
        {"discrete": {"n": 3}},
        {"discrete": {"dtype": "int64", "n": -1, "start": 0}},
        {"discrete": {"dtype": "object", "n": 3, "start": 0}},
        {"box": {"dtype": "float32", "shape": [2], "low": [0, 0, 0], "high": 1}},
        {"box": {"dtype": "float32", "shape": [10**12], "low": 0, "high": 1}},
        {"box": {"dtype": "float32", "shape": [-1], "low": 0, "high": 1}},
        {"box": {"dtype": "nonsense", "shape": [], "low": 0, "high": 1}},
        {"multi_binary": {"n": [10**12]}},
        {"multi_binary": {"n": "3"}},
        {"multi_discrete": {"dtype": "int64", "nvec": "many", "start": []}},
        {"dict": [["a"]]},
        {"tuple": [{"tuple": 3}]},
        {"sequence": {"dict": []}},
        {"sequence": {"sequence": {"multi_binary": {"n": 3}}}},
        {"units": {}},
        {"units": {**UNITS, "more": 3}},
        {"units": {**UNITS, "actions": []}},
        {"units": {**UNITS, "actions": [["a", {"choose": {"labels": ["b"], "masked": True}}]]}},
        {"units": {**UNITS, "actions": [["a", {"choice": {"labels": ["b"], "masked": 1}}]]}},
        {"units": {**UNITS, "actions": [["a", {"choice": {"labels": 3, "masked": True}}]]}},
        {"units": {**UNITS, "types": [["Mine", [3]]]}},
        {"units": {**UNITS, "hidden": ["Robot"]}},
        {"unit_actions": {"actions": UNITS["actions"]}},
    ],
)
def test_malformed_space_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        space_from_json(written)
