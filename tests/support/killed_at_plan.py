"""A module for `imports`: the root is killed, once, between planning the third round and telling the other ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from arena.roles.run import Run
from arena.roles.state import RunState
from arena.run import rounds

next_round, died = rounds.next_round, Path("died")


def plan_and_die(run: Run, memory: RunState) -> Run | None:
    following = next_round(run, memory)
    if run.plan.round == 1 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return following


rounds.next_round = plan_and_die
