"""What the roles of a process do at some moment, and who waits for whom.

A role waits for one other role at a time, so who waits for whom is a chain from each role, which ends at one that does
not wait, or runs into a circle. Who stands in a circle waits for ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from arena.diagnostics.remote_stacks import Process
from arena.diagnostics.stacks import Stack, shortened, stack_lines
from arena.transport.endpoint import ANYONE, Bytes, Channel, Tag

_MOST_STACKS = 12  # of roles; what the others wait for is said in a line each
_MOST_LINES = 24

_AWAITED = {
    Tag.TO_ROOT: "a word of {}",
    Tag.FROM_ROOT: "a word of the {}",
    Tag.WELCOME: "the description of its seat by the {}",
    Tag.LINK: "the description of its seat by the {}",
    Tag.GROUP: "its group: the {}",
    Tag.REQUEST: "the action of the {}",
    Tag.REQUEST_EXTRA: "the action of the {}",
    Tag.SECOND_REQUEST: "the action of the {}",
    Tag.SECOND_REQUEST_EXTRA: "the action of the {}",
    Tag.REPLY: "the answer of the {}",
    Tag.REPLY_EXTRA: "the answer of the {}",
    Tag.SECOND_REPLY: "the answer of the {}",
    Tag.SECOND_REPLY_EXTRA: "the answer of the {}",
}

Names = Callable[[int], str]
"""Says a role, given its address, in words."""


class State(Enum):
    """What a role does."""

    WAITS = "waits"
    RUNS = "runs"
    READY = "waits for its turn"  # it could go on, but another role of its process runs
    ENDED = "has ended"


class RoleStatus(NamedTuple):
    """What one role does."""

    address: int
    state: State
    awaited: Channel | None = None  # of one that waits
    seconds: float = 0.0  # for so long
    stack: Stack = ()
    calls: tuple[tuple[str, int], ...] = ()  # what it has done since its leg began, and how often

    def words(self, names: Names) -> str:
        """In a sentence."""
        role, seconds = names(self.address), f"{self.seconds:.0f} s"
        if self.state is State.RUNS:
            return f"{role} has not come back from one call for {seconds}"
        if self.awaited is None:
            return f"{role} {self.state.value}"
        return f"{role} waits for {awaited_words(self.awaited, names)}, for {seconds}"


class StatusQuery(NamedTuple):
    """What an order WHERE asks."""

    stacks: bool = False  # whether stacks are to come with the answer
    peek: tuple[Process, ...] = ()  # processes on the node of whoever is asked, to be looked into


class StatusReply(NamedTuple):
    """What an order HERE answers."""

    question: StatusQuery
    roles: tuple[RoleStatus, ...]
    peeked: tuple[Mapping[int, Stack], ...] = ()  # of each process that was to be looked into, by addresses


def pack(said: StatusQuery | StatusReply) -> bytes:
    """What an order carries."""
    return pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: Bytes) -> Any:
    """The question or the answer that an order carries."""
    return pickle.loads(data)


def awaited_words(channel: Channel, names: Names) -> str:
    """What a role waits for."""
    _, tag, source = channel
    return _AWAITED.get(tag, f"{tag.name} of the {{}}").format("anyone" if source == ANYONE else names(source))


def circle_in(roles: Iterable[RoleStatus]) -> list[RoleStatus]:
    """The first circle: each waits for the next one, and the last for the first. Empty if there is none."""
    waits = {role.address: role for role in roles if role.awaited is not None}
    seen: set[int] = set()
    for start in waits:
        chain: list[int] = []
        address = start
        while address in waits and address not in seen:
            seen.add(address)
            chain.append(address)
            address = _awaited_of(waits[address])
        if address in chain:
            return [waits[member] for member in chain[chain.index(address) :]]
    return []


def _awaited_of(role: RoleStatus) -> int:
    assert role.awaited is not None
    return role.awaited[2]


def report(circle: Sequence[RoleStatus], others: Sequence[RoleStatus], names: Names) -> str:
    """Lines about those who are to blame, in order, and about all others; stacks of as many as one can read."""
    lines, stacks = [], 0
    for number, role in enumerate((*circle, *others)):
        if number == _MOST_LINES:
            lines.append(f"and {len(circle) + len(others) - number} more roles")
            break
        lines.append(role.words(names))
        if role.stack and stacks < _MOST_STACKS:
            stacks += 1
            lines += stack_lines(shortened(role.stack))
    return "\n".join(lines)
