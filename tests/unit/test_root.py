"""The root starts and ends all roles, whatever the order of their messages, and ends the run with a failure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena.config import parse_config
from arena.plan.build import make_plan, on_hosts
from arena.plan.plan import Role, RoleKind
from arena.records.folder import RunFolder
from arena.records.recorder import Recorder
from arena.roles.protocol import Done, Go, Next, Ready, Restarted
from arena.roles.root.progress import log_restart
from arena.roles.root.root import Root
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.terminal.display import PlainDisplay
from arena.transport import Tag
from arena.transport.pickling import expect, pack
from arena.transport.scheduler import RoleEndpoint, RoleScheduler

MATCH = {"env": "touchdown", "seats": ["blue", "red"]}
CONFIG = {
    "name": "test",
    "seed": 1,
    "ticks": 5,
    "envs": {"touchdown": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [MATCH],
}


Message = tuple[Role, Any]
ENVIRONMENT = Role(RoleKind.ENVIRONMENT, 0)
BLUE, RED = Role(RoleKind.WORKER, 0, 0), Role(RoleKind.WORKER, 0, 1)
ALL_ORDERS = [(address, order) for address in (1, 2, 3) for order in ("go", "no next leg")]


def play(path: Path, messages: Sequence[Message]) -> list[tuple[int, str]]:
    """Runs a root that receives these messages in this order; returns the orders that it sends, by address."""
    run = Run(make_plan(parse_config(CONFIG, source="test"), ranks=1), RunFolder.open(path / "run").path)
    orders: list[tuple[int, str]] = []

    def root(endpoint: RoleEndpoint) -> None:
        root = Root(endpoint, run, PlainDisplay(io.StringIO(), total_ticks=5), RunState())
        root.wait_until_ready()
        assert not run.folder.episodes.exists()
        with Recorder(run.folder, run.first_ticks) as recorder:
            root.record(recorder)

    def send_all(endpoint: RoleEndpoint) -> None:
        for role, given in messages:
            message: Any = given if not isinstance(given, type) else Done(role, 5) if given is Done else given(role)
            endpoint.send(0, Tag.TO_ROOT, pack(message))
        receive(endpoint)

    def receive(endpoint: RoleEndpoint) -> None:
        expect(Go, endpoint.receive(0, Tag.FROM_ROOT))
        orders.append((endpoint.address, "go"))
        assert expect(Next, endpoint.receive(0, Tag.FROM_ROOT)).leg is None
        orders.append((endpoint.address, "no next leg"))

    names = {run.address(role): run.describe(role) for role in run.roles}
    RoleScheduler(names).run(dict(enumerate([root, send_all, receive, receive])))
    return sorted(orders)


def test_root_keeps_a_done_that_precedes_another_ready(tmp_path: Path) -> None:
    messages = [(BLUE, Ready), (BLUE, Done), (ENVIRONMENT, Ready), (RED, Ready), (RED, Done), (ENVIRONMENT, Done)]
    assert play(tmp_path, messages) == ALL_ORDERS


# Receiving


def test_game_that_was_made_again_names_its_host_if_there_are_several(tmp_path: Path) -> None:
    plan, restarted = make_plan(parse_config(CONFIG, source="test")), Restarted(0, 3, (0,), "ValueError: x", "", 0.5)
    lines = [
        log_restart(RunFolder.open(tmp_path / "run"), restarted, each)
        for each in (plan, on_hosts(plan, ["n0", "n1", "n1", "n1"]))
    ]
    assert lines == [
        "match 0, tick 3: the game was made again, 1 unfinished episode dropped: ValueError: x",
        "match 0, tick 3, rank 1 on n1: the game was made again, 1 unfinished episode dropped: ValueError: x",
    ]
