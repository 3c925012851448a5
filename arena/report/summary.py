"""The summary of a run: when, how long, by how many processes, the results of each policy, and where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec
import numpy as np

from arena.config.matches import policy_of
from arena.config.members import players
from arena.config.schema import Policy
from arena.league.rounds_file import ticks_before
from arena.records.formats import PlanFile, ProfiledRole, ProfileFile, lost_and_refused
from arena.records.scoreboard import WINDOW
from arena.report.colors import Colors
from arena.report.read_run import RunFiles
from arena.roles.status import RunStatus, planned_ticks, run_status

MOST_CARDS = 200  # matches of the plan that are shown
_ACTIVITIES = {
    "starting": "#d9c7a3",
    "communication": "#e0a13a",
    "environment": "#2f9e8f",
    "inference": "#4c78c8",
    "learning": "#8a63c9",
    "recording": "#b8643c",
    "waiting for actions": "#c3c9d0",
    "waiting for the match": "#a4acb6",
    "waiting for the group": "#848d99",
    "waiting for news": "#dde1e6",
}
"""Work has a color; waiting is gray, the darker the further away the cause."""


class Summary(msgspec.Struct, frozen=True):
    """The run in numbers."""

    name: str
    state: str  # its `RunStatus`
    read: str | None  # when the journals were read, ISO 8601, UTC; None if no process wrote any more
    began: str  # when the run was started, or resumed for the last time
    ended: str  # when something was written last
    seconds: float  # between the two; or those of an update, which count on when a run is resumed, if they are more
    seed: int
    ticks: int  # that every match has played
    ticks_planned: int | None  # of all rounds; None where the number of episodes decides, as in a tournament
    match_ticks: int  # of all matches of all rounds together
    match_ticks_planned: int | None  # in the end, if later rounds have as many matches as the newest
    rounds: int
    rounds_planned: int
    processes: int
    matches: int
    policies: int
    episodes: int  # that are results
    cut: int  # by the end of a leg, or lost
    lost: str  # how many external games were lost, and why; empty if none, or a folder of earlier versions
    updates: int
    samples: int  # of all policies together, as their last updates say
    faults: int
    unfinished: int  # incomplete last lines of journals, which were skipped


class PolicyRow(msgspec.Struct, frozen=True):
    """A configured policy."""

    name: str
    color: str
    algorithm: str
    frozen: bool
    remark: str  # empty if it may play in the matches; else whether evaluations have a seat for it
    workers: int
    episodes: int
    updates: int
    samples: int
    first_return: float | None  # the mean of its first 100 episodes, or of the first half; None without an episode
    last_return: float | None  # likewise of its last ones
    wins: float | None  # shares of games, as a policy on both sides wins half of one; None without a decided game
    draws: float | None
    losses: float | None


class RoleTime(msgspec.Struct, frozen=True):
    """The time of some roles together."""

    name: str  # what they are: `environment`, `worker blue`, or the number of a rank
    roles: int
    wall: float  # seconds from their starts to their ends
    cpu: float  # seconds of processor time
    seconds: dict[str, float]  # by activity; they add up to `wall`


class Timing(msgspec.Struct, frozen=True):
    """The time of all roles, twice: by what they are, and by the rank that hosts them."""

    activities: dict[str, str]  # with their colors
    kinds: list[RoleTime]
    ranks: list[RoleTime]


class MatchCard(msgspec.Struct, frozen=True):
    """A match, with the policies of its seats."""

    match: int
    env: str
    lanes: int
    seats: list[str]
    ranks: list[int | None]  # of its environment, and of the worker of each seat; None where the plan has none


class PlanCards(msgspec.Struct, frozen=True):
    """The plan: a card for each match."""

    roles: int
    root: int  # the rank that hosts the root
    cards: list[MatchCard]  # of the first matches
    idle: int  # ranks without a role


def summarize(files: RunFiles) -> Summary:
    """The summary of a run."""
    config, episodes = files.config, files.episodes
    newest = files.updates.newest
    last_episode = int(episodes.tick.max()) if len(episodes.tick) else 0
    # Its newest boundary, or what was recorded after it.
    ticks = max(files.boundary or 0, last_episode, max((update.ticks for update in newest.values()), default=0))
    planned = planned_ticks(config)
    began = files.folder.config.stat().st_mtime
    ended = max(began, files.journals.written)
    state = RunStatus.UNDER_WAY if files.journals.going else run_status(files.folder, config, played=ticks)

    def iso(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")

    def match_ticks(tick: int) -> int:
        """The ticks of all matches together, when those of the newest round have come to a tick."""
        if not files.rounds:
            return tick * len(files.plan.matches)
        starts, matches = [line.start for line in files.rounds], [len(line.planned) for line in files.rounds]
        return ticks_before(starts, matches) + matches[-1] * max(0, tick - starts[-1])

    return Summary(
        name=config.name,
        state=state.value,
        read=files.journals.at.isoformat(timespec="seconds") if files.journals.going else None,
        began=iso(began),
        ended=iso(ended),
        seconds=max([ended - began, *(update.seconds for update in newest.values())]),
        seed=config.seed,
        ticks=ticks,
        ticks_planned=planned,
        match_ticks=match_ticks(ticks),
        match_ticks_planned=None if planned is None else match_ticks(planned),
        rounds=max(1, len(files.rounds)),
        rounds_planned=config.round_count,
        processes=files.plan.processes,
        matches=len(files.plan.matches),
        policies=len(config.policies),
        episodes=episodes.results,
        cut=int(np.count_nonzero(episodes.cut)),
        lost=lost_and_refused(sum(episodes.lost.values()), episodes.lost, {}) if episodes.lost else "",
        updates=files.updates.counts.total(),
        samples=sum(update.samples for update in newest.values()),
        faults=len(files.faults),
        unfinished=files.unfinished,
    )


def policy_rows(files: RunFiles, colors: Colors) -> list[PolicyRow]:
    """A row for each configured policy, in the order of the configuration."""
    workers = Counter(seat.policy for match in files.plan.matches for seat in match.seats)
    newest, updates = files.updates.newest, files.updates.counts
    playing, table = players(files.config), files.episodes
    evaluation = files.config.evaluation
    evaluated = {policy_of(seat) for seat in (evaluation and evaluation.seats) or ()}

    def row(name: str, policy: Policy) -> PolicyRow:
        mine = table.of(name)
        returns, shares = mine.returns, mine.shares[mine.decided]  # [N]; [M, 3]
        finite = returns[np.isfinite(returns)]
        size = max(1, min(WINDOW, len(finite) // 2))
        won, drawn, lost = shares.sum(axis=0, dtype=np.float64).tolist() if len(shares) else (None, None, None)
        return PolicyRow(
            name=name,
            color=colors[name],
            algorithm="a person" if policy.algorithm.startswith("arena.cli.") else policy.algorithm,
            frozen=policy.frozen,
            remark="" if name in playing else "in evaluations alone" if name in evaluated else "has no seat",
            workers=workers[name],
            episodes=len(returns),
            updates=updates[name],
            samples=newest[name].samples if name in newest else 0,
            first_return=float(finite[:size].mean()) if len(finite) else None,
            last_return=float(finite[-size:].mean()) if len(finite) else None,
            wins=won,
            draws=drawn,
            losses=lost,
        )

    return [row(name, policy) for name, policy in files.config.policies.items()]


def timing(profile: ProfileFile | None) -> Timing | None:
    """The time that a profile shows; None without one."""
    if profile is None or not profile.roles:
        return None
    kinds: dict[str, list[ProfiledRole]] = {}
    ranks: dict[int, list[ProfiledRole]] = {}
    for role in profile.roles:
        kinds.setdefault(f"{role.role} {role.policy}" if role.policy else role.role, []).append(role)
        ranks.setdefault(role.rank, []).append(role)
    found = {activity for role in profile.roles for activity in role.seconds}
    return Timing(
        activities={name: color for name, color in _ACTIVITIES.items() if name in found}
        | dict.fromkeys(sorted(found - _ACTIVITIES.keys()), "#c3c9d0"),
        kinds=[_spent(name, roles) for name, roles in kinds.items()],
        ranks=[_spent(str(rank), roles) for rank, roles in sorted(ranks.items())],
    )


def _spent(name: str, roles: Sequence[ProfiledRole]) -> RoleTime:
    seconds: Counter[str] = Counter()
    for role in roles:
        seconds.update(role.seconds)
    return RoleTime(name, len(roles), sum(role.wall for role in roles), sum(role.cpu for role in roles), dict(seconds))


def plan_cards(plan: PlanFile) -> PlanCards:
    """The cards of a plan."""
    roles = [(rank.rank, role) for rank in plan.ranks for role in rank.roles]
    hosts = {(role.match, role.policy, role.entities): rank for rank, role in roles}  # of an environment without policy
    cards = []
    for match in plan.matches[:MOST_CARDS]:
        places = [(None, ()), *((seat.policy, seat.entities) for seat in match.seats)]
        ranks = [hosts.get((match.match, *place)) for place in places]
        cards.append(MatchCard(match.match, match.env, match.lanes, [*match.players], ranks))
    return PlanCards(
        roles=len(roles),
        root=next((rank for rank, role in roles if role.role == "root"), 0),
        cards=cards,
        idle=sum(not rank.roles for rank in plan.ranks),
    )
