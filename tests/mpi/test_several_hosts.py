"""Runs on several hosts, which namespaces of this machine stand in for; one survives the loss of a host."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import hosts
import readme
from arena.records.journal import JournalReader
from in_process import one_match
from run_cli import Ended, alone, differing, finish, newest_boundary, start, wait_for, write
from system_programs import executable, unavailable

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.hosts


def config(seconds: float) -> dict[str, Any]:
    """Two matches of a learner against random play."""
    game = {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 60, "seconds": seconds}}
    policies = {"blue": {"algorithm": "learners:LearnerWithActor"}, "red": {"algorithm": "random"}}
    given = {"name": "duel", "seed": 4, "checkpoint_every": 300, "match": {"lanes": 4, "copies": 2}}
    return one_match(game, policies, ticks=900, **given)


@contextmanager
def made_hosts(count: int) -> Iterator[hosts.Hosts]:
    """Hosts, in a folder with a short name: those of sockets have at most 107 characters."""
    for name in ("unshare", "nsenter", "ip"):
        executable("namespaces as hosts", name)
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode:
        unavailable("the system permits no namespaces")
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        made = hosts.Hosts(Path(folder).resolve())
        try:
            made.begin(count)
            yield made
        finally:
            made.end()


@pytest.fixture
def three() -> Iterator[hosts.Hosts]:
    """Three hosts."""
    with made_hosts(3) as made:
        yield made


def typed(made: hosts.Hosts, command: str, cwd: Path, *, loses_host: bool = False) -> Ended:
    """How a command on n0 has ended; `loses_host`: n2 is killed when the run in `four` has a boundary."""
    process = start(made.command("n0", command), cwd)
    if loses_host:
        wait_for(lambda: newest_boundary(made.folder / "four") > 0, process)
        made.kill("n2")
    return finish(process)


def train_on(made: hosts.Hosts, config: Any, cwd: Path, *, ranks: int, slots: int) -> Ended:
    """How `arena train` of a configuration has ended, started on n0 with so many slots for each host."""
    named = ",".join(f"{name}:{slots}" for name in made.first)
    return typed(made, f"arena train {write(made.folder, config)} --run-dir run --ranks {ranks} --hosts {named}", cwd)


def has_ended(made: hosts.Hosts, *names: str) -> None:
    """Waits until no process and no shared memory of a run is left on hosts."""
    wait_for(lambda: not any(made.processes(host, "arena train") or made.shared_memory(host) for host in names))


# An established connection of this process, before and after its network is cut.
CUT = """
import os, socket, subprocess, time
from arena.diagnostics.connections import cut_off_from
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    peer, _ = server.accept()
    client.send(b"acknowledged")
    peer.recv(12)
    assert cut_off_from(os.getpid()) is None
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    assert cut_off_from(os.getpid()) is None
    client.send(b"not acknowledged")
    while (found := cut_off_from(os.getpid())) is None:
        time.sleep(0.1)
    assert found == "127.0.0.1"
    assert cut_off_from(os.getppid()) is None
"""


@pytest.mark.long
def test_unacknowledged_data_shows_that_a_process_is_cut_off(three: hosts.Hosts, tmp_path: Path) -> None:
    (tmp_path / "cut.py").write_text(CUT)
    ended = finish(start(["nsenter", "-t", str(three.first["n1"]), "-n", sys.executable, "cut.py"], tmp_path))
    assert ended.code == 0, ended.err


def trained(made: hosts.Hosts, cwd: Path, seconds: float, where: str) -> subprocess.Popen[str]:
    """`arena train` on host n0 with a process for each slot, when it has saved its first boundary."""
    file, ranks = write(made.folder, config(seconds)), sum(int(one.rpartition(":")[2]) for one in where.split(","))
    line = f"exec arena train {file} --run-dir run --ranks {ranks} --hosts {where}"
    process = start(made.command("n0", line), cwd)
    wait_for(lambda: newest_boundary(made.folder / "run") > 0, process)
    return process


# The second death is that of a rank; the launcher may name another one, which has lost its connection to it.
LOST_AND_BACK = (
    "host n1 has been lost; started again with 3 processes",
    ".* has died.*; started again with 4 processes",
)


def check_restarts(made: hosts.Hosts, *causes: str) -> list[dict[str, Any]]:
    """The deaths on record; compares what they say before the tick with regular expressions."""
    deaths = list(JournalReader(made.folder / "run/faults.jsonl"))
    for death, cause in zip(deaths, causes, strict=True):
        assert re.match(f"{cause}, back to tick ", death["done"]), death
    return deaths


def test_folder_that_a_host_does_not_see_is_refused(three: hosts.Hosts, tmp_path: Path) -> None:
    file = write(three.folder, config(0.0))
    line = f"arena train {file} --run-dir /tmp/runs/run --ranks 3 --hosts n0:1,n1:1,n2:1"
    ended = finish(start(three.command("n0", line), tmp_path))
    assert ended.code == 2
    assert "hosts n1, n2 cannot see the run folder /tmp/runs/run of host n0" in ended.err
    for host, first in three.first.items():
        assert not Path(f"/proc/{first}/root/tmp/runs").exists(), f"{host} has a part of the run"
    has_ended(three, *three.first)


def test_host_behind_a_cut_link_is_refused(three: hosts.Hosts, tmp_path: Path) -> None:
    three.cut("n1")
    ended = train_on(three, config(0.0), tmp_path, ranks=3, slots=1)
    assert (ended.code, "--hosts: host n1 does not answer: is it up, " in ended.err) == (2, True), ended.err
    assert not (three.folder / "run").exists()
    has_ended(three, *three.first)


def test_two_names_of_one_host_are_refused(three: hosts.Hosts, tmp_path: Path) -> None:
    (three.folder / "other").symlink_to("n1")
    with (three.folder / "hosts").open("a") as names:
        names.write("10.77.0.11 other\n")
    doctor = typed(three, "arena doctor --hosts n1,other", tmp_path)
    assert doctor.out.splitlines()[-1] == "problem  hosts: n1 and other are the same host; name it once"
    ended = typed(three, f"arena train {write(three.folder, config(0.0))} --hosts n0,n1,other", tmp_path)
    assert (ended.code, "--hosts: n1 and other are the same host" in ended.err) == (2, True), ended.err


def test_token_that_cannot_be_made_is_a_mistake(three: hosts.Hosts, tmp_path: Path) -> None:
    file = write(three.folder, config(0.0))
    # The inodes of the file system are used up by the run folder and two folders in it.
    mount = "mkdir full; mount -t tmpfs -o nr_inodes=4 tmpfs full"
    ended = typed(three, f"{mount}; arena train {file} --run-dir full/run --ranks 2; echo $?; ls full", tmp_path)
    assert ended.out.splitlines()[-1] == "2", "and nothing is left"
    assert re.fullmatch("arena: error: full/run/logs/.* cannot be written: No space left on device.*\n", ended.err)


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("host", "host n1 has been lost; started again with 4 processes"),
        # Open MPI alone probes its connections, and has daemons that live on.
        pytest.param("link", "host n1 has been lost; started again with 4 processes", marks=pytest.mark.openmpi),
        pytest.param(
            "daemon", "an MPI daemon on n1 has died; started again with 6 processes", marks=pytest.mark.openmpi
        ),
    ],
)
def test_run_goes_on_without_what_is_lost(lost: str, said: str, three: hosts.Hosts, tmp_path: Path) -> None:
    process = trained(three, tmp_path, 0.01, "n0:2,n1:2,n2:2")
    if lost == "host":
        three.kill("n1")
    elif lost == "link":
        three.cut("n1")
    else:
        for daemon in three.processes("n1", "prted"):
            os.kill(daemon, signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    (death,) = check_restarts(three, said)
    assert death["hosts"] == ["n1"]
    assert not re.search(r"^(-{60}|\[|PRTE|ORTE)", ended.err, re.MULTILINE), "text of the launcher is in its log"
    assert differing(three.folder / "run", alone(tmp_path, config(0.0))) == []
    has_ended(three, *three.first)


@pytest.mark.long
@pytest.mark.parametrize(
    "killed", [pytest.param(False, marks=pytest.mark.openmpi, id="cut off"), pytest.param(True, id="killed")]
)
def test_host_that_is_back_is_used_at_the_next_restart(killed: bool, tmp_path: Path) -> None:
    with made_hosts(4) as four:
        process = trained(four, tmp_path, 0.03, "n1:1,n2:1,n3:1,n0:1")
        (root,) = four.processes("n1", "-m arena train")
        if killed:
            four.kill("n1")
        else:
            four.cut("n1")
            # Its daemon has something to send, so that no probe finds the cut; rank 0 holds the lock of the run folder.
            Path(f"/proc/{root}/fd/1").write_text("cut off\n")
        wait_for(lambda: (four.folder / "run/faults.jsonl").exists() or process.poll() is not None)
        if killed:
            four.start("n1")
        else:
            four.mend("n1")
        (rank,) = four.processes("n2", "-m arena train")
        os.kill(rank, signal.SIGKILL)
        ended = finish(process)
        assert ended.code == 0, ended.err
        check_restarts(four, *LOST_AND_BACK)
        assert differing(four.folder / "run", alone(tmp_path, config(0.0))) == []
        has_ended(four, *four.first)


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 0), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_reach_rank_0_on_another_host(
    number: signal.Signals, code: int, three: hosts.Hosts, tmp_path: Path
) -> None:
    process = trained(three, tmp_path, 0.03, "n1:2,n2:1")
    (launching,) = three.processes("n0", "bin/arena train")
    os.kill(launching, number)
    ended = finish(process)
    assert (ended.code, "; --resume goes on from there" in ended.err) == (code, True), ended.err
    assert (three.folder / "run/requeue").exists() == (number == signal.SIGUSR1)
    has_ended(three, *three.first)


@pytest.mark.long
@pytest.mark.openmpi
def test_request_to_stop_outlives_a_cut_link(tmp_path: Path) -> None:
    with made_hosts(2) as two:
        process = trained(two, tmp_path, 0.03, "n0:2,n1:1")
        (launching,) = two.processes("n0", "bin/arena train")
        two.cut("n1")
        os.kill(launching, signal.SIGUSR1)  # the launcher passes it on to n1, so that no probe finds the cut
        ended = finish(process)
        assert (ended.code, "; --resume goes on from there" in ended.err) == (0, True), ended.err
        check_restarts(two, "host n1 has been lost; started again with 2 processes")
        assert (two.folder / "run/requeue").exists()
        has_ended(two, *two.first)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("make", 2, " (environment of match 1 ('game'), rank 2 on n2)\n"),
        ("raise", 1, "the run has ended: environment of match 1 ('game'), rank 2 on n2"),
        ("hang", 1, "environment of match 1 ('game') (rank 2 on n2) has not come back from one call for"),
        ("log", 1, "the run has ended: rank 2 on n2\nrun/logs/rank-0002.log cannot be written: Read-only file system"),
    ],
)
def test_failure_names_its_host(how: str, code: int, said: str, three: hosts.Hosts, tmp_path: Path) -> None:
    game = {"make": "games:FailsOnHost", "kwargs": {"host": "n2", "how": how, "max_steps": 60}}
    data = {**config(0.0), "envs": {"game": game}, "watchdog_s": 2}
    if how == "log":
        mounts = f"mount --bind {three.folder} {three.folder}; mount -o remount,bind,ro {three.folder}"
        subprocess.run(["nsenter", "-t", str(three.first["n2"]), "-m", "sh", "-ec", mounts], check=True)
    ended = train_on(three, data, tmp_path, ranks=3, slots=1)
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert "on n0 (1 process), n1 (1 process), n2 (1 process); each match within a host" in ended.out
    has_ended(three, *three.first)


@pytest.mark.long
def test_resumed_run_has_other_hosts_and_the_same_bytes(three: hosts.Hosts, tmp_path: Path) -> None:
    legs = {"ticks": 300, "checkpoint_every": 100, "ranks": "auto"}
    file = write(three.folder, config(0.0) | legs)
    for more in ("--ticks 100 --hosts n0:2,n1:2", "--ticks 200 --resume --hosts n2:3", "--resume --hosts n0,n1,n2:3"):
        ended = typed(three, f"arena train {file} --run-dir run {more}", tmp_path)
        assert ended.code == 0, ended.err
    assert "7 roles on 5 processes" in ended.out
    assert differing(three.folder / "run", alone(tmp_path, config(0.0) | legs)) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "ranks", "shown"),
    [
        (2, 24, "151 roles on 24 processes\non n0 (12 processes), n1 (12 processes); each match within a host"),
        (4, 24, "n3 (6 processes); each match within a host"),
        (4, 151, "n3 (37 processes); 2 of 30 matches over several hosts"),
    ],
)
def test_round_robin_of_151_roles_has_the_same_bytes(count: int, ranks: int, shown: str, tmp_path: Path) -> None:
    data = yaml.safe_load((ROOT / "configs/round_robin_4x5.yaml").read_text())
    with made_hosts(count) as made:
        ended = train_on(made, data, tmp_path, ranks=ranks, slots=-(-ranks // count))
        assert ended.code == 0, ended.err
        assert shown in ended.out
        has_ended(made, *made.first)
        assert differing(made.folder / "run", alone(tmp_path, data)) == []


@pytest.mark.long
def test_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    with made_hosts(4) as made:
        (made.folder / "configs").symlink_to(ROOT / "configs")
        for step in readme.PAGES["docs/four-machines.md"].steps():
            shown, command = "\n".join(step.shown), step.command
            for length, shorter in (("5000", "600"), ("5500", "800"), ("=500", "=200")):
                command = command.replace(length, shorter)
            ended = typed(made, command, tmp_path, loses_host="host n2 has been lost" in shown)
            printed = re.sub(r"(?<=network connected\? ).*", "...", ended.out + ended.err)
            assert ended.code == (2 if "arena: error: " in shown else 0), printed
            assert readme.missing(step.shown, printed) == [], printed
            has_ended(made, *made.first)


@pytest.mark.long
def test_tick_between_hosts_is_one_segment_each_way_per_seat(tmp_path: Path) -> None:
    game = {"make": "envs.touchdown:Touchdown", "kwargs": {"max_steps": 1000}}
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}
    sent = {}
    with made_hosts(2) as two:
        for ticks in (200, 600):  # the difference leaves out what a start sends
            before = {host: two.segments(host) for host in two.first}
            file = write(two.folder, one_match(game, policies, ticks=ticks, name="duel", checkpoint_every=ticks))
            line = f"arena train {file} --run-dir run-{ticks} --ranks one_per_role --hosts n0:2,n1:2"
            ended = finish(start(two.command("n0", line), tmp_path))
            assert ended.code == 0, ended.err
            sent[ticks] = {host: two.segments(host) - before[host] for host in two.first}
        for host in two.first:
            assert 1.9 < (sent[600][host] - sent[200][host]) / 400 < 2.3, (host, sent)


def test_descriptors_of_the_network_watch_sockets_that_accept_connections() -> None:
    script = """
import os, select, socket
from arena.transport.mpi import network_descriptors
before = network_descriptors()
ours, _ = os.pipe()
with select.epoll() as pipe, select.epoll() as network, socket.create_server(("", 0)) as server:
    pipe.register(ours)
    network.register(server)
    assert sorted(network_descriptors()) == sorted([*before, network.fileno()])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("announced", "relied_on"), [("0" * 9, 2), ("1" + "0" * 99, 13), ("1" * 9 + "0" * 99, 38), ("100" * 100, 300)]
)
def test_descriptors_that_announce_little_are_not_relied_on(announced: str, relied_on: int) -> None:
    """One digit per message: 1 if it was announced, as two of three are over TCP on busy cores."""
    script = """
import sys
from types import SimpleNamespace
from arena.transport.mpi import MpiTransport, World, world
transport = MpiTransport(World(world()), [0], shared_memory=False)
transport._sockets, transport._all_ring = [0], False
waits, slept = 0, []
def select(pause, sockets):
    slept.append(pause)
    return sockets * (announced == "1")
transport._look = lambda _: bool(slept)
transport._bell = SimpleNamespace(select=select, descriptor=None)
for announced in sys.argv[1]:
    # Nothing is there; after the sleep a message is, whether or not its coming ended the sleep.
    slept.clear()
    transport.wait(None)
    waits += bool(transport._sockets)
print(waits)
"""
    done = subprocess.run([sys.executable, "-c", script, announced], check=True, capture_output=True, text=True)
    assert int(done.stdout) == relied_on
