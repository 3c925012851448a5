"""Wrappers around games of every interface against Gymnasium's, or a slow formula; and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium import wrappers as gymnasium_wrappers
from gymnasium.spaces import Box

from arena.errors import ConfigError
from arena.game.api import BatchedEnv
from arena.testing import check_batched_env
from envs.adapters import adapt, gymnasium_factory, pettingzoo_factory
from envs.adapters.batch import BatchedLanes
from envs.adapters.gymnasium_env import GymnasiumGame
from envs.adapters.wrappers import wrapped, wrapper_specs
from envs.matrix import Matrix
from envs.touchdown import Touchdown
from games import Dropout
from wrappers import Painting

Wrappers = list[tuple[str, Any]]


def of_any_kind(make: Callable[[], Any], lanes: int, wrappers: Wrappers) -> BatchedEnv:
    """Gymnasium's environments as if they were games of another interface: all lanes are wrapped at once."""
    return wrapped(BatchedLanes([GymnasiumGame(make()) for _ in range(lanes)]), wrapper_specs(wrappers), lanes=True)


def itself(make: Callable[[], Any], lanes: int, wrappers: Wrappers) -> BatchedEnv:
    return adapt(make, {}, lanes, wrappers)


WAYS = {"itself": itself, "all lanes at once": of_any_kind}
CARTPOLE = gymnasium_factory("CartPole-v1")


def play(env: BatchedEnv, ticks: int = 60, seed: int = 0) -> list[Any]:
    """The results of a game with one array per entity, tick by tick, copied."""
    draw, lanes = np.random.default_rng(seed), np.ones(env.lanes, np.bool_)
    frame = env.reset(lanes, list(range(seed, seed + env.lanes)))
    masks, said = frame.masks, [[np.array(column) for column in frame.observations]]
    spaces = env.interface.action_spaces
    for _ in range(ticks):
        actions = [
            np.array([space.start + draw.choice(np.flatnonzero(row)) for row in allowed])
            for space, allowed in zip(spaces, _allowed(env, masks), strict=True)
        ]
        step = env.step(actions)
        said.append([np.array(column) for column in (*step.frame.observations, *step[1:], step.frame.active)])
        over, masks = ~step.frame.active.any(axis=1), step.frame.masks
        if over.any():
            frame = env.reset(over)
            masks = frame.masks
            said.append([np.array(column)[over] for column in frame.observations])
    env.close()
    return said


def _allowed(env: BatchedEnv, masks: Any) -> list[Any]:
    return [
        np.ones((env.lanes, space.n), np.int8) if mask is None else mask
        for space, mask in zip(env.interface.action_spaces, masks, strict=True)
    ]


def same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        np.array_equal(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True)
    )


# ----------------------------------------------------------------------------------------- by Gymnasium's own


PAIRS: dict[str, tuple[Callable[[], Any], Wrappers, Callable[[Any], Any]]] = {
    "frame stack": (CARTPOLE, [("frame_stack", 4)], lambda env: gymnasium_wrappers.FrameStackObservation(env, 4)),
    "frame stack, zeros": (
        CARTPOLE,
        [("frame_stack", {"stack_size": 3, "padding_type": "zero"})],
        lambda env: gymnasium_wrappers.FrameStackObservation(env, 3, padding_type="zero"),
    ),
    "frames of choices": (
        gymnasium_factory("Taxi-v4"),
        [("frame_stack", 2)],
        lambda env: gymnasium_wrappers.FrameStackObservation(env, 2),
    ),
    "grayscale": (Painting, [("grayscale", None)], gymnasium_wrappers.GrayscaleObservation),
    "grayscale, three axes": (
        Painting,
        [("grayscale", {"keep_dim": True})],
        lambda env: gymnasium_wrappers.GrayscaleObservation(env, keep_dim=True),
    ),
    "bound": (Painting, [("clip_reward", 12.5)], lambda env: gymnasium_wrappers.ClipReward(env, -12.5, 12.5)),
    "sign": (
        Painting,
        [("clip_reward", "sign")],
        lambda env: gymnasium_wrappers.TransformReward(env, lambda r: float(np.sign(r))),
    ),
    "time limit": (Painting, [("time_limit", 3)], lambda env: gymnasium_wrappers.TimeLimit(env, 3)),
    "limit on the last step": (Painting, [("time_limit", 7)], lambda env: gymnasium_wrappers.TimeLimit(env, 7)),
    "in order": (
        Painting,
        [("time_limit", 5), ("grayscale", None), ("frame_stack", 2), ("clip_reward", 15)],
        lambda env: gymnasium_wrappers.ClipReward(
            gymnasium_wrappers.FrameStackObservation(
                gymnasium_wrappers.GrayscaleObservation(gymnasium_wrappers.TimeLimit(env, 5)), 2
            ),
            -15,
            15,
        ),
    ),
}
CLASSES: dict[str, tuple[Callable[[], Any], Wrappers, Callable[[Any], Any]]] = {
    "delay": (
        CARTPOLE,
        [("gymnasium.wrappers:DelayObservation", {"delay": 2})],
        lambda env: gymnasium_wrappers.DelayObservation(env, 2),
    ),
    "between built-in wrappers": (
        Painting,
        [("grayscale", None), ("clip_reward", 15), ("wrappers:Shifted", {"by": 0.0, "bonus": 7}), ("clip_reward", 20)],
        lambda env: gymnasium_wrappers.ClipReward(
            gymnasium_wrappers.TransformReward(
                gymnasium_wrappers.ClipReward(gymnasium_wrappers.GrayscaleObservation(env), -15, 15),
                lambda r: float(r) + 7,
            ),
            -20,
            20,
        ),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("shape", "axis"), [((30, 40, 1), 2), ((30, 40, 3), 2), ((3, 30, 40), 0)])
def test_pictures_are_stacked_along_their_channels(shape: tuple[int, ...], axis: int, way: str) -> None:
    wrapped = WAYS[way](lambda: Painting(shape=shape), 2, [("frame_stack", 3)])
    frames = adapt(lambda: gymnasium_wrappers.FrameStackObservation(Painting(shape=shape), 3), {}, 2)
    (space,) = wrapped.interface.observation_spaces
    assert space.shape == tuple(3 * size if place == axis else size for place, size in enumerate(shape))
    for joined, apart in zip(play(wrapped), play(frames), strict=True):  # [lane, frame, ...]
        assert all(
            np.array_equal(mine, np.concatenate(list(its), axis)) for mine, its in zip(joined[0], apart[0], strict=True)
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PAIRS)
def test_wrapper_equals_gymnasiums(name: str, way: str) -> None:
    make, wrappers, wrap = PAIRS[name]
    wrapped, plain = WAYS[way](make, 2, wrappers), adapt(lambda: wrap(make()), {}, 2)
    assert replace(wrapped.interface, labels=()) == replace(plain.interface, labels=())  # `adapt` finds names
    assert same(play(wrapped), play(plain))


@pytest.mark.parametrize("name", CLASSES)
def test_any_wrapper_class_wraps_a_gymnasium_environment(name: str) -> None:
    make, wrappers, wrap = CLASSES[name]
    assert same(play(adapt(make, {}, 2, wrappers)), play(adapt(lambda: wrap(make()), {}, 2)))


# ------------------------------------------------------------------------------------------------------ resizing


def slow_resize(picture: Any, height: int, width: int) -> Any:
    """The mean of what each new pixel covers, by cutting every old one into height x width equal parts."""
    fine = picture.repeat(height, axis=0).repeat(width, axis=1).astype(np.float64)
    blocks = fine.reshape(height, len(picture), width, picture.shape[1], *picture.shape[2:])
    return np.floor(blocks.mean(axis=(1, 3)) + 0.5 + 1e-9).astype(np.uint8)


@pytest.mark.parametrize("to", [(3, 3), (4, 5), (6, 9), (11, 20), (1, 1)], ids=str)
@pytest.mark.parametrize("shape", [(6, 9), (6, 9, 1), (6, 9, 3)], ids=str)
def test_a_resized_picture_is_the_mean_of_what_each_pixel_covers(shape: Any, to: tuple[int, int]) -> None:
    env, alone = adapt(Painting, {"shape": shape}, 1, [("resize", list(to))]), Painting(shape=shape)
    assert env.interface.observation_spaces == (Box(0, 255, (*to, *shape[2:]), np.uint8),)
    for seed in range(5):
        (seen,) = env.reset(np.ones(1, np.bool_), [seed]).observations
        np.testing.assert_array_equal(seen[0], slow_resize(alone.reset(seed=seed)[0], *to))


def test_pictures_go_through_the_usual_pipeline() -> None:
    env = adapt(Painting, {"shape": (21, 16, 3)}, 2, [("grayscale", None), ("resize", [8, 8]), ("frame_stack", 4)])
    assert env.interface.observation_spaces == (Box(0, 255, (4, 8, 8), np.uint8),)
    check_batched_env(env, ticks=20)


# ------------------------------------------------------------------------------------ games of several entities


def tictactoe() -> Any:
    return pettingzoo_factory("classic.tictactoe_v3")


SHARED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "parallel": (pettingzoo_factory("mpe2.simple_tag_v3"), {"max_cycles": 12}),
    "leaving": (Dropout, {"lengths": (2, 9, 6)}),
    "in turns": (tictactoe(), {}),
    "batched": (Touchdown, {"team_size": 1, "max_steps": 12}),
    "batched choices": (Matrix, {"game": "rock_paper_scissors", "rounds": 6}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "game",
    list(SHARED),
)
def test_wrapped_games_of_any_kind_keep_the_contract(game: str) -> None:
    factory, kwargs = SHARED[game]
    env = adapt(factory, kwargs, 2, [("time_limit", 7), ("frame_stack", 2), ("clip_reward", 0.5), ("frame_stack", 2)])
    check_batched_env(env, ticks=25)
    env.close()


@pytest.mark.parametrize("game", ["in turns", "batched choices"])
def test_clipped_rewards_are_the_games_own_within_the_bound(game: str) -> None:
    factory, kwargs = SHARED[game]
    plain = play(adapt(factory, kwargs, 2))
    for argument, clip in ((0.4, lambda r: np.clip(r, -0.4, 0.4)), ("sign", np.sign)):
        clipped = play(adapt(factory, kwargs, 2, [("clip_reward", argument)]))
        assert len(clipped) == len(plain)
        for one, other in zip(clipped, plain, strict=True):
            if other[-1].dtype == np.bool_:  # of a step, not of a reset
                np.testing.assert_array_equal(one[-4], clip(other[-4]))


def test_time_limit_truncates_the_remaining_entities_once() -> None:
    env = adapt(Dropout, {"lengths": (2, 9, 6)}, 1, [("time_limit", 4)])
    env.reset(np.ones(1, np.bool_), [0])
    steps = [env.step([np.zeros(1, np.int64)] * 3) for _ in range(4)]
    assert [step.terminated[0].tolist() for step in steps] == [[False] * 3, [True, False, False], *[[False] * 3] * 2]
    assert [step.truncated[0].tolist() for step in steps] == [*[[False] * 3] * 3, [False, True, True]]
    assert not steps[-1].frame.active.any()
    after = env.step([np.zeros(1, np.int64)] * 3)
    assert not (after.rewards.any() or after.terminated.any() or after.truncated.any())
    env.reset(np.ones(1, np.bool_))
    assert not env.step([np.zeros(1, np.int64)] * 3).truncated.any()


class BatchedGymnasium(gymnasium.Env[Any, Any]):
    """A batched game whose class also derives from Gymnasium's."""

    batched = True

    def __init__(self, lanes: int) -> None:
        game = adapt(Dropout, {"lengths": (9, 9)}, lanes)
        self.interface, self.lanes, self.reset, self.step = game.interface, lanes, game.reset, game.step

    def close(self) -> None: ...


def test_batched_game_that_is_a_gymnasium_env_is_wrapped_by_lanes() -> None:
    env = adapt(BatchedGymnasium, {}, 2, [("time_limit", 3)])
    frame = env.reset(np.ones(2, np.bool_))
    for tick in (1, 2, 3):
        step = env.step([np.zeros(2, np.int64)] * len(env.interface.entities))
        assert step.truncated.all() == (tick == 3)
    assert frame.active.all()


class Atlas:
    """A game of the list interface; each entity observes a picture and a number, drawn from the seed."""

    def __init__(self) -> None:
        seen = spaces.Dict(picture=Box(0, 255, (2, 3), np.uint8), number=spaces.Discrete(9, start=3))
        self.observation_spaces, self.action_spaces = [seen, seen], [spaces.Discrete(2)] * 2
        self.seed(0)

    def _see(self) -> Any:
        picture = self.rng.integers(0, 256, (2, 3), np.uint8)
        return {"picture": picture, "number": np.int64(self.rng.integers(3, 12))}

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.turn = 0
        return [self._see(), self._see()]

    def step(self, actions: Any) -> Any:
        self.turn += 1
        seen = [self._see(), self._see()]
        return seen, [1.0, -1.0], self.turn == 9, [{}, {}]


@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_frames_of_nested_spaces_are_stacked_leaf_by_leaf(padding: str) -> None:
    wrappers: Wrappers = [("frame_stack", {"stack_size": 3, "padding_type": padding})]
    env, plain = adapt(Atlas, {}, 2, wrappers), adapt(Atlas, {}, 2)
    every = np.ones(2, np.bool_)
    first = plain.reset(every, [1, 2])
    stacked = env.reset(every, [1, 2])
    for entity in range(2):
        for leaf, empty in (("picture", 0), ("number", 3)):
            seen = np.array(first.observations[entity][leaf])
            before = seen if padding == "reset" else np.full_like(seen, empty)
            frames = [before, before, seen]
            np.testing.assert_array_equal(stacked.observations[entity][leaf], np.stack(frames, 1))
    history = [[{key: np.array(value) for key, value in batch.items()} for batch in first.observations]]
    for _ in range(4):
        step, other = env.step([np.zeros(2, np.int64)] * 2), plain.step([np.zeros(2, np.int64)] * 2)
        history.append([{key: np.array(value) for key, value in batch.items()} for batch in other.frame.observations])
    for entity in range(2):
        for leaf in ("picture", "number"):
            frames = [seen[entity][leaf] for seen in history[-3:]]
            np.testing.assert_array_equal(step.frame.observations[entity][leaf], np.stack(frames, 1))


def test_in_turns_frames_precede_an_entitys_own_turns() -> None:
    env, plain = adapt(tictactoe(), {}, 1, [("frame_stack", 2)]), adapt(tictactoe(), {}, 1)
    every, moves = np.ones(1, np.bool_), (0, 3, 1, 4, 2)  # the first player fills the upper row
    env_frame, frame = env.reset(every, [0]), plain.reset(every, [0])
    before = [np.array(batch[0]) for batch in frame.observations]
    stacks = [np.stack([batch, batch]) for batch in before]
    for move in moves:
        step, other = env.step([np.full(1, move)] * 2), plain.step([np.full(1, move)] * 2)
        for entity in range(2):
            if other.frame.active[0, entity] or other.terminated[0, entity]:
                seen = np.array(other.frame.observations[entity][0])
                stacks[entity], before[entity] = np.stack([before[entity], seen]), seen
            np.testing.assert_array_equal(step.frame.observations[entity][0], stacks[entity])
        np.testing.assert_array_equal(step.frame.active, other.frame.active)
        np.testing.assert_array_equal(step.terminated, other.terminated)
        np.testing.assert_array_equal(step.rewards, other.rewards)
    assert env_frame.observations[0].shape == (1, 2, 3, 3, 2)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        ([("frame_stak", 4)], "wrappers[0]: unknown wrapper 'frame_stak'; did you mean 'frame_stack'?"),
        ([("grayscale", None), ("nowhere:W", None)], "wrappers[1]: 'nowhere:W': there is no module 'nowhere'"),
        ([("wrappers:Painting.x", None)], "wrappers[0]: 'wrappers:Painting.x': "),
        ([("math:pi", None)], "wrappers[0]: 'math:pi' is a float (3.14"),
        ([("frame_stack", None)], "wrappers[0]: frame_stack: missing a required argument: 'stack_size'"),
        ([("frame_stack", {"stacksize": 4})], "did you mean 'stack_size'?"),
        ([("frame_stack", 0)], "wrappers[0]: frame_stack: stack_size: got 0, expected a whole number of at least 1"),
        ([("frame_stack", 10**400)], "expected at most 256"),
        ([("frame_stack", {"stack_size": 2, "padding_type": "zeros"})], "did you mean 'zero'?"),
        ([("grayscale", 3)], "wrappers[0]: grayscale: keep_dim: got 3, expected true or false"),
        ([("resize", 84)], "wrappers[0]: resize: shape: got 84, expected height and width, as [84, 84]"),
        ([("resize", [84, 0.5])], "wrappers[0]: resize: shape: got 0.5, expected a whole number"),
        ([("clip_reward", "sin")], "wrappers[0]: clip_reward: bound: got 'sin', expected 'sign' or a number above 0"),
        ([("clip_reward", 10**400)], "expected 'sign' or a number above 0"),
        ([("clip_reward", True)], "expected 'sign' or a number above 0"),
        ([("time_limit", "4")], "wrappers[0]: time_limit: max_episode_steps: got '4', expected a whole number"),
        ([("wrappers:Shifted", {"at": 1})], "wrappers[0]: wrappers:Shifted: got an unexpected keyword argument 'at'"),
        ([("wrappers:nothing", None)], "wrappers[0]: wrappers:nothing cannot go around"),
        ([("collections:Counter", None)], "is no Gymnasium wrapper"),
        ([("grayscale", None), ("grayscale", None)], "wrappers[1]: grayscale cannot go around observations Box(0, 255"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_unknown_or_unfit_wrapper_is_refused_with_its_path(wrappers: Wrappers, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        adapt(Painting, {}, 1, wrappers)
    assert words in str(caught.value)


@pytest.mark.parametrize("factory", [Dropout, Touchdown, tictactoe()], ids=["several entities", "batched", "in turns"])
def test_a_wrapper_class_is_refused_where_a_game_has_another_interface(factory: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        adapt(factory, {}, 1, [("time_limit", 4), ("wrappers:Shifted", None)])
    assert caught.value.path == "wrappers[1]"
    assert "wrappers:Shifted cannot go around entities that observe " in str(caught.value)
    built_in = "frame_stack, grayscale, resize, clip_reward, time_limit, soft_time_limit, no_termination, state"
    assert f"use the built-in wrappers ({built_in})" in str(caught.value)
    assert adapt(Painting, {}, 1, [("wrappers:FewerActions", None)]).interface.action_spaces[0].n == 1


# ----------------------------------------------------------------------------------------- soft limits, no termination


class Walk:
    """One entity counts its steps on; the game ends by itself after `length` of them. Of the list interface."""

    observation_spaces: ClassVar[Any] = [Box(0, 1000, (1,), np.float32)]
    action_spaces: ClassVar[Any] = [spaces.Discrete(2)]

    def __init__(self, length: int = 7) -> None:
        self.length, self.resets = length, 0

    def reset(self) -> Any:
        self.at, self.resets = 0, self.resets + 1
        return [np.zeros(1, np.float32)]

    def step(self, actions: Any) -> Any:
        self.at += 1
        return [np.array([self.at], np.float32)], [1.0], self.at == self.length, [{}]


class WalkEnv(gymnasium.Env[Any, Any]):
    """The same, of Gymnasium."""

    observation_space, action_space = Walk.observation_spaces[0], Walk.action_spaces[0]

    def __init__(self, length: int = 7) -> None:
        self.walk = Walk(length)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.walk.reset()[0], {}

    def step(self, action: Any) -> Any:
        (observation,), (reward,), over, _ = self.walk.step([action])
        return observation, reward, over, False, {}


@pytest.mark.parametrize("make", [Walk, WalkEnv])
def test_soft_time_limit_continues_the_game(make: Callable[..., Any]) -> None:
    env = adapt(make, {}, 2, [("soft_time_limit", 3)])
    frame = env.reset(np.ones(2, np.bool_))
    seen, ends = [], []
    for _ in range(9):
        seen.append(frame.observations[0][:, 0].tolist())
        step = env.step([np.zeros(2, np.int64)])
        ends.append((step.terminated[0, 0], step.truncated[0, 0]))
        over = ~step.frame.active.any(axis=1)
        frame = env.reset(over) if over.any() else step.frame
    assert seen == [[at, at] for at in (0, 1, 2, 3, 4, 5, 6, 0, 1)]
    cut, end, on = (False, True), (True, False), (False, False)
    assert ends == [on, on, cut, on, on, cut, end, on, on]


def test_soft_time_limit_leaves_out_entities_that_have_ended_before() -> None:
    env = adapt(Dropout, {"lengths": (1, 4, 5)}, 1, [("soft_time_limit", 2)])
    env.reset(np.ones(1, np.bool_))
    said: list[Any] = []
    for _ in range(5):
        step = env.step([np.zeros(1, np.int64)] * 3)
        said.append((step.terminated[0].tolist(), step.truncated[0].tolist(), step.rewards[0].tolist()))
        if not step.frame.active.any():
            said.append(env.reset(np.ones(1, np.bool_)).active[0].tolist())
    no = [False] * 3
    assert said == [
        ([True, False, False], no, [1, 2, 3]),
        (no, [False, True, True], [0, 2, 3]),
        [False, True, True],
        (no, no, [0, 2, 3]),
        ([False, True, False], [True, False, True], [0, 2, 3]),
        [False, False, True],
        ([False, False, True], [True, True, False], [0, 0, 3]),
        [True, True, True],
    ]


@pytest.mark.parametrize("make", [Walk, WalkEnv])
def test_no_termination_truncates_where_the_game_ends(make: Callable[..., Any]) -> None:
    env = adapt(make, {"length": 2}, 1, [("no_termination", None)])
    env.reset(np.ones(1, np.bool_))
    steps = [env.step([np.zeros(1, np.int64)]) for _ in range(2)]
    assert [step.truncated[0, 0] for step in steps] == [False, True]
    assert not any(step.terminated.any() for step in steps)


@pytest.mark.parametrize("wrapper", [("soft_time_limit", 3), ("no_termination", None)])
@pytest.mark.parametrize("make", [WalkEnv, Dropout])
def test_new_ends_keep_the_interface(make: Callable[..., Any], wrapper: tuple[str, Any]) -> None:
    check_batched_env(adapt(make, {}, 2, [wrapper]), ticks=40, again=adapt(make, {}, 2, [wrapper]))


# ------------------------------------------------------------------------------------------------------------- state


class Summed:
    """Two entities see their own last action; the state is the sum of all, and the tick. Of the list interface."""

    observation_spaces: ClassVar[Any] = [Box(0, 9, (1,), np.float32)] * 2
    action_spaces: ClassVar[Any] = [spaces.Discrete(5)] * 2
    state_space = Box(0, 99, (2,), np.float32)

    def reset(self) -> Any:
        self.at, self.total = 0, 0
        return [np.zeros(1, np.float32)] * 2

    def step(self, actions: Any) -> Any:
        self.at, self.total = self.at + 1, self.total + sum(actions)
        return [np.array([one], np.float32) for one in actions], [0.0, 0.0], self.at == 3, [{}, {}]

    def state(self) -> Any:
        return np.array([self.total, self.at])


def test_state_of_the_game_is_beside_each_observation_until_the_end() -> None:
    env = adapt(Summed, {}, 2, [("state", None)])
    assert env.interface.observation_spaces[1] == spaces.Dict(
        observation=Box(0, 9, (1,), np.float32), state=Summed.state_space
    )
    frame = env.reset(np.ones(2, np.bool_))
    assert frame.observations[0]["state"].tolist() == [[0, 0], [0, 0]]
    for tick in (1, 2, 3):
        step = env.step([np.array([1, 2]), np.array([0, 4])])
        for seen, own in zip(step.frame.observations, ([[1], [2]], [[0], [4]]), strict=True):
            assert seen["observation"].tolist() == own
            assert seen["state"].tolist() == [[tick, tick], [6 * tick, tick]]
    assert (step.terminated | step.truncated).all()
    assert env.reset(np.array([True, False])).observations[1]["state"][0].tolist() == [0, 0]


def test_state_of_a_game_of_pettingzoo_is_its_own() -> None:
    env = adapt(pettingzoo_factory("mpe2.simple_spread_v3"), {"max_cycles": 4}, 2, [("state", None)], from_package=True)
    check_batched_env(env)
    frame = env.reset(np.ones(2, np.bool_), [1, 2])
    seen = [one["observation"] for one in frame.observations]
    for one in frame.observations:
        np.testing.assert_array_equal(one["state"], np.concatenate(seen, 1))  # as this game declares it


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Walk, "its state_space is None; expected a Box"),
        (WalkEnv, "a gymnasium.Env has one entity"),
        (Matrix, "its state_space is None"),
    ],
)
def test_games_without_a_state_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        adapt(make, {}, 1, [("state", None)])
    assert caught.value.path == "wrappers[0]"
