"""Joint experience: transitions of lanes with several entities by hand, and with one against `NStepBuilder`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies.common.nstep import NStepBatch, NStepBuilder, RowLayout, SequenceLayout
from policies.team.joint import JointNStepBuilder
from policies.team.networks import JointEncoder

NUMBER = spaces.Box(-1000, 1000, (1,), np.float64)


class Transition(NamedTuple):
    """A joint transition with observations in place of indices; a list has an item per entity."""

    seen: list[float]
    acts: list[int]
    actions: list[int]
    rewards: list[float]
    discounts: list[float]
    then: list[float]
    then_acts: list[int]


def experience(lanes: int, entities: int, *, n_step: int = 1, mask_size: int = 0) -> JointNStepBuilder:
    layout = RowLayout(NUMBER, (), torch.int64, mask_size)
    return JointNStepBuilder(layout, entities=entities, rows=lanes * entities, n_step=n_step, gamma=0.5)


def transitions(fragment: NStepBatch) -> list[Transition]:
    """The transitions of a fragment that begins with the first observation."""
    assert fragment.first == 0
    seen, acts = fragment.points.observations[0].squeeze(-1), fragment.points.observations[1]
    columns = seen[fragment.starts], acts[fragment.starts], *fragment[3:6], seen[fragment.followings]
    rows = zip(*(column.tolist() for column in (*columns, acts[fragment.followings])), strict=True)
    return sorted(Transition(*values) for values in rows)


def column(*values: float) -> Any:
    return np.array(values, np.float64)[:, None]


def tick(lived: Any, actions: list[int], seen: Any, rewards: list[float], ends: str, **infos: Any) -> None:
    """One tick; `ends` has a letter per row: t terminated, c cut, - neither; `last`: last observations."""
    terminated = np.array([letter == "t" for letter in ends])
    truncated = np.array([letter == "c" for letter in ends])
    if "last" in infos:
        last = infos.pop("last")
        infos["final_obs"] = np.full(len(ends), None, object)
        for row, value in last.items():
            infos["final_obs"][row] = np.array([float(value)])
    lived.add(np.array(actions), seen, np.array(rewards, np.float64), terminated, truncated, infos)


def active(*flags: int) -> Any:
    return np.array(flags, np.bool_)


def test_an_entity_that_is_out_is_masked_while_the_other_plays_on() -> None:
    lived = experience(1, 2)
    lived.begin(column(0, 1), {})
    tick(lived, [10, 11], column(50, 2), [1, 2], "t-", last={0: 90}, active=active(0, 1))
    tick(lived, [60, 12], column(51, 3), [0, 3], "--", active=active(0, 1))
    tick(lived, [61, 13], column(70, 71), [0, 4], "-c", last={1: 91}, active=active(1, 1))
    tick(lived, [14, 15], column(72, 73), [5, 6], "--", active=active(1, 1))
    assert transitions(lived.cut()) == [
        Transition([0, 1], [1, 1], [10, 11], [1, 2], [0, 0.5], [0, 2], [0, 1]),
        Transition([0, 2], [0, 1], [60, 12], [0, 3], [0, 0.5], [0, 3], [0, 1]),
        Transition([0, 3], [0, 1], [61, 13], [0, 4], [0, 0.5], [0, 91], [0, 1]),
        Transition([70, 71], [1, 1], [14, 15], [5, 6], [0.5, 0.5], [72, 73], [1, 1]),
    ]


def test_entity_truncated_alone_bootstraps() -> None:
    lived = experience(1, 2)
    lived.begin(column(0, 1), {})
    tick(lived, [10, 11], column(50, 2), [1, 2], "c-", last={0: 90}, active=active(0, 1))
    tick(lived, [60, 12], column(70, 71), [0, 3], "-t", last={1: 91})
    assert transitions(lived.cut()) == [
        Transition([0, 1], [1, 1], [10, 11], [1, 2], [0.5, 0.5], [90, 2], [1, 1]),
        Transition([0, 2], [0, 1], [60, 12], [0, 3], [0, 0], [0, 2], [0, 1]),
    ]


def test_several_rewards_are_summed_until_any_episode_ends() -> None:
    lived = experience(1, 2, n_step=3)
    lived.begin(column(0, 1), {})
    tick(lived, [10, 11], column(2, 3), [1, 10], "--")
    tick(lived, [12, 13], column(4, 5), [2, 20], "--")
    tick(lived, [14, 15], column(6, 7), [4, 40], "--")
    tick(lived, [16, 17], column(50, 9), [8, 80], "t-", last={0: 90}, active=active(0, 1))
    tick(lived, [60, 19], column(70, 71), [0, 16], "-t", last={1: 91})
    assert transitions(lived.cut()) == [
        Transition([0, 1], [1, 1], [10, 11], [3, 30], [0.125, 0.125], [6, 7], [1, 1]),
        Transition([0, 9], [0, 1], [60, 19], [0, 16], [0, 0], [0, 9], [0, 1]),
        Transition([2, 3], [1, 1], [12, 13], [6, 60], [0, 0.125], [0, 9], [0, 1]),
        Transition([4, 5], [1, 1], [14, 15], [8, 80], [0, 0.25], [0, 9], [0, 1]),
        Transition([6, 7], [1, 1], [16, 17], [8, 80], [0, 0.5], [0, 9], [0, 1]),
    ]


def test_in_turns_a_joint_transition_ends_with_the_next_action() -> None:
    lived = experience(1, 2)
    lived.begin(column(0, 50), {"active": active(1, 0)})
    tick(lived, [10, 60], column(51, 52), [1, 0], "--", active=active(0, 0))
    tick(lived, [61, 62], column(53, 3), [2, 4], "--", active=active(0, 1))
    tick(lived, [63, 11], column(4, 54), [8, 16], "--", active=active(1, 0))
    assert transitions(lived.cut()) == [
        Transition([0, 0], [1, 0], [10, 60], [3, 4], [0.5, 0.5], [0, 3], [0, 1]),
        Transition([0, 3], [0, 1], [63, 11], [8, 16], [0.5, 0.5], [4, 0], [1, 0]),
    ]


def test_masks_are_joined_and_final_ones_come_from_the_last_info() -> None:
    lived = experience(1, 2, mask_size=2)
    mask = np.array([[1, 0], [0, 1]], np.int8)
    lived.begin(column(0, 1), {"action_mask": mask})
    last = {"action_mask": np.array([[1, 1], [0, 0]], np.int8)}
    tick(
        *(lived, [0, 1], column(50, 2), [1, 2], "c-"),
        last={0: 90},
        active=active(0, 1),
        action_mask=mask[::-1].copy(),
        final_info=last,
    )
    fragment = lived.cut()
    assert fragment.points.masks is not None
    assert fragment.points.masks[fragment.starts].tolist() == [[True, False, False, True]]
    assert fragment.points.masks[fragment.followings].tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("n_step", [1, 3])
def test_joint_experience_of_one_entity_equals_the_plain_builder(n_step: int) -> None:
    draw = np.random.default_rng(n_step)
    layout, cut = RowLayout(NUMBER, (), torch.int64, 0), SequenceLayout(4, 2, n_step, 2)
    given: Any = {"rows": 4, "n_step": n_step, "gamma": 0.5, "sequences": cut}
    plain, joint = NStepBuilder(layout, **given), JointNStepBuilder(layout, entities=1, **given)
    seen = draw.normal(size=(4, 1))
    plain.memory = joint.memory = np.zeros((4, 2), np.float32)
    for lived in (plain, joint):
        lived.begin(seen, {"active": np.ones(4, np.bool_)})
    for _ in range(60):
        ends = draw.choice(list("tc----"), size=4)
        acts = (draw.random(4) < 0.6) | (ends != "-")
        actions, seen, rewards = draw.integers(9, size=4).tolist(), draw.normal(size=(4, 1)), draw.normal(size=4)
        last = {row: draw.normal() for row in range(4) if ends[row] != "-"}
        plain.memory[:] = draw.normal(size=(4, 2))
        for lived in (plain, joint):
            tick(lived, actions, seen, rewards.tolist(), "".join(ends), last=last, active=acts)
    one, other = plain.cut(), joint.cut()
    assert len(one.starts) > 100
    assert torch.equal(one.points.observations[0], other.points.observations[0].squeeze(1))
    assert torch.equal(one.starts, other.starts)
    assert torch.equal(one.followings, other.followings)
    for mine, theirs in zip(one[3:6], other[3:6], strict=True):
        assert torch.equal(mine, theirs.squeeze(1))
    assert one.sequences is not None
    assert other.sequences is not None
    assert len(one.sequences.firsts) > 20
    assert all(map(torch.equal, one.sequences, other.sequences))


def test_absent_observations_are_valid_samples() -> None:
    space = spaces.Tuple(
        [spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 4], start=[7, -9]), spaces.Box(-1, 1, (2,), np.float32)]
    )
    lived = JointNStepBuilder(RowLayout(space, (), torch.int64, 0), entities=2, rows=2, n_step=1, gamma=0.5)
    choices, several = np.array([6, 7]), np.array([[8, -8], [8, -6]])
    seen = choices, several, np.full((2, 2), 0.5, np.float32)
    lived.begin(seen, {"active": active(1, 0)})
    never = np.zeros(2, np.bool_)
    lived.add(np.zeros(2, np.int64), seen, np.zeros(2), never, never, {"active": active(0, 1)})
    fragment = lived.cut()
    points = [leaf.tolist() for leaf in fragment.points.observations]
    assert points[0] == [[6, 5], [5, 7]]
    assert points[1] == [[[8, -8], [7, -9]], [[7, -9], [8, -6]]]
    assert points[2] == [[[0.5, 0.5], [0, 0]], [[0, 0], [0.5, 0.5]]]
    encoder = JointEncoder(space, 2, torch.Generator())
    assert encoder(fragment.points.observations).shape == (2, encoder.features)
