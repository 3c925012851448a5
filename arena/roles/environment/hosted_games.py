"""Hosts the external games of one match: forms ticks from the games that ask for actions.

The connection and its table of slots belong to the process and outlive the legs of a run. A `LaneBlock` plays
`HostedGames` in one leg, in the place of a `RestartingGame`.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.external.connection import Connection
from arena.external.slots import Game, Slots, Tick
from arena.game.api import Frame, Step
from arena.roles.environment.restart import Fault, Reset, RestartLimit
from arena.roles.protocol import Notice
from arena.transport import Endpoint, Tag
from arena.transport.endpoint import ANY_SOURCE
from arena.transport.pickling import pack

Lanes = NDArray[np.bool_]

_NOTICE_SECONDS = 60.0  # between two lines about a wait for games


class HostedGames:
    """The external games of one match in one leg; the connection is open, and paused.

    Args:
        ends_early: whether ticks are formed at once, because the leg is to end.
        report: called with a failure after which the games were recreated, and the slots [L] whose games are lost.
        exhausted: called once in a run, when no game is left and none will come any more.

    Attributes:
        fault: never set: a failure here ends games, not ticks.
        tick: the newest formed tick.
    """

    fault: Fault | None = None
    last_reset = Reset(None, None, new_game=True)

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        limit: RestartLimit | None,
        ends_early: Callable[[], bool],
        report: Callable[[Fault, Lanes], None],
        exhausted: Callable[[], None],
    ) -> None:
        self._connection, self._endpoint, self._limit = connection, endpoint, limit
        self._ends_early, self._report, self._exhausted = ends_early, report, exhausted
        self.interface = connection.games.interface
        self.table: Slots = connection.table
        self.tick: Tick

        def report_part(error: Exception, lost: Sequence[int]) -> None:
            lanes = np.zeros(self.table.size, np.bool_)
            lanes[list(lost)] = True
            text = str(error)
            report(Fault(text.partition("\n")[0], text, time.monotonic()), lanes)

        connection.wake, connection.restarted = endpoint.bell(), report_part

    def begin(self) -> Frame:
        """Waits for the first tick of the leg; returns its frame."""
        self._connection.pause(False)
        self._form(0)
        return self.tick.begun

    def step(self, actions: Sequence[Any]) -> Step:
        """Passes the actions on and waits for the next tick; raises as the games, if they cannot be recreated."""
        answers = self.table.answers(actions)
        if len(answers.slots):
            self._guarded(lambda: self._connection.games.answer(answers))
        self._form(1)
        return self.tick.step

    def reset(
        self, lanes: Lanes, seeds: Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> Frame:
        """The current frame: external games begin by themselves, so seeds and options mean nothing."""
        return self.tick.begun

    def take_finished(self) -> list[Game]:
        """The accounts of games that are over, each once."""
        finished, self._connection.finished = self._connection.finished, []
        return finished

    def close(self) -> None:
        """Pauses the games until the next leg."""
        self.table.cut()
        self._connection.pause(True)

    close_quietly = close

    def _form(self, unfinished: int) -> None:
        """Waits until a tick can be formed; other roles run meanwhile. `unfinished` ticks end with it."""
        connection, table = self._connection, self.table
        began = said = time.monotonic()
        while True:
            again = self._guarded(lambda: connection.games.poll(table))
            for text in connection.take_notices():
                self._endpoint.send(0, Tag.TO_ROOT, pack(Notice(f"match {connection.match.match}: {text}")))
            for slot, reason in table.overdue():
                if table.holds(slot):  # else all games were lost because of a failure
                    table.lose(slot, reason)
                    self._guarded(partial(connection.games.drop, slot, reason))
            over = connection.games.exhausted and not table.running
            if over and not connection.exhausted:
                connection.exhausted = True
                self._exhausted()
            tick = table.form(at_once=over or self._ends_early())
            if tick is not None:
                break
            if (now := time.monotonic()) >= said + _NOTICE_SECONDS:
                said, where, minutes = now, connection.games.address, round((now - began) / 60)
                text = (
                    f"match {connection.match.match}: no game has asked for an action for {minutes} min"
                    f"{where and f'; games connect at {where}'}; {table.running} of {table.size} slots are in use"
                )
                self._endpoint.send(0, Tag.TO_ROOT, pack(Notice(text)))
            waits = [one for one in (again, table.seconds(), connection.waiting(unfinished)) if one is not None]
            seconds = min([*waits, said + _NOTICE_SECONDS - now])
            self._endpoint.sleep((self._endpoint.address, Tag.GAMES, ANY_SOURCE), seconds)
        self.tick = tick
        connection.finished += tick.finished

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Calls the connection; after a failure all its games are lost and it is recreated, or the run ends."""
        try:
            return call()
        except Exception as error:
            if self._limit is None or not self._limit.allows():
                raise
            trace = "".join(traceback.format_exception(error)).rstrip()
            fault = Fault(f"{type(error).__name__}: {error}", trace, time.monotonic())
        lost = np.array([self.table.holds(slot) for slot in range(self.table.size)])
        for slot in np.flatnonzero(lost).tolist():
            self.table.lose(slot, "failed")
        self._connection.remake()
        self._connection.exhausted = False
        self._report(fault, lost)
        return None
