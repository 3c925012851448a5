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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arena import registry
from arena.diagnostics.profile import Activity
from arena.errors import BudgetReached, ConfigError, listed, located
from arena.group.group import Group
from arena.plan.plan import MatchPlan, PolicyPlan, Role, RoleKind
from arena.preflight.examine import check_checkpoint
from arena.preflight.seats import check_independence, check_shared, check_teams, learners_of, seat_face, space_texts
from arena.preflight.spec import spec_of
from arena.records.metrics import UpdateRecord
from arena.roles.process import limit_threads, seed_libraries
from arena.roles.protocol import Done, Go, Left, Notice, Ready
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.seat.client import BlockOrder, SeatClient
from arena.seat.layout import SeatDescription, link_size
from arena.seat.play import play
from arena.transport import Endpoint, Tag
from arena.transport.pickling import expect, pack

if TYPE_CHECKING:
    from arena.roles.worker.checkpoints import WorkerCheckpoints


class Worker:
    """One algorithm in one seat.

    Args:
        memory: of this process.
        communicator: an mpi4py communicator of the policy's workers; None without MPI.
        private: whether the process hosts no other role, so that its global random streams may be seeded.
    """

    def __init__(
        self, endpoint: Endpoint, run: Run, role: Role, memory: RunState, *, communicator: Any, private: bool
    ) -> None:
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        self._endpoint, self._run, self._role, self._memory = endpoint, run, role, memory
        self._match: MatchPlan = run.plan.matches[role.match]
        self._policy: PolicyPlan = run.plan.policies[run.plan.seat(role).policy]
        self._path = f"policies.{self._policy.name}"
        self._stopwatch = run.stopwatch(endpoint)
        # When the policy began to learn, in all legs.
        self._begun = time.monotonic() - run.leg.seconds.get(self._policy.name, 0.0)
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
        self._learns = self._policy.config.learns
        self._saves = not self._policy.config.frozen and self._spec.saves  # whether the policy writes checkpoints
        self._has_left = (role.match, role.seat) in run.leg.left  # whether `run` has returned in an earlier leg
        learners = learners_of(algorithm, run.plan, self._policy)
        environment = run.address(Role(RoleKind.ENVIRONMENT, self._match.match))
        here = endpoint.process(environment) == endpoint.process(endpoint.address)
        self._group = Group(
            endpoint,
            run.plan.members[self._policy.name],
            policy=self._policy.name,
            sync=self._policy.config.sync,
            max_lag=self._policy.config.max_lag,
            teams=run.plan.teams[self._policy.name],
            seed=run.worker_seed(role),
            shared_seed=run.policy_seed(self._policy.name),
            comm=communicator,
            rows=max(learner.rows for learner in learners),
            on_log=self._send_update,
            on_tell=lambda text: self._send(Notice(f"policy {self._policy.name}: {text}")),
            on_save=lambda state: self._checkpoints.offer(state),
            stopwatch=self._stopwatch,
            comes_together=here and not self._stopwatch.runs,  # else each measures its own time
        )
        endpoint.tally(dict)
        limit_threads()
        if private:
            seed_libraries(self._group.seed)
        self._seats = self._open_seats()
        seat, who = self._seats[0], f"policy {self._policy.name!r}"
        place = self._match.seat_path(run.plan.seat(role).index)
        if self._spec.saves:  # before the algorithm is built; the first text of a number takes 46 kB of a thread
            texts = space_texts(seat.interface)
            with located(path=place, who=who):
                check_shared(algorithm, self._group.broadcast_object(texts), texts)
        check_teams(algorithm, run.plan, self._policy)
        check_independence(algorithm, self._policy)
        with located(path=place, who=who):
            face = seat_face(algorithm, seat.interface, lanes=self._match.lanes)
        self._env = _proxy(face, self._seats)
        with located(inside=self._path):
            if self._spec.has_sizes and not self._policy.config.frozen:  # it may refuse so few ticks
                rows = next(learner.rows for learner in learners if self._group.rank in learner.workers)
                algorithm.sizes(self._options, rows=rows, ticks=run.plan.horizon, workers=len(learners))
            with registry.method_located(algorithm, "__init__"):
                self._algorithm = algorithm(self._env, self._group, ticks=run.plan.horizon, **self._options)
        if (path := run.leg.restore.get(self._policy.name)) is not None:
            # The root of the group reads the checkpoint and broadcasts it.
            loaded = self._group.broadcast_object(self._checkpoints.load(path) if self._group.is_root else None)
            check_checkpoint(loaded, path, self._policy, type(self._algorithm))
            own = run.path in path.parents  # where this run was, and not what its `load` names
            came = "resumed" if run.resumed else "restored"  # in a later round or leg of a new run
            place, who = (self._path, f"{came} from {path}") if own else (f"{self._path}.load", str(path))
            with located(path=place, who=who), registry.method_located(algorithm, "load_state_dict"):
                try:
                    self._algorithm.load_state_dict(loaded.state)
                except ConfigError as error:
                    changed = [text for text in run.text if own and text.startswith(f"{self._path}.options.")]
                    if not changed:
                        raise
                    text = f"{error.message}; this resume has changed {', '.join(changed)}"
                    raise ConfigError(text, path=error.path) from error
                if self._run.tried and self._spec.saves and self._group.is_root:
                    self._tell_what_is_not_loaded(loaded.state)
                if self._spec.loads_worker and (private_state := self._checkpoints.load_worker_state()) is not None:
                    self._algorithm.load_worker_state_dict(private_state)
        self._ready()

    def _tell_what_is_not_loaded(self, saved: Mapping[str, Any]) -> None:
        now, digest = self._algorithm.state_dict(), self._checkpoints.digest
        if lost := [key for key in saved if key not in now or digest(now[key]) != digest(saved[key])]:
            missing = listed([f"state[{key!r}]" for key in lost])
            text = (
                f"warning: policy {self._policy.name}: load_state_dict(state) has not restored {missing}: state_dict() "
                "returns another value after it, so the next leg begins with that"
            )
            self._send(Notice(text))

    def _open_seats(self) -> tuple[SeatClient, ...]:
        """Opens a seat for each block of the match's lanes."""
        environment = self._run.address(Role(RoleKind.ENVIRONMENT, self._match.match))
        seats: list[SeatClient] = []
        block_order: BlockOrder | None = None
        parts = 1
        while len(seats) < parts:
            description = expect(SeatDescription, self._endpoint.receive(environment, Tag.WELCOME))
            parts = description.parts
            if parts > 1 and block_order is None:
                block_order = BlockOrder(parts)
            link = self._endpoint.link(environment, link_size(description.layout()), description.part)
            seat = SeatClient(
                description,
                link,
                seed=self._group.seed,
                start=self._run.leg.start,
                before_first_request=self._ready,
                stopwatch=self._stopwatch,
                block_order=block_order,
                calls=self._requests,
            )
            seats.append(seat)
        return tuple(seats)

    def _ticks(self) -> int:
        """Ticks played by all blocks of the match."""
        return min(seat.ticks for seat in self._seats)

    def _updates(self) -> int:
        """The number of updates of the policy in all legs."""
        return self._run.leg.updates.get(self._policy.name, 0) + self._group.updates

    def _send_update(self, values: Mapping[str, float]) -> None:
        """Sends the metrics of one update to the root; called in the writer of the group."""
        ticks, seconds, update = self._ticks(), time.monotonic() - self._begun, self._updates()
        self._send(UpdateRecord(self._policy.name, update, ticks, ticks * self._rows, seconds, dict(values)))
        for seat in self._seats:  # a request that is being sent may take it, too: then a result waits a little longer
            seat.request.logged = update

    @cached_property
    def _rows(self) -> int:
        """The samples per tick of all workers of the policy."""
        return sum(learner.rows for learner in self._run.plan.learners[self._policy.name, False])

    def _send(self, message: object) -> None:
        self._endpoint.send(0, Tag.TO_ROOT, pack(message))

    def _ready(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            resumable = not self._learns or self._spec.resumable  # the next leg can continue from its state
            self._send(Ready(self._role, resumable, self._spec.sync_on))

    @cached_property
    def _checkpoints(self) -> WorkerCheckpoints:
        # Imported here: workers that do not learn have no checkpoints.
        from arena.roles.worker.checkpoints import WorkerCheckpoints

        run, policy, role = self._run, self._policy, self._role
        return WorkerCheckpoints(run, policy, role, self._memory, self._ticks, self._updates, lambda: self._until)

    def work(self) -> None:
        """Runs the algorithm until its `run` returns or the leg is over, then leaves seats and group."""
        self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        self._until = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT)).until
        self._stopwatch.begin_inference()
        calls, requests = self._group.calls, self._requests
        calls.clear()  # count the calls of `run` only
        self._endpoint.tally(lambda: calls + requests)
        if self._saves and self._group.is_root and not self._run.leg.start:
            self._save(0)
        returned = True
        if not self._has_left:
            method = "actor" if self._policy.config.frozen else "run"
            of_user = registry.method_located(type(self._algorithm), method)
            with suppress(BudgetReached), located(inside=self._path), of_user:
                returned = False
                if not self._policy.config.frozen:
                    self._algorithm.run()
                else:
                    greedy = self._run.greedy and self._policy.name not in self._run.sampled
                    takes_greedy = "greedy" in inspect.signature(self._algorithm.actor).parameters
                    play(self._env, self._algorithm.actor(**{"greedy": greedy} if takes_greedy else {}))
                returned = True
        whole = all(seat.over for seat in self._seats)
        for seat in self._seats:
            seat.leave()
        returned = returned and not whole
        if returned and not self._has_left:
            self._send(Left(self._role, self._ticks()))
        alone = None  # a digest of the worker's state if it has learned without its group: the root compares them
        synchronized = self._group.size == 1 or self._group.calls or self._group.exchanges
        if self._saves and not synchronized and not self._has_left:
            alone = self._checkpoints.digest(self._algorithm.state_dict())
        saved = self._leave_group()
        worker_state = self._checkpoints.worker_state if self._saves else None
        profile, stateless = self._stopwatch.profile(), self._learns and not self._spec.saves
        done = Done(self._role, self._ticks(), profile, (), saved, returned, stateless, alone, worker_state)
        self._send(done)
        # The parts refer to each other: memory and file descriptors would stay until garbage collection.
        vars(self).clear()

    def _save(self, boundary: int) -> None:
        with registry.method_located(type(self._algorithm), "state_dict"):
            self._checkpoints.save(self._algorithm.state_dict(), boundary=boundary)

    def _leave_group(self) -> int | None:
        """Leaves the group and returns the boundary of the newest checkpoint of this worker; None if it wrote none.

        The writer of the group writes the state when it leaves. The group's root leaves last, so its state is final. If
        the root does not play this leg, the first worker that plays writes, also if the group had no collective call.
        """
        group, left = self._group, self._run.leg.left
        if not self._saves:
            group.leave()
            return None
        # A leg may end early; a worker that has left before does not receive the tick of its end.
        boundary = self._ticks() if all(seat.over for seat in self._seats) else self._until
        first = next((rank for rank, worker in enumerate(self._policy.workers) if worker not in left), 0)
        if not group.is_root and (group.is_writer or group.rank == first):
            self._save(boundary)
        group.leave()
        if group.is_root and group.is_writer and first == 0:
            self._save(boundary)
        # After `leave`, the root has received all samples of the other workers: see `AsyncSamples`.
        if self._spec.saves_worker:
            self._checkpoints.save_worker_state(self._algorithm.worker_state_dict(), boundary=boundary)
        return self._checkpoints.newest


def _proxy(face: str, seats: Sequence[SeatClient]) -> Any:
    """The environment that the algorithm plays in; only the vector face can have several lanes."""
    # Imported here: a worker imports only the face that it uses; PettingZoo takes long to import.
    if face == "gym":
        from arena.seat.gym import EnvProxy

        return EnvProxy(seats[0])
    if face == "vector":
        from arena.seat.vector import VectorEnvProxy

        return VectorEnvProxy(seats)
    from arena.seat.parallel import ParallelEnvProxy

    return ParallelEnvProxy(seats[0])
