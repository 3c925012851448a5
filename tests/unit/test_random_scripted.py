"""Policies that do not learn: every action is one of the space, masks are obeyed, mistakes are explained."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from arena.errors import BudgetReached, ConfigError
from arena.game.api import BatchedEnv
from envs.matrix import Matrix
from envs.touchdown import Touchdown
from fakes import ScriptedEnv, all_equal, solo_group
from policies import scripts
from policies.random import Random
from policies.scripted import Scripted

SEEN = spaces.Box(-1, 1, (2,), np.float32)
SPACES = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3]], start=[[4, 0]]),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-0.5, 0.5, (2, 1), np.float32),
    spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (2,), np.uint8),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (1,))])),
]


class Players(ParallelEnv[str, Any, Any]):
    """A parallel game from which b leaves after two ticks and a after four; the budget is `ticks`."""

    metadata: dict[str, Any] = {"name": "players"}

    def __init__(self, space: spaces.Space[Any], *, ticks: int = 20, mask: Any = None) -> None:
        self.possible_agents, self.space, self.budget, self.mask = ["a", "b"], space, ticks, mask
        self.action_spaces = dict.fromkeys(self.possible_agents, space)
        self.played: list[dict[str, Any]] = []
        self.resets = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.tick, self.resets = ["a", "b"], 0, self.resets + 1
        return self._seen(self.agents)

    def step(self, actions: dict[str, Any]) -> Any:
        if len(self.played) >= self.budget:
            raise BudgetReached
        assert list(actions) == self.agents
        self.played.append(actions)
        self.tick += 1
        acted = self.agents
        self.agents = [agent for agent in acted if self.tick < (4 if agent == "a" else 2)]
        flags = {agent: agent not in self.agents for agent in acted}
        observations, infos = self._seen(acted)
        return observations, dict.fromkeys(acted, 0.0), flags, dict.fromkeys(acted, False), infos

    def _seen(self, agents: list[str]) -> Any:
        info = {} if self.mask is None else {"action_mask": self.mask}
        return {agent: np.zeros(2, np.float32) for agent in agents}, {agent: dict(info) for agent in agents}

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]


def played(kind: type, env: Any, *, seed: int = 0, **options: Any) -> Any:
    """The environment after a whole run."""
    with pytest.raises(BudgetReached):
        kind(env, solo_group(seed=seed), ticks=20, **options).run()
    return env


# ------------------------------------------------------------------------------------------------------------- random


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_random_plays_actions_of_its_space_and_seed(space: Any) -> None:
    envs = [played(Random, ScriptedEnv(SEEN, space, ticks=20), seed=seed) for seed in (0, 0, 1)]
    one, same, other = (env.actions for env in envs)
    assert all(envs[0].action_space.contains(actions) for actions in one)
    assert all_equal(one, same)
    assert not all_equal(one, other)


@pytest.mark.parametrize("space", [spaces.Discrete(4, start=3), spaces.MultiDiscrete([4, 4], start=[3, 3])], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_random_is_uniform_over_allowed_actions(space: Any, masked: bool) -> None:
    length = 4 if isinstance(space, spaces.Discrete) else 8
    masks = np.tile(np.array([1, 0, 1, 1], np.int8), (500, length // 4))
    env = ScriptedEnv(SEEN, space, rows=500, ticks=40, masks=(lambda tick: masks) if masked else None)
    counts = Counter(np.stack(played(Random, env).actions).ravel().tolist())
    allowed = [3, 5, 6] if masked else [3, 4, 5, 6]
    assert sorted(counts) == allowed
    share = counts.total() / len(allowed)
    assert all(abs(count - share) < 5 * share**0.5 for count in counts.values())


@pytest.mark.parametrize("space", SPACES[-3:], ids=str)
def test_random_plays_all_agents_of_a_parallel_game(space: Any) -> None:
    env = played(Random, Players(space))
    assert all(space.contains(action) for actions in env.played for action in actions.values())
    assert (len(env.played), env.resets) == (20, 6)


def test_random_obeys_masks_in_a_parallel_game() -> None:
    one = played(Random, Players(spaces.Discrete(3), mask=np.array([0, 1, 0]))).played
    assert {action for actions in one for action in actions.values()} == {1}
    two = played(Random, Players(spaces.MultiDiscrete([2, 2]), mask=np.array([0, 1, 1, 0]))).played
    assert {tuple(action) for actions in two for action in actions.values()} == {(1, 0)}


# ----------------------------------------------------------------------------------------------------------- scripted


@pytest.mark.parametrize(
    ("space", "written"),
    [
        (spaces.Discrete(3, start=1), 3),
        (spaces.MultiDiscrete([2, 3]), [1, 2]),
        (spaces.MultiBinary(2), [1, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, 1]),
        (SPACES[-1], {"a": 1, "b": [[0, 1], [0.25]]}),
    ],
    ids=str,
)
def test_a_constant_is_played_in_the_types_of_its_space(space: Any, written: Any) -> None:
    env = played(Scripted, ScriptedEnv(SEEN, space, rows=3, ticks=4), action=written)
    assert all(env.action_space.contains(actions) for actions in env.actions)
    assert all_equal(env.actions[0], env.actions[3])
    parallel = played(Scripted, Players(space), action=written)
    assert all(space.contains(action) for actions in parallel.played for action in actions.values())


@pytest.mark.parametrize(
    ("space", "written"),
    [
        (spaces.Discrete(3), "left"),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, 2.0]),
        (SPACES[-1], {"a": 1, "b": [[0, 1]]}),
    ],
    ids=str,
)
def test_invalid_action_is_refused(space: Any, written: Any) -> None:
    with pytest.raises(ConfigError, match=r"options\.action: got .* which is no action of"):
        Scripted(ScriptedEnv(SEEN, space), solo_group(), ticks=1, action=written)


def lean(observations: Any, infos: Any, *, threshold: float = 0.0) -> Any:
    """A function as a user would write one."""
    return (observations[:, 0] > threshold).astype(np.int64)


HERE = f"{__name__}:"


def test_a_function_decides_with_its_arguments_bound() -> None:
    env = ScriptedEnv(SEEN, spaces.Discrete(2), rows=5)
    observations, infos = env.reset()
    act = Scripted(env, solo_group(), ticks=1, function=HERE + "lean", arguments={"threshold": 0.3}).actor()
    assert act(observations, infos).tolist() == [int(row[0] > 0.3) for row in observations]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either `action` or `function`, got neither"),
        ({"action": 1, "function": HERE + "lean"}, "got both"),
        ({"action": 1, "arguments": {"x": 1}}, "`arguments` are for a `function`"),
        ({"function": "nowhere_at_all:f"}, r"options\.function: .*no module 'nowhere_at_all'"),
        ({"function": HERE + "leen"}, "did you mean 'lean'"),
        ({"function": HERE + "HERE"}, "is a str, expected a function"),
        ({"function": HERE + "lean", "arguments": {"treshold": 1}}, "unexpected keyword argument 'treshold'"),
    ],
)
def test_incomplete_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scripted(ScriptedEnv(SEEN, spaces.Discrete(2)), solo_group(), ticks=1, **options)


# ------------------------------------------------------------------------------------- scripts for the built-in games


def seats(game: BatchedEnv, *groups: list[int]) -> list[Any]:
    """What a script needs of an environment proxy, for each group of entities."""
    return [
        SimpleNamespace(
            num_envs=game.lanes * len(group),
            single_action_space=game.interface.action_spaces[group[0]],
            seat_entities=tuple(game.interface.entities[e] for e in group),
        )
        for group in groups
    ]


def lane_major(observations: Any, group: list[int]) -> Any:
    """Rows [L * E, ...] of some entities."""
    stacked = np.stack([observations[e] for e in group], axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def match(game: BatchedEnv, teams: list[tuple[list[int], Any]], *, ticks: int) -> tuple[Any, Any]:
    """Sums of rewards and terminations [L, E] of one episode per lane; a team is (entities, function, keywords)."""
    frame = game.reset(np.ones(game.lanes, bool), list(range(game.lanes)))
    totals, ended = 0.0, False
    for _ in range(ticks):
        actions: list[Any] = [None] * len(game.interface.entities)
        for group, function in teams:
            chosen = function(lane_major(frame.observations, group))
            for column, entity in enumerate(group):
                actions[entity] = chosen.reshape(game.lanes, len(group), *chosen.shape[1:])[:, column]
        frame, rewards, terminated, _ = game.step(actions)
        totals, ended = totals + rewards, ended | terminated
    return totals, ended


def started(game: Touchdown, blue_x: float, red_x: float) -> Touchdown:
    """The game, whose episodes begin with each team in one place."""
    reset = game.reset

    def placed(*given: Any) -> Any:
        reset(*given)
        blue, red = np.split(np.arange(2 * game.team_size), 2)
        game.positions[:, blue, 0], game.positions[:, red, 0] = blue_x, red_x
        return game._frame()

    game.reset = placed  # type: ignore[method-assign]
    return game


def moving(script: Any, seat: Any) -> Any:
    return lambda observations: script(observations, {}, env=seat)


def staying(seat: Any) -> Any:
    still = np.zeros((seat.num_envs, *seat.single_action_space.shape), seat.single_action_space.dtype)
    return lambda observations: still


@pytest.mark.parametrize("options", [{}, {"blue_actions": "continuous"}, {"red_actions": "continuous"}], ids=str)
@pytest.mark.parametrize("runners", [[0, 1], [2, 3]], ids=["blue", "red"])
def test_runners_cross_an_empty_field_in_18_ticks(runners: list[int], options: Any) -> None:
    game = started(Touchdown(lanes=3, team_size=2, **options), -0.5, 0.5)
    others = [e for e in range(4) if e not in runners]
    seat, idle = seats(game, runners, others)
    rewards, ended = match(game, [(runners, moving(scripts.run, seat)), (others, staying(idle))], ticks=18)
    assert ended.all()
    assert (rewards[:, runners] == 1).all()
    assert (rewards[:, others] == -1).all()


@pytest.mark.parametrize("x", [-1.0, -0.3, 0.0, 0.95])
@pytest.mark.parametrize("attacker", [0, 1], ids=["blue", "red"])
def test_dodgers_pass_an_opponent_and_runners_do_not(attacker: int, x: float) -> None:
    for script, wins in ((scripts.dodge, 1), (scripts.run, 0)):
        game = started(Touchdown(lanes=2), x, x)
        seat, idle = seats(game, [attacker], [1 - attacker])
        rewards, _ = match(game, [([attacker], moving(script, seat)), ([1 - attacker], staying(idle))], ticks=40)
        assert (rewards[:, attacker] == wins).all()


def test_always_rock_loses_to_beat_last() -> None:
    game = Matrix(lanes=2, game="rock_paper_scissors")
    (rock, _) = seats(game, [0], [1])

    def always(observations: Any) -> Any:
        return scripts.always(observations, {}, env=rock, action=0)

    def beat(observations: Any) -> Any:
        return scripts.beat_last(observations, {})

    rewards, _ = match(game, [([0], always), ([1], beat)], ticks=10)
    assert (rewards[:, 1] == 10).all()
    scissors = match(game, [([0], lambda seen: always(seen) + 2), ([1], beat)], ticks=10)[0]
    assert (scissors[:, 1] == 8).all()  # paper on the first tick loses to scissors


@pytest.mark.parametrize(
    ("space", "actions", "masks", "expected"),
    [
        (spaces.Discrete(4, start=3), [3, 6], None, [1 / 4, 1 / 4]),
        (spaces.Discrete(4, start=3), [3, 6], [[1, 1, 0, 0], [1, 1, 1, 0]], [1 / 2, 0]),
        (spaces.MultiDiscrete([2, 3]), [[0, 2], [1, 0]], None, [1 / 6, 1 / 6]),
        (spaces.MultiDiscrete([2, 3], start=[1, 1]), [[1, 3], [2, 1]], [[1, 0, 1, 0, 1], [1, 1, 0, 1, 1]], [1 / 2, 0]),
        (spaces.MultiBinary((2, 2)), np.zeros((2, 2, 2)), None, [1 / 16, 1 / 16]),
    ],
)
def test_random_action_has_probability_1_over_the_allowed_count(
    space: Any, actions: Any, masks: Any, expected: Any
) -> None:
    allowed = None if masks is None else np.array(masks, np.int8)
    worker = Random(ScriptedEnv(spaces.Discrete(2), space), solo_group(), ticks=1)
    assert np.exp(worker.log_prob(None, np.array(actions), allowed)) == pytest.approx(expected)


def test_log_prob_of_random_numbers_is_refused() -> None:
    worker = Random(ScriptedEnv(spaces.Discrete(2), spaces.Box(0, 1)), solo_group(), ticks=1)
    with pytest.raises(ConfigError, match="where they are choices"):
        worker.log_prob(None, np.zeros((1, 1)), None)
