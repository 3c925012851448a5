"""Whether a process is cut off from other hosts, as far as the system sees it.

TCP sends unacknowledged data again and again, for 15 minutes on Linux, before the process is told of a cut link or of a
host without power. Imports no NumPy: the watchdog process uses this module too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"
_RETRANSMITS = "01"  # the timer that runs: data has been sent and is not acknowledged
_MOST_ATTEMPTS = 6  # the pauses double, from 0.2 s on a local network: measured 7 to 16 s after a cut


def is_cut_off(pid: int) -> bool:
    """Whether the other end of a TCP connection of a process acknowledges nothing; False if unknown.

    A process at the other end that is stopped is no cut: its system acknowledges.

    Source: Documentation/networking/proc_net_tcp.rst of Linux.
    """
    sockets = set()
    with suppress(OSError):  # the process has ended, is another user's, or this system has no `/proc`
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                sockets.add(os.readlink(entry))
    for family in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
                _, _, _, state, _, timer, attempts, _, _, inode, *_ = line.split()
                resent = timer.partition(":")[0] == _RETRANSMITS and int(attempts, 16) >= _MOST_ATTEMPTS
                if state == _ESTABLISHED and resent and f"socket:[{inode}]" in sockets:
                    return True
    return False
