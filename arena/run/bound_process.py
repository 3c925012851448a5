"""Starts a program that ends when the process that has started it dies, for any reason.

Run as a program, this file asks the kernel for that and becomes the program. `preexec_fn` of `subprocess` would do it
without a further process image, and may lock up where the calling program has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Sequence


def bound(
    command: Sequence[str], number: signal.Signals = signal.SIGKILL, *, blocked: Collection[signal.Signals] = ()
) -> list[str]:
    """The command line that starts a program so.

    Args:
        command: the program, to be found on the PATH, and its arguments.
        number: the signal that it gets when the calling thread ends.
        blocked: the signals that it begins with blocked; no others are.
    """
    mask = ",".join(str(int(each)) for each in blocked)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(number)), mask, *command]


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Asks Linux to end this process when its parent dies, for any reason; elsewhere does nothing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(number), 0, 0, 0)


def _become(parent: int, number: int, mask: str, command: list[str]) -> None:
    die_with_parent(number)
    if os.getppid() != parent:  # it has died before
        os._exit(1)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, at its start
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [int(each) for each in mask.split(",") if each])
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
