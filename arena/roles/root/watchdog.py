"""The root's watchdog: ends a run whose roles wait for each other in a cycle, or do not return from a call.

A rank is known to be alive when one of its roles sends a message to the root, and when its match plays a tick, because
a tick needs all seats. A rank without either for a while is queried for what its roles wait for. A process whose roles
wait answers at once; a process inside a call of a game or an algorithm does not, so its silence measures that call.

    alive      messages arrive
    query      no message for most of a check period: QUERY_STATUS             -> STATUS, or silence
    suspect    a cycle of waits as old as `watchdog_s`; a silence over the limit of a call; or all roles wait and the
               root has received no message for `watchdog_s`
    collect    all ranks are queried for stacks; a process on the same node reads the stacks of a rank that does not
               answer. If the suspicion still holds afterwards, the run ends

A worker that calls its group, or resets its game, but never steps is busy without advancing its match. When no match
has played a tick for ten times `watchdog_s`, a line lists the calls of such workers; the run goes on.

A cycle counts only if all its roles have waited longer than a message can be in transit.

Two kinds of time are not counted: while a process was ready to run but had no core, and while the root's own process
was suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena.diagnostics.process_load import delays, starved_seconds
from arena.diagnostics.remote_stacks import Process, peek
from arena.diagnostics.stacks import Stack, running_stack
from arena.plan.plan import RoleKind, roles_of
from arena.roles.protocol import Failed, Progress
from arena.roles.run import Run
from arena.transport import Endpoint, status
from arena.transport.endpoint import ANY_SOURCE, Bytes, Order, Tag
from arena.transport.pickling import pack, unpack
from arena.transport.status import RoleStatus, State, StatusQuery, StatusReply

_CHECKS = 8  # per limit
_SILENCE = 0.75  # in check periods: a rank that has been silent for so long is queried
_IDLE_LIMITS = 10  # report that no match has played a tick after 10 limits, then after 100, and so on
_MAX_CALLERS = 4  # workers named in such a report
_STACK_TIMEOUT = 5.0  # seconds for answers with stacks, however short the limit: a busy node may be slow


@dataclass
class _Rank:
    """What is known about a rank."""

    rank: int
    addresses: tuple[int, ...]  # of its roles, without the root's
    alive: float  # the last time at which it was known to be alive
    process: Process | None
    near: bool  # whether it is on the root's node
    queried: bool = False  # whether it has not answered the last query yet
    delays_at: float = -1.0  # when `delays` were read
    # Per thread, the seconds it had waited for a core when the rank's silence was noticed.
    delays: Mapping[int, float] = field(default_factory=dict)
    roles: tuple[RoleStatus, ...] = ()  # its last answer; empty after its match has played a tick since

    def delays_now(self) -> Mapping[int, float]:
        return delays(self.process.pid) if self.process is not None and self.near else {}

    def silence(self, now: float) -> float:
        """Seconds without an answer to a query, less the time without a core; 0 if no query is pending."""
        if not self.queried or self.delays_at < self.alive:
            return 0.0
        return now - self.alive - starved_seconds(self.delays, self.delays_now())


class Watchdog:
    """Detects roles that hang; `show` shows a line to the user."""

    def __init__(
        self,
        endpoint: Endpoint,
        run: Run,
        *,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint, self._run, self._show, self._clock = endpoint, run, show, clock
        self._limit, self._call_limit = run.plan.config.watchdog_s, run.plan.config.call_limit
        self._period = min(self._limit, self._call_limit) / _CHECKS
        root = endpoint.process(0)
        self._ranks: list[_Rank] = []
        self._rank_of: dict[int, _Rank] = {}  # by address
        for number, roles in enumerate(run.plan.ranks):
            if addresses := tuple(address for address in map(run.address, roles) if address != 0):
                process = endpoint.process(addresses[0])
                near = root is not None and process is not None and root.node == process.node
                rank = _Rank(number, addresses, 0.0, process, near)
                self._ranks.append(rank)
                self._rank_of.update(dict.fromkeys(addresses, rank))
        #: Per match the ranks of its workers, without the rank of its environment, which sends the messages.
        self._worker_ranks: list[list[_Rank]] = []
        for match in run.plan.matches:
            environment, *workers = (self._rank_of[run.address(role)] for role in roles_of(match))
            others = {rank.rank: rank for rank in workers if rank is not environment}
            self._worker_ranks.append(list(others.values()))
        self._ticks: dict[int, int] = {}  # per match, as far as known
        self._collected: dict[int, Stack] = {}
        self._stacks_awaited: set[int] = set()  # ranks
        self.begin()
        endpoint.on_order(Order.STATUS, self._receive)

    def begin(self) -> None:
        """Starts the silence timers; time before this call is not counted."""
        now = self._clock()
        self._last_message, self._next_check = now, now + self._period
        self._reset_tick_timer(now)
        for rank in self._ranks:
            rank.alive, rank.roles = now, ()

    @property
    def seconds_to_check(self) -> float:
        """Seconds until the next `check` is due."""
        return max(0.0, self._next_check - self._clock())

    def note_message(self, source: int, message: Any) -> None:
        """Notes a message from a role: its rank is alive; after a tick, all ranks of the match are."""
        self._last_message = now = self._clock()
        alive = [self._rank_of[source]]
        if isinstance(message, Progress):
            for match in message.ticks:
                alive += self._worker_ranks[match]
            if any(tick > self._ticks.get(match, self._run.leg.start) for match, tick in message.ticks.items()):
                self._reset_tick_timer(now)
            self._ticks.update(message.ticks)
        for rank in alive:
            rank.alive, rank.roles = now, ()

    def _reset_tick_timer(self, now: float) -> None:
        """Notes that a match has played a tick; a report is due when no match does for `_next_report` seconds."""
        self._last_tick, self._next_report = now, _IDLE_LIMITS * self._limit

    def check(self) -> Failed | None:
        """Checks all ranks if it is time; returns why the run must end, or None."""
        now = self._clock()
        if now < self._next_check:
            return None
        late = now - self._next_check
        if late > self._period:  # this process itself was suspended
            self._last_message += late
            self._last_tick += late
            for rank in self._ranks:
                rank.alive += late
        failure = self._suspicion(now)
        if failure is not None:
            self._collect_stacks()
            failure = self._suspicion(self._clock())
        idle = self._clock() - self._last_tick
        if failure is None and idle >= self._next_report:  # before the queries below: it needs answers
            self._report_calls(idle)
        for rank in self._ranks:
            now = self._clock()
            if now - rank.alive >= _SILENCE * self._period:
                if rank.delays_at < rank.alive:
                    rank.delays_at, rank.delays = now, rank.delays_now()
                if not rank.queried:
                    self._query(rank, StatusQuery())
        self._next_check = self._clock() + self._period  # the check itself may take longer than a period
        return failure

    def _report_calls(self, seconds: float) -> None:
        """Shows which calls the workers make instead of steps. Not an error: learning may take long."""
        self._collect_stacks()
        if any(role.awaits_games for role in self._answers()):
            return
        busy = sorted(self._answers(), key=lambda role: sum(count for _, count in role.calls), reverse=True)
        workers = []
        for role in busy:
            counts = [f"{name} {'once' if count == 1 else f'{count} times'}" for name, count in role.calls]
            if counts:
                workers.append(f"{self._name(role.address)}: {', '.join(counts)}")
        if workers:  # else the busy ranks have not answered yet
            self._next_report *= _IDLE_LIMITS
            more = f"; and {len(workers) - _MAX_CALLERS} more" if len(workers) > _MAX_CALLERS else ""
            self._show(
                f"no match has played a tick for {seconds:.0f} s, but workers are busy; their calls in this leg: "
                f"{'; '.join(workers[:_MAX_CALLERS])}{more}"
            )

    def _query(self, rank: _Rank, query: StatusQuery) -> None:
        rank.queried = True
        self._endpoint.order(rank.addresses[0], Order.QUERY_STATUS, pack(query))

    def _receive(self, source: int, data: Bytes) -> None:
        answer: StatusReply = unpack(data)
        for stacks in answer.peeked:
            self._collected.update(stacks)
        roles = tuple(role for role in answer.roles if role.address in self._rank_of)
        rank = self._rank_of[roles[0].address]
        if answer.question.stacks:
            self._stacks_awaited.discard(rank.rank)
        rank.queried, rank.alive, rank.roles = False, self._clock(), roles

    def _answers(self) -> list[RoleStatus]:
        """The last answers of all ranks that have no query pending."""
        return [role for rank in self._ranks if not rank.queried for role in rank.roles]

    def _collect_stacks(self) -> None:
        """Collects the stacks of all ranks; a process on the same node reads those of a rank that does not answer."""
        silent = [rank for rank in self._ranks if rank.queried]
        self._collected = {}
        for rank in silent:
            if rank.near and rank.process is not None:
                self._collected.update(peek(rank.process))
        # On each other node, the rank that is most likely to answer reads: a silent one may be just starved.
        now, nodes = self._clock(), dict[str, list[_Rank]]()
        for rank in self._ranks:
            if rank.process is not None and not rank.near and rank.silence(now) <= self._call_limit:
                nodes.setdefault(rank.process.node, []).append(rank)
        readers = [max(here, key=lambda rank: (rank not in silent, rank.alive)) for here in nodes.values()]
        answering = [rank for rank in self._ranks if rank not in silent or rank in readers]
        self._stacks_awaited = {rank.rank for rank in answering}
        for rank in answering:
            others = [other.process for other in silent if other is not rank] if rank in readers else []
            here = rank.process.node if rank.process is not None else None
            unread = tuple(process for process in others if process is not None and process.node == here)
            self._query(rank, StatusQuery(stacks=True, peek=unread))
        end = self._clock() + _STACK_TIMEOUT
        while self._stacks_awaited and self._clock() < end:
            self._endpoint.sleep((0, Tag.TO_ROOT, ANY_SOURCE), end - self._clock())

    def _suspicion(self, now: float) -> Failed | None:
        """The first reason to end the run, None if there is none."""
        # The call may have begun just before the rank was queried for the first time.
        silent = [rank for rank in self._ranks if rank.silence(now) > self._call_limit + self._period]
        busy: list[RoleStatus] = []
        for rank in silent:  # the role that runs; all roles of the rank if the stacks do not show which one runs
            stacks = {address: self._collected[address] for address in rank.addresses if address in self._collected}
            running = running_stack(stacks) if len(rank.addresses) > 1 else None
            for address in rank.addresses if running is None else running[:1]:
                busy.append(RoleStatus(address, State.RUNS, None, now - rank.alive, stacks.get(address, ())))
        if busy:
            who = self._run.describe(self._run.roles[busy[0].address])
            more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
            hint = self._run.plan.config.call_limit_text
            return self._failure(now, f"{who}{more}: not come back from a call", busy, hint)
        answers = self._answers()
        cycle = status.find_circle(role for role in answers if role.seconds >= self._limit)
        if cycle:
            return self._failure(now, f"{len(cycle)} roles wait in a circle", cycle)
        # Without a message within the limit all roles must wait: none is in a call, or waits for external games.
        if now - self._last_message < self._limit or len(answers) < len(self._rank_of):
            return None
        playing = [role for role in answers if role.state is not State.ENDED]
        if any(role.awaits_games or role.seconds < 2 * self._period for role in playing):
            return None
        cycle = status.find_circle(answers)
        what = f"{len(cycle)} roles wait in a circle" if cycle else "every role waits for another one"
        return self._failure(now, what, cycle)

    def _failure(self, now: float, what: str, suspects: list[RoleStatus], hint: str = "") -> Failed:
        addresses = {role.address for role in suspects}
        waiting = [role for role in self._answers() if role.state is State.WAITS and role.seconds >= 2 * self._period]
        others = [role for role in waiting if role.address not in addresses]
        seconds = now - self._last_message
        title = f"nothing has moved for {seconds:.0f} s: {what}" if seconds >= self._limit else what
        report = status.report(suspects, others, self._name)
        return Failed(title, f"{report}\n{hint}" if hint else report, exit_code=1)

    def _name(self, address: int) -> str:
        role = self._run.roles[address]
        place = self._run.plan.place(self._run.plan.rank_of(role))
        return self._run.describe(role) + ("" if role.kind is RoleKind.ROOT else f" ({place})")
