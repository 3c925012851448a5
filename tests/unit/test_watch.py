"""The root's watch: circles and endless calls end a run, and slow but living ones never."""

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
from arena.run.run import Run
from arena.transport import Tag
from arena.transport.endpoint import Bytes, Channel, Order, OrderHandler
from arena.transport.status import RoleStatus, State, StatusReply, pack, unpack

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
    """An endpoint, and processes behind it that answer when they can; time passes when the root sleeps or a test says.

    `does[address]` is what a role does: whom it waits for since when, or None while it is in a call.
    """

    def __init__(self, *, node: str = "here") -> None:
        self.now = 100.0
        self.does: dict[int, tuple[Channel, float] | None] = {}
        self.node = node
        self.handlers: dict[Order, OrderHandler] = {}
        self.asked: list[int] = []
        self.owed: list[tuple[int, Bytes]] = []
        self.calls: dict[int, tuple[tuple[str, int], ...]] = {}  # by address, what its role has called how often
        self.told: list[str] = []

    def clock(self) -> float:
        return self.now

    def waits(self, address: int, source: int, tag: Tag = Tag.GROUP) -> None:
        self.does[address] = (address, tag, source), self.now

    def runs(self, address: int) -> None:
        self.does[address] = None

    def on_order(self, order: Order, do: OrderHandler) -> None:
        self.handlers[order] = do

    def process(self, address: int) -> Process | None:
        return Process("here" if address == 0 else self.node, 10**9 + address, -1)

    def order(self, to: int, order: Order, data: Bytes) -> None:
        assert order is Order.QUERY_STATUS
        self.asked.append(to)
        self.owed.append((to, data))
        self.answer()

    def answer(self) -> None:
        """Those who sleep do."""
        for to, data in tuple(self.owed):
            nap = self.does.get(to)
            if nap is not None:
                self.owed.remove((to, data))
                question = unpack(data)
                stack, calls = IN_GAME if question.stacks else (), self.calls.get(to, ())
                role = RoleStatus(to, State.WAITS, nap[0], self.now - nap[1], stack, calls)
                peeked = tuple({self.address_of(process): IN_GAME} for process in question.peek)
                self.handlers[Order.STATUS](to, pack(StatusReply(question, (role,), peeked)))

    def address_of(self, process: Process) -> int:
        return process.pid - 10**9

    def sleep(self, awaited: Channel, seconds: float) -> None:
        self.now += seconds
        self.answer()


@pytest.fixture
def world() -> World:
    return World()


def watch_of(world: World, **changes: Any) -> Watchdog:
    run = Run(make_plan(parse_config({**CONFIG, **changes}, source="test")), Path("nowhere"))
    endpoint: Any = world
    return Watchdog(endpoint, run, tell=world.told.append, clock=world.clock)


def pass_time(world: World, watch: Watchdog, seconds: float, *, each: Callable[[], None] = lambda: None) -> Any:
    """Lets the root look whenever it is time; what it says against the run, None if nothing."""
    end = world.now + seconds
    while world.now < end:
        world.now += 0.25
        each()
        world.answer()
        failure = watch.look()
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


def test_a_circle_is_told_in_order_with_stacks_when_it_is_as_old_as_the_limit(world: World) -> None:
    watching = watch_of(world)
    circle(world)
    assert pass_time(world, watching, 8.0 - PERIOD) is None
    failure = pass_time(world, watching, 4 * PERIOD)
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


def test_a_circle_of_one_match_is_told_though_another_one_moves(world: World) -> None:
    watching = watch_of(world)
    world.waits(ENVIRONMENT, BLUE, Tag.REQUEST)
    world.waits(BLUE, RED)
    world.waits(RED, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, watching, 20.0, each=lambda: watching.moved(4, Progress(1, 3, ())))
    assert failure.who == "3 roles wait in a circle"
    assert "match 1" not in failure.message


def test_who_does_not_come_back_from_a_call_is_named_with_the_stack_that_others_have_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "peek", lambda process: {world.address_of(process): IN_GAME})
    watching = watch_of(world)
    world.runs(ENVIRONMENT)
    world.waits(BLUE, ENVIRONMENT, Tag.REPLY)
    world.waits(RED, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, watching, 20.0, each=lambda: watching.moved(4, Progress(1, 3, ())))
    first, frame, *others = failure.message.splitlines()
    assert failure.who == "environment of match 0 ('game'): not come back from a call"
    assert first.startswith("environment of match 0 ('game') (rank 1) has not come back from one call for ")
    assert frame == '  File "/home/user/game.py", line 7, in step'
    assert sum(line.startswith("worker") for line in others) == 2
    assert others[-1] == "one call of a game or an algorithm may take 8 s; `watchdog_s` can give it more"


def test_processes_of_another_node_are_looked_into_by_one_of_their_neighbors() -> None:
    world = World(node="there")
    watching = watch_of(world)
    for address in (RED, 4, 5, 6):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    failure = pass_time(world, watching, 20.0)
    assert failure.who.startswith("nothing has moved for ")
    assert failure.who.endswith("environment of match 0 ('game'), and 1 more: not come back from a call")
    assert failure.message.splitlines()[1] == '  File "/home/user/game.py", line 7, in step'


def test_calls_that_are_shorter_than_the_limit_are_never_ended_however_many_there_are(world: World) -> None:
    watching = watch_of(world)

    def take_turns() -> None:  # 7.5 s in the game, 7.5 s in the algorithms, and no tick in all that time
        in_game = int(world.now / 7.5) % 2 == 0
        for environment in (1, 4):
            if in_game == (world.does.get(environment) is not None):
                world.runs(environment) if in_game else world.waits(environment, environment + 1, Tag.REQUEST)
                for worker in (environment + 1, environment + 2):
                    world.waits(worker, environment, Tag.REPLY) if in_game else world.runs(worker)

    assert pass_time(world, watching, 300.0, each=take_turns) is None


def test_env_timeout_s_is_the_limit_of_a_call_where_it_is_given(world: World) -> None:
    quick, patient = watch_of(world, env_timeout_s=2.0), watch_of(world, env_timeout_s=100.0)
    for address in range(2, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    world.runs(ENVIRONMENT)
    world.handlers[Order.STATUS] = quick._hear
    failure = pass_time(world, quick, 4.0)
    assert "may take 2 s; `env_timeout_s` can give it more" in failure.message
    world.handlers[Order.STATUS] = patient._hear
    assert pass_time(world, patient, 90.0) is None, "nothing moves, but it may come back"
    assert pass_time(world, patient, 30.0) is not None


def test_when_all_wait_and_nobody_can_wake_them_the_run_ends_though_there_is_no_circle(world: World) -> None:
    watching = watch_of(world)
    for address in range(1, 7):
        world.waits(address, 0, Tag.FROM_ROOT)
    failure = pass_time(world, watching, 20.0)
    assert failure.who.endswith("every role waits for another one")
    assert "environment of match 0 ('game') (rank 1) waits for a message of the root, for" in failure.message


def test_a_wait_that_ends_while_stacks_are_gathered_ends_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = watch_of(world)
    circle(world)
    order, gathered = world.order, []

    def comes_back(to: int, given: Order, data: Bytes) -> None:
        if unpack(data).stacks:
            gathered.append(to)
            world.runs(BLUE)
        order(to, given, data)

    monkeypatch.setattr(world, "order", comes_back)
    assert pass_time(world, watching, 12.0) is None
    assert gathered


def test_a_run_that_moves_is_asked_nothing(world: World) -> None:
    watching = watch_of(world)

    def move() -> None:
        tick = int(world.now)
        watching.moved(1, Progress(0, tick, ()))
        watching.moved(4, Progress(1, tick, ()))

    assert pass_time(world, watching, 100.0, each=move) is None
    assert world.asked == []


def test_workers_that_call_and_never_step_are_told_once_and_then_at_ten_times_the_time(world: World) -> None:
    watching = watch_of(world)
    world.calls = {BLUE: (("average", 120),), RED: (("reset", 1), ("pool", 2))}
    for address in range(1, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    told_at = []

    def goes_round() -> None:
        watching.moved(1, Progress(0, 0, ()))
        watching.moved(4, Progress(1, 0, ()))
        if len(told_at) < len(world.told):
            told_at.append(world.now)

    begun = world.now
    assert pass_time(world, watching, 1000.0, each=goes_round) is None
    assert [round((moment - begun) / 80.0) for moment in told_at] == [1, 10]
    assert world.told[0].startswith("no match has played a tick for 8")
    assert world.told[0].endswith(
        "worker of policy 'blue' in seat 0 of match 0 (rank 2): average 120 times; "
        "worker of policy 'red' in seat 1 of match 0 (rank 3): reset once, pool 2 times"
    )


def test_nothing_is_told_of_calls_while_some_match_plays_or_where_no_worker_calls(world: World) -> None:
    watching = watch_of(world)
    world.calls = {BLUE: (("average", 120),)}
    for address in range(1, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)

    def plays() -> None:
        watching.moved(1, Progress(0, 0, ()))
        watching.moved(4, Progress(1, int(world.now), ()))

    pass_time(world, watching, 200.0, each=plays)
    world.calls = {}
    pass_time(world, watching, 200.0, each=lambda: watching.moved(4, Progress(1, 0, ())))
    assert world.told == []


def test_time_in_which_the_root_did_not_run_is_not_held_against_anybody(world: World) -> None:
    watching = watch_of(world)
    world.waits(ENVIRONMENT, BLUE, Tag.REQUEST)
    pass_time(world, watching, 2.0)
    world.now += 1000.0  # all of them were stopped
    assert watching.look() is None
    watching.begin()
    assert watching.patience == PERIOD


def test_time_in_which_others_had_the_cores_is_not_held_against_a_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "delays", lambda pid: {pid: world.now * 0.75})
    watching = watch_of(world)
    for address in range(2, 7):
        world.waits(address, ENVIRONMENT, Tag.REPLY)
    world.runs(ENVIRONMENT)
    assert pass_time(world, watching, 24.0) is None
    assert pass_time(world, watching, 24.0) is not None
