"""Games with dictionaries of agents: observations, actions and rewards, and refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv
from arena.game.spaces import row
from arena.testing import check_batched_env
from dict_games import GuessTheNumber, Relay, RockPaperScissors, Scripted, TicTacToe, seen
from envs.adapters import adapt

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from peer_rllib_games import own_loop, through_dictionaries

ONE = np.ones(1, np.bool_)
GOES_ON = {"__all__": False}
GAMES: dict[str, Callable[[], Any]] = {
    "rock_paper_scissors": RockPaperScissors,
    "tic_tac_toe": TicTacToe,
    "guess_the_number": GuessTheNumber,
}


def played(*script: Any, agents: Any = ("a", "b", "c")) -> tuple[Scripted, BatchedEnv]:
    game = Scripted(script, agents)
    return game, adapt(lambda: game, {}, 1)


def acted(*numbers: int) -> list[Any]:
    return [np.array([number]) for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_dict_env_rewards_equal_the_games_own_loop(name: str) -> None:
    known = own_loop(GAMES[name](), 100)
    assert through_dictionaries(GAMES[name], 100) == known
    assert len({tuple(returns.values()) for returns in known}) > 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [TicTacToe, Relay])
def test_dict_env_is_a_batched_env(make: Callable[[], Any]) -> None:
    check_batched_env(adapt(make, {}, 3), again=adapt(make, {}, 3))


def test_agents_join_late_wait_and_leave() -> None:
    game, env = played(
        seen(a=1),
        (seen(b=2), {"a": 1}, {"__all__": False}, {}, {}),
        (seen(b=3, c=4), {"a": 2, "b": 3}, {"a": True, "__all__": False}, {}, {}),
        (seen(c=5), {}, {"__all__": False}, {"b": True}, {"c": {"note": 1}}),
        (seen(c=6), {"c": 4}, {"__all__": True}, {}, {}),
    )
    assert env.interface.entities == ("a", "b", "c")
    frame = env.reset(ONE)
    assert frame.active.tolist() == [[True, False, False]]
    assert [column.tolist() for column in frame.observations] == [[[1]], [[0]], [[0]]]
    first = env.step(acted(1, 2, 0))
    assert (first.frame.active.tolist(), first.rewards.tolist()) == ([[False, True, False]], [[1, 0, 0]])
    second = env.step(acted(1, 2, 0))
    assert (second.frame.active.tolist(), second.rewards.tolist()) == ([[False, True, True]], [[2, 3, 0]])
    assert second.terminated.tolist() == [[True, False, False]]
    third = env.step(acted(1, 2, 0))
    assert (third.truncated.tolist(), third.frame.active.tolist()) == ([[False, True, False]], [[False, False, True]])
    assert third.frame.infos is not None and third.frame.infos[0][2] == {"note": 1}
    assert third.frame.observations[1].tolist() == [[3]], "its last observation is repeated"
    last = env.step(acted(1, 2, 0))
    assert (last.terminated.tolist(), last.truncated.tolist()) == ([[False, False, True]], [[False] * 3])
    assert game.got == [{"a": 1}, {"b": 2}, {"b": 2, "c": 0}, {"c": 0}]


def test_end_of_all_ends_absent_agents_too() -> None:
    _, env = played(seen(a=1), (seen(a=2), {"b": 5}, {"__all__": False}, {"__all__": True}, {}))
    env.reset(ONE)
    step = env.step(acted(0, 0, 0))
    assert (step.truncated.tolist(), step.terminated.any()) == ([[True, True, True]], False)
    assert step.rewards.tolist() == [[0, 5, 0]], "the reward while it is absent"


def test_seed_and_options_are_given_to_a_reset_that_takes_them() -> None:
    class Told(Scripted):
        def reset(self, *, seed: Any = None) -> Any:  # type: ignore[override]
            told.append(seed)
            return self.script[0], {"a": {"seed": seed}}

    told: list[Any] = []
    env = adapt(lambda: Told([seen(a=1)]), {}, 1)
    frame = env.reset(ONE, [5], {"option": 1})
    assert told[-1] == 5 and frame.infos is not None and frame.infos[0][0] == {"seed": 5}


def test_mask_inside_an_observation_is_an_action_mask() -> None:
    class Masked(Scripted):
        def __init__(self) -> None:
            super().__init__([{"a": {"observations": np.float32([2]), "action_mask": np.int8([1, 0, 1])}}], ["a"])
            inner = self.observation_spaces["a"]
            self.observation_spaces = {"a": spaces.Dict(observations=inner, action_mask=spaces.MultiBinary(3))}  # type: ignore[dict-item]

    env = adapt(Masked, {}, 1)
    frame = env.reset(ONE)
    assert env.interface.mask_sizes == (3,)
    assert (row(env.interface.observation_spaces[0], frame.observations[0], 0), frame.masks[0].tolist()) == (
        2,
        [[1, 0, 1]],
    )  # type: ignore[union-attr]


def test_one_space_for_all_agents_is_accepted() -> None:
    class Older(Scripted):
        def __init__(self) -> None:
            super().__init__([{1: np.zeros(1, np.float32)}], ["a"])
            del self.possible_agents
            self._agent_ids = {2, 1}
            self.observation_space, self.observation_spaces = self.observation_spaces["a"], None  # type: ignore[assignment]
            self.action_spaces = {1: spaces.Discrete(2), 2: spaces.Discrete(4)}  # type: ignore[dict-item]

    base = type("MultiAgentEnv", (Older,), {"__module__": "ray.rllib.env.multi_agent_env"})
    interface = adapt(base, {}, 1).interface
    assert interface.entities == ("1", "2")
    assert [space.n for space in interface.action_spaces] == [2, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([[1]], "a list as observations; expected a mapping by agent"),
        ([seen(a=1), (seen(a=1), {}, True, False, {})], "a bool as terminateds; expected a mapping by agent"),
        ([seen(z=1)], "observations of the unknown agent 'z'; agents are a, b, c"),
        ([seen(a=1), (seen(a=1), {"z": 1}, GOES_ON, {}, {})], "rewards of the unknown agent 'z'"),
        ([seen(a=1), (seen(a=1), {}, {"z": True, **GOES_ON}, {}, {})], "terminateds of the unknown agent 'z'"),
        ([seen(a=1), (seen(a=1), {}, {"a": True}, {}, {})], "no flag '__all__'"),
        ([seen(a=1), ({"a": np.zeros(2, np.float32)}, {}, GOES_ON, {}, {})], "its space"),
        (
            [seen(a=1, b=1), (seen(b=1), {}, {"a": True, **GOES_ON}, {}), (seen(a=2), {}, GOES_ON, {})],
            "'a' again, which has ended before: an entity lives once per episode",
        ),
        (
            [seen(a=1, b=1), (seen(b=1), {}, {"a": True, **GOES_ON}, {}), (seen(b=2), {"a": 3}, GOES_ON, {})],
            "the reward 3 for 'a', which has ended before",
        ),
    ],
)
def test_wrong_dictionaries_are_refused(script: list[Any], words: str) -> None:
    with pytest.raises(GameError, match=words):
        _, env = played(*script)
        env.reset(ONE)
        for _ in script[1:]:
            env.step(acted(0, 0, 0))


@pytest.mark.parametrize(
    ("given", "words"),
    [((seen(a=1), {}, GOES_ON), r"3 values; a game of dictionaries gives obs, rewards"), (seen(a=1), "one dict")],
)
def test_old_step_of_a_dictionary_game_is_a_configuration_error(given: Any, words: str) -> None:
    _, env = played(seen(a=1), given)
    env.reset(ONE)
    with pytest.raises(ConfigError, match=rf"step\(\) of Scripted gave {words}"):
        env.step(acted(0, 0, 0))


def test_agents_without_names_or_spaces_are_refused() -> None:
    class Empty(Scripted):
        def __init__(self) -> None:
            super().__init__([{}], [])

    class Without(Scripted):
        def __init__(self) -> None:
            super().__init__([{}])
            del self.action_spaces["b"]

    with pytest.raises(ConfigError, match="Empty has no agents"):
        adapt(Empty, {}, 1)
    with pytest.raises(ConfigError, match="the agent 'b' has no action space in `action_spaces`"):
        adapt(Without, {}, 1)
    with pytest.raises(ConfigError, match="agents with equal names: 1, '1'"):
        adapt(lambda: Scripted([{}], [1, "1"]), {}, 1)
