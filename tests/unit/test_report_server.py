"""The live page of a run, over HTTP on this machine."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.cli.main import main
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.records.lock import RunLock
from arena.report.live import HOST, LivePage, PageServer
from league_folders import League, write_league
from run_cli import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_league(tmp_path / "run", League(policies=2, episodes=20, rounds=1))


class Maker:
    """Makes numbered pages."""

    def __init__(self) -> None:
        self.made = 0
        self.long = 0
        self.version = ""
        self.failure: ConfigError | None = None

    def __call__(self, path: Path, replays: int, version: str) -> str:
        if self.failure is not None:
            raise self.failure
        self.made += 1
        self.version = version
        return f"page {self.made}".ljust(self.long)


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def server(folder: RunFolder, maker: Maker) -> Iterator[PageServer]:
    with PageServer(LivePage(folder.path, replays=0, make=maker, clock=lambda: 0.0), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: PageServer, path: str) -> str:
    with urllib.request.urlopen(server.address + path, timeout=600) as answer:
        return str(answer.read().decode())


def test_page_is_rebuilt_only_after_changes(server: PageServer, folder: RunFolder) -> None:
    before = get(server, "version")
    assert [get(server, ""), get(server, "")] == ["page 1", "page 1"]
    with folder.episodes.open("a") as file:
        file.write("{}\n")
    assert get(server, "version") != before
    assert get(server, "") == "page 2"


def test_slow_page_is_not_rebuilt_at_once(folder: RunFolder) -> None:
    now = 100.0

    def make(path: Path, replays: int, version: str) -> str:
        nonlocal now
        now += 3
        return f"page of {now}"

    live = LivePage(folder.path, replays=0, make=make, clock=lambda: now)
    first, version = live.text(), live.version()
    with folder.episodes.open("a") as file:
        file.write("{}\n")
    now += 8
    assert (live.text(), live.version()) == (first, version)
    now += 2
    assert live.version() != version
    assert live.text() == "page of 116.0"


def test_announced_version_equals_the_served_page(folder: RunFolder) -> None:
    now, made = 100.0, []

    def make(path: Path, replays: int, version: str) -> str:
        nonlocal now
        now += 3
        with folder.episodes.open("a") as file:
            file.write("{}\n")
        made.append(version)
        return f"page {len(made)}"

    live = LivePage(folder.path, replays=0, make=make, clock=lambda: now)
    live.text()
    now += 10
    heard = live.version()
    assert (heard, live.text()) == (made[1], "page 2")
    assert (live.version(), len(made)) == (heard, 2)


def test_page_of_a_killed_run_is_rebuilt(server: PageServer, folder: RunFolder) -> None:
    lock = RunLock.take(folder.path)
    before = get(server, "version")
    lock.forget()  # as the kernel does: nothing is written
    assert get(server, "version") != before
    assert get(server, "") == "page 2"


def test_disconnected_reader_is_not_reported(
    server: PageServer, maker: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    maker.long = 2**24  # more than the system keeps for a reader
    with socket.create_connection((HOST, server.server_port)) as reader:
        reader.sendall(f"GET {path_of(server)} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        reader.recv(1)
    wait_for(lambda: not any("process_request" in thread.name for thread in threading.enumerate()), timeout=600)
    assert maker.made == 1
    assert capsys.readouterr().err == ""


def test_page_needs_the_key_of_its_address(server: PageServer, maker: Maker) -> None:
    key = server.address.rstrip("/").rpartition("/")[2]
    for path in ("/", "/version", f"/{key}x/", f"/x{key}/version", f"/{key[:-1]}", f"/%2e/{key}/", "/é/"):
        assert status_of(server, path, "localhost") in (400, 403), path
    assert status_of(server, path_of(server) + "config.yaml", "localhost") == 404, "nothing but the page"
    assert maker.made == 0


def test_page_is_served_under_names_of_loopback_alone(server: PageServer) -> None:
    for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("evil.example", 403), (None, 403)):
        for name in ("", "version"):
            assert status_of(server, path_of(server) + name, host) == status


def path_of(server: PageServer) -> str:
    return "/" + server.address.split("/", 3)[3]


def status_of(server: PageServer, path: str, host: str | None) -> int:
    with socket.create_connection((HOST, server.server_port)) as reader:
        line = "" if host is None else f"Host: {host}\r\n"
        reader.sendall(f"GET {path} HTTP/1.1\r\n{line}\r\n".encode())
        return int(reader.recv(64).split()[1])


def test_damaged_folder_is_reported_and_the_server_continues(server: PageServer, maker: Maker) -> None:
    maker.failure = ConfigError("is damaged", source="episodes.jsonl")
    with pytest.raises(urllib.error.HTTPError, match="500") as found:
        get(server, "")
    assert "episodes.jsonl: is damaged" in found.value.read().decode()
    assert found.value.headers["Refresh"] == "2", "the browser asks again"
    found.value.close()
    maker.failure = None
    assert get(server, "") == "page 1"


@pytest.mark.slow
def test_occupied_port_exits_with_2(server: PageServer, folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder.path), "--serve", str(server.server_port)]) == 2
    assert f"port {server.server_port} cannot be served" in capsys.readouterr().err


def test_a_page_is_served_or_written_but_not_both(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder.path), "--serve", "0", "--output", "page.html"]) == 2
    assert "--serve" in capsys.readouterr().err
