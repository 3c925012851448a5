"""The states of roles at some moment, and which role waits for which.

A role waits for one other role at a time. Following these waits from any role ends at a role that does not wait, or
reaches a circle; the roles of a circle wait forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from arena.diagnostics.remote_stacks import Process
from arena.diagnostics.stacks import Stack, shortened, stack_lines
from arena.transport.endpoint import ANY_SOURCE, Channel, Tag

_MOST_STACKS = 12  # the remaining roles get one line each
_MOST_LINES = 24

_AWAITED = {
    Tag.TO_ROOT: "a message of {}",
    Tag.FROM_ROOT: "a message of the {}",
    **dict.fromkeys((Tag.WELCOME, Tag.LINK), "the description of its seat by the {}"),
    Tag.GROUP: "its group: the {}",
    **dict.fromkeys((tag for tag in Tag if "REQUEST" in tag.name), "the action of the {}"),
    **dict.fromkeys((tag for tag in Tag if "REPLY" in tag.name), "the answer of the {}"),
    Tag.GAMES: "an external game that asks for an action",
}

Names = Callable[[int], str]
"""The name of a role, given its address."""


class State(Enum):
    """What a role does."""

    WAITS = "waits"
    RUNS = "runs"
    READY = "waits for its turn"  # ready, but another role of its process runs
    ENDED = "has ended"


class RoleStatus(NamedTuple):
    """What one role does."""

    address: int
    state: State
    awaited: Channel | None = None  # what a waiting role waits for
    seconds: float = 0.0  # for how long
    stack: Stack = ()
    calls: tuple[tuple[str, int], ...] = ()  # counts of its calls since the leg began

    @property
    def awaits_games(self) -> bool:
        """Whether the role waits for external games, which may take any time."""
        return self.awaited is not None and self.awaited[1] is Tag.GAMES

    def describe(self, names: Names) -> str:
        """One sentence about the role."""
        role, seconds = names(self.address), f"{self.seconds:.0f} s"
        if self.state is State.RUNS:
            return f"{role} has not come back from one call for {seconds}"
        if self.awaited is None:
            return f"{role} {self.state.value}"
        _, tag, source = self.awaited
        what = _AWAITED.get(tag, f"{tag.name} of the {{}}")
        return f"{role} waits for {what.format('any role' if source == ANY_SOURCE else names(source))}, for {seconds}"


class StatusQuery(NamedTuple):
    """The content of an order QUERY_STATUS."""

    stacks: bool = False  # whether the reply contains stacks
    peek: tuple[Process, ...] = ()  # processes of its node whose stacks the receiver is to read


class StatusReply(NamedTuple):
    """The content of an order STATUS."""

    question: StatusQuery
    roles: tuple[RoleStatus, ...]
    peeked: tuple[Mapping[int, Stack], ...] = ()  # stacks by address, of each process of `question.peek`


def find_circle(roles: Iterable[RoleStatus]) -> list[RoleStatus]:
    """The first circle of waits: each role waits for the next one, the last for the first. Empty if there is none."""
    waits = {role.address: (role, role.awaited[2]) for role in roles if role.awaited is not None}
    visited: set[int] = set()
    for start in waits:
        chain: list[int] = []
        address = start
        while address in waits and address not in visited:
            visited.add(address)
            chain.append(address)
            address = waits[address][1]
        if address in chain:
            return [waits[member][0] for member in chain[chain.index(address) :]]
    return []


def report(circle: Sequence[RoleStatus], others: Sequence[RoleStatus], names: Names) -> str:
    """Lines about the roles of a circle, in order, and about all others, with the stacks of the first ones."""
    lines, stacks = [], 0
    for number, role in enumerate((*circle, *others)):
        if number == _MOST_LINES:
            lines.append(f"and {len(circle) + len(others) - number} more roles")
            break
        lines.append(role.describe(names))
        if role.stack and stacks < _MOST_STACKS:
            stacks += 1
            lines += stack_lines(shortened(role.stack))
    return "\n".join(lines)
