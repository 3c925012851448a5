"""Restarting a failed game: when it is allowed, its new seeds, and closing the old game."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.config import parse_config
from arena.errors import ConfigError, GameError, PeerLost
from arena.game.api import BatchedEnv, Frame, Interface, Step
from arena.plan.build import make_plan
from arena.roles.environment.environment import Environment
from arena.roles.environment.restart import MOST_RESTARTS, WINDOW, RestartingGame, RestartLimit
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.transport.endpoint import LinkSet, LinkSize
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from faulty_games import Faulty

ALL = np.ones(2, np.bool_)


class Game:
    """Two lanes of one entity. Fails where `fails` says."""

    lanes = 2

    def __init__(self, fails: str = "", n: int = 2) -> None:
        self.interface = Interface(("a",), (Box(-1, 1, (1,), np.float32),), (Discrete(n),), (0,))
        self.fails = fails

    def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Frame:
        return Frame([np.zeros((2, 1), np.float32)], np.ones((2, 1), np.bool_), (None,))

    def step(self, actions: Any) -> Step:
        if self.fails == "step":
            raise OSError("no step")
        if self.fails == "interface":
            raise ConfigError("4 values")
        no_ends = np.zeros((2, 1), np.bool_)
        return Step(self.reset(ALL), np.zeros((2, 1)), no_ends, no_ends)

    def render(self) -> None: ...

    def close(self) -> None:
        if self.fails == "close":
            raise OSError("no close")


def guarded(*games: Game, limit: RestartLimit | None = None) -> RestartingGame:
    """Gives out the games one after the other."""
    left: list[BatchedEnv] = list(games)
    guard = RestartingGame(lambda: left.pop(0), lanes=range(2), seeds=[10, 20], limit=limit)
    guard.begin()
    return guard


def test_a_game_of_another_interface_is_not_restarted() -> None:
    with pytest.raises(ConfigError, match="4 values"):
        guarded(Game("interface"), Game("interface"), limit=RestartLimit()).step([0])


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


# The environment role: the games of a leg are closed if it cannot begin


DATA = {
    "name": "test",
    "ticks": 20,
    "envs": {"game": {"make": "faulty_games:Faulty", "kwargs": {"faulty": 0}}},
    "policies": {"blue": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue"], "lanes": 2, "pipeline": 2}],
}


class LosesPeer(RoleEndpoint):
    """The endpoint of an environment; a process dies while the links of one part are opened."""

    at_part = 0

    def open_links(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> LinkSet:
        if part == self.at_part:
            raise PeerLost("rank 2 has ended")
        return super().open_links(seats, sizes, part)


@pytest.mark.parametrize("part", [0, 1])
def test_games_are_closed_if_the_links_cannot_be_opened(part: int, tmp_path: Path) -> None:
    plan = make_plan(parse_config(DATA, source="test"))
    endpoint = LosesPeer(RoleScheduler({0: "root", 1: "environment", 2: "worker"}), 1)
    endpoint.at_part = part
    Faulty.forget()
    with pytest.raises(PeerLost):
        Environment(endpoint, Run(plan, tmp_path), plan.matches[0], RunState())
    assert (Faulty.made, Faulty.closed) == (part + 1, part + 1)
