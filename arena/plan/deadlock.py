"""Proves before a run starts that it cannot deadlock, or shows one way in which it can.

Two things wait in a run. A match waits for the actions of all its seats. A worker in a collective of its group waits
for all other workers of its policy that have not left the group. The class of an algorithm says when its workers
synchronize (`schedule`):

    ticks      after the same ticks of their matches, whichever these are; or never
    episodes   whenever an episode of theirs is over. No game is examined: any entity may be over at any tick, alone

Frozen policies, algorithms that only act, and a policy's only worker never wait for others.

Claim. Draw a line between match and group for every worker. A run can deadlock if and only if this graph has a circle
that visits no match and no group twice, leads through a group of `episodes`, and has the time to close: 1 tick, plus 1
for each group of `ticks` in its longest row of such groups, plus 1 tick that the matches still have to play.

A deadlock implies such a circle. Every blocked match has a worker that waits for a worker of another unfinished match,
which is blocked as well; following these waits leads back to a match. If a group occurs twice on the way, all its
workers wait for the same meeting, so the part between can be left out. In a group of `ticks` the match of the waiting
worker has played more ticks than the match that it waits for, which cannot hold all around a circle: without a group of
`episodes`, the match with the fewest ticks can always go on.

Such a circle implies a deadlock. In each of its groups of `episodes`, let the episode of the waiting worker, and no
other, be over with the first tick; groups of `ticks` meet after every tick. Then a match that waits in a group of
`episodes` stays at tick 1, and a match that waits in a group of `ticks` gets at most one tick ahead of the next match
of the circle, as long as that match is not finished; so none of them finishes. `played` simulates this: every refusal
shows a run that is stuck.

Cutting a run into legs adds no circle: workers leave their groups with the last tick of a leg, so no match that still
has to reach the boundary waits for a match that is there. A leg may be as long as the run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from arena.plan.plan import ONLY_ACT, Plan

TICKS, EPISODES = "ticks", "episodes"
SCHEDULES = (TICKS, EPISODES)
_MOST_CHAINS = 100_000  # searched for a circle that closes within few ticks

Worker = tuple[int, int]
"""The worker of a seat, as (match, seat)."""

Meets = Callable[[Worker, int], bool]
"""Whether a worker comes to a meeting when its match has played a number of ticks."""


@dataclass(frozen=True)
class League:
    """The matches and groups of a run, as far as they wait for each other.

    Args:
        groups: the workers of each policy whose workers meet; at least two each.
        episodic: which of the policies meet at ends of episodes.
        ticks: of every match.
    """

    groups: Mapping[str, tuple[Worker, ...]]
    episodic: frozenset[str]
    ticks: int

    @classmethod
    def of(cls, plan: Plan, schedules: Mapping[str, str]) -> League:
        """The league of a plan.

        Args:
            plan: the plan.
            schedules: of the policies' algorithms; a missing one counts as `episodes`.
        """
        groups = {
            name: policy.workers
            for name, policy in plan.policies.items()
            if len(policy.workers) > 1 and not policy.frozen and policy.algorithm not in ONLY_ACT
        }
        episodic = frozenset(name for name in groups if schedules.get(name) != TICKS)
        return cls(groups, episodic, plan.ticks - plan.start)

    @cached_property
    def policy_of(self) -> Mapping[Worker, str]:
        """The policy of every worker that meets others."""
        return {worker: name for name, workers in self.groups.items() for worker in workers}

    @cached_property
    def matches(self) -> Mapping[int, Sequence[Worker]]:
        """By match, its workers that meet others."""
        found: dict[int, list[Worker]] = {}
        for worker in self.policy_of:
            found.setdefault(worker[0], []).append(worker)
        return found


class Wait(NamedTuple):
    """A worker that stands at a meeting."""

    policy: str
    worker: Worker
    awaited: Worker  # of the same policy; has not come to the meeting
    tick: int  # of the worker's match


Circle = tuple[Wait, ...]
"""Each wait is for a worker whose match is blocked by the next wait; the last wait is followed by the first."""


@dataclass(frozen=True)
class Proof:
    """The result for a league: it cannot deadlock, or a circle in which it can."""

    league: League
    circle: Circle | None

    @property
    def lines(self) -> tuple[str, ...]:
        """The finding in a sentence; of a circle also one line for each wait, and what helps."""
        episodic = ", ".join(name for name in self.league.groups if name in self.league.episodic)
        if self.circle is not None:
            head = f"can deadlock: the workers of {episodic} may meet whenever an episode of theirs is over. One way:"
            helps = remedies(sorted({wait.policy for wait in self.circle} & self.league.episodic))
            return (head, *_circle_lines(self.league, self.circle), f"What helps: {helps}")
        least = "the match with the fewest ticks done can always go on"
        if episodic:
            least = (
                f"no circle of matches that wait for each other can close through {episodic}, whose workers may meet "
                "whenever an episode of theirs is over"
            )
        ticks = f"{self.league.ticks} tick{'s' * (self.league.ticks != 1)}"
        return (f"no deadlock: every match plays exactly {ticks}, and {least}",)

    @property
    def refusal(self) -> str:
        """Why a run that can deadlock is not started, and what helps."""
        assert self.circle is not None, "a run that cannot deadlock is not refused"
        first, *waits, helps = self.lines
        return "\n".join([f"the run {first}", *(f"  {line}" for line in waits), helps])


def remedies(policies: Sequence[str]) -> str:
    """What helps where a run can deadlock by way of these policies, whose workers meet at ends of episodes."""
    return (
        f"`schedule = {TICKS!r}` in the algorithm's class, if all workers of {', '.join(policies)} meet after the same "
        "ticks of their matches, or never meet; matches that share fewer policies; one worker for all entities that a "
        "policy has in a match; or --allow-unproved, if no episode of the game can be over like this"
    )


def prove(plan: Plan, schedules: Mapping[str, str]) -> Proof:
    """Whether a plan can deadlock.

    Args:
        plan: the plan.
        schedules: by policy, what its algorithm's class says: `ticks` or `episodes`; any other value counts as
            `episodes`.
    """
    league = League.of(plan, schedules)
    circle = find_circle(league)
    if circle is not None:
        stuck = played(league, counter_example(league, circle), ticks=needed_ticks(circle))
        assert all(stuck.get(wait.worker[0]) == wait.tick for wait in circle), f"{circle} does not block its matches"
    return Proof(league, circle)


def needed_ticks(circle: Circle) -> int:
    """How many ticks matches must have for a circle to close."""
    return max(wait.tick for wait in circle) + 1


def counter_example(league: League, circle: Circle) -> Meets:
    """Meetings that close a circle in the fewest ticks."""
    early = {wait.worker for wait in circle if wait.policy in league.episodic}

    def meets(worker: Worker, tick: int) -> bool:
        if league.policy_of[worker] in league.episodic:
            return worker in early and tick == 1
        return True

    return meets


def played(league: League, meets: Meets, *, ticks: int) -> dict[int, int]:
    """Simulates the waiting of a league, without its games, until no match can move.

    The order in which matches move makes no difference: a worker that has come to a meeting stays until all have come.

    Args:
        league: the league.
        meets: when workers meet.
        ticks: of every match; workers leave their groups with the last one.

    Returns:
        By match that can never go on, the tick at which it is stuck.
    """
    done = dict.fromkeys(league.matches, 0)
    come: Counter[Worker] = Counter()  # to how many meetings

    def least(workers: Sequence[Worker]) -> float:
        return min((come[worker] for worker in workers if done[worker[0]] < ticks), default=float("inf"))

    moved = True
    while moved:
        moved = False
        held = {name: least(workers) for name, workers in league.groups.items()}
        for match, workers in league.matches.items():
            if done[match] < ticks and all(come[worker] <= held[league.policy_of[worker]] for worker in workers):
                done[match] += 1
                come.update(worker for worker in workers if meets(worker, done[match]))
                moved = True
    return {match: tick for match, tick in done.items() if tick < ticks}


# ------------------------------------------------------------------------------------------------- looking for circles


def find_circle(league: League) -> Circle | None:
    """A circle in which a league can deadlock; None if there is none.

    The best of the shortest circles through each group of `episodes`, if it closes within the ticks of the run. If none
    does, a longer one may close earlier, because the count begins anew at each group of `episodes`; if there are too
    many to search, the result is a circle that needs more ticks than the run has.
    """
    names = [name for name in league.groups if name in league.episodic]
    short = [circle for name in names if (circle := _shortest_circle(league, name)) is not None]
    if not short:
        return None
    best = min(short, key=lambda circle: (needed_ticks(circle), len(circle)))
    if needed_ticks(best) <= league.ticks:
        return best
    chains = _chains(league, names)
    found = next((circle for circle in islice(chains, _MOST_CHAINS) if circle is not None), None)
    undecided = found is None and next(chains, chains) is not chains
    return best if undecided else found


def _shortest_circle(league: League, start: str) -> Circle | None:
    """The shortest circle through a group: two branches of a breadth-first search from there that meet."""
    came_by: dict[str | int, Worker] = {}
    branch: dict[str | int, Worker] = {}  # the first line of the way from the start

    def way_to(node: str | int) -> list[Worker]:
        way: list[Worker] = []
        while node != start:
            way.append(came_by[node])
            node = _across(league, way[-1], node)
        return way[::-1]

    queue: deque[str | int] = deque([start])
    while queue:
        node = queue.popleft()
        for worker in league.groups[node] if isinstance(node, str) else league.matches[node]:
            other, own = _across(league, worker, node), branch.get(node, worker)
            if other == start or worker == came_by.get(node):
                continue
            if other not in branch:
                came_by[other], branch[other] = worker, own
                queue.append(other)
            elif branch[other] != own:
                return _around(league, [*way_to(node), worker, *way_to(other)[::-1]])
    return None


def _across(league: League, worker: Worker, node: str | int) -> str | int:
    """The other end of a worker's line."""
    return worker[0] if isinstance(node, str) else league.policy_of[worker]


def _around(league: League, lines: Sequence[Worker]) -> Circle:
    """The waits along the lines of a circle that begins and ends at a group of `episodes`."""
    first, *others = lines
    row = [first, *reversed(others)]
    waits: list[Wait] = []
    tick = 1
    for waiting, awaited in reversed(list(zip(row[::2], row[1::2], strict=True))):
        tick = _tick_of(league, league.policy_of[waiting], tick)
        waits.append(Wait(league.policy_of[waiting], waiting, awaited, tick))
    return tuple(reversed(waits))


def _tick_of(league: League, policy: str, awaited: int) -> int:
    """The first tick at which a worker of a policy can wait for one whose match stands at tick `awaited`."""
    return 1 if policy in league.episodic else awaited + 1


def _chains(league: League, starts: Sequence[str]) -> Iterator[Circle | None]:
    """All chains of waits within the ticks of the run: yields the circles that each of them closes, then None."""
    stack: list[Circle] = []
    if league.ticks > 1:
        stack += [(Wait(name, worker, worker, 1),) for name in starts for worker in league.groups[name]]
    while stack:
        chain = stack.pop()
        start, last = chain[0], chain[-1]
        policies, matches = {wait.policy for wait in chain}, {wait.worker[0] for wait in chain}
        for worker in league.matches[last.worker[0]]:
            name = league.policy_of[worker]
            if name == start.policy and worker != last.worker:
                yield (start._replace(awaited=worker), *chain[:0:-1])
            tick = _tick_of(league, name, last.tick)
            if name in policies or tick >= league.ticks:
                continue
            others = (other for other in league.groups[name] if other[0] not in matches)
            stack += [(*chain, Wait(name, other, worker, tick)) for other in others]
        yield None


# ------------------------------------------------------------------------------------------------------------- in words


def _circle_lines(league: League, circle: Circle) -> Iterator[str]:
    """Two lines for each wait: the worker's, and that of the match which it waits for."""
    for wait, after in zip(circle, (*circle[1:], circle[0]), strict=True):
        match, seat = wait.worker
        other, place = wait.awaited
        why, there = ("its episode over", "whose episode goes on")
        if wait.policy not in league.episodic:
            why, there = ("where its policy meets", "which has not come so far")
        yield (
            f"worker of policy {wait.policy!r} in seat {seat} of match {match}, at tick {wait.tick}, {why}, waits for "
            f"its group: for seat {place} of match {other}, {there}"
        )
        yield f"environment of match {other}, at tick {after.tick}, waits for its seat {after.worker[1]}"
