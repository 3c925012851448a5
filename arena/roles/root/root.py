"""The root role: starts and ends the legs of a run, and records what the roles report.

wait for roles   a Ready message from each environment and worker; nothing is written before the first leg starts
record           Go to all roles; then Progress, Update, Left, ...    -> the run folder and the display
finish a leg     a Done message from each environment and worker      -> the boundary from which the run can continue;
                 Next to all roles: the next leg, or the end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice, repeat
from typing import Any

from arena.diagnostics.profile import Activity, RoleProfile
from arena.errors import MISTAKE, ConfigError
from arena.league.round_text import change_text, round_text
from arena.plan.plan import ROOT, Role, RoleKind
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.records.formats import Boundary, ExternalPlace, GamesLine, round_of
from arena.records.journal import Journal, JournalReader
from arena.records.metrics import UpdateRecord
from arena.records.recorder import Recorder
from arena.records.results import sampler_perf
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import (
    BudgetExhausted,
    Done,
    Failed,
    Go,
    Left,
    Next,
    Notice,
    Progress,
    Ready,
    Restarted,
    RoleFailed,
    Stopping,
)
from arena.roles.root import legs
from arena.roles.root.early_stop import EarlyStop
from arena.roles.root.legs import NextStep, check_playable
from arena.roles.root.progress import RunProgress, log_restart, record_place
from arena.roles.root.watchdog import Watchdog
from arena.roles.run import Run
from arena.roles.state import Display, ProfileKey, RunState
from arena.transport import ANY_SOURCE, Endpoint, Tag
from arena.transport.pickling import pack, unpack

POLL_SECONDS = 0.25
"""The longest time for which the root waits for a message before it checks the watchdog and stop requests."""

_REPORT_SECONDS = 5.0  # between two lines about a start that takes long


class Root:
    """The root of a run; `memory.stop` has the requests to end the run early.

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
        self._stopwatch = run.stopwatch(endpoint)
        self._others = [role for role in run.roles if role.kind is not RoleKind.ROOT]
        self._leg = run.leg  # the leg that is prepared or played
        self._ready: dict[Role, Ready] = {}
        self._early: list[Any] = []  # messages that arrived before all roles were ready
        self._stateless: set[str] = set()  # policies without checkpoints
        self.scoreboard = memory.scoreboard or Scoreboard(run.plan.players())

    @property
    def resumable(self) -> bool:
        """Whether the state of every role can be saved and loaded; known when all roles are ready."""
        return all(message.resumable for message in self._ready.values())

    def wait_until_ready(self, *, report: bool = False) -> None:
        """Waits until all roles are ready for the leg, and checks that it can be played; else raises `RoleFailed`.

        With `report` the display says every few seconds how many are ready, if several processes start.
        """
        report = report and self._run.plan.processes > 1
        ready = self._ready = dict[Role, Ready]()
        early: list[Any] = []
        last, messages = time.monotonic(), self._messages()
        while len(ready) < len(self._others):
            message = next(messages)
            if isinstance(message, Ready):
                ready[message.role] = message
                if report and time.monotonic() > last + _REPORT_SECONDS and len(ready) < len(self._others):
                    last = time.monotonic()
                    self._display.message(
                        f"{1 + len(ready)} of {len(self._run.roles)} roles are ready, the others start"
                    )
            elif message is not None:
                early.append(message)
        self._early = early
        external = {one.role.match: one.external for one in ready.values()}
        self._memory.external = {match: kind for match, kind in external.items() if kind and match is not None}
        environments = (one for one in ready.values() if one.role.kind is RoleKind.ENVIRONMENT)
        self._memory.rules = {one.role.match: one.rule for one in environments if one.role.match is not None}
        with _refusals_reported():
            check_playable(self._run, ready.values())

    def record(
        self, recorder: Recorder, at_boundary: Callable[[Run, bool], None] = lambda _run, _stopped: None
    ) -> NextStep:
        """Plays and records legs until the run is complete, is stopped, or continues with new roles; returns how.

        Args:
            recorder: writes the run folder; that of a resumed run holds only what was recorded before this leg.
            at_boundary: called with the run at each boundary, and whether it is stopped there, if it has results.

        Raises:
            RoleFailed: a role failed.
        """
        self._at_boundary = at_boundary
        run, plan = self._run, self._run.plan
        progress = RunProgress(run, recorder, self.scoreboard)
        if self._memory.scoreboard is None:
            self.scoreboard.read(run.folder)
        try:
            self._display.start()
            if plan.config.round_count > 1 and not (run.begun and self._leg.start > plan.start):  # else already shown
                changes = change_text(next(islice(JournalReader(run.folder.rounds).made(round_of), plan.round, None)))
                played = self._memory.games if plan.round == 1 else None
                for line in () if played is None else played.read(0).without_winner:
                    self._display.message(line)
                self._display.message("; ".join([round_text(plan), *changes]))
            while (step := self._play(progress)).leg is not None:
                self._leg = step.leg
                self.wait_until_ready()
        finally:
            self._memory.scoreboard = self.scoreboard
            self._display.stop()
        for name in sorted(self._stateless):
            self._display.message(f"no checkpoints of {name!r}: its algorithm has no state_dict()")
        self._add_profile(ROOT, self._stopwatch.profile())
        return step

    def _play(self, progress: RunProgress) -> NextStep:
        """Plays and records a leg for which all roles are ready."""
        plan, memory, stop, results = self._run.plan, self._memory, self._memory.stop, self._memory.results
        until = legs.planned_end(self._run, self._leg.start, resumable=self.resumable)
        memory.resumable = self.resumable
        self._send_all(repeat(pack(Go(until))))
        if results is not None:
            results.begin_leg(self._leg.start, until, self._leg.left)
        early_stop = EarlyStop(self._endpoint, self._run, self._leg, until)
        messages = self._messages()
        playing = {name: len(policy.workers) for name, policy in plan.policies.items()}  # workers without a Done
        done: dict[Role, Done] = {}
        while len(done) < len(self._others):
            message = next(messages)
            if not early_stop.requested:
                if stop.requested:
                    again = "" if stop.requeue or stop.number is None else "; Ctrl-C again ends it at once, unsaved"
                    self._display.message(f"{stop.phrase}: the run ends as soon as it is saved{again}")
                    early_stop.ask(progress.ticks)
                elif results is not None and results.met is not None and (results.met.by_clock or not self.resumable):
                    early_stop.ask(progress.ticks)  # the rule does not wait for the leg's end
            if not isinstance(message, Done):
                if message is not None:
                    self._handle(message, progress, early_stop)
                continue
            done[message.role] = message
            self._add_profile(message.role, message.profile)
            if message.stateless:
                self._stateless.add(plan.seat(message.role).policy)
            if message.role.seat is not None and results is not None:
                policy = plan.seat(message.role).policy
                playing[policy] -= 1
                if playing[policy] == 0:
                    results.leave(policy)
        step = self._finish_leg(early_stop.until, until, done, progress)
        self._send_all(pack(Next(leg)) for leg in legs.parts(step.leg, self._others))
        return step

    def _send_all(self, messages: Iterable[bytes]) -> None:
        """Sends to each environment and worker its message."""
        for role, message in zip(self._others, messages, strict=False):
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, message)

    def _add_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            self._memory.add_profile(ProfileKey.of(self._run.plan, role), profile)

    def _messages(self) -> Iterator[Any]:
        """The roles' messages, first those that arrived early; None after POLL_SECONDS without one."""
        early, self._early = self._early, []
        yield from early
        watchdog = self._watchdog
        watchdog.begin()
        while True:
            self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
            received = self._endpoint.listen(ANY_SOURCE, Tag.TO_ROOT, min(watchdog.seconds_to_check, POLL_SECONDS))
            message = None
            if received is not None:
                self._stopwatch.switch(Activity.RECORDING)
                message = unpack(received[1])
                if not isinstance(message, Failed):
                    watchdog.note_message(received[0], message)
            failure = message if isinstance(message, Failed) else watchdog.check()
            if failure is not None:
                raise RoleFailed(failure)
            yield message

    def _handle(self, message: Any, progress: RunProgress, early_stop: EarlyStop) -> None:
        """Records and shows a message that comes during a leg."""
        plan, show = self._run.plan, self._display.message
        if isinstance(message, Progress):
            progress.advance(message)
        elif isinstance(message, UpdateRecord):
            progress.update(message)
        elif isinstance(message, Stopping):
            if awaited := early_stop.receive(message, progress.ticks):
                show(awaited)
        elif isinstance(message, Notice):
            show(message.text)
        elif isinstance(message, Restarted):
            show(log_restart(self._run.folder, message, plan))
        elif isinstance(message, ExternalPlace):
            for line in record_place(self._run.folder, message):
                show(line)
        elif isinstance(message, GamesLine):
            with closing(Journal(self._run.folder.games)) as journal:
                journal.extend([message])
            match = plan.matches[message.match]
            progress.recorder.draw_reported(message, match.env)
            self.scoreboard.games[match.match] = message.text(match.lanes)
        elif isinstance(message, BudgetExhausted):
            show(
                f"match {message.match}, tick {message.tick} of {plan.ticks}: no game of "
                f"{plan.matches[message.match].env!r} will come any more (its `run` has returned); the remaining ticks "
                "are empty"
            )
        elif isinstance(message, Left):
            show(
                f"policy {plan.seat(message.role).policy!r}, seat {message.role.seat} of match {message.role.match}: "
                f"run() has returned after {message.tick} of {plan.ticks} ticks; the seat idles"
            )
        self._show(progress)

    def _show(self, progress: RunProgress) -> None:
        progress.recorder.poll()
        self._display.update(progress.done, self.scoreboard)

    def _finish_leg(self, tick: int, planned: int, done: dict[Role, Done], progress: RunProgress) -> NextStep:
        """Saves the boundary at the end of a leg; returns how the run continues from it."""
        run, plan, folder, memory = self._run, self._run.plan, self._run.folder, self._memory
        if run.episodes is not None:  # no policy learns; what follows begins at the tick of the longest match
            leg = replace(self._leg, start=max(progress.ticks.values()))
            if plan.config.round_count > 1 and not memory.stop.requested:
                progress.recorder.sync()
                found = Boundary(tick=leg.start, journals=boundaries.journal_bytes(folder))
                boundaries.save(folder, found, memory.digests)
            return legs.next_step(run, leg, stopping=memory.stop.requested)
        if tick == planned:  # in a leg that was cut short workers may not have synchronized yet
            with _refusals_reported(), run.origin.located():
                legs.check_synchronized(tick, plan, done, self._leg.left)
        progress.end_leg(tick)
        self._show(progress)
        progress.recorder.sync()
        idle: dict[str, int] = {}
        for name, path in legs.idle_checkpoints(plan, self._leg, folder).items():
            idle[name] = checkpoint.ticks_of(path)
            if path.parent != folder.checkpoints_path(name):  # a copy of another policy gets its own checkpoint
                idle[name] = tick
                copied = replace(checkpoint.load(path, tensors=False), policy=name, boundary=tick)
                checkpoint.write(checkpoint.path_of(folder.checkpoints_path(name), tick), copied)
        boundary = legs.boundary_at(
            tick,
            plan,
            done,
            episodes=self._leg.episodes,  # also of lanes that a resume has left out, and another may bring back
            updates=progress.updates,
            seconds=progress.seconds,
            idle=idle,
            journals=boundaries.journal_bytes(folder),
        )
        boundaries.save(folder, boundary, memory.digests)
        if memory.callbacks is not None:
            memory.callbacks.checkpoint(
                tick, {name: boundary.checkpoint(folder, name) for name in boundary.checkpoints}
            )
            if tick >= plan.ticks:
                memory.callbacks.round(plan.round, tick)
        progress.recorder.take_measured()
        leg = legs.leg_from(boundary, plan, self._leg, folder, done)
        step = legs.next_step(run, leg, stopping=memory.stop.requested)
        results = memory.results
        if results is not None:
            workers = [message.profile for role, message in done.items() if role.kind is RoleKind.WORKER]
            results.perf = sampler_perf([profile for profile in workers if profile], tick - self._leg.start)
            self._at_boundary(replace(run, leg=leg), step.stopped_at is not None)
            if results.met is not None and step.stopped_at is None:
                return NextStep(following=leg)  # `next_stage` finds that the stop rule is met
        return legs.next_step(run, leg, stopping=memory.stop.requested)  # `on_result` may have asked for it


@contextmanager
def _refusals_reported() -> Iterator[None]:
    """Ends the run with the message of a configuration error."""
    try:
        yield
    except ConfigError as error:
        raise RoleFailed(Failed("root, rank 0", str(error), MISTAKE, logs_useless=True)) from error
