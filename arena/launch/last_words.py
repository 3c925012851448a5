"""Says why the process at the other end of a pipe has ended itself; nothing if it ends without a word.

On stdin come lines of JSON: what to say first and last, then the names of the roles by the numbers of their threads.
Whatever follows are stacks that `faulthandler` has written.
"""

from __future__ import annotations

import json
import os
import select
import sys

from arena.stacks import last_words

_QUIET_SECONDS = 2.0  # a child of a game may hold the other end open, so its end is not waited for


def main() -> None:
    """Waits for the end of the pipe, and speaks on stderr."""
    told, dump = parted(_heard(0).decode(errors="replace"))
    if dump:
        heading, ending = told.pop("heading"), told.pop("ending")
        words = last_words(heading, dump, {int(thread): name for thread, name in told.items()})
        sys.stderr.write(f"{words}\n{ending}\n")


def parted(said: str) -> tuple[dict[str, str], str]:
    """What was told in JSON, and the rest."""
    told: dict[str, str] = {}
    while said.startswith("{"):
        line, _, said = said.partition("\n")
        told.update(json.loads(line))
    return told, said


def _heard(source: int) -> bytes:
    said = b""
    while True:
        if b"\nT" in said and not select.select([source], [], [], _QUIET_SECONDS)[0]:  # a thread, or that time is over
            return said
        part = os.read(source, 65536)
        if not part:
            return said
        said += part
