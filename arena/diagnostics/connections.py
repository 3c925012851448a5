"""Whether a process is cut off from other hosts, as far as the system sees it.

TCP sends unacknowledged data again and again, for 15 minutes on Linux, before the process is told of a cut link or of a
host without power. Imports no NumPy: the watchdog process uses this module too.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"
_RETRANSMITS = "01"  # the timer that runs: data has been sent and is not acknowledged
_MOST_ATTEMPTS = 6  # the pauses double, from 0.2 s on a local network: measured 7 to 16 s after a cut


def cut_off_from(pid: int) -> str | None:
    """The address at the other end of a TCP connection of a process which acknowledges nothing; None if unknown.

    A process at the other end that is stopped is no cut: its system acknowledges.

    Source: Documentation/networking/proc_net_tcp.rst of Linux.
    """
    sockets = set()
    with suppress(OSError):  # the process has ended, is another user's, or this system has no `/proc`
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                sockets.add(os.readlink(entry))
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, _, remote, state, _, timer, attempts, _, _, inode, *_ = line.split()
                resent = timer.partition(":")[0] == _RETRANSMITS and int(attempts, 16) >= _MOST_ATTEMPTS
                if state == _ESTABLISHED and resent and f"socket:[{inode}]" in sockets:
                    parts = re.findall("[0-9A-F]{8}", remote.partition(":")[0])  # of 32 bits, in this machine's order
                    return socket.inet_ntop(family, b"".join(struct.pack("=I", int(part, 16)) for part in parts))
    return None
