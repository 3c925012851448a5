"""Rank 0's part of a run: what is played next, the records, the progress, and the result."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from arena.callbacks import Callbacks
from arena.errors import MISTAKE, ConfigError, WriteError, pluralize, shorten, shown
from arena.plan.build import on_hosts
from arena.plan.plan import Role, RoleKind
from arena.preflight.external import external_kinds
from arena.records import evaluations
from arena.records.atomic import replacing
from arena.records.faults import FaultKind, log_fault
from arena.records.folder import RunFolder
from arena.records.formats import plan_file, write_document
from arena.records.journal import as_read
from arena.records.lock import FAILED, RunLock
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.perform import failure_of, run_role
from arena.roles.protocol import Failed, RoleFailed
from arena.roles.root.legs import NextStep
from arena.roles.root.root import Root
from arena.roles.run import Leg, Run
from arena.roles.state import Display, RunState
from arena.roles.stop import ENDING_SIGNALS, number_of
from arena.run import hooks, mpirun, stages
from arena.run.console import CONSOLE_OUTPUT, Output, log_to_folder
from arena.run.evaluation import is_due, measure_alone, record_evaluation
from arena.run.mpirun import Restart
from arena.run.prepare import abandon, begin
from arena.run.resume import forget, rule_met
from arena.run.stages import is_over, newest_result, opened, stop_text, write_boundary
from arena.run.watchdog import RootWatchdog
from arena.terminal.display import crossing_text, profile_file, silent_display
from arena.transport import Endpoint
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.records.results import RunResults

Present = Callable[[Run, Scoreboard], None]
"""Shows the result of a run."""
_LOCK_SECONDS = 60.0  # until the lock of a dead root on another host is released, at most
_MOST_HOSTS = 8  # in a line
_LAUNCHER_ENDS = (
    "arena: {signal} from the MPI launcher: Open MPI's ends its processes at once, and {hint}; SIGUSR1 to the "
    "launcher saves the run first"
)
_log = logging.getLogger(__name__)


class RunCommand(ABC):
    """What a command that plays a run says about it, at rank 0."""

    @abstractmethod
    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Makes the run for a number of ranks; `restart`: its processes were started again after a death."""

    @abstractmethod
    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Shows the result."""

    def display(self) -> Display | None:
        """The display of the progress; None: the one that fits the terminal."""
        return None

    def next_stage(self, run: Run, state: RunState) -> Run | None:
        """What is played next, see `stages.next_stage`."""
        return stages.next_stage(run, state)


class Leader:
    """Leads a run at rank 0: says what is played next, records it, and shows the result.

    Args:
        display: shows the progress; None: the one that fits the output.
        next_stage: returns what is played next, None: the run is over; None: legs, evaluations and rounds.
        output: takes all other lines.
        restart: the death after which this process was started.
        watched: whether a watchdog ends the run, by `end`, if a role of this process hangs.
        at_once: the signals that end the run without another tick.
        answers: whether the launcher is the user's: then a line says what it does after a signal.
    """

    def __init__(
        self,
        state: RunState,
        present: Present = lambda _run, _scoreboard: None,
        *,
        display: Display | None = None,
        next_stage: Callable[[Run, RunState], Run | None] | None = None,
        output: Output = CONSOLE_OUTPUT,
        restart: Restart | None = None,
        watched: bool = True,
        end: Callable[[int], object] = os._exit,
        at_once: Collection[int] = (),
        answers: bool = False,
    ) -> None:
        self._state, self._present, self._display = state, present, display
        self._next_stage = next_stage or stages.next_stage
        self._output, self._restart, self._watched, self._end_processes = output, restart, watched, end
        self._at_once, self._answers = at_once, answers

    def listen(self, run: Run) -> None:
        """Handles the signals of this process; raises KeyboardInterrupt if a signal has come before."""

        def answer(name: str) -> str:
            return _LAUNCHER_ENDS.format(signal=name, hint=run.resume_hint(resumable=self._state.resumable))

        self._state.stop.listen(at_once=self._at_once, answer=answer if self._answers else None)

    def begin(self, run: Run) -> None:
        """Locks the run folder until the run ends, and logs into it; after a death, goes back to the boundary."""
        log_to_folder(run)
        if run.plan.hosts:
            self._output.say(f"on {_hosts_text(run.plan.hosts)}; {crossing_text(run.plan)}")
        self.lock(run)
        if self._restart is not None and run.begun:
            self._restart = self._restart._replace(replayed=forget(run))

    def lock(self, run: Run) -> None:
        """Locks the run folder until `RunState.unlock`; raises ConfigError if another process writes into it."""
        end = time.monotonic() + _LOCK_SECONDS
        while self._state.lock is None:
            try:
                self._state.lock = RunLock.take(run.folder.path)
            except ConfigError:  # a root that has died on another host may still hold it
                if self._restart is None or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def next_stage(self, run: Run) -> Run | None:
        """What is played next, after the user's functions between two stages were called; None: the run is over.

        Raises:
            CallbackFailed: a function has raised.
            ConfigError: a change that a curriculum asks for is refused; the boundary is already saved.
        """
        state, leg = self._state, run.leg
        if leg.start and run.episodes is None and measure_alone(run, ends=is_over(run, state)):
            with _results(run, state):
                _callbacks(run, state).evaluation(leg.start, [], run.folder.evaluation_path(leg.start))
        if self._stop_requested(run):
            return None
        if not (run.concluded or is_due(run) or rule_met(run, state.results) is not None):
            if state.controller is not None:
                changes = state.controller.wait(leg.start)
                if changes is None:
                    return None
                state.changes = changes
            planned = run.plan.config.curriculum
            changes = {**run.renewed, **state.changes}
            if (planned is not None or changes) and not is_over(run, state):
                if state.curriculum is None and planned is not None:
                    state.curriculum = hooks.made_curriculum(planned)
                    hooks.resume_curriculum(run, state.curriculum)
                before, newest = run, newest_result(run, state.results)
                run, state.unrecorded_change = hooks.changed(run, state.curriculum, changes, newest)
                run = replace(run, renewed={})
                state.changes = {}
                for line in [*hooks.changes_text(before, run), *hooks.frozen_text(before.plan, run.plan)]:
                    self._output.say(line)
        stage = self._next_stage(run, state)
        if stage is None or not run.plan.hosts:
            return stage
        return replace(stage, plan=on_hosts(stage.plan, run.plan.hosts))

    def play(self, scheduler: RoleScheduler, roles: Iterable[Role], played: Run) -> Leg | int:
        """Plays rank 0's roles of a stage; returns the next leg, or the exit status if the run has ended by request."""
        state, run, output = self._state, played.evaluated or played, self._output
        self.listen(run)

        def begins() -> None:
            self._log_death(run)
            if played.evaluated is None:
                mpirun.report(sys.stderr, begun=True)

        kept, display = RunState(stop=state.stop), silent_display()  # of an evaluation
        if played.evaluated is None:
            kept, display = state, self._display or output.display(run)
        end, record = self._end_processes, partial(self._record, run)
        with RootWatchdog(scheduler, played, end=end, record=record) if self._watched else nullcontext():
            step = play_legs(scheduler, roles, played, kept, display, begins)
        if played.evaluated is None:
            if step.stopped_at is None:
                assert step.following is not None, "the roles have played their last leg"
                return step.following
            self._end(run)
            return self.stopped(run, step.stopped_at)
        start = run.leg.start
        if state.stop.requested:  # what the evaluation has played is discarded
            self._end(run, shown=False)
            return self.stopped(run, start)
        for line in record_evaluation(run, played, scored(played.folder, played.plan.players())):
            output.say(line)
        with _results(run, state):
            lines = evaluations.lines_at(run.folder, start)
            _callbacks(run, state).evaluation(start, list(map(as_read, lines)), played.path)
        return run.leg

    def _stop_requested(self, run: Run) -> bool:
        """Whether a callback has asked between two legs to end the run, which is not over."""
        state = self._state
        if not state.stop.by or run.episodes is not None:
            return False
        return not (run.concluded or is_over(run, state) or rule_met(run, state.results) is not None)

    def conclude(self, run: Run) -> int:
        """Shows the result of a run that has ended between two legs; returns the exit status."""
        self._log_death(run)
        if self._stop_requested(run):
            self._end(run)
            return self.stopped(run, run.leg.start)
        with _results(run, self._state) as results:
            pass  # this writes the result of the last boundary
        self._end(run)
        for line in () if results is None else stop_text(run, results):
            self._output.say(line)
        run.folder.requeue.unlink(missing_ok=True)
        return 0

    def failure(self, run: Run, error: BaseException) -> Failed:
        """The message after an error, which is put on record if the run has begun.

        Removes the folder of a run that a signal has ended before that.
        """
        if not isinstance(error, KeyboardInterrupt):
            failure = failure_of(error, f"root, {run.plan.place(0)}", run.origin)
            self._record(run, failure)
            return failure
        number = number_of(error)
        if not run.resumed and not run.folder.config.exists():
            abandon(run)
            text = " before any tick was played; nothing of it is kept"
        elif run.episodes is not None:
            text = f"; {_played_text(run)}"
        else:
            text = f"; what was played is in {shown(run.path)}, {run.resume_hint(resumable=self._state.resumable)}"
            if self._state.lock is not None and self._state.stop.handled:
                self._state.lock.release("killed")
        # `arena train` sends SIGUSR2 when it has received SIGINT or SIGTERM.
        by = "asked to stop" if number == signal.SIGUSR2 else f"ended by {signal.Signals(number).name}"
        return Failed(f"root, {run.plan.place(0)}", f"{by}{text}", 128 + number)

    def _record(self, run: Run, failure: Failed) -> None:
        """Puts a failure on record: in the log, and if the run has begun in its faults and its lock."""
        if failure.exit_code not in (1, MISTAKE):  # the player of `arena play` has left
            return
        _log.error("%s\n%s", failure.who, failure.message)
        if self._state.lock is not None and not run.folder.config.exists():  # its folder has the log alone
            self._state.lock.release(FAILED)
        elif self._state.lock is not None and self._state.stop.handled:
            lines = failure.message.splitlines() or [""]
            line = lines[-1 if lines[0].startswith("Traceback") else 0]
            with suppress(WriteError):  # the disk is full: this is what the message says
                log_fault(run.folder.faults, FaultKind.RUN, {"hosts": (), "who": failure.who, "error": line})
            self._state.lock.release(FAILED)

    def stopped(self, run: Run, tick: int) -> int:
        """Says how a run that has ended by request at a tick can be continued; returns the exit status."""
        stop = self._state.stop
        if stop.requeue:
            with replacing(run.folder.requeue):
                pass  # an empty file
        elif stop.number is None:  # stopped by a callback: the run is over
            run.folder.requeue.unlink(missing_ok=True)
        by = f", {stop.phrase}" if stop.by else ""
        hint = run.resume_hint("there", resumable=self._state.resumable) if run.episodes is None else _played_text(run)
        self._output.complain(f"arena: stopped at tick {tick}{by}; {hint}")
        if stop.number in ENDING_SIGNALS:
            self._output.complain(f"arena: ended by {signal.Signals(stop.number).name}")
        return stop.status

    def _end(self, run: Run, *, shown: bool = True) -> None:
        """Ends the callbacks of a run that has ended without a failure, and shows its result."""
        if self._state.callbacks is not None:
            self._state.callbacks.end()
        if shown:  # the score is kept by this process, or read from the records
            self._present(run, self._state.scoreboard or scored(run.folder, run.plan.players()))

    def _log_death(self, run: Run) -> None:
        """Records the death after which this process was started, and shows it, once."""
        restart, self._restart = self._restart, None
        if restart is not None:
            self._output.say(log_death(run, restart))


def _hosts_text(hosts: Sequence[str]) -> str:
    """`n0 (2 processes), n1 (1 process)`; of many hosts the first and the last one. `hosts`: by rank."""
    counts = Counter(hosts)
    if len(counts) > _MOST_HOSTS:
        return f"{len(counts):,} hosts, {hosts[0]} .. {hosts[-1]} ({len(hosts):,} processes)"
    return ", ".join(f"{host} ({pluralize(count, 'process', 'processes')})" for host, count in counts.items())


def play_legs(
    scheduler: RoleScheduler,
    roles: Iterable[Role],
    run: Run,
    state: RunState,
    display: Display,
    begins: Callable[[], None] = lambda: None,
) -> NextStep:
    """Plays the roles of the process that hosts the root, and records what is played, of a run or an evaluation.

    `begins` is called when all roles are ready.
    """
    steps: list[NextStep] = []

    def record(endpoint: Endpoint) -> None:
        root = Root(endpoint, run, display, state)
        callbacks = _callbacks(run, state)
        callbacks.warn = display.message
        try:
            root.wait_until_ready(report=True)
        except RoleFailed as error:
            if error.failure.logs_useless:  # those of a bug, or of a role that hangs, are kept
                abandon(run)
            raise
        with RunLock.take(run.folder.path) if state.lock is None else nullcontext():
            if not run.begun:
                begin(run, resumable=root.resumable, external=state.external, rules=state.rules)
                display.message(f"run folder: {shown(run.path)}")
            begins()
            if state.unrecorded_change is not None:
                hooks.keep(run, state.unrecorded_change)
                state.unrecorded_change = None
            with (
                _results(run, state) as results,
                Recorder(
                    run.folder,
                    run.first_ticks,
                    resumed_at=run.leg.start if run.resumed else None,
                    callbacks=callbacks,
                    results=results,
                    scalars="tensorboard" in run.plan.config.loggers,
                ) as recorder,
            ):
                state.stop.handled = True
                steps.append(root.record(recorder, lambda here, stopped: write_boundary(here, state, stopped=stopped)))
        if run.profile:
            write_document(run.folder.profile, profile_file(state.profiles))

    def main_of(role: Role) -> Callable[[Endpoint], Any]:
        if role.kind is RoleKind.ROOT:
            return record
        return lambda endpoint: run_role(endpoint, run, role, memory=state, private=False)

    scheduler.run({run.address(role): main_of(role) for role in roles})
    return steps[0]


def _callbacks(run: Run, state: RunState) -> Callbacks:
    """The callbacks of the run, which are kept from stage to stage."""
    if state.callbacks is None:
        config = run.plan.config
        state.callbacks = Callbacks(config.callbacks, state.stop.ask, config.loggers, state.objects)
    return state.callbacks


@contextmanager
def _results(run: Run, state: RunState) -> Iterator[RunResults | None]:
    """The results of a run, complete up to its boundary; their file is closed at the end of the context.

    Also starts the callbacks.
    """
    callbacks = _callbacks(run, state)
    results = state.results = opened(run, state.results, callbacks.result)

    def plan() -> dict[str, Any]:  # the environments know the kinds without an import of their games in this process
        kinds = external_kinds(run.plan.matches) if state.external is None else state.external
        return as_read(plan_file(run.plan, kinds, state.rules))

    callbacks.start(run.path, plan, resumed=run.resumed)
    with nullcontext() if results is None else closing(results):
        write_boundary(run, state)
        yield results


def scored(folder: RunFolder, players: Iterable[str]) -> Scoreboard:
    """The score from the records; it does not depend on the order in which matches reported."""
    found = Scoreboard(players)
    found.read(folder)
    return found


def _played_text(run: Run) -> str:
    """Where the games of a run without learning are, and how a run of several rounds can be continued."""
    more = (
        "; the same command with --resume goes on after the last batch that is whole"
        if run.plan.config.round_count > 1
        else ""
    )
    return f"what was played is in {shown(run.path)}{more}"


def log_death(run: Run, restart: Restart) -> str:
    """Appends the death after which a run was started again to the fault log; returns a line for the user.

    Raises:
        WriteError: the fault log cannot be written.
    """
    hosted = on_hosts(run.plan, restart.hosts).ranks if restart.hosts else ()
    roles = [run.describe(role) for rank in restart.ranks if hosted for role in hosted[rank]]
    who = f"{restart.cause} ({shorten(roles)})" if roles else restart.cause
    text = f"{who}; started again with {pluralize(run.plan.processes, 'process', 'processes')}"
    text += f", back to tick {run.leg.start}, {pluralize(restart.replayed, 'tick')} to be played again"
    seconds = round(max(0.0, time.time() - restart.died), 3)
    _log.warning("%s", text)
    fields = {"ranks": restart.ranks, "hosts": restart.where, "done": text, "replayed": restart.replayed}
    log_fault(run.folder.faults, FaultKind.PROCESS, {**fields, "seconds": seconds})
    return f"{text}; {seconds:.2f} s lost"
