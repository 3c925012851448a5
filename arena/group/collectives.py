"""The collectives of a group: each is one exchange with the *root*, the member of group rank 0.

Each member sends one message; the root combines them in the order of the group ranks and sends one answer to each.

    member -> root   CALL operation payload    this member's part of a collective
                     LEAVE                     its `run` has ended: the root does not wait for it any more
    root -> member   OK writer payload         the result, and the rank that logs and saves for the policy from now on
                     ERROR writer text         the members called different collectives: raised by all of them
    both             MESSAGE                   in shared memory: the content is too long for the area and follows as a
                                               message
    root -> member   AREAS index ticket        after this exchange the group uses these (new) areas of shared memory
    member -> root   AREAS yes-or-no           whether this member could open them

The content travels as messages, or in memory that the members on the root's node share with it. There each member has
an area that it writes, with a count of its messages; area 0 is for the root's answers. The member that posts last wakes
the root. The root offers areas when numbers are exchanged for the first time, and larger ones when larger gradients
come. A member that cannot open them continues with messages, as members on other nodes do. All ways may be mixed; the
bits of the result are the same.

A member that has left has no weight and is not waited for. After its own `run` has ended, the root serves the others
until the last one has left.
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
"""A part of a payload: bytes or a contiguous array."""

_ANSWER, _ROOT_CALLS = (
    0,
    1,
)  # areas of the root's answers and of its own calls; then those of the other members of its node
_HEADER = struct.Struct("<qqq")  # kind; operation, writer, index or yes-or-no; bytes of payload
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
    TEAM = 9  # a pool for each team


_OF_NUMBERS = {Operation.AVERAGE, Operation.MOMENTS, Operation.MAXIMUM, Operation.EQUAL}
_COMBINE: dict[Operation, Callable[[reductions.Parts], bytes]] = {  # AVERAGE writes into existing memory
    Operation.MOMENTS: reductions.moments,
    Operation.MAXIMUM: reductions.maximum,
    Operation.GATHER: reductions.collect,
    Operation.POOL: reductions.collect,
    Operation.BROADCAST: reductions.from_root,
    Operation.EQUAL: reductions.equal,
}


class _Kind(IntEnum):
    CALL = 1
    LEAVE = 2
    OK = 3
    ERROR = 4
    MESSAGE = 5
    AREAS = 6


class _Message(NamedTuple):
    """A received message."""

    kind: _Kind
    about: int  # operation, writer, index, or yes-or-no
    payload: memoryview

    @classmethod
    def read(cls, held: memoryview) -> _Message:
        """The message at the beginning of some memory."""
        kind, about, nbytes = _HEADER.unpack_from(held)
        return cls(_Kind(kind), about, held[_HEADER.size : _HEADER.size + nbytes])


class Collectives(ABC):
    """One member's side of its group's collectives; made by `collectives_of`.

    Args:
        endpoint: of the member.
        members: the addresses of all members, in the order of their group ranks.
        policy: the group's policy, for messages.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        self.left = False
        self.writer = 0  # the group rank that logs and saves, as of the last collective
        self._endpoint = endpoint
        self._members = members
        self._policy = policy
        self._areas: SharedAreas | None = None
        self._own = _ROOT_CALLS  # this member's area
        self._turn = 0  # number of collectives with these areas

    @abstractmethod
    def run(self, operation: Operation, *pieces: Piece) -> memoryview:
        """Runs one collective.

        Args:
            operation: which one.
            pieces: this member's payload.

        Returns:
            the result, in memory that the next collective may overwrite.

        Raises:
            GroupError: the members called different collectives, or their payloads do not fit together.
        """

    @abstractmethod
    def leave(self) -> None:
        """Ends this member's part; the root first serves the others to their end."""

    def _receive_message(self, rank: int) -> _Message:
        """The next message from a member."""
        return _Message.read(memoryview(self._endpoint.receive(self._members[rank], Tag.GROUP)[1]))

    def _send(self, rank: int, message: NDArray[np.uint8]) -> None:
        self._endpoint.send(self._members[rank], Tag.GROUP, message.data)

    def _sleep(self, rank: int) -> None:
        """Waits until something has come, not necessarily from this member."""
        self._endpoint.sleep((self._endpoint.address, Tag.GROUP, self._members[rank]))

    def _buffer(self, index: int | None, nbytes: int) -> NDArray[np.uint8]:
        """Memory for a message with `nbytes` of payload: in the area, or new if there is none or it is too small."""
        total = _HEADER.size + nbytes
        if index is None or self._areas is None or total > self._areas.nbytes:
            return np.empty(total, np.uint8)
        return self._areas[index][:total]

    def _write(self, index: int | None, kind: _Kind, about: int, *pieces: Piece) -> NDArray[np.uint8]:
        """A complete message, written into the area if it fits; `index` None: into new memory."""
        held = [np.frombuffer(piece, np.uint8) for piece in pieces]
        message = self._buffer(index, sum(piece.size for piece in held))
        _set_header(message, kind, about)
        offset = _HEADER.size
        for piece in held:
            message[offset : offset + piece.size] = piece
            offset += piece.size
        return message


def _set_header(message: NDArray[np.uint8], kind: _Kind, about: int) -> None:
    _HEADER.pack_into(message.data, 0, kind, about, message.size - _HEADER.size)


def _lies_in_area(areas: SharedAreas, index: int, message: NDArray[np.uint8]) -> bool:
    """Whether a message was written into the area; if not, marks the area: it follows as a message."""
    fits = message.size <= areas.nbytes
    if not fits:
        _set_header(areas[index][: _HEADER.size], _Kind.MESSAGE, 0)
    return fits


def collectives_of(endpoint: Endpoint, members: Sequence[int], policy: str) -> Collectives:
    """The root's or another member's side, by its rank."""
    kind = _Root if members[0] == endpoint.address else _Member
    return kind(endpoint, members, policy)


class _Member(Collectives):
    """Every member except the root."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wake_root = endpoint.waker(members[0])

    def run(self, operation: Operation, *pieces: Piece) -> memoryview:
        self._send_call(self._write(self._own, _Kind.CALL, operation, *pieces))
        if self._areas is None:
            answer = self._receive_message(0)
        else:
            while self._areas.counts[_ANSWER] < self._turn:
                self._sleep(0)
            fence()
            answer = _Message.read(self._areas[_ANSWER].data)
        while answer.kind in (_Kind.MESSAGE, _Kind.AREAS):
            if answer.kind is _Kind.AREAS:
                self._open(answer)
            answer = self._receive_message(0)
        self.writer = answer.about
        if answer.kind is _Kind.ERROR:
            raise GroupError(bytes(answer.payload).decode())
        return answer.payload

    def leave(self) -> None:
        self.left = True
        self._send_call(self._write(self._own, _Kind.LEAVE, 0))

    def _send_call(self, message: NDArray[np.uint8]) -> None:
        if self._areas is None:
            self._send(0, message)
            return
        in_area = _lies_in_area(self._areas, self._own, message)
        self._turn += 1
        self._areas.post(self._own, NEVER_AGAIN if self.left else self._turn)
        if min(self._areas.counts[_ROOT_CALLS:]) >= self._turn:
            assert self._wake_root is not None, "the root offers areas to members of its node only"
            self._wake_root()
        if not in_area:
            self._send(0, message)

    def _open(self, offer: _Message) -> None:
        """Opens the offered areas, if possible, and tells the root."""
        self._areas, self._own, self._turn = None, offer.about, 0
        try:
            self._areas = SharedAreas.open(offer.payload)
        except OSError as error:
            _log.warning(
                "policy %r: the shared memory of its group cannot be opened (%s): it uses messages", self._policy, error
            )
        self._endpoint.send(self._members[0], Tag.GROUP, _HEADER.pack(_Kind.AREAS, int(self._areas is not None), 0))


class _Root(Collectives):
    """The member of rank 0: combines the calls of all members, its own included."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wakers = [endpoint.waker(member) if rank else None for rank, member in enumerate(members)]
        self._present = list(range(1, len(members)))  # the ranks of the others that have not left
        self._indices: dict[int, int] = {}  # rank -> index of its area
        self._offered: tuple[int, ...] = ()  # ranks whose answer to an offer of areas is missing
        self._no_memory = False

    def run(self, operation: Operation, *pieces: Piece) -> memoryview:
        own = self._write(self._own, _Kind.CALL, operation, *pieces)
        return self._combine({0: _Message(_Kind.CALL, operation, own.data[_HEADER.size :]), **self._receive_calls()})

    def leave(self) -> None:
        self.left = True
        while self._present:
            if calls := self._receive_calls():
                self._combine(calls)

    # ------------------------------------------------------------------------------------------- receiving calls

    def _receive_calls(self) -> dict[int, _Message]:
        """The others' calls, in the order of their ranks."""
        for rank in self._offered:
            if not self._receive_message(rank).about and self._areas is not None:  # it could not open the areas
                self._areas.post(self._indices.pop(rank), NEVER_AGAIN)
                self._wakers[rank] = None  # it could not open the next ones either
        if self._offered and self._areas is not None:
            self._areas.close()
        self._offered = ()
        if self._areas is not None:
            self._turn += 1
            self._areas.post(_ROOT_CALLS, NEVER_AGAIN if self.left else self._turn)
            for rank, index in self._indices.items():
                while self._areas.counts[index] < self._turn:
                    self._sleep(rank)
            fence()
        calls = {}
        for rank in tuple(self._present):
            call = None
            if self._areas is not None and rank in self._indices:
                call = _Message.read(self._areas[self._indices[rank]].data)
            if call is None or call.kind is _Kind.MESSAGE:
                call = self._receive_message(rank)
            if call.kind is _Kind.LEAVE:
                self._present.remove(rank)
                self._indices.pop(rank, None)
            else:
                calls[rank] = call
        return calls

    # ------------------------------------------------------------------------------------------- sending answers

    def _combine(self, calls: Mapping[int, _Message]) -> memoryview:
        operation = Operation(next(iter(calls.values())).about)
        self.writer = self._present[0] if self.left else 0
        parts = {rank: call.payload for rank, call in calls.items()}
        try:
            if len({call.about for call in calls.values()}) > 1:
                names = ", ".join(f"worker {rank} {Operation(call.about).name.lower()}" for rank, call in calls.items())
                raise GroupError(f"the workers called different collectives: {names}")
            if operation is Operation.TEAM:
                return self._answer_each(reductions.collect_teams(parts))
            if operation is Operation.AVERAGE:
                result = self._buffer(_ANSWER, len(next(iter(parts.values()))))
                reductions.average(parts, result.data[_HEADER.size :])
                _set_header(result, _Kind.OK, self.writer)
            else:
                result = self._write(_ANSWER, _Kind.OK, self.writer, _COMBINE[operation](parts))
        except GroupError as error:
            text = f"policy {self._policy!r}: {error}"
            self._answer(self._write(_ANSWER, _Kind.ERROR, self.writer, text.encode()))
            raise GroupError(text) from error
        for_others = result if operation is not Operation.GATHER else self._write(_ANSWER, _Kind.OK, self.writer)
        self._answer(for_others, max(len(call.payload) for call in calls.values()) if operation in _OF_NUMBERS else 0)
        return result.data[_HEADER.size :]

    def _answer(self, message: NDArray[np.uint8], wanted: int = 0) -> None:
        """Sends an answer to all; then offers areas for payloads of `wanted` bytes, if that is not 0."""
        in_area = False
        if self._areas is not None:
            in_area = _lies_in_area(self._areas, _ANSWER, message)
            self._areas.post(_ANSWER, self._turn)
            self._wake(self._indices)
        others = [rank for rank in self._present if not (in_area and rank in self._indices)]
        if wanted:
            self._offer_areas(_HEADER.size + wanted)
        for rank in others:
            self._send(rank, message)

    def _answer_each(self, results: Mapping[int, bytes]) -> memoryview:
        """Sends each member its own result, as a message; returns the root's."""
        if self._areas is not None:
            _set_header(self._areas[_ANSWER][: _HEADER.size], _Kind.MESSAGE, 0)
            self._areas.post(_ANSWER, self._turn)
            self._wake(self._indices)
        for rank in self._present:
            self._send(rank, self._write(None, _Kind.OK, self.writer, results[rank]))
        return memoryview(results.get(0, b""))

    def _wake(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            wake = self._wakers[rank]
            assert wake is not None, "areas are offered to members of this node only"
            wake()

    def _offer_areas(self, nbytes: int) -> None:
        """Offers the members of this node areas of at least `nbytes`, if there are none as large yet."""
        near = [rank for rank in self._present if self._wakers[rank] is not None]
        if not near or self._no_memory or (self._areas is not None and nbytes <= self._areas.nbytes):
            return
        try:
            self._areas = SharedAreas.make(_ROOT_CALLS + 1 + len(near), nbytes)
        except OSError as error:
            self._no_memory = True
            _log.warning(
                "policy %r: no shared memory for its group (%s): its gradients travel as messages", self._policy, error
            )
            return
        self._turn, self._offered = 0, tuple(near)
        self._indices = {rank: index for index, rank in enumerate(near, start=_ROOT_CALLS + 1)}
        ticket = self._areas.ticket
        for rank, index in self._indices.items():
            offer = _HEADER.pack(_Kind.AREAS, index, len(ticket)) + ticket
            self._endpoint.send(self._members[rank], Tag.GROUP, offer)
