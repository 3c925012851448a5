"""The doctor on this machine, and a signal on its way through the launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from run_cli import arena, environment, finish, left_behind, start, wait_for

WAITS = """
import os, signal, sys
from pathlib import Path
from arena.run.mpirun import report
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
from mpi4py import MPI
report(sys.stderr, joined=True)
rank = MPI.COMM_WORLD.rank
Path(f"ready-{rank}").touch()
signal.sigwait({signal.SIGUSR1})
Path(f"told-{rank}").touch()
MPI.COMM_WORLD.Barrier()
"""


def test_this_machine_passes_and_trials_leave_nothing(tmp_path: Path) -> None:
    ended = arena(tmp_path, "doctor", "--json")
    found = {one["subject"]: one for one in json.loads(ended.out)}
    assert ended.code == 0, ended.out
    assert found["MPI library"]["level"] == found["2 processes"]["level"] == found["torch"]["level"] == "ok"
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: not left_behind(tmp_path))


def test_another_launcher_than_the_librarys_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    launcher = tmp_path / "programs" / "mpirun"
    launcher.write_text('#!/bin/bash\n[ "$1" = --version ] && exit\nshift 2\n"$@" & "$@"; wait\n')
    launcher.chmod(0o700)
    program = (
        "import sys; from arena.run import mpirun; from arena.cli.doctor import mpi\n"
        f"mpirun.find_launcher = lambda: {str(launcher)!r}\n"
        "print(*[finding.line for finding in mpi.processes()])"
    )
    ended = finish(start([sys.executable, "-c", program], tmp_path))
    assert ended.out.startswith("problem  2 processes: each believes that it is alone"), ended


def test_sigusr1_reaches_every_process_through_us_and_the_launcher(tmp_path: Path) -> None:
    program = f"from arena.run import mpirun; import sys; sys.exit(mpirun.run(3, [sys.executable, '-c', {WAITS!r}]))"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
    os.kill(process.pid, signal.SIGUSR1)
    ended = finish(process)
    assert (ended.code, ended.err) == (0, "")
    assert len(list(tmp_path.glob("told-*"))) == 3
