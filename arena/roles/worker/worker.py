"""The worker role: builds one algorithm for one seat and runs it for one leg.

The worker receives the description of its seat from the environment, checks the algorithm's class against it, builds
the algorithm, loads its checkpoint, and sends Ready to the root. After the root's Go it calls `run()`, in which the
algorithm steps its proxy and calls its group. When `run()` returns or the leg is over, the worker leaves the seat (the
environment plays the idle action from then on) and the group, and sends Done to the root.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arena import registry
from arena.diagnostics.profile import Activity, stopwatch
from arena.errors import BudgetReached, located
from arena.group.group import Group
from arena.plan.plan import MatchPlan, PolicyPlan, Role, RoleKind
from arena.preflight.examine import check_checkpoint
from arena.preflight.seats import SeatSpaces, check_independence, check_shared, check_teams, learners_of, seat_face
from arena.preflight.spec import spec_of
from arena.proxy import make_proxy
from arena.proxy.play import Actor, play
from arena.records.metrics import UpdateRecord
from arena.roles.process import limit_threads, seed_libraries
from arena.roles.protocol import Done, Go, Left, Notice, Ready, Update
from arena.roles.run import Run
from arena.seat.client import BlockOrder, SeatClient
from arena.seat.layout import link_size
from arena.seat.welcome import Welcome
from arena.transport import Endpoint, Tag
from arena.transport.pickling import expect, pack

if TYPE_CHECKING:
    from arena.roles.worker.checkpoints import WorkerCheckpoints


class Worker:
    """One algorithm in one seat.

    Args:
        endpoint: the endpoint of this role.
        run: the run.
        role: match and seat of the worker.
        communicator: an mpi4py communicator of the policy's workers; None without MPI.
        private: whether the process hosts no other role, so that its global random streams may be seeded.
    """

    def __init__(self, endpoint: Endpoint, run: Run, role: Role, *, communicator: Any, private: bool) -> None:
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        self._endpoint = endpoint
        self._run = run
        self._role = role
        self._match: MatchPlan = run.plan.matches[role.match]
        self._policy: PolicyPlan = run.plan.policies[run.plan.seat(role).policy]
        self._path = f"policies.{self._policy.name}"
        self._place = self._match.seat_path(run.plan.seat(role).index)
        self._log = PolicyLog(endpoint, run, self._policy, ticks=self._ticks, updates=lambda: self._group.updates)
        self._stopwatch = stopwatch(run.profile)
        self._was_ready = False
        self._until = run.plan.ticks
        self._requests: Counter[str] = Counter()  # to the game, other than steps
        algorithm, self._options = registry.configured_algorithm(
            self._policy.config.algorithm,
            self._policy.config.options,
            acts=run.plan.acts(self._policy),
            path=self._path,
            any_device=self._policy.config.frozen,
        )
        self._spec = spec_of(algorithm)
        learners = learners_of(algorithm, run.plan, self._policy)
        self._group = Group(
            endpoint,
            tuple(run.address(Role(RoleKind.WORKER, match, seat)) for match, seat in self._policy.workers),
            policy=self._policy.name,
            sync=self._policy.config.sync,
            max_lag=self._policy.config.max_lag,
            teams=run.plan.teams(self._policy),
            seed=run.worker_seed(role),
            shared_seed=run.policy_seed(self._policy.name),
            comm=communicator,
            rows=max(learner.rows for learner in learners),
            on_log=self._log.update,
            on_tell=self._log.tell,
            on_save=lambda state: self._saving.offer(state),
            stopwatch=self._stopwatch,
        )
        calls, requests = self._group.calls, self._requests
        endpoint.tally(lambda: calls + requests)
        limit_threads()
        if private:
            seed_libraries(self._group.seed)
        self._seats = self._open_seats()
        own = self._spaces.words()
        with located(path=self._place, who=f"policy {self._policy.name!r}"):  # before the algorithm is built
            check_shared(algorithm, self._group.pool(own)[0], own)
        check_teams(algorithm, run.plan, self._policy)
        check_independence(algorithm, self._policy)
        self._algorithm = self._build(algorithm)
        self._restore()
        self._ready()

    def _open_seats(self) -> tuple[SeatClient, ...]:
        """Opens a seat for each block of the match's lanes."""
        environment = self._run.address(Role(RoleKind.ENVIRONMENT, self._match.match))
        first = expect(Welcome, self._endpoint.receive(environment, Tag.WELCOME))
        block_order = BlockOrder(first.parts) if first.parts > 1 else None
        seats = [self._seat(environment, first, block_order)]
        while len(seats) < first.parts:
            welcome = expect(Welcome, self._endpoint.receive(environment, Tag.WELCOME))
            seats.append(self._seat(environment, welcome, block_order))
        return tuple(seats)

    def _seat(self, environment: int, welcome: Welcome, block_order: BlockOrder | None) -> SeatClient:
        return SeatClient(
            welcome,
            self._endpoint.link(environment, link_size(welcome.layout()), welcome.part),
            seed=self._group.seed,
            start=self._run.leg.start,
            before_first_request=self._ready,
            stopwatch=self._stopwatch,
            block_order=block_order,
            calls=self._requests,
        )

    @property
    def _spaces(self) -> SeatSpaces:
        seat = self._seats[0]
        return SeatSpaces(seat.observation_spaces, seat.action_spaces, seat.mask_sizes)

    def _build(self, algorithm: type[Any]) -> Any:
        with located(path=self._place, who=f"policy {self._policy.name!r}"):
            face = seat_face(algorithm, self._spaces, lanes=self._match.lanes)
        self._env = make_proxy(face, self._seats)
        with located(inside=self._path):
            if self._spec.has_sizes and not self._policy.config.frozen:  # it may refuse so few ticks
                learners = learners_of(algorithm, self._run.plan, self._policy)
                rows = next(learner.rows for learner in learners if self._group.rank in learner.workers)
                algorithm.sizes(self._options, rows=rows, ticks=self._run.plan.horizon, workers=len(learners))
            return algorithm(self._env, self._group, ticks=self._run.plan.horizon, **self._options)

    def _restore(self) -> None:
        """Loads the policy's checkpoint, if it has one: the root of the group reads it and broadcasts it."""
        path = self._run.leg.restore.get(self._policy.name)
        if path is None:
            return
        checkpoint = self._group.broadcast_object(self._saving.load(path) if self._group.is_root else None)
        check_checkpoint(checkpoint, path, self._policy, type(self._algorithm))
        with located(path=f"{self._path}.load", who=str(path)):
            self._algorithm.load_state_dict(checkpoint.state)
            if self._spec.loads_worker:
                own = self._saving.load_own(self._role)
                if own is not None:
                    self._algorithm.load_worker_state_dict(own)

    def _ticks(self) -> int:
        """Ticks played by all blocks of the match."""
        return min(seat.ticks for seat in self._seats)

    def _ready(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            resumable = not self._learns or self._spec.resumable  # the next leg can continue from its state
            self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role, resumable, self._spec.sync_on)))

    def work(self) -> None:
        """Runs the algorithm until its `run` returns or the leg is over, then leaves seats and group."""
        self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        go = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        self._until = go.until
        self._stopwatch.begin_inference()
        self._group.calls.clear()  # count the calls of `run` only
        if self._keeps and self._group.is_root and not self._run.leg.start:
            self._saving.save(self._algorithm.state_dict(), boundary=0)
        returned = True
        if not self._has_left:
            with suppress(BudgetReached), located(inside=self._path):
                returned = False
                self._runner()()
                returned = True
        whole = all(seat.over for seat in self._seats)
        for seat in self._seats:
            seat.leave()
        returned = returned and not whole
        if returned and not self._has_left:
            self._endpoint.send(0, Tag.TO_ROOT, pack(Left(self._role, self._ticks())))
        alone = self._learned_alone()
        saved = self._leave_group()
        stateless = self._learns and not self._spec.saves
        profile = self._stopwatch.profile()
        done = Done(
            self._role, self._ticks(), profile, saved=saved, returned=returned, stateless=stateless, alone=alone
        )
        self._endpoint.send(0, Tag.TO_ROOT, pack(done))
        # The parts refer to each other: memory and file descriptors would stay until garbage collection.
        vars(self).clear()

    @cached_property
    def _saving(self) -> WorkerCheckpoints:
        # Imported here: workers that do not learn have no checkpoints.
        from arena.roles.worker.checkpoints import WorkerCheckpoints

        return WorkerCheckpoints(
            self._run,
            self._policy,
            ticks=self._ticks,
            updates=lambda: self._log.updates,
            until=lambda: self._until,
        )

    @property
    def _has_left(self) -> bool:
        """Whether `run` has returned in an earlier leg."""
        return (self._role.match, self._role.seat) in self._run.leg.left

    @property
    def _learns(self) -> bool:
        return self._policy.config.learns

    @property
    def _keeps(self) -> bool:
        """Whether the policy writes checkpoints."""
        return not self._policy.config.frozen and self._spec.saves

    def _learned_alone(self) -> bytes | None:
        """A digest of the worker's state if the group had no collective call in this leg; the root compares them."""
        apart = self._group.size > 1 and not self._group.calls and not self._group.exchanges and not self._has_left
        if not (apart and self._keeps):
            return None
        from arena.roles.worker.checkpoints import digest

        return digest(self._algorithm.state_dict())

    def _leave_group(self) -> int | None:
        """Leaves the group and returns the boundary of the newest checkpoint of this worker; None if it wrote none.

        The writer of the group writes the state when it leaves. The group's root leaves last, so its state is final. If
        the root does not play this leg, the first worker that plays writes, also if the group had no collective call.
        """
        playing = (rank for rank, worker in enumerate(self._policy.workers) if worker not in self._run.leg.left)
        first = next(playing, 0)
        writes = self._group.is_writer or self._group.rank == first
        if self._keeps and writes and not self._group.is_root:
            self._saving.save(self._algorithm.state_dict(), boundary=self._end)
        self._group.leave()
        if self._keeps and self._group.is_root and self._group.is_writer and first == 0:
            self._saving.save(self._algorithm.state_dict(), boundary=self._end)
        # After `leave`, the root has received all samples of the other workers: see `AsyncSamples`.
        if self._keeps and self._spec.saves_worker:
            self._saving.save_own(self._role, self._algorithm.worker_state_dict(), boundary=self._end)
        return self._saving.newest if self._keeps else None

    @property
    def _end(self) -> int:
        """The last tick of the leg. A leg may end early; a worker that has left before does not receive that tick."""
        return self._ticks() if all(seat.over for seat in self._seats) else self._until

    def _runner(self) -> Callable[[], None]:
        """The algorithm's `run`; of a frozen policy a function that plays its actor."""
        if not self._policy.config.frozen:
            run: Callable[[], None] = self._algorithm.run
            return run
        takes_greedy = "greedy" in inspect.signature(self._algorithm.actor).parameters
        greedy = self._run.greedy and self._policy.name not in self._run.sampled
        actor: Actor = self._algorithm.actor(greedy=greedy) if takes_greedy else self._algorithm.actor()
        return lambda: play(self._env, actor)


class PolicyLog:
    """Sends the metrics of a policy's updates to the root; the writer of the group uses it.

    Args:
        endpoint: the endpoint of the worker.
        run: the run.
        policy: the policy.
        ticks: returns the number of ticks that the worker's match has played.
        updates: returns the number of updates of the policy in this leg.
    """

    def __init__(
        self, endpoint: Endpoint, run: Run, policy: PolicyPlan, *, ticks: Callable[[], int], updates: Callable[[], int]
    ) -> None:
        self._endpoint = endpoint
        self._policy = policy
        self._ticks = ticks
        self._updates = updates
        self._updates_before = run.leg.updates.get(policy.name, 0)
        self._begun = time.monotonic() - run.leg.seconds.get(policy.name, 0.0)
        matches = run.plan.matches
        self._rows = sum(
            matches[match].lanes * len(matches[match].seats[seat].entities) for match, seat in policy.workers
        )  # samples that the group collects per tick

    @property
    def updates(self) -> int:
        """The number of updates of the policy in all legs."""
        return self._updates_before + self._updates()

    @property
    def seconds(self) -> float:
        """The time since the policy began to learn, in all legs."""
        return time.monotonic() - self._begun

    def tell(self, text: str) -> None:
        """Sends a sentence for the user to the root."""
        self._endpoint.send(0, Tag.TO_ROOT, pack(Notice(f"policy {self._policy.name}: {text}")))

    def update(self, values: Mapping[str, float]) -> None:
        """Sends the metrics of one update to the root."""
        record = UpdateRecord(
            policy=self._policy.name,
            update=self.updates,
            ticks=self._ticks(),
            samples=self._ticks() * self._rows,
            seconds=self.seconds,
            values={name: float(value) for name, value in values.items()},
        )
        self._endpoint.send(0, Tag.TO_ROOT, pack(Update(record)))
