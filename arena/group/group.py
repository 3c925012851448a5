"""The group: all workers of one policy, and what they do together.

Every collective is one exchange with the worker of group rank 0: `arena.group.collectives` says how,
`arena.group.reductions` what is made of the members' parts. A member whose `run` has ended leaves; it weighs nothing
and blocks nobody.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arena.diagnostics.profile import Activity, StoppedWatch, Stopwatch
from arena.errors import GroupError
from arena.group import reductions
from arena.group.async_samples import AsyncSamples
from arena.group.collectives import Operation, Piece, collectives_of
from arena.transport.backoff import wait_until
from arena.transport.endpoint import Endpoint


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation (of the population) and number of the values of the whole group."""

    mean: float
    std: float
    count: int
    most: int  # the number of values of the member that has the most


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
        teams: the group ranks of the workers, team by team; None: each is one by itself.
        comm: a plain mpi4py communicator of the group; None unless each worker has its own process.
        reduce: `ordered`: gradients are summed in the order of the group ranks, samples are gathered from all; `fast`:
            gradients are summed as MPI likes, where there is a `comm` and nobody has left, samples are learnt from as
            they come, see `fragments`.
        rows: lanes x entities of the worker that has the most; None where that is not known.
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
        teams: tuple[tuple[int, ...], ...] | None = None,
        comm: Any,
        report: Callable[[Mapping[str, float]], None],
        keep: Callable[[Any], None],
        reduce: str = "ordered",
        rows: int | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.size = len(members)
        self.rank = members.index(endpoint.address)
        self.policy = policy
        self.sync = sync
        self.seed = seed
        self.shared_seed = shared_seed
        self.teams = tuple((rank,) for rank in range(self.size)) if teams is None else teams
        self._comm = comm
        self.rows = rows
        self._exchange = collectives_of(endpoint, members, policy)
        self._mpi_sums = reduce == "fast" and comm is not None and self.size > 1
        self._fragments = AsyncSamples(endpoint, members) if sync == "samples" and reduce == "fast" else None
        self._report = report
        self._keep = keep
        self.updates = 0  # how many this member has logged; the others of the policy have made the same ones
        self._stopwatch = stopwatch or StoppedWatch()
        self.calls: Counter[str] = Counter()  # collectives of this leg, by name
        self.exchanges = False  # whether the algorithm has taken `comm` or `fragments`, in whose use nothing is seen

    @property
    def comm(self) -> Any:
        """A plain mpi4py communicator of the group; None unless each worker has its own process."""
        self.exchanges = self.exchanges or self._comm is not None
        return self._comm

    @property
    def is_writer(self) -> bool:
        """Whether this worker logs and saves for the policy: the root, or when it has left the first that has not.

        Members hear of a leave with their next collective; of a group that never meets only the root is written down.
        """
        return self.rank == self._exchange.speaker

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
        if self.size == 1 and weight > 0.0 and not any(parameter.grad is None for parameter in held):
            self._check_member(Operation.AVERAGE)
            return scalars  # the mean of one
        gradients = [_gradient(parameter) for parameter in held]
        values = np.array([scalars[name] for name in sorted(scalars)], np.float64)
        means, averaged = self._average(weight, values, gradients)
        offset = 0
        for parameter, gradient in zip(held, gradients, strict=True):
            _set_gradient(parameter, averaged[offset : offset + gradient.size])
            offset += gradient.size
        return dict(zip(sorted(scalars), means.tolist(), strict=True))

    def mean(self, value: float, *, weight: float = 1.0) -> float:
        """The weighted mean of one number per member; 0 with no weight in the whole group."""
        head = reductions.weighted_head(weight, np.array([value], np.float64), 0)
        return float(reductions.Weighted.read(self._meet(Operation.AVERAGE, head)).scalars[0])

    def maximum(self, value: float) -> float:
        """The largest of one number per member; NaN if one is."""
        return float(np.frombuffer(self._meet(Operation.MAXIMUM, np.float64(value).tobytes()), np.float64)[0])

    def moments(self, values: ArrayLike) -> Moments:
        """Exact mean and standard deviation over all members' values (float64), as if they were in one array.

        Merged pairwise by the formula of Chan, Golub and LeVeque (1979); a member may have no values.
        """
        return self.moments_of(values=values)["values"]

    def moments_of(self, **arrays: ArrayLike) -> dict[str, Moments]:
        """The `moments` of several arrays, in one exchange; all members give the same names."""
        names = sorted(arrays)
        rows = [reductions.describe(np.asarray(arrays[name], np.float64).ravel()) for name in names]
        payload = reductions.table(names, rows)
        merged = reductions.rows_of(self._meet(Operation.MOMENTS, payload))
        return {name: _moments(*row) for name, row in zip(names, merged.tolist(), strict=True)}

    def gather(self, samples: Any) -> list[Any] | None:
        """All members' samples (containers of arrays) in group order at the root, None elsewhere."""
        parts = self._meet(Operation.GATHER, reductions.dump(samples))
        return pickle.loads(parts) if parts else None

    def pool(self, samples: Any) -> list[Any]:
        """All members' samples in group order, at every member."""
        parts: list[Any] = pickle.loads(self._meet(Operation.POOL, reductions.dump(samples)))
        return parts

    @property
    def team(self) -> tuple[int, ...]:
        """The group ranks of this worker's team, itself included, in the order of their seats in the match.

        All workers of a policy that drive one entity each on the same side of a match are a team; one that drives
        several is a team by itself. They play the same lanes on the same ticks. `teams` has those of the whole group.
        """
        return next(team for team in self.teams if self.rank in team)

    def pool_team(self, samples: Any) -> list[Any]:
        """The samples of this worker's team alone, in the order of their seats, at each of them.

        Raises:
            GroupError: one of them has left.
        """
        number = self.teams.index(self.team)
        parts: list[Any] = pickle.loads(self._meet(Operation.TEAM, reductions.of_team(number, samples)))
        if len(parts) < len(self.team):
            raise GroupError(
                f"policy {self.policy!r}: the `run` of a worker has returned whose team still pools: of the workers "
                f"{self.team} there are {len(parts)}"
            )
        return parts

    def broadcast(self, module: Any) -> None:
        """Gives a torch module of every member the root's weights and buffers; unchanged if the root has left."""
        state = module.state_dict()
        mine = reductions.dump([tensor.detach().cpu().numpy() for tensor in state.values()]) if self.is_root else b""
        theirs = self._meet(Operation.BROADCAST, mine)
        if theirs and not self.is_root:
            for tensor, array in zip(state.values(), pickle.loads(theirs), strict=True):
                tensor.copy_(tensor.new_tensor(array))

    def share(self, value: Any) -> Any:
        """The root's value, at every member; None if the root has left."""
        theirs = self._meet(Operation.BROADCAST, reductions.dump(value) if self.is_root else b"")
        return pickle.loads(theirs) if theirs else None

    @property
    def async_samples(self) -> AsyncSamples | None:
        """How samples are pooled without a barrier; None where the policy's configuration does not ask for it.

        Then the workers meet in no collective while they play: only the root learns, logs and saves.
        """
        self.exchanges = self.exchanges or self._fragments is not None
        return self._fragments

    def check_equal(self, module: Any) -> None:
        """Compares a hash of all members' weights.

        Raises:
            GroupError: they are not the same to the bit.
        """
        digest = hashlib.sha256()
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        self._meet(Operation.EQUAL, digest.digest())

    def log(self, **values: float) -> None:
        """Records the numbers of one update of the policy; one worker's are written down, usually the root's."""
        self._stopwatch.learnt()
        self.updates += 1
        if self.is_writer:
            self._report(values)

    def save(self, state: Any) -> None:
        """Offers the policy's state after an update; when a checkpoint is due, one worker's is written.

        Args:
            state: a container of arrays, or better a function that returns it: it is called only when needed.
        """
        if self.is_writer:
            self._keep(state)

    def leave(self) -> None:
        """Ends this member's part; the hub first serves the others to their end. Further calls do nothing."""
        if not self._exchange.left:
            self._exchange.leave()

    def _average(
        self, weight: float, scalars: NDArray[np.float64], gradients: Sequence[NDArray[np.float32]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """The means of the scalars, and of the gradients, one after the other in one array."""
        head = reductions.weighted_head(weight, scalars, sum(gradient.size for gradient in gradients))
        if self._mpi_sums:
            total, means, present = reductions.read_weighed(self._meet(Operation.WEIGH, head))
            if present == self.size:
                return means, self._sum_by_mpi(weight / total if total else 0.0, gradients)
            self._mpi_sums = False  # a collective of MPI would wait for those that have left; none comes back
        average = reductions.Weighted.read(self._meet(Operation.AVERAGE, head, *gradients))
        return average.scalars, average.values

    def _sum_by_mpi(self, share: float, gradients: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """The sum over the group of each member's share of its gradients; what has no share is not heard."""
        mine = np.concatenate([*gradients, np.zeros(0, np.float32)])
        mine = mine * np.float32(share) if share else np.zeros_like(mine)
        total = np.empty_like(mine)
        before = self._stopwatch.switch(Activity.WAITING_FOR_GROUP)
        wait_until(self._comm.Iallreduce(mine, total).Test)
        self._stopwatch.switch(before)
        return total

    def _meet(self, operation: Operation, *pieces: Piece) -> memoryview:
        """One collective; the result is to be read before the next one."""
        self._check_member(operation)
        self.calls[operation.name.lower()] += 1
        before = self._stopwatch.switch(Activity.WAITING_FOR_GROUP)
        result = self._exchange.meet(operation, *pieces)
        self._stopwatch.switch(before)
        return result

    def _check_member(self, operation: Operation) -> None:
        if self._exchange.left:
            raise GroupError(f"policy {self.policy!r}: {operation.name.lower()} was called after the worker had left")


def _gradient(parameter: Any) -> NDArray[np.float32]:
    if parameter.grad is None:
        return np.zeros(parameter.numel(), np.float32)
    flat: NDArray[np.float32] = parameter.grad.detach().cpu().numpy().astype(np.float32, copy=False).ravel()
    return flat


def _set_gradient(parameter: Any, values: NDArray[np.float32]) -> None:
    held = parameter.grad
    if held is not None and held.device.type == "cpu":
        np.copyto(held.detach().numpy(), values.reshape(held.shape))
    elif held is not None:
        held.copy_(held.new_tensor(values).reshape(held.shape))
    else:
        parameter.grad = parameter.detach().new_tensor(values).reshape(parameter.shape)


def _moments(count: float, mean: float, squares: float, most: float) -> Moments:
    return Moments(mean, float(np.sqrt(squares / count)) if count else 0.0, int(count), int(most))
