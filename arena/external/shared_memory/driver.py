"""The trainer's side of a link: makes the first file, starts or awaits a program, and takes turns with it."""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from arena.diagnostics.start_folder import anchored
from arena.errors import ActionError, LinkError, NoRoom, PeerClosed, PeerGone, PeerSilent, ProtocolError, UnsafeFile
from arena.external.shared_memory import files, layout
from arena.external.shared_memory.keeper import LINK_VARIABLE, files_of, keeper
from arena.external.shared_memory.layout import Command, GroupSpec, Rows
from arena.external.shared_memory.link_file import DRIVER, SIMULATOR, LinkFile, TurnWait
from arena.external.shared_memory.program import Program, end_programs
from arena.records.lock import lock_descriptor

PROFILES = ("published", "release-0.2")
_CAPACITIES = {"published": 4, "release-0.2": 65536}
_NEWEST = 0.1  # weight of the newest wait in the mean
_LOOK_S = 0.05  # between two looks at the program


class Driver:
    """A link to one simulator; a context manager.

    `reset` and `step` wait for the simulator; `give` and `poll` do the same without waiting.

    Args:
        command: `{memory_path}` and `{python}` in it are replaced; without the former `--memory-path PATH` is added.
        attach: instead of `command`; `default` is what programs of the published package use.
        profile: `published` or `release-0.2`, of the protocol.
        side_channel_bytes: the length included; None: 4, or 65,536 in release 0.2.
        messages: sent with the first reset.
        start_s: seconds from the start of the program to its first hand-over.
        step_s: seconds from a give to the next hand-over.
        close_s: seconds for the program to end.
        folder: where the files are made; None: a temporary one.
        cwd: the folder of the program; None: the current one.
        environment: further variables of the program.
        output: where the program's output goes; None: it is kept for the last lines in errors.

    Attributes:
        handovers: of the simulator.
        first_path: the path of the first file, which a program looks for.
        file: the file in use, with the number of its changes and the bytes read and written.

    Raises:
        ValueError: both or none of `command` and `attach`, or an unknown profile.
        UnsafeFile, NoRoom: the first file cannot be made.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        attach: str | None = None,
        profile: str = "published",
        side_channel_bytes: int | None = None,
        messages: Iterable[tuple[uuid.UUID, bytes]] = (),
        start_s: float = 60.0,
        step_s: float = 30.0,
        close_s: float = 5.0,
        folder: str | Path | None = None,
        cwd: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        if (command is None) == (attach is None):
            raise ValueError("exactly one of `command` and `attach` is needed")
        if profile not in PROFILES:
            raise ValueError(f"profile {profile!r}; known: {', '.join(PROFILES)}")
        self._command, self._output, self._cwd, self._environment = command, output, cwd, environment
        self._start_s, self._step_s, self.close_s = start_s, step_s, close_s
        self._old_release = profile == "release-0.2"
        self._program: Program | None = None
        self._outgoing = list(messages)
        self._received: list[tuple[uuid.UUID, bytes]] = []
        self._rows: dict[str, Rows] | None = None  # of the newest hand-over, while it is the driver's turn
        self._begun = self._greeted = self._closing = self._closed = False
        self._wait = TurnWait()
        self.handovers = 0
        self.simulator_s = self.driver_s = 0.0
        self._taken_at = self._looked_at = self._gave_at = self._usual_s = 0.0
        self._folder: files.LinkFolder | None = None
        if attach is None:
            self._folder = files.LinkFolder(None if folder is None else anchored(folder))
            self.first_path = self._folder.first
        else:
            shared = Path(tempfile.gettempdir()).absolute() / "ml-agents"  # where programs of the package look
            self.first_path = files.private_folder(shared, others_may_read=True) / attach
            files.remove_unused(self.first_path)
        capacity = side_channel_bytes or _CAPACITIES[profile]
        try:
            self.file = LinkFile.make(self.first_path, capacity, masks_at_max_step=self._old_release)
        except BaseException:
            if self._folder is not None:
                self._folder.remove()
            raise
        if attach is not None:
            if lock_descriptor(self.file.descriptor) is False:
                raise UnsafeFile("another driver uses this file", source=str(self.first_path))
            keeper.add(self.first_path, None)

    @property
    def path(self) -> Path:
        """The path of the file in use."""
        return self.file.path

    @property
    def pid(self) -> int | None:
        """The process id of the program, if it was started."""
        return None if self._program is None else self._program.pid

    @property
    def groups(self) -> Mapping[str, GroupSpec]:
        """The groups that are registered so far."""
        return {name: group.spec for name, group in self.file.groups.items()}

    def offset_of(self, group: str, field: str, element: int) -> int:
        """The offset in the file, in bytes, of an element of a `field`; a flag has one byte, any other element four."""
        width = 1 if field in ("done", "max_step", "mask") else 4
        return self.file.groups[group].offsets[field] + width * element

    def reset(self) -> dict[str, Rows]:
        """Resets the simulator, started first if it has not been; returns the rows of its next hand-over.

        Raises:
            LinkError: the link has failed; the subclass says how.
        """
        self.give(reset=True)
        return self.await_rows()

    def step(self, actions: Mapping[str, NDArray[Any]]) -> dict[str, Rows]:
        """Gives actions [n, A] for each group with rows, and returns the rows of the next hand-over.

        Raises:
            ActionError: they do not fit; nothing was written.
            ProtocolError: there is no hand-over to answer.
            LinkError: as `reset`.
        """
        self.give(actions)
        return self.await_rows()

    def await_rows(self) -> dict[str, Rows]:
        """Waits for the next hand-over and returns its rows.

        Raises:
            ProtocolError: nothing was given since the last one.
            LinkError: as `reset`.
        """
        if self._rows is not None or not self._begun:
            raise ProtocolError("there is nothing to wait for: call `reset` or `give` first")
        while (rows := self.poll()) is None:
            self._wait.pause()
        return rows

    def give(self, actions: Mapping[str, NDArray[Any]] | None = None, *, reset: bool = False) -> None:
        """Hands the turn over; the first time, starts the program, which finds its turn when it opens the file.

        Args:
            actions: as of `step`; None: zeros, and for branches the first allowed choice.

        Raises:
            ActionError, ProtocolError: as `step`.
            NoRoom: a message does not fit, and the file cannot be changed.
            PeerGone: the program cannot be started.
        """
        if not self._begun:
            if not reset or actions is not None:
                raise ProtocolError("the link has not begun: call `reset` first")
            self._begun = True
            if self._old_release:
                self.file.give(Command.STEP, SIMULATOR)  # a greeting; the reset follows when it was answered
            else:
                self._hand_over(Command.RESET)
            if self._command is not None:
                path = str(self.first_path)
                filled = [
                    one.replace("{memory_path}", path).replace("{python}", sys.executable) for one in self._command
                ]
                if not any("{memory_path}" in part for part in self._command):
                    filled += ["--memory-path", path]
                variables = {**(self._environment or {}), LINK_VARIABLE: path}
                try:
                    self._program = Program(
                        filled, output=self._output, cwd=anchored(self._cwd or "."), environment=variables
                    )
                except OSError as error:
                    raise PeerGone(f"{{simulator}} cannot be started: {filled[0]}: {error.strerror}") from error
            self._wait, self._gave_at = TurnWait(), time.monotonic()
            return
        if self._rows is None:
            raise ProtocolError("there is no hand-over to answer: it is the simulator's turn")
        rows, specs = self._rows, {name: self.file.groups[name].spec for name in self._rows}
        if actions is None:
            actions = {name: layout.no_op_actions(specs[name], some) for name, some in rows.items()}
        for name in actions:
            if name not in rows:
                raise ActionError(name, "actions", f"none: groups with rows are {', '.join(rows) or 'none'}")
        packed = {}
        for name, some in rows.items():
            if name not in actions:
                raise ActionError(name, "no actions", f"{len(some.ids)} rows of them")
            packed[name] = layout.pack_actions(specs[name], len(some.ids), actions[name])
        for name, data in packed.items():  # nothing is written before all are checked
            self.file.write(self.file.groups[name].offsets["action"], data)
        self._hand_over(Command.RESET if reset else Command.STEP)

    def _hand_over(self, command: Command) -> None:
        messages = layout.join_messages(self._outgoing)
        if messages and len(messages) > self.file.room():
            if self._old_release and self.file.groups:
                raise NoRoom(
                    f"{len(messages)} bytes of messages do not fit, and programs of release 0.2 do not follow a change "
                    "of file once a group is registered: raise `side_channel_bytes`",
                    source=str(self.path),
                )
            self.file.replace(2 * len(messages) + 20, DRIVER)
            if self._command is None:
                lock_descriptor(self.file.descriptor)
        self.file.give(command, SIMULATOR, messages)
        self._outgoing.clear()
        now = time.monotonic()
        self.driver_s += now - self._taken_at if self._taken_at else 0.0
        self._rows, self._gave_at, self._wait = None, now, TurnWait(self._usual_s)

    def poll(self) -> dict[str, Rows] | None:
        """The rows of a hand-over that has come since the last `give`; None: not yet.

        Raises:
            LinkError: as `reset`.
        """
        is_awaited = self._rows is None and self._begun
        while is_awaited and self.file.turn == DRIVER:
            command, messages = self.file.take(from_simulator=self._greeted or not self._old_release)
            if command is Command.CHANGE_FILE:  # the messages are in the next file as well
                self.file.follow()
                if self._command is None:
                    lock_descriptor(self.file.descriptor)
                continue
            self._received += messages
            if command is Command.CLOSE:
                self.file.remove()
                raise PeerClosed(f"{self._named()} has closed the link after {self.handovers} hand-overs")
            self._rows = self.file.rows()
            self._taken_at = time.monotonic()
            passed = self._taken_at - self._gave_at
            self.simulator_s += passed
            self._usual_s += _NEWEST * (min(passed, 1.0) - self._usual_s)
            if self._old_release and not self._greeted:  # rows that come with the greeting are not played
                self._greeted = True
                self._hand_over(Command.RESET)
                continue
            self.handovers += 1
            return self._rows
        now = time.monotonic()
        if self._program is not None and now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            ending = self._program.ending()
            if not ending:
                self._program.limit_output()
            elif self._rows is not None or self.file.turn != DRIVER:  # else its last hand-over is still to be taken
                waited = ""
                if self._rows is not None:
                    waited = f", after it had waited {now - self._taken_at:.0f} s for its turn"
                message = f"{self._named()} {ending} after {self.handovers} hand-overs{waited}"
                raise PeerGone(message + self._last_lines(), source=str(self.path))
        waits_for_person = self._command is None and not self.handovers
        limit = self._step_s if self.handovers else self._start_s
        if is_awaited and self._wait.look() > limit and not waits_for_person:
            state = "" if self._program is None else f"; the program is {self._program.state()}"
            what = f"has not handed over for {limit:g} s"
            if not self.handovers:
                what = f"has not answered since it was started, {limit:g} s ago"
            message = (
                f"{self._named()} {what}: {self.path}, turn {self.file.turn}, command {self.file.command}, "
                f"{self.handovers} hand-overs{state}"
            )
            raise PeerSilent(message + self._last_lines(), source=str(self.path))
        return None

    def pause_s(self) -> float:
        """Seconds until the next `poll`; 0.0: as soon as other threads and processes have run."""
        return self._wait.pause_s()

    def stand_still(self) -> None:
        """Leaves the time since the last look out of the limits: the caller has paused `poll`."""
        self._wait.skip()

    def send(self, guid: uuid.UUID, data: bytes) -> None:
        """Sends the bytes `data` to the channel `guid` with the next give."""
        self._outgoing.append((guid, bytes(data)))

    def received(self) -> list[tuple[uuid.UUID, bytes]]:
        """The messages that have come since the last call."""
        found, self._received = self._received, []
        return found

    def _named(self) -> str:
        return "{simulator}" if self.pid is None else f"{{simulator}} (pid {self.pid})"

    def _last_lines(self) -> str:
        lines = "" if self._program is None else self._program.last_lines()
        return "".join(f"\n  | {line}" for line in lines.splitlines())

    @property
    def seconds_since_taken(self) -> float:
        """Seconds for which the simulator has waited for its turn; 0 if it has it."""
        return 0.0 if self._rows is None else time.monotonic() - self._taken_at

    def close(self) -> None:
        """Closes the link: the program is asked to end, and ended if it does not; all files are removed."""
        close_drivers([self])

    def abandon(self) -> None:
        """Ends the program at once; all files are removed."""
        close_drivers([self], polite=False)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def close_drivers(drivers: Sequence[Driver], *, polite: bool = True) -> None:
    """Closes links together: at most the longest `close_s`, and three seconds for programs that do not end."""

    def has_ended(driver: Driver) -> bool:
        """Gives the command to close if it is the driver's turn; returns whether there is nothing to wait for."""
        program, file = driver._program, driver.file
        if program is None and not (driver._begun and driver.handovers):
            return True  # no simulator has ever come
        if program is not None and program.ending():
            return True
        try:
            while file.turn == DRIVER and file.command == Command.CHANGE_FILE:
                file.follow()
            if program is None and file.turn == DRIVER and file.command == Command.CLOSE:
                return True  # the simulator has closed the link
            if not driver._closing and file.turn == DRIVER:
                file.give(Command.CLOSE, SIMULATOR)
                driver._closing = True
        except LinkError:
            return True  # the file is broken: the program is ended by signals
        return False

    open_drivers = [driver for driver in drivers if not driver._closed]
    if polite:
        deadline = time.monotonic() + max((driver.close_s for driver in open_drivers), default=0.0)
        wait = TurnWait()
        closing = open_drivers
        while (closing := [driver for driver in closing if not has_ended(driver)]) and time.monotonic() < deadline:
            wait.pause()
    end_programs([driver._program for driver in open_drivers if driver._program is not None])
    for driver in open_drivers:
        driver._closed = True
        for path in files_of(driver.first_path):
            with suppress(OSError):  # it was removed by hand
                path.unlink()
        driver.file.close()
        if driver._folder is not None:
            driver._folder.remove()
        else:
            keeper.remove(driver.first_path)
