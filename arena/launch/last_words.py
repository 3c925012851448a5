"""Says why the process at the other end of a pipe has ended itself; nothing if it ends without a word.

Of stdin the first line is JSON: the lines to begin with, the names of the roles by the numbers of their threads, and
the line to end with. Whatever follows are stacks that `faulthandler` has written.
"""

from __future__ import annotations

import json
import os
import select
import sys

from arena.stacks import last_words

_QUIET_SECONDS = 0.3  # a child of a game may hold the other end open, so its end is not waited for


def main() -> None:
    """Waits for the end of the pipe, and speaks on stderr."""
    head, _, dump = _heard(0).partition(b"\n")
    if dump:
        heading, names, ending = json.loads(head)
        words = last_words(heading, dump.decode(errors="replace"), {int(key): name for key, name in names.items()})
        sys.stderr.write(f"{words}\n{ending}\n")


def _heard(source: int) -> bytes:
    said = b""
    while True:
        spoken = said.partition(b"\n")[2]
        if spoken and not select.select([source], [], [], _QUIET_SECONDS)[0]:
            return said
        part = os.read(source, 65536)
        if not part:
            return said
        said += part
