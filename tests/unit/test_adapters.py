"""Adapted games against the same games without the arena, and the adapters' own guarantees."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple
from mpe2 import simple_spread_v3, simple_tag_v3

import readme
from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv
from arena.game.context import EnvContext
from arena.game.infos import warn_no_mask
from arena.game.spaces import flatten, row, stack
from arena.testing import check_batched_env
from envs.adapters import adapt, gymnasium_factory, pettingzoo_factory
from envs.touchdown import Touchdown
from games import Narrow

ONE = np.ones(1, bool)


def connect_four() -> Any:
    return pettingzoo_factory("classic.connect_four_v3")


def tictactoe() -> Any:
    return pettingzoo_factory("classic.tictactoe_v3")


def assert_same(space: Space[Any], batched: Any, lane: int, sample: Any) -> None:
    """The lane's row is the sample, part by part."""
    for mine, its in zip(flatten(space, row(space, batched, lane)), flatten(space, sample), strict=True):
        np.testing.assert_array_equal(mine, its)


class Sundry(gymnasium.Env[Any, Any]):
    """Every kind of space at once; the info holds its arguments."""

    observation_space = Dict(
        {
            "pair": Tuple((Box(-1, 1, (2, 3), np.float64), Discrete(4, start=-1))),
            "bits": MultiBinary(3),
            "many": MultiDiscrete([2, 5]),
        }
    )
    action_space = Dict({"push": Box(-1, 1, (2,), np.float32), "pick": Tuple((Discrete(3), MultiBinary(2)))})

    def __init__(self) -> None:
        self.observation_space = copy.deepcopy(self.observation_space)  # drawing does not affect other lanes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {"options": options} if options else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        draw = self.np_random.random()
        return self.observation_space.sample(), draw, draw < 0.2, draw < 0.1, {"given": action}


GYMNASIUM: dict[str, Callable[..., Any]] = {
    "CartPole": gymnasium_factory("CartPole-v1"),
    "Sundry": Sundry,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GYMNASIUM)
def test_gymnasium_game_equals_the_unadapted_game(name: str) -> None:
    make, lanes = GYMNASIUM[name], 3
    env, alone = adapt(make, {}, lanes), [make() for _ in range(lanes)]
    (observed,), (acted,) = env.interface.observation_spaces, env.interface.action_spaces
    acted.seed(0)
    frame = env.reset(np.ones(lanes, bool), list(range(lanes)))
    for lane, game in enumerate(alone):
        assert_same(observed, frame.observations[0], lane, game.reset(seed=lane)[0])
    for _ in range(150):
        samples = [acted.sample() for _ in alone]
        step = env.step([stack(acted, samples)])
        over = (step.terminated | step.truncated)[:, 0]
        for lane, game in enumerate(alone):
            observation, reward, terminated, truncated, _ = game.step(samples[lane])
            assert_same(observed, step.frame.observations[0], lane, observation)
            said = (step.rewards[lane, 0], step.terminated[lane, 0], step.truncated[lane, 0])
            assert said == (reward, terminated, truncated)
        if over.any():
            frame = env.reset(over)
        for lane in np.flatnonzero(over):
            assert_same(observed, frame.observations[0], lane, alone[lane].reset()[0])
    env.close()


def test_both_flags_may_be_true_and_infos_and_options_pass() -> None:
    env = adapt(Sundry, {}, 1)
    frame = env.reset(ONE, [0], {"level": 3})
    assert frame.infos is not None
    assert frame.infos[0][0] == {"options": {"level": 3}}
    assert env.reset(ONE, [0]).infos is None
    action = {"push": np.zeros((1, 2), np.float32), "pick": (np.array([2]), np.zeros((1, 2), np.int8))}
    flags = set()
    for _ in range(60):
        step = env.step([action])
        flags.add((bool(step.terminated[0, 0]), bool(step.truncated[0, 0])))
        if any((*step.terminated[0], *step.truncated[0])):
            assert step.frame.infos is not None
            assert step.frame.infos[0][0]["given"]["pick"][0] == 2
            env.reset(ONE)
    assert {(False, False), (True, False), (True, True)} <= flags


def test_taxi_has_its_masks_and_its_other_infos() -> None:
    env, alone = adapt(gymnasium_factory("Taxi-v4"), {}, 2), gymnasium.make("Taxi-v4")
    assert env.interface.mask_sizes == (6,)
    frame = env.reset(np.ones(2, bool), [3, 4])
    observation, info = alone.reset(seed=4)
    mask = frame.masks[0]
    assert mask is not None and frame.infos is not None
    assert mask.dtype == np.int8
    np.testing.assert_array_equal(mask[1], info["action_mask"])
    assert frame.infos[1][0] == {"prob": info["prob"]}
    assert frame.observations[0][1] == observation, "the reset that looks for masks changes no episode of a seed"


class Ticking(gymnasium.Env[Any, Any]):
    """Ends after two steps, and fails if it is stepped again."""

    observation_space, action_space = Box(0, 9, (1,), np.float32), Box(0, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > 2:
            raise RuntimeError("stepped after the end")
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 2, False, {}


@pytest.mark.parametrize("kind", ["gymnasium", "dictionaries"])
def test_methods_of_an_instance_are_its_own(kind: str) -> None:
    class Assigned(gymnasium.Env[Any, Any]):
        observation_space, action_space = Discrete(2), Discrete(2)

        def __init__(self) -> None:
            self.reset = lambda *, seed=None, options=None: (0, {})  # type: ignore[method-assign]
            self.step = lambda action: (0, 1.0, True, False, {})  # type: ignore[method-assign]

    class Around:
        observation_spaces, action_spaces = {"a": Discrete(2)}, {"a": Discrete(2)}
        unwrapped = object()  # a simulator, without spaces

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return {"a": 0}, {}

        def step(self, actions: Any) -> Any:
            return {"a": 0}, {"a": 1.0}, {"__all__": True}, {"__all__": False}, {}

    env = adapt(Assigned if kind == "gymnasium" else Around, {}, 1)
    env.reset(ONE)
    assert env.step([np.zeros(1, np.int64)]).rewards.tolist() == [[1.0]]


def test_ended_lane_is_not_stepped() -> None:
    env, action = adapt(Ticking, {}, 2), [np.zeros((2, 1), np.float32)]
    assert not env.step(action).frame.active.any()  # nor before its first reset
    env.reset(np.ones(2, bool))
    env.step(action)
    last = env.step(action)
    assert last.terminated.all()
    assert not last.frame.active.any()
    still = env.step(action)
    assert not any(column.any() for column in (still.rewards, still.terminated, still.truncated))
    assert env.reset(np.array([True, False])).active.tolist() == [[True], [False]]
    assert env.step(action).rewards.tolist() == [[1.0], [0.0]]


def test_observation_outside_its_space_is_named() -> None:
    class Wrong(Ticking):
        observation_space = Box(0, 9, (4,), np.float32)

    with pytest.raises(GameError, match=r"'agent_0' in lane 0 an observation float32 \(1,\)"):
        adapt(Wrong, {}, 1).reset(ONE)


class OfOldGym(Ticking):
    """A game with the interface before Gymnasium."""

    def step(self, action: Any) -> Any:
        observation, reward, over, _, info = super().step(action)
        return observation, reward, over, info


def test_old_interface_is_refused_with_the_expected_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, message in (
        (OfOldGym, r"step\(\) of OfOldGym gave 4 values; expected 5: observation, reward, term"),
        (
            lambda: gymnasium.wrappers.TimeLimit(OfOldGym(), 5),
            r"TimeLimit cannot read .*expected 5, got 4\); .* truncated by a time limit",
        ),
    ):
        env = adapt(make, {}, 1)
        env.reset(ONE)
        with pytest.raises(ConfigError, match=message):
            env.step([np.zeros((1, 1), np.float32)])
    monkeypatch.setattr(Ticking, "reset", lambda self, **_: np.zeros(1, np.float32))
    with pytest.raises(ConfigError, match=r"reset\(\) of Ticking gave one ndarray; expected 2: observation, info"):
        adapt(Ticking, {}, 1).reset(ONE)


def test_reset_without_seed_or_options_is_refused_by_name() -> None:
    class Unseeded(Ticking):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    class Holding(Ticking):
        def __init__(self) -> None:
            self.env = Unseeded()

    adapt(Holding, {}, 1)  # what a game holds is its own
    for make in (Unseeded, lambda: gymnasium.wrappers.TimeLimit(Unseeded(), 5)):
        with pytest.raises(
            ConfigError, match=r"reset\(\) of Unseeded takes no seed and no options; expected reset\(self"
        ):
            adapt(make, {}, 1)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Text(5), "is a Text, .* instead of Text give the text as numbers"),
        (Graph(Box(0, 1, (2,)), None), "is a Graph, .* instead of Graph give a Dict of Sequence"),
        (OneOf((Discrete(2), Discrete(3))), "is a OneOf, .* instead of OneOf give a Dict of a Discrete"),
        (Sequence(Discrete(2)), r"is a Sequence, .* give Sequence\(part, stack=True\)"),
    ],
)
def test_a_space_without_a_layout_is_named_with_a_remedy(space: Space[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"'agent_0', action: the space {words}"):
        adapt(type("Wordy", (Ticking,), {"action_space": space}), {}, 1)
    seen = Dict(image=Box(0, 1, (2,)), mission=space)
    with pytest.raises(ConfigError, match=rf"'agent_0', observation: the space \['mission'\] {words}") as refused:
        adapt(type("Missions", (Ticking,), {"observation_space": seen}), {}, 1)
    assert '`wrappers: [{"gymnasium.wrappers:FilterObservation": {filter_keys: [image]}}]`' in str(refused.value)


class Pair(gymnasium.Env[Any, Any]):
    """Two agents in one `gymnasium.Env`, as lbforaging and rware; a reward is 1 where the action is the number seen."""

    observation_space, action_space = Tuple([Box(0, 4, (1,), np.float32)] * 2), Tuple([Discrete(5)] * 2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.seen = 0, self.np_random.integers(5, size=2)
        return tuple(self.seen[:, None].astype(np.float32)), {}

    def step(self, action: Any) -> Any:
        rewards = [float(one == seen) for one, seen in zip(action, self.seen, strict=True)]
        self.steps, self.seen = self.steps + 1, self.np_random.integers(5, size=2)
        return tuple(self.seen[:, None].astype(np.float32)), rewards, self.steps == 4, self.steps == 3, {}


class Counted(Pair):
    n_agents = 2


def test_several_agents_in_a_gymnasium_game_are_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"has 2 agents .* game of dictionaries .* docs/environments.md"):
        adapt(Counted, {}, 1)
    env = adapt(Pair, {}, 1)
    env.reset(ONE, [1])
    with pytest.raises(ConfigError, match="has 2 agents"):
        env.step([(np.array([0]), np.array([0]))])


def test_recipe_of_the_page_makes_a_dictionary_game_of_several_agents() -> None:
    recipe = readme.PAGES["docs/environments.md"].files()["by_agent.py"]
    assert len(recipe.strip().splitlines()) <= 25
    made: dict[str, Any] = {}
    exec(recipe, made)
    gymnasium.register("Pair-v0", entry_point=lambda **_: Counted())
    try:
        env, alone = adapt(made["ByAgent"], {"id": "Pair-v0"}, 1), Counted()
        assert env.interface.entities == ("agent_0", "agent_1")
        observations, (first, _) = env.reset(ONE, [3]).observations, alone.reset(seed=3)
        for tick in range(3):
            assert [column[0].tolist() for column in observations] == [one.tolist() for one in first]
            step = env.step([np.array([tick]), np.array([2])])
            observations, (first, rewards, done, cut, _) = step.frame.observations, alone.step((tick, 2))
            assert step.rewards.tolist() == [rewards]
            assert (step.terminated.all(), step.truncated.all()) == (done, cut)
        check_batched_env(
            adapt(made["ByAgent"], {"id": "Pair-v0"}, 2), ticks=20, again=adapt(made["ByAgent"], {"id": "Pair-v0"}, 2)
        )
    finally:
        del gymnasium.registry["Pair-v0"]


def test_vector_rewards_are_refused_with_a_remedy() -> None:
    class Objectives(Ticking):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, np.ones(3), *rest

    env = adapt(Objectives, {}, 1)
    env.reset(ONE)
    with pytest.raises(ConfigError, match=r"shape \(3,\); expected one number.*weighted sum"):
        env.step([np.zeros((1, 1), np.float32)])


PARALLEL: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "spread": (
        pettingzoo_factory("mpe2.simple_spread_v3"),
        simple_spread_v3.parallel_env,
        {"max_cycles": 9, "continuous_actions": True},
    ),
    "tag": (pettingzoo_factory("mpe2.simple_tag_v3"), simple_tag_v3.parallel_env, {"max_cycles": 8}),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_game_equals_the_unadapted_game(name: str) -> None:
    factory, make, kwargs = PARALLEL[name]
    env, alone = adapt(factory, kwargs, 2), make(**kwargs)
    assert env.interface.entities == tuple(alone.possible_agents)
    rng = np.random.default_rng(0)
    for episode in range(3):
        frame = env.reset(np.ones(2, bool), [None, 5] if episode == 0 else None)
        observations, _ = alone.reset(seed=5 if episode == 0 else None)
        while True:
            for entity, agent in enumerate(alone.possible_agents):
                np.testing.assert_array_equal(frame.observations[entity][1], observations[agent])
            if not alone.agents:
                break
            actions = [batched_random(space, 2, rng) for space in env.interface.action_spaces]
            frame, rewards, terminated, truncated = env.step(actions)
            agents = alone.agents[:]
            played = {agent: actions[entity][1] for entity, agent in enumerate(agents)}
            observations, paid, ended, cut, _ = alone.step(played)
            assert rewards[1].tolist() == [paid[agent] for agent in agents]
            assert terminated[1].tolist() == [ended[agent] for agent in agents]
            assert truncated[1].tolist() == [cut[agent] for agent in agents]
        assert truncated.all()


def batched_random(space: Any, lanes: int, rng: np.random.Generator) -> Any:
    if isinstance(space, Discrete):
        return rng.integers(space.n, size=lanes)
    return rng.uniform(0, 1, (lanes, *space.shape)).astype(np.float32)


class Leaving(pettingzoo.ParallelEnv[str, Any, Any]):
    """`a` terminates after one step, `b` leaves with the game after three, its flags false, `c` never comes."""

    metadata: Mapping[str, Any] = {}
    possible_agents = ["a", "b", "c"]

    def __init__(self, keeps: bool = False) -> None:
        self.keeps = keeps

    def observation_space(self, agent: str) -> Space[Any]:
        return Dict({"observation": Box(0, 9, (1,), np.float32), "action_mask": MultiBinary(3)})

    def action_space(self, agent: str) -> Space[Any]:
        return Discrete(3)

    def _seen(self) -> Any:
        mask = np.array([0, 1, 1], np.int8)
        return {agent: {"observation": np.full(1, self.steps), "action_mask": mask} for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.steps = ["a", "b"], 0
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        assert set(actions) == set(self.agents)
        self.steps += 1
        seen, agents = self._seen(), list(self.agents)
        if self.steps == 1 and not self.keeps:
            self.agents = ["b"]
        if self.steps == 3:
            self.agents = []
        ended = {agent: agent == "a" for agent in agents}
        return seen, dict.fromkeys(agents, 1.0), ended, dict.fromkeys(agents, False), {}


@pytest.mark.parametrize("keeps", [False, True])
def test_an_agent_ends_once_or_is_truncated_with_the_game(keeps: bool) -> None:
    env = adapt(Leaving, {"keeps": keeps}, 1)
    assert env.interface.mask_sizes == (3, 3, 3)
    assert env.interface.observation_spaces[0] == Box(0, 9, (1,), np.float32)
    frame = env.reset(ONE)
    assert frame.active.tolist() == [[True, True, False]]
    steps = []
    for _ in range(3):
        step = env.step([np.array([1])] * 3)
        steps.append((step.rewards.tolist(), step.terminated.tolist(), step.truncated.tolist()))
    none = [[False] * 3]
    assert steps == [
        ([[1.0, 1.0, 0.0]], [[True, False, False]], none),
        ([[0.0, 1.0, 0.0]], none, none),
        ([[0.0, 1.0, 0.0]], none, [[False, True, True]]),
    ]


class Crew(pettingzoo.ParallelEnv[str, Any, Any]):
    """Two agents for three steps; `alter` changes what `reset` (tick 0) and `step` return, and `agents`."""

    metadata: Mapping[str, Any] = {}
    possible_agents = ["a", "b"]

    def __init__(self, alter: Callable[[Any, int, Any], Any]) -> None:
        self.alter = alter
        self.seeds: list[Any] = []

    def observation_space(self, agent: str) -> Space[Any]:
        return Box(0, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Space[Any]:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.steps = ["a", "b"], 0
        self.seeds.append(seed)
        return self.alter(self, 0, [self._each(np.zeros(1, np.float32)), self._each({})])

    def step(self, actions: Any) -> Any:
        self.steps += 1
        seen, flags = self._each(np.full(1, self.steps, np.float32)), self._each(self.steps == 3)
        given = [seen, self._each(1.0), flags, self._each(False), self._each({})]
        return self.alter(self, self.steps, given)

    def _each(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


def altered(at: int, change: Callable[[Any, Any], Any]) -> Callable[[], Crew]:
    """A `Crew` with a change at one tick; what `change` returns is returned, None: the altered values."""

    def alter(crew: Crew, tick: int, given: Any) -> Any:
        if tick == 3:
            crew.agents = []
        instead = change(crew, given) if tick == at else None
        return tuple(given) if instead is None else instead

    return lambda: Crew(alter)


def missing(part: int) -> Callable[[Any, Any], Any]:
    return lambda crew, given: given[part].__delitem__("b")


def unknown(part: int) -> Callable[[Any, Any], Any]:
    return lambda crew, given: given[part].update(B=given[part].pop("b"))


def leaves(crew: Crew, given: Any) -> None:
    crew.agents = ["a"]


def joins(crew: Crew, given: Any) -> None:
    crew.agents = ["a", "b", "z"]


PARTS = ("observations", "rewards", "terminations", "truncations", "infos")
FAULTS: list[tuple[int, Callable[[Any, Any], Any], type[Exception], str]] = [
    *((1, missing(part), GameError, f"{what} without the agent 'b'") for part, what in enumerate(PARTS[:4])),
    *((2, unknown(part), GameError, f"{what} of the unknown agent 'B'") for part, what in enumerate(PARTS)),
    (0, missing(0), GameError, "observations without the agent 'b'"),
    (0, joins, GameError, "`agents` of the unknown agent 'z'; agents are a, b"),
    (1, leaves, GameError, "no end of the agent 'b', which has left"),
    (0, lambda crew, given: given[0], ConfigError, r"reset\(\) of Crew gave one dict; expected 2: observations, infos"),
    (
        1,
        lambda crew, given: tuple(given[:2] + given[3:]),
        ConfigError,
        "4 values; expected 5: .*older games have `done`",
    ),
    (1, lambda crew, given: (*given[:2], True, False, {}), GameError, "a bool as terminations; expected a mapping"),
]


@pytest.mark.parametrize(("at", "change", "kind", "words"), FAULTS)
def test_wrong_agents_of_a_parallel_game_are_refused_by_name(at: int, change: Any, kind: Any, words: str) -> None:
    game = altered(at, change)()
    with pytest.raises(kind, match=words):
        env = adapt(lambda: game, {}, 1)
        env.reset(ONE)
        for _ in range(3):
            env.step([np.array([1])] * 2)


@pytest.mark.parametrize("infos", [{}, {"a": {}}, {"b": {}, "__common__": {"round": 1}}])
def test_a_parallel_game_may_leave_out_what_nothing_learns_from(infos: dict[str, Any]) -> None:
    def change(crew: Crew, given: Any) -> None:
        given[0].clear()  # the last observations of agents that are terminated
        given[4].clear()
        given[4].update(infos)

    env = adapt(altered(3, change), {}, 1)
    env.reset(ONE)
    assert [env.step([np.array([1])] * 2).terminated.all() for _ in range(3)] == [False, False, True]


class Turns(pettingzoo.AECEnv[str, Any, Any]):
    """Two agents in turns, for four steps; `alter` changes the game after each."""

    metadata: Mapping[str, Any] = {}
    possible_agents = ["a", "b"]

    def __init__(self, alter: Callable[[Any], Any]) -> None:
        super().__init__()
        self.alter = alter

    def observation_space(self, agent: str) -> Space[Any]:
        return Box(0, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Space[Any]:
        return Discrete(2)

    def observe(self, agent: str) -> Any:
        return np.zeros(1, np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection, self.steps = ["a", "b"], "a", 0
        self.rewards, self.infos = dict.fromkeys("ab", 0.0), {agent: {} for agent in "ab"}
        self.terminations, self.truncations = dict.fromkeys("ab", False), dict.fromkeys("ab", False)

    def step(self, action: Any) -> None:
        self.steps, self.agent_selection = self.steps + 1, "ab"[self.steps % 2 == 0]
        self.alter(self)


@pytest.mark.parametrize(
    ("alter", "kind", "words"),
    [
        (lambda game: game.rewards.pop("b"), GameError, "rewards without the agent 'b'"),
        (lambda game: game.terminations.update(B=True), GameError, "terminations of the unknown agent 'B'"),
        (
            lambda game: setattr(game, "agent_selection", "q"),
            GameError,
            "an `agent_selection` of the unknown agent 'q'",
        ),
        (lambda game: game.agents.append("z"), GameError, "`agents` of the unknown agent 'z'"),
        (lambda game: delattr(game, "truncations"), ConfigError, "Turns has no truncations; .*games have `dones`"),
    ],
)
def test_wrong_agents_of_a_turn_based_game_are_refused_by_name(alter: Any, kind: Any, words: str) -> None:
    env = adapt(Turns, {"alter": alter}, 1)
    env.reset(ONE)
    with pytest.raises(kind, match=words):
        env.step([np.array([1])] * 2)


def test_reset_that_looks_for_masks_is_seeded() -> None:
    game = altered(9, missing(0))()
    adapt(lambda: game, {}, 1, contexts=[EnvContext(seed=77)])
    assert game.seeds == [77]


def test_masks_in_observations_become_action_masks_and_final_masks() -> None:
    env = adapt(Leaving, {}, 1)
    frame = env.reset(ONE)
    some, every = [[0, 1, 1]], [[1, 1, 1]]
    assert [mask.tolist() for mask in frame.masks if mask is not None] == [some, some, every]
    assert frame.final_masks is None
    first = env.step([np.array([1])] * 3).frame
    assert first.infos is None
    assert [mask.tolist() for mask in first.masks if mask is not None] == [every, some, every]
    assert first.final_masks is not None
    assert [mask.tolist() for mask in first.final_masks if mask is not None] == [some, some, every]
    assert env.step([np.array([1])] * 3).frame.final_masks is None


class Keeps(Narrow):
    """Keeps its agents in `agents` when they end, without infos; `forgets` is a step without them in mid-episode."""

    forgets = 0

    def step(self, actions: dict[str, Any]) -> Any:
        *told, infos = super().step(actions)
        if self.steps == self.length:
            self.agents = list(self.possible_agents)
        return *told, {} if self.steps in (self.length, self.forgets) else infos


def test_missing_mask_allows_everything_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_no_mask.cache_clear()
    env = adapt(Keeps, {}, 1)
    for _ in range(2):
        frame = env.reset(ONE)
        for _ in range(4):
            step = env.step([np.argmax(mask, axis=1) for mask in frame.masks if mask is not None])
            frame = step.frame
        assert step.truncated.all()
    assert not caplog.messages, "none is needed where an entity does not act next"
    monkeypatch.setattr(Keeps, "forgets", 2)
    for _ in range(2):
        restricted = env.reset(ONE).masks[0]
        assert restricted is not None and not restricted.all()
        env.step([np.array([1])])
        mask = env.step([np.array([0])]).frame.masks[0]
        assert mask is not None and mask.all()
    (told,) = caplog.messages
    assert told.startswith("the game gave 'e0' no action mask, though the first reset had one: everything")


class Brigade(pettingzoo.ParallelEnv[str, Any, Any]):
    """Two fighters on a grid of one cell; `fighter_0` has masks before tick `since`."""

    possible_agents = ["fighter_0", "fighter_1"]

    def __init__(self, since: int) -> None:
        self.since = since

    def observation_space(self, agent: str) -> Space[Any]:
        return Box(0, 2, (1,), np.float32)

    def action_space(self, agent: str) -> Space[Any]:
        return Discrete(2)

    def see(self) -> Any:
        observations = {agent: np.array([self.ticks], np.float32) for agent in self.agents}
        masks: dict[str, Any] = {agent: {"action_mask": np.array([1, 0], np.int8)} for agent in self.agents}
        return observations, masks if self.ticks < self.since else {**masks, "fighter_0": {}}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.ticks = [*self.possible_agents], 0
        return self.see()

    def step(self, actions: dict[str, Any]) -> Any:
        self.ticks += 1
        if any(actions.values()):
            raise IndexError("out of the grid")
        observations, infos = self.see()
        return observations, *(dict.fromkeys(self.agents, value) for value in (0.0, False, False)), infos


@pytest.mark.parametrize(("since", "told"), [(0, "'fighter_1' has one"), (1, "the first reset had one")])
def test_forgotten_mask_is_named_where_the_game_then_fails(
    since: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_no_mask.cache_clear()
    env = adapt(Brigade, {"since": since}, 1)
    env.reset(ONE)
    for _ in range(2):
        env.step([np.array([0])] * 2)
    assert [f"the game gave 'fighter_0' no action mask, though {told}: " in text for text in caplog.messages] == [True]
    words = "out of the grid; 'fighter_0' gave no action_mask, so all actions were allowed .it got action 1.$"
    with pytest.raises(IndexError, match=words):
        env.step([np.array([1]), np.array([0])])
    env.reset(ONE)
    with pytest.raises(IndexError) as raised:
        env.step([np.array([0]), np.array([1])])
    named = "; 'fighter_0' gave no action_mask, so all actions were allowed (it got action 0)" if since == 0 else ""
    assert str(raised.value) == f"out of the grid{named}"


def plain_loop(env: Any, choose: Callable[[Any, Any], int], seed: int) -> dict[str, float]:
    """The rewards of every agent in the loop of PettingZoo's documentation."""
    env.reset(seed=seed)
    returns = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        returns[agent] += reward
        env.step(None if terminated or truncated else choose(observation, info))
    return returns


def arena_loop(env: BatchedEnv, choose: Callable[[Any, Any], int], seed: int) -> dict[str, float]:
    """The same of an adapted game."""
    frame = env.reset(ONE, [seed])
    returns, ended = np.zeros(len(env.interface.entities)), np.zeros(len(env.interface.entities), int)
    while frame.active.any():
        (mover,) = np.flatnonzero(frame.active[0])
        mask = frame.masks[mover]
        action = choose({"action_mask": None if mask is None else mask[0]}, {})
        step = env.step([np.array([action])] * len(returns))
        returns += step.rewards[0]
        ended += (step.terminated | step.truncated)[0]
        frame = step.frame
    assert (ended == 1).all()
    return dict(zip(env.interface.entities, returns.tolist(), strict=True))


AEC: dict[str, tuple[Any, Callable[[], Any]]] = {
    "tictactoe": (tictactoe(), lambda: pettingzoo.make("aec", "classic/tictactoe-v3")),
    "tag": (simple_tag_v3.env, simple_tag_v3.env),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AEC)
def test_turn_based_rewards_sum_to_pettingzoos(name: str) -> None:
    factory, make = AEC[name]
    env, alone = adapt(factory, {}, 1), make()
    totals = []
    for seed in range(4):
        for loop, game in ((arena_loop, env), (plain_loop, alone)):
            rng = np.random.default_rng(seed)

            def choose(observation: Any, info: Any, rng: np.random.Generator = rng) -> int:
                masked = isinstance(observation, dict) and observation.get("action_mask") is not None
                return int(rng.choice(np.flatnonzero(observation["action_mask"])) if masked else rng.integers(5))

            totals.append(loop(game, choose, seed))
    np.testing.assert_allclose([list(t.values()) for t in totals[::2]], [list(t.values()) for t in totals[1::2]])
    assert any(any(total.values()) for total in totals)


def test_the_agent_to_move_sees_the_board_with_its_own_stones_and_mask() -> None:
    env, alone = adapt(connect_four(), {}, 1), pettingzoo.make("aec", "classic/connect_four-v3")
    frame = env.reset(ONE, [0])
    alone.reset(seed=0)
    for column in (3, 3, 3, 3, 3, 3, 0):
        agent = alone.agent_selection
        entity = env.interface.entities.index(agent)
        assert frame.active.tolist() == [[entity == 0, entity == 1]]
        seen = alone.observe(agent)
        np.testing.assert_array_equal(frame.observations[entity][0], seen["observation"])
        np.testing.assert_array_equal(frame.masks[entity], seen["action_mask"][None])
        np.testing.assert_array_equal(frame.masks[1 - entity], np.ones((1, 7)))
        alone.step(column)
        frame = env.step([np.array([column])] * 2).frame


class Pennies:
    """The list interface, with its required parts only."""

    observation_spaces = [Discrete(2), Box(0, 1, (1,), np.float32)]
    action_spaces = [Discrete(2), Discrete(3, start=2)]

    def __init__(self, ending: str = "all") -> None:
        self.ending = ending
        self.seeds: list[int] = []
        self.played: list[Any] = []

    def reset(self) -> list[Any]:
        self.steps = 0
        return [0, np.zeros(1, np.float32)]

    def step(self, actions: list[Any]) -> Any:
        self.played.append(actions)
        self.steps += 1
        late = {"TimeLimit.truncated": True}
        ends: dict[str, tuple[Any, list[Any]]] = {
            "all": (self.steps == 2, [{}, {}]),
            "late": (self.steps == 2, [late, late]),
            "each": ([self.steps >= 1, self.steps >= 3], [{}, late]),
        }
        done, infos = ends[self.ending]
        return [1, np.ones(1, np.float32)], [1.0, -1.0], done, infos


class Named(Pennies):
    entities = ("heads", "tails")

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)


def list_play(ending: str, ticks: int) -> tuple[BatchedEnv, list[Any]]:
    env = adapt(Pennies, {"ending": ending}, 1)
    env.reset(ONE)
    return env, [env.step([np.array([1]), np.array([3])]) for _ in range(ticks)]


@pytest.mark.parametrize(("ending", "truncated"), [("all", False), ("late", True)])
def test_list_interface_done_terminates_or_truncates_by_its_info(ending: str, truncated: bool) -> None:
    _, (first, second) = list_play(ending, 2)
    assert not first.terminated.any()
    assert second.terminated.tolist() == [[not truncated] * 2]
    assert second.truncated.tolist() == [[truncated] * 2]


def test_a_list_of_dones_ends_each_entity_once() -> None:
    env, steps = list_play("each", 3)
    assert [step.terminated[0].tolist() for step in steps] == [[True, False], [False, False], [False, False]]
    assert [step.truncated[0].tolist() for step in steps] == [[False, False], [False, False], [False, True]]
    assert [step.rewards[0].tolist() for step in steps] == [[1, -1], [0, -1], [0, -1]]
    assert env.game._games[0]._env.played == [[1, 3], [0, 3], [0, 3]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((np.ones(1), [1.0, -1.0], False, [{}, {}]), "a ndarray of 1 observations for 2 entities; expected a list"),
        (([1], [1.0, -1.0], False, [{}, {}]), "a list of 1 observations for 2 entities"),
        (([1, None], [1.0, -1.0], False, [{}, {}]), "the observation None; expected one"),
        (([1, 1], [1.0], False, [{}, {}]), "1 rewards for 2 entities"),
        (([1, np.ones(1, np.float32)], [1.0, None], False, [{}, {}]), "the reward None; expected a number"),
        (([1, 1], 1.0, False, [{}, {}]), "1.0 as rewards; expected a list, one per entity"),
        (([1, 1], [1.0, -1.0], False, [{}, {}, {}]), "3 infos for 2 entities"),
        (([1, np.ones(1, np.float32)], [1.0, -1.0], False, [{}, None]), "a NoneType as its info; expected a dict"),
        (([1, np.ones(1, np.float32)], [1.0, -1.0], True, [{}, None]), "a NoneType as its info; expected a dict"),
        (([1, 1], [1.0, -1.0], [True], [{}, {}]), "1 values of done for 2 entities"),
        (([1, 1], [1.0, -1.0], None, [{}, {}]), "None as the flag of an end; expected true or false"),
        (([1, 1], [1.0, -1.0], ["no", False], [{}, {}]), "'no' as the flag of an end"),
    ],
)
def test_a_list_that_does_not_fit_is_named_with_its_method(
    answer: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = adapt(Pennies, {}, 1)
    env.reset(ONE)
    step = lambda self, actions: answer  # noqa: E731
    monkeypatch.setattr(Pennies, "step", step)
    with pytest.raises(GameError, match=rf"^the game gave .*in lane 0 .*{message}") as caught:
        env.step([np.array([1]), np.array([3])])
    assert str(caught.value).endswith(f"; from step() ({__file__}, line {step.__code__.co_firstlineno})")
    monkeypatch.setattr(Pennies, "reset", lambda self: [0])
    with pytest.raises(GameError, match=r"1 observations for 2 entities; .* from reset\(\) \(.*test_adapters.py, line"):
        env.reset(ONE)


@pytest.mark.parametrize(
    ("method", "function", "message"),
    [
        ("step", lambda self: None, r"step\(\) of Pennies: too many positional .*expected step\(self, actions\)"),
        ("reset", lambda self, level: None, r"reset\(\) of Pennies: missing a required argument: 'level'; expected"),
    ],
)
def test_a_method_that_cannot_be_called_is_named_with_its_line(
    method: str, function: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pennies, method, function)
    with pytest.raises(ConfigError, match=rf"{message}.* \(.*test_adapters.py, line \d+\)$"):
        adapt(Pennies, {}, 1)


class Halves(gymnasium.Env[Any, Any]):
    """A game whose methods take what those of Gymnasium do not."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def reset(self, level: int) -> Any:  # type: ignore[override]
        return np.zeros(1, np.float32), {}

    def step(self, left: bool, right: bool) -> Any:  # type: ignore[override]
        return np.zeros(1, np.float32), float(left) - float(right), False, False, {}


class Whole(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(3)  # type: ignore[call-arg]

    def step(self, action: Any) -> Any:
        return self.env.step(action == 0, action == 1)  # type: ignore[call-arg]


def test_a_wrapper_may_translate_for_a_game_with_other_methods() -> None:
    env = adapt(lambda: Whole(Halves()), {}, 1)
    env.reset(ONE)
    assert env.step([np.array([0])]).rewards.tolist() == [[1.0]]
    with pytest.raises(ConfigError, match=r"reset\(\) of Halves"):
        adapt(lambda: gymnasium.Wrapper(Halves()), {}, 1)


@pytest.mark.parametrize("ends", [(None, False), (False, {}), ("x", False), (2, False), (np.zeros(2, np.bool_), False)])
def test_flags_that_are_no_truth_values_are_refused(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env = adapt(Ticking, {}, 1)
    env.reset(ONE)
    monkeypatch.setattr(Ticking, "step", lambda self, action: (self.observation_space.sample(), 0.0, *ends, {}))
    with pytest.raises(GameError, match="as the flag of an end; expected true or false"):
        env.step([np.array([0])])


def test_optional_parts_of_the_list_interface_are_used() -> None:
    env = adapt(Named, {}, 1)
    env.reset(ONE, [7])
    env.reset(ONE)
    assert env.interface.entities == ("heads", "tails")
    assert env.render() is not None
    assert env.game._games[0]._env.seeds == [0, 7]  # type: ignore[attr-defined] # 0: looks for masks
    plain = adapt(Pennies, {}, 1)
    assert plain.interface.entities == ("entity_0", "entity_1")
    assert plain.render() is None
    plain.close()


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("reset", ([1, np.ones(1, np.float32)], [{}, {}]), r"reset\(\) of Pennies gave observations and infos"),
        ("step", ([], [], False, False, []), r"step\(\) of Pennies gave 5 values; expected 4: .*TimeLimit.truncated"),
    ],
)
def test_other_interface_of_a_list_game_is_a_configuration_error(
    method: str, given: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = adapt(Pennies, {}, 1)
    env.reset(ONE)
    monkeypatch.setattr(Pennies, method, lambda self, *_: given)
    with pytest.raises(ConfigError, match=words):
        env.reset(ONE) if method == "reset" else env.step([np.array([1]), np.array([3])])


CONFORMING: dict[str, tuple[Any, dict[str, Any]]] = {
    "tag": (pettingzoo_factory("mpe2.simple_tag_v3"), {"max_cycles": 5}),
    "connect four": (connect_four(), {}),
    "sundry": (Sundry, {}),
    "list": (Pennies, {"ending": "each"}),
    "leaving": (Leaving, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFORMING)
def test_adapted_games_keep_the_contract(name: str) -> None:
    factory, kwargs = CONFORMING[name]
    env = adapt(factory, kwargs, 3)
    assert env.lanes == 3
    check_batched_env(env, ticks=40)
    env.close()
    env.close()


def test_every_game_is_closed_even_if_one_fails() -> None:
    closed = []

    class Stubborn(Ticking):
        def close(self) -> None:
            closed.append(self)
            if len(closed) == 1:
                raise RuntimeError("no")

    env = adapt(Stubborn, {}, 3)
    with pytest.raises(RuntimeError, match="no"):
        env.close()
    assert len(closed) == 3


class Unseeding(Touchdown):
    def reset(self, lanes: Any) -> Any:  # type: ignore[override]
        return super().reset(lanes)


OF_GYM = type("Env", (), {"__module__": "gym.core"})
OF_SB3 = type("VecEnv", (), {"__module__": "stable_baselines3.common.vec_env"})


SPACES = {"observation_space": Discrete(2), "action_space": Discrete(2)}


def no_game() -> int:
    return 3


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: adapt(no_game, {}, 1),
            r"is a builtins.int without observation_space, action_space, reset, step of its own; expected a class",
        ),
        (
            lambda: adapt(type("Games", (OF_SB3,), {"num_envs": 3}), {}, 1),
            "vector environment of Stable-Baselines3 with 3 games; name",
        ),
        (lambda: adapt(type("Game", (OF_GYM,), {}), {}, 1), "of the package gym, .*shimmy:GymV21Environment-v0"),
        (lambda: adapt(Unseeding, {}, 1), r"Unseeding is a batched game, but has no reset\(lanes, seeds=None, options"),
        (lambda: adapt(Ticking, {}, 0), "lanes: got 0, expected at least 1"),
        (
            lambda: adapt(Touchdown, {"team_siz": 2}, 1),
            "unexpected keyword argument 'team_siz'; did you mean 'team_size'",
        ),
        (lambda: adapt(Pennies, {"end": "all"}, 1), "did you mean 'ending'"),
        (lambda: gymnasium_factory("CartPol-v1"), "Gymnasium cannot make 'CartPol-v1': .* Did you mean 'CartPole-v1'"),
        (lambda: gymnasium_factory("no_such_module:Game-v0"), "no_such_module cannot be imported"),
        (
            lambda: pettingzoo_factory("mpe2.simple_tug_v3"),
            "no module 'pettingzoo.mpe2.simple_tug_v3' or 'mpe2.simple_tug",
        ),
        (lambda: pettingzoo_factory("json"), "'json' has neither parallel_env nor env"),
        (lambda: pettingzoo_factory("classic/tictactoe-v1"), "did you mean 'classic.tictactoe_v3'?"),
        (lambda: pettingzoo_factory("mpe2.simple_tag_v2"), "did you mean 'mpe2.simple_tag_v3'?"),
        (
            lambda: adapt(type("Half", (Pennies,), {"step": None, "observation_spaces": {}}), {}, 1),
            "expected a class deri",
        ),
        *(
            (
                lambda members=members, base=base: adapt(type("Half", (base,), members), {}, 1),
                f"Half without {lacks} of its own$",
            )
            for base, members, lacks in (
                (gymnasium.Env, {}, "observation_space, action_space, reset, step"),
                (gymnasium.Env, {**SPACES, "reset": lambda self, *, seed=None, options=None: (0, {})}, "step"),
                (pettingzoo.ParallelEnv, {"possible_agents": ["a"]}, "observation_space, action_space, reset, step"),
                (pettingzoo.AECEnv, SPACES, "reset, step"),
                (
                    object,
                    {"observation_spaces": {"a": Discrete(2)}, "action_spaces": {"a": Discrete(2)}},
                    "reset, step",
                ),
            )
        ),
        (
            lambda: adapt(type("Lame", (Pennies,), {"action_spaces": [Discrete(2)]}), {}, 1),
            "Lame has 1 entities, 2 observation_spaces and 1 action_spaces",
        ),
    ],
)
def test_mistake_is_named_with_the_allowed_values(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attempt()
