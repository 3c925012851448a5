"""Hosts on this machine: Linux namespaces with their own name, network, processes, /tmp and /dev/shm.

As a script: `hosts.py FOLDER HOST COMMAND` runs a shell command on a host, as ssh does for MPI's launcher.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve()
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


class Hosts:
    """The hosts n0, n1, ... with a folder that they share; a switch in n0 joins their networks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first: dict[str, int] = {}  # the first process of each, as this process numbers it
        self._outer: list[subprocess.Popen[bytes]] = []

    def begin(self, count: int) -> None:
        """Makes the hosts."""
        folder = self.folder
        names = [f"n{number}" for number in range(count)]
        lines = [f"10.77.0.{10 + number} {name}\n" for number, name in enumerate(names)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        for number, name in enumerate(names):
            begin = ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "--kill-child", sys.executable, str(HERE)]
            outer = subprocess.Popen([*begin, str(folder), name], cwd="/", start_new_session=True)
            self._outer.append(outer)
            end = time.monotonic() + 60.0
            while not (folder / name).exists():
                assert outer.poll() is None and time.monotonic() < end, f"{name} has not started"
                time.sleep(0.02)
            (child,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            self.first[name] = int(child)
            if number == 0:
                self._network(
                    name, "ip link add br0 type bridge; ip addr add 10.77.0.10/24 dev br0; ip link set br0 up"
                )
            else:
                self._network(
                    "n0", f"ip link add {name} type veth peer name eth0 netns {child}; ip link set {name} master br0"
                )
                self._network("n0", f"ip link set {name} up")
                self._network(name, f"ip addr add 10.77.0.{10 + number}/24 dev eth0; ip link set eth0 up")

    def _network(self, host: str, commands: str) -> None:
        subprocess.run(["nsenter", "-t", str(self.first[host]), "-n", "sh", "-ec", commands], check=True)

    def command(self, host: str, shell: str) -> list[str]:
        """The command line that runs a shell command on a host."""
        return [sys.executable, str(HERE), str(self.folder), host, shell]

    def processes(self, host: str, name: str) -> list[int]:
        """The processes of a program on a host, as this process numbers them."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone
                ours = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self.first[host]}/ns/pid")
                if ours and name in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
        return found

    def shared_memory(self, host: str) -> list[Path]:
        """The files of MPI jobs in a host's shared memory."""
        return [*Path(f"/proc/{self.first[host]}/root/dev/shm").glob("sm_segment.*")]

    def kill(self, host: str) -> None:
        """Kills every process of a host at once."""
        os.kill(self.first.pop(host), signal.SIGKILL)

    def end(self) -> None:
        """Ends all hosts."""
        for host in [*self.first]:
            self.kill(host)
        for outer in self._outer:
            outer.wait()


def _run(host: str, folder: str) -> None:
    """The first process of a host: makes what is its own, and runs the commands that it gets."""
    kept = {path: os.open(path, os.O_PATH) for path in (folder, str(HERE.parents[2]), sys.prefix, sys.base_prefix)}
    calls = [
        ["hostname", host],
        ["mount", "--make-rprivate", "/"],
        *(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", path] for path in ("/tmp", "/dev/shm")),
    ]
    for path, number in kept.items():
        if path.startswith("/tmp/"):
            calls += [["mkdir", "-p", path], ["mount", "-c", "--bind", f"/proc/{os.getpid()}/fd/{number}", path]]
    calls += [["mount", "--bind", f"{folder}/hosts", "/etc/hosts"], ["ip", "link", "set", "lo", "up"]]
    for call in calls:
        subprocess.run(call, check=True)
    for number in kept.values():
        os.close(number)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/{host}")
        server.listen(64)
        while True:
            caller, _ = server.accept()
            threading.Thread(target=_serve, args=(caller, folder), daemon=True).start()


def _serve(caller: socket.socket, folder: str) -> None:
    """Runs a command with the streams of the caller and a bare environment; answers with its exit status."""
    command, streams, *_ = socket.recv_fds(caller, 1 << 16, 3)
    environment = {
        "HOME": "/root",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "PYTHONPATH": str(HERE.parent),
        "OMP_NUM_THREADS": "1",
        "PRTE_MCA_plm_ssh_agent": f"{sys.executable} {HERE} {folder}",
    }
    shell = ["/bin/sh", "-c", command.decode()]
    stdin, stdout, stderr = streams
    process = subprocess.Popen(
        shell, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    for stream in streams:
        os.close(stream)
    with caller, suppress(OSError):  # the caller has gone
        caller.send(bytes([process.wait() & 255]))


def _call(folder: str, host: str, command: str) -> int:
    """The exit status of a command on a host; 255 if it cannot be reached, as of ssh."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"{folder}/{host}")
            socket.send_fds(server, [command.encode()], [0, 1, 2])
            return (server.recv(1) or b"\xff")[0]
        except OSError:
            return 255


if __name__ == "__main__":
    place, name, *words = sys.argv[1:]
    if words:
        sys.exit(_call(place, name, " ".join(words)))
    _run(name, place)
