"""Hosts on this machine: Linux namespaces with their own name, network, processes, /tmp and /dev/shm.

As a script: `hosts.py FOLDER HOST COMMAND` runs a shell command on a host, as ssh does for MPI's launcher.
`hosts.py --relay SECONDS PROCESS...` is a network with this delay between the hosts of these processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve()
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
_PORT = 22  # of a host: a command comes only where it can be reached over the network
_CONNECT_SECONDS = 4.0
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


class Hosts:
    """The hosts n0, n1, ... with a folder that they share; a switch in n0 joins their networks.

    Args:
        modules: the folders, as in PYTHONPATH, with the modules that the processes of all hosts find.
        delay: seconds that the network takes one way; then a process of its own joins the networks.
    """

    def __init__(self, folder: Path, *, modules: str = str(HERE.parent), delay: float = 0.0) -> None:
        self.folder = folder
        self._environment = {**os.environ, "PYTHONPATH": modules}
        self._delay = delay
        self._relay: subprocess.Popen[bytes] | None = None
        self.first: dict[str, int] = {}  # the first process of each, as this process numbers it
        self._outer: list[subprocess.Popen[bytes]] = []

    def begin(self, count: int) -> None:
        """Makes the hosts."""
        folder = self.folder
        lines = [f"10.77.0.{10 + number} n{number}\n" for number in range(count)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        agent = folder / "agent"  # MPICH's launcher asks for a single word, and gives it an option of ssh
        agent.write_text(f'#!/bin/sh\n[ "$1" != -x ] || shift\nexec {sys.executable} {HERE} {folder} "$@"\n')
        agent.chmod(0o700)
        for number in range(count):
            self.start(f"n{number}")
        if self._delay:
            relay = [sys.executable, str(HERE), "--relay", str(self._delay), *map(str, self.first.values())]
            self._relay = subprocess.Popen(relay, cwd="/", stdout=subprocess.PIPE, start_new_session=True)
            assert self._relay.stdout is not None and self._relay.stdout.readline(), "the network has not started"
            for number, name in enumerate(self.first):
                self._network(name, f"ip addr add 10.77.0.{10 + number}/24 dev eth0; ip link set eth0 up")

    def start(self, name: str) -> None:
        """Makes a host, for the first time or after it was killed."""
        socket_file = self.folder / name
        socket_file.unlink(missing_ok=True)  # of the killed one
        begin = ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "--kill-child", sys.executable, str(HERE)]
        outer = subprocess.Popen(
            [*begin, str(self.folder), name], cwd="/", env=self._environment, start_new_session=True
        )
        self._outer.append(outer)
        end = time.monotonic() + 60.0
        while not socket_file.exists():
            assert outer.poll() is None and time.monotonic() < end, f"{name} has not started"
            time.sleep(0.02)
        (child,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        self.first[name] = int(child)
        if self._delay:  # the network of the hosts is made at once
            return
        number = 10 + int(name[1:])
        address, card = f"10.77.0.{number}/24", f"02:00:00:00:00:{number:02x}"  # a host that is back has its old card
        if name == "n0":
            self._network(name, "ip link add br0 type bridge; ip link set br0 up")
        self._network(
            "n0",
            f"ip link add {name} type veth peer name eth0 address {card} netns {child}; "
            f"ip link set {name} master br0 up",
        )
        self._network(name, f"ip addr add {address} dev eth0; ip link set eth0 up")

    def cut(self, host: str) -> None:
        """Pulls a host's cable out of the switch: no end of a connection is told."""
        self._network("n0", f"ip link set {host} down")

    def mend(self, host: str) -> None:
        """Puts the cable back."""
        self._network("n0", f"ip link set {host} up")

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
                if ours and name in (entry / "cmdline").read_text().replace("\0", " "):
                    found.append(int(entry.name))
        return found

    def segments(self, host: str) -> int:
        """How many TCP segments with data a host has sent, none of them counted twice."""
        names, values = [
            line.split()
            for line in Path(f"/proc/{self.first[host]}/net/netstat").read_text().splitlines()
            if line.startswith("TcpExt:")
        ]
        return int(values[names.index("TCPOrigDataSent")])

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
        if self._relay is not None:
            self._relay.kill()
            self._outer.append(self._relay)
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
    with socket.socket() as port, socket.socket(socket.AF_UNIX) as server:
        port.bind(("", _PORT))
        port.listen(64)
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
        "PYTHONPATH": os.environ["PYTHONPATH"],
        "OMP_NUM_THREADS": "1",
        "PRTE_MCA_plm_ssh_agent": f"{folder}/agent",
        "HYDRA_LAUNCHER_EXEC": f"{folder}/agent",
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
    is_host = Path(folder, socket.gethostname()).exists()  # the caller; a test itself reaches hosts behind cut links
    with socket.socket(socket.AF_UNIX) as server:
        try:
            if is_host:
                _reach(host)
            server.connect(f"{folder}/{host}")
            socket.send_fds(server, [command.encode()], [0, 1, 2])
            status = server.recv(1)
        except OSError as error:  # in the words of ssh
            what = "Could not resolve hostname" if isinstance(error, socket.gaierror) else "connect to host"
            print(f"ssh: {what} {host}: {error.strerror or 'Connection timed out'}", file=sys.stderr)
            return 255
    while is_host and status:  # it comes over the network, too
        with suppress(OSError):
            _reach(host)
            break
        time.sleep(0.1)
    return (status or b"\xff")[0]


def _reach(host: str) -> None:
    """Raises OSError if the network does not lead to a host."""
    socket.create_connection((host, _PORT), _CONNECT_SECONDS).close()


def _relay(delay: float, hosts: list[int]) -> None:
    """A hub between the hosts with these first processes: each frame comes `delay` seconds later to all others.

    Kernels may lack `tc netem`; TAP devices are everywhere.
    """
    with suppress(PermissionError):  # so that a loaded machine adds little to the delay
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    libc = ctypes.CDLL(None, use_errno=True)
    taps = []
    for host in hosts:
        with open(f"/proc/{host}/ns/net") as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"cannot enter the network of process {host}")
        taps.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        fcntl.ioctl(taps[-1], _TUNSETIFF, struct.pack("16sH14x", b"eth0", _IFF_TAP | _IFF_NO_PI))
    print("ready", flush=True)
    frames: deque[tuple[float, int, bytes]] = deque()  # when due, from which host, its bytes
    while True:
        while frames and frames[0][0] <= time.monotonic():
            _, source, frame = frames.popleft()
            for tap in taps:
                if tap != source:
                    with suppress(OSError):  # the host's interface is down
                        os.write(tap, frame)
        pause = max(0.0, frames[0][0] - time.monotonic()) if frames else None
        for tap in select.select(taps, [], [], pause)[0]:
            with suppress(BlockingIOError):
                while True:
                    frames.append((time.monotonic() + delay, tap, os.read(tap, 1 << 16)))


if __name__ == "__main__":
    if sys.argv[1] == "--relay":
        _relay(float(sys.argv[2]), [*map(int, sys.argv[3:])])
    place, name, *words = sys.argv[1:]
    if words:
        sys.exit(_call(place, name, " ".join(words)))
    _run(name, place)
