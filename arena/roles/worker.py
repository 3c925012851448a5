"""The worker role: it builds one algorithm for one seat and lets it run.

seated     the environment has said what the seat looks like; the algorithm's class is held against it
built      the algorithm is made and has taken on its weights                                -> Ready to the root
running    `run()`: the algorithm steps its proxy and talks to its group
left       `run()` has ended: the seat idles on without it, the group goes on without it     -> Done to the root
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from arena import registry
from arena.comm import Endpoint, Tag
from arena.comm.interface import Side
from arena.comm.wire import ReplyView, RequestView
from arena.errors import BudgetReached, ConfigError, located
from arena.examination import seat_face
from arena.group import Group
from arena.messages import Done, Ready, Update, Welcome, expect, pack
from arena.plan import MatchPlan, PolicyPlan, Role, RoleKind
from arena.proxy import Seat, make_proxy
from arena.records import checkpoint
from arena.records.lines import UpdateRecord
from arena.roles.frozen import play
from arena.run import Run
from arena.stopwatch import stopwatch


class Worker:
    """One algorithm in one seat.

    Args:
        endpoint: this role's place in the world.
        run: the run that it belongs to.
        role: which seat of which match.
        communicator: a plain mpi4py communicator of the policy's workers, None where there is no MPI.
        private: whether this process is the worker's own, so that its global random streams may be seeded.
    """

    def __init__(self, endpoint: Endpoint, run: Run, role: Role, *, communicator: Any, private: bool) -> None:
        assert role.match is not None and role.seat is not None, f"{role} is no worker"
        self._endpoint = endpoint
        self._run = run
        self._role = role
        self._match: MatchPlan = run.plan.matches[role.match]
        self._policy: PolicyPlan = run.plan.policies[run.plan.seat(role).policy]
        self._path = f"policies.{self._policy.name}"
        self._log = PolicyLog(endpoint, run, self._policy, lambda: self._seat.ticks)
        self._stopwatch = stopwatch(run.profile)
        self._was_ready = False
        with located(path=f"{self._path}.algorithm"):
            algorithm = registry.algorithm(self._policy.algorithm)
        registry.check_options(algorithm, self._policy.options, path=self._path)
        self._group = self._join(communicator)
        _calm_libraries(self._group.seed if private else None)
        self._seat = self._sit()
        self._algorithm = self._build(algorithm)
        self._restore()
        self._ready()

    def _join(self, communicator: Any) -> Group:
        workers = [Role(RoleKind.WORKER, match, seat) for match, seat in self._policy.workers]
        return Group(
            self._endpoint,
            tuple(self._run.address(worker) for worker in workers),
            policy=self._policy.name,
            sync=self._policy.sync,
            seed=self._run.worker_seed(self._role),
            shared_seed=self._run.policy_seed(self._policy.name),
            comm=communicator,
            report=self._log.update,
            keep=self._log.offer,
            stopwatch=self._stopwatch,
        )

    def _sit(self) -> Seat:
        environment = self._run.address(Role(RoleKind.ENVIRONMENT, self._match.match))
        welcome = expect(Welcome, self._endpoint.receive(environment, Tag.WELCOME))
        layout = welcome.layout()
        link = self._endpoint.link(
            environment,
            Side.SEAT,
            request_bytes=RequestView(layout).nbytes,
            reply_bytes=ReplyView(layout).nbytes,
        )
        return Seat(welcome, link, seed=self._group.seed, before_first_request=self._ready, stopwatch=self._stopwatch)

    def _build(self, algorithm: type[Any]) -> Any:
        seat = self._seat
        path = self._match.seat_path(self._run.plan.seat(self._role).index)
        with located(path=path, who=f"policy {self._policy.name!r}"):
            self._face = seat_face(algorithm, seat.observation_spaces, seat.action_spaces, lanes=seat.lanes)
        self._env = make_proxy(self._face, seat)
        with located(inside=self._path):
            self._check_sizes(algorithm)
            return algorithm(self._env, self._group, ticks=self._run.plan.ticks, **self._policy.options)

    def _check_sizes(self, algorithm: type[Any]) -> None:
        """Lets an algorithm that learns refuse a budget that is too small for it, before anybody plays."""
        if hasattr(algorithm, "sizes") and not self._policy.frozen:
            workers = len(self._policy.workers)
            algorithm.sizes(self._policy.options, rows=self._seat.rows, ticks=self._run.plan.ticks, workers=workers)

    def _restore(self) -> None:
        """Takes on the checkpoint that the run names: the root of the group reads it and shares it."""
        path = self._run.restore.get(self._policy.name)
        if path is None:
            return
        found = checkpoint.load(path) if self._group.is_root else None
        held = self._group.share(found)
        if held.algorithm != self._policy.algorithm:
            raise ConfigError(
                f"the checkpoint {path} is of the algorithm {held.algorithm!r}, the policy uses "
                f"{self._policy.algorithm!r}",
                path=self._path,
            )
        if not hasattr(self._algorithm, "load_state_dict"):
            raise ConfigError(f"the algorithm {self._policy.algorithm!r} has no load_state_dict()", path=self._path)
        with located(path=f"{self._path}.load", source=str(path)):
            self._algorithm.load_state_dict(held.state)
        if self._run.start_tick:
            self._log.updates = held.update

    def _ready(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role)))

    def work(self) -> None:
        """Runs the algorithm until its `run` returns or the budget is used, then takes leave of everybody."""
        learning = not self._policy.frozen and hasattr(self._algorithm, "state_dict")
        if learning and self._group.is_root and not self._run.start_tick:
            self._log.save(self._algorithm.state_dict())
        # BudgetReached is how every run ends that does not end by itself.
        with suppress(BudgetReached), located(inside=self._path):
            self._runner()()
        self._seat.leave()
        self._group.leave()
        if learning and self._group.is_root:
            self._log.save(self._algorithm.state_dict())
        self._endpoint.send(0, Tag.TO_ROOT, pack(Done(self._role, self._stopwatch.profile())))

    def _runner(self) -> Callable[[], None]:
        if not self._policy.frozen:
            run: Callable[[], None] = self._algorithm.run
            return run
        if not hasattr(self._algorithm, "actor"):
            raise ConfigError(
                f"a frozen policy needs an algorithm with actor(); {self._policy.algorithm!r} has none",
                path=self._path,
            )
        actor = self._algorithm.actor(greedy=self._run.greedy)
        return lambda: play(self._face, self._env, actor)


class PolicyLog:
    """What a group's root writes down of its policy: the numbers of its updates, and its checkpoints."""

    def __init__(self, endpoint: Endpoint, run: Run, policy: PolicyPlan, ticks: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self._run = run
        self._policy = policy
        self._ticks = ticks
        self._begun = time.monotonic()
        self._saved_at = run.start_tick
        self.updates = 0

    def update(self, values: Mapping[str, float]) -> None:
        self.updates += 1
        record = UpdateRecord(
            policy=self._policy.name,
            update=self.updates,
            ticks=self._ticks(),
            samples=self._ticks() * self._rows,
            seconds=time.monotonic() - self._begun,
            values={name: float(value) for name, value in values.items()},
        )
        self._endpoint.send(0, Tag.TO_ROOT, pack(Update(record)))

    @property
    def _rows(self) -> int:
        """Samples that the whole group collects per tick."""
        matches = self._run.plan.matches
        return sum(
            matches[match].lanes * len(matches[match].seats[seat].entities) for match, seat in self._policy.workers
        )

    def offer(self, state: Any) -> None:
        """Writes a checkpoint if one is due; `state` may be a function that makes it."""
        if self._ticks() - self._saved_at >= self._run.plan.checkpoint_every:
            self.save(state() if callable(state) else state)

    def save(self, state: Any) -> None:
        self._saved_at = self._ticks()
        checkpoint.save(
            self._run.folder.checkpoints_path(self._policy.name),
            state,
            policy=self._policy.name,
            algorithm=self._policy.algorithm,
            ticks=self._ticks(),
            update=self.updates,
        )


def _calm_libraries(seed: int | None) -> None:
    """One thread per worker, and reproducible global streams where the process is the worker's own."""
    torch = sys.modules.get("torch")  # only if the algorithm imported it
    if torch is not None:
        torch.set_num_threads(1)
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed)
        if torch is not None:
            torch.manual_seed(seed)
