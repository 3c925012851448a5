"""One match as a state machine: requests in, a joint step out. No I/O, no game.

A match steps when every playing seat has sent its request; the order of arrival does not matter.

    playing --LEAVE--> gone            a gone seat is not waited for; its entities idle until the budget is used
    all playing seats have requested   -> Joint: which seats idle, or that the only seat asks for a reset
    budget used, or all seats gone     -> over: no more requests
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from arena.errors import ProtocolError


class RequestKind(IntEnum):
    """What a seat can ask of its match."""

    ACT = 1  # play the seat's actions
    IDLE = 2  # no actions in this tick
    RESET = 3  # begin new episodes: only for the single seat of a match
    LEAVE = 4  # no actions from now on, and no replies


_ACT = RequestKind.ACT  # looking up an enum member takes longer than the rest of `put`


class Joint(NamedTuple):
    """What the match does next."""

    reset: int | None  # the seat that asked for new episodes; None: one tick is to be played
    idle: frozenset[int]  # the seats whose entities idle in this tick
    listeners: tuple[int, ...]  # the seats that get a reply


@dataclass
class Lockstep:
    """The requests of one match."""

    seats: int
    budget: int
    tick: int = 0
    _requests: dict[int, RequestKind] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._all_act = True  # no seat has left, and all requests so far are ACT
        self._usual = Joint(None, frozenset(), tuple(range(self.seats)))  # the result of most ticks, made once

    @property
    def over(self) -> bool:
        """Whether the budget is used, or all seats have left."""
        return self.tick >= self.budget or len(self._gone) == self.seats

    @property
    def alone(self) -> bool:
        """Whether the match has a single seat: only such a seat may reset the game."""
        return self.seats == 1

    def end(self) -> None:
        """Ends the match after the last played tick."""
        self.budget = self.tick

    def missing(self) -> tuple[int, ...]:
        """The seats whose requests are missing."""
        if not self._requests and not self._gone:
            return self._usual.listeners
        known = self._requests.keys() | self._gone
        return tuple(seat for seat in range(self.seats) if seat not in known)

    def put(self, seat: int, kind: RequestKind) -> None:
        """Takes a seat's request; raises `ProtocolError` where it may not send this one now."""
        if seat in self._requests or seat in self._gone or not 0 <= seat < self.seats or self.tick >= self.budget:
            state = "no tick left"
            if seat in self._gone or seat in self._requests:
                state = "left" if seat in self._gone else "sent a request already"
            reason = f"it has {state}" if 0 <= seat < self.seats else f"there are {self.seats} seats"
            raise ProtocolError(f"seat {seat} sent {kind.name} at tick {self.tick}, but {reason}")
        if kind is not _ACT:
            self._all_act = False
            if kind is RequestKind.RESET and not self.alone:
                raise ProtocolError(f"seat {seat} asked for a reset at tick {self.tick}, but it shares the match")
        if kind is RequestKind.LEAVE:
            self._gone.add(seat)
        else:
            self._requests[seat] = kind

    def joint(self) -> Joint:
        """What to play, from all requests; counts the tick, unless it is a reset.

        Raises:
            ProtocolError: the request of a seat is missing, or the match is over.
        """
        if self.over:
            raise ProtocolError(f"the match cannot step at tick {self.tick}: it is over")
        if len(self._requests) + len(self._gone) < self.seats:
            raise ProtocolError(
                f"the match cannot step at tick {self.tick}: the requests of seats {self.missing()} are missing"
            )
        if self._all_act:
            self._requests.clear()
            self.tick += 1
            return self._usual
        requests, self._requests = self._requests, {}
        self._all_act = not self._gone
        reset = next((seat for seat, kind in requests.items() if kind is RequestKind.RESET), None)
        if reset is None:
            self.tick += 1
        idle = {seat for seat, kind in requests.items() if kind is RequestKind.IDLE} | self._gone
        return Joint(reset, frozenset(idle), tuple(sorted(requests)))
