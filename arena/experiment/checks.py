"""Checks trials as `arena train` does before it starts: plans, games and algorithms, in a process of its own.

Algorithms import torch, which the process that drives an experiment does not. So `checking` starts this module:
configurations go in as JSON, the first mistake comes out.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from arena.config.fields import plain
from arena.diagnostics.start_folder import anchored, started_here
from arena.errors import ConfigError
from arena.run.bound_process import bound

if TYPE_CHECKING:
    from arena.config import Config

_LIMIT_SECONDS = 300.0  # for the check of one configuration
_MOST_LINES = 20  # of the end of the check's output


class Mistake(NamedTuple):
    """The first mistake in a list of configurations: which one has it, and the parts of the error."""

    number: int
    message: str
    path: str
    source: str


FirstMistake = Callable[[Sequence["Config"]], Mistake | None]


@contextmanager
def checking(*, limit: float = _LIMIT_SECONDS) -> Iterator[FirstMistake]:
    """Starts a process that checks configurations with their games and algorithms, and ends it.

    Its imports take as long as the reading of an experiment, so it is started before the configurations are known.

    Args:
        limit: seconds for each configuration; its own timeout of a call, if that is longer.

    Yields:
        a function that takes the configurations of trials, once, and returns the first mistake in them; None if all are
        fine. It raises ConfigError if the check itself has failed, as for a game that ends its process or hangs, with
        its last lines, or where it hangs.
    """

    def first_mistake(configs: Sequence[Config]) -> Mistake | None:
        process.communicate(json.dumps(plain(configs)).encode())  # msgspec has no infinity
        output.seek(0)
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        try:
            found: Mistake | None = msgspec.json.decode(output.read().rpartition(b"\0")[2], type=Mistake | None)
            return found
        except msgspec.DecodeError as error:
            late = [line for line in lines if line.startswith("Timeout (")]
            threads = [number for number, line in enumerate(lines) if line.startswith("Thread 0x")]  # the main one last
            shown = [late[-1], *lines[threads[-1] :]][:_MOST_LINES] if late and threads else lines[-_MOST_LINES:]
            text = "\n".join([f"games and algorithms cannot be tried (exit {process.returncode})", *shown])
            raise ConfigError(text) from error

    with (
        tempfile.TemporaryFile() as output,  # not a pipe, which a process that a game has started may hold open
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            bound([sys.executable, "-m", "arena.experiment.checks", str(limit)]),
            cwd=anchored("."),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env={"OMP_NUM_THREADS": "1", **os.environ},  # as of trials; networks are made eight times as fast
            start_new_session=True,  # so that such processes are ended with it
        ) as process,
    ):
        try:
            yield first_mistake
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _checked(limit: float) -> Mistake | None:
    from arena.config import parse_config
    from arena.game.api import Interface
    from arena.preflight.examine import examine
    from arena.preflight.later_seats import later_plans
    from arena.preflight.outcomes import require_rules
    from arena.run.planning import checked_plan

    known: dict[str, Interface] = {}
    for number, data in enumerate(json.load(sys.stdin)):
        try:
            config = parse_config(data, source="")
            seconds = max(limit, config.env_timeout_s or config.watchdog_s)
            faulthandler.dump_traceback_later(seconds, exit=True, file=2)
            plan, later = checked_plan(config, ranks=1), later_plans(config)
            examine(plan, later=later, known=known)
            require_rules(config, plan, *later)
        except ConfigError as error:
            return Mistake(number, error.message, error.path, error.source)
    return None


if __name__ == "__main__":
    with started_here():
        found = _checked(float(sys.argv[1]))
    sys.stdout.write("\0")  # ends what games have printed before
    sys.stdout.write(msgspec.json.encode(found).decode())
    sys.stdout.flush()
    os._exit(0)  # otherwise games could print after it when they end
