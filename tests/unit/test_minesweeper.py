"""Minesweeper: its rules played out by hand, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from arena import Ragged
from arena.errors import ConfigError
from arena.game.api import Step
from arena.testing import check_batched_env
from entity_games import BOARDS
from envs.minesweeper import Minesweeper

RIGHT, LEFT, UP, DOWN, DEFUSE = range(5)


def begun(*boards: Mapping[str, Any], **options: Any) -> tuple[Minesweeper, dict[str, Any]]:
    """A game of one lane per board of 3 x 3, and its first observation."""
    most = {name: max(len(one[name]) for one in boards) for name in ("mines", "robots")}
    env = Minesweeper(lanes=len(boards), **{"width": 3, "height": 3, **most, **options})
    env.reset(np.ones(env.lanes, np.bool_))
    for lane, one in enumerate(boards):
        for cells, there, name in ((env.mines, env.mine_there, "mines"), (env.robots, env.robot_there, "robots")):
            cells[lane, : len(one[name])], there[lane] = one[name], np.arange(most[name]) < len(one[name])
        env.orbital_cannon[lane], env.cooldown[lane] = one["orbital_cannon"], one["cooldown"]
    return env, env._frame().observations[0]


def played(env: Minesweeper, moves: list[list[int]], targets: list[list[int]] | None = None) -> Step:
    fire = Ragged.of([[]] * env.lanes if targets is None else targets, np.int64)
    return env.step([{"Move": Ragged.of(moves, np.int64), "Fire Orbital Cannon": fire}])


def board(mines: list[Any], robots: list[Any], cooldown: int | None = None) -> dict[str, Any]:
    return {"mines": mines, "robots": robots, "orbital_cannon": cooldown is not None, "cooldown": cooldown or 0}


def units(step: Step, lane: int = 0) -> tuple[list[Any], list[Any]]:
    """The cells of mines and robots."""
    shown = step.frame.observations[0]["units"]
    return shown["Mine"][lane].astype(int).tolist(), shown["Robot"][lane].astype(int).tolist()


def test_minesweeper_shows_the_worked_example_to_the_last_index() -> None:
    env, shown = begun(*BOARDS)
    assert shown["units"]["Mine"].tolist() == [[[*map(float, cell)] for cell in one["mines"]] for one in BOARDS]
    assert shown["units"]["Orbital Cannon"].tolist() == [[], [[0.0]], []]
    move, fire = shown["actions"]["Move"], shown["actions"]["Fire Orbital Cannon"]
    assert move["actors"].tolist() == [[5], [1], [3, 4]]
    assert move["mask"].tolist() == [[[1, 1, 1, 1, 1]], [[0, 1, 1, 0, 1]], [[1, 0, 1, 0, 1], [0, 1, 1, 0, 1]]]
    assert (fire["actors"].tolist(), fire["actees"].tolist()) == ([[], [2], []], [[], [0, 1], []])
    assert "globals" not in shown
    step = played(env, [[DEFUSE], [LEFT], [DEFUSE, UP]], [[], [0], []])
    assert units(step, 0) == ([[0, 0], [0, 2], [2, 2]], [[1, 1]])
    assert units(step, 1) == ([], [[1, 0]])
    assert units(step, 2) == ([[2, 2]], [[0, 0], [2, 1]])
    assert step.rewards[:, 0].tolist() == [0, 1, 0]
    assert step.terminated[:, 0].tolist() == [False, True, False]


def test_move_masks_match_the_effect_of_moves() -> None:
    for label, cell in ((RIGHT, [2, 1]), (LEFT, [0, 1]), (UP, [1, 2]), (DOWN, [1, 0])):
        env, _ = begun(board([(0, 0)], [(1, 1)]))
        assert units(played(env, [[label]]))[1] == [cell]
        edge, shown = begun(board([(1, 1)], [tuple(cell)]))  # on the edge this move is masked, and stays
        assert shown["actions"]["Move"]["mask"][0][0][label] == 0
        assert units(played(edge, [[label]]))[1] == [cell]


def test_robot_on_a_mine_vanishes_and_the_mine_stays() -> None:
    env, _ = begun(board([(1, 0), (2, 2)], [(0, 0), (0, 2)]))
    step = played(env, [[RIGHT, DOWN]])
    assert units(step) == ([[1, 0], [2, 2]], [[0, 1]])
    assert not step.terminated.any()
    step = played(env, [[RIGHT]])
    step = played(env, [[DOWN]])
    assert (step.terminated.tolist(), step.rewards.tolist()) == ([[True]], [[0.0]])  # no robot is left


def test_shot_robot_still_defuses_on_its_last_tick() -> None:
    env, shown = begun(board([(0, 1), (2, 2)], [(0, 0), (2, 0)], cooldown=0))
    assert shown["actions"]["Fire Orbital Cannon"]["actees"].tolist() == [[0, 1, 2, 3]]
    step = played(env, [[DEFUSE, UP]], [[2]])
    assert units(step) == ([[2, 2]], [[2, 1]])  # it has defused, and is gone


def test_cannon_counts_down_and_has_its_cooldown_after_a_shot() -> None:
    env, shown = begun(board([(2, 2), (0, 2)], [(0, 0)], cooldown=2), cooldown=3)
    cooldowns, actors = [], []
    for _ in range(6):
        fire = shown["actions"]["Fire Orbital Cannon"]
        cooldowns.append(shown["units"]["Orbital Cannon"].values[0, 0])
        actors.append(fire["actors"].total)
        shown = played(env, [[DEFUSE]], [[0]] if fire["actors"].total else None).frame.observations[0]
    assert cooldowns == [2, 1, 0, 3, 2, 1]
    assert actors == [0, 0, 1, 0, 0, 0]


def test_last_step_truncates_and_does_not_terminate() -> None:
    env, _ = begun(board([(2, 2)], [(0, 0)]), max_steps=2)
    assert not played(env, [[DEFUSE]]).truncated.any()
    step = played(env, [[DEFUSE]])
    assert (step.truncated.tolist(), step.terminated.tolist()) == ([[True]], [[False]])
    assert units(step) == ([[2, 2]], [[0, 0]])  # the last observation is there
    assert step.frame.observations[0]["actions"]["Move"]["actors"].total == 0


def test_start_draws_all_different_cells_evenly() -> None:
    env = Minesweeper(lanes=2000, width=3, height=2, mines=2, robots=1)
    frame = env.reset(np.ones(2000, np.bool_), list(range(2000)))
    shown = frame.observations[0]["units"]
    cells = np.concatenate([env.mines, env.robots], axis=1)
    assert all(len({tuple(cell) for cell in lane}) == 3 for lane in cells.tolist())
    assert shown["Mine"].total == 4000
    for place in range(3):
        counts = np.bincount(cells[:, place, 0] * 2 + cells[:, place, 1], minlength=6)
        assert np.square(counts - 2000 / 6).sum() / (2000 / 6) < 20.5  # chi-squared, 5 degrees of freedom, p 0.001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mines": 30, "robots": 7}, "mines: got 30 mines and 7 robots for 36 cells"),
        ({"width": 0}, "width: got 0"),
        ({"mines": 0}, "mines: got 0"),
        ({"cooldown": -1}, "cooldown: got -1"),
        ({"orbital_cannon": 1}, "orbital_cannon: got 1, expected true or false"),
        ({"max_steps": True}, "max_steps: got True"),
    ],
)
def test_minesweeper_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Minesweeper(lanes=1, **options)


@pytest.mark.slow
def test_minesweeper_keeps_the_contract() -> None:
    options = {"orbital_cannon": True, "cooldown": 1, "max_steps": 20}
    check_batched_env(Minesweeper(lanes=2, **options), ticks=70, again=Minesweeper(lanes=2, **options))
