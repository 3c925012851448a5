"""The small tasks with units: what they show, and that knowing the answer reaches the best return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arena.entity_env import ListEnv, VecObs
from arena.errors import ConfigError
from arena.testing import check_entity_env
from envs.unit_tasks import TASKS, unit_task

EPISODES = 50


def returns(task: str, act: Callable[[VecObs], Any], **kwargs: Any) -> list[float]:
    """The returns of many episodes of an environment that is played by a function."""
    env = ListEnv(lambda: unit_task(task, **kwargs), 1)
    (action,) = [name for name in env.action_space() if name != "unused"]
    vec_obs = env.reset(seed=4)
    found: list[float] = []
    while len(found) < EPISODES:
        vec_obs = env.act({action: [[act(vec_obs)]]})
        found += [stats.total_reward for stats in vec_obs.end_of_episode_info.values()]
    return found


def units(vec_obs: VecObs, kind: str) -> Any:
    return vec_obs.features[kind][0]


def lava_answer(vec_obs: VecObs) -> int:
    steps = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
    return steps.index(tuple((units(vec_obs, "HighGround")[0] - units(vec_obs, "Player")[0]).astype(int).tolist()))


def matching_answer(vec_obs: VecObs) -> int:
    """The first ball left of the color that is the commonest among all balls."""
    balls = units(vec_obs, "Ball")
    best = balls[:, :6].sum(axis=0).argmax()
    left = [ball[best] for ball in balls if not ball[6]]
    return int(np.argmax(left))


ANSWERS: dict[str, Callable[[VecObs], int]] = {
    "armed_bandit": lambda _: 0,
    "cherry_pick": lambda vec_obs: int(units(vec_obs, "Cherry")[:, 0].argmax()),
    "count": lambda vec_obs: len(units(vec_obs, "Bean")),
    "floor_is_lava": lava_answer,
    "matching_balls": matching_answer,
    "not_hotdog": lambda vec_obs: int(len(units(vec_obs, "Hotdog")) or units(vec_obs, "Object")[0, 0]),
    "rock_paper_scissors": lambda vec_obs: int((units(vec_obs, "Opponent")[0].argmax() + 1) % 3),
    "xor": lambda vec_obs: int((units(vec_obs, "Input").sum() + vec_obs.features["__global__"].values.sum()) % 2),
}
BEST = {name: 2.0 if name == "rock_paper_scissors" else 1.0 for name in ANSWERS}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_right_answers_reach_the_best_return(task: str) -> None:
    assert returns(task, ANSWERS[task]) == pytest.approx([BEST[task]] * EPISODES, abs=1e-5)


def test_opponent_is_hidden_unless_it_is_a_cheat() -> None:
    for cheat in (False, True):
        vec_obs = ListEnv([unit_task("rock_paper_scissors", cheat=cheat)]).reset()
        assert vec_obs.visible["Opponent"].tolist() == [[[cheat]]]


def test_masks_of_count_allow_the_answer_and_exclude_the_rest() -> None:
    vec_obs = ListEnv(lambda: unit_task("count", masked_choices=4), 300).reset(seed=1)
    mask, beans = vec_obs.action_masks["count"].mask, vec_obs.features["Bean"].lengths
    assert mask is not None
    assert mask.values[np.arange(300), beans].all()
    assert not mask.values[:, 4:].any()
    assert sorted(set(beans.tolist())) == [0, 1, 2, 3]
    assert len({tuple(row) for row in mask.values.tolist()}) > 8


def test_hotdogs_without_features_are_half_of_the_hotdogs() -> None:
    vec_obs = ListEnv(lambda: unit_task("not_hotdog"), 400).reset(seed=1)
    assert vec_obs.features["Hotdog"].total == pytest.approx(100, abs=35)
    assert vec_obs.features["Object"].values.sum() == pytest.approx(100, abs=35)
    assert vec_obs.action_masks["unused"].actors.total == 0


def test_lava_surrounds_the_player_anywhere() -> None:
    vec_obs = ListEnv(lambda: unit_task("floor_is_lava"), 500).reset(seed=1)
    assert sorted(set(vec_obs.features["Lava"].lengths.tolist())) == list(range(8))
    assert np.abs(vec_obs.features["Player"].values).max() > 900
    around = vec_obs.features["Lava"]
    away = np.abs(around.values - vec_obs.features["Player"].values[around.rows()])
    assert away.max() == 1


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[] if task in ("count", "not_hotdog") else pytest.mark.long) for task in TASKS]
)
def test_unit_task_keeps_the_contract(task: str) -> None:
    check_entity_env(lambda: unit_task(task), ticks=60)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"task": "cont"}, "task: got 'cont'; did you mean 'count'?"),
        ({"task": "count", "masked": 3}, "the task 'count': got an unexpected keyword argument 'masked'"),
        ({"task": "count", "masked_choices": 11}, "masked_choices: got 11, expected at most 10"),
        ({"task": "cherry_pick", "cherries": 1}, "cherries: got 1"),
        ({"task": "rock_paper_scissors", "cheat": 1}, "cheat: got 1, expected true or false"),
        ({"task": "xor", "balls": 3}, "the task 'xor'"),
    ],
)
def test_unit_tasks_refuse_wrong_options(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        unit_task(**kwargs)
