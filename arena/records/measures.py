"""`measures.jsonl`: what callbacks have measured, a line per episode or update that was measured."""

from __future__ import annotations

import os

from arena.records.atomic import writing
from arena.records.folder import RunFolder
from arena.records.formats import MeasureLine
from arena.records.journal import JournalReader


def forget_after(folder: RunFolder, tick: int) -> None:
    """Removes the lines after the boundary from which the run continues.

    They are cut by their ticks, as `on_checkpoint` may measure when the boundary is on the disk already.
    """
    if not folder.measures.exists():
        return
    journal, end = JournalReader(folder.measures), 0
    for line in journal.lines(MeasureLine):
        if line.tick > tick:
            break
        end = journal.position
    with writing(folder.measures):
        os.truncate(folder.measures, end)
