"""The role scheduler: one role at a time, always in the same order, and every wait ends."""

from __future__ import annotations

import itertools
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.diagnostics.stacks import StackFrame
from arena.errors import Deadlock, PeerLost, RunStopped
from arena.transport import ANY_SOURCE, Tag
from arena.transport.endpoint import Bytes, Inbox, Order, RemoteTransport
from arena.transport.pickling import pack, unpack
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from arena.transport.status import (
    RoleStatus,
    State,
    StatusQuery,
    find_circle,
    report,
)

Main = Callable[[RoleEndpoint], Any]


def run(*mains: Main) -> None:
    RoleScheduler({address: f"role {address}" for address in range(len(mains))}).run(dict(enumerate(mains)))


def assert_all_threads_end() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("role "):
            thread.join(600)
            assert not thread.is_alive(), thread.name


def nothing(_: RoleEndpoint) -> None:
    pass


def test_scheduler_runs_roles_in_the_same_order_every_time() -> None:
    def log_of_one_run() -> list[tuple[int, int, bytes]]:
        log: list[tuple[int, int, bytes]] = []

        def root(endpoint: RoleEndpoint) -> None:
            for _ in range(30):
                source, data = endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)
                log.append((0, source, bytes(data)))

        def ring(endpoint: RoleEndpoint) -> None:
            me = endpoint.address
            left, right = (me - 2) % 5 + 1, me % 5 + 1
            for turn in range(6):
                endpoint.send(right, Tag.GROUP, bytes([turn]))
                endpoint.send(0, Tag.TO_ROOT, bytes([turn]))
                log.append((me, left, bytes(endpoint.receive(left, Tag.GROUP)[1])))

        run(root, *[ring] * 5)
        return log

    first = log_of_one_run()
    assert len(first) == 60
    assert all(log_of_one_run() == first for _ in range(4))


def test_thousands_of_roles_begin_at_the_same_depth_of_recursion() -> None:
    ended: list[int] = []

    def waits_for_the_last(endpoint: RoleEndpoint) -> None:
        if endpoint.address + 1 < 3000:
            endpoint.receive(endpoint.address + 1, Tag.GROUP)
        if endpoint.address:
            endpoint.send(endpoint.address - 1, Tag.GROUP, b"")
        ended.append(endpoint.address)

    run(*[waits_for_the_last] * 3000)
    assert ended == list(reversed(range(3000)))


def test_scheduler_runs_one_role_at_a_time() -> None:
    running, most = 0, 0

    def work(endpoint: RoleEndpoint) -> None:
        nonlocal running, most
        for _ in range(20):
            running += 1
            most = max(most, running)
            np.linalg.norm(np.ones(10_000))  # releases the GIL
            running -= 1
            endpoint.send(1 - endpoint.address, Tag.GROUP, b"")
            endpoint.receive(1 - endpoint.address, Tag.GROUP)

    run(work, work)
    assert most == 1


def test_messages_keep_their_order_by_sender_and_tag_and_their_bytes() -> None:
    received: dict[Any, list[Any]] = {}

    def hear(endpoint: RoleEndpoint) -> None:
        for source, tag in itertools.product((2, 1), (Tag.GROUP, Tag.WELCOME)):
            received[source, tag] = [endpoint.receive(source, tag)[1][0] for _ in range(5)]
        received["anyone"] = sorted(endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)[0] for _ in range(2))

    def speak(endpoint: RoleEndpoint) -> None:
        buffer = bytearray(1)
        for number in range(10):
            buffer[0] = 10 * endpoint.address + number
            endpoint.send(0, Tag.GROUP if number % 2 else Tag.WELCOME, memoryview(buffer))
        buffer[0] = 99
        endpoint.send(0, Tag.TO_ROOT, b"")

    run(hear, speak, speak)
    odd, even = [1, 3, 5, 7, 9], [0, 2, 4, 6, 8]
    expected = {
        (source, tag): [10 * source + n for n in numbers]
        for source in (2, 1)
        for tag, numbers in ((Tag.GROUP, odd), (Tag.WELCOME, even))
    }
    assert received == {**expected, "anyone": [1, 2]}


def test_deadlock_names_what_each_role_waits_for() -> None:
    def waits_for(source: int, tag: Tag) -> Main:
        return lambda endpoint: endpoint.receive(source, tag)

    with pytest.raises(Deadlock) as info:
        run(waits_for(ANY_SOURCE, Tag.TO_ROOT), waits_for(2, Tag.GROUP), waits_for(1, Tag.REPLY))
    headline, *lines = str(info.value).splitlines()
    assert headline == "every role waits for another one, 2 of them in a circle:"
    assert [re.sub(r"for \d+ s$", "for some time", line) for line in lines if " waits for " in line] == [
        "role 1 waits for its group: the role 2, for some time",
        "role 2 waits for the answer of the role 1, for some time",
        "role 0 waits for a message of any role, for some time",
    ]
    assert sum("return lambda endpoint: endpoint.receive(source, tag)" in line for line in lines) == 3, "their stacks"


def test_waiting_for_a_role_that_has_ended_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match="role 0 waits for its group: the role 1"):
        run(lambda endpoint: endpoint.receive(1, Tag.GROUP), nothing)


def test_first_failure_is_raised_and_ends_all_other_roles() -> None:
    ended: list[int] = []

    def waits(endpoint: RoleEndpoint) -> None:
        try:
            endpoint.receive(0, Tag.GROUP)
        except RunStopped:
            ended.append(endpoint.address)
            raise

    def fails(endpoint: RoleEndpoint) -> None:
        raise ValueError("this one")

    with pytest.raises(ValueError, match="this one"):
        run(waits, waits, fails, waits)
    assert sorted(ended) == [0, 1]  # the last one had not started
    assert_all_threads_end()


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it in the background
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_ends_roles_that_never_stop_sending() -> None:
    main_thread = threading.main_thread().ident
    ended: list[tuple[int, type[BaseException]]] = []
    assert main_thread is not None

    def talks(endpoint: RoleEndpoint) -> None:
        try:
            for turn in itertools.count():
                if turn == 5 and endpoint.address == 0:
                    signal.pthread_kill(main_thread, signal.SIGINT)
                endpoint.send(1 - endpoint.address, Tag.GROUP, b"")
                endpoint.receive(1 - endpoint.address, Tag.GROUP)
        except (KeyboardInterrupt, RunStopped) as error:
            ended.append((endpoint.address, type(error)))
            raise

    with pytest.raises(KeyboardInterrupt):
        run(talks, talks)
    assert ended == [(0, KeyboardInterrupt), (1, RunStopped)]


def test_order_is_handled_at_once_and_wakes_no_role() -> None:
    obeyed: list[tuple[int, bytes]] = []

    def gives(endpoint: RoleEndpoint) -> None:
        endpoint.receive(1, Tag.GROUP)
        endpoint.order(1, Order.STOP, b"at once")
        assert obeyed == [(0, b"at once")]
        endpoint.send(1, Tag.GROUP, b"")

    def sleeps(endpoint: RoleEndpoint) -> None:
        endpoint.on_order(Order.STOP, lambda source, data: obeyed.append((source, bytes(data))))
        endpoint.send(0, Tag.GROUP, b"")
        endpoint.sleep((1, Tag.GROUP, 0))
        assert len(endpoint.receive(0, Tag.GROUP)[1]) == 0

    run(gives, sleeps)


def test_status_query_returns_what_roles_wait_for_and_since_when() -> None:
    seen: list[tuple[RoleStatus, ...]] = []

    def asks(endpoint: RoleEndpoint) -> None:
        endpoint.on_order(Order.STATUS, lambda _, data: seen.append(unpack(data).roles))
        endpoint.receive(1, Tag.GROUP)
        endpoint.order(1, Order.QUERY_STATUS, pack(StatusQuery(stacks=True)))
        endpoint.send(1, Tag.GROUP, b"")

    def waits(endpoint: RoleEndpoint) -> None:
        endpoint.send(0, Tag.GROUP, b"")
        endpoint.receive(0, Tag.GROUP)

    run(asks, waits, nothing)
    asking, waiting, ended = seen[0]
    assert (asking.state, ended.state) == (State.RUNS, State.ENDED)
    assert (waiting.state, waiting.awaited) == (State.WAITS, (1, Tag.GROUP, 0))
    assert 0.0 <= waiting.seconds < 60.0
    assert [frame.function for frame in waiting.stack if frame.file == __file__] == ["waits"]


def waits_for_games(endpoint: RoleEndpoint, seconds: float | None = None) -> None:
    endpoint.sleep((endpoint.address, Tag.GAMES, ANY_SOURCE), seconds)


@pytest.mark.parametrize("others", [0, 2])
def test_bell_of_another_thread_wakes_a_role(others: int) -> None:
    came: list[int] = []

    def asks(endpoint: RoleEndpoint) -> None:
        numbers: deque[int] = deque()
        ring = endpoint.bell()

        def game() -> None:
            for number in range(200):
                numbers.append(number)
                ring()

        thread = threading.Thread(target=game)
        thread.start()
        while len(came) < 200:
            while numbers:
                came.append(numbers.popleft())
            if len(came) < 200:
                waits_for_games(endpoint)
        thread.join()
        ring()  # also when the role no longer waits

    def busy(endpoint: RoleEndpoint) -> None:
        other = 3 - endpoint.address
        for _ in range(300):
            endpoint.send(other, Tag.GROUP, b"")
            endpoint.receive(other, Tag.GROUP)

    run(asks, *[busy] * others)
    assert came == list(range(200))


def test_wait_for_games_is_no_deadlock_and_is_reported_as_such() -> None:
    seen: list[tuple[RoleStatus, ...]] = []
    host = RoleScheduler({0: "role 0", 1: "role 1"})

    def waits(endpoint: RoleEndpoint) -> None:
        ring = endpoint.bell()

        def look() -> None:
            while not host.idle:
                time.sleep(0.001)
            seen.append(host.statuses())
            ring()

        thread = threading.Thread(target=look)
        thread.start()
        waits_for_games(endpoint)
        thread.join()
        endpoint.send(1, Tag.GROUP, b"")

    host.run({0: waits, 1: lambda endpoint: endpoint.receive(0, Tag.GROUP)})
    assert [role.awaits_games for role in seen[0]] == [True, False]
    assert "an external game that asks for an action" in seen[0][0].describe(str)


class Quiet(RemoteTransport):
    """A transport on which only what a test gives arrives; records the requested waiting times."""

    def __init__(self, *arriving: Callable[[Inbox], None]) -> None:
        self.arriving = deque(arriving)
        self.waited: list[float | None] = []

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        self.waited.append(seconds)
        if self.arriving:
            self.arriving.popleft()(arrivals)

    def poll(self, arrivals: Inbox) -> None: ...

    def send(self, to: int, tag: Tag, source: int, data: Bytes, arrivals: Inbox) -> None: ...


def test_remote_order_does_not_end_the_wait_of_a_single_role() -> None:
    said: list[bytes] = []
    remote = Quiet(
        lambda arrivals: arrivals.deliver(1, Tag.ORDER, 0, bytes([Order.QUERY_STATUS]) + pack(StatusQuery())),
        lambda arrivals: arrivals.deliver(1, Tag.FROM_ROOT, 0, b"go"),
    )
    statuses: list[Any] = []
    host = RoleScheduler({1: "role 1"}, remote, size=2)
    host.on_order(Order.QUERY_STATUS, lambda source, data: statuses.append(host.statuses()))
    host.run({1: lambda endpoint: said.append(bytes(endpoint.receive(0, Tag.FROM_ROOT)[1]))})
    assert said == [b"go"]
    assert [role.state for role in statuses[0]] == [State.WAITS]
    assert remote.waited == [None, None]


@pytest.mark.parametrize("names", [{0: "role 0"}, {0: "role 0", 1: "role 1"}])
def test_listen_returns_a_message_in_time_or_none(names: dict[int, str]) -> None:
    received: list[Any] = []

    def listens(endpoint: RoleEndpoint) -> None:
        received.append(endpoint.listen(2, Tag.GROUP, 0.01))
        received.append(endpoint.listen(2, Tag.GROUP, 60.0))

    def late(arrivals: Inbox) -> None:
        time.sleep(0.02)

    remote = Quiet(late, lambda arrivals: arrivals.deliver(0, Tag.GROUP, 2, b"word"))
    RoleScheduler(names, remote, size=3).run({address: listens if address == 0 else nothing for address in names})
    assert received == [None, (2, b"word")]
    assert all(seconds is not None and seconds <= 60.0 for seconds in remote.waited)


class Lost(Quiet):
    """A transport that fails on every call once all three roles wait, after it has woken some of them."""

    def __init__(self, wakes: tuple[int, ...]) -> None:
        super().__init__()
        self.wakes = wakes
        self.waiting: list[int] = []

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        if len(self.waiting) == 3:
            for address in self.wakes:
                arrivals.wake(address)
            raise PeerLost("rank 1 has ended")

    def poll(self, arrivals: Inbox) -> None:
        self.wait(arrivals)


@pytest.mark.parametrize("wakes", [(), (0,), (2, 0, 1)])
def test_roles_end_if_the_remote_transport_fails_again_and_again(
    wakes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.transport.scheduler._POLL_EVERY", 1)
    remote, ended = Lost(wakes), list[int]()

    def waits(endpoint: RoleEndpoint) -> None:
        remote.waiting.append(endpoint.address)
        try:
            endpoint.receive(3, Tag.GROUP)
        finally:
            ended.append(endpoint.address)

    failures: list[BaseException] = []

    def plays() -> None:
        try:
            host.run(dict.fromkeys(range(3), waits))
        except PeerLost as error:
            failures.append(error)

    host = RoleScheduler({address: f"role {address}" for address in range(3)}, remote, size=4)
    playing = threading.Thread(target=plays, name="role of the test", daemon=True)
    playing.start()
    assert_all_threads_end()
    assert (len(ended), len(failures)) == (3, 1)


# Which role waits for which: circles are found, and every kind of wait has words


def waiting(address: int, source: int, tag: Tag = Tag.GROUP, seconds: float = 61.2) -> RoleStatus:
    return RoleStatus(address, State.WAITS, (address, tag, source), seconds)


def name(address: int) -> str:
    return f"role {address}"


@given(st.dictionaries(st.integers(0, 9), st.integers(-1, 12), max_size=10))
def test_find_circle_finds_one_if_and_only_if_there_is_one(waits: dict[int, int]) -> None:
    def comes_back(start: int) -> bool:
        address: int | None = start
        for _ in range(len(waits)):
            address = waits.get(address) if address is not None else None
            if address == start:
                return True
        return False

    circle = find_circle(waiting(address, source) for address, source in waits.items())
    assert bool(circle) == any(map(comes_back, waits))
    for role, successor in zip(circle, circle[1:] + circle[:1], strict=True):
        assert role.awaited is not None and role.awaited[2] == successor.address


def test_words_of_a_role_describe_every_tag() -> None:
    said = {waiting(1, 2, tag).describe(name) for tag in Tag if tag not in (Tag.ORDER, Tag.GAMES)}
    assert all("role 2" in words and "_" not in words for words in said)
    assert waiting(0, ANY_SOURCE, Tag.TO_ROOT).describe(name) == "role 0 waits for a message of any role, for 61 s"


def test_report_of_a_large_run_is_short() -> None:
    frame = StackFrame("/home/user/game.py", 7, "step")
    lines = report([], [waiting(i, 0)._replace(stack=(frame,)) for i in range(150)], name).splitlines()
    assert len(lines) < 50
    assert lines[-1] == "and 126 more roles"


# ----------------------------------------------------------------------------------------------------- roles together


def meets(calls: list[list[int]], key: str = "same") -> Main:
    """A role that comes together with others; one of them exchanges a message with role 0 for each."""

    def main(endpoint: RoleEndpoint) -> bytes | None:
        me = endpoint.address

        def work(parts: list[tuple[RoleEndpoint, list[bytes]]]) -> None:
            calls.append([one.address for one, _ in parts])
            for one, _ in parts:
                one.send(0, Tag.TO_ROOT, bytes([one.address]))
            for one, got in parts:
                got.append(bytes(one.receive(0, Tag.FROM_ROOT)[1]))

        for _ in range(3):
            got: list[bytes] = []
            endpoint.together(key, (endpoint, got), work)
            assert got == [bytes([me, me])]
        return None

    return main


def answers(count: int, *, then: Callable[[], None] = lambda: None) -> Main:
    def main(endpoint: RoleEndpoint) -> None:
        for _ in range(count):
            source, data = endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)
            then()
            endpoint.send(source, Tag.FROM_ROOT, bytes(data) * 2)

    return main


def test_one_role_acts_for_all_that_come_together() -> None:
    calls: list[list[int]] = []
    run(answers(12), *[meets(calls)] * 3, meets(calls, "other"))
    assert sorted(calls) == [[1, 2, 3]] * 3 + [[4]] * 3


def test_a_single_role_comes_together_with_itself() -> None:
    found: list[list[str]] = []
    run(lambda endpoint: endpoint.together("key", "part", found.append))
    assert found == [["part"]]


def test_busy_roles_do_not_keep_others_from_coming_together() -> None:
    calls, turns = list[list[int]](), list[int]()

    def talks(endpoint: RoleEndpoint) -> None:
        for _ in range(1_000):
            endpoint.send(7 - endpoint.address, Tag.GROUP, b"")
            endpoint.receive(7 - endpoint.address, Tag.GROUP)
            turns.append(len(calls))

    run(answers(6), *[meets(calls)] * 2, talks, talks)
    assert calls == [[1, 2]] * 3
    assert turns[-1] == 3 and turns.index(3) < 200


def test_roles_that_came_together_wait_as_one() -> None:
    calls: list[list[int]] = []
    scheduler = RoleScheduler({address: f"role {address}" for address in range(4)})
    seen: list[list[tuple[State, Any]]] = []

    def look() -> None:
        seen.append([(role.state, role.awaited and role.awaited[1:]) for role in scheduler.statuses()[1:]])

    scheduler.run(dict(enumerate([answers(9, then=look), *[meets(calls)] * 3])))
    assert seen[0] == [(State.WAITS, (Tag.FROM_ROOT, 0))] * 3


@pytest.mark.parametrize("place", ["in the work", "in another role"])
def test_failure_ends_roles_that_came_together(place: str) -> None:
    ended: list[tuple[int, type[BaseException]]] = []

    def comes(endpoint: RoleEndpoint) -> None:
        def work(parts: list[RoleEndpoint]) -> None:
            if place == "in the work":
                raise ValueError("this one")
            parts[1].send(0, Tag.TO_ROOT, b"")
            parts[-1].receive(0, Tag.GROUP)

        try:
            endpoint.together("key", endpoint, work)
        except BaseException as error:
            ended.append((endpoint.address, type(error)))
            raise

    def fails(endpoint: RoleEndpoint) -> None:
        endpoint.receive(ANY_SOURCE, Tag.TO_ROOT)
        raise ValueError("this one")

    with pytest.raises(ValueError, match="this one"):
        run(fails, comes, comes, comes)
    first = ValueError if place == "in the work" else RunStopped
    assert sorted(ended) == [(1, first), (2, RunStopped), (3, RunStopped)]
