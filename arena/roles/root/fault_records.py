"""Records and reports the games that were made again after an error."""

from __future__ import annotations

import logging

from arena.errors import pluralize
from arena.records.faults import FaultKind, FaultLog
from arena.records.folder import RunFolder
from arena.roles.protocol import Restarted

_log = logging.getLogger(__name__)


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
