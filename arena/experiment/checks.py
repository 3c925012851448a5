"""Checks trials as `arena train` does before it starts: plans, games and algorithms, in a process of its own.

Algorithms import torch, which the process that drives an experiment does not. So `refuse_mistakes` starts this module:
configurations go in as JSON, the first mistake comes out.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from arena.config import Config, parse_config
from arena.errors import ConfigError
from arena.launch.mpirun import die_with_parent

_LIMIT_SECONDS = 300.0  # for the check of one configuration, the first imports included
_MOST_LINES = 20  # of what the check has said at its end


class Mistake(msgspec.Struct):
    """The first mistake in a list of configurations: which one has it, and the parts of the error."""

    number: int
    message: str
    path: str
    source: str


def first_mistake(configs: Sequence[Config], *, limit: float = _LIMIT_SECONDS) -> Mistake | None:
    """Holds configurations against their games and algorithms, in another process; None if all are fine.

    Args:
        configs: of trials.
        limit: seconds for each, or as long as a run of it lets a call take, if that is longer.

    Raises:
        ConfigError: the check itself has failed, as for a game that ends its process or hangs; with its last lines, or
            where it hangs.
    """
    done = subprocess.run(
        [sys.executable, "-m", "arena.experiment.checks", str(limit)],
        input=json.dumps(msgspec.to_builtins(list(configs))).encode(),  # not of msgspec, which has no infinity
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as trials have it; networks are made eight times as fast
        preexec_fn=die_with_parent,
    )
    try:
        return msgspec.json.decode(done.stdout.rpartition(b"\0")[2], type=Mistake | None)
    except msgspec.DecodeError as error:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        hung = [number for number, line in enumerate(lines) if line.startswith("Timeout (")]  # the newest call is first
        told = lines[hung[-1] :][:_MOST_LINES] if hung else lines[-_MOST_LINES:]
        raise ConfigError(
            f"the games of the run cannot be tried (exit {done.returncode})\n" + "\n".join(told)
        ) from error


def _checked(configs: Sequence[Any], limit: float) -> Mistake | None:
    from arena.game.api import Interface
    from arena.preflight.examine import examine
    from arena.run.later_seats import later_plans
    from arena.run.planning import checked_plan

    known: dict[str, Interface] = {}
    for number, data in enumerate(configs):
        try:
            config = parse_config(data, source="")
            seconds = max(limit, config.env_timeout_s or config.watchdog_s)
            faulthandler.dump_traceback_later(seconds, exit=True, file=2)
            examine(checked_plan(config, ranks=1), later=later_plans(config), known=known)
        except ConfigError as error:
            return Mistake(number, error.message, error.path, error.source)
    return None


if __name__ == "__main__":
    found = _checked(json.load(sys.stdin), float(sys.argv[1]))
    sys.stdout.write("\0")  # before it stands what games have printed
    sys.stdout.write(msgspec.json.encode(found).decode())
    sys.stdout.flush()
    os._exit(0)  # what games print at their ends would stand behind it
