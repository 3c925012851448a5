"""The group: all workers of one policy, and what they do together.

Every collective is one exchange with the group's *hub*, the worker of group rank 0: each member sends one message, the
hub combines them in the order of the group ranks and sends one message back. The order makes sums the same to the last
bit wherever the workers run.

    member -> hub    CALL op payload    my part of a collective
                     LEAVE              my `run` has ended: do not wait for me any more
    hub -> member    OK speaker payload the combined result, and who logs and saves for the policy from now on
                     ERROR text         the members called different things: everybody raises it

A member that has left weighs nothing and blocks nobody. The hub, when its own `run` has ended, goes on to serve the
others until the last one has left.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arena.comm.interface import Bytes, Endpoint, Tag
from arena.errors import GroupError
from arena.stopwatch import Activity, StoppedWatch, Stopwatch

_HEADER = struct.Struct("<qq")  # word, operation or speaker: 16 bytes keep what follows aligned
_WEIGHTED = struct.Struct("<dqq")  # weight, number of scalars (float64), number of gradient values (float32)


class Operation(IntEnum):
    """The collectives."""

    AVERAGE = 1
    MOMENTS = 2
    MAXIMUM = 3
    GATHER = 4
    POOL = 5
    BROADCAST = 6
    EQUAL = 7


class _Word(IntEnum):
    CALL = 1
    LEAVE = 2
    OK = 3
    ERROR = 4


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation (of the population) and number of the values of the whole group."""

    mean: float
    std: float
    count: int


class Group:
    """What a worker holds of its group.

    A collective must be called by all members in the same order; one that is called by some while others call
    another raises `GroupError` everywhere instead of hanging.

    Args:
        endpoint: this worker's place in the world.
        members: the addresses of all workers of the policy, in the order of their group ranks.
        policy: the policy's name.
        sync: `gradients` or `samples`: how the policy's algorithm is to learn together.
        seed: of this worker's own random stream.
        shared_seed: the same for all workers of the policy.
        comm: a plain mpi4py communicator of the group; None where there is no MPI (`--ranks 1`).
        report: called with `log`'s values, once per update.
        keep: called with `save`'s state, once per update.
        stopwatch: measures what the worker does.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        members: tuple[int, ...],
        *,
        policy: str,
        sync: str,
        seed: int,
        shared_seed: int,
        comm: Any,
        report: Callable[[Mapping[str, float]], None],
        keep: Callable[[Any], None],
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.size = len(members)
        self.rank = members.index(endpoint.address)
        self.policy = policy
        self.sync = sync
        self.seed = seed
        self.shared_seed = shared_seed
        self.comm = comm
        self._endpoint = endpoint
        self._members = members
        self._present = list(range(1, self.size))  # the hub's list of members that have not left
        self._report = report
        self._keep = keep
        self.updates = 0  # how many this member has logged; the others of the policy have made the same ones
        self._left = False
        self._speaker = 0  # as all members know since the last collective
        self._stopwatch = stopwatch or StoppedWatch()

    @property
    def speaks(self) -> bool:
        """Whether this worker logs and saves for the policy: the root, or when it has left the first that has not.

        Members hear of a leave with their next collective; of a group that never meets only the root is written down.
        """
        return self.rank == self._speaker

    @property
    def is_root(self) -> bool:
        """Whether this worker is the one that learns for all with `sync: samples`, and whose weights count."""
        return self.rank == 0

    def average_gradients(
        self, parameters: Iterable[Any], *, weight: float = 1.0, **scalars: float
    ) -> dict[str, float]:
        """Replaces the gradients of all members by their weighted mean, in one exchange.

        Args:
            parameters: torch parameters of equal shapes in all members; a `grad` of None counts as zeros.
            weight: of this member, usually its number of samples; 0 where it had none.
            scalars: numbers that travel in the same message, such as a KL divergence; also averaged.

        Returns:
            the averaged scalars. With no weight in the whole group: zeros, and zero gradients.
        """
        held = list(parameters)
        flat = np.concatenate([_gradient(parameter) for parameter in held]) if held else np.zeros(0, np.float32)
        values = np.array([scalars[name] for name in sorted(scalars)], np.float64)
        means, gradients = _split(self._exchange(Operation.AVERAGE, _weighted(weight, values, flat)))
        offset = 0
        for parameter in held:
            count = parameter.numel()
            _set_gradient(parameter, gradients[offset : offset + count])
            offset += count
        return dict(zip(sorted(scalars), means.tolist(), strict=True))

    def mean(self, value: float, *, weight: float = 1.0) -> float:
        """The weighted mean of one number per member; 0 with no weight in the whole group."""
        payload = _weighted(weight, np.array([value], np.float64), np.zeros(0, np.float32))
        return float(_split(self._exchange(Operation.AVERAGE, payload))[0][0])

    def maximum(self, value: float) -> float:
        """The largest of one number per member; NaN if one is."""
        return float(np.frombuffer(self._exchange(Operation.MAXIMUM, np.float64(value).tobytes()), np.float64)[0])

    def moments(self, values: ArrayLike) -> Moments:
        """Exact mean and standard deviation over all members' values (float64), as if they were in one array.

        Merged pairwise by the formula of Chan, Golub and LeVeque (1979); a member may have no values.
        """
        x = np.asarray(values, np.float64).ravel()
        mine = np.array([x.size, x.mean(), ((x - x.mean()) ** 2).sum()] if x.size else [0.0, 0.0, 0.0])
        count, mean, squares = np.frombuffer(self._exchange(Operation.MOMENTS, mine.tobytes()), np.float64)
        return Moments(float(mean), float(np.sqrt(squares / count)) if count else 0.0, int(count))

    def gather(self, samples: Any) -> list[Any] | None:
        """All members' samples (containers of arrays) in group order at the root, None elsewhere."""
        parts = self._exchange(Operation.GATHER, _dump(samples))
        return pickle.loads(parts) if parts else None

    def pool(self, samples: Any) -> list[Any]:
        """All members' samples in group order, at every member."""
        parts: list[Any] = pickle.loads(self._exchange(Operation.POOL, _dump(samples)))
        return parts

    def broadcast(self, module: Any) -> None:
        """Gives a torch module of every member the root's weights and buffers; unchanged if the root has left."""
        state = module.state_dict()
        mine = _dump([tensor.detach().cpu().numpy() for tensor in state.values()]) if self.is_root else b""
        theirs = self._exchange(Operation.BROADCAST, mine)
        if theirs and not self.is_root:
            for tensor, array in zip(state.values(), pickle.loads(theirs), strict=True):
                tensor.copy_(tensor.new_tensor(array))

    def share(self, value: Any) -> Any:
        """The root's value, at every member; None if the root has left."""
        theirs = self._exchange(Operation.BROADCAST, _dump(value) if self.is_root else b"")
        return pickle.loads(theirs) if theirs else None

    def check_equal(self, module: Any) -> None:
        """Compares a hash of all members' weights.

        Raises:
            GroupError: they are not the same to the bit.
        """
        digest = hashlib.sha256()
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        self._exchange(Operation.EQUAL, digest.digest())

    def log(self, **values: float) -> None:
        """Records the numbers of one update of the policy; one worker's are written down, usually the root's."""
        self._stopwatch.learnt()
        self.updates += 1
        if self.speaks:
            self._report(values)

    def save(self, state: Any) -> None:
        """Offers the policy's state after an update; when a checkpoint is due, one worker's is written.

        Args:
            state: a container of arrays, or better a function that returns it: it is called only when needed.
        """
        if self.speaks:
            self._keep(state)

    def leave(self) -> None:
        """Ends this member's part; the hub first serves the others to their end. Further calls do nothing."""
        if self._left:
            return
        self._left = True
        if self.rank != 0:
            self._endpoint.send(self._members[0], Tag.GROUP, _HEADER.pack(_Word.LEAVE, 0))
            return
        while self._present:
            self._serve(None, b"")

    def _exchange(self, operation: Operation, mine: Bytes) -> Bytes:
        if self._left:
            raise GroupError(f"policy {self.policy!r}: {operation.name.lower()} was called after the worker had left")
        if self.size == 1:
            return _COMBINE[operation]({0: mine})
        before = self._stopwatch.switch(Activity.WAITING_FOR_GROUP)
        result = self._serve(operation, mine) if self.rank == 0 else self._call(operation, mine)
        self._stopwatch.switch(before)
        return result

    def _call(self, operation: Operation, mine: Bytes) -> Bytes:
        self._endpoint.send(self._members[0], Tag.GROUP, _HEADER.pack(_Word.CALL, operation) + mine)
        _, data = self._endpoint.receive(self._members[0], Tag.GROUP)
        word, self._speaker = _HEADER.unpack_from(data)
        result = memoryview(data)[_HEADER.size :]
        if word == _Word.ERROR:
            raise GroupError(bytes(result).decode())
        return result

    def _serve(self, operation: Operation | None, mine: Bytes) -> Bytes:
        """One collective at the hub; `operation` is its own, None when its `run` has ended and it only serves."""
        parts: dict[int, Bytes] = {}
        called: dict[int, Operation] = {}
        if operation is not None:
            parts[0], called[0] = mine, operation
        for rank in tuple(self._present):
            _, data = self._endpoint.receive(self._members[rank], Tag.GROUP)
            word, asked = _HEADER.unpack_from(data)
            if word == _Word.LEAVE:
                self._present.remove(rank)
            else:
                parts[rank], called[rank] = memoryview(data)[_HEADER.size :], Operation(asked)
        if not called:
            return b""
        try:
            self._check_same(called)
            result = _COMBINE[next(iter(called.values()))](parts)
        except GroupError as error:
            self._answer(_Word.ERROR, str(error).encode())
            raise
        gathered = next(iter(called.values())) is Operation.GATHER  # for the root alone
        self._answer(_Word.OK, b"" if gathered else result)
        return result

    def _answer(self, word: _Word, payload: Bytes) -> None:
        self._speaker = self._present[0] if self._left else 0
        message = _HEADER.pack(word, self._speaker) + bytes(payload)
        for rank in self._present:
            self._endpoint.send(self._members[rank], Tag.GROUP, message)

    def _check_same(self, called: Mapping[int, Operation]) -> None:
        if len(set(called.values())) > 1:
            names = ", ".join(f"worker {rank} {operation.name.lower()}" for rank, operation in called.items())
            raise GroupError(f"the workers of policy {self.policy!r} called different collectives: {names}")


def _gradient(parameter: Any) -> NDArray[np.float32]:
    if parameter.grad is None:
        return np.zeros(parameter.numel(), np.float32)
    flat: NDArray[np.float32] = parameter.grad.detach().cpu().numpy().astype(np.float32, copy=False).ravel()
    return flat


def _set_gradient(parameter: Any, values: NDArray[np.float32]) -> None:
    averaged = parameter.detach().new_tensor(values).reshape(parameter.shape)
    if parameter.grad is None:
        parameter.grad = averaged
    else:
        parameter.grad.copy_(averaged)


def _weighted(weight: float, scalars: NDArray[np.float64], flat: NDArray[np.float32]) -> bytes:
    return _WEIGHTED.pack(weight, scalars.size, flat.size) + scalars.tobytes() + flat.tobytes()


def _split(payload: Bytes) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    _, scalars, values = _WEIGHTED.unpack_from(payload)
    offset = _WEIGHTED.size
    return (
        np.frombuffer(payload, np.float64, scalars, offset),
        np.frombuffer(payload, np.float32, values, offset + 8 * scalars),
    )


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _average(parts: Mapping[int, Bytes]) -> bytes:
    total, weight_sum = None, 0.0
    sizes = {_WEIGHTED.unpack_from(part)[1:] for part in parts.values()}
    if len(sizes) > 1:
        raise GroupError(f"the workers average different numbers of (scalars, gradient values): {sorted(sizes)}")
    for part in parts.values():
        weight = _WEIGHTED.unpack_from(part)[0]
        scalars, flat = _split(part)
        if weight == 0.0:  # also keeps a member's NaN out that has nothing to say
            continue
        weight_sum += weight
        if total is None:
            total = scalars * weight, np.multiply(flat, weight, dtype=np.float64)
        else:
            np.add(total[0], scalars * weight, out=total[0])
            np.add(total[1], np.multiply(flat, weight, dtype=np.float64), out=total[1])
    if total is None:
        n_scalars, n_values = sizes.pop()
        return _weighted(0.0, np.zeros(n_scalars), np.zeros(n_values, np.float32))
    return _weighted(weight_sum, total[0] / weight_sum, (total[1] / weight_sum).astype(np.float32))


def _moments(parts: Mapping[int, Bytes]) -> bytes:
    count, mean, squares = 0.0, 0.0, 0.0
    for part in parts.values():
        n, part_mean, part_squares = np.frombuffer(part, np.float64).tolist()
        if n:
            delta, merged = part_mean - mean, count + n
            mean += delta * n / merged
            squares += part_squares + delta * delta * count * n / merged
            count = merged
    return np.array([count, mean, squares], np.float64).tobytes()


def _maximum(parts: Mapping[int, Bytes]) -> bytes:
    values = np.array([np.frombuffer(part, np.float64)[0] for part in parts.values()])
    return bytes(values.max().tobytes())  # numpy's maximum: a NaN counts wherever it stands


def _collect(parts: Mapping[int, Bytes]) -> bytes:
    return _dump([pickle.loads(part) for part in parts.values()])


def _from_root(parts: Mapping[int, Bytes]) -> bytes:
    return bytes(parts.get(0, b""))


def _equal(parts: Mapping[int, Bytes]) -> bytes:
    digests = {rank: bytes(part) for rank, part in parts.items()}
    first = next(iter(digests.values()))
    others = [rank for rank, digest in digests.items() if digest != first]
    if others:
        raise GroupError(f"workers {others} hold other weights than worker {next(iter(digests))}")
    return b""


_COMBINE: dict[Operation, Callable[[Mapping[int, Bytes]], Bytes]] = {
    Operation.AVERAGE: _average,
    Operation.MOMENTS: _moments,
    Operation.MAXIMUM: _maximum,
    Operation.GATHER: _collect,
    Operation.POOL: _collect,
    Operation.BROADCAST: _from_root,
    Operation.EQUAL: _equal,
}
