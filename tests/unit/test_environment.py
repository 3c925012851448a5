"""The environment role: the games of a leg are closed if it cannot begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import PeerLost
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.roles.environment.environment import Environment
from arena.roles.perform import run_role
from arena.roles.protocol import Done, Go, Next, Stopping
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.transport import ANY_SOURCE, Order, Tag
from arena.transport.endpoint import LinkSet, LinkSize
from arena.transport.pickling import pack, unpack
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


def test_an_order_to_stop_after_the_leg_is_answered(tmp_path: Path) -> None:
    plan = make_plan(parse_config(DATA, source="test"))
    run = Run(plan, tmp_path)
    answers: list[Stopping] = []

    def receive(endpoint: RoleEndpoint, kind: type) -> Any:
        while True:
            message = unpack(endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)[1])
            if isinstance(message, kind):
                return message

    def root(endpoint: RoleEndpoint) -> None:
        for role in (1, 2):
            endpoint.send(role, Tag.FROM_ROOT, pack(Go(20)))
        while receive(endpoint, Done).role.kind is not RoleKind.ENVIRONMENT:
            pass
        endpoint.order(1, Order.STOP, (30).to_bytes(8, "little"))
        answers.append(receive(endpoint, Stopping))
        for role in (1, 2):
            endpoint.send(role, Tag.FROM_ROOT, pack(Next(None)))

    def other(role: Role) -> Callable[[RoleEndpoint], None]:
        def main(endpoint: RoleEndpoint) -> None:
            run_role(endpoint, run, role, private=False)

        return main

    mains = {0: root, **{run.address(role): other(role) for role in run.roles[1:]}}
    RoleScheduler({0: "root", 1: "environment", 2: "worker"}).run(mains)
    assert answers == [Stopping(0, ordered=30, tick=20, holds=False)]
