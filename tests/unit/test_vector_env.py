"""Vector environments against their sub-environments alone, in every autoreset mode."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers

import vector_games
from arena import registry
from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv, Frame
from arena.game.infos import warn_no_mask
from arena.testing import check_batched_env
from envs.adapters import adapt, gymnasium_factory
from vector_games import Masked, Walk, Walks

MODES = ["SameStep", "NextStep", "Disabled"]
LANES = 3


def sync(num_envs: int, mode: str = "Disabled", game: Any = None, **kwargs: Any) -> VectorEnv[Any, Any, Any]:
    make = gymnasium_factory("CartPole-v1") if game is None else game
    return SyncVectorEnv([make] * num_envs, autoreset_mode=mode, **kwargs)


def parallel(num_envs: int, mode: str) -> VectorEnv[Any, Any, Any]:
    return AsyncVectorEnv([gymnasium_factory("CartPole-v1")] * num_envs, autoreset_mode=mode)


def counted(num_envs: int) -> VectorEnv[Any, Any, Any]:
    return wrappers.RecordEpisodeStatistics(sync(num_envs, "SameStep"))


def walks(num_envs: int, mode: str) -> Walks:
    return Walks(num_envs, mode)


def shown(frame: Frame, lane: int) -> tuple[Any, ...]:
    return frame.observations[0][lane].tolist(), bool(frame.active[lane, 0])


def played(game: BatchedEnv, ticks: int, *, seeds: bool = True) -> Iterator[tuple[Any, ...]]:
    """All that a game of three lanes shows of random actions: (lane, what), in lanes where an episode begins too."""
    rng = np.random.default_rng(5)
    frame = game.reset(np.ones(LANES, bool), [7, 8, 9] if seeds else None)
    yield from ((lane, *shown(frame, lane)) for lane in range(LANES))
    for _ in range(ticks):
        step = game.step([rng.integers(0, 2, LANES)])
        for lane in range(LANES):
            ends = (step.rewards[lane, 0], step.terminated[lane, 0], step.truncated[lane, 0])
            yield lane, *shown(step.frame, lane), *map(float, ends)
        if (over := (step.terminated | step.truncated)[:, 0]).any():
            frame = game.reset(over)
            yield from ((lane, *shown(frame, lane)) for lane in np.flatnonzero(over).tolist())


@pytest.mark.parametrize(
    ("make", "alone", "mode"),
    [
        *((sync, gymnasium_factory("CartPole-v1"), mode) for mode in MODES),
        *(pytest.param(parallel, gymnasium_factory("CartPole-v1"), mode, marks=pytest.mark.slow) for mode in MODES),
        *((walks, Walk, mode) for mode in ("SameStep", "Disabled")),  # in the other mode resets come a tick later
    ],
)
def test_vector_env_plays_as_its_games_alone(make: Any, alone: Any, mode: str) -> None:
    vector, single = adapt(make, {"mode": mode}, LANES), adapt(alone, {}, LANES)
    assert vector.interface.joint == ""
    seen = list(played(vector, 200))
    assert len(seen) > 3 * 201 + 10, "episodes have ended"
    assert seen == list(played(single, 200))
    vector.close()


@pytest.mark.parametrize("mode", MODES)
def test_vector_env_keeps_the_interface(mode: str) -> None:
    games = [adapt(walks, {"mode": mode}, LANES) for _ in range(2)]
    check_batched_env(games[0], again=games[1])


def test_next_step_env_begins_a_tick_later() -> None:
    """Against the environment alone: one more tick, on which the lane is not active and gets nothing."""
    game, alone = (
        adapt(registry.environment_factory("gymnasium_vec:CartPole-v1"), {}, LANES),
        gymnasium.make_vec("CartPole-v1", num_envs=LANES),
    )
    assert game.interface.joint == "CartPoleVectorEnv takes one seed for all lanes"
    rng, all_lanes = np.random.default_rng(1), np.ones(LANES, bool)
    frame, due, ends = game.reset(all_lanes, [7, 8, 9]), np.zeros(LANES, bool), 0
    np.testing.assert_array_equal(frame.observations[0], alone.reset(seed=7)[0])
    for _ in range(200):
        actions = rng.integers(0, 2, LANES)
        step, (observed, rewards, terminated, truncated, _) = game.step([actions]), alone.step(actions)
        np.testing.assert_array_equal(step.frame.observations[0], observed)
        np.testing.assert_array_equal(step.rewards[:, 0], rewards)
        assert not rewards[due].any()
        np.testing.assert_array_equal(step.terminated[:, 0], terminated)
        due = terminated | truncated
        np.testing.assert_array_equal(step.frame.active[:, 0], ~due)
        if due.any():
            ends += 1
            assert not game.reset(due).active[due].any()
    assert ends > 5


def test_wrappers_of_gymnasium_give_what_they_give_alone() -> None:
    game, alone = adapt(counted, {}, 2), counted(2)
    game.reset(np.ones(2, bool), [3, 4])
    alone.reset(seed=[3, 4])
    found = 0
    for _ in range(60):
        game.step([np.zeros(2, int)])
        _, _, terminated, _, infos = alone.step(np.zeros(2, int))
        if terminated.any():
            frame = game.reset(terminated)  # Gymnasium has the statistics among the infos of the next episode
            assert frame.infos is not None
        for lane in np.flatnonzero(terminated).tolist():
            assert frame.infos[lane][0]["episode"]["r"] == infos["episode"]["r"][lane] > 5
            found += 1
    assert found > 5


def test_normalized_observations_are_of_all_lanes() -> None:
    def normalized(num_envs: int) -> Any:
        return wrappers.NormalizeObservation(sync(num_envs, "NextStep"))

    game = adapt(normalized, {}, 2)
    assert "NormalizeObservation can have one state for all lanes" in game.interface.joint
    alone = normalized(2)
    for seed in ([0, 0], [3, 4]):  # the first shows whether there are masks
        alone.reset(seed=seed)
    frame = game.reset(np.ones(2, bool), [3, 4])
    for _ in range(30):
        step, expected = game.step([np.zeros(2, int)]), alone.step(np.zeros(2, int))
        np.testing.assert_array_equal(step.frame.observations[0], expected[0])
        if (over := (step.terminated | step.truncated)[:, 0]).any():
            game.reset(over)
    assert frame.observations[0].dtype == np.float32


@pytest.mark.parametrize("mode", MODES)
def test_masks_and_infos_are_of_their_lanes(mode: str) -> None:
    game = adapt(lambda num_envs: sync(num_envs, mode, Masked), {}, 2)
    assert game.interface.mask_sizes == (2,)
    frame = game.reset(np.ones(2, bool), [1, 2])
    for tick in range(12):
        mask = frame.masks[0]
        assert mask is not None
        assert mask.tolist() == [np.eye(2)[tick % 5 % 2].tolist()] * 2
        step = game.step([np.argmax(mask, axis=1)])
        assert step.frame.infos is not None
        assert [info[0]["tick"] for info in step.frame.infos] == [tick % 5 + 1] * 2
        frame = game.reset(np.ones(2, bool)) if step.terminated.all() else step.frame


@pytest.mark.parametrize("mode", MODES)
def test_a_lane_without_its_mask_is_allowed_everything(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    class Forgets(Masked):
        def _seen(self) -> tuple[Any, dict[str, Any]]:
            observation, info = super()._seen()
            return observation, {} if self.ticks == 3 else info

    warn_no_mask.cache_clear()
    game = adapt(lambda num_envs: sync(num_envs, mode, Forgets), {}, 2)
    game.reset(np.ones(2, bool), [1, 2])
    for tick in range(2):
        game.step([np.full(2, tick)])
    assert not caplog.messages
    mask = game.step([np.zeros(2, int)]).frame.masks[0]
    assert mask is not None and mask.all()
    (told,) = caplog.messages
    assert told.startswith("the game gave 'agent_0' no action mask, though the first reset had one: everything")


@pytest.mark.parametrize("mode", MODES)
def test_sub_environments_beyond_the_lanes_change_nothing(mode: str) -> None:
    more, exact = adapt(lambda: sync(5, mode), {}, LANES), adapt(lambda: sync(3, mode), {}, LANES)
    assert list(played(more, 100)) == list(played(exact, 100))


def test_a_lane_alone_can_be_reset_and_seeded() -> None:
    game, single = adapt(sync, {}, LANES), adapt(gymnasium_factory("CartPole-v1"), {}, LANES)
    for each in (game, single):
        each.reset(np.ones(LANES, bool), [1, 2, 3])
        each.step([np.zeros(LANES, int)])
    frames = [each.reset(np.array([False, True, False]), [None, 77, None]) for each in (game, single)]
    np.testing.assert_array_equal(frames[0].observations[0][1], frames[1].observations[0][1])
    steps = [each.step([np.ones(LANES, int)]) for each in (game, single)]
    np.testing.assert_array_equal(steps[0].frame.observations[0], steps[1].frame.observations[0])


def test_time_limit_ends_episodes_of_single_lanes() -> None:
    limited = [("time_limit", 7)]
    games = [adapt(make, {}, LANES, limited) for make in (sync, gymnasium_factory("CartPole-v1"))]
    assert list(played(games[0], 60)) == list(played(games[1], 60))
    together = list(played(adapt(sync, {"mode": "SameStep"}, LANES, [("time_limit", 10)]), 200))
    assert together == list(played(adapt(gymnasium_factory("CartPole-v1"), {}, LANES, [("time_limit", 10)]), 200))
    with pytest.raises(ConfigError, match="CartPoleVectorEnv resets no single lane; limit the episodes in") as caught:
        adapt(registry.environment_factory("gymnasium_vec:CartPole-v1"), {}, LANES, limited)
    assert caught.value.path == "wrappers[0]"


def test_async_env_leaves_no_process() -> None:
    before = multiprocessing.active_children()
    game = adapt(lambda num_envs: parallel(num_envs, "SameStep"), {}, 2)
    assert len(multiprocessing.active_children()) == len(before) + 2
    game.close()
    assert multiprocessing.active_children() == before
    with pytest.raises(ConfigError, match="has 2 sub-environments for 3 lanes"):
        adapt(lambda: parallel(2, "SameStep"), {}, 3)
    assert multiprocessing.active_children() == before


class Dies(Walk):
    """Its process ends on the first tick."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        os._exit(3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting")
def test_async_env_of_which_a_process_dies_can_be_closed() -> None:
    game = adapt(lambda: AsyncVectorEnv([Walk, Dies]), {}, 2)
    game.reset(np.ones(2, bool), [1, 2])
    with pytest.raises(GameError, match="a process of AsyncVectorEnv has died"):
        game.step([np.zeros(2, int)])
    game.close()
    assert not multiprocessing.active_children()


def odd(num_envs: int, **kwargs: Any) -> Walks:
    return Walks(num_envs, **kwargs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (vector_games.unequal, "SyncVectorEnv have unequal observation spaces, not 2 times Box.*; give all the same"),
        (vector_games.three, r"Walks has 3 sub-environments for 4 lanes; set lanes: 3, or .* num_envs gets it"),
        (
            lambda num_envs: odd(num_envs, says=None, does="Disabled"),
            r"metadata\['autoreset_mode'\] is None; set it to",
        ),
        (lambda num_envs: odd(num_envs, says="Late", does="Disabled"), "autoreset_mode'] is 'Late'"),
        (lambda num_envs: Walk(), "Walk was made with `num_envs`; expected a gymnasium.vector.VectorEnv"),
    ],
)
def test_unfit_vector_env_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapt(make, {}, 4 if make is vector_games.three else 2)


@pytest.mark.parametrize(
    ("says", "does", "message"),
    [
        ("SameStep", "NextStep", "no `final_obs` in the infos of sub-environment"),
        ("SameStep", "Disabled", "no `final_obs` in the infos of sub-environment"),
        ("NextStep", "SameStep", "`final_obs` in the infos shows that it resets on the tick of the end"),
        ("NextStep", "Disabled", "on the tick after an end it plays on"),
        ("Disabled", "SameStep", "`final_obs` in the infos shows"),
    ],
)
def test_other_mode_than_it_says_is_refused(says: str, does: str, message: str) -> None:
    game = adapt(lambda num_envs: Walks(num_envs, says, does), {}, LANES)
    with pytest.raises(GameError, match=f"{message}.*of Walks is {AutoresetMode(says).name}; set it to the mode"):
        list(played(game, 50))


def test_reset_of_more_lanes_than_asked_is_refused() -> None:
    game = adapt(lambda num_envs: Walks(num_envs, "Disabled", resets_all=True), {}, LANES)
    with pytest.raises(
        GameError, match=r"a reset of some lanes \(options\['reset_mask'\]\) changes other observations"
    ):
        list(played(game, 50))


@pytest.mark.parametrize(
    ("lanes", "seeds", "message"),
    [
        ([True, False, False], None, "a reset of lane 0 alone, in the midst of its episode: CartPoleVectorEnv cannot"),
        ([True, True, True], [1, None, 2], "a seed for some lanes alone: CartPoleVectorEnv takes one for all lanes"),
    ],
)
def test_reset_that_the_env_cannot_do_is_refused(lanes: list[bool], seeds: Any, message: str) -> None:
    game = adapt(registry.environment_factory("gymnasium_vec:CartPole-v1"), {}, LANES)
    game.reset(np.ones(LANES, bool), [1, 2, 3])
    with pytest.raises(GameError, match=message):
        game.reset(np.array(lanes), seeds)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "envpool", vector_games.envpool())
    return registry.environment_factory("envpool:CartPole-v1")


def test_envpool_plays_as_its_games_alone(pool: Any) -> None:
    game, single = adapt(pool, {}, LANES), adapt(gymnasium_factory("CartPole-v1"), {}, LANES)
    assert list(played(game, 200)) == list(played(single, 200))
    assert game.interface.joint == ""


def test_envpool_takes_large_seeds_and_gives_infos_of_ends(pool: Any) -> None:
    game = adapt(pool, {}, 2)
    game.reset(np.ones(2, bool), [2**32 - 1, 2**31])
    found = []
    for _ in range(40):
        step = game.step([np.zeros(2, int)])
        over = (step.terminated | step.truncated)[:, 0]
        assert (step.frame.infos is not None) == over.any()
        if step.frame.infos is not None:
            found += [step.frame.infos[lane][0] for lane in np.flatnonzero(over)]
            game.reset(over)
    assert len(found) > 5
    assert all(info.keys() == {"lives"} for info in found)


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        ({"seeds": [1, None]}, "a seed for some lanes alone: EnvPool takes seeds when a pool is made"),
        ({"options": {"speed": 2}}, "the reset options speed: the games of EnvPool take none"),
    ],
)
def test_envpool_refuses_what_it_cannot_do(reset: dict[str, Any], message: str, pool: Any) -> None:
    game = adapt(pool, {}, 2)
    game.reset(np.ones(2, bool), [1, 2])
    with pytest.raises(GameError, match=message):
        game.reset(np.array([True, "options" in reset]), **reset)


def test_unknown_pools_are_refused(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="EnvPool has no game 'CartPol-v1'; did you mean 'CartPole-v1'"):
        registry.environment_factory("envpool:CartPol-v1")
    with pytest.raises(ConfigError, match="the arena itself sets this argument of a pool") as caught:
        adapt(pool, {"batch_size": 2}, 2)
    assert caught.value.path == "batch_size"
    with pytest.raises(ConfigError, match="CartPole-v1 of EnvPool has 2 players, and rows for some of them"):
        adapt(pool, {"players": 2}, 2)
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        ConfigError, match=r"EnvPool cannot make 'Pong-v5': .*pip install \"mpi-policy-arena\[envpool\]\""
    ):
        registry.environment_factory("envpool:Pong-v5")


@pytest.mark.long
@pytest.mark.parametrize("game", ["CartPole-v1", "Pong-v5", "HalfCheetah-v4"])
def test_pool_of_the_package_plays_each_lane_alone(game: str) -> None:
    """Needs `pip install ".[envpool]"`; CI plays the stand-in above."""
    make = registry.environment_factory(f"envpool:{game}")
    rng, whole, alone = np.random.default_rng(0), adapt(make, {}, 3), adapt(make, {}, 1)
    (acted,) = whole.interface.action_spaces
    acted.seed(1)
    frames = [whole.reset(np.ones(3, bool), [4, 5, 6]), alone.reset(np.ones(1, bool), [5])]
    for _ in range(int(rng.integers(200, 300))):
        np.testing.assert_array_equal(frames[0].observations[0][1], frames[1].observations[0][0])
        actions = np.stack([acted.sample() for _ in range(3)])
        steps = [whole.step([actions]), alone.step([actions[1:2]])]
        frames = [step.frame for step in steps]
        assert steps[0].rewards[1] == steps[1].rewards[0]
        over = (steps[0].terminated | steps[0].truncated)[:, 0]
        if over.any():
            np.testing.assert_array_equal(frames[0].observations[0][1], frames[1].observations[0][0])
            first = whole.reset(over)
            if over[1]:
                frames = [first, alone.reset(np.ones(1, bool))]
