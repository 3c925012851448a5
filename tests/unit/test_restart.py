"""Restarting a failed game: when it is allowed, its new seeds, and closing the old game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.errors import ConfigError, GameError
from arena.game.api import BatchedEnv, Frame, Interface, Step
from arena.roles.environment.restart import MOST_RESTARTS, WINDOW, RestartingGame, RestartLimit

ALL = np.ones(2, np.bool_)


class Game:
    """Two lanes of one entity. Fails where `fails` says; `resets` lists the seeds it was given."""

    lanes = 2

    def __init__(self, fails: str = "", n: int = 2) -> None:
        self.interface = Interface(("a",), (Box(-1, 1, (1,), np.float32),), (Discrete(n),), (0,))
        self.fails = fails
        self.resets: list[Any] = []
        self.closed = 0

    def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Frame:
        self.resets.append((seeds, options))
        if self.fails == "reset" and len(self.resets) > 1:
            raise OSError("no reset")
        return Frame([np.zeros((2, 1), np.float32)], np.ones((2, 1), np.bool_), (None,))

    def step(self, actions: Any) -> Step:
        if self.fails == "step":
            raise OSError("no step")
        if self.fails == "interface":
            raise ConfigError("4 values")
        rewards = np.array([[0.0], [np.nan if self.fails == "say" else 0.0]])
        no_ends = np.zeros((2, 1), np.bool_)
        return Step(self.reset(ALL), rewards, no_ends, no_ends)

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.closed += 1
        if self.fails == "close":
            raise OSError("no close")


def guarded(*games: Game, limit: RestartLimit | None = None) -> RestartingGame:
    """Gives out the games one after the other; they play the lanes 6 and 7 of a match."""
    left: list[BatchedEnv] = list(games)
    guard = RestartingGame(lambda: left.pop(0), lanes=range(6, 8), seeds=[10, 20], limit=limit)
    guard.begin()
    return guard


@pytest.mark.parametrize("fails", ["step", "say"])
def test_without_a_limit_of_restarts_a_step_that_fails_raises(fails: str) -> None:
    guard = guarded(Game(fails))
    with pytest.raises((OSError, GameError)):
        guard.step([0])
    assert guard.fault is None


def test_a_game_of_another_interface_is_not_restarted() -> None:
    with pytest.raises(ConfigError, match="4 values"):
        guarded(Game("interface"), Game("interface"), limit=RestartLimit()).step([0])


def test_a_breach_names_the_lane_of_the_match() -> None:
    with pytest.raises(GameError, match="'a' in lane 7 the reward nan"):
        guarded(Game("say")).step([0])


def test_step_and_reset_report_a_failure_below_the_limit() -> None:
    guard = guarded(Game("step"), Game("reset"), limit=RestartLimit())
    assert guard.step([0]) is None
    assert guard.fault is not None
    assert guard.fault.error == "OSError: no step"
    assert guard.fault.trace.startswith("Traceback")
    guard.new_game()
    assert guard.reset(ALL) is None
    assert guard.fault.error == "OSError: no reset"
    assert guard.restarts == 1


def test_seeds_of_a_new_game_depend_on_the_number_of_restarts() -> None:
    games = [Game("step") for _ in range(4)]
    guard = guarded(*games, limit=RestartLimit())
    for _ in range(3):
        guard.new_game()
    given = [game.resets[0][0] for game in games]
    assert given[0] == [10, 20]
    assert len({seed for seeds in given for seed in seeds}) == 8
    again = [Game() for _ in range(2)]
    guarded(*again, limit=RestartLimit()).new_game()
    assert again[1].resets[0][0] == given[1]


def test_requested_seeds_and_options_go_to_the_new_game() -> None:
    games = Game(), Game()
    guarded(*games, limit=RestartLimit()).new_game([None, 5], {"map": 3})
    seeds, options = games[1].resets[0]
    assert (seeds[1], options) == (5, {"map": 3})
    assert seeds[0] not in (None, 10)


def test_a_failed_game_is_closed_and_its_close_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    games = Game("close"), Game("close")
    guard = guarded(*games, limit=RestartLimit())
    guard.new_game()
    assert games[0].closed == 1
    guard.close()
    assert caplog.text.count("OSError: no close") == 2


def test_failing_close_ends_the_run_without_restarts() -> None:
    with pytest.raises(OSError, match="no close"):
        guarded(Game("close")).close()


def test_a_new_game_with_another_interface_is_refused() -> None:
    with pytest.raises(GameError, match="another interface after a restart"):
        guarded(Game("step"), Game(n=3), limit=RestartLimit()).new_game()


def test_restarts_within_a_window_are_limited() -> None:
    now = 0.0
    limit = RestartLimit(clock=lambda: now)
    assert [limit.allows() for _ in range(MOST_RESTARTS + 2)] == [True] * MOST_RESTARTS + [False] * 2
    now = WINDOW - 0.01
    assert not limit.allows()
    now = WINDOW
    assert limit.allows()


def test_the_blocks_of_a_match_share_its_limit() -> None:
    limit = RestartLimit()
    first, second = guarded(Game("step"), limit=limit), guarded(Game("step"), limit=limit)
    for _ in range(MOST_RESTARTS):
        assert first.step([0]) is None
    with pytest.raises(OSError, match="no step"):
        second.step([0])


def test_exit_and_interrupt_are_never_restarted() -> None:
    for stop in (SystemExit, KeyboardInterrupt):
        game = Game()
        game.step = lambda actions, stop=stop: (_ for _ in ()).throw(stop())  # type: ignore[method-assign]
        with pytest.raises(stop):
            guarded(game, limit=RestartLimit()).step([0])
