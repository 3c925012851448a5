"""One match as a state machine: requests in, a joint step out. No I/O, no game.

A match moves when every seat that plays has said what it wants; in which order they speak changes nothing.

    playing --LEAVE--> gone        a gone seat is not waited for; its entities do nothing until the budget is used
    all playing seats have spoken  -> Joint: who acts by itself, who idles, or that the only seat asks for a reset
    budget used, or all gone       -> over: nobody speaks any more
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from arena.errors import ProtocolError


class RequestKind(IntEnum):
    """What a seat can ask of its match."""

    ACT = 1  # play my actions
    IDLE = 2  # play nothing for me in this tick
    RESET = 3  # begin new episodes: only for a seat that is alone in its match
    LEAVE = 4  # play nothing for me from now on, and do not wait for me


_ACT = RequestKind.ACT  # to look a member up in its class takes longer than all the rest


class Joint(NamedTuple):
    """What the match does next."""

    reset: int | None  # the seat that asked for new episodes; None: one tick is to be played
    idle: frozenset[int]  # the seats whose entities do nothing in this tick
    listeners: tuple[int, ...]  # the seats that are owed a reply


@dataclass
class Lockstep:
    """The requests of one match.

    Args:
        seats: number of seats.
        budget: the match is over after so many ticks.
        tick: ticks played already (a resumed match begins later than 0).
    """

    seats: int
    budget: int
    tick: int = 0
    _spoken: dict[int, RequestKind] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._all_act = True  # nobody has left, and who has spoken wants to act
        self._usual = Joint(None, frozenset(), tuple(range(self.seats)))  # what most ticks are, made once

    @property
    def over(self) -> bool:
        """Whether the budget is used, or nobody is left to play for."""
        return self.tick >= self.budget or len(self._gone) == self.seats

    @property
    def alone(self) -> bool:
        """Whether the match has a single seat: only such a seat may reset the game."""
        return self.seats == 1

    def end(self) -> None:
        """Lets the match be over with the tick that was played last."""
        self.budget = self.tick

    def missing(self) -> tuple[int, ...]:
        """The seats that must speak before the match can move."""
        if not self._spoken and not self._gone:
            return self._usual.listeners
        heard = self._spoken.keys() | self._gone
        return tuple(seat for seat in range(self.seats) if seat not in heard)

    def put(self, seat: int, kind: RequestKind) -> None:
        """Takes a seat's request.

        Raises:
            ProtocolError: there is no such seat, or it has spoken already, has left, or may not ask for this.
        """
        if seat in self._spoken or seat in self._gone or not 0 <= seat < self.seats or self.tick >= self.budget:
            raise ProtocolError(f"seat {seat} said {kind.name} at tick {self.tick}, but {self._objection(seat)}")
        if kind is not _ACT:
            self._all_act = False
            if kind is RequestKind.RESET and not self.alone:
                raise ProtocolError(f"seat {seat} asked for a reset at tick {self.tick}, but it shares the match")
        if kind is RequestKind.LEAVE:
            self._gone.add(seat)
        else:
            self._spoken[seat] = kind

    def _objection(self, seat: int) -> str:
        if not 0 <= seat < self.seats:
            return f"there are {self.seats} seats"
        state = "left" if seat in self._gone else "spoken already" if seat in self._spoken else "no tick left"
        return f"it has {state}"

    def joint(self) -> Joint:
        """What all have agreed to; the tick is counted.

        Raises:
            ProtocolError: a seat has not spoken yet, or the match is over.
        """
        if self.over:
            raise ProtocolError(f"the match cannot move at tick {self.tick}: it is over")
        if len(self._spoken) + len(self._gone) < self.seats:
            raise ProtocolError(f"the match cannot move at tick {self.tick}: seats {self.missing()} have not spoken")
        if self._all_act:
            self._spoken.clear()
            self.tick += 1
            return self._usual
        spoken, self._spoken = self._spoken, {}
        self._all_act = not self._gone
        reset = next((seat for seat, kind in spoken.items() if kind is RequestKind.RESET), None)
        if reset is None:
            self.tick += 1
        idle = {seat for seat, kind in spoken.items() if kind is RequestKind.IDLE} | self._gone
        return Joint(reset, frozenset(idle), tuple(sorted(spoken)))
