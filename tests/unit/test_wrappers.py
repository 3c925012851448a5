"""Wrappers around games of every kind against Gymnasium's own, or against a slow formula, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import wrappers as own
from gymnasium.spaces import Box

from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv
from arena.testing import check_batched_env
from envs.adapters import adapt, gymnasium_factory, pettingzoo_factory
from envs.adapters.batch import BatchedLanes
from envs.adapters.gymnasium_env import GymnasiumGame
from envs.adapters.wrappers import AreaResize, wrapped_lanes, wrappings
from envs.matrix import Matrix
from envs.touchdown import Touchdown
from games import Dropout
from wrappers import Painting

Wrappers = list[tuple[str, Any]]


def of_any_kind(make: Callable[[], Any], lanes: int, wrappers: Wrappers) -> BatchedEnv:
    """Gymnasium's environments as if they were games of another kind: wrapped entity by entity."""
    return wrapped_lanes(BatchedLanes([GymnasiumGame(make()) for _ in range(lanes)]), wrappings(wrappers))


def itself(make: Callable[[], Any], lanes: int, wrappers: Wrappers) -> BatchedEnv:
    return adapt(make, {}, lanes, wrappers)


WAYS = {"itself": itself, "by entity": of_any_kind}
CARTPOLE = gymnasium_factory("CartPole-v1")


def play(env: BatchedEnv, ticks: int = 60, seed: int = 0) -> list[Any]:
    """What a game of one array per entity says, tick by tick: copies."""
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
    "frame stack": (CARTPOLE, [("frame_stack", 4)], lambda env: own.FrameStackObservation(env, 4)),
    "frame stack, zeros": (
        CARTPOLE,
        [("frame_stack", {"stack_size": 3, "padding_type": "zero"})],
        lambda env: own.FrameStackObservation(env, 3, padding_type="zero"),
    ),
    "frames of choices": (
        gymnasium_factory("Taxi-v4"),
        [("frame_stack", 2)],
        lambda e: own.FrameStackObservation(e, 2),
    ),
    "grayscale": (Painting, [("grayscale", None)], own.GrayscaleObservation),
    "grayscale, three axes": (
        Painting,
        [("grayscale", {"keep_dim": True})],
        lambda env: own.GrayscaleObservation(env, keep_dim=True),
    ),
    "bound": (Painting, [("clip_reward", 12.5)], lambda env: own.ClipReward(env, -12.5, 12.5)),
    "sign": (Painting, [("clip_reward", "sign")], lambda env: own.TransformReward(env, lambda r: float(np.sign(r)))),
    "time limit": (Painting, [("time_limit", 3)], lambda env: own.TimeLimit(env, 3)),
    "limit on the last step": (Painting, [("time_limit", 7)], lambda env: own.TimeLimit(env, 7)),
    "any other one": (
        CARTPOLE,
        [("gymnasium.wrappers:DelayObservation", {"delay": 2})],
        lambda env: own.DelayObservation(env, 2),
    ),
    "in order": (
        Painting,
        [
            ("grayscale", None),
            ("clip_reward", 15),
            ("wrappers:Shifted", {"by": 0.0, "bonus": 7}),
            ("clip_reward", 20),
        ],
        lambda env: own.ClipReward(
            own.TransformReward(own.ClipReward(own.GrayscaleObservation(env), -15, 15), lambda r: float(r) + 7), -20, 20
        ),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("shape", "axis"), [((30, 40, 1), 2), ((30, 40, 3), 2), ((3, 30, 40), 0)])
def test_pictures_are_stacked_along_their_channels(shape: tuple[int, ...], axis: int, way: str) -> None:
    wrapped = WAYS[way](lambda: Painting(shape=shape), 2, [("frame_stack", 3)])
    frames = adapt(lambda: own.FrameStackObservation(Painting(shape=shape), 3), {}, 2)
    (space,) = wrapped.interface.observation_spaces
    assert space.shape == tuple(3 * size if place == axis else size for place, size in enumerate(shape))
    for joined, apart in zip(play(wrapped), play(frames), strict=True):  # [lane, frame, ...]
        assert all(
            np.array_equal(mine, np.concatenate(list(its), axis)) for mine, its in zip(joined[0], apart[0], strict=True)
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PAIRS)
def test_a_wrapper_is_gymnasiums_own(name: str, way: str) -> None:
    make, wrappers, wrap = PAIRS[name]
    wrapped, plain = WAYS[way](make, 2, wrappers), adapt(lambda: wrap(make()), {}, 2)
    if name != "in order":
        assert wrapped.interface == plain.interface
    assert same(play(wrapped), play(plain))


@pytest.mark.parametrize("way", WAYS)
def test_the_last_observation_of_an_episode_is_a_stack_of_its_own_frames(way: str) -> None:
    env, alone = WAYS[way](CARTPOLE, 1, [("frame_stack", 3)]), CARTPOLE()
    frames = [alone.reset(seed=1)[0]] * 3
    shown = env.reset(np.ones(1, np.bool_), [1]).observations[0]
    for _ in range(3):
        ended = False
        while not ended:
            np.testing.assert_array_equal(shown[0], np.stack(frames))
            step = env.step([np.zeros(1, np.int64)])
            observation, _, ended, _, _ = alone.step(0)
            frames = [*frames[1:], observation]
            shown = step.frame.observations[0]
        np.testing.assert_array_equal(shown[0], np.stack(frames))
        assert step.terminated.all()
        frames = [alone.reset()[0]] * 3
        shown = env.reset(np.ones(1, np.bool_)).observations[0]


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


def test_large_pictures_are_resized_as_exactly() -> None:
    shape = (300, 280, 3)
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    resize = AreaResize(Painting(shape=shape), (75, 70))
    means = picture.reshape(75, 4, 70, 4, 3).mean(axis=(1, 3))  # sixteenths: a half is a half
    np.testing.assert_array_equal(resize.observation(picture), np.floor(means + 0.5))
    white = np.full(shape, 255, np.uint8)
    assert (resize.observation(white) == 255).all()


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
AROUND: dict[str, Wrappers] = {
    "frame_stack": [("frame_stack", 3)],
    "clip_reward": [("clip_reward", "sign")],
    "time_limit": [("time_limit", 5)],
    "several": [("time_limit", 7), ("frame_stack", 2), ("clip_reward", 0.5), ("frame_stack", 2)],
}


@pytest.mark.parametrize("wrappers", AROUND)
@pytest.mark.parametrize("game", SHARED)
def test_wrapped_games_of_any_kind_keep_the_contract(game: str, wrappers: str) -> None:
    factory, kwargs = SHARED[game]
    env = adapt(factory, kwargs, 2, AROUND[wrappers])
    check_batched_env(env, ticks=25)
    env.close()


@pytest.mark.parametrize("game", ["parallel", "leaving", "batched", "batched choices"])
def test_every_entity_sees_its_own_last_frames(game: str) -> None:
    factory, kwargs = SHARED[game]
    env, plain = adapt(factory, kwargs, 2, [("frame_stack", 2)]), adapt(factory, kwargs, 2)
    entities = range(len(plain.interface.entities))
    for e in entities:
        shape = env.interface.observation_spaces[e].shape
        assert shape == (2, *plain.interface.observation_spaces[e].shape)
    everybody = np.ones(2, np.bool_)
    env_frame, plain_frame = env.reset(everybody, [4, 5]), plain.reset(everybody, [4, 5])
    before = [np.array(column) for column in plain_frame.observations]
    for e in entities:
        np.testing.assert_array_equal(env_frame.observations[e], np.stack([before[e], before[e]], 1))
    in_game = plain_frame.active.copy()
    for _ in range(5):
        actions = [np.full(2, space.start) for space in plain.interface.action_spaces]
        wrapped, step = env.step(actions), plain.step(actions)
        for e in entities:
            stacked = np.stack([before[e], step.frame.observations[e]], 1)
            seen = in_game[:, e]  # who has left sees nothing new
            np.testing.assert_array_equal(wrapped.frame.observations[e][seen], stacked[seen])
            before[e] = np.array(step.frame.observations[e])
        for column in ("rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(wrapped, column), getattr(step, column))
        in_game = step.frame.active.copy()


@pytest.mark.parametrize("game", SHARED)
def test_clipped_rewards_are_the_games_own_within_the_bound(game: str) -> None:
    factory, kwargs = SHARED[game]
    plain = play(adapt(factory, kwargs, 2))
    for argument, clip in ((0.4, lambda r: np.clip(r, -0.4, 0.4)), ("sign", np.sign)):
        clipped = play(adapt(factory, kwargs, 2, [("clip_reward", argument)]))
        assert len(clipped) == len(plain)
        for one, other in zip(clipped, plain, strict=True):
            if other[-1].dtype == np.bool_:  # of a step, not of a reset
                np.testing.assert_array_equal(one[-4], clip(other[-4]))


def test_a_time_limit_truncates_those_who_are_left_and_nobody_twice() -> None:
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


def test_in_a_game_in_turns_a_wrapper_steps_with_its_entity_and_rewards_wait_for_it() -> None:
    env = adapt(tictactoe(), {}, 1, [("wrappers:Shifted", {"by": 0.0, "bonus": 100.0})])
    plain = adapt(tictactoe(), {}, 1)
    moves, everybody = (0, 3, 1, 4, 2), np.ones(1, np.bool_)  # the first player fills the upper row
    env.reset(everybody, [0]), plain.reset(everybody, [0])
    said = []
    for move in moves:
        actions = [np.full(1, move)] * 2
        step, other = env.step(actions), plain.step(actions)
        said.append(step.rewards[0].tolist())
        np.testing.assert_array_equal(step.frame.active, other.frame.active)
        np.testing.assert_array_equal(step.terminated, other.terminated)
    # The bonus comes once per turn: when the entity is to move again, and to both at the end.
    assert said == [[0, 100], [100, 0], [0, 100], [100, 0], [101, 99]]


def test_a_wrapper_may_end_one_entitys_episode_and_hears_its_actions() -> None:
    env = adapt(Dropout, {"lengths": (9, 9)}, 1, [("wrappers:Impatient", 1.5), ("wrappers:Shifted", None)])
    env.reset(np.ones(1, np.bool_), [0], {"level": 3})
    step = env.step([np.array([0]), np.array([1])])
    assert step.terminated[0].tolist() == [False, True]
    assert step.frame.active[0].tolist() == [True, False]
    assert step.frame.infos is not None
    assert [info["action"] for info in step.frame.infos[0]] == [0, 1]
    assert env.step([np.array([0]), np.array([1])]).rewards[0].tolist() == [1.0, 0.0]


def test_wrappers_that_draw_do_so_from_the_lanes_seed_and_differently_for_each_entity() -> None:
    def first(seed: int) -> Any:
        env = adapt(Dropout, {"lengths": (3, 3)}, 2, [("wrappers:Noisy", None)])
        return np.array(env.reset(np.ones(2, np.bool_), [seed, seed + 1]).observations)

    assert np.array_equal(first(1), first(1))
    assert len(np.unique(first(1))) == 4
    assert not np.array_equal(first(1), first(2))


def test_wrapped_lanes_are_closed_and_drawn_as_the_game_is() -> None:
    env = adapt(Touchdown, {}, 1, [("frame_stack", 2), ("time_limit", 3), ("clip_reward", 1)])
    env.reset(np.ones(1, np.bool_), [0])
    assert env.render() is not None
    env.close()


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
        ([("time_limit", {"steps": 4})], "wrappers[0]: time_limit: missing a required argument: 'max_episode_steps'"),
        ([("clip_reward", None)], "wrappers[0]: clip_reward: missing a required argument: 'bound'"),
        ([("resize", {"shape": [8, 8], "size": 4})], "wrappers[0]: resize: got an unexpected keyword argument 'size'"),
        ([("grayscale", {"keep": True})], "wrappers[0]: grayscale: got an unexpected keyword argument 'keep'"),
        ([("frame_stack", 0)], "wrappers[0]: frame_stack: stack_size: got 0, expected a whole number of at least 1"),
        ([("frame_stack", 10**400)], "expected at most 256"),
        ([("frame_stack", {"stack_size": 2, "padding_type": "zeros"})], "did you mean 'zero'?"),
        ([("grayscale", 3)], "wrappers[0]: grayscale: keep_dim: got 3, expected true or false"),
        ([("resize", 84)], "wrappers[0]: resize: shape: got 84, expected height and width, as [84, 84]"),
        ([("resize", [84, 0.5])], "wrappers[0]: resize: shape: got 0.5, expected a whole number"),
        ([("clip_reward", "sin")], "wrappers[0]: clip_reward: bound: got 'sin', expected 'sign' or a number above 0"),
        ([("clip_reward", -1)], "expected 'sign' or a number above 0"),
        ([("clip_reward", 10**400)], "expected 'sign' or a number above 0"),
        ([("clip_reward", True)], "expected 'sign' or a number above 0"),
        ([("time_limit", "4")], "wrappers[0]: time_limit: max_episode_steps: got '4', expected a whole number"),
        (
            [("wrappers:Shifted", {"at": 1})],
            "wrappers[0]: wrappers:Shifted: got an unexpected keyword argument 'at'",
        ),
        ([("wrappers:nothing", None)], "wrappers[0]: wrappers:nothing cannot go around"),
        ([("grayscale", None), ("grayscale", None)], "wrappers[1]: grayscale cannot go around observations Box(0, 255"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_wrapper_or_does_not_fit_is_refused_with_its_place(wrappers: Wrappers, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        adapt(Painting, {}, 1, wrappers)
    assert words in str(caught.value)


def test_pictures_are_asked_for_where_there_are_none() -> None:
    for name in ("grayscale", "resize"):
        with pytest.raises(ConfigError, match=rf"wrappers\[0\]: {name} cannot go around entities that observe Box"):
            adapt(Touchdown, {}, 1, [(name, [4, 4] if name == "resize" else None)])


def test_actions_of_a_shared_game_cannot_be_changed() -> None:
    with pytest.raises(ConfigError, match=r"it turns the actions of 'e0' from Discrete\(2\) into Discrete\(1\), which"):
        adapt(Dropout, {}, 1, [("wrappers:FewerActions", None)])
    adapt(Painting, {}, 1, [("wrappers:FewerActions", None)])  # alone it can
    for name, words in (
        ("OtherActions", "changes actions"),
        ("Skips", "steps the game more than once per tick"),
        ("Restarts", "resets the game by itself"),
    ):
        env = adapt(Dropout, {}, 1, [(f"wrappers:{name}", None)])
        env.reset(np.ones(1, np.bool_), [0])
        with pytest.raises(RuntimeError, match=rf"the wrapper 'wrappers:{name}' \(wrappers\[0\]\) {words}"):
            env.step([np.zeros(1, np.int64)] * 3)


def test_an_observation_that_does_not_fit_the_wrappers_space_names_entity_and_lane() -> None:
    env = adapt(Dropout, {}, 2, [("wrappers:Lies", None)])
    with pytest.raises(
        GameError, match=r"gave 'e0' in lane 0 an observation in the wrapper 'wrappers:Lies' \(wrappers"
    ):
        env.reset(np.ones(2, np.bool_), [0, 1])


def test_gymnasiums_own_environments_are_wrapped_themselves() -> None:
    env = adapt(Painting, {}, 1, [("wrappers:Skips", None)])
    env.reset(np.ones(1, np.bool_), [0])
    step = env.step([np.array([1])])
    assert step.frame.infos is not None
    assert step.frame.infos[0][0]["step"] == 2


@pytest.mark.parametrize("name", ["collections:Counter", "test_wrappers:itself_not"])
def test_what_is_no_wrapper_is_told_so(name: str) -> None:
    with pytest.raises(ConfigError, match="is no Gymnasium wrapper"):
        adapt(CARTPOLE, {}, 1, [(name, None)])


def itself_not(env: Any) -> int:
    """Called like a wrapper."""
    return 3
