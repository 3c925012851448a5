"""The root's watch over all others: whoever waits in a circle, or does not come back from a call, ends the run.

A rank gives a sign of life whenever one of its roles speaks to the root, and when its match moves: a tick needs all
seats. A rank that has given none for a while is asked what its roles wait for. A process whose roles wait answers at
once; one that is in a game or an algorithm does not, so its silence is how long that call takes.

    moving     signs of life come
    asking     none since the last look but one: QUERY_STATUS          -> STATUS, or silence
    suspicion  a circle; a silence that is too long; or everybody waits, and nothing has moved for `watchdog_s`
    telling    everybody is asked for stacks; who does not answer is looked into by a process of its node. If the
               suspicion still holds then, the run ends

Roles that are busy move no match either if a worker calls its group, or resets its game, and never steps. When no match
has played a tick for ten times `watchdog_s`, a line says which worker has called what how often; the run goes on.

Answers are believed only together: the times for which their roles say that they have waited overlap by more than a
message can be under way.

Time in which a process was ready to run, but others had the cores, is not held against it; neither is time in which
this process itself did not run (it was stopped, or the whole machine was).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena.diagnostics.process_load import delays, starved_seconds
from arena.diagnostics.remote_stacks import Process, peek
from arena.diagnostics.stacks import Stack, running_stack
from arena.plan.plan import RoleKind
from arena.roles.protocol import Failed, Progress
from arena.run.run import Run
from arena.transport import Endpoint, status
from arena.transport.endpoint import ANYONE, Bytes, Order, Tag
from arena.transport.status import RoleStatus, State, StatusQuery, StatusReply

_LOOKS = 8  # within the limit
_SILENCE = 0.75  # of the time between two looks: who has said nothing for so long is asked
_IDLE_LIMITS = 10  # of the limit: a line says that no match has played a tick for so long, and for ten times as long
_MOST_CALLERS = 4  # workers that such a line names
_PATIENCE = 5.0  # seconds for the last answers, however short the limit: a busy node takes its time


@dataclass
class _Rank:
    """What is known of a rank.

    Args:
        rank: its number.
        addresses: of its roles, without the root's.
        alive: when it has given its last sign of life.
        asked: whether it owes an answer.
        noted: when `delays` were.
        delays: how long its threads had waited for a core when its silence was noticed.
        roles: that answer; empty since its match has moved.
    """

    rank: int
    addresses: tuple[int, ...]
    alive: float
    asked: bool = False
    noted: float = -1.0
    delays: Mapping[int, float] = field(default_factory=dict)
    roles: tuple[RoleStatus, ...] = ()


class Watchdog:
    """Sees that a run moves.

    Args:
        endpoint: the root's place in the world.
        run: the run.
        tell: shows a line to the user.
        clock: seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: Run,
        *,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._run = run
        self._tell = tell
        self._clock = clock
        self._limit = run.plan.watchdog_s
        self._call_limit = run.plan.env_timeout_s or run.plan.watchdog_s
        self._period = min(self._limit, self._call_limit) / _LOOKS
        now = clock()
        hosted = {
            rank: tuple(address for address in map(run.address, roles) if address != 0)
            for rank, roles in enumerate(run.plan.ranks)
        }
        self._ranks = {rank: _Rank(rank, roles, now) for rank, roles in hosted.items() if roles}
        self._rank_of = {address: self._ranks[rank] for rank, roles in hosted.items() for address in roles}
        self._players: list[list[_Rank]] = [[] for _ in run.plan.matches]  # the ranks of all roles of each match
        for role in run.roles:
            if role.match is not None:
                self._players[role.match].append(self._rank_of[run.address(role)])
        self._moved = now
        self._ticks: dict[int, int] = {}  # that each match has played, as far as is known
        self._note_tick(now)
        self._due = now + self._period
        self._collected: dict[int, Stack] = {}
        endpoint.on_order(Order.STATUS, self._hear)

    def begin(self) -> None:
        """The root listens from now on; what was before is not held against anybody."""
        now = self._clock()
        self._moved, self._due = now, now + self._period
        self._note_tick(now)
        for rank in self._ranks.values():
            rank.alive, rank.roles = now, ()

    @property
    def patience(self) -> float:
        """Seconds for which the root may listen before it is to `look`."""
        return max(0.0, self._due - self._clock())

    def moved(self, source: int, message: Any) -> None:
        """Something has come from a role: its process lives, and so do those that have played a tick with it."""
        self._moved = now = self._clock()
        living = [self._rank_of[source]]
        if isinstance(message, Progress):
            living = self._players[message.match]
            if message.tick > self._ticks.get(message.match, self._run.leg.start):
                self._ticks[message.match] = message.tick
                self._note_tick(now)
        for rank in living:
            rank.alive, rank.roles = now, ()

    def look(self) -> Failed | None:
        """Looks whether all is well; why the run is to end, if it is not."""
        now = self._clock()
        if now < self._due:
            return None
        self._forgive(now - self._due)
        self._due = now + self._period
        failure = self._suspicion(now)
        if failure is not None:
            self._collect()
            failure = self._suspicion(self._clock())
        for rank in self._ranks.values():
            self._mind(rank, self._clock())
        if failure is None and self._clock() - self._ticked >= self._next_word:
            self._tell_of_calls(self._clock() - self._ticked)
        return failure

    def _note_tick(self, now: float) -> None:
        """Notes when a match has last played a tick; a line is due when none has for `_next_word` seconds."""
        self._ticked, self._next_word = now, _IDLE_LIMITS * self._limit

    def _tell_of_calls(self, seconds: float) -> None:
        """Says what the workers do instead of steps. The run goes on: learning between two ticks may take long."""
        self._collect()
        busy = sorted(self._known(), key=lambda role: sum(count for _, count in role.calls), reverse=True)
        words = [f"{self._name(role.address)}: {_calls_words(role.calls)}" for role in busy if role.calls]
        if words:  # else the ranks that are busy have not answered yet: the next look asks again
            self._next_word *= _IDLE_LIMITS
            more = f"; and {len(words) - _MOST_CALLERS} more" if len(words) > _MOST_CALLERS else ""
            self._tell(
                f"no match has played a tick for {seconds:.0f} s, but workers are busy; their calls in this leg: "
                f"{'; '.join(words[:_MOST_CALLERS])}{more}"
            )

    def _mind(self, rank: _Rank, now: float) -> None:
        if now - rank.alive < _SILENCE * self._period:
            return
        if rank.noted < rank.alive:
            rank.noted, rank.delays = now, self._delays_of(rank)
        if not rank.asked:
            self._ask(rank, StatusQuery())

    def _forgive(self, late: float) -> None:
        if late > self._period:
            self._moved += late
            self._ticked += late
            for rank in self._ranks.values():
                rank.alive += late

    # -------------------------------------------------------------------------------------------- question and answer

    def _ask(self, rank: _Rank, question: StatusQuery) -> None:
        rank.asked = True
        self._endpoint.order(rank.addresses[0], Order.QUERY_STATUS, status.pack(question))

    def _hear(self, source: int, data: Bytes) -> None:
        answer: StatusReply = status.unpack(data)
        for stacks in answer.peeked:
            self._collected.update(stacks)
        roles = tuple(role for role in answer.roles if role.address in self._rank_of)
        rank = self._rank_of[roles[0].address]
        rank.asked = False
        rank.alive = self._clock()
        rank.roles = roles

    def _process(self, rank: _Rank) -> Process | None:
        return self._endpoint.process(rank.addresses[0])

    def _near(self, rank: _Rank) -> bool:
        own, other = self._endpoint.process(0), self._process(rank)
        return own is not None and other is not None and own.node == other.node

    def _delays_of(self, rank: _Rank) -> Mapping[int, float]:
        process = self._process(rank)
        return delays(process.pid) if process is not None and self._near(rank) else {}

    def _silent(self, rank: _Rank, now: float) -> float:
        """For how many seconds of its own a rank that owes an answer has been silent; 0 for all others."""
        if not rank.asked or rank.noted < rank.alive:
            return 0.0
        return now - rank.alive - starved_seconds(rank.delays, self._delays_of(rank))

    def _collect(self) -> None:
        """Gets the stacks of everybody, from those that do not answer with the help of others."""
        silent = [rank for rank in self._ranks.values() if rank.asked]
        self._collected = {}
        for rank in silent:
            process = self._process(rank)
            if process is not None and self._near(rank):
                self._collected.update(peek(process))
        for rank in self._ranks.values():
            if rank not in silent:
                self._ask(rank, StatusQuery(stacks=True, peek=self._neighbors(rank, silent)))
        end = self._clock() + _PATIENCE
        while any(rank.asked for rank in self._ranks.values() if rank not in silent) and self._clock() < end:
            self._endpoint.sleep((0, Tag.TO_ROOT, ANYONE), end - self._clock())

    def _neighbors(self, rank: _Rank, silent: Iterable[_Rank]) -> tuple[Process, ...]:
        """Silent processes of a rank's node, for the first one there that can look into them."""
        own = self._process(rank)
        if own is None or self._near(rank):
            return ()
        here = [other for other in self._ranks.values() if self._node(other) == own.node]
        speaks = next((other for other in here if other not in silent), None)
        if speaks is not rank:
            return ()
        return tuple(process for other in here if other in silent and (process := self._process(other)) is not None)

    def _node(self, rank: _Rank) -> str | None:
        process = self._process(rank)
        return None if process is None else process.node

    # ------------------------------------------------------------------------------------------------------ judgement

    def _suspicion(self, now: float) -> Failed | None:
        """What there is to say against going on."""
        return self._endless_call(now) or self._circle(now) or self._standstill(now)

    def _endless_call(self, now: float) -> Failed | None:
        # The call may have begun only just before the rank was asked for the first time.
        limit = self._call_limit + self._period
        silent = [rank for rank in self._ranks.values() if self._silent(rank, now) > limit]
        if not silent:
            return None
        busy = [role for rank in silent for role in self._busy_roles(rank, now)]
        who = self._run.describe(self._run.roles[busy[0].address])
        more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
        key = "watchdog_s" if self._run.plan.env_timeout_s is None else "env_timeout_s"
        hint = f"one call of a game or an algorithm may take {self._call_limit:g} s; `{key}` can give it more"
        return self._failure(now, f"{who}{more}: not come back from a call", busy, hint)

    def _busy_roles(self, rank: _Rank, now: float) -> list[RoleStatus]:
        """The role that has the turn in a silent rank; all of them where that cannot be seen."""
        stacks = {address: self._collected[address] for address in rank.addresses if address in self._collected}
        running = running_stack(stacks) if len(rank.addresses) > 1 else None
        addresses = rank.addresses if running is None else running[:1]
        silent = now - rank.alive
        return [RoleStatus(it, State.RUNS, None, silent, stacks.get(it, ())) for it in addresses]

    def _circle(self, now: float) -> Failed | None:
        circle = status.find_circle(role for role in self._known() if role.seconds >= self._limit)
        return self._failure(now, f"{len(circle)} roles wait in a circle", circle) if circle else None

    def _standstill(self, now: float) -> Failed | None:
        """Nothing has moved, and nobody is in a call from which it could come back."""
        known = list(self._known())
        if now - self._moved < self._limit or len(known) < len(self._rank_of):
            return None
        if any(role.seconds < 2 * self._period for role in known if role.state is not State.ENDED):
            return None
        circle = status.find_circle(known)
        what = f"{len(circle)} roles wait in a circle" if circle else "every role waits for another one"
        return self._failure(now, what, circle)

    def _known(self) -> Iterable[RoleStatus]:
        """What the roles of the ranks that owe no answer have said last."""
        return (role for rank in self._ranks.values() if not rank.asked for role in rank.roles)

    def _failure(self, now: float, what: str, blamed: list[RoleStatus], hint: str = "") -> Failed:
        addresses = {role.address for role in blamed}
        still = [role for role in self._known() if role.state is State.WAITS and role.seconds >= 2 * self._period]
        others = [role for role in still if role.address not in addresses]
        seconds = now - self._moved
        title = f"nothing has moved for {seconds:.0f} s: {what}" if seconds >= self._limit else what
        said = status.report(blamed, others, self._name)
        return Failed(title, f"{said}\n{hint}" if hint else said, exit_code=1)

    def _name(self, address: int) -> str:
        role = self._run.roles[address]
        rank = "" if role.kind is RoleKind.ROOT else f" (rank {self._run.plan.rank_of(role)})"
        return self._run.describe(role) + rank


def _calls_words(calls: Iterable[tuple[str, int]]) -> str:
    """As `average 1200 times, reset once`."""
    return ", ".join(f"{name} {'once' if count == 1 else f'{count} times'}" for name, count in calls)
