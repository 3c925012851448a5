"""The environment role: the games of a leg are closed if it cannot begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from arena.config import parse_config
from arena.errors import PeerLost
from arena.plan.build import make_plan
from arena.roles.environment.environment import Environment
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.transport.endpoint import LinkSet, LinkSize
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from faulty_games import Faulty

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
