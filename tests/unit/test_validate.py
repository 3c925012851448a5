"""Results of a game against its interface: every violation is found and named, valid results pass."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Space

import crowd
from arena import Ragged
from arena.errors import GameError
from arena.game.api import Frame, Interface, Step
from arena.game.spaces import leaves_of, stack
from arena.roles.environment.validate import StepValidator

LANES, ENTITIES = 3, 2
NUMBERS = Box(-np.inf, np.inf, (2,), np.float32)
NO_NUMBERS = (np.nan, np.inf, -np.inf)


def interface(space: Space[Any] = NUMBERS, mask_size: int = 0) -> Interface:
    return Interface(("a", "b"), (space,) * ENTITIES, (Discrete(4),) * ENTITIES, (mask_size,) * ENTITIES)


def step(observations: Any = None, masks: Any = (None, None), **changes: Any) -> Step:
    """A valid step with some changes."""
    seen = list(np.zeros((ENTITIES, LANES, 2), np.float32)) if observations is None else observations
    flags = np.zeros((LANES, ENTITIES), np.bool_)
    said = {"rewards": np.zeros((LANES, ENTITIES)), "terminated": flags, "truncated": flags, "active": ~flags}
    said |= changes
    return Step(Frame(seen, said["active"], masks), said["rewards"], said["terminated"], said["truncated"])


def layouts() -> dict[str, Any]:
    """The same observations, [E, L, 2] of ones, as games may hold them: each entity's item is a [L, 2]."""
    whole = np.ones((ENTITIES, LANES, 2), np.float32)
    return {
        "parts of one array": list(whole),
        "arrays of their own": [array.copy() for array in whole],
        "columns of one array": list(np.ones((LANES, ENTITIES, 2), np.float32).swapaxes(0, 1)),
        "parts of a much larger one": list(np.ones((100, LANES, 2), np.float32)[:ENTITIES]),
        "views of bytes": list(np.frombuffer(bytearray(whole.tobytes()), np.float32).reshape(whole.shape)),
        "views of another dtype": list(np.zeros(whole.nbytes, np.uint8).view(np.float32).reshape(whole.shape)),
        "gaps between": list(np.ones((ENTITIES, LANES, 4), np.float32)[:, :, ::2]),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_nan_observation_is_detected_at_any_index(layout: str, value: float) -> None:
    validator = StepValidator(interface(), LANES)
    validator.check_step(step(layouts()[layout]))
    for entity, lane, place in np.ndindex(ENTITIES, LANES, 2):
        observations = layouts()[layout]
        observations[entity][lane, place] = value
        with pytest.raises(GameError, match="expected finite numbers") as caught:
            validator.check_step(step(observations))
        assert (caught.value.entity, caught.value.lane) == ("ab"[entity], lane)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1e300, -3.5e38])
def test_nan_reward_is_detected_at_any_index(value: float) -> None:
    for lane, entity in np.ndindex(LANES, ENTITIES):
        rewards = np.ones((LANES, ENTITIES))
        rewards[lane, entity] = value
        with pytest.raises(GameError, match=re.escape(f"the reward {value}; expected a finite number that")) as caught:
            StepValidator(interface(), LANES).check_step(step(rewards=rewards))
        assert (caught.value.entity, caught.value.lane) == ("ab"[entity], lane)


def test_finite_numbers_of_any_size_pass() -> None:
    seen = list(np.full((ENTITIES, LANES, 2), np.finfo(np.float32).max, np.float32))
    for sign in (1, -1):
        paid = np.full((LANES, ENTITIES), sign * float(np.finfo(np.float32).max))
        StepValidator(interface(), LANES).check_step(step([sign * each for each in seen], rewards=paid))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rewards": np.zeros((ENTITIES, LANES))}, r"rewards as float64 \(2, 3\); expected float64 \(3, 2\)"),
        ({"rewards": np.zeros((LANES, 1))}, r"rewards as float64 \(3, 1\)"),
        ({"rewards": [[0.0, 0.0]] * LANES}, "rewards as a list"),
        ({"rewards": np.zeros((LANES, ENTITIES), complex)}, "rewards as complex128"),
        ({"terminated": np.zeros((LANES, ENTITIES))}, r"terminated as float64 \(3, 2\); expected bool \(3, 2\)"),
        ({"truncated": np.zeros(LANES, np.bool_)}, r"truncated as bool \(3,\)"),
        ({"active": None}, "active as a NoneType"),
        ({"observations": [np.zeros((LANES, 2), np.float32)]}, "1 observations for 2 entities"),
        (
            {"observations": [np.zeros((LANES, 3), np.float32)] * 2},
            r"'a' observations as float32 \(3, 3\); expected fl",
        ),
        ({"observations": [np.zeros((LANES, 2), complex)] * 2}, r"'a' observations with the value 0j \(complex128\)"),
        ({"observations": [[[0, 0]] * 2] * 2}, r"'a' observations as int64 \(2, 2\)"),
    ],
)
def test_other_shape_is_refused_with_the_expected_one(changes: Any, found: str) -> None:
    with pytest.raises(GameError, match=found):
        StepValidator(interface(), LANES).check_step(step(**changes))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, r"the game gave a NoneType as the result of step\(\); expected an arena.game.api.Step"),
        (tuple(step()), r"a tuple as the result of step\(\)"),
        (step()._replace(frame=None), "a NoneType as a frame; expected an arena.game.api.Frame"),
        (step()._replace(frame=step().frame._replace(observations=None)), "a NoneType as observations for 2 entities"),
    ],
)
@pytest.mark.parametrize("mask_size", [0, 4])
def test_anything_but_a_step_is_refused(given: Any, found: str, mask_size: int) -> None:
    with pytest.raises(GameError, match=found):
        StepValidator(interface(mask_size=mask_size), LANES).check_step(given)


def test_other_dtypes_that_keep_the_values_pass() -> None:
    seen = [np.zeros((LANES, 2), np.float64), np.zeros((LANES, 2), np.int64)]
    StepValidator(interface(), LANES).check_step(step(seen, rewards=np.zeros((LANES, ENTITIES), np.float32)))


def test_the_part_of_a_composite_observation_is_named() -> None:
    space = Dict(near=Box(0, 1, (1,), np.float32), far=Box(0, 9, (2,), np.uint8))
    batch = {"near": np.zeros((LANES, 1), np.float32), "far": np.zeros((LANES, 2), np.uint8)}
    validator = StepValidator(interface(space), LANES)
    validator.check_step(step([batch, batch]))
    wrong = {**batch, "near": np.array([[0], [0], [np.nan]], np.float32)}
    with pytest.raises(GameError, match=r"'b' in lane 2 the observation\['near'\] \[nan\]; expected finite numbers"):
        validator.check_step(step([batch, wrong]))
    with pytest.raises(GameError, match=r"'a' observations\['far'\] with the value 0.0 \(float32; use integers\)"):
        validator.check_step(step([{**batch, "far": np.zeros((LANES, 2), np.float32)}, batch]))
    with pytest.raises(GameError, match="'a' observations as a dict; expected a batch of the space Dict"):
        validator.check_step(step([{"near": batch["near"]}, batch]))


CHOICES: dict[str, tuple[Space[Any], Any, str]] = {
    "discrete": (Discrete(3), 3, r"the observation 3; its space Discrete\(3\) has the choices 0 to 2"),
    "negative": (Discrete(3), -1, "the observation -1"),
    "with a start": (Discrete(3, start=5), 8, "the observation 8; .* the choices 5 to 7"),
    "multi discrete": (MultiDiscrete([2, 4]), [2, 0], r"the observation \[2, 0\]"),
    "multi binary": (MultiBinary(2), [0, 2], r"the observation \[0, 2\]"),
    "a leaf": (Dict(n=Discrete(2)), {"n": 2}, r"the observation\['n'\] 2"),
    "items": (Sequence(Discrete(2), stack=True), [0, 2], "the observation 2"),
}


@pytest.mark.parametrize(("space", "wrong", "words"), CHOICES.values(), ids=CHOICES)
def test_choice_out_of_range_is_refused_where_a_row_is_shown(space: Space[Any], wrong: Any, words: str) -> None:
    validator = StepValidator(interface(space), LANES)
    right = space.sample()
    validator.check_step(step([stack(space, [right] * LANES)] * ENTITIES))
    typed = {"n": np.int64(2)} if isinstance(wrong, dict) else np.asarray(wrong, leaves_of(space, ragged=True)[0].dtype)
    bad = step([stack(space, [right] * LANES), stack(space, [right, typed, right])])
    with pytest.raises(GameError, match=f"'b' in lane 1 {words}"):
        validator.check_step(bad)
    silent = bad.frame.active.copy()
    silent[1, 1] = False
    validator.check_step(bad._replace(frame=bad.frame._replace(active=silent)))
    with pytest.raises(GameError, match=f"'b' in lane 1 {words}"):
        validator.check_step(bad._replace(frame=bad.frame._replace(active=silent), truncated=~silent))


def test_active_entity_without_its_mask_is_refused() -> None:
    validator = StepValidator(interface(mask_size=4), LANES)
    fine = np.ones((LANES, 4), np.int8)
    with pytest.raises(GameError, match="'b' no action masks, though `mask_sizes` has their size"):
        validator.check_step(step(masks=(fine, None)))
    acts = np.array([[True, False]] * LANES)
    validator.check_step(step(masks=(fine, None), active=acts))


def test_masks_of_another_form_are_refused() -> None:
    validator = StepValidator(interface(mask_size=4), LANES)
    fine = np.ones((LANES, 4), np.int8)
    validator.check_step(step(masks=(fine, fine)))
    with pytest.raises(GameError, match=r"'b' action masks as int8 \(3, 5\); expected int8 \(3, 4\)"):
        validator.check_step(step(masks=(fine, np.ones((LANES, 5), np.int8))))
    with pytest.raises(GameError, match="'a' action masks as float64"):
        validator.check_step(step(masks=(np.ones((LANES, 4)), fine)))
    with pytest.raises(GameError, match="1 masks for 2 entities"):
        validator.check_step(step(masks=(fine,)))
    with pytest.raises(GameError, match="a NoneType as masks for 2 entities"):
        validator.check_step(step(masks=None))
    right = step(masks=(fine, fine))
    with pytest.raises(GameError, match=r"'b' action masks as int8 \(3, 5\)"):
        validator.check_step(
            right._replace(frame=right.frame._replace(final_masks=(fine, np.ones((LANES, 5), np.int8))))
        )
    with pytest.raises(GameError, match="1 final masks for 2 entities"):
        validator.check_step(right._replace(frame=right.frame._replace(final_masks=(fine,))))


class Unsendable:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("it has a handle")


def with_infos(*infos: Any, observations: Any = None) -> Step:
    """A valid step, with infos for the entity "b" of the first lanes."""
    given = [[{}, {}] for _ in range(LANES)]
    for lane, info in enumerate(infos):
        given[lane][1] = info
    valid = step(observations)
    return valid._replace(frame=valid.frame._replace(infos=given))


@pytest.mark.parametrize(
    "info",
    [{"handle": Unsendable()}, {"handle": [Unsendable()]}, {"handle": np.array([Unsendable()])}, {"handle": lambda: 0}],
)
@pytest.mark.parametrize("composite", [False, True])
def test_an_info_that_cannot_be_pickled_is_named(info: Any, composite: bool) -> None:
    space, seen = NUMBERS, np.zeros((LANES, 2), np.float32)
    validator = StepValidator(interface(Dict(near=space) if composite else space), LANES)
    given = with_infos({"score": 1}, info, observations=[{"near": seen} if composite else seen] * 2)
    words = "'b' in lane 1 the info 'handle', a .* that cannot be sent to a worker .*; expected a value that can be pi"
    with pytest.raises(GameError, match=words):
        validator.check_step(given)
    with pytest.raises(GameError, match=words):
        validator.check_frame(given.frame, np.ones(LANES, np.bool_))
    validator.check_frame(given.frame, np.array([True, False, True]))


def test_infos_of_any_value_that_can_be_pickled_pass() -> None:
    values = {"n": 1, "x": np.float32(0.5), "a": np.zeros(3), "o": np.array([None]), "d": {"s": {1}}, "e": ValueError()}
    StepValidator(interface(), LANES).check_step(with_infos(values, {0: None}))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([[{}, {}]], r"infos of the sizes \[2\]; expected 3 lanes of 2 entities"),
        ([[{}, {}], [{}], [{}, {}]], r"infos of the sizes \[2, 1, 2\]"),
        ([[{}, {}], [{}, None], [{}, {}]], "'b' in lane 1 a NoneType as its info; expected a dict"),
    ],
)
def test_infos_of_another_form_are_refused(given: Any, found: str) -> None:
    wrong = step()._replace(frame=step().frame._replace(infos=given))
    with pytest.raises(GameError, match=found):
        StepValidator(interface(), LANES).check_step(wrong)


def test_lanes_that_were_not_reset_may_show_anything_after_a_reset() -> None:
    seen = [np.full((LANES, 2), np.nan, np.float32) for _ in range(ENTITIES)]
    for array in seen:
        array[1] = 0.0
    frame = step(seen).frame
    validator = StepValidator(interface(), LANES)
    validator.check_frame(frame, np.array([False, True, False]))
    with pytest.raises(GameError, match="in lane 2"):
        validator.check_frame(frame, np.array([False, True, True]))


# ------------------------------------------------------------------------------------------------ ragged leaves

ITEMS = Dict(fixed=NUMBERS, items=Sequence(NUMBERS, stack=True))


def ragged_step(items: Any) -> Step:
    """A step in which the first entity observes these items."""
    seen = [
        {
            "fixed": np.zeros((LANES, 2), np.float32),
            "items": items if entity == 0 else Ragged.empty(LANES, np.float32, (2,)),
        }
        for entity in range(ENTITIES)
    ]
    return step(seen)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (np.zeros((LANES, 2), np.float32), r"observations\['items'\] as float32 \(3, 2\); expected a Ragged of 3 rows"),
        ([[], [], []], r"observations\['items'\] as a list; expected a Ragged"),
        (Ragged.empty(2, np.float32, (2,)), r"float32 \(2,\) in 2 rows; expected items float32 \(2,\) in 3 rows"),
        (Ragged.empty(3, np.float32, (3,)), r"float32 \(3,\) in 3 rows; expected items float32 \(2,\)"),
        (Ragged(np.zeros((1, 2), complex), [1, 0, 0]), "complex128"),
        (Ragged(np.array([[1, 2], [3, np.nan]], np.float32), [1, 0, 1]), r"in lane 2 the observation\['items'\]"),
        (Ragged(np.array([[np.inf, 2]]), [0, 1, 0]), r"in lane 1 the observation\['items'\]"),
    ],
)
def test_wrong_items_are_named(items: Any, words: str) -> None:
    with pytest.raises(GameError, match=f"the game gave 'a'.*{words}"):
        StepValidator(interface(ITEMS), LANES).check_step(ragged_step(items))


def test_units_are_checked_in_the_lanes_that_are_shown() -> None:
    right = crowd.SPACE.complete({"globals": [0], "units": {"Zebra": [[1, 1]]}})
    wrong = crowd.SPACE.complete({"globals": [0], "actions": {"walk": {"actors": [5]}}})
    game = Interface(("a",), (crowd.SPACE,), (crowd.SPACE.action_space,), (0,))
    frame = Frame([stack(crowd.SPACE, [right, wrong, right])], np.ones((3, 1), np.bool_), (None,))
    validator = StepValidator(game, 3)
    validator.check_frame(frame, np.array([True, False, True]))
    no = np.zeros((3, 1), np.bool_)
    for check in (
        lambda: validator.check_frame(frame, np.array([False, True, False])),
        lambda: validator.check_step(Step(frame, np.zeros((3, 1)), no, no)),
    ):
        with pytest.raises(GameError, match=r"'a' in lane 1 .*action 'walk': actor 5 is no unit; there are 0"):
            check()


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete([2, 2])])
def test_mask_that_forbids_everything_is_refused_of_active_entities(space: Space[Any]) -> None:
    spaces = (NUMBERS,) * ENTITIES
    validator = StepValidator(Interface(("a", "b"), spaces, (space,) * ENTITIES, (4, 4)), LANES)
    masks = [np.ones((LANES, 4), np.int8) for _ in range(ENTITIES)]
    masks[1][2] = 0 if isinstance(space, Discrete) else [1, 1, 0, 0]
    active = np.ones((LANES, ENTITIES), np.bool_)
    with pytest.raises(GameError, match="forbids everything; an active entity needs an allowed action"):
        validator.check_step(step(masks=masks, active=active))
    active[2, 1] = False
    validator.check_step(step(masks=masks, active=active))
