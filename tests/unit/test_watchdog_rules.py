"""The watchdog: cycles of waits and endless calls end a run; slow but advancing roles never do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.diagnostics.remote_stacks import Process
from arena.diagnostics.stacks import StackFrame
from arena.plan.build import make_plan
from arena.roles.protocol import Progress
from arena.roles.root import watchdog
from arena.roles.root.watchdog import Watchdog
from arena.roles.run import Run
from arena.transport import Tag
from arena.transport.endpoint import Bytes, Channel, Order, OrderHandler
from arena.transport.pickling import pack, unpack
from arena.transport.status import RoleStatus, State, StatusReply

CONFIG = {
    "name": "test",
    "ticks": 5,
    "watchdog_s": 8.0,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"], "copies": 2}],
}
ENVIRONMENT, BLUE, RED = 1, 2, 3  # addresses in the first match; those of the second are 4, 5, 6
PERIOD = 1.0
IN_GAME = (StackFrame("/home/user/game.py", 7, "step"),)


class World:
    """An endpoint, and processes behind it that answer when they can; time passes when the root sleeps.

    `waiting[address]` is the channel on which a role waits, and since when; None while the role is in a call.
    """

    def __init__(self, *, node: str = "here") -> None:
        self.now = 100.0
        self.waiting: dict[int, tuple[Channel, float] | None] = {}
        self.node = node
        self.handlers: dict[Order, OrderHandler] = {}
        self.queried: list[int] = []
        self.pending: list[tuple[int, Bytes]] = []
        self.calls: dict[int, tuple[tuple[str, int], ...]] = {}  # by address, the number of calls of its role by name
        self.shown: list[str] = []

    def clock(self) -> float:
        return self.now

    def waits(self, address: int, source: int, tag: Tag = Tag.GROUP) -> None:
        self.waiting[address] = (address, tag, source), self.now

    def runs(self, address: int) -> None:
        self.waiting[address] = None

    def on_order(self, order: Order, do: OrderHandler) -> None:
        self.handlers[order] = do

    def process(self, address: int) -> Process | None:
        return Process("here" if address == 0 else self.node, 10**9 + address, -1)

    def order(self, to: int, order: Order, data: Bytes) -> None:
        assert order is Order.QUERY_STATUS
        self.queried.append(to)
        self.pending.append((to, data))
        self.answer()

    def answer(self) -> None:
        """Answers the pending queries of all roles that wait."""
        for to, data in tuple(self.pending):
            wait = self.waiting.get(to)
            if wait is not None:
                self.pending.remove((to, data))
                query = unpack(data)
                stack, calls = IN_GAME if query.stacks else (), self.calls.get(to, ())
                role = RoleStatus(to, State.WAITS, wait[0], self.now - wait[1], stack, calls)
                peeked = tuple({self.address_of(process): IN_GAME} for process in query.peek)
                self.handlers[Order.STATUS](to, pack(StatusReply(query, (role,), peeked)))

    def address_of(self, process: Process) -> int:
        return process.pid - 10**9

    def sleep(self, awaited: Channel, seconds: float) -> None:
        self.now += seconds
        self.answer()


@pytest.fixture
def world() -> World:
    return World()


def watchdog_of(world: World, **changes: Any) -> Watchdog:
    run = Run(make_plan(parse_config({**CONFIG, **changes}, source="test")), Path("nowhere"))
    endpoint: Any = world
    return Watchdog(endpoint, run, show=world.shown.append, clock=world.clock)


def pass_time(world: World, checker: Watchdog, seconds: float, *, each: Callable[[], None] = lambda: None) -> Any:
    """Lets the watchdog check whenever it is due; returns its failure, None if there is none."""
    end = world.now + seconds
    while world.now < end:
        world.now += 0.25
        each()
        world.answer()
        failure = checker.check()
        if failure is not None:
            return failure
    return None


def circle(world: World) -> None:
    """blue 0 -> blue 1 -> environment 1 -> red 1 -> red 0 -> environment 0 -> blue 0."""
    world.waits(ENVIRONMENT, BLUE, Tag.REQUEST)
    world.waits(BLUE, 5)
    world.waits(5, 4, Tag.REPLY)
    world.waits(4, 6, Tag.REQUEST)
    world.waits(6, RED)
    world.waits(RED, ENVIRONMENT, Tag.REPLY)


def test_watchdog_reports_an_old_circle_in_order_with_stacks(world: World) -> None:
    checker = watchdog_of(world)
    circle(world)
    assert pass_time(world, checker, 8.0 - PERIOD) is None
    failure = pass_time(world, checker, 4 * PERIOD)
    assert failure.exit_code == 1
    assert failure.who.startswith("nothing has moved for ") and failure.who.endswith("6 roles wait in a circle")
    lines = [line for line in failure.message.splitlines() if " waits for " in line]
    assert [line.split(" waits for ")[0] for line in lines] == [
        "environment of match 0 ('game') (rank 1)",
        "worker of policy 'blue' in seat 0 of match 0 (rank 2)",
        "worker of policy 'blue' in seat 0 of match 1 (rank 5)",
        "environment of match 1 ('game') (rank 4)",
        "worker of policy 'red' in seat 1 of match 1 (rank 6)",
        "worker of policy 'red' in seat 1 of match 0 (rank 3)",
    ]
    assert failure.message.count("/home/user/game.py") == 6


def test_watchdog_reports_a_circle_while_another_match_plays(world: World) -> None:
    checker = watchdog_of(world)
    world.waits(ENVIRONMENT, BLUE, Tag.REQUEST)
    world.waits(BLUE, RED)
    world.waits(RED, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, checker, 20.0, each=lambda: checker.note_message(4, Progress(4, {1: 3}, 3, (), {})))
    assert failure.who == "3 roles wait in a circle"
    assert "match 1" not in failure.message


def test_watchdog_names_an_endless_call_with_its_stack(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "peek", lambda process: {world.address_of(process): IN_GAME})
    checker = watchdog_of(world)
    world.runs(ENVIRONMENT)
    world.waits(BLUE, ENVIRONMENT, Tag.REPLY)
    world.waits(RED, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, checker, 20.0, each=lambda: checker.note_message(4, Progress(4, {1: 3}, 3, (), {})))
    first, frame, *others = failure.message.splitlines()
    assert failure.who == "environment of match 0 ('game'): not come back from a call"
    assert first.startswith("environment of match 0 ('game') (rank 1) has not come back from one call for ")
    assert frame == '  File "/home/user/game.py", line 7, in step'
    assert sum(line.startswith("worker") for line in others) == 2
    assert others[-1] == "one call of a game or an algorithm may take 8 s; `watchdog_s` can give it more"


def test_watchdog_gets_stacks_of_another_node_from_a_neighbor() -> None:
    world = World(node="there")
    checker = watchdog_of(world)
    for address in (RED, 4, 5, 6):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, checker, 20.0)
    assert failure.who.startswith("nothing has moved for ")
    assert failure.who.endswith("environment of match 0 ('game'), and 1 more: not come back from a call")
    assert failure.message.splitlines()[1] == '  File "/home/user/game.py", line 7, in step'


def test_watchdog_accepts_any_number_of_short_calls(world: World) -> None:
    checker = watchdog_of(world)

    def take_turns() -> None:  # 7.5 s in the game, 7.5 s in the algorithms, and no tick in all that time
        in_game = int(world.now / 7.5) % 2 == 0
        for environment in (1, 4):
            if in_game == (world.waiting.get(environment) is not None):
                world.runs(environment) if in_game else world.waits(environment, environment + 1, Tag.REQUEST)
                for worker in (environment + 1, environment + 2):
                    world.waits(worker, environment, Tag.REPLY) if in_game else world.runs(worker)

    assert pass_time(world, checker, 300.0, each=take_turns) is None


def test_env_timeout_s_limits_a_call(world: World) -> None:
    quick, patient = watchdog_of(world, env_timeout_s=2.0), watchdog_of(world, env_timeout_s=100.0)
    for address in range(2, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    world.runs(ENVIRONMENT)
    world.handlers[Order.STATUS] = quick._receive
    failure = pass_time(world, quick, 4.0)
    assert "may take 2 s; `env_timeout_s` can give it more" in failure.message
    world.handlers[Order.STATUS] = patient._receive
    assert pass_time(world, patient, 90.0) is None, "no message comes, but the call may return"
    assert pass_time(world, patient, 30.0) is not None


def test_watchdog_reports_a_standstill_without_a_circle(world: World) -> None:
    checker = watchdog_of(world)
    for address in range(1, 7):
        world.waits(address, 0, Tag.FROM_ROOT)
    failure = pass_time(world, checker, 20.0)
    assert failure.who.endswith("every role waits for another one")
    assert "environment of match 0 ('game') (rank 1) waits for a message of the root, for" in failure.message


def test_watchdog_drops_a_suspicion_that_stacks_disprove(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = watchdog_of(world)
    circle(world)
    order, collected = world.order, []

    def return_from_call(to: int, given: Order, data: Bytes) -> None:
        if unpack(data).stacks:
            collected.append(to)
            world.runs(BLUE)
        order(to, given, data)

    monkeypatch.setattr(world, "order", return_from_call)
    assert pass_time(world, checker, 12.0) is None
    assert collected


def test_watchdog_sends_no_query_while_all_matches_play(world: World) -> None:
    checker = watchdog_of(world)

    def move() -> None:
        tick = int(world.now)
        checker.note_message(1, Progress(1, {0: tick}, tick, (), {}))
        checker.note_message(4, Progress(4, {1: tick}, tick, (), {}))

    assert pass_time(world, checker, 100.0, each=move) is None
    assert world.queried == []


def test_watchdog_reports_calls_without_ticks_at_growing_intervals(world: World) -> None:
    checker = watchdog_of(world)
    world.calls = {BLUE: (("average", 120),), RED: (("reset", 1), ("pool", 2))}
    for address in range(1, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    shown_at = []

    def make_calls() -> None:
        checker.note_message(1, Progress(1, {0: 0}, 0, (), {}))
        checker.note_message(4, Progress(4, {1: 0}, 0, (), {}))
        if len(shown_at) < len(world.shown):
            shown_at.append(world.now)

    begun = world.now
    assert pass_time(world, checker, 1000.0, each=make_calls) is None
    assert [round((moment - begun) / 80.0) for moment in shown_at] == [1, 10]
    assert world.shown[0].startswith("no match has played a tick for 8")
    assert world.shown[0].endswith(
        "worker of policy 'blue' in seat 0 of match 0 (rank 2): average 120 times; "
        "worker of policy 'red' in seat 1 of match 0 (rank 3): reset once, pool 2 times"
    )


def test_watchdog_does_not_count_time_in_which_the_root_slept(world: World) -> None:
    checker = watchdog_of(world)
    world.waits(ENVIRONMENT, BLUE, Tag.REQUEST)
    pass_time(world, checker, 2.0)
    world.now += 1000.0  # all processes were suspended
    assert checker.check() is None
    checker.begin()
    assert checker.seconds_to_check == PERIOD


def test_watchdog_does_not_count_time_without_a_core(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "delays", lambda pid: {pid: world.now * 0.75})
    checker = watchdog_of(world)
    for address in range(2, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    world.runs(ENVIRONMENT)
    assert pass_time(world, checker, 24.0) is None
    assert pass_time(world, checker, 24.0) is not None
