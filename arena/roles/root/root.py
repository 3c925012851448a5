"""The root role: it leads the others from leg to leg, and writes down what happens.

gathering   one Ready per environment and worker; before the first leg nothing is written yet
recording   Go to everybody; Progress, Update, Left     -> the run folder and the display
concluding  one Done per environment and worker         -> the boundary from which the run can go on
            Next to everybody: another leg, or the end

The conversation is here. `hearing` takes the messages, `readiness` says what is refused, `ledger` knows how far all
have come, `mending` what has failed, and `leg_end` what follows from the last words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from arena.config import parse_config, yaml
from arena.config.members import needs_winners
from arena.diagnostics.profile import RoleProfile, stopwatch
from arena.errors import ArenaError, ConfigError, located, shorten
from arena.league.round_text import change_words, round_words
from arena.plan.plan import Plan, Role, RoleKind
from arena.records import boundary as boundaries
from arena.records.checkpoint import duplicate, path_of
from arena.records.formats import Boundary, round_of
from arena.records.journal import JournalReader
from arena.records.outcome import without_winner_words
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Done, Failed, Go, Left, Next, Progress, Ready, Restarted, Stopping, Update
from arena.roles.root import leg_end
from arena.roles.root.admission import check_playable, is_resumable
from arena.roles.root.early_stop import EarlyStop
from arena.roles.root.faults import note_restart
from arena.roles.root.hearing import Hearing
from arena.roles.root.leg_end import NextStep
from arena.roles.root.progress import RunProgress
from arena.roles.root.watchdog import Watchdog
from arena.run.display import Display
from arena.run.profiles import Profiled
from arena.run.recovery import RecoveryState
from arena.run.run import Run
from arena.transport import Endpoint, Tag
from arena.transport.messages import pack


class RoleFailed(ArenaError):
    """A role ended with an error; the run is over."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(f"{failure.who}\n{failure.message}")
        self.failure = failure


class Root:
    """The one that records a run.

    Args:
        endpoint: the root's place in the world.
        run: the run.
        display: shows how it goes.
        memory: keeps what it knows, for when the run goes on; its `stop` says whether to end before the last tick.

    Attributes:
        scoreboard: of all that is on record.
    """

    def __init__(self, endpoint: Endpoint, run: Run, display: Display, memory: RecoveryState) -> None:
        self._endpoint = endpoint
        self._run = run
        self._display = display
        self._memory = memory
        self._hearing = Hearing(endpoint, Watchdog(endpoint, run, tell=display.message), stopwatch(run.profile))
        self._others = [role for role in run.roles if role.kind is not RoleKind.ROOT]
        self._leg = run.leg  # that is played, or for which all get ready
        self._ready: dict[Role, Ready] = {}
        self._early: list[Any] = []  # what was said before everybody was ready
        self._stateless: set[str] = set()  # policies that have no checkpoints
        self.scoreboard = memory.scoreboard or Scoreboard(run.plan.players())

    @property
    def resumable(self) -> bool:
        """Whether all that is learned can be saved and loaded, once everybody is ready."""
        return is_resumable(self._ready.values())

    def gather(self) -> None:
        """Waits until everybody is ready for the leg.

        Raises:
            RoleFailed: a role could not begin, or the plan can deadlock.
        """
        ready: dict[Role, Ready] = {}
        news = self._news()
        while len(ready) < len(self._others):
            message = next(news)
            if isinstance(message, Ready):
                ready[message.role] = message
            else:
                self._early.append(message)
        self._ready = ready
        self._check_playable()

    def _check_playable(self) -> None:
        """Ends a run before anybody plays what cannot be played to its end."""
        try:
            check_playable(self._run, self._ready.values())
        except ConfigError as refusal:
            raise RoleFailed(Failed("root, rank 0", str(refusal), exit_code=2)) from refusal

    def record(self, recorder: Recorder) -> NextStep:
        """Lets everybody begin, and writes down what happens until the last leg is over.

        Args:
            recorder: writes the run folder, which has the episodes before a resumed run alone.

        Returns:
            how the run goes on without this root.

        Raises:
            RoleFailed: somebody could not go on.
        """
        ledger = self._opened(recorder)
        self._display.start()
        self._tell_round()
        try:
            while (way := self._play(ledger)).leg is not None:
                self._leg = way.leg
                self.gather()
        finally:
            self._memory.reach(max(ledger.ticks.values()))
            self._memory.scoreboard = self.scoreboard
            self._display.stop()
        for name in sorted(self._stateless):
            self._display.message(f"no checkpoints of {name!r}: its algorithm has no state_dict()")
        self._keep_profile(Role(RoleKind.ROOT), self._hearing.profile())
        return way

    def _opened(self, recorder: Recorder) -> RunProgress:
        """The ledger with what the run has on record."""
        run, memory = self._run, self._memory
        ledger = RunProgress(run, recorder, self.scoreboard)
        if memory.scoreboard is None:
            ledger.read()
        return ledger

    def _tell_round(self) -> None:
        """Says which round of a league begins, and what has become of whom."""
        run, plan = self._run, self._run.plan
        if plan.rounds > 1 and not (run.begun and self._leg.start > plan.start):  # else it was said
            changes = change_words(next(islice(JournalReader(run.folder.rounds).made(round_of), plan.round, None)))
            self._display.message("; ".join([round_words(plan), *changes]))

    def _play(self, ledger: RunProgress) -> NextStep:
        """Records a leg for which everybody is ready."""
        until, repairable = self._until(), self.resumable
        self._memory.begin_leg(repairable=repairable)
        self._tell(Go(until, repairable))
        end = EarlyStop(self._endpoint, self._run, self._leg, until, repairable=repairable)
        news = self._news(partial(self._consider_stop, ledger, end))
        done = self._last_words(news, partial(self._note, ledger, end))
        way = self._conclude(end.until, done, ledger)
        self._tell(Next(way.leg))
        return way

    def _until(self) -> int:
        """The tick at which the leg ends; the last one where somebody's learning would not survive an earlier end."""
        plan = self._run.plan
        if self._run.episodes is not None or not self.resumable:
            return plan.ticks
        return leg_end.next_boundary(plan, self._leg.start)

    def _tell(self, message: Go | Next) -> None:
        for role in self._others:
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, pack(message))

    # ------------------------------------------------------------------------------------------------- while they play

    def _news(self, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Any]:
        """What the others say, from what was said too early on; `meanwhile` is called every now and then.

        Raises:
            RoleFailed: somebody has failed, or does not come back.
        """
        early, self._early = self._early, []
        yield from early
        self._hearing.begin()
        while True:
            message = self._hearing.hear()
            if isinstance(message, Failed):
                raise RoleFailed(message)
            meanwhile()
            if message is not None:
                yield message

    def _last_words(self, news: Iterator[Any], note: Callable[[Any], None]) -> dict[Role, Done]:
        """What each of the others says when it has nothing more to do; what is said until then is noted."""
        done: dict[Role, Done] = {}
        while len(done) < len(self._others):
            message = next(news)
            if isinstance(message, Done):
                done[message.role] = message
                self._take_leave(message)
            else:
                note(message)
        return done

    def _take_leave(self, message: Done) -> None:
        self._keep_profile(message.role, message.profile)
        if message.stateless:
            self._stateless.add(self._run.plan.seat(message.role).policy)

    def _keep_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            self._memory.add_profile(Profiled.of(self._run.plan, role), profile)

    def _consider_stop(self, ledger: RunProgress, end: EarlyStop) -> None:
        """Lets the leg end soon if the run is to end."""
        stop = self._memory.stop
        if stop.wanted and not end.asked:
            self._display.message(f"{stop.words}: the run ends as soon as it is saved")
            end.ask(ledger.ticks)

    def _note(self, ledger: RunProgress, end: EarlyStop, message: Any) -> None:
        if isinstance(message, Progress):
            ledger.progress(message)
        elif isinstance(message, Update):
            ledger.update(message.record)
        elif isinstance(message, Stopping):
            end.hear(message, ledger.ticks)
        elif isinstance(message, Restarted):
            self._display.message(note_restart(self._run.folder, message))
        elif isinstance(message, Left):
            self._display.message(_left_words(self._run.plan, message))
        self._show(ledger)

    def _show(self, ledger: RunProgress) -> None:
        ledger.poll()
        while ledger.without_winner:
            self._without_winner(ledger.without_winner.pop())
        self._display.update(ledger.done, self.scoreboard)

    def _without_winner(self, env: str) -> None:
        """Says that a game has shown that it has no winners, unless a rule has been set for it since.

        Raises:
            RoleFailed: the rounds of the league depend on who has won.
        """
        run, shown = self._run, self.scoreboard.winners.without[env]
        if all(match.outcome is not None for match in run.plan.matches if match.env == env):
            return
        needed = needs_winners(parse_config(yaml.load(run.config, source=run.source), source=run.source), env)
        if needed:
            words = f"{without_winner_words(shown)}; {shorten(needed)} cannot do without"
            raise RoleFailed(Failed("root, rank 0", words, exit_code=1))
        self._display.message(without_winner_words(shown))

    # --------------------------------------------------------------------------------------------- when they have ended

    def _conclude(self, tick: int, done: dict[Role, Done], ledger: RunProgress) -> NextStep:
        """Writes down that the run can go on from here, and says how it does."""
        if self._run.episodes is not None:
            return self._conclude_games(ledger)
        if tick == self._until():  # in a leg that was cut workers may not have met because of that
            self._refuse_loss(tick, done)
        for match in ledger.ticks:  # also one that nobody plays any more
            ledger.progress(Progress(match, tick, ()))
            self._show(ledger)
        ledger.sync()
        boundary = self._boundary(tick, done, ledger)
        boundaries.save(self._run.folder, boundary)
        self._tell_callbacks(boundary)
        leg = leg_end.leg_from(boundary, self._run.plan, self._leg, self._run.folder)
        return leg_end.next_step(self._run.plan, leg, stopping=self._memory.stop.wanted)

    def _refuse_loss(self, tick: int, done: dict[Role, Done]) -> None:
        try:
            with located(source=self._run.source):
                leg_end.refuse_loss(tick, self._run.plan, done, self._leg.left)
        except ConfigError as refusal:
            raise RoleFailed(Failed("root, rank 0", str(refusal), exit_code=2)) from refusal

    def _conclude_games(self, ledger: RunProgress) -> NextStep:
        """Nobody has learned; another round goes on where the longest match has ended, also when the run is resumed."""
        plan, folder = self._run.plan, self._run.folder
        leg, stopping = replace(self._leg, start=max(ledger.ticks.values())), self._memory.stop.wanted
        if plan.rounds > 1 and not stopping:
            ledger.sync()
            boundaries.save(folder, Boundary(tick=leg.start, journals=boundaries.journal_bytes(folder)))
        return leg_end.next_step_after_games(plan, leg, stopping=stopping)

    def _boundary(self, tick: int, done: dict[Role, Done], ledger: RunProgress) -> Boundary:
        """That of the leg; who does not play has its checkpoint there, too."""
        plan, folder = self._run.plan, self._run.folder
        resting = leg_end.resting_at(tick, plan, self._leg, folder)
        for name, rests in resting.items():
            if rests.taken_from is not None:
                duplicate(rests.taken_from, path_of(folder.checkpoints_path(name), rests.boundary))
        return leg_end.boundary_at(
            tick,
            plan,
            done,
            updates=ledger.updates,
            seconds=ledger.seconds,
            resting=resting,
            journals=boundaries.journal_bytes(folder),
        )

    def _tell_callbacks(self, boundary: Boundary) -> None:
        callbacks = self._memory.callbacks
        if callbacks is None:
            return
        files = {name: boundary.checkpoint(self._run.folder, name) for name in boundary.checkpoints}
        callbacks.checkpoint(boundary.tick, files)
        if boundary.tick >= self._run.plan.ticks:
            callbacks.round(self._run.plan.round)


def _left_words(plan: Plan, left: Left) -> str:
    return (
        f"policy {plan.seat(left.role).policy!r}, seat {left.role.seat} of match {left.role.match}: run() has "
        f"returned after {left.tick} of {plan.ticks} ticks; the seat idles"
    )
