"""Checks trials as `arena train` does before it starts: plans, games and algorithms, in a process of its own.

Algorithms import torch, which the process that drives an experiment does not. So `refuse_mistakes` starts this module:
configurations go in as JSON, the first mistake comes out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from arena.config import Config, parse_config
from arena.errors import ConfigError


class Mistake(msgspec.Struct):
    """The first mistake in a list of configurations: which one has it, and the parts of the error."""

    number: int
    message: str
    path: str
    source: str


def first_mistake(configs: Sequence[Config]) -> Mistake | None:
    """Holds configurations against their games and algorithms, in another process; None if all are fine.

    Raises:
        ConfigError: the check itself has failed, as for a game that ends its process; with its last lines.
    """
    done = subprocess.run(
        [sys.executable, "-m", "arena.experiment.checks"],
        input=json.dumps(msgspec.to_builtins(list(configs))).encode(),  # not of msgspec, which has no infinity
        capture_output=True,
        check=False,
    )
    try:
        return msgspec.json.decode(done.stdout.rpartition(b"\0")[2], type=Mistake | None)
    except msgspec.DecodeError as error:
        told = done.stderr.decode(errors="replace").strip().splitlines()[-20:]
        raise ConfigError(
            f"the games of the run cannot be tried (exit {done.returncode})\n" + "\n".join(told)
        ) from error


def _checked(configs: Sequence[Any]) -> Mistake | None:
    from arena.game.api import Interface
    from arena.preflight.examine import examine
    from arena.run.later_seats import later_plans
    from arena.run.planning import checked_plan

    known: dict[str, Interface] = {}
    for number, data in enumerate(configs):
        try:
            config = parse_config(data, source="")
            examine(checked_plan(config, ranks=1), later=later_plans(config), known=known)
        except ConfigError as error:
            return Mistake(number, error.message, error.path, error.source)
    return None


if __name__ == "__main__":
    found = _checked(json.load(sys.stdin))
    sys.stdout.write("\0")  # before it stands what games have printed
    sys.stdout.write(msgspec.json.encode(found).decode())
    sys.stdout.flush()
    os._exit(0)  # what games print at their ends would stand behind it
