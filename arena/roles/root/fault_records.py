"""Records and reports the faults that a run survived: dead processes, recreated games."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

from arena.errors import pluralize, shorten
from arena.records.faults import FaultKind, FaultLog, process_faults
from arena.records.folder import RunFolder
from arena.roles.protocol import Restarted
from arena.run.run import Repair, Run

_log = logging.getLogger(__name__)


def log_repairs(run: Run) -> Iterator[str]:
    """Appends the run's unrecorded repairs to the fault log; yields one line for the user per repair.

    Raises:
        WriteError: the fault log cannot be written.
    """
    if not run.repairs:
        return
    for repair in run.repairs[process_faults(run.folder.faults) - run.faults_before :]:
        text = format_repair(replace(run, plan=repair.plan), repair)
        seconds = time.monotonic() - repair.began
        _log.warning("%s", text)
        fields = {"ranks": repair.died, "done": text, "replayed": repair.replayed, "seconds": round(seconds, 3)}
        FaultLog(run.folder.faults).append(FaultKind.PROCESS, fields)
        yield f"{text}; repaired in {seconds:.2f} s"


def format_repair(run: Run, repair: Repair) -> str:
    """One sentence: which ranks died and how the run was repaired. `run` is the run as it was before the repair."""
    dead = [f"rank {rank} ({shorten([*map(run.describe, run.plan.ranks[rank])]) or 'idle'})" for rank in repair.died]
    where = f"rank{'s' * (len(repair.homes) > 1)} {', '.join(map(str, repair.homes))}"
    living = run.plan.processes - len(repair.died)
    text = f"{shorten(dead)} died; {pluralize(living, 'process goes on', 'processes go on')}, numbered anew"
    if repair.homes:
        text += f"; what {'it' if len(dead) == 1 else 'they'} did is now on {where}"
    return f"{text}; back to tick {repair.leg}, {pluralize(repair.replayed, 'tick')} to be played again"


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
