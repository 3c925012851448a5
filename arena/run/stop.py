"""The wish to end a run before its last tick, as a signal brings it: noted at once, obeyed when the run can be saved.

SIGINT, SIGTERM    save a boundary, end with 128 plus the signal's number
SIGUSR1            save a boundary, end with 0: the run is to be taken up again, as by a batch system; one of the others
                   after it sets the exit status, and does not end the run before it is saved
SIGUSR2            what `arena train` sends the processes when it gets SIGINT or SIGTERM itself
a callback         save a boundary, end with 0: the run is over
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_STATUS = {signal.SIGUSR1: 0}
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass
class Stop:
    """What the signals, or the run itself, have asked for.

    Args:
        number: of the first signal, or of the first other signal after SIGUSR1; None: nothing.
        handled: whether the run looks at it. Until then, and when repeated, SIGINT, SIGTERM and SIGUSR2 end the run at
            once; SIGUSR1 always waits until the run can be saved.
        by: which part of the run itself has asked first, such as a callback; empty: none.
    """

    number: int | None = None
    handled: bool = False
    by: str = ""
    _at_once: Collection[int] = ()
    _told_to_end: bool = False  # by a signal other than SIGUSR1
    _requeue: bool = False  # SIGUSR1 came before `number`
    _early: Collection[int] = ()  # signals before `listen`

    @property
    def wanted(self) -> bool:
        """Whether the run is to end soon."""
        return self.number is not None or bool(self.by)

    @property
    def words(self) -> str:
        """Who has asked."""
        return "asked to stop" if self.number is not None or not self.by else f"asked to stop by {self.by}"

    @property
    def requeue(self) -> bool:
        """Whether it is to be taken up again."""
        return self._requeue or self.number == signal.SIGUSR1

    @property
    def status(self) -> int:
        """The exit status of a run that has ended so."""
        assert self.wanted, "nobody has asked for it"
        if self.number is None:
            return 0
        return _STATUS.get(signal.Signals(self.number), 128 + self.number)

    def ask(self, who: str) -> None:
        """Asks on behalf of a part of the run itself."""
        self.by = self.by or who

    def listen(self, *, at_once: Collection[int] = ()) -> None:
        """Takes the signals of this process; does nothing outside of its main thread, which alone can take them.

        Args:
            at_once: the signals that end the run at once.

        Raises:
            KeyboardInterrupt: one has come before.
        """
        self._at_once = at_once
        if not takes_signals():
            return
        for number in STOP_SIGNALS:
            signal.signal(number, self._hear)
        signal.pthread_sigmask(
            signal.SIG_UNBLOCK, STOP_SIGNALS
        )  # one that was held back while the process started comes now
        early, self._early = self._early, ()
        for noted in early:
            self._hear(noted, None)

    def note(self) -> None:
        """Notes, until somebody listens, the signals that would end a process which starts: others would go on."""
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number not in self._early:
            self._early = (*self._early, number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.number = number if self.number is None else self.number
            return
        if self.number is None or self.number == signal.SIGUSR1:
            self._requeue = self.number == signal.SIGUSR1
            self.number = number
        again, self._told_to_end = self._told_to_end, True
        if again or not self.handled or number in self._at_once:
            raise KeyboardInterrupt(number)


def takes_signals() -> bool:
    """Whether the calling thread may say what a signal does: the main thread alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def restored_handlers() -> Iterator[None]:
    """When this is left, the signals do what they did before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and takes_signals():  # None: it was not Python that has set it
                signal.signal(number, handler)


def ignore() -> None:
    """Leaves the signals to the process that leads the run; whoever wants all to end ends the launcher."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
