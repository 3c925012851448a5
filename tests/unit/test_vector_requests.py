"""The content and the time of a vector environment's writes into its request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple

from arena.errors import BudgetReached
from arena.seat.client import SeatClient
from arena.seat.layout import ReplyView
from arena.seat.vector import VectorEnvProxy
from seat_ends import Seat

LANES = 2


def environment(observation_space: Space[Any]) -> tuple[VectorEnvProxy, SeatClient, ReplyView]:
    """A vector environment whose replies are always there; its seat, and its reply to write."""
    seat = Seat(LANES, [0], [observation_space], [Discrete(5)], alone=True)
    env, reply = VectorEnvProxy([seat.client]), seat.server.reply
    reply.active[:] = True
    env.reset()
    return env, seat.client, reply


def test_refused_actions_do_not_change_a_pending_request() -> None:
    env, seat, reply = environment(Box(0, 1, (1,), np.float32))
    env.step_async(np.array([1, 2]))
    with pytest.raises(AlreadyPendingCallError):
        env.step_async(np.array([3, 4]))
    assert seat.request.rows[0][0].tolist() == [1, 2]
    reply.set_header(1, last=True, extra=False)
    env.step_wait()
    with pytest.raises(BudgetReached):
        env.step(np.array([3, 4]))
    assert seat.request.rows[0][0].tolist() == [1, 2]


@pytest.mark.parametrize("space", [Dict({}), Tuple(()), Dict(a=Tuple(()))], ids=str)
def test_empty_observation_has_a_final_one(space: Space[Any]) -> None:
    env, _, reply = environment(space)
    reply.truncated[1] = True
    reply.pack_final()
    *_, truncated, infos = env.step(np.zeros(LANES, np.int64))
    assert truncated.tolist() == [False, True]
    assert infos["_final_obs"].tolist() == [False, True] and infos["final_obs"][0] is None
    assert infos["final_obs"][1] in space


def test_last_observations_are_not_overwritten_by_later_steps() -> None:
    env, _, reply = environment(Box(0, 1, (2,), np.float32))
    reply.by_entity[0][:] = 0.25
    reply.terminated[0] = True
    reply.pack_final()
    observed, _, terminated, _, infos = env.step(np.zeros(LANES, np.int64))
    reply.by_entity[0][:] = 0.75
    reply.truncated[:] = True
    reply.pack_final()
    reply.terminated[:] = False
    assert infos["final_obs"][0].tolist() == [0.25, 0.25]
    assert observed.tolist() == [[0.25, 0.25]] * LANES and terminated.tolist() == [True, False]
