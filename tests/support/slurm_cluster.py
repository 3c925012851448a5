"""A SLURM of two nodes, on this machine or on hosts that namespaces stand in for: its own daemons, keys and folders."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import hosts
from system_programs import executable, unavailable

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort={port}
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
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
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
def slurm_cluster(home: Path, over: hosts.Hosts | None = None) -> Iterator[dict[str, str]]:
    """Starts the daemons and ends them; yields the environment variables with which programs reach them.

    Without `over` both nodes, a and b, are this machine and have four slots each. Else the nodes are the hosts n0, with
    the controller and four slots, and n1 with three; `home` must be in the folder that they share.
    """
    home.mkdir(mode=0o700)
    names, slots = (("a", "b"), (4, 4)) if over is None else (("n0", "n1"), (4, 3))
    for folder in ("state", *(f"spool-{name}" for name in names)):
        (home / folder).mkdir(mode=0o700)
    key = home / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    here = socket.gethostname()
    text = _CONFIGURATION.format(host=here if over is None else names[0], home=home, port=_free_port())
    for name, count in zip(names, slots, strict=True):
        host = here if over is None else name
        text += f"NodeName={name} NodeHostname={host} Port={_free_port()} CPUs={count} State=UNKNOWN\n"
    (home / "slurm.conf").write_text(text)
    variables = {"SLURM_CONF": str(home / "slurm.conf"), "PATH": f"{os.environ['PATH']}{os.pathsep}/usr/sbin"}
    settings = {**os.environ, **variables}
    munged = [
        *(["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={home}/munge.socket"]),
        *([f"--pid-file={home}/munged.pid", f"--log-file={home}/munged.log", f"--seed-file={home}/munge.seed"]),
    ]
    commands = {
        "munged": munged,
        "slurmctld": ["slurmctld", "-D", "-c"],
        **{name: ["slurmd", "-D", "-N", name] for name in names},
    }

    def on(name: str, command: list[str]) -> list[str]:
        if over is None:
            return command
        return over.command(name if name in names else names[0], f"SLURM_CONF={home}/slurm.conf {shlex.join(command)}")

    def ask(*command: str) -> str:
        line = on(names[0], [*command])
        return subprocess.run(line, env=settings, capture_output=True, text=True, check=False, timeout=600).stdout

    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
            started.append(subprocess.Popen(on(name, command), env=settings, cwd=home, start_new_session=True, **quiet))
            if command is munged:
                _wait(lambda: (home / "munge.socket").exists())
        _wait(lambda: ask("sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"])
        yield variables
    finally:
        if over is None:  # else jobs end with their hosts
            with suppress(subprocess.SubprocessError):
                for job in ask("squeue", "--noheader", "--format=%A").split():
                    ask("scancel", job)
                _wait(lambda: not ask("squeue", "--noheader").strip())
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "SLURM has not started, or not ended its jobs"
        time.sleep(0.2)
