"""Rank 0: hosts the root and its other roles, or all roles in one process, and shows progress and result."""

from __future__ import annotations

import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from arena.callbacks import Callbacks
from arena.errors import ConfigError, Deadlock, PeerLost, shown
from arena.launch import mpirun
from arena.launch.console import CONSOLE_OUTPUT, Output, display_for, log_beside_display, tell
from arena.launch.holding import Holder
from arena.launch.rank import Main, again_words, names_of, played_words
from arena.launch.watchdog_thread import RootWatchdog
from arena.plan.plan import Role, RoleKind
from arena.preflight.external import external_kinds
from arena.records import evaluations
from arena.records.atomic import replacing
from arena.records.folder import RunFolder
from arena.records.formats import plan_file, write_document
from arena.records.journal import JournalReader, as_read
from arena.records.lock import RunLock
from arena.records.metrics import EpisodeRecord
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.perform import failure_of, run_role
from arena.roles.protocol import Failed
from arena.roles.root.fault_records import log_death
from arena.roles.root.root import RoleFailed, Root
from arena.run import curriculum, stages
from arena.run.display import Display
from arena.run.evaluation import is_due, measure_alone, record_evaluation
from arena.run.leg import Leg
from arena.run.prepare import abandon, begin
from arena.run.process_state import ProcessState
from arena.run.restart import Restart
from arena.run.results import newest_result, opened, stop_words, write_boundary
from arena.run.resume import forget
from arena.run.run import Run, Stage
from arena.run.stages import is_over
from arena.run.stop import ENDING_SIGNALS
from arena.run.stop_rules import rule_met
from arena.terminal.display import silent_display
from arena.terminal.profile import profile_file
from arena.transport import Endpoint
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.records.results import RunResults
    from arena.transport.mpi import World

_LOCK_SECONDS = 60.0  # until the lock of a dead root on another host is released, at most
_MISTAKE = 2  # the exit status after a user's mistake
_LAUNCHER_ENDS = (
    "arena: {{signal}} from the MPI launcher: Open MPI's ends its processes at once, and {again}; SIGUSR1 to the "
    "launcher saves the run first"
)


def run_single_process(
    run: Run,
    present: Callable[[Run, Scoreboard], None],
    display: Display | None = None,
    *,
    next_stage: Callable[[Run, ProcessState], Stage | None] = stages.next_stage,
    output: Output = CONSOLE_OUTPUT,
    watched: bool = True,
    at_once: Collection[int] = (),
) -> int:
    """Runs everything in this process and shows the result or the failure; returns the exit status.

    Args:
        run: the run.
        present: shows the result.
        display: shows the progress; None: the one that fits the terminal.
        next_stage: returns what is played next; None: the run is over.
        output: takes all other lines, and has a display if none is given.
        watched: whether a watchdog ends this process if a role hangs.
        at_once: the signals that end the run without another tick.
    """
    held = HeldRun(run, present, display, next_stage=next_stage, output=output, watched=watched)
    held.memory.stop.listen(at_once=at_once)
    try:
        log_beside_display(run, run.roles)
        lock(run, held.memory)
        while (status := held.play_stage()) is None:
            pass
        return status
    except BaseException as error:
        failure = held.failure(error)
    finally:
        held.memory.disconnect("over")
        held.memory.unlock()
    output.fail(failure)
    return failure.exit_code


class HeldRun:
    """A run in this process, played stage by stage.

    Args:
        run, present, display, next_stage, output, watched: see `run_single_process`.

    Attributes:
        run: as it continues.
        memory: of this process.
    """

    def __init__(
        self,
        run: Run,
        present: Callable[[Run, Scoreboard], None],
        display: Display | None = None,
        *,
        next_stage: Callable[[Run, ProcessState], Stage | None] = stages.next_stage,
        output: Output = CONSOLE_OUTPUT,
        watched: bool = True,
    ) -> None:
        self.run, self.memory = run, ProcessState()
        self._present, self._display, self._next_stage = present, display, next_stage
        self._output, self._watched = output, watched

    def play_stage(self) -> int | None:
        """Plays what comes next; returns the exit status if the run is over then."""
        run, memory, output = between_stages(self.run, self.memory, self._output), self.memory, self._output
        if (stage := self._next_stage(run, memory)) is None:
            return conclude(run, memory, self._present, output)
        self.run = run = stage.run
        if stage.evaluation is not None:
            own = memory.for_evaluation()
            in_one_process(stage.evaluation, silent_display(), own, watched=self._watched)
            outcome: Outcome = _evaluated(run, stage.evaluation, memory, output)
        else:
            display = self._display or output.display(run)
            result = in_one_process(run, display, memory, watched=self._watched)
            outcome = _outcome(run, result, memory, self._present, output)
        if isinstance(outcome, int):
            return outcome
        self.run = run.after(outcome)
        return None

    def failure(self, error: BaseException) -> Failed:
        """The message after an error of `play_stage`."""
        if isinstance(error, Deadlock):
            return Failed("no role can go on", str(error), exit_code=1)
        return _failure(self.run, self.memory, error)


class Result(NamedTuple):
    """The state of a run when its roles have ended."""

    scoreboard: Scoreboard
    stopped_at: int | None = None  # the tick at which a request ended it
    following: Leg | None = None  # the next leg; None: the run is over


Outcome = int | Leg
"""The exit status of a run that is over, or the next leg."""


def _outcome(
    run: Run,
    result: Result,
    memory: ProcessState,
    present: Callable[[Run, Scoreboard], None],
    output: Output = CONSOLE_OUTPUT,
) -> Outcome:
    """The outcome of one leg of a run; shows the result if it is the last leg."""
    if result.following is not None:
        return result.following
    return _conclude(run, result, memory, present, output)


def _evaluated(run: Run, evaluation: Run, memory: ProcessState, output: Output = CONSOLE_OUTPUT) -> Outcome:
    """Writes the results of an evaluation; if it was ended by request, discards them and ends the run."""
    if memory.stop.wanted:
        _end_callbacks(memory)
        return _stopped(run, run.leg.start, memory, output)
    for line in record_evaluation(run, evaluation, scored(evaluation.folder, evaluation.plan.players())):
        output.say(line)
    with _results(run, memory):
        lines = evaluations.lines_at(run.folder, run.leg.start)
        _callbacks(run, memory).evaluation(run.leg.start, list(map(as_read, lines)), evaluation.path)
        return run.leg


def _conclude(
    run: Run, result: Result, memory: ProcessState, present: Callable[[Run, Scoreboard], None], output: Output
) -> int:
    """Shows the result; returns the exit status."""
    _end_callbacks(memory)
    present(run, result.scoreboard)
    if memory.results is not None and result.stopped_at is None:
        for line in stop_words(run, memory.results):
            output.say(line)
    if result.stopped_at is None:
        run.folder.requeue.unlink(missing_ok=True)
        return 0
    return _stopped(run, result.stopped_at, memory, output)


def _end_callbacks(memory: ProcessState) -> None:
    """Calls the callbacks' method for a run that has ended without a failure."""
    if memory.callbacks is not None:
        memory.callbacks.end()


def _stopped(run: Run, tick: int, memory: ProcessState, output: Output = CONSOLE_OUTPUT) -> int:
    stop = memory.stop
    if stop.requeue:
        with replacing(run.folder.requeue):
            pass  # an empty file
    elif stop.number is None:  # stopped by a callback: the run is over
        run.folder.requeue.unlink(missing_ok=True)
    by = f", {stop.words}" if stop.by else ""
    left = again_words(run, memory) if run.episodes is None else played_words(run)
    output.complain(f"arena: stopped at tick {tick}{by}; {left}")
    if stop.number in ENDING_SIGNALS:
        output.complain(f"arena: ended by {signal.Signals(stop.number).name}")
    return stop.status


def in_one_process(run: Run, display: Display, memory: ProcessState | None = None, *, watched: bool = False) -> Result:
    """Runs all roles as threads of this process, one at a time.

    Args:
        run: the run.
        display: shows the progress.
        memory: the state of this process from before; its `stop` says whether to end before the last tick.
        watched: whether a watchdog ends this process if a role hangs.

    Raises:
        RoleFailed: a role failed.
        Deadlock: every role waits for another one.
    """
    results: list[Result] = []
    held = memory or ProcessState()

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display, held))
        return lambda endpoint: run_role(endpoint, run, role, memory=held, private=False)

    host = RoleScheduler(names_of(run, run.roles))
    try:
        with RootWatchdog(host, run) if watched else nullcontext():
            host.run({run.address(role): main_of(role) for role in run.roles})
    finally:
        if memory is None:
            held.disconnect("over")
    return results[0]


def _record(
    endpoint: Endpoint, run: Run, display: Display, memory: ProcessState, begins: Callable[[], None] = lambda: None
) -> Result:
    root = Root(endpoint, run, display, memory)
    callbacks = _callbacks(run, memory)
    callbacks.warn = display.message
    try:
        root.wait_until_ready(report=True)
    except RoleFailed as error:
        if error.failure.exit_code == _MISTAKE:
            abandon(run)
        raise
    with _locked(run, memory) if memory.lock is None else nullcontext():
        if not run.begun:
            begin(run, resumable=root.resumable)
            display.message(f"run folder: {shown(run.path)}")
        begins()
        if memory.change is not None:
            curriculum.keep(run, memory.change)
            memory.change = None
        resumed_at = run.leg.start if run.resumed else None
        scalars = any(logger == "tensorboard" for logger in run.plan.config.loggers)
        with (
            _results(run, memory) as results,
            Recorder(
                run.folder,
                run.first_ticks,
                resumed_at=resumed_at,
                callbacks=callbacks,
                results=results,
                scalars=scalars,
            ) as recorder,
        ):
            memory.stop.handled = True
            way = root.record(recorder)
    if run.profile:
        write_document(run.folder.profile, profile_file(memory.profiles))
    return Result(root.scoreboard, way.stopped_at, way.following)


def _callbacks(run: Run, memory: ProcessState) -> Callbacks:
    """The callbacks of the run, which are kept from stage to stage."""
    if memory.callbacks is None:
        memory.callbacks = Callbacks(
            run.plan.config.callbacks, memory.stop.ask, run.plan.config.loggers, memory.objects
        )
    return memory.callbacks


def between_stages(run: Run, memory: ProcessState, output: Output = CONSOLE_OUTPUT) -> Run:
    """Calls the user's functions between two stages, and returns the run as it continues.

    Raises:
        CallbackFailed: a function has raised.
        ConfigError: a change that a curriculum asks for is refused; the boundary is already saved.
    """
    _measure(run, memory)
    over = run.concluded or run.leg.start >= run.plan.ticks or is_due(run) or rule_met(run, memory.results) is not None
    if over or not (run.plan.config.curriculum or memory.wanted):
        return run
    if memory.curriculum is None and run.plan.config.curriculum is not None:
        memory.curriculum = curriculum.made(run.plan.config.curriculum)
        curriculum.resume(run, memory.curriculum)
    newest = newest_result(run, memory.results)
    following, memory.change = curriculum.changed(run, memory.curriculum, memory.wanted, newest)
    memory.wanted = {}
    for line in curriculum.frozen_words(run.plan, following.plan):
        output.say(line)
    return following


def _measure(run: Run, memory: ProcessState) -> None:
    """Calls the function of an evaluation without games, if it is due."""
    if run.leg.start and run.episodes is None and measure_alone(run, ends=is_over(run, memory)):
        with _results(run, memory):
            _callbacks(run, memory).evaluation(run.leg.start, [], run.folder.evaluation_path(run.leg.start))


def _log_death(run: Run, memory: ProcessState, output: Output) -> None:
    """Records the death after which this process was started, and shows it, once."""
    restart, memory.restart = memory.restart, None
    if restart is not None:
        output.say(log_death(run, restart))


@contextmanager
def _results(run: Run, memory: ProcessState) -> Iterator[RunResults | None]:
    """The results of a run, complete up to its boundary; their file is closed at the end of the context.

    Also starts the callbacks.
    """
    callbacks = _callbacks(run, memory)
    results = memory.results = opened(run, memory.results, callbacks.result)
    callbacks.start(run.path, lambda: as_read(plan_file(run.plan, external_kinds(run.plan))), resumed=run.resumed)
    if results is None:
        yield None
        return
    with closing(results):
        write_boundary(run, memory, results)
        yield results


def lock(run: Run, memory: ProcessState) -> None:
    """Locks the run folder for this process, until `ProcessState.unlock`, also between the stages of a run.

    Raises:
        ConfigError: another process writes into it.
    """
    if memory.lock is None:
        memory.lock = _locked(run, memory)


def _locked(run: Run, memory: ProcessState) -> RunLock:
    """The folder's lock; waits if a root that has died on another host may still hold it."""
    end = time.monotonic() + _LOCK_SECONDS
    while memory.restart is not None and time.monotonic() < end:
        try:
            return RunLock.take(run.folder.path)
        except ConfigError:
            time.sleep(0.1)
    return RunLock.take(run.folder.path)


def conclude(
    run: Run, memory: ProcessState, present: Callable[[Run, Scoreboard], None], output: Output = CONSOLE_OUTPUT
) -> int:
    """Shows the result of a run that was played to its end; returns the exit status."""
    _log_death(run, memory, output)
    with _results(run, memory):
        pass  # this writes the result of the last boundary
    return _conclude(run, Result(_scoreboard(run, memory)), memory, present, output)


def _scoreboard(run: Run, memory: ProcessState) -> Scoreboard:
    """The score of a run between two stages: kept by this process, or read from the records."""
    return memory.scoreboard or scored(run.folder, run.plan.players())


def scored(folder: RunFolder, players: Iterable[str]) -> Scoreboard:
    """The score from the records; it does not depend on the order in which matches reported."""
    found = Scoreboard(players)
    found.take(JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True))
    return found


def lead(
    team: World,
    host: RoleScheduler,
    run: Run,
    memory: ProcessState,
    present: Callable[[Run, Scoreboard], None],
    display: Display | None = None,
) -> Outcome:
    """Plays rank 0's roles of a run that has other ranks.

    Args:
        team: all processes.
        host: of the roles of rank 0.
        run: the run.
        memory: of this process.
        present: shows the result.
        display: shows the progress; None: the one that fits the terminal.

    Raises:
        PeerLost: a process of the run has died.
    """
    log_beside_display(run, run.plan.ranks[0])
    shown = display or display_for(run)
    return _led(team, host, run, memory, shown, lambda result: _outcome(run, result, memory, present))


def lead_evaluation(team: World, host: RoleScheduler, run: Run, evaluation: Run, memory: ProcessState) -> Outcome:
    """Plays rank 0's roles of an evaluation; see `lead`.

    Args:
        team: all processes.
        host: of the roles of rank 0 in the evaluation.
        run: the run that continues afterwards.
        evaluation: what is played.
        memory: of the run.
    """
    own = memory.for_evaluation()

    def conclude(_: Result) -> Outcome:
        return _evaluated(run, evaluation, memory)

    return _led(team, host, evaluation, own, silent_display(), conclude, whole=(run, memory))


def _led(
    team: World,
    host: RoleScheduler,
    run: Run,
    memory: ProcessState,
    display: Display,
    conclude: Callable[[Result], Outcome],
    whole: tuple[Run, ProcessState] | None = None,
) -> Outcome:
    """Plays rank 0's roles; `whole` is the run whose evaluation is played, for messages."""
    results: list[Result] = []
    whole_run, whole_memory = whole or (run, memory)

    def begins() -> None:
        _log_death(whole_run, whole_memory, CONSOLE_OUTPUT)
        if whole is None:
            mpirun.note(sys.stderr, begun=True)

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display, memory, begins))
        return lambda endpoint: run_role(endpoint, run, role, memory=memory, private=False)

    try:
        # `arena train` itself sends SIGUSR2; SIGTERM comes from the launcher when `arena train` has died.
        if mpirun.started_by_us():
            memory.stop.listen(at_once={signal.SIGTERM})
        else:
            memory.stop.listen(answer=_LAUNCHER_ENDS.format(again=again_words(run, memory, "the newest boundary")))
        with RootWatchdog(host, run, end=team.abort):
            host.run({run.address(role): main_of(role) for role in run.plan.ranks[0]})
        return conclude(results[0])
    except BaseException as error:
        if team.is_peer_failure(error):
            raise PeerLost(str(error)) from error
        failure = _failure(whole_run, whole_memory, error)
        by_launcher = isinstance(error, KeyboardInterrupt) and error.args == (signal.SIGTERM,)
        if not (by_launcher and mpirun.started_by_us()):  # else `arena train` writes why it ends all processes
            tell(failure)
        whole_memory.unlock()
        team.abort(failure.exit_code)


def _failure(run: Run, memory: ProcessState, error: BaseException) -> Failed:
    if isinstance(error, RoleFailed):
        return error.failure
    if isinstance(error, KeyboardInterrupt):
        return interrupted(run, memory, error)
    return failure_of(error, "root, rank 0")


def interrupted(run: Run, memory: ProcessState, error: KeyboardInterrupt) -> Failed:
    """The message after a signal has ended a run at once; removes the folder of a run that has not begun."""
    number: int = error.args[0] if error.args else signal.SIGINT
    if not run.resumed and not run.folder.config.exists():
        abandon(run)
        words = "before any tick was played"
    elif run.episodes is not None:
        words = played_words(run)
    else:
        words = f"what was played is in {shown(run.path)}, {again_words(run, memory, 'the newest boundary')}"
    # `arena train` sends SIGUSR2 when it has received SIGINT or SIGTERM.
    by = "asked to stop" if number == signal.SIGUSR2 else f"ended by {signal.Signals(number).name}"
    return Failed("root, rank 0", f"{by}; {words}", 128 + number)


class Rank0Base(ABC):
    """Rank 0's part of a run, or all of it if there is no other rank; each command that plays has a subclass.

    See `arena.launch.rank.Rank0`.
    """

    @abstractmethod
    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Makes the run for a number of ranks; `restart`: its processes were started again after a death.

        Raises:
            ConfigError: a mistake of the user.
        """

    @abstractmethod
    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Shows the result."""

    def display(self) -> Display | None:
        """The display of the progress; None: the one that fits the terminal."""
        return None

    def lock(self, run: Run, memory: ProcessState) -> None:
        """Locks the run folder for this process, until the run ends.

        Raises:
            ConfigError: another process writes into it.
        """
        lock(run, memory)

    def roll_back(self, run: Run, memory: ProcessState) -> None:
        """Brings the run folder back to the boundary from which the run continues after a death."""
        assert memory.restart is not None, "a run that has begun before its processes has lost others"
        memory.restart = memory.restart._replace(replayed=forget(run))

    def between_stages(self, run: Run, memory: ProcessState) -> Run:
        """Calls the user's functions between two stages, and returns the run as it continues; waits if it is held."""
        if run.held:
            _measure(run, memory)
            if not (is_due(run) or run.concluded or rule_met(run, memory.results) is not None):
                memory.holder = memory.holder or Holder()
                memory.wanted = memory.holder.hold(run.leg.start) or {}
                if memory.holder.has_ended:
                    return replace(run, concluded=True)
        return between_stages(run, memory)

    def next_stage(self, run: Run, memory: ProcessState) -> Stage | None:
        """What is played next; None if the run is over."""
        return stages.next_stage(run, memory)

    def alone(self, run: Run) -> int:
        """Plays everything in this process and shows the result; returns the exit status."""
        return run_single_process(run, self.present, self.display(), next_stage=self.next_stage)

    def conclude(self, run: Run, memory: ProcessState) -> int:
        """Shows the result of a run that was played to its end; returns the exit status."""
        log_beside_display(run, run.plan.ranks[0])
        return conclude(run, memory, self.present)

    def lead(self, team: World, host: RoleScheduler, run: Run, memory: ProcessState) -> int | Leg:
        """Plays rank 0's roles; the exit status when the result is shown, or the leg that comes next."""
        return lead(team, host, run, memory, self.present, self.display())

    def lead_evaluation(
        self, team: World, host: RoleScheduler, run: Run, evaluation: Run, memory: ProcessState
    ) -> int | Leg:
        """Plays rank 0's roles of an evaluation; see `lead`."""
        return lead_evaluation(team, host, run, evaluation, memory)

    def interrupted(self, run: Run, memory: ProcessState, error: KeyboardInterrupt) -> Failed:
        """The message after a signal has ended a run at once; removes the folder of a run that has not begun."""
        return interrupted(run, memory, error)
