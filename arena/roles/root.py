"""The root role: it waits until everybody is ready, says go, and writes down what happens.

gathering   one Ready per environment and worker        -> Go to the environments
recording   Progress, Update                            -> the run folder and the display
ending      one Done per environment and worker
"""

from __future__ import annotations

from typing import Any

from arena.comm import ANYONE, Endpoint, Tag
from arena.errors import ArenaError
from arena.messages import Done, Failed, Go, Progress, Ready, Update, pack, unpack
from arena.plan import Role, RoleKind
from arena.records.recorder import Recorder
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
        recorder: writes the run folder.
        display: shows how it goes.
    """

    def __init__(self, endpoint: Endpoint, run: Run, recorder: Recorder, display: Display) -> None:
        self._endpoint = endpoint
        self._run = run
        self._recorder = recorder
        self._display = display
        self._ticks = dict.fromkeys(range(len(run.plan.matches)), run.start_tick)
        self._others = {role for role in run.roles if role.kind is not RoleKind.ROOT}
        # A worker may be done before the slowest role is ready, so both words are kept from the beginning.
        self._heard: dict[type[Ready] | type[Done], set[Role]] = {Ready: set(), Done: set()}
        self._stopwatch = stopwatch(run.profile)
        self.profiles: dict[Role, RoleProfile] = {}
        self.scoreboard = Scoreboard(run.plan.policies)

    def watch(self) -> None:
        """The whole run.

        Raises:
            RoleFailed: somebody could not go on.
        """
        self._await(Ready)
        environments = [role for role in self._others if role.kind is RoleKind.ENVIRONMENT]
        for role in environments:
            self._endpoint.send(self._run.address(role), Tag.FROM_ROOT, pack(Go()))
        self._display.start()
        try:
            self._await(Done)
        finally:
            self._display.stop()
        self._keep_profile(Role(RoleKind.ROOT), self._stopwatch.profile())

    def _await(self, last_word: type[Ready] | type[Done]) -> None:
        while self._heard[last_word] != self._others:
            self._stopwatch.switch(Activity.WAITING_FOR_NEWS)
            _, data = self._endpoint.receive(ANYONE, Tag.TO_ROOT)
            self._stopwatch.switch(Activity.RECORDING)
            message = unpack(data)
            if isinstance(message, Done):
                self._keep_profile(message.role, message.profile)
            if isinstance(message, (Ready, Done)):
                self._heard[type(message)].add(message.role)
            else:
                self._note(message)

    def _keep_profile(self, role: Role, profile: RoleProfile | None) -> None:
        if profile is not None:
            self.profiles[role] = profile

    def _note(self, message: Any) -> None:
        if isinstance(message, Failed):
            raise RoleFailed(message)
        if isinstance(message, Progress):
            self._ticks[message.match] = message.tick
            for record in message.episodes:
                self._recorder.episode(record)
                self.scoreboard.episode(record)
        elif isinstance(message, Update):
            self._recorder.update(message.record)
            self.scoreboard.update(message.record)
        self._recorder.poll()
        self._display.update(sum(self._ticks.values()), self.scoreboard)
