"""Games in JAX: connect four of pgx against PettingZoo's, the form of Gymnax against its functions, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jax_games
from arena import registry
from arena.errors import ConfigError, GameError
from arena.testing import check_batched_env
from envs.adapters import adapt, pettingzoo_factory

pytestmark = pytest.mark.slow  # JAX compiles each game for a second or two


def pgx(game: str, lanes: int) -> Any:
    return adapt(registry.environment_factory("pgx:make"), {"env_id": game}, lanes)


def test_connect_four_of_pgx_is_that_of_pettingzoo() -> None:
    """Two programs of the same rules: observations, masks, rewards and ends of whole games with random moves."""
    lanes, rng, games = 4, np.random.default_rng(3), 0
    mine, theirs = pgx("connect_four", lanes), adapt(pettingzoo_factory("classic.connect_four_v3"), {}, lanes)
    assert mine.interface.mask_sizes == theirs.interface.mask_sizes == (7, 7)
    assert mine.interface.outcome == theirs.interface.outcome == "higher_return"
    every = np.ones(lanes, bool)
    frame, other = mine.reset(every, [1, 2, 3, 4]), theirs.reset(every, [1, 2, 3, 4])
    first = frame.active.argmax(axis=1)  # pgx draws who begins
    for _ in range(120):
        rows = np.arange(lanes)
        player, their_player = frame.active.argmax(axis=1), other.active.argmax(axis=1)
        np.testing.assert_array_equal(player ^ first, their_player)
        seen, masks = np.stack(frame.observations, 1), np.stack(frame.masks, 1)  # type: ignore[arg-type]
        np.testing.assert_array_equal(masks[rows, player], np.stack(other.masks, 1)[rows, their_player])  # type: ignore[arg-type]
        np.testing.assert_array_equal(seen[rows, player], np.stack(other.observations, 1)[rows, their_player])
        moves = np.array([rng.choice(np.flatnonzero(masks[lane, player[lane]])) for lane in range(lanes)])
        step, their_step = mine.step([moves, moves]), theirs.step([moves, moves])
        of_first = np.where((first == 0)[:, None], step.rewards, step.rewards[:, ::-1])
        np.testing.assert_array_equal(of_first, their_step.rewards)
        np.testing.assert_array_equal(step.terminated, their_step.terminated)
        frame, other = step.frame, their_step.frame
        over = step.terminated.all(axis=1)
        if over.any():
            games += int(over.sum())
            before = frame.active.copy()
            frame, other = mine.reset(over), theirs.reset(over)
            np.testing.assert_array_equal(frame.active[~over], before[~over])
            first = np.where(over, frame.active.argmax(axis=1), first)
    assert games > 8
    assert set(first.tolist()) == {0, 1}


@pytest.mark.parametrize("game", ["tic_tac_toe", pytest.param("kuhn_poker", marks=pytest.mark.long)])
def test_pgx_game_keeps_the_interface(game: str) -> None:
    check_batched_env(pgx(game, 3), again=pgx(game, 3))


def test_a_lane_of_pgx_plays_the_same_alone() -> None:
    whole, alone = pgx("tic_tac_toe", 3), pgx("tic_tac_toe", 1)
    assert whole.interface.joint == ""
    frames = [whole.reset(np.ones(3, bool), [5, 6, 7]), alone.reset(np.ones(1, bool), [6])]
    for _ in range(30):
        assert [each[1].tolist() for each in frames[0].observations] == [
            each[0].tolist() for each in frames[1].observations
        ]
        assert frames[0].active[1].tolist() == frames[1].active[0].tolist()
        masks = np.stack(frames[0].masks)
        moves = masks.argmax(axis=2)
        steps = whole.step(list(moves)), alone.step(list(moves[:, 1:2]))
        frames = [step.frame for step in steps]
        over = steps[0].terminated.all(axis=1)
        if over.any():
            frames[0] = whole.reset(over)
        if over[1]:
            frames[1] = alone.reset(np.ones(1, bool))


@pytest.mark.parametrize(("make", "goal"), [(jax_games.Line, 5.0), (jax_games.with_params, 3.0)])
def test_gymnax_form_plays_as_its_functions(make: Any, goal: float) -> None:
    """One lane by hand: the keys are those that the seed gives, one half for the game, one for the next."""
    game = adapt(make, {} if make is jax_games.Line else {"goal": goal}, 2)
    assert "XLA can round the numbers of the JAX game Line" in game.interface.joint
    env, params = jax_games.Line(), jax_games.Params(goal=goal)
    key, own = jax.random.split(jax.random.PRNGKey(9))
    observation, state = env.reset_env(own, params)
    frame, ends = game.reset(np.ones(2, bool), [8, 9]), [0, 0]
    for tick in range(60):
        np.testing.assert_allclose(frame.observations[0][1], observation, rtol=1e-6)
        action = tick % 3
        step = game.step([np.array([0, action])])
        key, own = jax.random.split(key)
        observation, state, reward, terminated, _ = env.step_env(own, state, action, params)
        truncated = bool(env.is_truncated(state, params)) and not terminated
        np.testing.assert_allclose(step.rewards[1, 0], reward, rtol=1e-6)
        assert (step.terminated[1, 0], step.truncated[1, 0]) == (terminated, truncated)
        ends = [ends[0] + bool(terminated), ends[1] + truncated]
        frame, over = step.frame, (step.terminated | step.truncated)[:, 0]
        if over[1]:
            key, own = jax.random.split(key)
            observation, state = env.reset_env(own, params)
        if over.any():
            frame = game.reset(over)
    assert ends[0] > 3 or goal == 5.0
    assert sum(ends) > 3


def test_gymnax_form_keeps_the_interface() -> None:
    check_batched_env(adapt(jax_games.Line, {}, 3), again=adapt(jax_games.Line, {}, 3), ticks=60)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (jax_games.FromOutside, "reset of the JAX game FromOutside is not a pure function .*numbers from outside"),
        (jax_games.Counting, "reset of the JAX game Counting is not a pure function .*numbers from outside"),
        (jax_games.Keeping, "reset of the JAX game Keeping is not a pure function .*[Ll]eak"),
        (jax_games.Printing, "reset of the JAX game Printing is not a pure function .*it has effects: "),
        (jax_games.Branching, "step of the JAX game Branching is not a pure function .*Tracer.*; compute all from"),
        (jax_games.Growing, "step of the JAX game Growing changes shapes or dtypes of the state: .*float32"),
    ],
)
def test_impure_game_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapt(make, {}, 2)


def test_reset_options_are_refused() -> None:
    with pytest.raises(GameError, match="the reset options speed: a JAX game takes none"):
        adapt(jax_games.Line, {}, 2).reset(np.ones(2, bool), None, {"speed": 1})
