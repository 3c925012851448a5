"""A role in a thread of its own among roles that share one: it takes turns with them, and ends with them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from arena.errors import RunStopped
from arena.transport import Tag
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from arena.transport.status import State

Main = Callable[[RoleEndpoint], Any]


def run(*mains: Main) -> None:
    RoleScheduler({address: f"role {address}" for address in range(len(mains))}).run(dict(enumerate(mains)))


def own(main: Main) -> Main:
    return lambda endpoint: endpoint.in_dedicated_thread(main)


def talk(endpoint: RoleEndpoint, times: int = 50) -> list[int]:
    """Exchanges numbers with both neighbors in a ring of three."""
    left, right = (endpoint.address - 1) % 3, (endpoint.address + 1) % 3
    received = []
    for turn in range(times):
        endpoint.send(right, Tag.GROUP, bytes([turn]))
        received.append(endpoint.receive(left, Tag.GROUP)[1][0])
    return received


def test_roles_in_threads_of_their_own_take_turns_with_the_others() -> None:
    threads, received, running = dict[int, int](), dict[int, list[int]](), list[int]()
    local = threading.local()

    def main(endpoint: RoleEndpoint) -> None:
        threads[endpoint.address] = threading.get_ident()
        local.mine = endpoint.address
        received[endpoint.address] = talk(endpoint)
        assert threading.get_ident() == threads[endpoint.address]
        if endpoint.address < 2:
            assert local.mine == endpoint.address
        running.append(endpoint.address)

    run(own(main), own(main), main)
    assert received == {address: list(range(50)) for address in range(3)}
    assert len(set(threads.values())) == 3 and threads[2] == threading.get_ident()
    assert sorted(running) == [0, 1, 2]


def test_order_of_events_is_that_of_roles_without_threads() -> None:
    def log_of(*threads: int) -> list[tuple[int, int]]:
        log: list[tuple[int, int]] = []

        def main(endpoint: RoleEndpoint) -> None:
            for turn in range(20):
                log.append((endpoint.address, turn))
                endpoint.send((endpoint.address + 1) % 3, Tag.GROUP, b"")
                endpoint.receive((endpoint.address - 1) % 3, Tag.GROUP)

        run(*[own(main) if address in threads else main for address in range(3)])
        return log

    assert log_of() == log_of(0) == log_of(1, 2) == log_of(0, 1, 2)


def test_another_thread_of_the_role_may_wait_in_its_place() -> None:
    received: list[int] = []

    def plays_elsewhere(endpoint: RoleEndpoint) -> None:
        player = threading.Thread(target=lambda: received.extend(talk(endpoint)))
        player.start()
        player.join()

    run(own(plays_elsewhere), talk, talk)
    assert received == list(range(50))


def test_thread_that_outlives_its_role_is_stopped_at_its_next_call() -> None:
    free, stopped = threading.Event(), threading.Event()

    def leaves_a_thread(endpoint: RoleEndpoint) -> None:
        def goes_on() -> None:
            free.wait()
            try:
                endpoint.sleep((endpoint.address, Tag.GROUP, 1))
            except RunStopped:
                stopped.set()

        threading.Thread(target=goes_on, daemon=True).start()

    run(own(leaves_a_thread), lambda _: None)
    free.set()
    assert stopped.wait(60)


@pytest.mark.parametrize("fails", [0, 1])
def test_error_of_one_role_ends_those_with_and_without_threads(fails: int) -> None:
    ended: list[tuple[int, type[BaseException]]] = []

    def main(endpoint: RoleEndpoint) -> None:
        try:
            talk(endpoint, 3)
            if endpoint.address == fails:
                raise ValueError("this one")
            talk(endpoint)
        except BaseException as error:
            ended.append((endpoint.address, type(error)))
            raise

    with pytest.raises(ValueError, match="this one"):
        run(own(main), main, own(main))
    assert sorted(ended, key=str) == [(each, ValueError if each == fails else RunStopped) for each in range(3)]


def test_signal_ends_the_run_while_the_thread_has_its_turn() -> None:
    main_thread, ended = threading.main_thread().ident, threading.Event()
    assert main_thread is not None

    def busy(endpoint: RoleEndpoint) -> None:
        talk(endpoint, 3)
        signal.pthread_kill(main_thread, signal.SIGINT)
        time.sleep(0.1)
        try:
            talk(endpoint)
        except RunStopped:
            ended.set()
            raise

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            run(talk, own(busy), talk)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(60)


def test_status_has_the_stack_of_the_thread() -> None:
    host = RoleScheduler({address: f"role {address}" for address in range(2)})
    seen: list[Any] = []

    def waits(endpoint: RoleEndpoint) -> None:
        endpoint.receive(1, Tag.GROUP)

    def looks(endpoint: RoleEndpoint) -> None:
        seen.extend(host.statuses(stacks=True))
        endpoint.send(0, Tag.GROUP, b"")

    host.run({0: own(waits), 1: looks})
    assert [role.state for role in seen] == [State.WAITS, State.RUNS]
    for role, function in zip(seen, ("waits", "looks"), strict=True):
        assert [frame.function for frame in role.stack if frame.file == __file__][-1] == function


def test_cpu_time_is_that_of_the_role() -> None:
    spent: dict[int, float] = {}

    def main(endpoint: RoleEndpoint) -> None:
        begun = endpoint.cpu_time()
        talk(endpoint, 2)
        end = time.thread_time() + 0.1 * (endpoint.address + 1) * (endpoint.address < 2)
        while time.thread_time() < end:
            pass
        talk(endpoint, 2)
        spent[endpoint.address] = endpoint.cpu_time() - begun

    before = time.thread_time()
    run(main, own(main), main)
    assert spent[0] >= 0.1 and spent[1] >= 0.2
    assert spent[0] + spent[2] <= time.thread_time() - before
