"""Games over HTTP, row by row of the contract, over raw connections."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import select
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn.server
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

import external_actors
import random_spaces
from arena.config import parse_config
from arena.config.schema import TickRules
from arena.errors import ConfigError
from arena.external import ExternalError
from arena.external.builtin_actors import Codec, raw_actor
from arena.external.connection import Connection
from arena.external.http import HttpGames
from arena.external.http_connection import RepeatedRecords
from arena.external.http_metrics import Metrics
from arena.game.api import Interface
from arena.game.spaces import flatten
from arena.plan.build import make_plan
from arena.preflight.examine import external_games
from arena.testing import check_external_games
from clock import Clock
from external_actors import ONE, HttpWire, Reply, chunked, play_http, request
from external_connections import INTERFACE, Playing, entities_of
from in_process import one_match

SEEN = b'{"observation": [1, 2]}'


def server(
    actor: str = "json", slots: int = 2, rules: TickRules | None = None, actions: Sequence[Any] = (2,), **options: Any
) -> Playing:
    own = {"port": 0, "actor": actor} | ({"entities": ONE} if actor in ("json", "raw") else {}) | options
    return Playing(HttpGames(**own), slots, rules or TickRules(max_delay_s=0.0), actions)


def actor(name: str, slots: int = 2, rules: TickRules | None = None, **options: Any) -> Playing:
    return server(f"external_actors:{name}", slots, rules, **options)


@pytest.fixture(scope="module", autouse=True)
def _short_naps() -> Iterator[None]:
    """uvicorn checks every 0.1 s for its end, and waits as long for its connections: 0.2 s for each test."""

    async def sleep(_: float) -> None:
        await asyncio.sleep(0.005)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(uvicorn.server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        yield


@pytest.fixture
def playing() -> Iterator[Playing]:
    with server() as one:
        yield one


@pytest.fixture
def wire(playing: Playing) -> Iterator[HttpWire]:
    with HttpWire(playing.games.address) as one:
        yield one


@pytest.mark.slow
def test_http_keeps_the_contract_of_connections() -> None:
    entities = entities_of(INTERFACE)
    check_external_games(lambda: HttpGames(port=0, entities=entities), play_http, limit_s=60.0)


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_game_from_start_to_end(playing: Playing, wire: HttpWire) -> None:
    start = wire.step("start")
    assert (start.status, start.body) == (200, b"Game started.")
    assert start.headers == {"content-type": "application/octet-stream", "content-length": "13"}
    assert wire.step("tick", data=SEEN).body == b'{"action":2}'
    assert wire.step("tick", data=b'{"observation": [1, 2], "reward": 0.5, "mask": [0, 0, 1]}').status == 200
    assert wire.step("end", data=b'{"reward": 1.5, "outcome": "win"}').body == b"{}"
    game = playing.account()
    assert (game.name, game.returns.tolist(), game.lengths.tolist(), game.outcomes) == ("g", [2.0], [2], {0: "win"})
    assert game.terminated
    assert not game.lost


CASES: dict[str, tuple[bytes, str | None]] = {
    "other path": (request("tick", path="/other"), "not_found"),
    "get": (request("tick", method="GET"), "method_not_allowed"),
    "no kind": (request(None), "missing_step_kind"),
    "empty kind": (request(""), "bad_step_kind"),
    "other kind": (request("stop"), "bad_step_kind"),
    "no game": (request("start", None), "missing_game_id"),
    "empty game": (request("start", ""), "bad_game_id"),
    "long game": (request("start", "x" * 257), "bad_game_id"),
    "space in game": (request("start", "a b"), "bad_game_id"),
    "letters in game": (request("start", "ä"), "bad_game_id"),
    "two games": (request("start", "a", b"", "game_id: b"), "conflicting_headers"),
    "two spellings": (request("start", "a", b"", "X-Game-Id: b"), "conflicting_headers"),
    "two kinds": (request("start", "a", b"", "step-kind: end"), "conflicting_headers"),
    "unknown game": (request("tick", "other"), "unknown_game"),
    "the same twice": (request("tick", "g", SEEN, "game-id: g", "Step-Kind: tick"), None),
    "other spelling": (request(None, None, SEEN, "X-Game-Id: g", "step-kind: tick"), None),
}


def test_wrong_requests_are_refused_and_the_game_goes_on(playing: Playing, wire: HttpWire) -> None:
    wire.step("start")
    named = {
        "empty kind": "g",
        "other kind": "g",
        "get": "g",
        "no game": None,
        "two games": None,
        "space in game": None,
    }
    for case, (sent, code) in CASES.items():
        with HttpWire(playing.games.address) as other:
            other.send(sent)
            reply = other.read()
        if code is None:
            assert reply.status == 200, case
        else:
            said = json.loads(reply.body)
            assert list(said)[:3] == ["error", "detail", "game_id"], case
            assert said["error"] == code, case
            assert case not in named or said["game_id"] == named[case], case
            assert ("reason" in said) == (code == "unknown_game"), case
            assert reply.headers["content-type"] == "application/json"
            assert (reply.headers.get("allow") == "POST") == (reply.status == 405), case
        assert wire.step("tick", data=SEEN).status == 200, case


def test_later_dialect_has_other_names() -> None:
    with server(dialect="later") as playing, HttpWire(playing.games.address) as wire:
        wire.send(request("start", None, b"", "session: a"))
        assert wire.read().status == 200
        wire.send(request("tick", None, SEEN, "X-Session: a"))
        assert wire.read().status == 200
        wire.send(request(None, None, SEEN))  # auto
        assert wire.read().body == b'{"action":2}'
        wire.send(request("stop", None, b"", "session: a"))
        assert wire.read().status == 200
        assert wire.step("tick", "a").error == "unknown_game"


MIB = bytes(range(256)) * 4096


@pytest.mark.parametrize("how", ["chunked", "1.0", "expect", "pipelined", "in pieces"])
def test_bodies_arrive_in_every_encoding(how: str) -> None:
    with actor("Echo") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        for data in (b"", b"x", MIB):
            whole = request("tick", "g", data)
            if how == "chunked":
                wire.send(request("tick", "g", b"", "Transfer-Encoding: chunked") + chunked(data))
            elif how == "expect":
                top, _, _ = request("tick", "g", data, "Expect: 100-continue").partition(b"\r\n\r\n")
                wire.send(top + b"\r\n\r\n")
                assert wire.read().status == 100
                wire.send(data)
            elif how == "pipelined":
                wire.send(request("tick", "g", b"first") + whole)
                assert wire.read().body == b"first"
            elif how == "in pieces":
                for at in range(0, 140, 7):
                    wire.send(whole[at : at + 7])
                wire.send(whole[140:])
            else:
                with HttpWire(playing.games.address) as other:
                    other.send(request("tick", "g", data, "connection: close", version="1.0"))
                    assert (other.read().body, other.at_end()) == (data, True)
                continue
            assert wire.read().body == data


def test_start_waits_until_the_actor_is_made_and_has_its_reply() -> None:
    with actor("Echo", config={"depth": 3}) as playing, HttpWire(playing.games.address) as wire:
        assert wire.step("start", data=b"now").body == b"started now"
        assert wire.step("end", data=b"here").body == b"ended here"


def test_too_large_bodies_are_refused() -> None:
    with server(max_body=1024) as playing:
        for sent in (
            request("tick", "g", b"")[:-4] + b"\r\ncontent-length: 1025\r\n\r\n",
            request("tick", "g", b"", "Transfer-Encoding: chunked") + chunked(bytes(1025)),
        ):
            with HttpWire(playing.games.address) as wire:
                wire.step("start", "g")
                sent = sent.replace(b"content-length: 0\r\n", b"")
                wire.send(sent)
                reply = wire.read()
                assert (reply.status, reply.error, reply.headers["connection"]) == (413, "too_large", "close")
                assert wire.at_end()
            with HttpWire(playing.games.address) as wire:
                assert wire.step("tick", "g", SEEN).status == 200  # untouched


def test_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(0o600)
    with server(token_file=str(path)) as playing, HttpWire(playing.games.address) as wire:
        wrong = wire.step("start")
        assert (wrong.status, wrong.error, wrong.headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
        assert wire.step(None, None).error == "unauthorized"  # before the headers
        assert b"another token" in wire.step("start", "g", b"", "token: other").body
        assert b"no token was sent" in wire.step("start", "g").body
        assert wire.step("start", "g", b"", "token: secret").status == 200
        assert wire.step("tick", "g", SEEN, "Authorization: Bearer secret").status == 200
        for path_, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 401)):
            wire.send(request(None, None, path=path_, method="GET"))
            assert wire.read().status == status


def test_pages_for_operators_are_served(playing: Playing, wire: HttpWire) -> None:
    wire.step("start")
    wire.step("tick", data=SEEN)
    bodies = {}
    for path in ("/healthz", "/readyz", "/metrics"):
        wire.send(request(None, None, path=path, method="HEAD"))
        assert wire.read(head=True).status == 200
        wire.send(request(None, None, path=path, method="GET"))
        bodies[path] = wire.read().body.decode()
        wire.send(request(None, None, path=path))
        assert (reply := wire.read()).status == 405
        assert reply.headers["allow"] == "GET, HEAD"
    assert bodies["/healthz"] == "ok"
    for line in ("arena_games_held 1", "arena_games_begun_total 1", 'arena_requests_total{kind="tick",status="200"} 1'):
        assert line in bodies["/metrics"].splitlines()


def test_games_begin_when_the_run_has_begun() -> None:
    games = HttpGames(port=0, entities=ONE)
    games.open(1, lambda: None)
    try:
        with HttpWire(games.address) as wire:
            reply = wire.step("start")
            assert (reply.status, reply.error, reply.headers["retry-after"]) == (503, "not_ready", "1")
            wire.send(request(None, None, path="/readyz", method="GET"))
            assert wire.read().status == 503
            assert wire.step("auto").error == "not_ready"
    finally:
        games.close("over")


def test_calls_after_the_end_are_left_out_in_a_thread_that_has_got_the_number_of_the_loop() -> None:
    with server() as ended:
        pass
    called: list[bool] = []
    late = threading.Thread(target=lambda: ended.games._loop.deliver(lambda: called.append(True)))
    late.start()
    late.join()
    assert not called


# --- limits that hold before a token is checked ---------------------------------------------------------------------


def memory() -> int:
    """The bytes of memory that this process uses."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sent_until_closed(wire: HttpWire, parts: Iterable[bytes]) -> int:
    """Sends until the server closes the connection; returns the number of bytes."""
    count = 0
    with suppress(ConnectionError):
        for part in parts:
            wire.send(part)
            count += len(part)
    return count


@pytest.mark.parametrize(
    ("start", "part", "status", "error"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ", b"y" * 2**16, 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", b"a: b\r\n" * 2**13, 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\n", b"y" * 2**16, 431, "headers_too_large"),
        (b"GET /", b"y" * 2**16, 414, "url_too_long"),
        (b"GET", b"T" * 2**16, 400, "bad_request"),
        (b"\r\n", b"\r\n" * 2**15, 431, "headers_too_large"),
        (b"", b"\x16\x03\x01" * 2**14, 400, "bad_request"),
    ],
    ids=["long", "many", "name", "url", "method", "empty", "tls"],
)
def test_endless_headers_are_cut_off(start: bytes, part: bytes, status: int, error: str, playing: Playing) -> None:
    before = memory()
    with HttpWire(playing.games.address) as wire, HttpWire(playing.games.address) as other:
        wire.send(start + part)
        reply = wire.read()
        assert (reply.status, reply.error, reply.headers["connection"]) == (status, error, "close")
        assert sent_until_closed(wire, [part] * (100 * 2**20 // len(part))) <= 100 * 2**20
        assert other.get("/healthz").status == 200
    assert memory() - before < 50 * 2**20


def test_endless_trailers_and_chunk_headers_are_cut_off(playing: Playing) -> None:
    start = request("start", "g", b"", "transfer-encoding: chunked")
    for part in (b"0\r\n" + b"a: b\r\n" * 2**14, b"0\r\nx: " + b"y" * 2**16, b"1;x=" + b"y" * 2**16):
        with HttpWire(playing.games.address) as wire:
            assert sent_until_closed(wire, [start + part, *[part[4:]] * 1000]) < 1000 * len(part)
            assert wire.at_end()
    with HttpWire(playing.games.address) as wire:
        wire.send(start + chunked(b" " * 2**17, 1))  # six bytes for each byte of the body, which are not headers
        assert wire.read().error == "bad_body"


def test_pipelined_requests_are_limited(playing: Playing) -> None:
    with HttpWire(playing.games.address) as wire:
        wire.send(request(None, None, path="/healthz", method="GET") * 1000)
        with pytest.raises(EOFError):
            for _ in range(1000):
                assert wire.read().status == 200
        with HttpWire(playing.games.address) as other:
            assert other.get("/healthz").status == 200


def test_health_is_told_on_connections_beyond_the_limit() -> None:
    with server(slots=1, keep_alive_s=60.0) as playing:
        address = playing.games.address
        idle = [HttpWire(address) for _ in range(34)]  # what one peer may have
        assert idle[0].step("start").status == 200
        with HttpWire(address) as wire:
            reply = wire.step("tick", data=SEEN)
            assert (reply.status, reply.error, reply.headers["connection"]) == (
                *(503, "too_many_connections", "close"),
            )
            assert "takes 68 connections, 34 of one address; play several games over each" in reply.body.decode()
        idle += [HttpWire(address) for _ in range(200)]
        for page in ("/healthz", "/readyz"):
            with HttpWire(address) as wire:
                assert wire.get(page).status == 200
                assert wire.at_end()
        assert idle[0].step("tick", data=SEEN).status == 200  # an earlier connection is not disturbed
        assert [wire.at_end() for wire in idle[34:100]] == [True] * 66  # newer ones took their place
        for wire in idle:
            wire.socket.close()

        def is_free() -> bool:
            with HttpWire(address) as wire:
                return wire.step("tick", data=SEEN).status == 200

        playing.until(is_free)


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_offer_of_another_protocol_is_ignored(protocol: str, wire: HttpWire) -> None:
    offer = ("connection: Upgrade, HTTP2-Settings", f"upgrade: {protocol}", "http2-settings: AAMAAABkAAQAAP__")
    assert wire.step("start", "g", b"", *offer).status == 200
    assert wire.step("tick", "g", SEEN, *offer).status == 200, "its body is read"
    in_chunks = request("tick", "g", chunked(SEEN), "transfer-encoding: chunked", *offer)
    wire.send(in_chunks + request("tick", "g", SEEN, *offer) + request("tick", "g", SEEN))
    assert [wire.read().status for _ in range(3)] == [200] * 3
    for byte in request("tick", "g", SEEN, *offer):
        wire.send(bytes([byte]))
    assert wire.read().status == 200
    long = [f"x-{number}: {'y' * 1000}" for number in range(20)]
    assert wire.step("tick", "g", SEEN, *offer, *long).status == 200, "its head is counted once"
    assert wire.step("end", "g", b'{"info": 1}', *offer).error == "bad_body", "nor is it lost at the end"
    with HttpWire(f"http://127.0.0.1:{wire.socket.getpeername()[1]}") as other:
        assert other.step("tick", "g", SEEN).status == 200
        other.send(request("tick", "g", SEEN, path="localhost:80", method="CONNECT"))
        assert (other.read().status, other.at_end()) == (405, True)


@pytest.mark.slow
def test_half_sent_requests_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.external.http_connection.HEAD_S", 0.3)
    whole = request("start", "h", b"12345")
    with server(keep_alive_s=0.6) as playing:
        wires = [HttpWire(playing.games.address) for _ in range(5)]
        for wire, sent in zip(wires, (b"", b"\r\n", b"G", whole[:40], whole[:-2]), strict=True):
            wire.send(sent)
        for wire in wires:
            assert wire.at_end()
            wire.socket.close()
        with HttpWire(playing.games.address) as wire:  # bytes that keep coming change nothing
            wire.send(whole[:-5].replace(b": 5", b": 500"))
            assert sent_until_closed(wire, slow_bytes()) < 100
        with HttpWire(playing.games.address) as wire:
            assert wire.step("start").status == 200


def test_connection_is_closed_that_ends_its_request_after_the_answer() -> None:
    with server(keep_alive_s=0.3) as playing, HttpWire(playing.games.address) as wire:
        whole = request("tick", "g", b"12345", path="/other")
        wire.send(whole[:-5])
        assert wire.read().status == 404
        wire.send(whole[-5:])
        assert wire.at_end()


def slow_bytes() -> Iterator[bytes]:
    for _ in range(100):
        time.sleep(0.05)
        yield b" "


def test_request_that_is_answered_slowly_is_no_half_sent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.external.http_connection.HEAD_S", 0.1)
    with actor("Slow") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        ticks = [request("tick", "g", str(number).encode()) for number in range(40)]  # of 20 ms each
        wire.send(b"".join(ticks) + request("end")[:-3])
        assert [wire.read().status for _ in ticks] == [200] * 40
        assert wire.at_end()


def test_one_header_host_names_the_server() -> None:
    allowed = ("LOCALHOST:80", "127.0.0.1:8000", "[::1]:8000", "games.example.org", "games.example.org:443")
    foreign = (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8000",
        "localhost:8000@evil.example",
        "",
    )
    with server(allowed_hosts=["games.example.org"]) as playing:
        for host in allowed:
            with HttpWire(playing.games.address) as wire:
                for path, status in (("/healthz", 200), ("/metrics", 200), ("/step", 405)):
                    wire.send(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
                    assert wire.read().status == status, host
        headers = [f"host: {host}\r\n".encode() for host in foreign]
        for lines in [*headers, b"", b"host: localhost\r\nhost: evil.example\r\n"]:
            with HttpWire(playing.games.address) as wire:
                wire.send(b"GET /healthz HTTP/1.1\r\n" + lines + b"\r\n")
                reply = wire.read()
                assert (reply.status, reply.error) == (421, "wrong_host"), lines
                assert wire.at_end()


# --- games ----------------------------------------------------------------------------------------------------------


def test_starts_are_refused_by_name_and_slot_until_an_end(playing: Playing, wire: HttpWire) -> None:
    assert wire.step("start", "a").status == 200
    assert (wire.step("start", "a").status, wire.step("start", "a").error) == (409, "already_started")
    assert wire.step("start", "b").status == 200
    full = wire.step("start", "c")
    assert (full.status, full.error, full.headers["retry-after"]) == (503, "no_slot", "1")
    assert wire.step("end", "b").status == 200
    assert json.loads(wire.step("tick", "b").body)["reason"] == "ended"
    assert json.loads(wire.step("tick", "c").body)["reason"] == "never"
    assert wire.step("start", "b").status == 200  # a new game
    assert wire.step("end", "b").status == 200
    assert playing.table.counts.begun == 3


def test_requests_of_one_game_are_served_one_at_a_time() -> None:
    external_actors.Slow.most.clear()
    with actor("Slow", slots=8) as playing:
        wires = [HttpWire(playing.games.address) for _ in range(8)]
        wires[0].step("start", "one")
        for number, wire in enumerate(wires):
            wire.send(request("tick", "one", str(number).encode()))
        assert [wire.read().body for wire in wires] == [str(number).encode() for number in range(8)]
        assert external_actors.Slow.most == {"one": 1}
        for wire in wires:
            wire.socket.close()


def test_queue_of_a_game_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_actors.Slow, "free", threading.Event())
    with actor("Slow", queue=2) as playing:
        wires = [HttpWire(playing.games.address) for _ in range(6)]
        wires[0].step("start")
        for wire in wires:
            wire.send(request("tick"))
        playing.until(lambda: len(select.select([wire.socket for wire in wires], [], [], 0)[0]) == 3)
        external_actors.Slow.free.set()
        assert sorted(wire.read().status for wire in wires) == [200] * 3 + [429] * 3
        assert wires[0].step("tick").status == 200
        for wire in wires:
            wire.socket.close()


def test_ticks_after_a_start_wait_and_after_an_end_are_refused(wire: HttpWire) -> None:
    wire.send(request("start", "a") + request("tick", "a", SEEN) + request("end", "a") + request("tick", "a", SEEN))
    assert [wire.read().status for _ in range(4)] == [200, 200, 200, 404]


def test_tick_of_a_disconnected_client_is_finished() -> None:
    with actor("Slow") as playing:
        with HttpWire(playing.games.address) as wire:
            wire.step("start")
            wire.send(request("tick"))
        with HttpWire(playing.games.address) as wire:
            assert wire.step("tick", data=b"next").body == b"next"


def test_incomplete_request_does_not_change_the_game(playing: Playing, wire: HttpWire) -> None:
    wire.step("start")
    with HttpWire(playing.games.address) as other:
        other.send(request("tick", "g", SEEN)[:-4])
    assert wire.step("tick", data=SEEN).status == 200
    with HttpWire(playing.games.address) as other:
        other.send(request("start", "h", b"", "x: y")[:-2] + b"content-length: 5\r\n\r\n12")
    assert wire.step("tick", data=SEEN).status == 200
    playing.until(lambda: wire.step("start", "h").status == 200)


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_silent_games_expire_and_slow_actors_time_out() -> None:
    rules = TickRules(max_delay_s=0.0, idle_s=0.3, answer_s=0.6)
    with actor("Balancer", rules=rules) as playing, HttpWire(playing.games.address) as wire:
        external_actors.Balancer.closed.clear()
        external_actors.Balancer.overlapping.clear()
        wire.step("start", "a")
        playing.until(lambda: playing.table.running == 0)
        assert json.loads(wire.step("tick", "a").body)["reason"] == "expired"
        wire.step("start", "b")
        assert wire.step("tick", "b", b"sleep 0.5").status == 200  # longer than idle_s
        late = wire.step("tick", "b", b"sleep 2")
        assert (late.status, late.error) == (504, "timeout")
        assert json.loads(wire.step("tick", "b").body)["reason"] == "timeout"
        playing.until(lambda: len(external_actors.Balancer.closed) == 2)
        assert external_actors.Balancer.closed == [("a", "expired"), ("b", "timeout")]
        assert not external_actors.Balancer.overlapping
        playing.until(lambda: sorted(game.lost for game in playing.finished) == ["expired", "timeout"])


@pytest.mark.slow
def test_game_of_a_built_in_actor_is_over_without_an_answer() -> None:
    with (
        server(rules=TickRules(max_delay_s=1.0, min_asking=2, answer_s=0.4)) as playing,
        HttpWire(playing.games.address) as wire,
        HttpWire(playing.games.address) as other,
    ):
        wire.step("start", "a")
        other.step("start", "b")
        wire.send(request("tick", "a", SEEN) + request("tick", "a", SEEN))
        first, second = wire.read(), wire.read()
        assert (first.status, first.error, second.status) == (504, "timeout", 404)
        assert json.loads(second.body)["reason"] == "timeout"
        playing.until(lambda: [game.lost for game in playing.finished] == ["timeout"])
        assert wire.step("start", "a").status == 200
        for one, name in ((wire, "a"), (other, "b")):
            one.send(request("tick", name, SEEN))
        assert [one.read().status for one in (wire, other)] == [200, 200]


def test_draining_lets_running_games_go_on(playing: Playing, wire: HttpWire) -> None:
    wire.step("start")
    playing.games.drain()
    assert (wire.step("start", "h").status, wire.step("start", "h").error) == (503, "draining")
    assert wire.step("tick", data=SEEN).status == 200
    assert wire.step("end").status == 200


# --- actors ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[tuple[Playing, HttpWire]]:
    with actor("Balancer") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        yield playing, wire


def test_rewards_voids_records_and_ends_of_an_actor(own: tuple[Playing, HttpWire]) -> None:
    playing, wire = own
    said = [b"push 8", b"ask 1", b"push 1", b"push 2", b"ask 2", b"void", b"record 1", b"push 4"]
    assert [wire.step("tick", data=data).body for data in said] == [b"", b"2", b"", b"", b"2", b"", b"", b""]
    assert wire.step("tick", data=b"about").body == b"blue agent_0 -1 4 0"
    assert wire.step("end", data=b"0.5").body == b"bye"
    game = playing.account()
    assert (game.returns.tolist(), game.lengths.tolist(), game.terminated) == ([15.5], [3], True)
    assert (playing.table.counts.given, playing.table.counts.void) == (1, 1)


def test_an_actor_may_end_an_entity_itself(own: tuple[Playing, HttpWire]) -> None:
    playing, wire = own
    wire.step("tick", data=b"ask 1")
    wire.step("tick", data=b"finish loss")
    game = playing.account()
    assert (game.truncated, game.terminated, game.outcomes) == (True, False, {0: "loss"})
    assert wire.step("end").body == b"bye"
    assert wire.step("end").status == 404


def test_an_actor_that_fails_loses_its_game(own: tuple[Playing, HttpWire]) -> None:
    playing, wire = own
    commands = ("raise", "stop", "exit", "twice", "clone", "ask nan", "push inf", "record 5", "return list")
    for number, command in enumerate(commands, 1):
        wire.step("tick", data=b"ask 1")
        reply = wire.step("tick", data=command.encode())
        code = "actor_bad_return" if command == "return list" else "actor_error"
        assert (reply.status, reply.error) == (500, code), command
        assert b"secret" not in reply.body
        assert json.loads(wire.step("tick").body)["reason"] == "failed", command
        playing.until(lambda number=number: len(playing.finished) == number)  # type: ignore[misc]
        assert playing.finished[-1].lost == "failed", command
        assert wire.step("start").status == 200, command


def test_failing_actor_constructor_starts_no_game(own: tuple[Playing, HttpWire]) -> None:
    _, wire = own
    assert wire.step("start", "h", b"raise").error == "actor_error"
    assert wire.step("start", "h").status == 200
    assert wire.step("end", "h", b"raise").error == "actor_error"  # the game is over nevertheless
    assert wire.step("start", "h").status == 200


def test_coroutines_await_and_must_not_block() -> None:
    with actor("Eager") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        assert wire.step("tick", data=b"1").body == b"2"
    with actor("Blocking") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        assert wire.step("tick").error == "actor_error"


def test_requests_without_a_game_are_answered_and_not_recorded() -> None:
    with actor("Balancer", stateless_actors=2) as playing, HttpWire(playing.games.address) as wire:
        wire.send(request("auto", None, b"ask 1"))
        assert wire.read().body == b"2"
        assert wire.step("auto", "ignored", b"raise").error == "actor_error"
        assert wire.step("auto", "ignored", b"ask 1").body == b"2"
        playing.until(lambda: len(playing.finished) == 3)
        assert {(game.name, game.training) for game in playing.finished} == {("", False)}
        wire.step("start", "a")
        wire.step("start", "b")
        assert wire.step("auto", None, b"ask 1").error == "no_slot"
        assert playing.table.counts.void == 2


# --- built-in actors ------------------------------------------------------------------------------------------------


def test_wrong_json_bodies_are_named_and_change_nothing(playing: Playing, wire: HttpWire) -> None:
    wire.step("start")
    for data, code, detail in (
        (b"", "bad_body", 'the body is empty; expected JSON such as {"observation": ...}'),
        (b"[]", "bad_body", ""),
        (b"{", "bad_body", "the body is no JSON: it ends in the middle of a value"),
        (b"{'observation': 1}", "bad_body", "the body is no JSON: byte 1: object keys must be strings"),
        (b'{"observation": "\xff"}', "bad_body", "it is no UTF-8 text"),
        (
            b'{"observation": [1, NaN]}',
            "bad_body",
            "observation[1]: found nan; expected a finite number: JSON has no NaN",
        ),
        (b'{"observation": [1, 1e400]}', "bad_body", "observation[1]: found inf; expected a finite number"),
        (b'{"entities": {"hero": {"info": {"a": 1e999}}}}', "bad_body", "entities.hero.info.a: found inf; expected"),
        (b'{"obs": [1, 2]}', "bad_body", "obs: unknown key 'obs'; did you mean 'observation'?"),
        (b'{"observation": [1, 2], "masks": [1, 1, 1]}', "bad_body", "did you mean 'mask'?"),
        (b"[" * 100_000, "bad_body", ""),
        (
            b'{"observation": [1, 2], "rewards": 1}',
            "bad_body",
            "rewards: unknown key 'rewards'; did you",
        ),
        (b'{"entities": {"hero": {"rewards": 1}}}', "bad_body", "entities.hero.rewards: unknown key 'rewards'; did"),
        (b'{"observation": [1, 2], "reward": "1"}', "bad_body", ""),
        (
            b'{"reward": null}',
            "bad_body",
            "reward: found null (JavaScript writes NaN and Infinity so); expected a number",
        ),
        (b'{"entities": {"hero": {"reward": null}}}', "bad_body", "hero.reward: found null (JavaScript writes NaN"),
        (b'{"observation": [1, 2, 3]}', "bad_observation", "shape (3,); expected (2,)"),
        (b'{"observation": [[1], [2, 3]]}', "bad_observation", ""),
        (b'{"observation": ["a", "b"]}', "bad_observation", "expected numbers"),
        (b'{"observation": [0.5, null]}', "bad_observation", "null among the numbers"),
        (b'{"observation": [1, 1e39]}', "bad_observation", ""),
        (b'{"observation": {"a": 1}}', "bad_observation", "a mapping with 'a'; expected numbers"),
        (
            b'{"observation": [1, 2], "mask": [1]}',
            "bad_mask",
            "dtype int64 and shape (1,); expected numbers (3,): 1 for",
        ),
        (b'{"observation": [1, 2], "mask": [0, 0, 0]}', "bad_mask", ""),
        (b'{"observation": [1, 2], "mask": [1, 2, 0]}', "bad_mask", "the value 2; expected numbers (3,)"),
        (b'{"observation": [1, 2], "given": 3}', "bad_action", ""),
        (b'{"observation": [1, 2], "given": [0]}', "bad_action", ""),
        (b'{"entities": {"heroo": {"observation": [1, 2]}}}', "unknown_entity", "'heroo'; did you mean 'hero'?"),
    ):
        reply = wire.step("tick", data=data)
        assert (reply.status, reply.error) == (400, code), data[:80]
        assert detail in json.loads(reply.body)["detail"], data
    for kind, data, detail in (
        ("end", b'{"outcome": "won"}', "outcome: 'won'; did you mean 'win'? known: draw, loss, win"),
        ("end", b'{"outcome": "tie"}', "outcome: 'tie'; did you mean 'draw'?"),
        ("end", b'{"terminated": true}', "unknown key 'terminated'; did you mean 'end'?"),
        ("tick", b'{"observation": [1, 2], "truncated": true}', "truncated: is for an end: send step_kind: end"),
        ("tick", b'{"observation": [1, 2], "outcome": "win"}', "outcome: is for an end: send step_kind: end"),
        ("stop", b"", "'stop'; did you mean 'end'? known: auto, end, start, tick"),
        ("reset", b"", "'reset'; did you mean 'start'?"),
    ):
        reply = wire.step(kind, data=data)
        assert reply.status == 400 and detail in json.loads(reply.body)["detail"], data
    detail = json.loads(wire.get("/metric").body)["detail"]
    assert detail.startswith("there is no /metric; did you mean '/metrics'? known: /healthz, ")
    assert playing.table.counts.asks == 0
    assert wire.step("tick", data=b'{"observation": [1, 2], "mask": [true, false, 1]}').status == 200, "flags do too"
    assert wire.step("end").status == 200
    assert playing.account().returns.tolist() == [0.0]


TWO = {
    name: {"observation": {"dict": {"at": {"box": {"shape": []}}, "kind": {"discrete": {"n": 4}}}}, "action": action}
    for name, action in (("hero", {"box": {"shape": [2]}}), ("rival", {"discrete": {"n": 3, "start": 1}}))
}


def test_games_of_several_entities_in_json() -> None:
    with (
        server(entities=TWO, actions=[np.full(2, 2.0, np.float32), 2]) as playing,
        HttpWire(playing.games.address) as wire,
    ):
        assert wire.step("start", data=b'{"entities": ["other"]}').error == "unknown_entity"
        assert wire.step("start", data=b'{"entities": []}').error == "unknown_entity"
        assert wire.step("start", data=b'{"training": false}').status == 200
        seen = {"observation": {"at": 0.5, "kind": 3}}
        reply = wire.step("tick", data=json.dumps({"entities": {"hero": seen, "rival": seen}}).encode())
        assert json.loads(reply.body) == {"entities": {"hero": {"action": [2.0, 2.0]}, "rival": {"action": 2}}}
        reply = wire.step("tick", data=json.dumps({"entities": {"rival": seen, "hero": {"end": True}}}).encode())
        assert json.loads(reply.body) == {"entities": {"rival": {"action": 2}}}
        wrong = {"entities": {"rival": {**seen, "reward": 1.0}, "hero": seen}}
        assert wire.step("tick", data=json.dumps(wrong).encode()).error == "ended"
        assert wire.step("tick", data=json.dumps(seen).encode()).error == "bad_body"
        form = b'expected {\\"entities\\": {\\"hero\\": {...}, \\"rival\\": {...}}}'
        assert all(form in wire.step("tick", data=data).body for data in (b"", b"[]", b" null", b"3"))
        empty = wire.step("tick", data=b"").body
        assert b"the body is empty: this game has several entities; expected" in empty
        detail = json.loads(wire.step("tick", data=json.dumps({"hero": seen}).encode()).body)["detail"]
        assert detail.startswith("hero: unknown key 'hero'") and detail.endswith("; put entities below `entities`")
        assert "below `entities`" not in json.loads(wire.step("tick", data=b'{"villain": {}}').body)["detail"]
        for data in (b"hero", b"[" * 100_000):
            assert b"the body is no JSON" in wire.step("tick", data=data).body
        assert form in wire.step("end", data=b"[]").body
        masked = wire.step("tick", data=json.dumps({"entities": {"rival": {**seen, "mask": [1, 1, 1]}}}).encode())
        assert "'rival' has no action masks; it has some with `masks: true`" in json.loads(masked.body)["detail"]
        assert wire.step("end", data=b"").status == 200
        game = playing.account()
        assert (game.returns.tolist(), game.lengths.tolist(), game.training) == ([0.0, 0.0], [1, 2], False)
        assert wire.step("start", data=b'{"entities": ["rival"]}').status == 200
        assert wire.step("tick", data=json.dumps({"entities": {"hero": seen}}).encode()).error == "unknown_entity"


def raw(reward: float, *numbers: float, mask: bytes = b"") -> bytes:
    return struct.pack(f"<d{len(numbers)}f", reward, *numbers) + mask


def test_raw_bodies_are_decoded_or_refused(wire: HttpWire) -> None:
    with server("raw") as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        assert wire.step("tick", data=raw(0, 1, 2, mask=b"\1\1\1")).body == struct.pack("<q", 2)
        for data, code in (
            (b"", "bad_body"),
            (raw(1, 1, 2), "bad_body"),
            (raw(1, 1, 2, mask=b"\1\1\1\1"), "bad_body"),
            (raw(np.nan, 1, 2, mask=b"\1\1\1"), "bad_reward"),
            (raw(1, np.inf, 2, mask=b"\1\1\1"), "bad_observation"),
            (raw(1, 1, 2, mask=b"\0\0\0"), "bad_mask"),
            (raw(1, 1, 2, mask=b"\0\2\0"), "bad_mask"),
        ):
            reply = wire.step("tick", data=data)
            assert (reply.status, reply.error) == (400, code), data
        assert "expected 19, of an observation 8" in json.loads(wire.step("tick").body)["detail"]
        assert wire.step("end", data=raw(0.5) + b"\4").error == "bad_body"
        assert wire.step("end", data=raw(0.5) + b"\2").error == "bad_body"
        assert wire.step("end", data=raw(0.5) + b"\3" + struct.pack("<2f", 1, 2)).body == b""
        game = playing.account()
        assert (game.returns.tolist(), game.truncated, game.terminated) == ([0.5], True, False)


def test_a_wrong_leaf_in_bytes_is_named() -> None:
    leaves = {"x": {"box": {"shape": []}}, "phase": {"discrete": {"n": 3}}}
    one = {"hero": {"observation": {"dict": leaves}, "action": {"discrete": {"n": 2}}}}
    with server("raw", entities=one) as playing, HttpWire(playing.games.address) as wire:
        wire.step("start")
        reply = wire.step("tick", data=struct.pack("<dfq", 0.0, 0.5, 7))
        assert reply.error == "bad_observation"
        assert re.search(r"\['phase'\]: .*7.* is not in Discrete\(3\)", json.loads(reply.body)["detail"])


# --- configuration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "^entities: is missing, and `like` too"),
        ({"entities": ONE, "like": {"make": "gymnasium:CartPole-v1"}}, "^like: found beside"),
        ({"actor": "external_actors:Echo", "entities": ONE}, "has spaces itself"),
        ({"actor": "external_actors:ONE", "entities": ONE}, "is no actor"),
        ({"actor": "external_actors:Nothing"}, "Nothing"),
        ({"actor": "raw", "entities": TWO}, "games of one entity"),
        ({"entities": None, "like": {"kwargs": {}}}, "like: .*expected"),
        ({"entities": {}}, "no mapping"),
        ({"entities": {"a": {"observation": {"box": {"shape": [1]}}}}}, r"entities\.a: "),
        ({"entities": {"a": {"observation": {"bx": {"shape": [1]}}, "action": {}}}}, "did you mean 'box'"),
        ({"entities": {"a": {"observation": {"box": {}}, "action": {}}}}, "is no space: box lacks 'shape'"),
        (
            {"entities": {"a": {"observation": {"box": {"shap": [2]}}, "action": {}}}},
            "'shap' of box; did you mean 'shape'",
        ),
        *(
            ({"entities": {"a": {"observation": {kind: content}, "action": {}}}}, message)
            for kind, content, message in (
                ("box", {"shape": 3}, "'shape' of box is a list"),
                ("multi_discrete", {"nvec": 3}, "'nvec' of multi_discrete is a list"),
                ("tuple", 3, "tuple has spaces in it"),
                ("box", {"shape": [3], "dtype": "flaot"}, "is no space: data type 'flaot' not understood"),
            )
        ),
        ({"entities": ONE, "host": "0.0.0.0"}, "token_file"),
        ({"entities": ONE, "port": 70000}, "65535"),
        ({"entities": ONE, "port": "x"}, "expected"),
        ({"entities": ONE, "queue": -1}, "queue: found -1"),
        ({"entities": ONE, "dialect": "old"}, "known: later, published"),
        ({"entities": ONE, "token_file": "nowhere"}, "cannot be read"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpGames(**options)


def test_spaces_may_be_written_short_and_taken_from_another_environment() -> None:
    written = {"hero": {"observation": {"box": {"shape": [4]}}, "action": {"discrete": {"n": 2}}, "masks": True}}
    interface = HttpGames(entities=written).interface
    assert interface.observation_spaces == (Box(-np.inf, np.inf, (4,), np.float32),)
    assert interface.action_spaces == (Discrete(2),) and interface.mask_sizes == (2,)
    like = HttpGames(like={"make": "gymnasium:CartPole-v1"}).interface
    assert like.entities == ("agent_0",) and like.action_spaces == (Discrete(2),)
    parts = {"dict": {"near": {"multi_discrete": {"nvec": [2, 3]}}, "far": {"tuple": [{"multi_binary": {"n": 2}}]}}}
    nested = {"hero": {"observation": parts, "action": {"discrete": {"n": 2, "start": 1}}}}
    assert "Dict" in str(HttpGames(entities=nested).interface.observation_spaces[0])


def test_token_readable_by_others_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    HttpGames(entities=ONE, token_file=str(file))
    assert (
        "can be read by other users" in caplog.text
        and f"chmod 600 {file}" in caplog.text
        and "secret" not in caplog.text.replace(str(file), "")
    )


def test_repeated_refusals_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    logger, clock = logging.getLogger("of a flooded server"), Clock()
    limit = RepeatedRecords(logger, clock)
    logger.addFilter(limit)
    for _ in range(3):
        for number in range(100):
            logger.warning("%s: no host %d", "peer", number, extra={"kind": "wrong_host"})
        logger.warning("an upgrade")
        clock.now += 10.0
        limit.flush()
    assert caplog.messages == ["peer: no host 0", "an upgrade"]
    clock.now += 31.0
    limit.flush()
    limit.flush()
    assert caplog.messages[2:] == ["peer: no host 99 (299 times in 60 s)", "an upgrade (2 times in 60 s)"]
    logger.warning("an upgrade")
    assert len(caplog.messages) == 4, "its minute has begun again"


def test_kinds_of_records_are_forgotten_after_their_minute() -> None:
    logger, clock = logging.getLogger("of a server of many peers"), Clock()
    limit = RepeatedRecords(logger, clock)
    logger.addFilter(limit)
    for number in range(100):
        logger.warning("peer %d", number, extra={"kind": f"peer {number}"})
    assert len(limit._passed) == 100
    clock.now += 61.0
    limit.flush()
    assert not limit._passed


def test_flood_of_refused_requests_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("uvicorn.error", "arena.external.http_connection"):
        for limit in logging.getLogger(name).filters[:]:
            logging.getLogger(name).removeFilter(limit)  # of servers of other tests
    games = HttpGames(port=0, entities=ONE)
    games.open(1, lambda: None)
    try:
        for _ in range(5):
            with HttpWire(games.address) as wire:
                wire.send(b"nonsense\r\n\r\n")
                assert wire.read().error == "bad_request"
    finally:
        games.close("over")
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert warned == ["127.0.0.1: a request is refused: bad_request: this is not HTTP/1.1"]


def test_refused_requests_of_replaced_games_stay_counted() -> None:
    game = {"make": "http", "kwargs": {"port": 0, "entities": ONE}}
    plan = make_plan(
        parse_config({"name": "x", **one_match(game, {"blue": {"algorithm": "random"}}, ticks=8)}, source="")
    )
    connection = Connection(lambda: external_games(plan.matches[0]), plan.matches[0], 0)
    try:
        for expected in (1, 2):
            connection.pause(False)
            with HttpWire(connection.games.address) as wire:
                assert wire.step("tick", "none").status == 404
            assert connection.uncounted
            line = connection.counts(0, 0)
            assert (line.refused, line.refused_by) == (expected, {"unknown_game": expected})
            assert not connection.uncounted
            connection.remake()
            assert connection.counts(0, 0).refused_by == {"unknown_game": expected}
    finally:
        connection.close("over")


def test_notice_of_a_refusal_comes_once_a_minute_for_each_code() -> None:
    clock = Clock()
    metrics, said = Metrics(clock), []
    for code, game, detail, seconds in (
        *(("bad_body", f"game-{number}", f"first\nof {number}", 1.0) for number in range(40)),
        ("missing_game_id", None, "no name", 21.0),
        ("bad_body", "late", "again", 0.0),
    ):
        metrics.refused_by[code] += 1
        said.append(metrics.note_refusal(code, detail, game))
        clock.now += seconds
    assert [place for place, one in enumerate(said) if one] == [0, 40, 41]
    assert [*metrics.notices] == [
        "a request of the game 'game-0' is refused: bad_body: first of 0 (1 bad_body so far)",
        "a request is refused: missing_game_id: no name (1 missing_game_id so far)",
        "a request of the game 'late' is refused: bad_body: again (41 bad_body so far)",
    ]


def test_refusals_are_counted_by_code_and_rung_for(wire: HttpWire, playing: Playing) -> None:
    rung: list[None] = []
    playing.games.ring = lambda: rung.append(None)
    for _ in range(3):
        assert wire.step("tick", "none").error == "unknown_game"
    assert len(rung) == len(playing.games.notices) == 1
    wire.send(request(None, None, path="/nothing", method="GET"))
    assert wire.read().status == 404
    assert playing.games.refused_by == {"unknown_game": 3}, "pages are not of games"


def test_occupied_port_is_a_configuration_error() -> None:
    one, other = HttpGames(port=0, entities=ONE), None
    one.open(1, lambda: None)
    try:
        other = HttpGames(port=int(one.address.split(":")[2].partition("/")[0]), entities=ONE)
        with pytest.raises(ConfigError, match="cannot listen at"):
            other.open(1, lambda: None)
        other.close("over")
    finally:
        one.close("over")


# --- other people's clients -----------------------------------------------------------------------------------------


# --- robustness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_mutated_requests_get_errors_and_nothing_else(count: int) -> None:
    random = np.random.default_rng(0)
    whole = request("tick", "g", SEEN)
    with server() as playing:
        with HttpWire(playing.games.address) as wire:
            wire.step("start")
        for _ in range(count):
            data = bytearray(whole)
            for _ in range(random.integers(1, 4)):
                at = int(random.integers(len(data)))
                change = random.integers(3)
                if change == 0:
                    data[at] = random.integers(256)
                elif change == 1:
                    del data[at : at + int(random.integers(1, 20))]
                else:
                    data[at:at] = random.bytes(int(random.integers(1, 20)))
            with HttpWire(playing.games.address) as wire:
                wire.send(bytes(data))
                wire.socket.shutdown(1)
                try:
                    reply: Reply | None = wire.read()
                except (EOFError, ConnectionResetError):
                    reply = None
                assert reply is None or reply.status in (*(200, 400, 401, 404, 405), *(409, 413, 414, 421, 429, 431)), (
                    data
                )
        with HttpWire(playing.games.address) as wire:
            assert wire.step("tick", data=SEEN).status == 200
        assert playing.table.running >= 1


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_vanished_clients_leave_nothing(count: int) -> None:
    with server() as playing:
        with HttpWire(playing.games.address) as wire:
            wire.step("start")
        before = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
        for number in range(count):
            with HttpWire(playing.games.address) as wire:
                if number % 2:
                    wire.send(request("tick", "g", SEEN)[: number % 50 * 2])
        playing.until(lambda: (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) <= before)


def test_a_connection_takes_the_slot_that_it_left_last() -> None:
    with server(slots=3) as playing, HttpWire(playing.games.address) as one, HttpWire(playing.games.address) as other:
        for name, wire in (("a", one), ("b", one), ("c", other)):
            wire.step("start", name)
        for name, wire in (("a", one), ("c", other), ("b", one)):
            wire.step("end", name)
        other.step("start", "d")
        one.step("start", "e")
        assert [playing.table._games[slot].name for slot in (1, 2)] == ["e", "d"]  # type: ignore[union-attr]


# The actor `raw`: samples of any space as bytes


@settings(max_examples=30)
@given(random_spaces.spaces(), st.integers(0, 2**16))
def test_sample_round_trip_is_exact(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    sample, codec = space.sample(), Codec(space)
    packed = codec.pack(sample)
    assert len(packed) == codec.size
    back = codec.unpack(memoryview(packed), "it")
    assert space.contains(back)
    for one, other in zip(flatten(space, sample), flatten(space, back), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_bytes_are_the_leaves_little_endian_without_padding() -> None:
    space = Dict(flag=Box(0, 1, (), np.bool_), n=Discrete(9), x=Box(-9, 9, (2,), np.float32))
    packed = Codec(space).pack({"flag": np.array(True), "n": 7, "x": [0.5, -1]})
    assert packed == struct.pack("<?q2f", True, 7, 0.5, -1.0)


def test_a_bool_is_one_byte_of_0_or_1() -> None:
    with pytest.raises(ExternalError, match="bad_observation: it: a bool is 2"):
        Codec(Box(0, 1, (), np.bool_)).unpack(memoryview(b"\2"), "it")


def test_spaces_without_a_fixed_layout_are_refused_by_name() -> None:
    interface = Interface(("hero",), (spaces.Sequence(Box(0, 1, (2,))),), (Discrete(2),), (0,))
    with pytest.raises(ConfigError, match=r"raw: 'hero': .* no fixed layout"):
        raw_actor(interface)
