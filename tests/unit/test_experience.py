"""NStepBuilder: n-step transitions by hand, and of random games in turns against a slow reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.game.infos import StepFields
from policies.common.nstep import NStepBatch, NStepBuilder, RowLayout

NUMBER = spaces.Box(-1000, 1000, (1,), np.float64)


class Transition(NamedTuple):
    """A transition with its observations in place of their indices."""

    observation: float
    action: int
    reward: float
    discount: float
    following: float  # the observation itself where nothing follows


def experience(rows: int, *, n_step: int = 1, gamma: float = 0.5, mask_size: int = 0) -> NStepBuilder:
    return NStepBuilder(RowLayout(NUMBER, (), torch.int64, mask_size), rows=rows, n_step=n_step, gamma=gamma)


def transitions(fragment: NStepBatch) -> list[Transition]:
    """The transitions of a fragment that begins with the first observation."""
    assert fragment.first == 0
    seen = fragment.points.observations[0].squeeze(1)
    columns = seen[fragment.starts], *fragment[3:6], seen[fragment.followings]
    return [Transition(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def final(*values: float | None) -> dict[str, Any]:
    """Infos in which some rows have ended."""
    observations = np.full(len(values), None, object)
    for row, value in enumerate(values):
        observations[row] = None if value is None else np.array([value])
    return {"final_obs": observations}


def outside(void: bool) -> StepFields:
    """Fields of a tick of an external game in one row."""
    return StepFields(void=np.array([void]))


def column(*values: float) -> Any:
    return np.array(values, np.float64)[:, None]


def tick(
    lived: NStepBuilder,
    actions: list[int],
    seen: Any,
    rewards: list[float],
    ends: str,
    infos: dict[str, Any] | StepFields,
) -> None:
    """One tick; `ends` has a letter per row: t terminated, c cut, b both, - neither."""
    terminated = np.array([letter in "tb" for letter in ends])
    truncated = np.array([letter in "cb" for letter in ends])
    lived.add(np.array(actions), seen, np.array(rewards), terminated, truncated, infos)


@pytest.mark.parametrize("n_step", [1, 3])
def test_void_transition_is_not_learned_from(n_step: int) -> None:
    """The second action is void: the first transition ends at the observation at which it was chosen."""
    lived, none, void = experience(1, n_step=n_step), outside(False), outside(True)
    lived.begin(column(0), none)
    tick(lived, [10], column(1), [1], "-", none)
    tick(lived, [11], column(2), [2], "-", void)
    tick(lived, [12], column(50), [4], "t", none._replace(final_obs=final(9)["final_obs"]))
    assert sorted(transitions(lived.cut())) == [(0, 10, 1, 0.5, 1), (2, 12, 4, 0, 2)]


def test_void_end_of_an_episode_bootstraps_the_transitions_before_it() -> None:
    lived, none, void = experience(1, n_step=2), outside(False), outside(True)
    lived.begin(column(0), none)
    tick(lived, [10], column(1), [1], "-", none)
    tick(lived, [11], column(2), [2], "-", none)
    tick(lived, [12], column(50), [64], "t", void._replace(final_obs=final(9)["final_obs"]))
    assert sorted(transitions(lived.cut())) == [(0, 10, 2, 0.25, 2), (1, 11, 2, 0.5, 2)]


def test_final_mask_of_the_game_is_used() -> None:
    lived = experience(1, mask_size=2)
    mask = {"action_mask": np.array([[1, 1]], np.int8)}
    lived.begin(column(0), mask)
    tick(lived, [0], column(2), [0], "c", {**mask, **final(9), "final_info": {"action_mask": np.array([[0, 1]])}})
    masks = lived.cut().points.masks
    assert masks is not None
    assert masks.tolist() == [[True, True], [False, True], [True, True]]


# --------------------------------------------------------------------------------------- random games, a slow record


class Life:
    """The moments of one row, from which its transitions are computed afterwards."""

    def __init__(self) -> None:
        self.moves: list[tuple[float, int]] = []  # since the episode began
        self.paid: list[float] = []  # per move, until the next
        self.known: list[Transition] = []

    def moves_at(self, observation: float, n_step: int, gamma: float) -> None:
        if len(self.moves) >= n_step:
            self._know(len(self.moves) - n_step, gamma, observation)

    def ends(self, n_step: int, gamma: float, observation: float | None) -> None:
        for index in range(max(0, len(self.moves) - n_step), len(self.moves)):
            self._know(index, gamma, observation)
        self.moves, self.paid = [], []

    def _know(self, index: int, gamma: float, observation: float | None) -> None:
        (seen, action), rewards = self.moves[index], self.paid[index:]
        total = sum(gamma**power * reward for power, reward in enumerate(rewards))
        over = observation is None
        discount = 0.0 if over else gamma ** len(rewards)
        self.known.append(Transition(seen, action, total, discount, seen if observation is None else observation))


def play(seed: int, rows: int, n_step: int, ticks: int = 40) -> tuple[NStepBuilder, list[Transition]]:
    """A random game; its experience, and the expected transitions."""
    rng, gamma = np.random.default_rng(seed), 0.5
    lived, lives = experience(rows, n_step=n_step, gamma=gamma), [Life() for _ in range(rows)]
    observations, active = column(*range(rows)), rng.random(rows) < 0.7
    lived.begin(observations, {"active": active})
    for number in range(1, ticks):
        actions, rewards = rng.integers(100, size=rows), rng.integers(-4, 4, size=rows).astype(np.float64)
        terminated, truncated = rng.random(rows) < 0.1, rng.random(rows) < 0.1
        seen, last, next_active = (
            column(*range(10 * number, 10 * number + rows)),
            500.0 + number,
            rng.random(rows) < 0.7,
        )
        for row, life in enumerate(lives):
            if active[row]:
                life.moves.append((float(observations[row, 0]), int(actions[row])))
                life.paid.append(0.0)
            if life.paid:
                life.paid[-1] += rewards[row]
            if terminated[row] or truncated[row]:
                life.ends(n_step, gamma, None if terminated[row] else last)
            if next_active[row]:
                life.moves_at(float(seen[row, 0]), n_step, gamma)
        infos = {"active": next_active, **final(*[last] * rows)}
        lived.add(actions, seen, rewards, terminated, truncated, infos)
        observations, active = seen, next_active
    return lived, [transition for life in lives for transition in life.known]


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 4), n_step=st.integers(1, 4))
def test_transitions_equal_a_slow_reference(seed: int, rows: int, n_step: int) -> None:
    lived, expected = play(seed, rows, n_step)
    assert sorted(transitions(lived.cut())) == sorted(expected)


def test_fragments_cut_at_any_tick_are_one_when_joined() -> None:
    whole, parts = experience(2, n_step=3), experience(2, n_step=3)
    cuts = []
    for lived in (whole, parts):
        rng = np.random.default_rng(0)
        lived.begin(column(0, 1), {})
        for number in range(20):
            cut = rng.random(2) < 0.2
            seen = column(*rng.random(2))
            lived.add(rng.integers(9, size=2), seen, rng.random(2), cut & False, cut, final(7, 8))
            if lived is parts and number % 3 == 0:
                cuts.append(lived.cut())
    cuts.append(parts.cut())
    joined = whole.cut()
    assert [cut.first for cut in cuts] == np.cumsum([0, *(cut.points.size for cut in cuts[:-1])]).tolist()
    assert torch.equal(torch.cat([cut.points.observations[0] for cut in cuts]), joined.points.observations[0])
    for index in range(2, 7):
        assert torch.equal(torch.cat([cut[index] for cut in cuts]), joined[index])
