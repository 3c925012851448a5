"""The root role: starts and ends the legs of a run, and records what the roles report.

wait for roles   a Ready message from each environment and worker; nothing is written before the first leg starts
record           Go to all roles; then Progress, Update, Left, ...    -> the run folder and the display
finish a leg     a Done message from each environment and worker      -> the boundary from which the run can continue;
                 Next to all roles: the next leg, or the end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from arena.diagnostics.profile import Activity, RoleProfile, stopwatch
from arena.errors import ArenaError, ConfigError
from arena.league.round_text import change_words, round_words
from arena.plan.plan import Plan, Role, RoleKind
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.records.formats import Boundary, round_of
from arena.records.journal import JournalReader
from arena.records.recorder import Recorder
from arena.records.results import sampler_perf
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import (
    Done,
    Exhausted,
    Failed,
    Games,
    Go,
    Left,
    Listening,
    Next,
    Notice,
    Progress,
    Ready,
    Restarted,
    Stopping,
    Update,
)
from arena.roles.root import leg_end
from arena.roles.root.admission import check_playable, is_resumable
from arena.roles.root.early_stop import EarlyStop
from arena.roles.root.external_records import append_games, record_place
from arena.roles.root.fault_records import log_restart
from arena.roles.root.leg_end import NextStep
from arena.roles.root.progress import RunProgress
from arena.roles.root.watchdog import Watchdog
from arena.roles.run import Run
from arena.roles.state import Display, Profiled, RunState
from arena.transport import ANY_SOURCE, Endpoint, Tag
from arena.transport.pickling import pack, unpack

POLL_SECONDS = 0.25
"""The longest time for which the root waits for a message before it checks the watchdog and stop requests."""

_REPORT_SECONDS = 5.0  # between two lines about a start that takes long


class RoleFailed(ArenaError):
    """A role ended with an error; the run is over."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(f"{failure.who}\n{failure.message}")
        self.failure = failure


class Root:
    """The root of a run.

    Args:
        endpoint: the root's endpoint.
        run: the run.
        display: shows the progress.
        memory: the state of this process; its `stop` holds the requests to end the run early.

    Attributes:
        scoreboard: the scores of all recorded episodes.
    """

    def __init__(self, endpoint: Endpoint, run: Run, display: Display, memory: RunState) -> None:
        self._endpoint = endpoint
        self._run = run
        self._display = display
        self._memory = memory
        memory.digests = memory.digests or boundaries.FileDigests()
        self._watchdog = Watchdog(endpoint, run, show=display.message)
        self._stopwatch = stopwatch(run.profile)
        self._others = [role for role in run.roles if role.kind is not RoleKind.ROOT]
        self._leg = run.leg  # the leg that is prepared or played
        self._ready: dict[Role, Ready] = {}
        self._early: list[Any] = []  # messages that arrived before all roles were ready
        self._stateless: set[str] = set()  # policies without checkpoints
        self.scoreboard = memory.scoreboard or Scoreboard(run.plan.players())

    @property
    def resumable(self) -> bool:
        """Whether the state of every role can be saved and loaded; known when all roles are ready."""
        return is_resumable(self._ready.values())

    def wait_until_ready(self, *, report: bool = False) -> None:
        """Waits until all roles are ready for the leg, and checks that it can be played to its end.

        Args:
            report: whether the display says every few seconds how many are ready.

        Raises:
            RoleFailed: a role failed before it was ready, or the leg cannot be played.
        """
        ready: dict[Role, Ready] = {}
        last = time.monotonic()
        messages = self._messages()
        while len(ready) < len(self._others):
            message = next(messages)
            if isinstance(message, Ready):
                ready[message.role] = message
                if report and time.monotonic() > last + _REPORT_SECONDS and len(ready) < len(self._others):
                    last = time.monotonic()
                    self._display.message(f"{len(ready)} of {len(self._others)} roles are ready")
            else:
                self._early.append(message)
        self._ready = ready
        try:
            check_playable(self._run, ready.values())
        except ConfigError as error:
            raise _failed(str(error), exit_code=2) from error

    def record(
        self, recorder: Recorder, at_boundary: Callable[[Run, bool], None] = lambda _run, _stopped: None
    ) -> NextStep:
        """Plays and records legs until the run is complete, is stopped, or continues with new roles.

        Args:
            recorder: writes the run folder; that of a resumed run holds only what was recorded before this leg.
            at_boundary: called with the run at each boundary, and whether it is stopped there, if it has results.

        Returns:
            how the run continues after this root.

        Raises:
            RoleFailed: a role failed.
        """
        self._at_boundary = at_boundary
        progress = RunProgress(self._run, recorder, self.scoreboard)
        if self._memory.scoreboard is None:
            progress.load_scores()
        try:
            self._display.start()
            self._show_round()
            while (step := self._play(progress)).leg is not None:
                self._leg = step.leg
                self.wait_until_ready()
        finally:
            self._memory.scoreboard = self.scoreboard
            self._display.stop()
        for name in sorted(self._stateless):
            self._display.message(f"no checkpoints of {name!r}: its algorithm has no state_dict()")
        self._add_profile(Role(RoleKind.ROOT), self._stopwatch.profile())
        return step

    def _show_round(self) -> None:
        """Shows which round of a league begins, and how its policies have changed."""
        run, plan = self._run, self._run.plan
        if plan.config.rounds > 1 and not (run.begun and self._leg.start > plan.start):  # else already shown
            changes = change_words(next(islice(JournalReader(run.folder.rounds).made(round_of), plan.round, None)))
            self._display.message("; ".join([round_words(plan), *changes]))

    def _play(self, progress: RunProgress) -> NextStep:
        """Plays and records a leg for which all roles are ready."""
        until, self._memory.resumable = self._planned_end(), self.resumable
        self._send_all(Go(until))
        if self._memory.results is not None:
            self._memory.results.begin_leg(self._leg.start, until, self._leg.left)
        early_stop = EarlyStop(self._endpoint, self._run, self._leg, until)
        messages = self._messages(partial(self._check_stop, progress, early_stop))
        done = self._collect_done(messages, partial(self._handle, progress, early_stop))
        step = self._finish_leg(early_stop.until, done, progress)
        self._send_all(Next(step.leg))
        return step

    def _planned_end(self) -> int:
        """The planned last tick of the leg: the run's if it counts episodes, or if some policy cannot be saved."""
        plan = self._run.plan
        if self._run.episodes is not None or not self.resumable:
            return plan.ticks
        return leg_end.next_boundary(plan, self._leg.start)

    def _send_all(self, message: Go | Next) -> None:
        for role in self._others:
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, pack(message))

    # -------------------------------------------------------------------------------------------------- during the leg

    def _messages(self, between: Callable[[], None] = lambda: None) -> Iterator[Any]:
        """The roles' messages, first those that arrived early; calls `between` at least every POLL_SECONDS."""
        early, self._early = self._early, []
        yield from early
        self._watchdog.begin()
        while True:
            message = self._receive()
            if isinstance(message, Failed):
                raise RoleFailed(message)
            between()
            if message is not None:
                yield message

    def _receive(self) -> Any:
        """Waits for a message for at most POLL_SECONDS.

        Returns:
            the message; None if none came; `Failed`, from a role or from the watchdog, if the run must end.
        """
        self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
        received = self._endpoint.listen(ANY_SOURCE, Tag.TO_ROOT, min(self._watchdog.seconds_to_check, POLL_SECONDS))
        if received is None:
            return self._watchdog.check()
        self._stopwatch.switch(Activity.RECORDING)
        source, data = received
        message = unpack(data)
        if isinstance(message, Failed):
            return message
        self._watchdog.heard_from(source, message)
        return self._watchdog.check() or message

    def _collect_done(self, messages: Iterator[Any], handle: Callable[[Any], None]) -> dict[Role, Done]:
        """Collects the Done message of each role; all other messages are passed to `handle`."""
        done: dict[Role, Done] = {}
        while len(done) < len(self._others):
            message = next(messages)
            if not isinstance(message, Done):
                handle(message)
                continue
            done[message.role] = message
            self._add_profile(message.role, message.profile)
            if message.stateless:
                self._stateless.add(self._run.plan.seat(message.role).policy)
            if message.role.seat is not None and self._memory.results is not None:
                policy = self._run.plan.policies[self._run.plan.seat(message.role).policy]
                if all(Role(RoleKind.WORKER, *worker) in done for worker in policy.workers):
                    self._memory.results.leave(policy.name)
        return done

    def _add_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            self._memory.add_profile(Profiled.of(self._run.plan, role), profile)

    def _check_stop(self, progress: RunProgress, early_stop: EarlyStop) -> None:
        """Ends the leg early if a stop was requested, or a stop rule is met that does not wait for the leg's end."""
        stop, results = self._memory.stop, self._memory.results
        if early_stop.asked:
            return
        if stop.wanted:
            self._display.message(f"{stop.words}: the run ends as soon as it is saved")
            early_stop.ask(progress.ticks)
        elif results is not None and results.met is not None and (results.met.by_clock or not self.resumable):
            early_stop.ask(progress.ticks)

    def _handle(self, progress: RunProgress, early_stop: EarlyStop, message: Any) -> None:
        if isinstance(message, Progress):
            progress.advance(message)
        elif isinstance(message, Update):
            progress.update(message.record)
        elif isinstance(message, Stopping):
            early_stop.receive(message, progress.ticks)
        elif isinstance(message, Notice):
            self._display.message(message.text)
        elif isinstance(message, Restarted):
            self._display.message(log_restart(self._run.folder, message))
        elif isinstance(message, Listening):
            for line in record_place(self._run.folder, message.place):
                self._display.message(line)
        elif isinstance(message, Games):
            append_games(self._run.folder, message.line)
            match = self._run.plan.matches[message.line.match]
            progress.draw_reported(message.line, match.env)
            self.scoreboard.games[match.match] = message.line.words(match.lanes)
        elif isinstance(message, Exhausted):
            self._display.message(_format_exhausted(self._run.plan, message))
        elif isinstance(message, Left):
            self._display.message(_format_left(self._run.plan, message))
        self._show(progress)

    def _show(self, progress: RunProgress) -> None:
        progress.poll()
        self._display.update(progress.done, self.scoreboard)

    # --------------------------------------------------------------------------------------------------- after the leg

    def _finish_leg(self, tick: int, done: dict[Role, Done], progress: RunProgress) -> NextStep:
        """Saves the boundary at the end of a leg; returns how the run continues from it."""
        run, plan = self._run, self._run.plan
        if run.episodes is not None:
            return self._finish_games(progress)
        if tick == self._planned_end():  # in a leg that was cut short workers may not have synchronized yet
            try:
                with run.origin.located():
                    leg_end.check_synchronized(tick, plan, done, self._leg.left)
            except ConfigError as error:
                raise _failed(str(error), exit_code=2) from error
        for match in progress.ticks:  # all matches end here, also a match whose workers have all left
            progress.advance(Progress(match, tick, ()))
            self._show(progress)
        progress.sync()
        boundary = self._boundary(tick, done, progress)
        boundaries.save(run.folder, boundary, self._memory.digests)
        self._run_callbacks(boundary)
        progress.take_measured()
        leg = leg_end.leg_from(boundary, plan, self._leg, run.folder)
        step = leg_end.next_step(plan, leg, stopping=self._memory.stop.wanted, held=run.held)
        results = self._memory.results
        if results is not None:
            workers = [message.profile for role, message in done.items() if role.kind is RoleKind.WORKER]
            results.perf = sampler_perf([profile for profile in workers if profile], tick - self._leg.start)
            self._at_boundary(replace(run, leg=leg), step.stopped_at is not None)
            if results.met is not None and step.stopped_at is None:
                return NextStep(following=leg)  # `next_stage` finds that the stop rule is met
        return step

    def _finish_games(self, progress: RunProgress) -> NextStep:
        """Ends a round without learning; the next round, or a resumed run, begins at the tick of the longest match."""
        plan, folder = self._run.plan, self._run.folder
        leg, stopping = replace(self._leg, start=max(progress.ticks.values())), self._memory.stop.wanted
        if plan.config.rounds > 1 and not stopping:
            progress.sync()
            found = Boundary(tick=leg.start, journals=boundaries.journal_bytes(folder))
            boundaries.save(folder, found, self._memory.digests)
        return NextStep(stopped_at=leg.start) if stopping else NextStep(following=leg)

    def _boundary(self, tick: int, done: dict[Role, Done], progress: RunProgress) -> Boundary:
        """The boundary at the end of the leg; an idle policy that is a copy gets its own checkpoint."""
        plan, folder = self._run.plan, self._run.folder
        idle = leg_end.idle_policies(tick, plan, self._leg, folder)
        for name, policy in idle.items():
            if policy.taken_from is not None:
                held = checkpoint.load(policy.taken_from, tensors=False)
                place = checkpoint.path_of(folder.checkpoints_path(name), policy.boundary)
                checkpoint.write(place, replace(held, policy=name, boundary=policy.boundary))
        return leg_end.boundary_at(
            tick,
            plan,
            done,
            updates=progress.updates,
            seconds=progress.seconds,
            idle=idle,
            journals=boundaries.journal_bytes(folder),
        )

    def _run_callbacks(self, boundary: Boundary) -> None:
        callbacks = self._memory.callbacks
        if callbacks is None:
            return
        files = {name: boundary.checkpoint(self._run.folder, name) for name in boundary.checkpoints}
        callbacks.checkpoint(boundary.tick, files)
        if boundary.tick >= self._run.plan.ticks:
            callbacks.round(self._run.plan.round, boundary.tick)


def _failed(message: str, *, exit_code: int) -> RoleFailed:
    return RoleFailed(Failed("root, rank 0", message, exit_code=exit_code))


def _format_exhausted(plan: Plan, exhausted: Exhausted) -> str:
    match = plan.matches[exhausted.match]
    return (
        f"match {match.match}, tick {exhausted.tick} of {plan.ticks}: no game of {match.env!r} will come any more "
        "(its `run` has returned); the remaining ticks are empty"
    )


def _format_left(plan: Plan, left: Left) -> str:
    return (
        f"policy {plan.seat(left.role).policy!r}, seat {left.role.seat} of match {left.role.match}: run() has "
        f"returned after {left.tick} of {plan.ticks} ticks; the seat idles"
    )
