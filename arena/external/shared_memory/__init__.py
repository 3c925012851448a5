"""External simulators, connected by a shared file in which both sides take turns.

layout        the bytes of the file: `decode`, and every check
link_file     the file of a link, used by either side: takes and gives the turn, changes the file
driver        the trainer's side: `Driver`
simulator     the other side: `Simulator`
files         private folders and files
program       a simulator's process
keeper        a process that cleans up when this one is killed
games         `SharedMemoryGames`: the simulators of a match; `settings`, its arguments
lives         the lives of agents, as games in slots
"""

from arena.errors import (
    ActionError,
    LayoutError,
    LinkError,
    NoRoom,
    PeerClosed,
    PeerGone,
    PeerSilent,
    UnsafeFile,
    VersionError,
)
from arena.external.shared_memory.driver import Driver
from arena.external.shared_memory.layout import (
    Command,
    GroupSpec,
    Rows,
    decode,
    join_messages,
    split_messages,
)
from arena.external.shared_memory.simulator import Simulator

__all__ = [
    "ActionError",
    "Command",
    "Driver",
    "GroupSpec",
    "LayoutError",
    "LinkError",
    "NoRoom",
    "PeerClosed",
    "PeerGone",
    "PeerSilent",
    "Rows",
    "Simulator",
    "UnsafeFile",
    "VersionError",
    "decode",
    "join_messages",
    "split_messages",
]
