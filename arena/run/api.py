"""Training and planning as functions, which do what the commands do, print nothing and return data.

    result = arena.train("duel.yaml", ranks=1)
    result.scores["blue"].last_return

With one process everything runs in the calling process, and no watchdog ends a game that hangs. With several processes
a launcher is started, as by the command; rank 0 discards what its games and algorithms print, other ranks log it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.config import Config, load_config, resolved_yaml
from arena.config.named import refuse_main
from arena.diagnostics.start_folder import anchored, check_path, started_here
from arena.errors import MISTAKE, ConfigError, RunFailed, in_python
from arena.league.sources import AnyConfig, Source
from arena.opened import Table
from arena.plan.build import on_hosts
from arena.plan.hosts import allocated, parse_hosts, shares
from arena.plan.plan import Plan, RoleKind
from arena.plan.process_count import RankCount, process_count
from arena.preflight.examine import Preflight, examine
from arena.preflight.later_seats import later_plans
from arena.preflight.outcomes import require_rules
from arena.records.boundary import newest_tick
from arena.records.folder import RunFolder
from arena.records.result_file import read_results
from arena.roles.process import threads_before
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.roles.state import Display
from arena.roles.status import RunStatus, run_status
from arena.roles.stop import restored_handlers
from arena.run import mpirun
from arena.run.console import Event, EventDisplay, Output, PolicyScore, policy_score
from arena.run.lead import scored
from arena.run.loop import run_single_process
from arena.run.planning import checked_plan
from arena.run.prepare import prepare

_log = logging.getLogger(__name__)
_IN_PROCESS = threading.RLock()  # held by the thread whose run is in this process
_WAIT_SECONDS = 5.0  # for another thread that looks at a plan or computes an action


class RunResult(NamedTuple):
    """The result of a run.

    Args:
        run_dir: the run folder.
        finished: whether the run has come to its end, by its ticks or a stop rule; false after a signal or the `stop()`
            of a callback.
        ticks: played by each match, as far as they are saved.
        scores: the result of each policy.
        stopped_by: what has ended it before its last tick: the stop rule that was met, as in `result.json`,
            `callback`, or the name of a signal, such as `SIGINT`; None: nothing, or the order of a league is decided.
    """

    run_dir: Path
    finished: bool
    ticks: int
    scores: Mapping[str, PolicyScore]
    stopped_by: str | None


@in_python()
@started_here()
def train(
    config: AnyConfig,
    run_dir: Path | str | None = None,
    ranks: RankCount | None = None,
    on_event: Callable[[Event], None] | None = None,
    *,
    hosts: str | None = None,
    resume: bool = False,
) -> RunResult:
    """Runs a configuration to its end.

    The first SIGINT or SIGTERM saves the run and ends it early, if the caller is the main thread: it logs a warning and
    returns with `finished` false and the signal in `stopped_by`. A loop over runs has to look at it.

    Args:
        config: a YAML file, its contents, the same as `arena.Config`, or a run folder, whose configuration runs again.
        run_dir: the run folder; None: `runs/<name>`, or the next free name.
        ranks: how many processes; 1: this one alone, as is usual in a notebook; None: as the configuration's `ranks`
            says.
        on_event: is called with each event of the run, from another thread, one call at a time. An exception of it is
            printed to stderr at once, ends these calls, and is raised when the run has ended.
        hosts: of the processes and their slots, as `a:4,b:4`; None: this machine, or the allocation.
        resume: whether the run in the folder goes on with this configuration, as by `arena train --resume`; without
            `run_dir` that of the run folder given, or the newest one of `runs/<name>`.

    Raises:
        ConfigError: a mistake of the user, such as a folder that has a run already, or nothing to resume.
        RunFailed: the run has failed.
        KeyboardInterrupt: a signal, which it names, has ended the run before it had begun.
    """
    if ranks != 1 and mpirun.under_launcher():
        raise ConfigError(
            "arena.train starts the processes of a run itself; under mpirun or srun use the command `arena train`, or "
            "ranks=1"
        )
    source = Source.of(config)
    read = source.config
    if resume and run_dir is None and source.folder is not None:
        run_dir = source.folder.path
    place = None if run_dir is None else check_path(run_dir, "the path of a run folder")
    with source.origin.located():
        known = () if hosts is None else parse_hosts(hosts)
        plan = checked_plan(read, ranks=process_count(read, ranks, os.environ, hosts=known).number)
        listener = Listener(on_event)
        if plan.processes == 1 and not known:  # with hosts, one process may have to run elsewhere
            with untouched_process():
                run = replace(prepare(read, ranks=1, run_dir=place, resume=resume), source=source.path)
                status = run_single_process(run, lambda *_: None, output=listener, watched=False)
        else:
            refuse_main(read, ", or use ranks=1")
            shared = anchored(".") if known else None  # the first host may be another one
            with tempfile.TemporaryDirectory(prefix=".arena-train-", dir=shared) as home:
                path = Path(home) / "config.yaml"
                path.write_text(resolved_yaml(read))
                program = [sys.executable, "-m", "arena", "train", str(path), f"--ranks={plan.processes}"]
                program += [f"--run-dir={place}"] * (place is not None) + ["--resume"] * resume
                restarts, scale = read.restarts, read.scale
                status = mpirun.run(
                    plan.processes, program, restarts=restarts, scale=scale, hosts=known, listener=listener
                )
    if listener.error is not None:
        raise listener.error
    if status < 128 or listener.run_dir is None:  # else a signal has ended a run that had begun
        listener.check(status)
    assert listener.run_dir is not None, "a run that has begun emits its folder"
    folder = RunFolder(listener.run_dir)
    config, ticks = load_config(folder.config), newest_tick(folder) or 0
    scores = {name: policy_score(score) for name, score in scored(folder, config.policies).shown.items()}
    finished = run_status(folder, config, played=ticks) is RunStatus.FINISHED
    number = status - 128 if status > 128 else signal.SIGUSR1 if folder.requeue.exists() else None
    newest: dict[str, Any] = next(iter(read_results(folder.path)[-1:]), {})
    by_request = "callback" if number is None else signal.Signals(number).name
    if number is not None:
        _log.warning(
            "%s has ended the run at tick %d; it is saved in %s, and train() returns", by_request, ticks, folder.path
        )
    stopped_by = newest.get("stopped_by") if finished else by_request
    return RunResult(folder.path, finished, ticks, scores, stopped_by)


@in_python()
def plan_run(config: AnyConfig, ranks: RankCount | None = None, hosts: str | None = None) -> Table:
    """Which process of a run would do what, as `arena plan`: checks everything, starts nothing and prints nothing.

    Args:
        config: a YAML file, its contents, the same as `arena.Config`, or a run folder.
        ranks: how many processes; None: as the configuration's `ranks` says.
        hosts: and their slots, as `a:4,b:4`; None: the allocation's.

    Returns:
        a row for each role: `rank` of its process, `host` (None where no host is known), `role` (`root`, `environment`,
        `worker`; `idle` for a process without a role), `match`, `seat`, `policy` (None where the role has none) and the
        `entities` that it plays.

    Raises:
        ConfigError: a mistake of the user.
    """
    source = Source.of(config)
    with source.origin.located(), untouched_process():
        known = () if hosts is None else parse_hosts(hosts)
        count = process_count(source.config, ranks, os.environ, hosts=known)
        found = checked_plan(source.config, ranks=count.number)
        if found.processes > 1:
            refuse_main(source.config, ", or use ranks=1")
        examination = preflight(found, source.config)
        # An allocation that is too small for the ranks does not count: the run may be for another one.
        known = known or allocated(os.environ)
        if hosts is not None or sum(host.slots for host in known) >= found.processes:
            found = on_hosts(found, [one.host for one in shares(known, found.processes) for _ in one.ranks])
        return role_rows(found, examination)


def preflight(plan: Plan, config: Config, *, conformance: bool = False) -> Preflight:
    """Checks that every policy can fill all seats that it may ever get; `plan` is that of the first round."""
    later = later_plans(config)
    found = examine(plan, later=later, conformance=conformance)
    require_rules(config, plan, *later)
    return found


def role_rows(plan: Plan, examination: Preflight) -> Table:
    """The rows that `plan_run` returns."""
    rows = Table()
    for rank, roles in enumerate(plan.ranks):
        row = {"rank": rank, "host": plan.hosts[rank] if plan.hosts else None}
        nothing = {"role": "idle", "match": None, "seat": None, "policy": None, "entities": ()}
        for role in roles:
            place: dict[str, Any] = {"role": role.kind.value, "match": role.match, "seat": role.seat}
            if role.kind is RoleKind.WORKER and role.match is not None and role.seat is not None:
                place |= {"policy": plan.seat(role).policy, "entities": examination.entity_names(role.match, role.seat)}
            rows.append({**row, **nothing, **place})
        if not roles:
            rows.append(row | nothing)
    return rows


class Listener(Output):
    """Receives the output of the run: from this process as an `Output`, from other processes as a `mpirun.Listener`."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event
        self._failure: Failed | None = None
        self.run_dir: Path | None = None  # before the run has begun
        self.error: BaseException | None = None  # that `on_event` has raised
        self.stream = io.StringIO()  # the stderr of the processes

    @property
    def failure(self) -> str:
        """Why the run has failed."""
        if self._failure is None:
            text = self.stream.getvalue().strip()
            return text.removeprefix("arena: error: ").removeprefix("arena: the run has ended: ")
        if self._failure.exit_code == MISTAKE:
            return self._failure.message
        return f"{self._failure.who}\n{self._failure.message}"

    def check(self, status: int) -> None:
        """Raises the error of a run that has ended with an exit status."""
        if status == MISTAKE:
            mistake = None if self._failure is None else self._failure.mistake
            raise mistake or ConfigError(self.failure)
        if status > 128:
            raise KeyboardInterrupt(signal.Signals(status - 128).name)
        if status:
            who, _, trace = self.failure.partition("\n")
            raise RunFailed(self.failure, who=who if trace else "", trace=trace or who)

    def display(self, run: Run) -> Display:
        return EventDisplay(run, self._emit)

    def say(self, text: str) -> None:
        self._emit(Event("message", {"text": text}))

    complain = say

    def fail(self, failure: Failed) -> None:
        self._failure = failure

    def line(self, event: str) -> None:
        try:
            found = Event(**json.loads(event))
        except (ValueError, TypeError):  # a game's own line, or a damaged one
            self.complain(event)
        else:
            self._emit(found)

    def _emit(self, event: Event) -> None:
        if event.kind == "start":
            self.run_dir = Path(event.data["run_dir"])
        if self._on_event is None or self.error is not None:
            return
        try:
            self._on_event(event)
        except BaseException as error:  # `train` raises it; raised here, it would end the reading thread
            self.error = error
            traceback.print_exception(error)  # a log would be that of the run
            text = "on_event has failed and is not called any more; the run goes on, and train() raises this at its end"
            print(text, file=sys.stderr, flush=True)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Restores working directory, signal handlers, logging, random streams, and torch's threads and algorithms.

    For a run in the process of a user's program, one thread at a time.

    Raises:
        ConfigError: another thread is in one, and does not leave it within some seconds.
    """

    def algorithms(torch: Any) -> tuple[bool, ...]:
        """Whether torch uses deterministic algorithms, only warns if it has none, has efficient GPU attention; cuDNN's
        TF32 and its choice by measurement.
        """
        deterministic = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        efficient, cudnn = torch.backends.cuda.mem_efficient_sdp_enabled(), torch.backends.cudnn
        return deterministic, warn_only, efficient, cudnn.allow_tf32, cudnn.benchmark

    if not _IN_PROCESS.acquire(timeout=_WAIT_SECONDS):
        raise ConfigError(
            "another thread of this program has a run in this process, and random streams and signals are the "
            "process's; let one run follow the other, or give each processes of its own by ranks=2 or more"
        )
    streams = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    threads = 0 if torch is None else torch.get_num_threads()
    stream = None if torch is None else torch.get_rng_state()
    before = (False, False, True, True, False) if torch is None else algorithms(torch)  # torch's defaults
    try:
        with started_here(), restored_handlers(), restored_logging():
            yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch = sys.modules.get("torch")
        if torch is not None and stream is not None:
            torch.set_rng_state(stream)
        if torch is not None and (threads := threads or threads_before()):
            torch.set_num_threads(threads)
        if torch is not None and algorithms(torch) != before:  # a policy has learned on a GPU
            deterministic, warn_only, efficient, *cudnn = before
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
            torch.backends.cuda.enable_mem_efficient_sdp(efficient)
            torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = cudnn
        _IN_PROCESS.release()


@contextmanager
def restored_logging() -> Iterator[None]:
    """Restores the handlers of the root logger at the end; a run in this process logs into its folder."""
    root, raises = logging.getLogger(), logging.raiseExceptions
    handlers, level = [*root.handlers], root.level
    root.handlers.clear()  # else `logging.basicConfig` would close them
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.raiseExceptions = raises
