"""The worker role: it builds one algorithm for one seat and lets it run for one leg of the run.

seated     the environment has said what the seat looks like; the algorithm's class is held against it
built      the algorithm is made and has taken on its weights                                -> Ready to the root
running    the root has said Go; `run()`: the algorithm steps its proxy and talks to its group
left       `run()` has ended: the seat idles on without it, the group goes on without it     -> Done to the root
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
from arena.plan.plan import ONLY_ACT, MatchPlan, PolicyPlan, Role, RoleKind
from arena.preflight.examine import check_checkpoint
from arena.preflight.seats import SeatSpaces, check_independence, check_shared, check_teams, learners_of, seat_face
from arena.preflight.spec import spec_of
from arena.proxy import make_proxy
from arena.proxy.play import play
from arena.records.metrics import UpdateRecord
from arena.roles.process import calm_libraries, seed_libraries
from arena.roles.protocol import Done, Go, Left, Ready, Update
from arena.run.recovery import RecoveryState
from arena.run.run import Run
from arena.seat.client import BlockOrder, SeatClient
from arena.seat.layout import link_size
from arena.seat.welcome import Welcome
from arena.transport import Endpoint, Tag
from arena.transport.messages import expect, pack

if TYPE_CHECKING:
    from arena.roles.worker.checkpoints import WorkerCheckpoints


class Worker:
    """One algorithm in one seat.

    Args:
        endpoint: this role's place in the world.
        run: the run that it belongs to.
        role: which seat of which match.
        memory: is told how far the match has come when the run is interrupted.
        communicator: a plain mpi4py communicator of the policy's workers, None where there is no MPI.
        private: whether this process is the worker's own, so that its global random streams may be seeded.
    """

    def __init__(
        self, endpoint: Endpoint, run: Run, role: Role, *, memory: RecoveryState, communicator: Any, private: bool
    ) -> None:
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        self._endpoint = endpoint
        self._run = run
        self._role = role
        self._memory = memory
        self._match: MatchPlan = run.plan.matches[role.match]
        self._policy: PolicyPlan = run.plan.policies[run.plan.seat(role).policy]
        self._path = f"policies.{self._policy.name}"
        self._place = self._match.seat_path(run.plan.seat(role).index)
        self._log = PolicyLog(endpoint, run, self._policy, ticks=self._ticks, updates=lambda: self._group.updates)
        self._stopwatch = stopwatch(run.profile)
        self._was_ready = False
        self._until = run.plan.ticks
        self._requests: Counter[str] = Counter()  # to the game, beside steps
        algorithm, self._options = registry.configured_algorithm(
            self._policy.algorithm, self._policy.options, acts=run.plan.acts(self._policy), path=self._path
        )
        self._spec = spec_of(algorithm)
        self._group = self._join(communicator, algorithm)
        calls, requests = self._group.calls, self._requests
        endpoint.tally(lambda: calls + requests)
        calm_libraries()
        if private:
            seed_libraries(self._group.seed)
        self._seats = self._sit()
        self._check_group(algorithm)
        self._algorithm = self._build(algorithm)
        self._restore()
        self._ready()

    def _join(self, communicator: Any, algorithm: type[Any]) -> Group:
        workers = [Role(RoleKind.WORKER, match, seat) for match, seat in self._policy.workers]
        learners = learners_of(algorithm, self._run.plan, self._policy)
        return Group(
            self._endpoint,
            tuple(self._run.address(worker) for worker in workers),
            policy=self._policy.name,
            sync=self._policy.sync,
            reduce=self._policy.reduce,
            teams=self._run.plan.teams(self._policy),
            seed=self._run.worker_seed(self._role),
            shared_seed=self._run.policy_seed(self._policy.name),
            comm=communicator,
            rows=max(learner.rows for learner in learners),
            on_log=self._log.update,
            on_save=lambda state: self._saving.offer(state),
            stopwatch=self._stopwatch,
        )

    def _sit(self) -> tuple[SeatClient, ...]:
        """A seat for each block of the match's lanes."""
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

    def _check_group(self, algorithm: type[Any]) -> None:
        """Holds the seat's spaces against those of the policy's first one, before an algorithm is made and may play."""
        own = self._spaces.words()
        with located(path=self._place, who=f"policy {self._policy.name!r}"):
            check_shared(algorithm, self._group.pool(own)[0], own)
        check_teams(algorithm, self._run.plan, self._policy)
        check_independence(algorithm, self._policy)

    @property
    def _spaces(self) -> SeatSpaces:
        seat = self._seats[0]
        return SeatSpaces(seat.observation_spaces, seat.action_spaces, seat.mask_sizes)

    def _build(self, algorithm: type[Any]) -> Any:
        with located(path=self._place, who=f"policy {self._policy.name!r}"):
            face = seat_face(algorithm, self._spaces, lanes=self._match.lanes)
        self._env = make_proxy(face, self._seats)
        with located(inside=self._path):
            self._check_sizes(algorithm)
            return algorithm(self._env, self._group, ticks=self._run.plan.horizon, **self._options)

    def _check_sizes(self, algorithm: type[Any]) -> None:
        """Lets an algorithm that learns refuse a budget that is too small for it, before play begins."""
        if self._spec.has_sizes and not self._policy.frozen:
            learners = learners_of(algorithm, self._run.plan, self._policy)
            rows = next(learner.rows for learner in learners if self._group.rank in learner.workers)
            algorithm.sizes(self._options, rows=rows, ticks=self._run.plan.horizon, workers=len(learners))

    def _restore(self) -> None:
        """Takes on the checkpoint that the run names: the root of the group reads it and shares it."""
        path = self._run.leg.restore.get(self._policy.name)
        if path is None:
            return
        found = self._saving.load(path) if self._group.is_root else None
        held = self._group.broadcast_object(found)
        check_checkpoint(held, path, self._policy, type(self._algorithm))
        with located(path=f"{self._path}.load", who=str(path)):
            self._algorithm.load_state_dict(held.state)
            if self._spec.loads_worker:
                own = self._saving.load_own(self._role)
                if own is not None:
                    self._algorithm.load_worker_state_dict(own)

    def _ticks(self) -> int:
        """Ticks that the match has played, as far as all seats know."""
        return min(seat.ticks for seat in self._seats)

    def _ready(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role, self._resumable, self._spec.sync_on)))

    def work(self) -> None:
        """Runs the algorithm until its `run` returns or the leg is over, then takes leave of everybody."""
        self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        go = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        self._until = go.until
        self._memory.begin_leg(repairable=go.repairable)
        self._stopwatch.begin_inference()
        self._group.calls.clear()  # those before were not the algorithm's `run`
        if self._keeps and self._group.is_root and not self._run.leg.start:
            self._saving.save(self._algorithm.state_dict(), boundary=0)
        try:
            returned = self._has_left or self._play()
        except BaseException:
            self._memory.reach(self._ticks())
            raise
        for seat in self._seats:
            seat.leave()
        returned = returned and not all(seat.over for seat in self._seats)
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
        # Its parts know each other: their memory and descriptors would stay until Python looks for garbage.
        vars(self).clear()

    def _play(self) -> bool:
        """Whether `run` has returned by itself; BudgetReached is how all others end."""
        with suppress(BudgetReached), located(inside=self._path):
            self._runner()()
            return True
        return False

    @cached_property
    def _saving(self) -> WorkerCheckpoints:
        # Imported here: a worker that does not learn has no checkpoints, and no use for what writes them.
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
        return not self._policy.frozen and self._policy.algorithm not in ONLY_ACT

    @property
    def _keeps(self) -> bool:
        """Whether the policy has checkpoints."""
        return not self._policy.frozen and self._spec.saves

    @property
    def _resumable(self) -> bool:
        """Whether the algorithm can go on in the next leg: it does not learn, or its state is kept and taken on."""
        return not self._learns or self._spec.resumable

    def _learned_alone(self) -> bytes | None:
        """A digest of what this worker has learned in the leg if its group has not met; the root compares them."""
        apart = self._group.size > 1 and not self._group.calls and not self._group.exchanges and not self._has_left
        if not (apart and self._keeps):
            return None
        from arena.roles.worker.checkpoints import digest

        return digest(self._algorithm.state_dict())

    def _leave_group(self) -> int | None:
        """Leaves; the boundary of the checkpoint that this worker has written last, None if it has written none.

        Who speaks for the group when it leaves writes what has been learned until then. The root of the group leaves as
        the last one, and after it nobody has learned any more. One that does not play this leg has nothing new: the
        first that does writes in its place, also if the group has not met and so nobody has told it to speak.
        """
        first = self._first
        speaks = self._group.is_writer or self._group.rank == first  # nobody else does yet
        if self._keeps and speaks and not self._group.is_root:
            self._saving.save(self._algorithm.state_dict(), boundary=self._end)
        self._group.leave()
        if self._keeps and self._group.is_root and self._group.is_writer and first == 0:
            self._saving.save(self._algorithm.state_dict(), boundary=self._end)
        # Now the root has all that the others have handed over: see `AsyncSamples`.
        if self._keeps and self._spec.saves_worker:
            self._saving.save_own(self._role, self._algorithm.worker_state_dict(), boundary=self._end)
        return self._saving.newest if self._keeps else None

    @property
    def _first(self) -> int:
        """The group rank of the first worker whose `run` had not returned before this leg; the root's if all had."""
        playing = (rank for rank, worker in enumerate(self._policy.workers) if worker not in self._run.leg.left)
        return next(playing, 0)

    @property
    def _end(self) -> int:
        """The leg's last tick; a leg may end earlier than was said, and who has left before does not hear of it."""
        return self._ticks() if all(seat.over for seat in self._seats) else self._until

    def _runner(self) -> Callable[[], None]:
        if not self._policy.frozen:
            run: Callable[[], None] = self._algorithm.run
            return run
        takes_greedy = "greedy" in inspect.signature(self._algorithm.actor).parameters
        greedy = self._run.greedy and self._policy.name not in self._run.sampled
        actor = self._algorithm.actor(greedy=greedy) if takes_greedy else self._algorithm.actor()
        return lambda: play(self._env, actor)


class PolicyLog:
    """The numbers that are written down of a policy's updates.

    Every worker has one, and uses it while it speaks for its group.

    Args:
        endpoint: the worker's place in the world.
        run: the run.
        policy: whose log it is.
        ticks: how many ticks the worker's match has played.
        updates: how many updates the worker has made in this leg.
    """

    def __init__(
        self, endpoint: Endpoint, run: Run, policy: PolicyPlan, *, ticks: Callable[[], int], updates: Callable[[], int]
    ) -> None:
        self._endpoint = endpoint
        self._plan = run.plan
        self._policy = policy
        self._ticks = ticks
        self._updates = updates
        self._updates_before = run.leg.updates.get(policy.name, 0)
        self._begun = time.monotonic() - run.leg.seconds.get(policy.name, 0.0)

    @property
    def updates(self) -> int:
        """The updates of the policy, those of earlier legs included."""
        return self._updates_before + self._updates()

    @property
    def seconds(self) -> float:
        """How long the policy has learned, in earlier legs too."""
        return time.monotonic() - self._begun

    def update(self, values: Mapping[str, float]) -> None:
        """Sends the numbers of one update to the root."""
        record = UpdateRecord(
            policy=self._policy.name,
            update=self.updates,
            ticks=self._ticks(),
            samples=self._ticks() * self._rows,
            seconds=self.seconds,
            values={name: float(value) for name, value in values.items()},
        )
        self._endpoint.send(0, Tag.TO_ROOT, pack(Update(record)))

    @property
    def _rows(self) -> int:
        """Samples that the whole group collects per tick."""
        matches = self._plan.matches
        return sum(
            matches[match].lanes * len(matches[match].seats[seat].entities) for match, seat in self._policy.workers
        )
