"""What torch, NumPy, asyncio and `contextvars` keep per thread, each role that shares a thread has for itself."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from arena.transport import Tag, thread_state
from arena.transport.scheduler import RoleEndpoint, RoleScheduler

ROLES = 6
CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "raise": lambda: np.errstate(all="raise"),
}


def run(main: Callable[[RoleEndpoint], Any]) -> None:
    RoleScheduler({address: f"role {address}" for address in range(ROLES)}).run(dict.fromkeys(range(ROLES), main))


def pass_on(endpoint: RoleEndpoint) -> None:
    """Lets all other roles run."""
    endpoint.send((endpoint.address + 1) % ROLES, Tag.GROUP, b"")
    endpoint.receive((endpoint.address - 1) % ROLES, Tag.GROUP)


def seen() -> tuple[Any, ...]:
    """What a program sees of the settings."""
    made = torch.ones(2, 2, requires_grad=True)
    product = made @ made
    leaf = torch.zeros(1, requires_grad=True)
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        made.is_inference(),
        (leaf * 2).requires_grad,
        product.dtype,
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        np.geterr(),
    )


@pytest.mark.parametrize("seed", range(5))
def test_contexts_of_roles_do_not_meet(seed: int) -> None:
    """Every role enters and leaves random contexts; in its thread alone it would see the same."""

    def main_of(log: dict[int, list[Any]], wait: Callable[[RoleEndpoint], None]) -> Callable[[Any], None]:
        def main(endpoint: Any) -> None:
            chance = random.Random(f"{seed} {endpoint.address}")
            log[endpoint.address] = []
            with ExitStack() as entered:
                for _ in range(30):
                    if chance.random() < 0.3:
                        entered.close()
                    else:
                        entered.enter_context(CONTEXTS[chance.choice(list(CONTEXTS))]())
                    wait(endpoint)
                    log[endpoint.address].append(seen())

        return main

    together: dict[int, list[Any]] = {}
    before = seen()
    run(main_of(together, pass_on))
    assert seen() == before
    for address in range(ROLES):
        alone: dict[int, list[Any]] = {}
        RoleScheduler({address: ""}).run({address: main_of(alone, lambda _: None)})
        assert together[address] == alone[address]
    assert len({str(line) for lines in together.values() for line in lines}) > 10


def test_caller_keeps_its_state_and_roles_begin_with_that_of_a_new_thread() -> None:
    begun: list[Any] = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        before = seen()

        def main(endpoint: RoleEndpoint) -> None:
            begun.append(thread_state.read())
            pass_on(endpoint)
            torch.set_grad_enabled(False)

        run(main)
        assert seen() == before
    assert begun == [thread_state.NEW] * ROLES
    assert seen()[:2] == (True, False)


def test_gradients_are_right_beside_roles_that_do_not_need_any() -> None:
    found: dict[int, float] = {}

    def main(endpoint: RoleEndpoint) -> None:
        weight = torch.nn.Parameter(torch.tensor(3.0))
        with torch.inference_mode(endpoint.address % 2 == 0):
            for _ in range(4):
                pass_on(endpoint)
                loss = weight * weight
                pass_on(endpoint)
                if endpoint.address % 2:
                    loss.backward()
        found[endpoint.address] = 0.0 if weight.grad is None else float(weight.grad)

    run(main)
    assert found == {address: 24.0 * (address % 2) for address in range(ROLES)}


def test_context_variables_belong_to_a_role() -> None:
    number = contextvars.ContextVar("number", default=-1)

    def main(endpoint: RoleEndpoint) -> None:
        assert number.get() == -1
        for turn in range(3):
            number.set(10 * endpoint.address + turn)
            pass_on(endpoint)
            assert number.get() == 10 * endpoint.address + turn

    run(main)
    assert number.get() == -1


def test_each_role_may_have_an_event_loop() -> None:
    ended: list[int] = []

    async def plays(endpoint: RoleEndpoint) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            pass_on(endpoint)
            assert asyncio.current_task() is not None
        ended.append(endpoint.address)

    async def caller() -> None:
        loop = asyncio.get_running_loop()
        run(lambda endpoint: asyncio.run(plays(endpoint)))
        assert asyncio.get_running_loop() is loop

    asyncio.run(caller())
    assert sorted(ended) == list(range(ROLES))
