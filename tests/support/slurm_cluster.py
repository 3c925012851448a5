"""A SLURM of two nodes with four slots each, all on this machine: its own daemons, ports, keys and folders."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from system_programs import executable, unavailable

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort={ports[0]}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
NodeName=a NodeHostname={host} Port={ports[1]} CPUs=4 State=UNKNOWN
NodeName=b NodeHostname={host} Port={ports[2]} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=a,b Default=YES MaxTime=INFINITE State=UP
"""


def require() -> None:
    """Fails the test in CI, and skips it elsewhere, if SLURM is missing or may not be started."""
    for name in _PROGRAMS:
        executable("SLURM", name)
    if os.geteuid() != 0:
        unavailable("only root can start slurmd")


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("", 0))
        return int(held.getsockname()[1])


@contextmanager
def slurm_cluster(home: Path) -> Iterator[dict[str, str]]:
    """Starts the daemons and ends them; yields the environment variables with which programs reach them."""
    home.mkdir(mode=0o700)
    for folder in ("state", "spool-a", "spool-b"):
        (home / folder).mkdir(mode=0o700)
    key = home / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    text = _CONFIGURATION.format(host=socket.gethostname(), home=home, ports=[_free_port() for _ in range(3)])
    (home / "slurm.conf").write_text(text)
    variables = {"SLURM_CONF": str(home / "slurm.conf"), "PATH": f"{os.environ['PATH']}{os.pathsep}/usr/sbin"}
    settings = {**os.environ, **variables}
    daemons = [
        *(["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={home}/munge.socket"]),
        *([f"--pid-file={home}/munged.pid", f"--log-file={home}/munged.log", f"--seed-file={home}/munge.seed"]),
    ]
    commands = [daemons, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "a"], ["slurmd", "-D", "-N", "b"]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
            started.append(subprocess.Popen(command, env=settings, cwd=home, start_new_session=True, **quiet))
            if command is daemons:
                _wait(lambda: (home / "munge.socket").exists())
        _wait(lambda: _run(settings, "sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"])
        yield variables
    finally:
        with suppress(subprocess.SubprocessError):
            for job in _run(settings, "squeue", "--noheader", "--format=%A").split():
                _run(settings, "scancel", job)
            _wait(lambda: not _run(settings, "squeue", "--noheader").strip())
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _run(settings: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=600).stdout


def _wait(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "SLURM has not started, or not ended its jobs"
        time.sleep(0.2)
