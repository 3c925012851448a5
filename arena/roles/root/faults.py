"""What has failed and was mended, as the root puts it on record and tells it: processes that died, games made anew."""

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
    """Writes down the repairs of a run that are not on record yet, and says each in a line.

    Raises:
        Unwritable: the file of faults cannot be written.
    """
    if not run.repairs:
        return
    for repair in run.repairs[process_faults(run.folder.faults) - run.faults_before :]:
        words = repair_words(replace(run, plan=repair.plan), repair)
        seconds = time.monotonic() - repair.began
        _log.warning("%s", words)
        fields = {"ranks": repair.died, "done": words, "replayed": repair.replayed, "seconds": round(seconds, 3)}
        FaultLog(run.folder.faults).append(FaultKind.PROCESS, fields)
        yield f"{words}; repaired in {seconds:.2f} s"


def repair_words(run: Run, repair: Repair) -> str:
    """What has happened and what was done, in a sentence; the run as it was played when it happened."""
    dead = [f"rank {rank} ({shorten([*map(run.describe, run.plan.ranks[rank])]) or 'idle'})" for rank in repair.died]
    where = f"rank{'s' * (len(repair.homes) > 1)} {', '.join(map(str, repair.homes))}"
    living = run.plan.processes - len(repair.died)
    words = f"{shorten(dead)} died; {pluralize(living, 'process goes on', 'processes go on')}, numbered anew"
    if repair.homes:
        words += f"; what {'it' if len(dead) == 1 else 'they'} did is now on {where}"
    return f"{words}; back to tick {repair.leg}, {pluralize(repair.replayed, 'tick')} to be played again"


def note_restart(folder: RunFolder, restarted: Restarted) -> str:
    """Writes down that a game was made anew, and says it in a line.

    Raises:
        Unwritable: as `log_repairs`.
    """
    match, tick, error = restarted.match, restarted.tick, restarted.error
    _log.error("match %d, tick %d: the game has failed and was made anew\n%s", match, tick, restarted.trace)
    fields = {"match": match, "tick": tick, "lanes": restarted.lanes, "error": error}
    FaultLog(folder.faults).append(FaultKind.ENVIRONMENT, {**fields, "seconds": round(restarted.seconds, 3)})
    dropped = pluralize(len(restarted.lanes), "unfinished episode")
    return f"match {match}, tick {tick}: the game was made anew, {dropped} dropped: {error}"
