"""The command line, with some ranks simulated on another node, without doorbells and shared memory."""

from __future__ import annotations

import os
import sys

from arena.cli.main import main
from arena.transport import doorbell

here = doorbell.this_node()
elsewhere = os.environ["RANKS_ELSEWHERE"].split(",")
rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", ""))
doorbell.this_node = lambda: f"{here} and another" if rank in elsewhere else here

if __name__ == "__main__":
    sys.exit(main())
