"""Links between a driver and simulators in programs of their own: exchanged data, failures, and remaining files."""

from __future__ import annotations

import os
import queue
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import ProtocolError
from arena.external.shared_memory import (
    ActionError,
    Driver,
    LayoutError,
    LinkError,
    NoRoom,
    PeerClosed,
    PeerGone,
    PeerSilent,
    Rows,
    Simulator,
    UnsafeFile,
    decode,
)
from arena.external.shared_memory.keeper import processes_of
from arena.external.shared_memory.layout import no_op_actions
from arena.external.shared_memory.link_file import next_path
from link_layout import Group, file_of, places
from link_programs import CHOOSER, ECHO, WALKER, command, environment
from run_cli import wait_for

pytestmark = pytest.mark.slow  # each test starts a program


def driver(kind: str, folder: Path, *more: str, **options: Any) -> Driver:
    return Driver(command(kind, *more), environment=environment(), folder=folder, **options)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.glob("mpi-policy-arena-*/*"))


def test_rows_and_actions_are_exchanged_a_turn_at_a_time(tmp_path: Path) -> None:
    with driver("plays", tmp_path) as link:
        with pytest.raises(ProtocolError, match="call `reset` first"):
            link.step({})
        rows = link.reset()
        with pytest.raises(ProtocolError, match="nothing to wait for"):
            link.await_rows()
        for step in range(50):
            assert (rows["walker"].rewards == step).all()
            assert (rows["walker"].observations[0] == step).all()
            assert ("chooser" in rows) == (step % 3 == 0)
            actions: dict[str, Any] = {"walker": np.full((3, 2), 0.5, np.float32)}
            if "chooser" in rows:
                assert rows["chooser"].ids.tolist() == [7, 9]
                actions["chooser"] = np.array([[1, 0], [2, 1]])
            rows = link.step(actions)
        assert (link.groups, link.handovers, link.file.changes) == ({"walker": WALKER, "chooser": CHOOSER}, 51, 1)
        assert decode(link.path.read_bytes()).groups[0].actions.tolist() == [[0.5, 0.5]] * 3
        assert (link.reset()["walker"].rewards == 0).all()
        link.give()
        with pytest.raises(ProtocolError, match="simulator's turn"):
            link.give()


def test_a_program_of_release_02_plays(tmp_path: Path) -> None:
    with driver("release-0.2", tmp_path, profile="release-0.2") as link:
        rows = link.reset()
        assert rows["chooser"].ids.tolist() == [0, 1]
        assert rows["chooser"].masks is not None
        assert rows["chooser"].masks.tolist() == [[True, False, False, False, True]] * 2
        for _ in range(10):
            rows = link.step({name: no_op_actions(link.groups[name], some) for name, some in rows.items()})


def test_messages_come_back_and_the_file_grows_for_them(tmp_path: Path) -> None:
    with driver("plays", tmp_path) as link:
        link.reset()
        sent = [bytes(range(200)), b"", b"abc"]
        for data in sent:
            link.send(ECHO, data)
        for _ in range(3):
            link.give()
            link.await_rows()
        assert link.received() == [(ECHO, data[::-1]) for data in sent]
        assert link.file.changes == 2


def test_wrong_actions_are_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    right, chosen = np.zeros((3, 2)), np.ones((2, 2), int)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"walker": np.zeros((2, 2)), "chooser": chosen}, r"shape \(2, 2\), expected \(3, 2\)"),
        ({"walker": np.full((3, 2), np.nan), "chooser": chosen}, "not finite"),
        ({"walker": right, "other": np.zeros((1, 1))}, "'other'"),
        ({"chooser": chosen}, "no actions"),
        ({"walker": np.full((3, 2), 1j), "chooser": chosen}, "does not fit"),
        ({"walker": right, "chooser": np.array([[3, 0], [0, 0]])}, "3 in row 0, expected 0 to 2 in branch 0"),
        ({"walker": right, "chooser": np.array([[0.5, 0], [0, 0]])}, "does not fit"),
    ]
    with driver("plays", tmp_path) as link:
        link.reset()
        before = link.path.read_bytes()
        for actions, message in wrong:
            with pytest.raises(ActionError, match=message):
                link.step(actions)
        assert link.path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "kind_of_error", "message"),
    [
        ("killed", PeerGone, r"was killed by SIGKILL after 5 hand-overs\n  \| a line of output"),
        pytest.param(
            "ends at once", PeerGone, r"ended with status 7 after 0 hand-overs\n  \| a line", marks=pytest.mark.long
        ),
        ("closes", PeerClosed, "has closed the link after 5 hand-overs"),
        ("hangs", PeerSilent, "turn 1, command 0, 5 hand-overs; the program is asleep"),
        pytest.param("silent", PeerSilent, "has not answered since it was started", marks=pytest.mark.long),
    ],
)
def test_a_program_that_fails_is_named(kind: str, kind_of_error: type[LinkError], message: str, tmp_path: Path) -> None:
    limits = {"step_s": 1.0, "start_s": 1.0} if kind == "silent" else {"step_s": 1.0}
    with driver(kind, tmp_path, close_s=0.2, **limits) as link, pytest.raises(kind_of_error, match=message):
        link.reset()
        while True:
            link.give()
            link.await_rows()


@pytest.mark.parametrize(
    "size", [pytest.param(5, marks=pytest.mark.long), 15, 155, pytest.param(440, marks=pytest.mark.long)]
)
def test_truncated_file_is_an_error(size: int, tmp_path: Path) -> None:
    with driver("cuts", tmp_path, str(size), step_s=0.5, close_s=0.2) as link:
        with pytest.raises((LayoutError, PeerSilent)) as caught:
            link.reset()
            while True:
                link.give()
                link.await_rows()
        if size > 17:
            assert isinstance(caught.value, LayoutError)


class ModelDriver:
    """The other side of a `Simulator`: models every byte of the file, without sharing code with the codec."""

    def __init__(self, first: Path, groups: list[Group]) -> None:
        self._path, self._groups = first, groups
        first.write_bytes(struct.pack("<iiBBiii", 22, 0, 1, 1, 4, 0, 0))  # a reset, in the simulator's turn
        first.chmod(0o600)
        self.expected = bytearray()

    def take(self) -> None:
        """Waits for the turn; follows changes of file."""
        while True:
            while self._path.read_bytes()[8]:
                time.sleep(0)
            if self._path.read_bytes()[9] != 2:
                return
            self._path.unlink()
            self._path = self._path.with_name(self._path.name + "_")

    def expect(self, names: list[str]) -> None:
        """The groups that are registered, without rows."""
        groups = [group for group in self._groups if group.name in names]
        self.expected = bytearray(file_of(groups))
        self.places = places(groups)
        for group in groups:
            start = self.places[f"{group.name}.n"]
            end = self.places[f"{group.name}.name"] + len(group.data)
            self.expected[start:end] = bytes(end - start)

    def write(self, field: str, data: bytes) -> None:
        """What the simulator must have written."""
        at = self.places[field]
        self.expected[at : at + len(data)] = data

    def check(self) -> None:
        """The file has these bytes and no others."""
        assert self._path.read_bytes() == bytes(self.expected)

    def give(self, actions: dict[str, bytes]) -> None:
        """Writes actions, and gives the turn."""
        with self._path.open("r+b", buffering=0) as file:
            for name, data in actions.items():
                self.write(f"{name}.action", data)
                os.pwrite(file.fileno(), data, self.places[f"{name}.action"])
            os.pwrite(file.fileno(), b"\1", 8)


@pytest.mark.parametrize("handovers", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_simulator_writes_what_an_independent_model_expects(handovers: int, tmp_path: Path) -> None:
    drawn = np.random.default_rng(5)
    model = ModelDriver(
        tmp_path / "link",
        [
            Group(drawn, "walker", 3, [(3,), (2, 2)], 2, None, 0),
            Group(drawn, "chooser", 2, [(2,), (1,)], None, [3, 2], 0),
        ],
    )
    told: queue.Queue[dict[str, Rows]] = queue.Queue()
    heard: queue.Queue[Any] = queue.Queue()

    def play() -> None:
        with Simulator(tmp_path / "link", step_s=60.0) as simulator:
            simulator.add(WALKER)
            simulator.add(CHOOSER)
            simulator.begin()
            for _ in range(handovers):
                heard.put(simulator.ask(told.get()))

    thread = threading.Thread(target=play)
    thread.start()
    registered: list[str] = []
    for _ in range(handovers):
        rows: dict[str, Rows] = {}
        for spec in (WALKER, CHOOSER):
            if (n := int(drawn.integers(0, spec.agents + 1))) and drawn.random() < 0.7:
                observations = tuple(
                    drawn.standard_normal((n, *shape)).astype(np.float32) for shape in spec.observations
                )
                flags = drawn.integers(0, 2, (2, n)).astype(bool)
                masks = None if spec.branches is None else drawn.integers(0, 2, (n, spec.choices)).astype(bool)
                ids = drawn.permutation(100)[:n].astype(np.int32)
                rows[spec.name] = Rows(ids, observations, drawn.standard_normal(n).astype(np.float32), *flags, masks)
        told.put(rows)
        model.take()
        if new := [name for name in rows if name not in registered]:
            before, registered = model.expected, [*registered, *new]
            model.expect(registered)
            model.expected[22 : len(before)] = before[22:]
        for name in registered:
            model.write(f"{name}.n", struct.pack("<i", len(rows[name].ids) if name in rows else 0))
        for name, one in rows.items():
            for number, values in enumerate(one.observations):
                model.write(f"{name}.observation {number}", struct.pack(f"<{values.size}f", *values.flat))
            model.write(f"{name}.reward", struct.pack(f"<{len(one.ids)}f", *one.rewards))
            model.write(f"{name}.done", bytes(one.done.tolist()))
            model.write(f"{name}.max_step", bytes(one.max_step.tolist()))
            model.write(f"{name}.id", struct.pack(f"<{len(one.ids)}i", *one.ids))
            if one.masks is not None:
                model.write(f"{name}.mask", bytes(one.masks.reshape(-1).tolist()))
        if registered:
            model.check()
        given = {name: drawn.standard_normal(2 * len(one.ids)).astype("<f4").tobytes() for name, one in rows.items()}
        if "chooser" in rows:
            given["chooser"] = drawn.integers(0, 2, 2 * len(rows["chooser"].ids)).astype("<i4").tobytes()
        model.give(given)
        actions = heard.get(timeout=600)
        assert {name: one.tobytes() for name, one in actions.items()} == given
    thread.join(600)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled `foreign_peer.c`, which maps the file."""
    program = tmp_path_factory.mktemp("program") / "foreign_peer"
    source = Path(__file__).parents[1] / "support" / "foreign_peer.c"
    subprocess.run(["cc", "-std=c99", "-O2", "-o", str(program), str(source), "-lm"], check=True)
    return program


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, 40))])
def test_file_truncated_at_any_moment_is_an_error_and_no_signal(block: int, foreign: Path, tmp_path: Path) -> None:
    drawn = random.Random(block)
    for _ in range(12):
        with Driver([str(foreign), "--books", "/dev/null"], folder=tmp_path) as driver:
            rows = driver.reset()
            path, size = driver.path, driver.path.stat().st_size
            cut = threading.Timer(drawn.uniform(0.0, 0.01), os.truncate, (path, drawn.randrange(size)))
            cut.start()
            with pytest.raises(LinkError):
                for _ in range(1_000_000):
                    rows = driver.step({name: no_op_actions(driver.groups[name], one) for name, one in rows.items()})
            cut.join()


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "pipe", "folder", "nothing"])
def test_next_file_must_be_a_private_one(kind: str, foreign: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    with Driver([str(foreign), "--books", "/dev/null"], folder=tmp_path, close_s=0.2) as link:
        rows = link.reset()
        following = link.path.with_name(link.path.name + "_")
        if kind == "symbolic link":
            following.symlink_to(victim)
        elif kind == "hard link":
            os.link(victim, following)
        elif kind == "pipe":
            os.mkfifo(following)
        elif kind == "folder":
            following.mkdir()
        link.file.write(9, b"\2")  # as if the simulator had changed the file
        link._rows = None
        with pytest.raises(UnsafeFile):
            link.poll()
        assert rows
        if kind == "folder":
            following.rmdir()
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o755, 0o702])
def test_a_folder_that_others_may_access_is_refused(mode: int, tmp_path: Path) -> None:
    outer = tmp_path / f"mpi-policy-arena-{os.getuid()}"
    outer.mkdir()
    outer.chmod(mode)
    with pytest.raises(UnsafeFile, match="other users may access the folder"):
        driver("plays", tmp_path)


def test_leftovers_of_dead_drivers_are_removed(tmp_path: Path) -> None:
    with driver("plays", tmp_path) as living:
        left = living.path.parent.parent / "abandoned"
        left.mkdir(0o700)
        (left / "file").write_bytes(b"x")
        with driver("plays", tmp_path):
            assert not left.exists()
            assert living.path.exists()


def test_manual_program_finds_its_file_and_drivers_do_not_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Driver(attach="default") as link:
        assert link.path == tmp_path / "ml-agents" / "default"
        with pytest.raises(UnsafeFile, match="another driver uses this file"):
            Driver(attach="default")
        link.send(ECHO, b"hello")
        link.give(reset=True)  # in a second file, because of the message
        with pytest.raises(UnsafeFile, match="another driver uses this file"):
            Driver(attach="default")
        assert link.path.exists() and link.poll() is None
        program = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).parents[1] / "support" / "link_programs.py"),
                "plays",
                "--memory-path",
                str(link.first_path),
            ],
            env={**os.environ, **environment()},
        )
        wait_for(lambda: link.poll() is not None)
        for _ in range(10):
            link.give()
            link.await_rows()
        assert link.received() == [(ECHO, b"olleh")], "once, and not the sent message"
    assert program.wait(600) == 0
    assert not list((tmp_path / "ml-agents").iterdir())


def test_too_many_changes_are_refused(tmp_path: Path) -> None:
    assert next_path(tmp_path / ("name" + 199 * "_")).name == "name" + 200 * "_"
    with pytest.raises(NoRoom, match="changed 200 times: raise `side_channel_bytes`"):
        next_path(tmp_path / ("name" + 200 * "_"))


@pytest.mark.parametrize("kind", ["hangs", pytest.param("silent", marks=pytest.mark.long)])
def test_nothing_is_left_when_the_driver_is_killed(kind: str, tmp_path: Path) -> None:
    script = (
        "import sys, time; sys.path[:0] = sys.argv[3:]; import link_programs\n"
        "from arena.external.shared_memory import Driver\n"
        "command, variables = link_programs.command(sys.argv[1]), link_programs.environment()\n"
        "link = Driver(command, environment=variables, folder=sys.argv[2])\n"
        "link.give(reset=True)\n"
        "print(link.path, flush=True)\n"
        "while True:\n"
        "    if link.poll() is not None: link.give()\n"
        "    time.sleep(0.001)\n"
    )
    paths = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]
    process = subprocess.Popen(
        [sys.executable, "-c", script, kind, str(tmp_path), *paths], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    wait_for(lambda: bool(processes_of({path: None})))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_for(lambda: not processes_of({path: None}) and not list(tmp_path.glob("mpi-policy-arena-*/*")), timeout=600)


@pytest.mark.parametrize("call", ["mkdir", "posix_fallocate"])
def test_nothing_is_left_when_a_driver_is_killed_while_it_makes_its_link(call: str, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from arena.external.shared_memory import Driver\n"
        "call = getattr(os, sys.argv[1])\n"
        "def killed(*arguments):\n"
        "    call(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(os, sys.argv[1], killed)\n"
        "Driver([sys.executable], folder=sys.argv[2])\n"
    )
    (tmp_path / f"mpi-policy-arena-{os.getuid()}").mkdir(0o700)
    killed = subprocess.run([sys.executable, "-c", script, call, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    wait_for(lambda: not list(tmp_path.glob("mpi-policy-arena-*/*")))
