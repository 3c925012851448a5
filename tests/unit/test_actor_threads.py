"""Threads that call actors: their number, calls that are cancelled, threads that do not come back."""

from __future__ import annotations

import asyncio
import threading
import time

from arena.external.threads import ActorThreads


def threads_named_actor() -> int:
    return sum(thread.name.startswith("actor ") for thread in threading.enumerate())


def test_cancelled_calls_start_no_more_threads_than_allowed() -> None:
    async def play() -> None:
        threads = ActorThreads(2, asyncio.get_running_loop().call_soon_threadsafe)
        may_return, before = threading.Event(), threads_named_actor()
        running = [asyncio.create_task(threads.run(may_return.wait)) for _ in range(2)]
        await asyncio.sleep(0.05)
        queued = [asyncio.create_task(threads.run(lambda: None)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in queued:
            task.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
        assert threads_named_actor() - before == 2
        may_return.set()
        assert await asyncio.gather(*running) == [True, True]
        assert await asyncio.gather(*(threads.run(lambda: 7) for _ in range(9))) == [7] * 9
        assert threads_named_actor() - before == 2
        assert threads.close(5.0) == []

    asyncio.run(play())


def test_stuck_thread_is_replaced_and_ends_later() -> None:
    async def play() -> None:
        threads = ActorThreads(1, asyncio.get_running_loop().call_soon_threadsafe)
        may_return, before = threading.Event(), threads_named_actor()
        stuck = asyncio.create_task(threads.run(may_return.wait))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(threads.run(lambda: "played"))
        stuck.cancel()
        assert await waiting == "played"
        assert threads_named_actor() - before == 2
        may_return.set()
        while threads_named_actor() - before > 1:
            time.sleep(0.001)
        assert await threads.run(lambda: 1) == 1
        assert threads.close(5.0) == []

    asyncio.run(play())
