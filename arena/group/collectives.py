"""How the members of a group meet: every collective is one exchange with the *hub*, the member of group rank 0.

Each member sends one message, the hub combines them in the order of the group ranks and sends one message back.

    member -> hub    CALL operation payload   my part of a collective
                     LEAVE                    my `run` has ended: do not wait for me any more
    hub -> member    OK speaker payload       the combined result, and who logs and saves for the policy from now on
                     ERROR speaker text       the members called different things: everybody raises it
    both             LETTER                   in common memory: what I say is too long for it and comes as a letter
    hub -> member    MEMORY index ticket      we have (other) memory in common after this exchange
    member -> hub    MEMORY yes-or-no         whether I could open it

Messages are letters, or lie in memory that the members on the hub's node have in common with it. There each has an
area that it writes, and a count of what it has written; the hub's area 0 is for the answers. Who speaks last wakes the
hub. The hub offers memory as soon as numbers are exchanged, and again when larger gradients come; who cannot open it
goes on with letters, as members on other nodes do. All ways mix and give the same bits.

A member that has left weighs nothing and blocks nobody. The hub, when its own `run` has ended, goes on to serve the
others until the last one has left.
"""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.errors import GroupError
from arena.group import reductions
from arena.transport.endpoint import Endpoint, Tag
from arena.transport.links import NEVER_AGAIN
from arena.transport.shared_memory import SharedAreas, fence

Piece: TypeAlias = bytes | NDArray[Any]
"""A part of a payload: bytes, or a contiguous array."""

_ANSWER, _HUB = 0, 1  # areas: the hub's answers, its own calls; then come those of the other members of its node
_HEADER = struct.Struct("<qqq")  # word; operation, speaker, index or yes-or-no; bytes of payload
_log = logging.getLogger(__name__)


class Operation(IntEnum):
    """The collectives."""

    AVERAGE = 1
    MOMENTS = 2
    MAXIMUM = 3
    GATHER = 4
    POOL = 5
    BROADCAST = 6
    EQUAL = 7
    WEIGH = 8  # an average whose gradients MPI sums afterwards
    TEAM = 9  # a pool for each team: its members alone hear of it


_OF_NUMBERS = {Operation.AVERAGE, Operation.MOMENTS, Operation.MAXIMUM, Operation.EQUAL, Operation.WEIGH}
_COMBINE: dict[Operation, Callable[[reductions.Parts], bytes]] = {  # AVERAGE writes into memory that is there
    Operation.MOMENTS: reductions.moments,
    Operation.MAXIMUM: reductions.maximum,
    Operation.GATHER: reductions.collect,
    Operation.POOL: reductions.collect,
    Operation.BROADCAST: reductions.from_root,
    Operation.EQUAL: reductions.equal,
    Operation.WEIGH: reductions.weigh,
}


class _Word(IntEnum):
    CALL = 1
    LEAVE = 2
    OK = 3
    ERROR = 4
    LETTER = 5
    MEMORY = 6


class _Message(NamedTuple):
    """A message that has come."""

    word: _Word
    about: int  # operation, speaker, index, or yes-or-no
    payload: memoryview

    @classmethod
    def read(cls, held: memoryview) -> _Message:
        """The message at the beginning of some memory."""
        word, about, nbytes = _HEADER.unpack_from(held)
        return cls(_Word(word), about, held[_HEADER.size : _HEADER.size + nbytes])


class Collectives(ABC):
    """One member's part in what its group does together; `collectives_of` makes it.

    Args:
        endpoint: the member's place in the world.
        members: the addresses of all members, in the order of their group ranks.
        policy: the group's policy, for messages.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        self.left = False
        self.speaker = 0  # the group rank of who logs and saves, as all members know since the last collective
        self._endpoint = endpoint
        self._members = members
        self._policy = policy
        self._areas: SharedAreas | None = None
        self._own = _HUB  # this member's area
        self._turn = 0  # collectives since there have been these areas

    @abstractmethod
    def meet(self, operation: Operation, *pieces: Piece) -> memoryview:
        """One collective.

        Args:
            operation: which one.
            pieces: this member's payload.

        Returns:
            the result, in memory that the next collective may use again.

        Raises:
            GroupError: the members called different collectives, or what they sent does not fit together.
        """

    @abstractmethod
    def leave(self) -> None:
        """Ends this member's part."""

    def _letter(self, rank: int) -> _Message:
        """The next letter from a member."""
        return _Message.read(memoryview(self._endpoint.receive(self._members[rank], Tag.GROUP)[1]))

    def _send(self, rank: int, message: NDArray[np.uint8]) -> None:
        self._endpoint.send(self._members[rank], Tag.GROUP, message.data)

    def _sleep(self, rank: int) -> None:
        """Until something has come, perhaps from this member."""
        self._endpoint.sleep((self._endpoint.address, Tag.GROUP, self._members[rank]))

    def _room(self, index: int | None, nbytes: int) -> NDArray[np.uint8]:
        """Memory for a message with such a payload: in the area, or new where there is none or it is too small."""
        total = _HEADER.size + nbytes
        if index is None or self._areas is None or total > self._areas.nbytes:
            return np.empty(total, np.uint8)
        return self._areas[index][:total]

    def _write(self, index: int | None, word: _Word, about: int, *pieces: Piece) -> NDArray[np.uint8]:
        """A message in the area's room, ready to go; in no area: one that goes as a letter."""
        held = [np.frombuffer(piece, np.uint8) for piece in pieces]
        message = self._room(index, sum(piece.size for piece in held))
        _set_header(message, word, about)
        offset = _HEADER.size
        for piece in held:
            message[offset : offset + piece.size] = piece
            offset += piece.size
        return message


def _set_header(message: NDArray[np.uint8], word: _Word, about: int) -> None:
    _HEADER.pack_into(message.data, 0, word, about, message.size - _HEADER.size)


def _announce(areas: SharedAreas, index: int, message: NDArray[np.uint8]) -> bool:
    """Whether a message lies in the area; else the area says that it comes as a letter."""
    fits = message.size <= areas.nbytes
    if not fits:
        _set_header(areas[index][: _HEADER.size], _Word.LETTER, 0)
    return fits


def collectives_of(endpoint: Endpoint, members: Sequence[int], policy: str) -> Collectives:
    """The hub's part or a member's."""
    kind = _Root if members[0] == endpoint.address else _Member
    return kind(endpoint, members, policy)


class _Member(Collectives):
    """Every member but the hub."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wake_hub = endpoint.waker(members[0])

    def meet(self, operation: Operation, *pieces: Piece) -> memoryview:
        self._say(self._write(self._own, _Word.CALL, operation, *pieces))
        answer = self._hear()
        while answer.word in (_Word.LETTER, _Word.MEMORY):
            if answer.word is _Word.MEMORY:
                self._open(answer)
            answer = self._letter(0)
        self.speaker = answer.about
        if answer.word is _Word.ERROR:
            raise GroupError(bytes(answer.payload).decode())
        return answer.payload

    def leave(self) -> None:
        self.left = True
        self._say(self._write(self._own, _Word.LEAVE, 0))

    def _say(self, message: NDArray[np.uint8]) -> None:
        if self._areas is None:
            self._send(0, message)
            return
        lies_there = _announce(self._areas, self._own, message)
        self._turn += 1
        self._areas.post(self._own, NEVER_AGAIN if self.left else self._turn)
        if min(self._areas.counts[_HUB:]) >= self._turn:
            assert self._wake_hub is not None, "memory was offered by a hub that is not near"
            self._wake_hub()
        if not lies_there:
            self._send(0, message)

    def _hear(self) -> _Message:
        if self._areas is None:
            return self._letter(0)
        while self._areas.counts[_ANSWER] < self._turn:
            self._sleep(0)
        fence()
        return _Message.read(self._areas[_ANSWER].data)

    def _open(self, offer: _Message) -> None:
        """Takes the memory, if possible, and tells the hub."""
        self._areas, self._own, self._turn = None, offer.about, 0
        try:
            self._areas = SharedAreas.open(offer.payload)
        except OSError as error:
            _log.warning("policy %r: memory of its group cannot be opened (%s): letters", self._policy, error)
        self._endpoint.send(self._members[0], Tag.GROUP, _HEADER.pack(_Word.MEMORY, int(self._areas is not None), 0))


class _Root(Collectives):
    """The member of rank 0, who combines what the others and it itself have called."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wakers = [endpoint.waker(member) if rank else None for rank, member in enumerate(members)]
        self._present = list(range(1, len(members)))  # those that have not left
        self._indices: dict[int, int] = {}  # rank -> area, of the others that have one
        self._offered: tuple[int, ...] = ()  # ranks that have not yet said whether they could open the memory
        self._memory_is_short = False

    def meet(self, operation: Operation, *pieces: Piece) -> memoryview:
        own = self._write(self._own, _Word.CALL, operation, *pieces)
        return self._combine({0: _Message(_Word.CALL, operation, own.data[_HEADER.size :]), **self._hear()})

    def leave(self) -> None:
        self.left = True
        while self._present:
            if calls := self._hear():
                self._combine(calls)

    # ------------------------------------------------------------------------------------------- what the others say

    def _hear(self) -> dict[int, _Message]:
        """The others' calls, in the order of their ranks."""
        self._settle()
        self._await_neighbours()
        calls = {}
        for rank in tuple(self._present):
            call = self._call_of(rank)
            if call.word is _Word.LEAVE:
                self._present.remove(rank)
                self._indices.pop(rank, None)
            else:
                calls[rank] = call
        return calls

    def _settle(self) -> None:
        """Hears who could open the memory that was offered; nobody waits for the counts of the others."""
        for rank in self._offered:
            if not self._letter(rank).about and self._areas is not None:
                self._areas.post(self._indices.pop(rank), NEVER_AGAIN)
                self._wakers[rank] = None  # and will not be able to open the next one
        if self._offered and self._areas is not None:
            self._areas.close()
        self._offered = ()

    def _await_neighbours(self) -> None:
        if self._areas is None:
            return
        self._turn += 1
        self._areas.post(_HUB, NEVER_AGAIN if self.left else self._turn)
        for rank, index in self._indices.items():
            while self._areas.counts[index] < self._turn:
                self._sleep(rank)
        fence()

    def _call_of(self, rank: int) -> _Message:
        if self._areas is None or rank not in self._indices:
            return self._letter(rank)
        call = _Message.read(self._areas[self._indices[rank]].data)
        return self._letter(rank) if call.word is _Word.LETTER else call

    # ------------------------------------------------------------------------------------------- what they are told

    def _combine(self, calls: Mapping[int, _Message]) -> memoryview:
        operation = Operation(next(iter(calls.values())).about)
        self.speaker = self._present[0] if self.left else 0
        parts = {rank: call.payload for rank, call in calls.items()}
        try:
            self._check_same(calls)
            if operation is Operation.TEAM:
                return self._answer_each(reductions.collect_teams(parts))
            result = self._result(operation, parts)
        except GroupError as error:
            text = f"policy {self._policy!r}: {error}"
            self._answer(self._write(_ANSWER, _Word.ERROR, self.speaker, text.encode()))
            raise GroupError(text) from error
        for_others = result if operation is not Operation.GATHER else self._write(_ANSWER, _Word.OK, self.speaker)
        self._answer(for_others, max(len(call.payload) for call in calls.values()) if operation in _OF_NUMBERS else 0)
        return result.data[_HEADER.size :]

    def _result(self, operation: Operation, parts: reductions.Parts) -> NDArray[np.uint8]:
        """A message with the result."""
        if operation is not Operation.AVERAGE:
            return self._write(_ANSWER, _Word.OK, self.speaker, _COMBINE[operation](parts))
        message = self._room(_ANSWER, len(next(iter(parts.values()))))
        reductions.average(parts, message.data[_HEADER.size :])
        _set_header(message, _Word.OK, self.speaker)
        return message

    def _answer(self, message: NDArray[np.uint8], wanted: int = 0) -> None:
        """To everybody; then come areas for payloads of `wanted` bytes."""
        lies_there = False
        if self._areas is not None:
            lies_there = _announce(self._areas, _ANSWER, message)
            self._areas.post(_ANSWER, self._turn)
            self._wake(self._indices)
        others = [rank for rank in self._present if not (lies_there and rank in self._indices)]
        if wanted:
            self._offer(_HEADER.size + wanted)
        for rank in others:
            self._send(rank, message)

    def _answer_each(self, results: Mapping[int, bytes]) -> memoryview:
        """To everybody what is for them alone, as letters; the hub's own."""
        if self._areas is not None:
            _set_header(self._areas[_ANSWER][: _HEADER.size], _Word.LETTER, 0)
            self._areas.post(_ANSWER, self._turn)
            self._wake(self._indices)
        for rank in self._present:
            self._send(rank, self._write(None, _Word.OK, self.speaker, results[rank]))
        return memoryview(results.get(0, b""))

    def _wake(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            wake = self._wakers[rank]
            assert wake is not None, "memory was offered to somebody who is not near"
            wake()

    def _offer(self, nbytes: int) -> None:
        """Offers larger areas, where those that there are do not do, to the members of this node."""
        near = [rank for rank in self._present if self._wakers[rank] is not None]
        if not near or self._memory_is_short or (self._areas is not None and nbytes <= self._areas.nbytes):
            return
        try:
            self._areas = SharedAreas.make(_HUB + 1 + len(near), nbytes)
        except OSError as error:
            self._memory_is_short = True
            _log.warning("policy %r: no memory for its group (%s): its gradients go as letters", self._policy, error)
            return
        self._turn, self._offered = 0, tuple(near)
        self._indices = {rank: index for index, rank in enumerate(near, start=_HUB + 1)}
        ticket = self._areas.ticket
        for rank, index in self._indices.items():
            offer = _HEADER.pack(_Word.MEMORY, index, len(ticket)) + ticket
            self._endpoint.send(self._members[rank], Tag.GROUP, offer)

    def _check_same(self, calls: Mapping[int, _Message]) -> None:
        if len({call.about for call in calls.values()}) > 1:
            names = ", ".join(f"worker {rank} {Operation(call.about).name.lower()}" for rank, call in calls.items())
            raise GroupError(f"the workers called different collectives: {names}")
