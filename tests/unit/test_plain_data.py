"""Values that a program gives: as a file would hold them, or refused with their place."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena.config import yaml
from arena.config.plain_data import from_python
from arena.errors import ConfigError
from arena.experiment.config import experiment_yaml, parse_experiment
from arena.experiment.plan import plan_experiment
from experiment_folders import GAMMA, RUN
from policies.random import Random


class Word(str, enum.Enum):
    TANH = "tanh"


class Number(enum.IntEnum):
    SIX = 6


class Color(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int = 1


holds_itself: list[Any] = []
holds_itself.append(holds_itself)

TAKEN = [
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.str_("tanh"), "tanh"),
    (np.array(0.5), 0.5),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (torch.tensor([0.5, 1.0]), [0.5, 1.0]),
    (Word.TANH, "tanh"),
    (Number.SIX, 6),
    (Path("maps/a.txt"), "maps/a.txt"),
    ((1, (2,)), [1, [2]]),
    (range(2), [0, 1]),
    (Random, "policies.random:Random"),
    ({Random: {"a": None}}, {"policies.random:Random": {"a": None}}),
    (float("inf"), float("inf")),
]
REFUSED = [
    (torch.float32, "found torch.float32, of the class dtype"),
    (np.dtype("f4"), r"found dtype\('float32'\)"),
    ({1, 2}, r"found \{1, 2\}, of the class set"),
    (b"a", "found b'a', of the class bytes"),
    (np.bytes_(b"a"), "of the class bytes"),
    (Color.RED, "of the class Color"),
    (Point(), r"found Point\(x=1\), of the class Point"),
    (Decimal("0.5"), "of the class Decimal"),
    (datetime.date(2025, 1, 1), "of the class date"),
    (1j, "of the class complex"),
    (len, "of the class builtin_function_or_method"),
    (lambda: None, "which a run cannot find by this name: it was made inside a function, or is a lambda"),
    (
        type("Made", (), {"__module__": __name__}),
        f"{__name__} has no 'Made'; define it by `class` or `def` at a module",
    ),
    (type("Made", (), {"__module__": "__main__"}), "of __main__, which a run cannot find .*: __main__ has no 'Made'"),
    ({(1, 2): 3}, r"found the key \(1, 2\)"),
    ("\ud800", "half of a surrogate pair"),
    (holds_itself, "a part of it holds itself"),
]


@pytest.mark.parametrize(("value", "expected"), TAKEN, ids=lambda value: str(type(value).__name__))
def test_values_are_those_that_a_file_gives(value: Any, expected: Any) -> None:
    found = from_python({"a": [value]})
    assert found == {"a": [expected]} and type(found["a"][0]) is type(expected)
    assert yaml.load(yaml.dump(found), source="") == found


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=lambda value: str(type(value).__name__))
def test_values_that_no_file_holds_are_refused_with_their_place(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_python({"policies.blue.options.gamma": [value]})
    assert caught.value.path in ("policies.blue.options.gamma[0]", "")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=lambda value: str(type(value).__name__))
def test_experiments_refuse_such_values_by_their_key(value: Any, message: str) -> None:
    for keys in ({"set": {GAMMA: value}}, {"variants": {"a": {"set": {GAMMA: value}}}}):
        with pytest.raises(ConfigError, match=message):
            parse_experiment({"run": RUN, **keys})
    with pytest.raises(ConfigError, match=message) as caught:
        parse_experiment({"run": RUN, "set": {GAMMA: {"grid_search": [0.5, value]}}})
    assert caught.value.path in (f"set.{GAMMA}.grid_search[1]", "")


def test_experiments_take_arrays_classes_and_tuples() -> None:
    varied = {GAMMA: {"grid_search": np.array([0.5, 0.75])}, "policies.red.algorithm": {"grid_search": (Random,)}}
    file = parse_experiment({"run": RUN, "set": varied, "repeat": np.int64(1)})
    assert [[*trial.params.values()] for trial in plan_experiment(file).known] == [
        [0.5, "policies.random:Random"],
        [0.75, "policies.random:Random"],
    ]
    assert yaml.load(experiment_yaml(file.config), source="")["set"][GAMMA] == {"grid_search": [0.5, 0.75]}
