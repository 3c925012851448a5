"""Graceful-stop requests, by signals or callbacks: noted at once, followed when the run can be saved.

SIGINT, SIGTERM    save a boundary, end with 128 plus the signal's number; signals within a second are one request,
                   as `timeout` signals a process and then its group
SIGHUP             the same: the terminal is gone; still ignored where it was, as by `nohup`
SIGUSR1            save a boundary, end with 0: the run is to be resumed, as by a batch system; another signal after it
                   sets the exit status, and does not end the run before it is saved
SIGUSR2            sent by `arena train` to the processes when it receives SIGINT or SIGTERM itself
a callback         save a boundary, end with 0: the run is over
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SIGNALS = (*ENDING_SIGNALS, signal.SIGUSR1, signal.SIGUSR2)
ONE_REQUEST_SECONDS = 1.0  # signals within this time of the first one are the same request


def handled_signals() -> list[signal.Signals]:
    """The signals that a run handles: all of `STOP_SIGNALS`, without SIGHUP where `nohup` has set it to be ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if not (ignored and number == signal.SIGHUP)]


def number_of(error: KeyboardInterrupt) -> int:
    """The signal that has raised an error: handlers give its number, functions of the Python API its name."""
    found = error.args[0] if error.args else signal.SIGINT
    if isinstance(found, str):
        found = getattr(signal, found, signal.SIGINT) if found.startswith("SIG") else signal.SIGINT
    return int(found)


@dataclass
class Stop:
    """The requests of signals, or of the run itself.

    Until `handled`, and when repeated later than `ONE_REQUEST_SECONDS`, all signals but SIGUSR1 end the run at once;
    SIGUSR1 always waits until the run can be saved.
    """

    number: int | None = None  # of the first signal, or of the first other signal after SIGUSR1; None: no signal
    handled: bool = False  # the run checks for requests
    by: str = ""  # the part of the run itself that has asked first, such as a callback; empty: none
    _at_once: Collection[int] = ()
    _answer: Callable[[str], str] | None = None
    _signal_at: float | None = None  # the time of the first signal other than SIGUSR1
    _requeue: bool = False  # SIGUSR1 came before `number`
    _early: Collection[int] = ()  # signals before `listen`

    @property
    def requested(self) -> bool:
        """Whether the run is to end soon."""
        return self.number is not None or bool(self.by)

    @property
    def phrase(self) -> str:
        """The request, as a phrase."""
        return "asked to stop" if self.number is not None or not self.by else f"asked to stop by {self.by}"

    @property
    def requeue(self) -> bool:
        """Whether the run is to be resumed."""
        return self._requeue or self.number == signal.SIGUSR1

    @property
    def status(self) -> int:
        """The exit status of a run that was ended by request."""
        assert self.requested, "there is a request"
        return 0 if self.number in (None, signal.SIGUSR1) else 128 + self.number

    def renew(self) -> None:
        """Forgets all requests: a program goes on with the run."""
        self.number, self.handled, self.by = None, False, ""
        self._at_once, self._signal_at, self._requeue, self._early = (), None, False, ()

    def ask(self, who: str) -> None:
        """Asks on behalf of a part of the run itself."""
        self.by = self.by or who

    def listen(self, *, at_once: Collection[int] = (), answer: Callable[[str], str] | None = None) -> None:
        """Handles the signals of this process; does nothing outside of its main thread, which alone can do so.

        Those in `at_once` end the run at once. What `answer` returns for the name of a signal is written to stderr when
        it asks the run to end. Raises KeyboardInterrupt if a signal has come before.
        """
        self._at_once, self._answer = at_once, answer
        if not takes_signals():
            return
        for number in handled_signals():
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # what was blocked while the process started comes now
        early, self._early = self._early, ()
        for noted in early:
            self._on_signal(noted, None)

    def note(self) -> None:
        """Notes SIGUSR1 and SIGUSR2 until `listen`: by default they would end a process that is starting."""

        def note(number: int, _frame: FrameType | None) -> None:
            if number not in self._early:
                self._early = (*self._early, number)

        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, note)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.number = number if self.number is None else self.number
            return
        if self.number is None or self.number == signal.SIGUSR1:
            self._requeue = self.number == signal.SIGUSR1
            self.number = number
        now = time.monotonic()
        again, self._signal_at = self._signal_at is not None, now if self._signal_at is None else self._signal_at
        if again and now < self._signal_at + ONE_REQUEST_SECONDS:
            return
        if self._answer and not again:
            _write_to_launcher(f"{self._answer(signal.Signals(number).name)}\n")
        if again or not self.handled or number in self._at_once:
            raise KeyboardInterrupt(number)


def _write_to_launcher(text: str) -> None:
    """Writes to the stderr of Open MPI's launcher: after a signal it forwards nothing that its processes write.

    In a file the launcher overwrites this where it writes after the death of a process; then it forwards what its
    processes write, so the text is written to both.
    """
    launcher, target = os.getppid(), 2
    with suppress(OSError):  # without /proc
        if Path(f"/proc/{launcher}/comm").read_text().startswith(("prterun", "mpirun")):
            target = os.open(f"/proc/{launcher}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    targets = {target}
    with suppress(OSError):  # stderr is closed
        targets |= {2} if stat.S_ISREG(os.fstat(target).st_mode) else set()
    for each in targets:
        with suppress(OSError):  # its reader is gone; an error here would end the run instead of saving it
            os.write(each, text.encode())
    if target != 2:
        os.close(target)


def takes_signals() -> bool:
    """Whether the calling thread may set signal handlers: only the main thread may."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def restored_handlers() -> Iterator[None]:
    """Restores the signal handlers at the end."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and takes_signals():  # None: it was not set by Python
                signal.signal(number, handler)


def _leave_signals_to_parent() -> None:
    """In a forked child, as games have: its parent follows the signals to their process group.

    SIGTERM ends it, as `multiprocessing` ends its processes by this signal.
    """
    for number in STOP_SIGNALS:
        if isinstance(getattr(signal.getsignal(number), "__self__", None), Stop):
            # Not SIG_IGN, which a program that the child starts would inherit.
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else lambda _number, _frame: None)


os.register_at_fork(after_in_child=_leave_signals_to_parent)


def ignore_signals() -> None:
    """Ignores the signals in this process: the process that leads the run handles them."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
