"""The root role: it leads the others from leg to leg, and writes down what happens.

gathering   one Ready per environment and worker; before the first leg nothing is written yet
recording   Go to everybody; Progress, Update, Left     -> the run folder and the display
concluding  one Done per environment and worker         -> the boundary from which the run can go on
            Next to everybody: another leg, or the end
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, replace
from itertools import islice
from typing import Any

from arena.comm import ANYONE, Endpoint, Tag
from arena.errors import ArenaError, ConfigError, located
from arena.leg import Leg
from arena.memory import Memory, Standing
from arena.messages import Done, Failed, Go, Left, Next, Progress, Ready, Restarted, Stopping, Update, pack, unpack
from arena.plan import Role, RoleKind
from arena.records import boundary as boundaries
from arena.records.boundary import Boundary
from arena.records.checkpoint import duplicate, path_of, ticks_of
from arena.records.episode_line import episode_of
from arena.records.faults import FaultKind, FaultLog, process_faults
from arena.records.journal import JournalReader, kept_lines
from arena.records.lines import EpisodeRow, column
from arena.records.recorder import Recorder
from arena.records.results import in_parts, results_of
from arena.records.scoreboard import Scoreboard
from arena.roles.early_end import EarlyEnd
from arena.roles.watch import Watch
from arena.run import Repair, Run
from arena.schedule import EPISODES, prove
from arena.screen.display import Display
from arena.screen.profile import Profiled
from arena.screen.words import change_words, counted, round_words, some_words
from arena.stopwatch import Activity, RoleProfile, stopwatch
from arena.succession import seats_of

_match, _lane, _episode, _tick = column("match"), column("lane"), column("episode"), column("tick")
_round = column("round")
_LOOK_SECONDS = 0.25  # how often the root looks whether it is to end the run
_log = logging.getLogger(__name__)


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
    """

    def __init__(self, endpoint: Endpoint, run: Run, display: Display, memory: Memory) -> None:
        self._endpoint = endpoint
        self._run = run
        self._display = display
        self._memory = memory
        self._stop = memory.stop
        self._leg = run.leg
        self._ticks = {match.match: run.leg.tick_of(match.match) for match in run.plan.matches}
        self._others = {role for role in run.roles if role.kind is not RoleKind.ROOT}
        self._ready: dict[Role, Ready] = {}
        self._done: dict[Role, Done] = {}
        self._watch = Watch(endpoint, run)
        self._stopwatch = stopwatch(run.profile)
        self._end: EarlyEnd | None = None  # of the leg that is played
        self._early: list[Any] = []  # what was said before everybody was ready
        self._updates, self._seconds = dict(run.leg.updates), dict(run.leg.seconds)  # by policy
        self._counts = {
            match.match: [run.leg.episodes.get((match.match, lane), 0) for lane in range(match.lanes)]
            for match in run.plan.matches
        }  # episodes that have ended, by match and lane
        self._recorded: dict[str, int] = {}  # after a repair: per policy the newest update on record
        self._stateless: set[str] = set()  # policies that have no checkpoints
        self.following: Leg | None = None  # what the run goes on with when its policies have been evaluated
        self.stopped_at: int | None = None  # the tick at which the run can be taken up again, if it was asked to end
        self.profiles = memory.profiles
        self.scoreboard = memory.scoreboard or Scoreboard(run.plan.players())

    @property
    def ticks(self) -> dict[int, int]:
        """Per match how far it has come."""
        return dict(self._ticks)

    def gather(self) -> None:
        """Waits until everybody is ready for the leg.

        Raises:
            RoleFailed: somebody could not begin, or the plan can deadlock, or that of a later round.
        """
        self._await(self._ready, self._early.append)
        self._memory.schedules |= self._schedules()
        if not self.resumable:
            self._refuse_fragility()
        if not self._run.allow_unproved:
            self._refuse_deadlock()
            if not self._run.begun and self._leg is self._run.leg:
                self._refuse_standstill()

    def _refuse_fragility(self) -> None:
        """Ends a run before anybody plays that asks for what needs states which can be saved and loaded."""
        plan = self._run.plan
        names = sorted({plan.seat(role).policy for role, ready in self._ready.items() if not ready.resumable})
        try:
            with located(source=self._run.source):
                plan.refuse_fragile(names)
        except ConfigError as refusal:
            raise RoleFailed(Failed("root, rank 0", str(refusal), exit_code=2)) from refusal

    def _refuse_deadlock(self) -> None:
        """Ends a run that can deadlock before anybody plays; the algorithms have said when they meet."""
        proof = prove(self._run.plan, self._schedules())
        if proof.circle is not None:
            refusal = ConfigError(proof.refusal, source=self._run.source)
            raise RoleFailed(Failed("root, rank 0", str(refusal), exit_code=2))

    def _refuse_standstill(self) -> None:
        """Ends a league a later round of which can deadlock; all who may play then have said when they meet.

        Of a run that is resumed somebody may have no seat now; it has been asked when the run began.
        """
        run = self._run
        if run.plan.rounds == 1 or EPISODES not in self._memory.schedules.values():
            return
        from arena.config import parse_config, yaml_text  # where nobody meets at ends of episodes it is not asked
        from arena.outlook import refuse_standstill

        try:
            with located(source=run.source):
                config = parse_config(yaml_text.load(run.config, source=run.source), source=run.source)
                refuse_standstill(config, self._memory.schedules, processes=run.plan.processes)
        except ConfigError as refusal:
            raise RoleFailed(Failed("root, rank 0", str(refusal), exit_code=2)) from refusal

    def _schedules(self) -> dict[str, str]:
        """By policy that learns when its workers meet, as they have said."""
        plan = self._run.plan
        workers = ((plan.seat(role).policy, ready) for role, ready in self._ready.items() if role.seat is not None)
        return {name: ready.schedule for name, ready in workers if not plan.policies[name].frozen}

    def dismiss(self) -> None:
        """Lets everybody go who was ready: it was a rehearsal."""
        self._tell(Go(self._run.plan.ticks))
        self._await(self._done, lambda message: None)
        self._tell(Next(None))

    def record(self, recorder: Recorder) -> None:
        """Lets everybody begin, and writes down what happens until the last leg is over.

        Args:
            recorder: writes the run folder, which has the episodes before a resumed run alone.

        Raises:
            RoleFailed: somebody could not go on.
        """
        self._read_records(recorder)
        self._display.start()
        plan = self._run.plan
        if plan.rounds > 1 and not (self._run.begun and self._leg.start > plan.start):  # else it was said
            self._display.message("; ".join([round_words(plan), *self._changes()]))
        try:
            while self._play(recorder):
                self.gather()
        except BaseException:
            for match, counts in self._counts.items():
                self._memory.note(match, Standing(self._ticks[match], tuple(counts)))
            raise
        finally:
            self._memory.scoreboard, self._memory.counts = self.scoreboard, self._counts
            self._display.stop()
        for name in sorted(self._stateless):
            self._display.message(f"no checkpoints of {name!r}: its algorithm has no state_dict()")
        self._keep_profile(Role(RoleKind.ROOT), self._stopwatch.profile())

    def _changes(self) -> list[str]:
        """What has become of whom when the round began."""
        line = next(islice(JournalReader(self._run.folder.rounds), self._run.plan.round, None))
        return change_words(line)

    def _read_records(self, recorder: Recorder) -> None:
        """What the run has on record from before; what a repair has found beside it is added."""
        if self._memory.scoreboard is None:
            self._counts = {match: [0] * len(counts) for match, counts in self._counts.items()}
            before = kept_lines(self._run.folder.episodes, keep=lambda _: True)
            for part in in_parts(episode_of(line) for _, line in before):
                self.scoreboard.add(results_of(part))
                self._count(row for row in part if self._goes_on(row))
        else:
            self._counts |= {match: list(counts) for match, counts in self._memory.counts.items()}
        for row in sorted(self._run.leg.recent, key=_tick):
            match, lane, number = _place(row)
            if number >= self._counts[match][lane]:
                self._note(Progress(match, self._ticks[match], (row,)), recorder)
        if self._run.repairs:
            self._note_repairs()

    def _note_repairs(self) -> None:
        """Those that are not yet on record; and which updates are, so that none is told twice."""
        for words in note_repairs(self._run):
            self._display.message(words)
        found = boundaries.last(self._run.folder)
        if found is None or not self._run.folder.metrics.exists():
            return
        self._recorded = dict(found.updates)
        for line in JournalReader(self._run.folder.metrics, start=found.journals[self._run.folder.metrics.name]):
            self._recorded[line["policy"]] = line["update"]

    def _goes_on(self, row: EpisodeRow) -> bool:
        """Whether the lane of an episode plays on: it is of this round, and its copy and lane are still there."""
        lanes = self._counts.get(_match(row), ())
        return bool(_round(row) == self._run.plan.round and _lane(row) < len(lanes))

    def _count(self, episodes: Iterable[EpisodeRow]) -> None:
        for row in episodes:
            match, lane, number = _place(row)
            self._counts[match][lane] = number + 1

    def _play(self, recorder: Recorder) -> bool:
        """Records a leg for which everybody is ready; whether there is another one."""
        until, repairable = self._end_of_leg(), self.resumable
        self._memory.go(self._leg, repairable=repairable)
        self._tell(Go(until, repairable))
        self._end = EarlyEnd(self._endpoint, self._run, self._leg, until, repairable=repairable)
        early, self._early = self._early, []
        for message in early:
            self._note(message, recorder)
        self._await(self._done, lambda message: self._note(message, recorder))
        leg = self._conclude(self._end.until, recorder)
        self._tell(Next(leg))
        self._ready, self._done = {}, {}
        if leg is not None:
            self._leg = leg
        return leg is not None

    def _tell(self, message: Go | Next) -> None:
        for role in sorted(self._others, key=self._run.address):
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, pack(message))

    def _end_of_leg(self) -> int:
        """The next boundary; the last tick where somebody's learning would not survive it."""
        plan = self._run.plan
        if self._run.episodes is not None or not self.resumable:
            return plan.ticks
        return min((self._leg.start // plan.checkpoint_every + 1) * plan.checkpoint_every, plan.ticks)

    @property
    def resumable(self) -> bool:
        """Whether all that is learnt can be saved and loaded, once everybody is ready."""
        return all(ready.resumable for ready in self._ready.values())

    def _conclude(self, tick: int, recorder: Recorder) -> Leg | None:
        """Writes down that the run can go on from here; the leg that does, None at the end."""
        if self._run.episodes is not None:
            self._end_of_episodes(recorder)
            return None
        for match in self._ticks:  # also one that nobody plays any more
            self._note(Progress(match, tick, ()), recorder)
        recorder.sync()
        boundary = self._boundary(tick)
        boundaries.save(self._run.folder, boundary)
        self._tell_callbacks(boundary)
        plan = self._run.plan
        if self._stop.wanted and tick < plan.horizon:
            self.stopped_at = tick
            return None
        leg = boundary.leg(self._run.folder)
        given = {name: path for name, path in self._leg.restore.items() if plan.policies[name].frozen}
        leg = replace(leg, restore={**given, **leg.restore})
        if plan.evaluates_at(tick) or plan.ticks <= tick < plan.horizon:
            self.following = leg
            return None
        return leg if tick < plan.ticks else None

    def _end_of_episodes(self, recorder: Recorder) -> None:
        """Nobody has learnt; another round goes on where the longest match has ended, also when the run is resumed."""
        reached, plan = max(self._ticks.values()), self._run.plan
        if self._stop.wanted:
            self.stopped_at = reached
            return
        if plan.rounds > 1:
            recorder.sync()
            journals = boundaries.journal_bytes(self._run.folder)
            boundaries.save(self._run.folder, Boundary(tick=reached, journals=journals))
        if plan.round + 1 < plan.rounds:
            self.following = replace(self._leg, start=reached)

    def _tell_callbacks(self, boundary: Boundary) -> None:
        callbacks = self._memory.callbacks
        if callbacks is None:
            return
        files = {name: boundary.checkpoint(self._run.folder, name) for name in boundary.checkpoints}
        callbacks.checkpoint(boundary.tick, files)
        if boundary.tick >= self._run.plan.ticks:
            callbacks.round(self._run.plan.round)

    def _boundary(self, tick: int) -> Boundary:
        """What all have said of themselves at the end of a leg."""
        return Boundary(
            tick=tick,
            episodes=[
                (role.match, lane, count)
                for role, done in self._done.items()
                for lane, count in enumerate(done.episodes)
                if role.match is not None and count
            ],
            updates=self._updates,
            seconds=self._seconds,
            left=sorted(
                (role.match, role.seat)
                for role, done in self._done.items()
                if role.match is not None and role.seat is not None and done.returned
            ),
            seats=seats_of(self._run.plan),
            checkpoints={**self._resting(tick), **self._saved(tick)},
            journals=boundaries.journal_bytes(self._run.folder),
        )

    def _resting(self, tick: int) -> dict[str, int]:
        """Per policy that has learnt in earlier rounds and does not play in this one the boundary of its checkpoint.

        One that has become a copy of another has that one's, which will be forgotten: it gets a duplicate.
        """
        folder, found = self._run.folder, {}
        for name, path in self._leg.restore.items():
            if self._run.plan.policies[name].workers or path.parent.parent != folder.checkpoints:
                continue
            own = folder.checkpoints_path(name)
            found[name] = ticks_of(path) if path.parent == own else tick
            if path.parent != own:
                duplicate(path, path_of(own, tick))
        return found

    def _saved(self, tick: int) -> dict[str, int]:
        """Per policy the boundary whose checkpoint has its newest state.

        Who has left a leg that ends early has written its checkpoint for the end that it knew of.
        """
        saved: dict[str, list[int]] = {}
        for role, done in self._done.items():
            if done.saved is not None:
                saved.setdefault(self._run.plan.seat(role).policy, []).append(done.saved)
        return {name: tick if tick in written else max(written) for name, written in saved.items()}

    def _await(self, last_words: dict[Role, Ready] | dict[Role, Done], note: Callable[[Any], None]) -> None:
        self._watch.begin()
        while len(last_words) < len(self._others):
            message = self._hear()
            if isinstance(message, Ready):
                self._ready[message.role] = message
            elif isinstance(message, Done):
                self._take_leave(message)
            else:
                note(message)

    def _hear(self) -> Any:
        """The next message, for which the root keeps watch over everybody."""
        self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
        while (letter := self._endpoint.listen(ANYONE, Tag.TO_ROOT, min(self._watch.patience, _LOOK_SECONDS))) is None:
            self._keep_watch()
            self._consider_stop()
        self._stopwatch.switch(Activity.RECORDING)
        source, data = letter
        message = unpack(data)
        if isinstance(message, Failed):
            raise RoleFailed(message)
        self._watch.moved(source, message)
        self._keep_watch()
        self._consider_stop()
        return message

    def _keep_watch(self) -> None:
        failure = self._watch.look()
        if failure is not None:
            raise RoleFailed(failure)

    def _consider_stop(self) -> None:
        """Lets the leg end soon if the run is to end, once everybody plays."""
        end, playing = self._end, len(self._ready) == len(self._others)
        if self._stop.wanted and playing and end is not None and not end.asked:
            self._display.message(f"{self._stop.words}: the run ends as soon as it is saved")
            end.ask(self._ticks)

    def _take_leave(self, message: Done) -> None:
        self._done[message.role] = message
        self._keep_profile(message.role, message.profile)
        if message.stateless:
            self._stateless.add(self._run.plan.seat(message.role).policy)

    def _keep_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            key = Profiled.of(self._run.plan, role)
            before = self.profiles.get(key)
            self.profiles[key] = profile if before is None else before.plus(profile)

    def _note(self, message: Any, recorder: Recorder) -> None:
        if isinstance(message, Progress):
            self._ticks[message.match] = message.tick
            if self._memory.keeps:
                self._count(message.episodes)
            self.scoreboard.add(recorder.episodes(message.match, message.tick, message.episodes, last=message.last))
        elif isinstance(message, Update):
            if message.record.update > self._recorded.get(message.record.policy, 0):  # else it is made again
                recorder.update(message.record)
            self.scoreboard.update(message.record)
            self._updates[message.record.policy] = message.record.update
            self._seconds[message.record.policy] = message.record.seconds
        elif isinstance(message, Stopping) and self._end is not None:
            self._end.hear(message, self._ticks)
        elif isinstance(message, Restarted):
            self._note_restart(message)
        elif isinstance(message, Left):
            self._display.message(self._left_words(message))
        recorder.poll()
        self._display.update(sum(self._ticks.values()), self.scoreboard)

    def _note_restart(self, restarted: Restarted) -> None:
        match, tick, lanes, error, trace, seconds = astuple(restarted)
        _log.error("match %d, tick %d: the game has failed and was made anew\n%s", match, tick, trace)
        fields = {"match": match, "tick": tick, "lanes": lanes, "error": error, "seconds": round(seconds, 3)}
        FaultLog(self._run.folder.faults).append(FaultKind.ENVIRONMENT, fields)
        dropped = counted(len(lanes), "unfinished episode")
        self._display.message(f"match {match}, tick {tick}: the game was made anew, {dropped} dropped: {error}")

    def _left_words(self, left: Left) -> str:
        plan = self._run.plan
        return (
            f"policy {plan.seat(left.role).policy!r}, seat {left.role.seat} of match {left.role.match}: run() has "
            f"returned after {left.tick} of {plan.ticks} ticks; the seat idles"
        )


def _place(row: EpisodeRow) -> tuple[int, int, int]:
    """Match, lane and number of an episode."""
    return _match(row), _lane(row), _episode(row)


def note_repairs(run: Run) -> Iterator[str]:
    """Writes down the repairs of a run that are not on record yet, and says each in a line."""
    for repair in run.repairs[process_faults(run.folder.faults) :]:
        words = _repair_words(replace(run, plan=repair.plan), repair)
        seconds = time.monotonic() - repair.began
        _log.warning("%s", words)
        fields = {"ranks": repair.died, "done": words, "seconds": round(seconds, 3)}
        FaultLog(run.folder.faults).append(FaultKind.PROCESS, fields)
        yield f"{words}; repaired in {seconds:.2f} s"


def _repair_words(run: Run, repair: Repair) -> str:
    """What has happened and what was done, in a sentence; the run as it was played when it happened."""
    dead = [f"rank {rank} ({some_words([*map(run.describe, run.plan.ranks[rank])]) or 'idle'})" for rank in repair.died]
    where = f"rank{'s' * (len(repair.homes) > 1)} {', '.join(map(str, repair.homes))}"
    living = run.plan.processes - len(repair.died)
    words = f"{some_words(dead)} died; {counted(living, 'process goes on', 'processes go on')}, numbered anew"
    return words + (f"; what {'it' if len(dead) == 1 else 'they'} did is now on {where}" if repair.homes else "")
