"""Games over HTTP through nginx, with the configuration that docs/http-games.md shows."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import requests

import readme
from arena.config.schema import TickRules
from arena.external.http import HttpGames
from external_actors import ONE
from external_connections import Playing, free_port
from system_programs import executable

SEEN = b'{"observation": [1, 2]}'
DASHES, UNDERSCORES = ("game-id", "step-kind"), ("game_id", "step_kind")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of the host 127.0.0.1, games.crt, and its key, games.key."""
    folder = tmp_path_factory.mktemp("certificate")
    command = [
        *(executable("openssl", "openssl"), "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(folder / "games.key"), "-out", str(folder / "games.crt")),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


@contextmanager
def nginx(server: str, certificate: Path, folder: Path, *, more: str = "") -> Iterator[str]:
    """nginx in front of the server at an address; yields the URL of its steps."""
    port = free_port()
    (shown,) = readme.Page("docs/http-games.md").blocks("nginx")
    settings = {
        "127.0.0.1:8000": server.removeprefix("http://").partition("/")[0],
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl; {more}",
        "games.example.org": "127.0.0.1",
        "/etc/ssl": str(certificate),
    }
    for found, own in settings.items():
        assert found in shown
        shown = shown.replace(found, own)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    text = f"""
    daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
    events {{}}
    http {{ access_log off; {paths} {shown} }}
    """
    (folder / "nginx.conf").write_text(text)
    command = [executable("nginx", "nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (folder / "pid").exists():
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.01)
            yield f"https://127.0.0.1:{port}/step"
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


@pytest.mark.parametrize("underscores", [False, True])
def test_games_play_through_nginx(underscores: bool, certificate: Path, tmp_path: Path) -> None:
    games, more = HttpGames(port=0, actor="json", entities=ONE), "underscores_in_headers on;" if underscores else ""
    with ExitStack() as stack:
        playing = stack.enter_context(Playing(games, 2, TickRules(max_delay_s=0.0), (2,)))
        url = stack.enter_context(nginx(games.address, certificate, tmp_path, more=more))
        session = stack.enter_context(requests.Session())

        def step(names: tuple[str, str], kind: str, data: bytes = b"") -> requests.Response:
            headers, trusted = dict(zip(names, ("a", kind), strict=True)), str(certificate / "games.crt")
            return session.post(url, data=data, headers=headers, timeout=60, verify=trusted)

        refused = step(UNDERSCORES, "tick", SEEN)
        code = "unknown_game" if underscores else "missing_step_kind"
        assert (refused.status_code, refused.json()["error"]) == (404 if underscores else 400, code)
        assert step(DASHES, "start").content == b"Game started."
        for _ in range(3):
            assert step(DASHES, "tick", SEEN).content == b'{"action":2}'
        assert step(UNDERSCORES if underscores else DASHES, "end", b'{"reward": 1.5}').content == b"{}"
        game = playing.account()
        assert (game.name, game.returns.tolist(), game.terminated) == ("a", [1.5], True)
