"""The root role: it waits until everybody is ready, says go, and writes down what happens.

gathering   one Ready per environment and worker; nothing is written yet
recording   Go to everybody; Progress, Update, Left     -> the run folder and the display
ending      one Done per environment and worker
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arena.comm import ANYONE, Endpoint, Tag
from arena.errors import ArenaError
from arena.messages import Done, Failed, Go, Left, Progress, Ready, Update, pack, unpack
from arena.plan import Role, RoleKind
from arena.records.episode_line import episode_of
from arena.records.journal import kept_lines
from arena.records.recorder import Recorder
from arena.records.results import in_parts, results_of
from arena.records.scoreboard import Scoreboard
from arena.run import Run
from arena.screen.display import Display
from arena.stopwatch import Activity, RoleProfile, stopwatch


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
    """

    def __init__(self, endpoint: Endpoint, run: Run, display: Display) -> None:
        self._endpoint = endpoint
        self._run = run
        self._display = display
        self._ticks = dict.fromkeys(range(len(run.plan.matches)), run.start_tick)
        self._others = {role for role in run.roles if role.kind is not RoleKind.ROOT}
        self._heard: dict[type[Ready] | type[Done], set[Role]] = {Ready: set(), Done: set()}
        self._stopwatch = stopwatch(run.profile)
        self._early: list[Any] = []  # what was said before everybody was ready
        self._stateless: set[str] = set()  # policies that have no checkpoints
        self.profiles: dict[Role, RoleProfile] = {}
        self.scoreboard = Scoreboard(run.plan.policies)

    def gather(self) -> None:
        """Waits until everybody is ready.

        Raises:
            RoleFailed: somebody could not begin.
        """
        self._await(Ready, self._early.append)

    def record(self, recorder: Recorder) -> None:
        """Lets everybody begin, and writes down what happens until all are done.

        Args:
            recorder: writes the run folder, which has the episodes before a resumed run alone.

        Raises:
            RoleFailed: somebody could not go on.
        """
        before = kept_lines(self._run.folder.episodes, keep=lambda _: True)
        for part in in_parts(episode_of(line) for _, line in before):
            self.scoreboard.add(results_of(part))
        for role in sorted(self._others, key=self._run.address):
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, pack(Go()))
        self._display.start()
        try:
            for message in self._early:
                self._note(message, recorder)
            self._await(Done, lambda message: self._note(message, recorder))
        finally:
            self._display.stop()
        for name in sorted(self._stateless):
            self._display.message(f"no checkpoints of {name!r}: its algorithm has no state_dict()")
        self._keep_profile(Role(RoleKind.ROOT), self._stopwatch.profile())

    def _await(self, last_word: type[Ready] | type[Done], note: Callable[[Any], None]) -> None:
        while self._heard[last_word] != self._others:
            self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
            _, data = self._endpoint.receive(ANYONE, Tag.TO_ROOT)
            self._stopwatch.switch(Activity.RECORDING)
            message = unpack(data)
            if isinstance(message, Failed):
                raise RoleFailed(message)
            if isinstance(message, Done):
                self._take_leave(message)
            if isinstance(message, (Ready, Done)):
                self._heard[type(message)].add(message.role)
            else:
                note(message)

    def _take_leave(self, message: Done) -> None:
        self._keep_profile(message.role, message.profile)
        if message.stateless:
            self._stateless.add(self._run.plan.seat(message.role).policy)

    def _keep_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            self.profiles[role] = profile

    def _note(self, message: Any, recorder: Recorder) -> None:
        if isinstance(message, Progress):
            self._ticks[message.match] = message.tick
            self.scoreboard.add(recorder.episodes(message.episodes))
        elif isinstance(message, Update):
            recorder.update(message.record)
            self.scoreboard.update(message.record)
        elif isinstance(message, Left):
            self._display.message(self._left_words(message))
        recorder.poll()
        self._display.update(sum(self._ticks.values()), self.scoreboard)

    def _left_words(self, left: Left) -> str:
        plan = self._run.plan
        return (
            f"policy {plan.seat(left.role).policy!r}, seat {left.role.seat} of match {left.role.match}: run() has "
            f"returned after {left.tick} of {plan.ticks} ticks; the seat idles"
        )
