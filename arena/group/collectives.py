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

The results are pure functions of the members' payloads. Sums are taken in double precision and in the order of the
group ranks, so their bits do not depend on where the members run.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arena.errors import GroupError, listed
from arena.transport.endpoint import Endpoint, Tag
from arena.transport.links import NEVER_AGAIN
from arena.transport.pickling import pack, unpack
from arena.transport.shared_memory import SharedAreas, fence

Piece: TypeAlias = bytes | NDArray[Any]
"""A part of a payload: bytes or a contiguous array."""
Parts: TypeAlias = Mapping[int, memoryview]
"""Group rank -> payload, in ascending order; at least one."""

_HEAD = struct.Struct("<dqq")  # weight, number of scalars (float64), number of gradient values (float32)
_TABLE = struct.Struct("<qq")  # rows, bytes of names
_TEAM = struct.Struct("<q")  # its number
_CHUNK = 16384  # values summed at once: two float64 arrays of this size stay in the L2 cache

# Areas: of the root's answers and of its own calls; then those of the other members of its node.
_ANSWER, _ROOT_CALLS = 0, 1
_HEADER = struct.Struct("<qqq")  # kind; operation, writer, index or yes-or-no; bytes of payload
_log = logging.getLogger(__name__)


class Weighted(NamedTuple):
    """Numbers and gradient values of one member, or their means over several."""

    weight: float
    scalars: NDArray[np.float64]  # [k]
    values: NDArray[np.float32]  # [n]

    @classmethod
    def read(cls, payload: Any) -> Weighted:
        """Reads a payload; the arrays are views of it."""
        weight, n_scalars, n_values = _HEAD.unpack_from(payload)
        offset = _HEAD.size
        return cls(
            weight,
            np.frombuffer(payload, np.float64, n_scalars, offset),
            np.frombuffer(payload, np.float32, n_values, offset + 8 * n_scalars),
        )


def weighted_head(weight: float, scalars: NDArray[np.float64], n_values: int) -> bytes:
    """The beginning of a weighted payload; the values follow."""
    return _HEAD.pack(weight, scalars.size, n_values) + scalars.tobytes()


def average(parts: Parts, out: memoryview) -> None:
    """The weighted means of scalars and values, with the sum of the weights; zeros if all weights are 0.

    A part is a `weighted_head` and its values, `out` the result, of the same size. A member with weight 0 is left out,
    also if its values are NaN.

    Raises:
        GroupError: the parts differ in size.
    """
    sizes = {_HEAD.unpack_from(part)[1:] for part in parts.values()}
    if len(sizes) > 1:
        raise GroupError(f"the workers average different numbers of (scalars, gradient values): {sorted(sizes)}")
    ((n_scalars, n_values),) = sizes
    weighted = [part for part in map(Weighted.read, parts.values()) if part.weight != 0.0]
    total = 0.0
    for part in weighted:  # the built-in `sum` compensates for rounding from Python 3.12 on: other bits
        total += part.weight
    scalars = np.zeros(n_scalars)
    _mean([(part.scalars, part.weight) for part in weighted], total, scalars)
    head = weighted_head(total, scalars, n_values)
    values = np.frombuffer(out, np.float32, n_values, len(head))
    _mean([(part.values, part.weight) for part in weighted], total, values)
    out[: len(head)] = head


@cache
def _scratch() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.empty(_CHUNK), np.empty(_CHUNK)


def _mean(terms: Sequence[tuple[NDArray[Any], float]], total: float, out: NDArray[Any]) -> None:
    """Writes sum(w_i x_i) / total into `out`; zeros if there are no terms."""
    if not terms:
        out[:] = 0.0
        return
    whole, product = _scratch()
    (first, first_weight), *others = terms
    for start in range(0, out.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, out.size))
        mean, term = whole[: part.stop - start], product[: part.stop - start]
        mean[:] = first[part]
        mean *= first_weight
        for array, weight in others:
            term[:] = array[part]
            term *= weight
            mean += term
        mean /= total
        out[part] = mean


def describe(numbers: ArrayLike) -> tuple[float, float, float, float]:
    """One member's numbers, in float64, as (count, mean, sum of squared deviations, largest count of a member)."""
    values = np.asarray(numbers, np.float64).ravel()
    if not values.size:
        return 0.0, 0.0, 0.0, 0.0
    mean = float(np.add.reduce(values) / values.size)  # `values.mean()`, without its checks
    return float(values.size), mean, float(np.add.reduce((values - mean) ** 2)), float(values.size)


def table(names: Sequence[str], rows: Sequence[Sequence[float]]) -> bytes:
    """A payload with rows of `describe` and the names of the arrays."""
    text = "\n".join(names).encode()
    return _TABLE.pack(len(rows), len(text)) + np.array(rows, np.float64).tobytes() + text


def rows_of(payload: Any) -> NDArray[np.float64]:
    """The rows [k, 4] of a `table`."""
    count, _ = _TABLE.unpack_from(payload)
    return np.frombuffer(payload, np.float64, 4 * count, _TABLE.size).reshape(-1, 4)


def moments(parts: Parts) -> bytes:
    """Merges tables of `describe` row by row, by the formula of Chan, Golub and LeVeque (1979).

    Raises:
        GroupError: the parts describe arrays of different names.
    """
    names = {}
    for rank, part in parts.items():
        rows, length = _TABLE.unpack_from(part)
        start = _TABLE.size + 32 * rows
        names[rank] = bytes(part[start : start + length]).decode()
    if len(set(names.values())) > 1:
        found = "; ".join(f"worker {rank} {text.splitlines()}" for rank, text in names.items())
        raise GroupError(f"the workers ask for the moments of different arrays: {found}")
    tables = [rows_of(part).tolist() for part in parts.values()]
    merged = [(0.0, 0.0, 0.0, 0.0) for _ in tables[0]]
    for described in tables:
        for index, (n, mean, squares, most) in enumerate(described):
            if n:
                count, its_mean, its_squares, its_most = merged[index]
                delta, both = mean - its_mean, count + n
                merged[index] = (
                    both,
                    its_mean + delta * n / both,
                    its_squares + squares + delta * delta * count * n / both,
                    max(its_most, most),
                )
    return table(next(iter(names.values())).split("\n"), merged)


def maximum(parts: Parts) -> bytes:
    """The maximum of one float64 per part; NaN if any is NaN."""
    values = np.array([np.frombuffer(part, np.float64)[0] for part in parts.values()])
    return bytes(values.max().tobytes())


def collect(parts: Parts) -> bytes:
    """A list of all samples."""
    return pack([unpack(part) for part in parts.values()])


def of_team(team: int, samples: Any) -> bytes:
    """A payload with samples for a team."""
    return _TEAM.pack(team) + pack(samples)


def collect_teams(parts: Parts) -> dict[int, bytes]:
    """Group rank -> a list of the samples of all members of its team."""
    teams: dict[int, dict[int, memoryview]] = {}
    for rank, part in parts.items():
        teams.setdefault(_TEAM.unpack_from(part)[0], {})[rank] = part[_TEAM.size :]
    found = {}
    for samples in teams.values():
        found.update(dict.fromkeys(samples, collect(samples)))
    return found


def from_root(parts: Parts) -> bytes:
    """The payload of rank 0; empty if it has left."""
    return bytes(parts.get(0, b""))


def equal(parts: Parts) -> bytes:
    """Empty, if all parts, hashes of the members' weights, are equal; raises GroupError if they differ."""
    digests = {rank: bytes(part) for rank, part in parts.items()}
    first = next(iter(digests.values()))
    others = [rank for rank, digest in digests.items() if digest != first]
    if others:
        raise GroupError(f"the weights of workers {others} differ from those of worker {next(iter(digests))}")
    return b""


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
_COMBINE: dict[Operation, Callable[[Parts], bytes]] = {  # AVERAGE writes into existing memory
    Operation.MOMENTS: moments,
    Operation.MAXIMUM: maximum,
    Operation.GATHER: collect,
    Operation.POOL: collect,
    Operation.BROADCAST: from_root,
    Operation.EQUAL: equal,
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
    def read(cls, memory: memoryview) -> _Message:
        """The message at the beginning of some memory."""
        kind, about, nbytes = _HEADER.unpack_from(memory)
        return cls(_Kind(kind), about, memory[_HEADER.size : _HEADER.size + nbytes])


class _Side:
    """What the sides of all members share.

    Attributes:
        left: whether the member has left.
        writer: the group rank that logs and saves, as of the last collective.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        self.left, self.writer = False, 0
        self._endpoint, self._members, self._policy = endpoint, members, policy
        self._areas: SharedAreas | None = None
        self._area = _ROOT_CALLS  # this member's area
        self._turn = 0  # number of collectives with these areas

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
        parts = [np.frombuffer(piece, np.uint8) for piece in pieces]
        message = self._buffer(index, sum(piece.size for piece in parts))
        _set_header(message, kind, about)
        offset = _HEADER.size
        for piece in parts:
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


class Member(_Side):
    """The side of every member except the root; methods as of `Root`."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wake_root = endpoint.waker(members[0])

    def run(self, operation: Operation, *pieces: Piece) -> memoryview:
        self._send_call(self._write(self._area, _Kind.CALL, operation, *pieces))
        if self._areas is None:
            answer = self._receive_message(0)
        else:
            while self._areas.counts[_ANSWER] < self._turn:
                self._sleep(0)
            fence()
            answer = _Message.read(self._areas[_ANSWER].data)
        while answer.kind in (_Kind.MESSAGE, _Kind.AREAS):
            if answer.kind is _Kind.AREAS:  # opens the offered areas, if possible, and tells the root
                self._areas, self._area, self._turn = None, answer.about, 0
                try:
                    self._areas = SharedAreas.open(answer.payload)
                except OSError as error:
                    who = f"policy {self._policy!r}"
                    _log.warning(
                        "%s: the shared memory of its group cannot be opened (%s): it uses messages", who, error
                    )
                opened = _HEADER.pack(_Kind.AREAS, int(self._areas is not None), 0)
                self._endpoint.send(self._members[0], Tag.GROUP, opened)
            answer = self._receive_message(0)
        self.writer = answer.about
        if answer.kind is _Kind.ERROR:
            raise GroupError(bytes(answer.payload).decode())
        return answer.payload

    def leave(self) -> None:
        self.left = True
        self._send_call(self._write(self._area, _Kind.LEAVE, 0))

    def _send_call(self, message: NDArray[np.uint8]) -> None:
        if self._areas is None:
            self._send(0, message)
            return
        in_area = _lies_in_area(self._areas, self._area, message)
        self._turn += 1
        self._areas.post(self._area, NEVER_AGAIN if self.left else self._turn)
        if min(self._areas.counts[_ROOT_CALLS:]) >= self._turn:
            assert self._wake_root is not None, "the root offers areas to members of its node only"
            self._wake_root()
        if not in_area:
            self._send(0, message)


class Root(_Side):
    """The member of rank 0: combines the calls of all members, its own included."""

    def __init__(self, endpoint: Endpoint, members: Sequence[int], policy: str) -> None:
        super().__init__(endpoint, members, policy)
        self._wakers = [endpoint.waker(member) if rank else None for rank, member in enumerate(members)]
        self._present = list(range(1, len(members)))  # the ranks of the others that have not left
        self._indices: dict[int, int] = {}  # rank -> index of its area
        self._offered: tuple[int, ...] = ()  # ranks whose answer to an offer of areas is missing
        self._no_memory = False

    def run(self, operation: Operation, *pieces: Piece) -> memoryview:
        """Runs one collective on this member's payload; the result lies in memory that the next one may overwrite.

        Raises:
            GroupError: the members called different collectives, or their payloads do not fit together.
        """
        call = self._write(self._area, _Kind.CALL, operation, *pieces)
        return self._combine({0: _Message(_Kind.CALL, operation, call.data[_HEADER.size :]), **self._receive_calls()})

    def leave(self) -> None:
        """Ends this member's part; serves the others to their end."""
        self.left = True
        while self._present:
            if calls := self._receive_calls():
                self._combine(calls)

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

    def _combine(self, calls: Mapping[int, _Message]) -> memoryview:
        operation = Operation(next(iter(calls.values())).about)
        self.writer = self._present[0] if self.left else 0
        parts = {rank: call.payload for rank, call in calls.items()}
        try:
            if len({call.about for call in calls.values()}) > 1:
                names = listed([f"worker {rank} {Operation(call.about).name.lower()}" for rank, call in calls.items()])
                raise GroupError(f"the workers called different collectives: {names}")
            if operation is Operation.TEAM:  # each member gets its own result, as a message
                results = collect_teams(parts)
                if self._areas is not None:
                    _set_header(self._areas[_ANSWER][: _HEADER.size], _Kind.MESSAGE, 0)
                    self._post_answer(self._areas)
                for rank in self._present:
                    self._send(rank, self._write(None, _Kind.OK, self.writer, results[rank]))
                return memoryview(results.get(0, b""))
            if operation is Operation.AVERAGE:
                result = self._buffer(_ANSWER, len(next(iter(parts.values()))))
                average(parts, result.data[_HEADER.size :])
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

    def _answer(self, message: NDArray[np.uint8], numbers: int = 0) -> None:
        """Sends an answer to all; then offers areas for payloads of `numbers` bytes, if that is not 0."""
        in_area = False
        if self._areas is not None:
            in_area = _lies_in_area(self._areas, _ANSWER, message)
            self._post_answer(self._areas)
        others = [rank for rank in self._present if not (in_area and rank in self._indices)]
        near = [rank for rank in self._present if self._wakers[rank] is not None]
        nbytes = _HEADER.size + numbers
        if numbers and near and not self._no_memory and (self._areas is None or nbytes > self._areas.nbytes):
            self._offer_areas(near, nbytes)
        for rank in others:
            self._send(rank, message)

    def _post_answer(self, areas: SharedAreas) -> None:
        areas.post(_ANSWER, self._turn)
        for rank in self._indices:
            wake = self._wakers[rank]
            assert wake is not None, "areas are offered to members of this node only"
            wake()

    def _offer_areas(self, near: Sequence[int], nbytes: int) -> None:
        """Offers these members of this node areas of at least `nbytes`."""
        try:
            self._areas = SharedAreas.make(_ROOT_CALLS + 1 + len(near), nbytes)
        except OSError as error:
            self._no_memory = True
            who = f"policy {self._policy!r}"
            _log.warning("%s: no shared memory for its group (%s): its gradients travel as messages", who, error)
            return
        self._turn, self._offered = 0, tuple(near)
        self._indices = {rank: index for index, rank in enumerate(near, start=_ROOT_CALLS + 1)}
        ticket = self._areas.ticket
        for rank, index in self._indices.items():
            offer = _HEADER.pack(_Kind.AREAS, index, len(ticket)) + ticket
            self._endpoint.send(self._members[rank], Tag.GROUP, offer)
