"""Skirmish: its rules by hand, observations of each side, and a scripted policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena import Ragged
from arena.errors import ConfigError
from arena.testing import check_batched_env
from envs.skirmish import Skirmish
from policies.scripts import focus

STAY, RIGHT, LEFT, UP, DOWN = range(5)


def begun(blue: list[Any], red: list[Any], **options: Any) -> tuple[Skirmish, list[dict[str, Any]]]:
    """A game of one lane with these soldiers (x, y, health), and what both see."""
    size = max(len(blue), len(red))
    env = Skirmish(lanes=1, **{"width": 8, "height": 6, "team_size": size, **options})
    env.reset(np.ones(1, np.bool_))
    env.health[:] = 0
    for team, units in enumerate((blue, red)):
        env.places[team, 0, : len(units)] = [unit[:2] for unit in units]
        env.health[team, 0, : len(units)] = [unit[2] for unit in units]
    return env, list(env._frame().observations)


def choices(moves: list[int], targets: list[int]) -> dict[str, Ragged]:
    return {"Move": Ragged.of([moves], np.int64), "Attack": Ragged.of([targets], np.int64)}


def soldiers(seen: dict[str, Any], kind: str) -> list[list[int]]:
    return [[int(number) for number in unit] for unit in seen["units"][kind][0]]


def shown(seen: dict[str, Any], action: str) -> dict[str, Any]:
    return {part: ragged[0].tolist() for part, ragged in seen["actions"][action].items()}


def test_both_sides_see_the_same_game_turned() -> None:
    _, (blue, red) = begun([(0, 1, 3), (2, 2, 1)], [(7, 4, 3), (5, 3, 1)])
    assert soldiers(blue, "Own") == [[0, 1, 3], [2, 2, 1]]
    assert soldiers(blue, "Enemy") == [[7, 4, 3], [5, 3, 1]]
    assert (soldiers(red, "Own"), soldiers(red, "Enemy")) == (soldiers(blue, "Own"), soldiers(blue, "Enemy"))
    assert all(shown(blue, action) == shown(red, action) for action in ("Move", "Attack"))


def test_each_soldier_moves_or_attacks() -> None:
    _, (blue, _) = begun([(0, 0, 3), (3, 2, 3), (4, 3, 3)], [(5, 2, 1), (7, 5, 1), (4, 5, 2)])
    assert shown(blue, "Move") == {"actors": [0], "mask": [[1, 1, 0, 1, 0]]}
    # in reach of any of them: enemies 0 and 2, units 3 and 5; soldier 1 reaches only the first of them
    assert shown(blue, "Attack") == {"actors": [1, 2], "actees": [3, 5], "mask": [1, 0, 1, 1]}


def test_red_moves_toward_blue_with_the_label_of_blue() -> None:
    env, _ = begun([(0, 0, 3)], [(7, 5, 3)])
    step = env.step([choices([RIGHT], []), choices([UP], [])])
    assert env.places[:, 0].tolist() == [[[1, 0]], [[7, 4]]]
    assert [soldiers(seen, "Own") for seen in step.frame.observations] == [[[1, 0, 3]], [[0, 1, 3]]]
    env.step([choices([LEFT], []), choices([RIGHT], [])])
    env.step([choices([LEFT], []), choices([STAY], [])])  # masked at the edge: stays
    assert env.places[:, 0].tolist() == [[[0, 0]], [[6, 4]]]


def test_attacks_and_moves_count_at_once() -> None:
    env, (blue, _) = begun([(2, 2, 2), (0, 0, 1)], [(3, 2, 1), (4, 2, 3)])
    assert shown(blue, "Attack")["actees"] == [2, 3]
    step = env.step([choices([UP], [0]), choices([], [0, 0])])
    assert env.health[:, 0].tolist() == [[0, 1], [0, 3]]  # both the first soldiers are gone, each hit by the other
    assert soldiers(step.frame.observations[0], "Own") == [[0, 1, 1]]
    assert step.rewards.tolist() == [[pytest.approx(0.02 * (1 - 2)), pytest.approx(0.02)]]
    assert not step.terminated.any()


def test_attack_takes_no_more_than_the_remaining_health() -> None:
    env, _ = begun([(2, 2, 3), (3, 3, 3)], [(3, 2, 1), (7, 5, 1)], damage_reward=0.5)
    step = env.step([choices([], [0, 0]), choices([STAY], [0])])
    assert step.rewards.tolist() == [[0.0, 0.0]]  # one point each: red had only one left, though two attack it


@pytest.mark.parametrize(
    ("healths", "rewards", "outcomes"),
    [
        ((3, 1), [1.0, -1.0], ["win", "loss"]),
        ((1, 3), [-1.0, 1.0], ["loss", "win"]),
        ((1, 1), [0.0, 0.0], ["draw", "draw"]),
    ],
)
def test_side_without_soldiers_has_lost(healths: tuple[int, int], rewards: list[float], outcomes: list[str]) -> None:
    env, _ = begun([(2, 2, healths[0])], [(3, 2, healths[1])], damage_reward=0.0)
    step = env.step([choices([], [0]), choices([], [0])])
    assert step.rewards.tolist() == [rewards]
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([[True, True]], [[False, False]])
    assert step.frame.infos == [[{"outcome": word} for word in outcomes]]
    assert not step.frame.active.any()


def test_time_is_a_truncated_draw() -> None:
    env, _ = begun([(0, 0, 3)], [(7, 5, 3)], max_steps=1)
    step = env.step([choices([STAY], []), choices([STAY], [])])
    assert not step.terminated.any()
    assert step.truncated.all()
    assert step.frame.infos == [[{"outcome": "draw"}] * 2]


def test_soldiers_start_on_different_cells_of_their_own_columns() -> None:
    env = Skirmish(lanes=200, width=9, height=4, team_size=12)
    env.reset(np.ones(200, np.bool_), list(range(200)))
    blue, red = env.places
    assert (blue[..., 0].max(), red[..., 0].min()) == (2, 6)
    assert all(len({tuple(cell) for cell in lane}) == 12 for team in env.places for lane in team.tolist())
    assert not np.array_equal(blue[:, :, 1], red[:, :, 1])


def test_focus_attacks_the_weakest_in_reach_and_walks_to_the_nearest() -> None:
    _, (blue, _) = begun(
        [(3, 3, 3), (0, 0, 3), (4, 3, 3)], [(4, 4, 2), (5, 3, 1), (0, 5, 3)], width=9, reach=2, team_size=3
    )
    chosen = focus(blue, {})
    # soldier 0 reaches both 0 and 1; soldier 1 walks up to enemy 2, which is 5 away; soldier 2 reaches both
    assert shown(blue, "Attack")["actees"] == [3, 4]
    assert chosen["Attack"].tolist() == [[1, 1]]
    assert chosen["Move"].tolist() == [[UP]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reach": 0}, "reach: got 0"),
        ({"width": 5}, "width: got 5, expected a whole number of at least 6"),
        ({"team_size": 37}, "team_size: got 37, but the 3 columns of a team have 36 cells"),
        ({"damage_reward": -0.1}, "damage_reward: got -0.1, expected a number of at least 0"),
        ({"damage_reward": float("nan")}, "damage_reward: got nan"),
        ({"health": 1.5}, "health: got 1.5"),
    ],
)
def test_skirmish_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Skirmish(lanes=1, **options)


@pytest.mark.slow
def test_skirmish_keeps_the_contract() -> None:
    options = {"width": 6, "height": 3, "team_size": 2, "health": 1, "max_steps": 30}
    check_batched_env(Skirmish(lanes=2, **options), ticks=70, again=Skirmish(lanes=2, **options))
