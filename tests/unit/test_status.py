"""Which role waits for which: circles are found, and every kind of wait has words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arena.diagnostics.stacks import StackFrame
from arena.transport import ANY_SOURCE, Tag
from arena.transport.status import (
    RoleStatus,
    State,
    find_circle,
    report,
)


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


def test_find_circle_ignores_roles_that_do_not_wait() -> None:
    assert find_circle([waiting(1, 2), RoleStatus(2, State.RUNS), waiting(3, ANY_SOURCE)]) == []


def test_words_of_a_role_describe_every_tag() -> None:
    said = {waiting(1, 2, tag).describe(name) for tag in Tag if tag not in (Tag.ORDER, Tag.GAMES)}
    assert all("role 2" in words and "_" not in words for words in said)
    assert waiting(0, ANY_SOURCE, Tag.TO_ROOT).describe(name) == "role 0 waits for a message of any role, for 61 s"


def test_report_lists_the_circle_first_and_then_others_with_stacks() -> None:
    frame = StackFrame("/home/user/game.py", 7, "step")
    busy = RoleStatus(5, State.RUNS, None, 62.0, (frame,))
    assert report([waiting(1, 2), waiting(2, 1, Tag.REPLY)], [busy, RoleStatus(6, State.ENDED)], name).splitlines() == [
        "role 1 waits for its group: the role 2, for 61 s",
        "role 2 waits for the answer of the role 1, for 61 s",
        "role 5 has not come back from one call for 62 s",
        '  File "/home/user/game.py", line 7, in step',
        "role 6 has ended",
    ]


def test_report_of_a_large_run_is_short() -> None:
    frame = StackFrame("/home/user/game.py", 7, "step")
    lines = report([], [waiting(i, 0)._replace(stack=(frame,)) for i in range(150)], name).splitlines()
    assert len(lines) < 50
    assert lines[-1] == "and 126 more roles"
