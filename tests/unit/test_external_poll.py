"""Games of environments that are polled."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.config.schema import TickRules
from arena.errors import ConfigError, GameError
from arena.external import ExternalClosed, ExternalError
from arena.external.poll import ALL, PolledGames, PollResult
from arena.game.api import Interface
from arena.testing import check_external_games
from external_connections import Playing, QueuedEnv, play_polled, polled

SEEN = Box(-np.inf, np.inf, (1,), np.float32)
TWO = Interface(("hero", "rival"), (SEEN, SEEN), (Discrete(3), Discrete(3)), (0, 3))


def seen(value: float) -> Any:
    return np.array([value], np.float32)


@pytest.fixture
def env() -> QueuedEnv:
    return QueuedEnv(TWO)


@pytest.fixture
def playing(env: QueuedEnv) -> Iterator[Playing]:
    with Playing(PolledGames(env), 2, actions=(1, 2)) as one:
        yield one
    assert env.stopped


@pytest.mark.slow
def test_polled_environments_keep_the_contract() -> None:
    check_external_games(polled, play_polled, limit_s=60.0)


def test_a_game_from_its_first_observation_to_its_end(env: QueuedEnv, playing: Playing) -> None:
    env.show(observations={"hero": seen(1), "rival": seen(2)}, infos={"rival": {"action_mask": [0, 0, 1]}})
    assert merged(env, 2) == {"hero": 1, "rival": 2}
    env.show(rewards={"hero": 4.0, "rival": 1.0}, terminateds={"hero": True}, observations={"hero": seen(3)})
    env.show(rewards={"rival": 2.0}, truncateds={ALL: True}, infos={"rival": {"outcome": "win"}})
    game = playing.account()
    assert (game.name, game.returns.tolist(), game.lengths.tolist()) == ("a", [4.0, 3.0], [1, 1])
    assert game.terminated and game.truncated and game.outcomes == {1: "win"} and not game.lost
    playing.until(lambda: env.was_reset == ["a"])


def merged(env: QueuedEnv, count: int, env_id: Any = "a") -> dict[str, Any]:
    """The actions of several agents, which may arrive in one tick or in several."""
    actions: dict[str, Any] = {}
    while len(actions) < count:
        actions.update(env.hear(env_id))
    return actions


def test_agents_may_come_late_leave_early_and_take_turns(env: QueuedEnv, playing: Playing) -> None:
    env.show(observations={"rival": seen(1)})
    assert env.hear() == {"rival": 2}
    env.show(observations={"hero": seen(2)}, terminateds={"rival": True}, rewards={"rival": 1.0})
    assert env.hear() == {"hero": 1}
    env.show(rewards={"hero": 7.0}, terminateds={"hero": True})
    game = playing.account()
    assert game.returns.tolist() == [7.0, 1.0] and game.lengths.tolist() == [1, 1]


def test_games_continue_with_the_observations_of_try_reset() -> None:
    env = QueuedEnv(TWO, resets={"hero": seen(5)})
    with Playing(PolledGames(env), 1, actions=(1, 2)) as playing:
        env.show("g", observations={"hero": seen(1)})
        for _ in range(4):
            assert env.hear("g") == {"hero": 1}
            env.show("g", terminateds={ALL: True})
        playing.until(lambda: playing.table.counts.begun == 5)
        assert env.was_reset == ["g"] * 4


def test_one_poll_brings_many_games(env: QueuedEnv, playing: Playing) -> None:
    for env_id in (0, ("b", 1)):
        env.show(env_id, observations={"hero": seen(1)})
    assert env.hear(0) == env.hear(("b", 1)) == {"hero": 1}
    for env_id in (0, ("b", 1)):
        env.show(env_id, truncateds={ALL: True})
    playing.until(lambda: len(playing.finished) == 2)
    assert {game.name for game in playing.finished} == {"0", "('b', 1)"}


def test_abandoned_game_is_reset() -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1, TickRules(idle_s=0.05)):
        env.show(observations={"hero": seen(1)})
        assert env.hear() == {"hero": 0}
        with pytest.raises(ExternalError, match="expired"):
            env.hear()
        env.show(rewards={"hero": 1.0}, terminateds={ALL: True})  # of the game that was given up
        env.show(observations={"hero": seen(1)})
        assert env.hear() == {"hero": 0}
    assert env.was_reset[0] == "a"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"observations": {"villain": seen(1)}}, "unknown agents .'villain'."),
        ({"observations": {"hero": np.zeros(2, np.float32)}}, "agent 'hero': bad_observation"),
        ({"observations": {"hero": seen(1)}, "rewards": {"hero": np.nan}}, "agent 'hero': bad_reward"),
        ({"observations": {"rival": seen(1)}, "infos": {"rival": {"action_mask": [0, 0, 0]}}}, "bad_mask"),
        ({"observations": {"hero": seen(1)}, "given": {"hero": 9}}, "bad_action"),
    ],
)
def test_refused_request_is_a_failure_of_the_environment(parts: dict[str, Any], message: str) -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1) as playing:
        env.show(**parts)
        with pytest.raises(AssertionError, match=message):
            playing.until(lambda: False)
        assert isinstance(playing.error, GameError)


def test_five_items_are_read_in_the_order_of_rllib() -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1, actions=(1, 2)) as playing:
        env.heard["a"] = queue.Queue()
        env.results.put(({"a": {"hero": seen(1), "rival": seen(1)}}, {}, {}, {}, {}))
        assert merged(env, 2) == {"hero": 1, "rival": 2}
        shown, paid = {"hero": seen(2), "rival": seen(2)}, {"hero": 3.0, "rival": 1.0}
        infos = {"hero": {"key": 1}, "rival": {"action_mask": [1, 0, 1]}}
        env.results.put(({"a": shown}, {"a": paid}, {"a": {ALL: False}}, {"a": infos}, {"a": {"hero": 2}}))
        assert env.hear() == {"rival": 2}
        env.results.put(({}, {"a": paid}, {"a": {ALL: True}}, {}, {}))
        game = playing.account()
    assert (game.returns.tolist(), game.lengths.tolist(), game.terminated) == ([6.0, 2.0], [2, 2], True)
    assert playing.table.counts.given == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (({}, {}, {}, {}), r"4 values from poll\(\); expected a PollResult"),
        ({}, r"a dict from poll\(\)"),
        (
            ({"a": {"hero": 1}}, {}, {"a": {ALL: False}}, {"a": {ALL: False}}, {}),
            "False among the infos .* RLlib's order",
        ),
        (({}, {}, {}, {"a": {"hero": {"k": 1}}}, {}, {}), "among the truncateds from poll"),
        (({}, {"a": 1.0}, {}, {}, {}), "as rewards from poll"),
    ],
)
def test_other_results_of_poll_are_refused_with_the_orders(given: Any, message: str) -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1) as playing:
        env.results.put(given)
        with pytest.raises(AssertionError, match=message):
            playing.until(lambda: False)
        assert isinstance(playing.error, GameError)


def test_try_reset_with_infos_is_refused() -> None:
    env = QueuedEnv(TWO, resets=({"hero": seen(5)}, {}))
    with Playing(PolledGames(env), 1, actions=(1, 2)) as playing:
        env.show("g", observations={"hero": seen(1)})
        env.hear("g")
        env.show("g", terminateds={ALL: True})
        with pytest.raises(AssertionError, match="a tuple from try_reset"):
            playing.until(lambda: False)


def test_an_environment_without_spaces_is_named() -> None:
    with pytest.raises(ConfigError, match="QueuedEnv has no spaces"):
        PolledGames(QueuedEnv(Interface((), (), (), ())))


def test_games_are_notified_of_the_end_of_the_run() -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1, TickRules(max_delay_s=60.0)) as playing:
        env.show(observations={"hero": seen(1)})
        playing.until(lambda: playing.table.running == 1)
        env.heard["a"].get(timeout=60)
    with pytest.raises(ExternalClosed):
        env.hear()


def test_an_environment_that_is_ahead_of_the_ticks_is_not_polled() -> None:
    env = QueuedEnv(TWO)
    with Playing(PolledGames(env), 1) as playing:
        env.show(observations={"hero": seen(0)}, given={"hero": 1})
        playing.until(lambda: playing.table.counts.begun == 1)
        playing.stop()
        for number in range(300):
            env.show(observations={"hero": seen(number)}, given={"hero": 1})
        time.sleep(0.5)
        assert env.results.qsize() > 100
        playing.resume()
        playing.until(lambda: playing.table.counts.given == 301)


class SlowReset(QueuedEnv):
    """The reset of `a` lasts until `b` was abandoned and begun anew."""

    def __init__(self) -> None:
        super().__init__(TWO)
        self.begun_anew = threading.Event()

    def try_reset(self, env_id: Any) -> dict[str, Any]:
        if env_id == "a":
            assert self.begun_anew.wait(60)
        return {"hero": seen(1)}


def test_stale_poll_results_do_not_enter_the_next_game() -> None:
    env = SlowReset()
    with Playing(PolledGames(env), 2, TickRules(idle_s=0.1)) as playing:
        for env_id in "ab":
            env.show(env_id, observations={"hero": seen(1)})
            assert env.hear(env_id) == {"hero": 0}
        ends = {"a": {ALL: True}}
        env.results.put(PollResult({"a": {"hero": seen(2)}, "b": {"hero": seen(9)}}, terminateds=ends))
        with pytest.raises(ExternalError, match="expired"):
            env.hear("b")
        assert env.hear("b") == {"hero": 0}, "the action of the next game"
        env.begun_anew.set()
        assert env.hear("a") == {"hero": 0}
        time.sleep(0.05)
        assert playing.error is None and not playing.table.counts.refused_by
