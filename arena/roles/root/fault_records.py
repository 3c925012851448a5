"""Records and reports the faults that a run survived: deaths of processes, recreated games."""

from __future__ import annotations

import logging
import time

from arena.errors import pluralize, shorten
from arena.plan.build import on_ranks
from arena.records.faults import FaultKind, FaultLog
from arena.records.folder import RunFolder
from arena.roles.protocol import Restarted
from arena.run.restart import Restart
from arena.run.run import Run

_log = logging.getLogger(__name__)


def log_death(run: Run, restart: Restart) -> str:
    """Appends the death after which a run was started again to the fault log; returns a line for the user.

    Raises:
        WriteError: the fault log cannot be written.
    """
    hosted = on_ranks(run.plan, restart.processes).ranks
    roles = [run.describe(role) for rank in restart.ranks for role in hosted[rank]]
    who = f"{restart.cause} ({shorten(roles)})" if roles else restart.cause
    text = f"{who}; started again with {pluralize(run.plan.processes, 'process', 'processes')}"
    text += f", back to tick {run.leg.start}, {pluralize(restart.replayed, 'tick')} to be played again"
    seconds = round(max(0.0, time.time() - restart.died), 3)
    _log.warning("%s", text)
    fields = {"ranks": restart.ranks, "done": text, "replayed": restart.replayed, "seconds": seconds}
    FaultLog(run.folder.faults).append(FaultKind.PROCESS, fields)
    return f"{text}; {seconds:.2f} s lost"


def log_restart(folder: RunFolder, restarted: Restarted) -> str:
    """Appends the restart of a game to the fault log; returns a line for the user.

    Raises:
        WriteError: the fault log cannot be written.
    """
    match, tick, error = restarted.match, restarted.tick, restarted.error
    _log.error("match %d, tick %d: the game has failed and was made anew\n%s", match, tick, restarted.trace)
    fields = {"match": match, "tick": tick, "lanes": restarted.lanes, "error": error}
    FaultLog(folder.faults).append(FaultKind.ENVIRONMENT, {**fields, "seconds": round(restarted.seconds, 3)})
    dropped = pluralize(len(restarted.lanes), "unfinished episode")
    return f"match {match}, tick {tick}: the game was made anew, {dropped} dropped: {error}"
