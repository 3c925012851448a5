"""The summary of a run: when, how long, by how many processes, and the results of each policy in short."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timezone

import msgspec
import numpy as np

from arena.config.members import players
from arena.league.rounds_file import ticks_before
from arena.records.metrics import UpdateRecord
from arena.records.scoreboard import WINDOW
from arena.report.colors import Colors
from arena.report.episodes import Floats
from arena.report.read_run import RunFiles
from arena.roles.status import RunStatus, planned_ticks, run_status


class Summary(msgspec.Struct, frozen=True):
    """The run in numbers.

    Args:
        state: its `RunStatus`.
        read: when the journals were read, ISO 8601, UTC; None if no process wrote any more, so that a page made again
            is the same page.
        began: when the run was started, or resumed for the last time; `ended`: when something was written last.
        seconds: between the two; or those of an update, which count on when a run is resumed, if they are more.
        ticks: that every match has played; `ticks_planned` of all rounds together, None where the number of episodes
            decides, as in a tournament.
        match_ticks: of all matches of all rounds together; `match_ticks_planned` of those in the end, if later rounds
            have as many matches as the newest.
        episodes: that are results; `cut`: those that the end of a leg has cut.
        samples: of all policies together, as their last updates say.
        unfinished: incomplete last lines of journals, which were skipped.
    """

    name: str
    state: str
    read: str | None
    began: str
    ended: str
    seconds: float
    seed: int
    ticks: int
    ticks_planned: int | None
    match_ticks: int
    match_ticks_planned: int | None
    rounds: int
    rounds_planned: int
    processes: int
    matches: int
    policies: int
    episodes: int
    cut: int
    updates: int
    samples: int
    faults: int
    unfinished: int


class PolicyRow(msgspec.Struct, frozen=True):
    """A configured policy.

    Args:
        trains: whether it may play in the matches; else evaluations alone have a seat for it.
        first_return: the mean of its first 100 episodes (of the first half, if it has fewer than 200); `last_return`
            likewise of its last ones; None without an episode.
        wins: shares of games, as a policy on both sides wins half of one; draws and losses likewise. None where no game
            had a winner or was drawn.
    """

    name: str
    color: str
    algorithm: str
    frozen: bool
    trains: bool
    workers: int
    episodes: int
    updates: int
    samples: int
    first_return: float | None
    last_return: float | None
    wins: float | None
    draws: float | None
    losses: float | None


def summarize(files: RunFiles) -> Summary:
    """The summary of a run."""
    config, episodes, newest = files.config, files.episodes, _newest(files)
    ticks, planned = ticks_played(files), planned_ticks(files.config)
    began = files.folder.config.stat().st_mtime
    ended = max(began, files.journals.written)
    if files.journals.going:
        state = RunStatus.UNDER_WAY
    else:
        state = run_status(files.folder, files.config, played=ticks_played(files))
    return Summary(
        name=config.name,
        state=state.value,
        read=files.journals.at.isoformat(timespec="seconds") if files.journals.going else None,
        began=_iso(began),
        ended=_iso(ended),
        seconds=max([ended - began, *(update.seconds for update in newest.values())]),
        seed=config.seed,
        ticks=ticks,
        ticks_planned=planned,
        match_ticks=_match_ticks(files, ticks),
        match_ticks_planned=None if planned is None else _match_ticks(files, planned),
        rounds=max(1, len(files.rounds)),
        rounds_planned=config.rounds,
        processes=files.plan.processes,
        matches=len(files.plan.matches),
        policies=len(config.policies),
        episodes=episodes.results,
        cut=int(np.count_nonzero(episodes.cut)),
        updates=len(files.updates),
        samples=sum(update.samples for update in newest.values()),
        faults=len(files.faults),
        unfinished=sum(source.unfinished for source in files.sources),
    )


def _match_ticks(files: RunFiles, tick: int) -> int:
    """The ticks of all matches together, when those of the newest round have come to a tick."""
    if not files.rounds:
        return tick * len(files.plan.matches)
    starts, matches = [line.start for line in files.rounds], [len(line.matches) for line in files.rounds]
    return ticks_before(starts, matches) + matches[-1] * max(0, tick - starts[-1])


def ticks_played(files: RunFiles) -> int:
    """How far the run has come: its newest boundary, or what was recorded after it."""
    last_episode = int(files.episodes.tick.max()) if len(files.episodes.tick) else 0
    return max(files.boundary or 0, last_episode, max((update.ticks for update in files.updates), default=0))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _newest(files: RunFiles) -> dict[str, UpdateRecord]:
    return {update.policy: update for update in files.updates}


def policy_rows(files: RunFiles, colors: Colors) -> list[PolicyRow]:
    """A row for each configured policy, in the order of the configuration."""
    counts: defaultdict[str, int] = defaultdict(int)
    for match in files.plan.matches:
        for seat in match.seats:
            counts[seat.policy] += 1
    newest, workers, updates = _newest(files), counts, Counter(update.policy for update in files.updates)
    rows, playing = [], players(files.config)
    for name, policy in files.config.policies.items():
        returns, shares = _fared(files, name)
        first, last = _first_and_last(returns)
        won, drawn, lost = shares.sum(axis=0).tolist() if len(shares) else (None, None, None)
        row = PolicyRow(
            name=name,
            color=colors[name],
            algorithm=policy.algorithm,
            frozen=policy.frozen,
            trains=name in playing,
            workers=workers[name],
            episodes=len(returns),
            updates=updates[name],
            samples=newest[name].samples if name in newest else 0,
            first_return=first,
            last_return=last,
            wins=won,
            draws=drawn,
            losses=lost,
        )
        rows.append(row)
    return rows


def _fared(files: RunFiles, policy: str) -> tuple[Floats, Floats]:
    """Its returns [N], and its shares of the decided games [M, 3]."""
    names, appearances = files.episodes.policies, files.episodes.appearances
    if policy not in names:
        return np.empty(0), np.empty((0, 3))
    mine = appearances.of(names.index(policy))
    return mine.returns, mine.shares[mine.decided]


def _first_and_last(returns: Floats) -> tuple[float | None, float | None]:
    finite = returns[np.isfinite(returns)]
    if not len(finite):
        return None, None
    size = max(1, min(WINDOW, len(finite) // 2))
    return float(finite[:size].mean()), float(finite[-size:].mean())
