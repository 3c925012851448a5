"""Digests of episodes: what they depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import crowd
from arena import Ragged
from arena.game.api import Frame, Interface, Step
from arena.game.spaces import leaves_of, stack
from arena.replay.digests import Digests
from arena.replay.format import Column

SEEN = spaces.Dict(near=spaces.Box(-1, 1, (3,), np.float32), far=spaces.Discrete(9))
GAME = Interface(("one", "two"), (SEEN, spaces.MultiBinary(5)), (spaces.Discrete(3),) * 2, (0, 3))
ACTIONS = [[Column(np.dtype(np.uint8), (), 0, np.dtype(np.int64))]] * 2
ALL_LANES = np.ones(4, np.bool_)
PINNED = [63882, 2206, 608]


def frame(rng: np.random.Generator, lanes: int = 4) -> Frame:
    near, far = rng.uniform(-1, 1, (lanes, 3)).astype(np.float32), rng.integers(0, 9, lanes)
    bits, mask = rng.integers(0, 2, (lanes, 5)).astype(np.int8), rng.integers(0, 2, (lanes, 3)).astype(np.int8)
    return Frame([{"near": near, "far": far}, bits], np.ones((lanes, 2), np.bool_), (None, mask))


def step(rng: np.random.Generator, lanes: int = 4) -> Step:
    no_ends = np.zeros((lanes, 2), np.bool_)
    return Step(frame(rng, lanes), rng.uniform(-1, 1, (lanes, 2)), no_ends, no_ends.copy())


def story(seed: int = 0, lanes: int = 4, ticks: int = 5) -> tuple[Frame, list[tuple[list[NDArray[Any]], Step]]]:
    rng = np.random.default_rng(seed)
    first = frame(rng, lanes)
    played = [([rng.integers(0, 3, lanes).astype(np.uint8) for _ in range(2)], step(rng, lanes)) for _ in range(ticks)]
    return first, played


def digests(told: tuple[Frame, list[tuple[list[NDArray[Any]], Step]]]) -> NDArray[np.uint16]:
    """Of an episode of all lanes: [1 + T, L]."""
    first, played = told
    lanes = len(first.active)
    made = Digests(GAME, lanes, actions=ACTIONS)
    return np.stack([made.begin(first, np.ones(lanes, np.bool_)), *(made.add(*tick) for tick in played)])


def test_digests_equal_those_of_existing_files() -> None:
    first = Frame(
        [{"near": np.zeros((1, 3), np.float32), "far": np.array([5])}, np.ones((1, 5), np.int8)],
        np.ones((1, 2), np.bool_),
        (None, np.ones((1, 3), np.int8)),
    )
    no_ends = np.zeros((1, 2), np.bool_)
    tick = ([np.array([1], np.uint8), np.array([2], np.uint8)], Step(first, np.array([[1.0, -1.0]]), no_ends, no_ends))
    assert digests((first, [tick, tick])).ravel().tolist() == PINNED


def near(said: Step) -> NDArray[Any]:
    array: NDArray[Any] = said.frame.observations[0]["near"]
    return array


def mask(said: Step) -> NDArray[Any]:
    array = said.frame.masks[1]
    assert array is not None
    return array


CHANGES = {
    "observation": lambda actions, said: near(said)[1].__setitem__(2, np.nextafter(near(said)[1, 2], np.float32(2))),
    "mask": lambda actions, said: mask(said)[1].__setitem__(0, 1 - mask(said)[1, 0]),
    "reward": lambda actions, said: said.rewards[1].__setitem__(1, np.nextafter(said.rewards[1, 1], 2)),
    "sign of a reward": lambda actions, said: said.rewards[1].__setitem__(0, -said.rewards[1, 0]),
    "end": lambda actions, said: said.truncated[1].__setitem__(0, True),
    "other end": lambda actions, said: said.terminated[1].__setitem__(0, True),
    "who is to act": lambda actions, said: said.frame.active[1].__setitem__(1, False),
    "action": lambda actions, said: actions[1].__setitem__(1, (actions[1][1] + 1) % 3),
    "actions exchanged": lambda actions, said: exchange(actions),
}


def exchange(actions: list[NDArray[Any]]) -> None:
    actions[0][1], actions[1][1] = 1, 2


@pytest.mark.parametrize("change", CHANGES)
def test_digests_differ_from_a_change_to_the_end_of_its_episode(change: str) -> None:
    before, after = story(), story()
    if change == "actions exchanged":
        before[1][2][0][0][1], before[1][2][0][1][1] = 2, 1
    CHANGES[change](*after[1][2])
    differs = digests(before) != digests(after)
    assert np.argwhere(differs).tolist() == [[3, 1], [4, 1], [5, 1]]


def test_digest_includes_the_first_observation_and_resets_per_episode() -> None:
    made = Digests(GAME, 4, actions=ACTIONS)
    first, played = story()
    begun = made.begin(first, ALL_LANES)
    made.add(*played[0])
    again = made.begin(first, np.array([True, False, False, True]))
    assert (again == begun).tolist() == [True, False, False, True]
    first.observations[0]["near"][0, 0] += 1
    assert (made.begin(first, ALL_LANES) == begun).tolist() == [False, True, True, True]


def test_digests_ignore_rows_that_neither_act_nor_have_ended() -> None:
    before, after = story(), story()
    for _, played in (before, after):
        played[2][1].frame.active[1, 0] = False
    near(after[1][2][1])[1] = 0.5
    assert digests(before).tolist() == digests(after).tolist()


# ------------------------------------------------------------------------------------------------ ragged leaves

UNITS = Interface(("one",), (crowd.SPACE,), (crowd.SPACE.action_space,), (0,))
RAGGED_ACTIONS = [[Column(np.dtype(np.uint8), (), 0, np.dtype(np.int64), ragged=True)] * len(crowd.SPACE.actions)]


def unit_digests(samples: list[list[Any]], actions: list[list[Ragged]]) -> NDArray[np.uint16]:
    """Of an episode of all lanes: [1 + T, L]; per tick and lane an observation, and per tick the actions' leaves."""
    lanes = len(samples[0])
    made = Digests(UNITS, lanes, actions=RAGGED_ACTIONS)
    frames = [Frame([stack(crowd.SPACE, row)], np.ones((lanes, 1), np.bool_), (None,)) for row in samples]
    no = np.zeros((lanes, 1), np.bool_)
    found = [made.begin(frames[0], np.ones(lanes, np.bool_))]
    found += [
        made.add(done, Step(shown, np.zeros((lanes, 1)), no, no))
        for done, shown in zip(actions, frames[1:], strict=True)
    ]
    return np.stack(found)


def unit_story(seed: int = 0, lanes: int = 3, ticks: int = 3) -> tuple[list[list[Any]], list[list[Ragged]]]:
    rng = np.random.default_rng(seed)
    samples = [[crowd.observation(rng, 6, mark=1.0, tick=0) for _ in range(lanes)] for _ in range(ticks + 1)]
    actions = []
    for row in samples[:-1]:
        drawn = crowd.SPACE.action_space.draw(stack(crowd.SPACE, row)["actions"], rng)
        actions.append([drawn[name].astype(np.uint8) for name in crowd.SPACE.actions])
    return samples, actions


def test_unit_digests_differ_from_a_change_on_in_its_lane() -> None:
    samples, actions = unit_story(3)
    whole = unit_digests(samples, actions)
    tried = 0
    for leaf in leaves_of(crowd.SPACE, ragged=True):
        holder: Any = samples[1][1]
        for key in leaf.path[:-1]:
            holder = holder[key]
        before = holder[leaf.path[-1]]
        others = [np.concatenate([before, np.zeros((1, *before.shape[1:]), before.dtype)])] if leaf.ragged else []
        if leaf.ragged and len(before):
            others.append(before[:-1])
        if len(before) > 1 and not np.array_equal(before, before[::-1]):
            others.append(before[::-1])
        if before.size:
            changed = before.copy()
            changed.flat[-1] += 1
            others.append(changed)
        for other in others:
            holder[leaf.path[-1]] = other
            same = unit_digests(samples, actions) == whole
            assert same[:, 0].all() and same[:, 2].all() and same[0, 1] and not same[1:, 1].any(), leaf.place
            tried += 1
        holder[leaf.path[-1]] = before
    assert tried > 20
    for number, rows in enumerate(actions[1]):
        for lane in range(3):
            if len(rows[lane]):
                values = rows.values.copy()
                values[rows.offsets[lane]] += 1
                other = [row[:] for row in actions]
                other[1][number] = Ragged(values, rows.lengths)
                same = unit_digests(samples, other) == whole
                assert same[:2].all() and not same[2:, lane].any() and np.delete(same, lane, 1).all()


def test_unit_digests_equal_those_of_existing_files() -> None:
    rows = stack(crowd.SPACE, [crowd.SPACE.complete(HERD)] * 2)
    made = Digests(UNITS, 2, actions=RAGGED_ACTIONS)
    shown = Frame([rows], np.ones((2, 1), np.bool_), (None,))
    no = np.zeros((2, 1), np.bool_)
    first = made.begin(shown, np.ones(2, np.bool_))
    done = [Ragged(np.array([2, 1, 2, 1], np.uint8), [2, 2]), *[Ragged.empty(2, np.uint8)] * 3]
    second = made.add(done, Step(shown, np.ones((2, 1)), no, no))
    assert [first.tolist(), second.tolist()] == PINNED_OF_UNITS


HERD = {
    "globals": [1],
    "units": {"Zebra": [[1, 2], [3, 4]], "Wolf": [[5]]},
    "actions": {"walk": {"actors": [1, 0]}, "call": {"actors": [0], "actees": [1, 0], "mask": [1, 0]}},
}
PINNED_OF_UNITS = [[23098, 23098], [752, 752]]
