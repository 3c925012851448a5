"""External simulators, joined by a file that both sides share and take turns in.

layout        the bytes of the file: `decode`, `encode`, and every check
link_file     a file as one side uses it: takes and gives the turn, changes the file
driver        the trainer's side: `Driver`
simulator     the other side: `Simulator`
files         private folders and files
program       a simulator's process
keeper        a process that cleans up when this one is killed
lives         agents that come and go, as games in slots
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
    FileImage,
    GroupImage,
    GroupSpec,
    Rows,
    decode,
    encode,
    join_messages,
    split_messages,
)
from arena.external.shared_memory.simulator import Simulator

__all__ = [
    "ActionError",
    "Command",
    "Driver",
    "FileImage",
    "GroupImage",
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
    "encode",
    "join_messages",
    "split_messages",
]
