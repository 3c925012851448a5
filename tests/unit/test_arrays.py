"""Conversions between dtypes: a value that would not survive one is found, against Python's exact numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import GameError
from arena.external.errors import ExternalError
from arena.external.samples import fitted
from arena.game.api import Frame, Interface, Step
from arena.game.arrays import lost_value
from arena.game.spaces import as_action, empty_batch, stack, write_sample
from arena.roles.environment.restart import RestartingGame
from arena.roles.environment.validate import StepValidator
from arena.testing import check_batched_env
from arena.testing.batched_env import ContractBroken
from envs.adapters import adapt
from reused_games import Depth

DTYPES = [np.dtype(kind) for kind in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]
EDGES = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    2**11 + 1,
    65504,
    65520,
    2**24 + 1,
    2**31,
    2**53 + 1,
    2**63,
    2**64 - 1,
    1e30,
    1e300,
]


def survives(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy scalar of any dtype keeps its value; floats may be rounded."""
    exact = value.item()
    if value.dtype.kind == "f":
        if dtype.kind != "f":
            return False
        with np.errstate(over="ignore"):
            return bool(np.isfinite(dtype.type(exact)))
    if value.dtype == dtype:
        return True
    if dtype.kind == "b":
        return False
    if dtype.kind in "iu":
        return bool(np.iinfo(dtype).min <= exact <= np.iinfo(dtype).max)
    with np.errstate(over="ignore"):
        found = float(dtype.type(exact))
    return math.isfinite(found) and int(found) == int(exact)


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.lists(st.sampled_from(EDGES), min_size=1, max_size=3))
def test_the_first_value_that_a_conversion_changes_is_named(given: Any, dtype: Any, edges: list[float]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array([np.asarray(edge).astype(given) for edge in edges])
    array = array[np.isfinite(array.astype(float))]
    wrong = [value for value in array if not survives(value, dtype)] if given != dtype else []
    remedy = "; use integers" if array.dtype.kind == "f" and np.dtype(dtype).kind in "iu" else ""
    expected = f"{wrong[0]!s:.40} ({given}{remedy})" if wrong else None
    assert lost_value(array, dtype) == expected


LOST: dict[str, tuple[dict[str, Any], str]] = {
    "uint16 in uint8": ({"value": 256, "given": "uint16"}, r"256 \(uint16\); its space Box\(0, 255, \(2,\), uint8\)"),
    "a Python int": ({"value": 256}, r"256 \(int64\)"),
    "negative": ({"value": -1}, r"-1 \(int64\)"),
    "int64 in int32": (
        {"value": 3_000_000_000, "space": Box(-(2**31), 2**31 - 2, (2,), np.int32)},
        r"3000000000 \(int64\)",
    ),
    "float64 in float32": ({"value": 1e300, "declared": "float32"}, r"1e\+300 \(float64\)"),
    "int64 in float32": ({"value": 2**24 + 1, "declared": "float32"}, r"16777217 \(int64\)"),
    "float in uint8": ({"value": 0.5}, r"0.5 \(float64; use integers\)"),
    "larger than any": ({"value": 2**70}, rf"{2**70} \(object\)"),
}


@pytest.mark.parametrize("wrapper", [[], [("frame_stack", 2)]], ids=["alone", "stacked"])
@pytest.mark.parametrize(("kwargs", "words"), LOST.values(), ids=LOST)
def test_an_observation_that_loses_its_value_is_refused(kwargs: Any, words: str, wrapper: Any) -> None:
    game = RestartingGame(lambda: adapt(Depth, kwargs, 2, wrapper), lanes=range(2), seeds=[1, 2], limit=None)
    game.begin()
    game.step([np.zeros(2, np.int64)])
    with pytest.raises(GameError, match=f"an observation with the value {words}"):
        game.step([np.zeros(2, np.int64)])


class Nested(Depth):
    """A `Depth` whose observation is a part of a part."""

    def __init__(self, image: Any = (0, 0), far: Any = (0.0, 0.0)) -> None:
        parts = {"image": Box(0, 255, (2,), np.uint8), "far": spaces.Tuple([Box(-1, 1, (2,))])}
        super().__init__(0, space=spaces.Dict(parts))
        self.seen = {"image": np.array(image), "far": (np.array(far),)}

    def reset(self, **options: Any) -> Any:
        return self.seen, {}


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"image": [0.0, 1.0]}, r"\['image'\] with the value 0.0 \(float64; use integers\); its space Box.* has uint8"),
        ({"image": [1, 2, 3]}, r"\['image'\] int64 \(3,\); its space Box\(0, 255, \(2,\), uint8\) has uint8 \(2,\)"),
        ({"far": [1.0]}, r"\['far'\]\[0\] float64 \(1,\); its space Box.* has float32 \(2,\)"),
        ({"far": [1e300, 0]}, r"\['far'\]\[0\] with the value 1e\+300 \(float64\); its space Box"),
        ({"far": [0, np.nan]}, r"\['far'\]\[0\] \[ 0., nan\]; expected finite numbers"),
    ],
    ids=["dtype", "shape", "nested shape", "nested dtype", "nan"],
)
def test_faulty_part_of_an_observation_is_named(kwargs: Any, words: str) -> None:
    game = RestartingGame(lambda: adapt(Nested, kwargs, 1), lanes=range(1), seeds=[1], limit=None)
    with pytest.raises(GameError, match=r"'agent_0' in lane 0 (an|the) observation" + words):
        game.begin()


def test_contract_check_names_the_part_that_is_out_of_bounds() -> None:
    with pytest.raises(ContractBroken, match=r"lane 0 observes\['far'\]\[0\] \[0. 2.\]; it must lie in Box"):
        check_batched_env(adapt(Nested, {"far": [0, 2]}, 1), ticks=1)


def test_float64_observations_keep_all_digits() -> None:
    space = Box(-np.inf, np.inf, (2,), np.float64)
    game = RestartingGame(
        lambda: adapt(Depth, {"value": 1.7e9 + 0.1, "space": space}, 1), lanes=range(1), seeds=[1], limit=None
    )
    game.begin()
    game.step([np.zeros(1, np.int64)])
    step = game.step([np.zeros(1, np.int64)])
    assert step is not None and step.frame.observations[0][0, 0] == 1.7e9 + 0.1


@pytest.mark.parametrize("value", [256, -1])
def test_batched_games_and_their_masks_do_not_wrap(value: int) -> None:
    interface = Interface(("a",), (Box(0, 255, (1,), np.uint8),), (spaces.Discrete(2),), (2,))
    flags = np.zeros((1, 1), np.bool_)
    seen, mask = np.full((1, 1), value), np.array([[value, 1]])
    validator = StepValidator(interface, 1)
    right = np.ones((1, 1), np.uint8), np.ones((1, 2), np.int8)
    for frame, words in (
        (Frame([seen], ~flags, [right[1]]), rf"observations with the value {value} \(int64\)"),
        (Frame([right[0]], ~flags, [mask]), r"the action mask .*expected 0 \(forbidden\) and 1"),
    ):
        with pytest.raises(GameError, match=words):
            validator.check_step(Step(frame, np.zeros((1, 1)), flags, flags))


@pytest.mark.parametrize("reward", ["1.5", 2**53 + 1, np.int64(2**53 + 1), 10**400, None], ids=repr)
def test_rewards_keep_their_value_or_are_refused(reward: Any) -> None:
    class Rewarding(Depth):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    game = adapt(Rewarding, {"value": 1}, 1)
    game.reset(np.ones(1, np.bool_))
    with pytest.raises(GameError, match=r"the reward .*expected a number"):
        game.step([np.zeros(1, np.int64)])


ACTIONS: list[tuple[Any, Any, str]] = [
    (Box(0, 255, (1,), np.uint8), np.array([256]), r"256 \(int64\)"),
    (Box(-1, 1, (1,), np.float32), np.array([1e300]), r"1e\+300 \(float64\)"),
    (spaces.MultiBinary(1), np.array([256]), r"256 \(int64\)"),
    (spaces.MultiDiscrete([3], dtype=np.int8), np.array([300]), r"300 \(int64\)"),
    (spaces.Dict(a=spaces.Tuple([spaces.Discrete(3)])), {"a": (0.5,)}, r"0.5 \(float64; use integers\)"),
]


@pytest.mark.parametrize(("space", "action", "words"), ACTIONS, ids=str)
def test_an_action_that_loses_its_value_is_refused(space: Any, action: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        write_sample(space, action, empty_batch(space, 1), 0)
    with pytest.raises(TypeError, match=words):
        stack(space, [action])


def test_numbers_from_json_and_configurations_keep_their_value() -> None:
    space = Box(-np.inf, np.inf, (), np.float32)
    with pytest.raises(ExternalError, match="would not keep its values"):
        fitted(space, 2**24 + 1, "observation", "bad_observation")
    assert fitted(space, 2**24, "observation", "bad_observation") == 2**24
    with pytest.raises(ValueError, match="is no action of"):
        as_action(space, 1e300)
