"""`Group`: what the workers of one policy do together.

Every collective is one exchange with the worker of group rank 0: see `arena.group.collectives`. A member whose `run`
has ended leaves the group: it has no weight in later collectives and is not waited for.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arena.diagnostics.profile import Activity, StoppedWatch, Stopwatch
from arena.errors import GroupError
from arena.group import collectives
from arena.group.async_samples import AsyncSamples
from arena.group.collectives import Member, Operation, Piece, Root
from arena.transport.endpoint import ANY_SOURCE, Endpoint, Tag
from arena.transport.pickling import pack, unpack


@dataclass(frozen=True)
class Moments:
    """Mean, population standard deviation and number of the values of all members."""

    mean: float  # 0 without a value
    std: float  # likewise
    count: int  # number of values of all members
    max_count: int  # the number of values of the member that has the most

    @classmethod
    def of(cls, described: Sequence[float]) -> Moments:
        """The moments of what `collectives.describe` says, of one member or merged."""
        count, mean, squares, most = described
        return cls(mean, math.sqrt(squares / count) if count else 0.0, int(count), int(most))


def moments_alone(arrays: Mapping[str, ArrayLike]) -> dict[str, Moments]:
    """What `Group.moments_of` gives, to the bit, in a group of one; no collective."""
    return {name: Moments.of(collectives.describe(values)) for name, values in arrays.items()}


class Group:
    """A worker's group: all workers of its policy.

    All members must call the same collectives in the same order; if they call different ones, `GroupError` is raised in
    all of them instead of a deadlock.

    Attributes:
        size: the number of workers of the policy.
        rank: of this worker in the group, from 0 to `size - 1`.
        policy: its name.
        sync: `gradients` or `samples`: what the workers of the policy exchange to learn together.
        seed: of this worker's random stream.
        shared_seed: of a random stream that is the same in all workers of the policy.
        teams: the group ranks of the workers, team by team; by default each worker is a team of its own.
        rows: lanes x entities of the worker with the most; None if unknown.
        updates: the number of `log` calls so far; the same in all workers.

    Args:
        endpoint: sends and receives messages of this worker.
        members: the addresses of all workers of the policy, in the order of their group ranks.
        comm: an mpi4py communicator of the group; None unless each worker has a process of its own.
        max_lag: how many updates the weights that play may be behind, with `sync: samples`; above 0 samples are pooled
            without a barrier, see `async_samples`.
        on_log: called by `log` of the writer.
        on_save: called by `save` of the writer.
        on_tell: called by `tell` of the writer.
        comes_together: whether `together` looks for other workers; they should all have their environments in this
            process, as each waits for the slowest of these.
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
        on_log: Callable[[Mapping[str, float]], None],
        on_save: Callable[[Any], None],
        max_lag: int = 0,
        rows: int | None = None,
        on_tell: Callable[[str], None] | None = None,
        stopwatch: Stopwatch | None = None,
        comes_together: bool = False,
    ) -> None:
        self.size, self.rank = len(members), members.index(endpoint.address)
        self.policy, self.sync, self.rows = policy, sync, rows
        self.seed, self.shared_seed = seed, shared_seed
        self.teams = tuple((rank,) for rank in range(self.size)) if teams is None else teams
        self._comm, self._endpoint = comm, endpoint
        self._collectives = (Member if self.rank else Root)(endpoint, members, policy)
        self._stopwatch = stopwatch or StoppedWatch()
        self._together = endpoint.together if comes_together else None
        self._async_samples: AsyncSamples | None = None
        if sync == "samples" and max_lag > 0:
            self._async_samples = AsyncSamples(endpoint, members, self._stopwatch, max_lag=max_lag)
        self._on_log, self._on_save, self._on_tell = on_log, on_save, on_tell
        self.updates = 0
        self.calls: Counter[str] = Counter()  # collectives of this leg, by name
        # Whether the algorithm uses `comm` or `async_samples`, whose exchanges are not counted in `calls`.
        self.exchanges = False

    @property
    def comm(self) -> Any:
        """An mpi4py communicator of the group; None unless each worker has a process of its own."""
        self.exchanges = self.exchanges or self._comm is not None
        return self._comm

    @property
    def is_writer(self) -> bool:
        """True in the one worker whose `log` and `save` are recorded: rank 0, or, once it has left, the lowest rank.

        Members learn with their next collective that the writer has left; without collectives it is always rank 0.
        """
        return self.rank == self._collectives.writer

    @property
    def is_root(self) -> bool:
        """True in rank 0, which learns for all with `sync: samples` and whose weights are broadcast."""
        return self.rank == 0

    def pause(self, seconds: float) -> None:
        """Lets other roles of this process run for so many `seconds`, for a worker that waits for something outside."""
        self._endpoint.sleep((self._endpoint.address, Tag.GAMES, ANY_SOURCE), seconds)

    def average_gradients(
        self, parameters: Iterable[Any], *, weight: float = 1.0, **scalars: float
    ) -> dict[str, float]:
        """Replaces the gradients of all members by their weighted mean, in one exchange.

        Args:
            parameters: torch parameters of equal shapes in all members; a `grad` of None counts as zeros.
            weight: of this member, usually its number of samples; 0 if it has none.
            scalars: numbers that are averaged in the same exchange, such as a KL divergence.

        Returns:
            the averaged scalars. If all weights are 0: zeros, and zero gradients.
        """
        self._stopwatch.count_update()
        parameters = list(parameters)
        if self.size == 1 and weight > 0.0 and not any(parameter.grad is None for parameter in parameters):
            self._check_member(Operation.AVERAGE)
            return scalars  # the mean of one
        gradients: list[NDArray[np.float32]] = [
            np.zeros(parameter.numel(), np.float32)
            if parameter.grad is None
            else parameter.grad.detach().cpu().numpy().astype(np.float32, copy=False).ravel()
            for parameter in parameters
        ]
        values = np.array([scalars[name] for name in sorted(scalars)], np.float64)
        head = collectives.weighted_head(weight, values, sum(gradient.size for gradient in gradients))
        average = collectives.Weighted.read(self._collective(Operation.AVERAGE, head, *gradients))
        offset = 0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            mean, gradient_now = average.values[offset : offset + gradient.size], parameter.grad
            offset += gradient.size
            if gradient_now is None:
                parameter.grad = parameter.detach().new_tensor(mean).reshape(parameter.shape)
            elif gradient_now.device.type == "cpu":
                np.copyto(gradient_now.detach().numpy(), mean.reshape(gradient_now.shape))
            else:
                gradient_now.copy_(gradient_now.new_tensor(mean).reshape(gradient_now.shape))
        return dict(zip(sorted(scalars), average.scalars.tolist(), strict=True))

    def mean(self, value: float, *, weight: float = 1.0) -> float:
        """The weighted mean of one `value` per member, each with its `weight`; 0 if all weights are 0."""
        head = collectives.weighted_head(weight, np.array([value], np.float64), 0)
        return float(collectives.Weighted.read(self._collective(Operation.AVERAGE, head)).scalars[0])

    def maximum(self, value: float) -> float:
        """The maximum over the group; NaN if any value is NaN."""
        return float(np.frombuffer(self._collective(Operation.MAXIMUM, np.float64(value).tobytes()), np.float64)[0])

    def moments(self, values: ArrayLike) -> Moments:
        """Mean and standard deviation over all members' values (float64), as if they were in one array.

        Merged pairwise by the formula of Chan, Golub and LeVeque (1979). A member may have no values.
        """
        return self.moments_of(values=values)["values"]

    def moments_of(self, **arrays: ArrayLike) -> dict[str, Moments]:
        """The `moments` of several arrays in one exchange; all members pass the same names."""
        names = sorted(arrays)
        payload = collectives.table(names, [collectives.describe(arrays[name]) for name in names])
        merged = collectives.rows_of(self._collective(Operation.MOMENTS, payload))
        return {name: Moments.of(row) for name, row in zip(names, merged.tolist(), strict=True)}

    def gather(self, samples: Any) -> list[Any] | None:
        """All members' samples (containers of arrays) in the order of the group ranks, at the root; None elsewhere."""
        parts = self._collective(Operation.GATHER, pack(samples))
        return unpack(parts) if parts else None

    def pool(self, samples: Any) -> list[Any]:
        """All members' samples in the order of the group ranks, at every member."""
        parts: list[Any] = unpack(self._collective(Operation.POOL, pack(samples)))
        return parts

    @property
    def team(self) -> tuple[int, ...]:
        """The group ranks of this worker's team, itself included, in the order of their seats in the match.

        The workers of a policy that drive one entity each on the same side of a match are a team; they play the same
        lanes at the same ticks. A worker that drives several entities is a team of its own. `teams` lists all teams.
        """
        return next(team for team in self.teams if self.rank in team)

    def pool_team(self, samples: Any) -> list[Any]:
        """The samples of this worker's team, in the order of their seats, at each member of the team.

        Raises:
            GroupError: a member of the team has left.
        """
        number = self.teams.index(self.team)
        parts: list[Any] = unpack(self._collective(Operation.TEAM, collectives.of_team(number, samples)))
        if len(parts) < len(self.team):
            raise GroupError(
                f"policy {self.policy!r}: the `run` of a worker has returned while its team still pools samples: of "
                f"the workers {self.team}, {len(parts)} are left"
            )
        return parts

    def broadcast(self, module: Any) -> None:
        """Copies the root's weights and buffers into every member's torch module; no change if the root has left."""
        self._stopwatch.count_update()
        state = module.state_dict()
        mine = pack([tensor.detach().cpu().numpy() for tensor in state.values()]) if self.is_root else b""
        theirs = self._collective(Operation.BROADCAST, mine)
        if theirs and not self.is_root:
            for tensor, array in zip(state.values(), unpack(theirs), strict=True):
                tensor.copy_(tensor.new_tensor(array))

    def broadcast_object(self, value: Any) -> Any:
        """The root's `value`, at every member; None if the root has left."""
        theirs = self._collective(Operation.BROADCAST, pack(value) if self.is_root else b"")
        return unpack(theirs) if theirs else None

    def together(self, key: Hashable, part: Any, work: Callable[[list[Any]], None]) -> None:
        """Calls `work(parts)` once for the workers of the policy in this process that call this at the same time.

        They are those with an equal `key`, perhaps only this one; `parts` are what each gives as its `part`. What is
        computed must not depend on which they are.
        """
        if self._together is None:
            work([part])
        else:
            self._together((self.policy, key), part, work)

    @property
    def async_samples(self) -> AsyncSamples | None:
        """Pools samples without a barrier; None unless the policy has `sync: samples` and a `max_lag` above 0.

        Then the workers call no collectives while they play: only the root learns, logs and saves.
        """
        self.exchanges = self.exchanges or self._async_samples is not None
        return self._async_samples

    def check_equal(self, module: Any) -> None:
        """Compares a hash of the weights of a torch `module` of each member.

        Raises:
            GroupError: the weights are not bit-equal.
        """
        digest = hashlib.sha256()
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        self._collective(Operation.EQUAL, digest.digest())

    def log(self, **values: float) -> None:
        """Reports one update of the policy with its metrics; those of the writer are recorded.

        Args:
            values: numbers, or arrays and tensors of one number.

        Raises:
            TypeError: a value is not one number.
        """
        self._stopwatch.count_update()
        self.updates += 1
        if self.is_writer:
            self._on_log({name: self._number(name, value) for name, value in values.items()})

    @staticmethod
    def _number(name: str, value: Any) -> float:
        try:
            return float(value.item() if hasattr(value, "item") else value)  # float() warns of a tensor with gradients
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"group.log({name}=...) got {value!r:.80}; expected one number") from error

    def tell(self, text: str) -> None:
        """Shows the user a sentence, `text`, about this policy; only the one of the writer, see `is_writer`."""
        if self.is_writer and self._on_tell is not None:
            self._on_tell(text)

    def save(self, state: Any) -> None:
        """Offers the policy's state after an update; the writer's is saved when a checkpoint is due.

        Args:
            state: a container of arrays, or better a function that returns one: it is called only when needed.
        """
        if self.is_writer:
            self._on_save(state)

    def leave(self) -> None:
        """Ends this member's part; the root first serves the others to their end. Further calls do nothing."""
        if not self._collectives.left:
            self._collectives.leave()

    def _collective(self, operation: Operation, *pieces: Piece) -> memoryview:
        """Runs one collective; its result is valid until the next one."""
        self._check_member(operation)
        self.calls[operation.name.lower()] += 1
        before = self._stopwatch.switch(Activity.WAITING_FOR_GROUP)
        result = self._collectives.run(operation, *pieces)
        self._stopwatch.switch(before)
        return result

    def _check_member(self, operation: Operation) -> None:
        if self._collectives.left:
            raise GroupError(f"policy {self.policy!r}: {operation.name.lower()} was called after the worker had left")
