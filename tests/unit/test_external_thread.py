"""Games in threads of the environment's process."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete

from arena.external import ExternalClosed, ExternalEnv, ExternalError, Slots
from arena.external.thread import ThreadGames
from arena.game.api import Interface
from arena.testing import check_external_games
from external_connections import Playing, ThreadsFromOutside, play_thread, threads


def test_threads_keep_the_contract() -> None:
    check_external_games(threads, play_thread, limit_s=60.0)


TWO = Interface(("hero", "rival"), (Discrete(5), Discrete(5)), (Discrete(3), Discrete(3)), (0, 0))


def test_a_refused_observation_leaves_no_request_of_another_entity() -> None:
    env = ThreadsFromOutside(TWO)
    with Playing(ThreadGames(env), 1, actions=(1, 2)):
        env.start_episode("a")
        with pytest.raises(ExternalError, match="observation of 'rival'"):
            env.get_actions("a", {"hero": np.int64(1), "rival": np.int64(9)})
        assert env.get_actions("a", {"hero": np.int64(1), "rival": np.int64(4)}) == {"hero": 1, "rival": 2}
        env.end_episode("a")


def test_an_unknown_outcome_is_refused_and_the_episode_goes_on() -> None:
    env = ThreadsFromOutside(TWO)
    with Playing(ThreadGames(env), 1) as playing:
        env.start_episode("a")
        with pytest.raises(
            ExternalError, match=r"bad_body: outcome: 'won'; did you mean 'win'\? known: draw, loss, win"
        ):
            env.end_episode("a", info={"outcome": "won"})
        env.end_episode("a", entity="hero", info={"outcome": "win"})
        env.end_episode("a", info={"outcome": "loss"})
        assert playing.account().outcomes == {0: "win", 1: "loss"}


class Spaced(ExternalEnv):
    def run(self) -> None: ...


def test_constructor_takes_the_spaces_in_the_order_of_rllib() -> None:
    one = ThreadGames(Spaced(Discrete(3), Dict(seen=Discrete(5)))).interface
    assert (one.entities, one.action_spaces, one.observation_spaces) == (
        ("agent_0",),
        (Discrete(3),),
        (Dict(seen=Discrete(5)),),
    )
    by_name = Spaced(action_space={"hero": Discrete(3)}, observation_space={"hero": Discrete(5)})
    assert ThreadGames(by_name).interface == Interface(("hero",), (Discrete(5),), (Discrete(3),), (0,))


class Plays(ThreadsFromOutside):
    """Plays episodes of one step; what a call raises passes."""

    def run(self) -> None:
        while True:
            episode = self.start_episode()
            self.get_actions(episode, {"hero": np.int64(1), "rival": np.int64(1)})
            self.end_episode(episode)


def test_a_loop_ends_without_failure_when_no_episode_may_begin() -> None:
    games = ThreadGames(Plays(TWO))
    playing = Playing(games, 1, actions=(1, 2))
    playing.table.most = 3
    with playing:
        playing.until(lambda: games.exhausted)
    assert (playing.error, playing.table.counts.ended) == (None, 3)


class OtherRun(ThreadsFromOutside):
    def run(self) -> None:
        raise ExternalClosed("lost")  # of a client of another run


def test_another_runs_end_is_a_failure_of_the_game() -> None:
    games = ThreadGames(OtherRun(TWO))
    games.open(1, lambda: None)
    games._thread.join(60)
    with pytest.raises(ExternalClosed, match="lost"):
        games.poll(Slots(TWO, 1))
    games.close("over")
