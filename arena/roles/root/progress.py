"""What the root records and shows: ticks and episodes, updates, restarts of games, external games."""

from __future__ import annotations

import logging
import os

import msgspec

from arena.errors import pluralize
from arena.plan.plan import Plan, Role, RoleKind
from arena.preflight.external import EXTERNAL_GAMES_TEXT
from arena.records import checksums
from arena.records.faults import FaultKind, log_fault
from arena.records.folder import RunFolder
from arena.records.formats import ExternalPlace, read_document
from arena.records.metrics import UpdateRecord
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Progress, Restarted
from arena.roles.run import Run

_log = logging.getLogger(__name__)


class RunProgress:
    """Records progress in the run folder and the scoreboard, and keeps the current counts.

    Attributes:
        ticks: per match, the tick that it has reached.
        done: ticks of all matches together, including earlier rounds.
        updates: per policy that has any, the number of updates.
        seconds: per policy that has updates, the `seconds` of the last update.
    """

    def __init__(self, run: Run, recorder: Recorder, scoreboard: Scoreboard) -> None:
        self._run, self._scoreboard = run, scoreboard
        self.recorder = recorder
        self.ticks = {match.match: run.leg.start for match in run.plan.matches}
        start = run.plan.start if run.episodes is None else 0
        self.done = run.ticks_before + len(self.ticks) * (run.leg.start - start)
        self.updates, self.seconds = dict(run.leg.updates), dict(run.leg.seconds)

    def advance(self, report: Progress) -> None:
        """Records the ticks and episodes that the environments of a rank report."""
        self.done += sum(report.ticks.values()) - sum(map(self.ticks.__getitem__, report.ticks))
        self.ticks.update(report.ticks)
        found = self.recorder.episodes(report.rank, report.reached, report.episodes, report.logged, last=report.last)
        self._scoreboard.add(found)

    def end_leg(self, tick: int) -> None:
        """Records that all matches end at a tick, also a match whose workers have all left."""
        for rank in self._run.plan.environment_ranks:
            matches = (role.match for role in self._run.plan.ranks[rank] if role.kind is RoleKind.ENVIRONMENT)
            self.advance(Progress(rank, {match: tick for match in matches if match is not None}, tick, (), {}))

    def update(self, record: UpdateRecord) -> None:
        """Records an update of a policy."""
        self.recorder.update(record)
        self._scoreboard.update(record)
        # Where a group's root has left, its last update may arrive after the first one of its successor.
        if record.update > self.updates.get(record.policy, 0):
            self.updates[record.policy] = record.update
            self.seconds[record.policy] = record.seconds


def log_restart(folder: RunFolder, restarted: Restarted, plan: Plan) -> str:
    """Appends the restart of a game to the fault log; returns a line for the user.

    Raises:
        WriteError: the fault log cannot be written.
    """
    match, tick, error = restarted.match, restarted.tick, restarted.error
    _log.error("match %d, tick %d: the game has failed and was made again\n%s", match, tick, restarted.trace)
    rank = plan.rank_of(Role(RoleKind.ENVIRONMENT, match))
    hosts = [plan.hosts[rank] if plan.hosts else os.uname().nodename]
    fields = {"match": match, "hosts": hosts, "tick": tick, "lanes": restarted.lanes, "error": error}
    log_fault(folder.faults, FaultKind.ENVIRONMENT, {**fields, "seconds": round(restarted.seconds, 3)})
    dropped = pluralize(len(restarted.lanes), "unfinished episode")
    place = f", {plan.place(rank)}" if plan.hosts else ""
    return f"match {match}, tick {tick}{place}: the game was made again, {dropped} dropped: {error}"


def record_place(folder: RunFolder, place: ExternalPlace) -> list[str]:
    """Writes a match's entry of `external.json`, in place of an earlier one; returns lines for the user."""
    known: dict[int, ExternalPlace] = {}
    if folder.external.exists():
        known = {entry.match: entry for entry in read_document(folder.external, list[ExternalPlace])}
    places = {**known, place.match: place}
    content = msgspec.json.encode([places[match] for match in sorted(places)])
    checksums.replace(folder.external, msgspec.json.format(content) + b"\n")
    lines = [] if place.match in known else [f"games of match {place.match} {EXTERNAL_GAMES_TEXT}"]
    if place.address:
        what = "simulators" if place.kind == "shared_memory" else f"listening {place.kind}"
        lines.append(f"match {place.match}: {what} {place.address}")
        if place.kind == "http":
            lines.append(f"match {place.match}: waits for games")
    return lines
