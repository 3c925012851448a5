"""Games over sockets: the contract, each frame, each refusal, limits, and clients that misbehave."""

from __future__ import annotations

import errno
import math
import os
import pickle
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Sequence

from arena.config.matches import MatchConfig
from arena.config.schema import EnvConfig, TickRules
from arena.errors import ConfigError
from arena.external import ExternalClosed, ExternalError
from arena.external.client import PolicyClient
from arena.external.codec import EntityCodec
from arena.external.connection import Connection
from arena.external.socket import SocketGames
from arena.game.api import Interface
from arena.plan.plan import MatchPlan, SeatPlan
from arena.testing import check_external_games
from external_connections import INTERFACE, Playing, entities_of, free_port, play_episode, play_socket

ONE = Interface(("hero",), (Box(-np.inf, np.inf, (2,), np.float32),), (Discrete(3),), (3,))
TWO = Interface(("hero", "rival"), ONE.observation_spaces * 2, ONE.action_spaces * 2, (0, 0))
SEEN = struct.pack("<2f", 1.0, 2.0)
ACTION = struct.pack("<q", 2)


def served(interface: Interface = ONE, **options: Any) -> SocketGames:
    return SocketGames(entities=entities_of(interface), **options)


class Wire:
    """A client of raw bytes and MessagePack."""

    def __init__(self, address: str, hello: bool = True, token: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        if hello:
            self.say("hello", 1, token, "test")
            self.welcome = self.hear()

    def say(self, *items: Any) -> None:
        self.send(msgspec.msgpack.encode(items))

    def send(self, body: bytes) -> None:
        self.socket.sendall(struct.pack("<I", len(body)) + body)

    def hear(self) -> Any:
        """The next frame; None at the end of the connection."""
        try:
            size = self.read(4)
            return msgspec.msgpack.decode(self.read(struct.unpack("<I", size)[0])) if size else None
        except ConnectionResetError:
            return None

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return b""
            data += more
        return data

    def ask(self, name: str = "a", entity: str = "hero", reward: float = 0.0, seen: bytes = SEEN, **rest: Any) -> None:
        self.say("ask", name, entity, reward, seen, rest.get("mask"), rest.get("given"), rest.get("info"))

    def end(self, name: str = "a", entity: str | None = None) -> None:
        self.say("end", name, entity, 0.0, None, False, None)

    def start(self, name: str = "a") -> None:
        self.say("start", name, None, True)
        assert self.hear()[:2] == ["started", name]

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def playing() -> Iterator[Playing]:
    with Playing(served(), 2, actions=(2,)) as one:
        yield one


@pytest.fixture
def wire(playing: Playing) -> Iterator[Wire]:
    one = Wire(playing.games.address)
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_sockets_keep_the_contract(kind: str, tmp_path: Path) -> None:
    address = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path / 'games'}"
    check_external_games(lambda: SocketGames(address, entities=entities_of(INTERFACE)), play_socket, limit_s=60.0)


# --- frames ---------------------------------------------------------------------------------------------------------


def test_hello_describes_the_match(wire: Wire) -> None:
    word, version, match = wire.welcome
    assert (word, version, match["slots"], match["free"]) == ("hello", 1, 2, 2)
    (entity,) = match["entities"]
    assert (entity["name"], entity["mask_size"], entity["policy"]) == ("hero", 3, "")
    assert entity["observation"]["box"]["shape"] == [2] and entity["action"]["discrete"]["n"] == 3


def test_a_game_from_start_to_end(playing: Playing, wire: Wire) -> None:
    wire.say("start", "a", ["hero"], True)
    assert wire.hear() == ["started", "a", 0]
    for _ in range(3):
        wire.say("pay", "a", "hero", 1)
        wire.ask(reward=0.5, mask=bytes([0, 1, 1]), info={"n": [1, None]})
        assert wire.hear() == ["action", "a", "hero", ACTION, -1]
    wire.say("end", "a", "hero", 8.0, SEEN, True, {"outcome": "win"})
    assert wire.hear() == ["ended", "a"]
    game = playing.account()
    assert (game.name, game.returns.tolist(), game.lengths.tolist()) == ("a", [12.5], [3])
    assert game.truncated and not game.terminated and game.outcomes == {0: "win"} and not game.lost


def test_given_actions_are_not_answered_and_pings_are(playing: Playing, wire: Wire) -> None:
    wire.start()
    wire.ask(given=ACTION)
    wire.say("ping", 7)
    assert wire.hear() == ["pong", 7]
    wire.end()
    assert wire.hear() == ["ended", "a"]
    assert playing.table.counts.given == 1


def test_a_ping_is_answered_while_the_environment_pauses() -> None:
    games = served()
    with Playing(games, 1) as playing:
        playing.stop()
        wire = Wire(games.address)
        wire.say("ping", 3)
        assert wire.hear() == ["pong", 3]
        wire.close()


def test_games_are_not_ready_before_the_run_begins() -> None:
    playing = Playing(served(), 1)
    wire = Wire(playing.games.address)
    wire.say("start", "a", None, True)
    assert wire.hear()[:3] == ["error", "a", "not_ready"]
    with playing:
        wire.start()
    assert wire.hear() == ["dropped", "a", "over"]
    assert wire.hear() is None
    wire.close()


def test_a_game_of_several_entities_and_a_part_of_them() -> None:
    with Playing(served(TWO), 2, actions=(2, 2)) as playing:
        wire = Wire(playing.games.address)
        wire.start("a")
        for entity in ("rival", "hero"):
            wire.ask("a", entity)
        assert {wire.hear()[2] for _ in range(2)} == {"rival", "hero"}
        wire.say("ask", "a", None, 0.0, SEEN, None, None, None)
        assert wire.hear()[2] == "bad_frame"
        wire.close()
        playing.until(lambda: playing.table.counts.lost == 1)
        wire = Wire(playing.games.address)
        wire.say("start", "b", ["rival"], True)
        assert wire.hear()[0] == "started"
        wire.ask("b", "hero")
        assert wire.hear()[:3] == ["error", "b", "unknown_entity"]
        wire.end("b")
        assert wire.hear() == ["ended", "b"]
        wire.close()


# --- refusals -------------------------------------------------------------------------------------------------------


REFUSALS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "another game": ("unknown_game", ("ask", "b", "hero", 0.0, SEEN, None, None, None)),
    "another entity": ("unknown_entity", ("ask", "a", "villain", 0.0, SEEN, None, None, None)),
    "another entity is paid": ("unknown_entity", ("pay", "a", "villain", 0.0)),
    "too short": ("bad_observation", ("ask", "a", "hero", 0.0, SEEN[1:], None, None, None)),
    "too long at the end": ("bad_observation", ("end", "a", "hero", 0.0, SEEN + b"0", False, None)),
    "not finite": ("bad_observation", ("ask", "a", "hero", 0.0, struct.pack("<2f", 1, math.nan), None, None, None)),
    "infinite reward": ("bad_reward", ("pay", "a", "hero", math.inf)),
    "mask too short": ("bad_mask", ("ask", "a", "hero", 0.0, SEEN, b"\1\1", None, None)),
    "empty mask": ("bad_mask", ("ask", "a", "hero", 0.0, SEEN, b"\0\0\0", None, None)),
    "given too short": ("bad_action", ("ask", "a", "hero", 0.0, SEEN, None, b"\1", None)),
    "given out of range": ("bad_action", ("ask", "a", "hero", 0.0, SEEN, None, struct.pack("<q", 3), None)),
    "runs already": ("already_started", ("start", "a", None, True)),
    "unknown part": ("unknown_entity", ("start", "b", ["villain"], True)),
    "no part": ("unknown_entity", ("start", "b", [], True)),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_request_is_refused_by_its_code_and_the_game_goes_on(case: str, playing: Playing, wire: Wire) -> None:
    code, frame = REFUSALS[case]
    wire.start()
    wire.say(*frame)
    assert wire.hear()[:3] == ["error", frame[1], code]
    wire.ask()
    assert wire.hear()[0] == "action"
    wire.end()
    assert wire.hear() == ["ended", "a"]
    assert playing.account().returns.tolist() == [0.0]


def test_asking_twice_and_after_the_end_is_refused() -> None:
    games = served(TWO)
    with Playing(games, 2, TickRules(max_delay_s=60.0, min_asking=2)) as playing:
        wire = Wire(games.address)
        wire.start()
        wire.ask()
        wire.ask()
        assert wire.hear()[:3] == ["error", "a", "already_asking"]
        wire.end("a", "rival")
        wire.ask("a", "rival")
        assert wire.hear()[:3] == ["error", "a", "ended"]
        wire.end()
        assert wire.hear() == ["ended", "a"]
        wire.ask()
        assert wire.hear() == ["error", "a", "unknown_game", "ended"]
        wire.ask("b")
        assert wire.hear() == ["error", "b", "unknown_game", "never"]
        assert playing.table.counts.ended == 1
        wire.close()


def test_more_games_than_slots_are_refused(wire: Wire) -> None:
    for name in "ab":
        wire.start(name)
    wire.say("start", "c", None, True)
    assert wire.hear()[:3] == ["error", "c", "no_slot"]
    wire.end("a")
    assert wire.hear() == ["ended", "a"]
    wire.start("c")


def test_a_game_belongs_to_its_connection(playing: Playing, wire: Wire) -> None:
    wire.start()
    other = Wire(playing.games.address)
    other.ask()
    assert other.hear()[:3] == ["error", "a", "unknown_game"]
    other.say("start", "a", None, True)
    assert other.hear()[:3] == ["error", "a", "already_started"]
    other.close()


def packed(*items: Any) -> bytes:
    return msgspec.msgpack.encode(items)


BREAKING: dict[str, tuple[str, bytes]] = {
    "no array": ("bad_frame", msgspec.msgpack.encode({"ask": 1})),
    "unknown word": ("bad_frame", packed("bark", "a")),
    "an item too many": ("bad_frame", packed("ping", 1, 2)),
    "an item too few": ("bad_frame", packed("pay", "a", "hero")),
    "another type": ("bad_frame", packed("pay", "a", "hero", "1")),
    "text for bytes": ("bad_frame", packed("ask", "a", "hero", 0.0, "seen", None, None, None)),
    "cut": ("bad_frame", packed("pay", "a", "hero", 1.0)[:-1]),
    "two in one": ("bad_frame", packed("ping", 1) * 2),
    "deep": ("bad_frame", b"\x91" * 5000),
    "deep info": ("bad_frame", packed("ask", "a", "hero", 0.0, SEEN, None, None)[:-1] + b"\xc0" + b"\x91" * 5000),
    "a long list": (
        "bad_frame",
        b"\x98" + packed("ask", "a", "hero", 0.0, SEEN, None, None)[1:] + b"\xdd\x7f\xff\xff\xff",
    ),
    "large info": ("bad_frame", packed("ask", "a", "hero", 0.0, SEEN, None, None, {"x": b"0" * 70_000})),
    "info is no map": ("bad_frame", packed("ask", "a", "hero", 0.0, SEEN, None, None, [1])),
    "many entities": ("bad_frame", packed("start", "b", ["hero"] * 70_000, True)),
    "hello again": ("bad_frame", packed("hello", 1, None, "")),
    "no id": ("bad_frame", packed("start", "", None, True)),
    "a blank in the id": ("bad_frame", packed("start", "a b", None, True)),
    "a long id": ("bad_frame", packed("start", "a" * 257, None, True)),
    "pickle": ("bad_frame", pickle.dumps(["ping", 1])),
}


@pytest.mark.parametrize("case", BREAKING)
def test_invalid_frame_closes_only_its_connection(case: str, playing: Playing, wire: Wire) -> None:
    code, body = BREAKING[case]
    wire.start()
    other = Wire(playing.games.address)
    other.start("b")
    wire.send(body)
    assert wire.hear()[:3] == ["error", None, code]
    assert wire.hear() is None
    playing.until(lambda: playing.table.counts.lost == 1)
    other.ask("b")
    assert other.hear()[0] == "action"
    other.close()


@pytest.mark.parametrize(("size", "code"), [(0, "bad_frame"), (2**26 + 1, "too_large"), (2**32 - 1, "too_large")])
def test_forbidden_length_closes_the_connection(size: int, code: str, wire: Wire) -> None:
    wire.socket.sendall(struct.pack("<I", size))
    assert wire.hear()[:3] == ["error", None, code]
    assert wire.hear() is None


def test_a_large_frame_is_taken_after_hello_alone() -> None:
    pixels = Interface(("eye",), (Box(0, 255, (300, 300, 3), np.uint8),), (Discrete(2),), (0,))
    with Playing(served(pixels), 1) as playing:
        wire = Wire(playing.games.address)
        wire.start()
        wire.ask("a", "eye", seen=bytes(270_000))
        assert wire.hear()[0] == "action"
        wire.close()
        early = Wire(playing.games.address, hello=False)
        early.socket.sendall(struct.pack("<I", 270_000))
        assert early.hear()[:3] == ["error", None, "too_large"]
        early.close()


@pytest.mark.parametrize("first", [("ping", 1), ("hello", 2, None, ""), ("start", "a", None, True), ("hello", 1, None)])
def test_the_first_frame_is_hello(first: Any, playing: Playing) -> None:
    wire = Wire(playing.games.address, hello=False)
    wire.say(*first)
    assert wire.hear()[:3] == ["error", None, "bad_frame"]
    assert wire.hear() is None
    wire.close()


def test_token_is_required(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o600)
    with Playing(served(token_file=str(file)), 1) as playing:
        for token in (None, "", "secre", "secret "):
            wire = Wire(playing.games.address, token=token)
            assert wire.welcome[:3] == ["error", None, "unauthorized"]
            assert wire.hear() is None
            wire.close()
            with pytest.raises(ExternalError) as raised:
                PolicyClient(playing.games.address, token=token)
            assert raised.value.code == "unauthorized"
        with PolicyClient(playing.games.address, token="secret") as client:
            assert client.start_episode("a") == "a"


def test_token_readable_by_others_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    served(token_file=str(file))
    assert "can be read by other users" in caplog.text and "secret" not in caplog.text.replace(str(file), "")


# --- clients that come and go ---------------------------------------------------------------------------------------


def test_requests_before_a_close_count_and_open_games_are_lost(playing: Playing, wire: Wire) -> None:
    other = Wire(playing.games.address)
    wire.start("a")
    other.start("b")
    wire.ask("a")
    assert wire.hear()[0] == "action"
    wire.end("a")
    wire.close()
    other.close()
    playing.until(lambda: len(playing.finished) == 2)
    lost = {game.name: game.lost for game in playing.finished}
    assert lost == {"a": "", "b": "lost"}


@pytest.mark.slow
def test_vanished_clients_leave_nothing_behind(playing: Playing) -> None:
    def counted() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = counted()
    for number in range(200):
        wire = Wire(playing.games.address, hello=number % 3 > 0)
        if number % 3 == 2:
            wire.say("start", f"g{number}", None, True)
            wire.ask(f"g{number}")
        wire.close()
    playing.until(lambda: playing.table.held == 0 and counted() == before)


def test_too_many_connections_are_refused(playing: Playing) -> None:
    wires = [Wire(playing.games.address) for _ in range(8)]
    one_more = Wire(playing.games.address, hello=False)
    assert one_more.hear()[:3] == ["error", None, "no_slot"]
    assert one_more.hear() is None
    for wire in [*wires, one_more]:
        wire.close()


def test_silent_game_is_dropped() -> None:
    with Playing(served(), 1, TickRules(idle_s=0.05)) as playing:
        wire = Wire(playing.games.address)
        wire.start()
        assert wire.hear() == ["dropped", "a", "expired"]
        wire.ask()
        assert wire.hear() == ["error", "a", "unknown_game", "expired"]
        wire.close()


def test_unanswered_request_is_dropped() -> None:
    rules = TickRules(max_delay_s=60.0, min_asking=2, answer_s=0.05)
    with Playing(served(), 2, rules) as playing:
        wire = Wire(playing.games.address)
        wire.start()
        wire.ask()
        assert wire.hear() == ["dropped", "a", "timeout"]
        wire.close()
        with PolicyClient(playing.games.address) as client:
            client.start_episode("b")
            for _ in range(2):
                with pytest.raises(ExternalError) as raised:
                    client.get_action("b", np.zeros(2, np.float32))
                assert raised.value.code == "timeout"


@pytest.mark.slow
def test_client_that_sends_too_fast_is_throttled() -> None:
    name = "a" * 256
    with Playing(served(max_body=1024), 1) as playing:
        wire = Wire(playing.games.address)
        wire.start(name)
        playing.stop()
        body = packed("pay", name, "hero", 1.0)
        frame = struct.pack("<I", len(body)) + body
        frames, sent = frame * 1000, 0
        wire.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the buffers of the system are full
            while sent < 2**28:
                sent += wire.socket.send(frames[sent % len(frame) :])
        playing.resume()
        wire.socket.settimeout(60)
        wire.socket.sendall(frame[sent % len(frame) :])
        wire.end(name)
        assert wire.hear() == ["ended", name]
        assert playing.account().returns.tolist() == [sent // len(frame) + 1]
        wire.close()


@pytest.mark.slow
def test_mutated_frames_do_no_harm(playing: Playing) -> None:
    rng = random.Random(0)
    right = [packed(*frame) for _, frame in REFUSALS.values()] + [packed("ping", 1), packed("hello", 1, None, "x")]
    wire = Wire(playing.games.address)
    answers: Counter[str] = Counter()
    for number in range(3000):
        body = bytearray(rng.choice(right))
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            wire.send(bytes(body[: rng.randrange(1, len(body) + 1)] if number % 4 == 0 else body))
            wire.say("ping", 10_000 + number)  # its answer shows that the frame was read
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed after the frame, as `hear` also reports
        while (heard := wire.hear()) not in (None, ["pong", 10_000 + number]):
            answers[heard[0]] += 1
        if heard is None:
            answers["closed"] += 1
            wire.close()
            wire = Wire(playing.games.address)
    wire.close()
    assert answers["closed"] > 1000 and answers["error"] > 1000 and answers["started"] and answers["pong"], answers
    playing.until(lambda: playing.table.held == 0)
    with PolicyClient(playing.games.address) as client:
        play_episode(client, client.interface, "after-all", 3)


# --- addresses and configurations -----------------------------------------------------------------------------------


def test_occupied_address_is_a_configuration_error(tmp_path: Path) -> None:
    with Playing(served(), 1) as playing, pytest.raises(ConfigError, match="cannot listen at 127"):
        served(address=playing.games.address).open(1, lambda: None)
    path = f"unix:{tmp_path / 'games'}"
    with Playing(served(address=path), 1):
        with pytest.raises(ConfigError, match=r"cannot listen at .*games"):
            served(address=path).open(1, lambda: None)
        with PolicyClient(path) as client:
            client.start_episode()


def test_an_abandoned_unix_socket_is_replaced_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "games"
    abandoned = socket.socket(socket.AF_UNIX)
    abandoned.bind(str(path))
    abandoned.close()
    with Playing(served(address=f"unix:{path}"), 1) as playing:
        assert playing.games.address == f"unix:{path}" and path.stat().st_mode & 0o77 == 0
    assert not path.exists()


def test_each_copy_of_a_match_has_an_address_of_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    games = served(address=f"127.0.0.1:{port - 2}", copy=2)
    with Playing(games, 1):
        assert games.address == f"127.0.0.1:{port}"
    with Playing(served(address=f"unix:{tmp_path / 'games'}", copy=1), 1) as playing:
        assert playing.games.address.endswith("games.1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "0.0.0.0:0"}, "can be reached by other machines"),
        ({"address": "nowhere"}, "is no address"),
        ({"address": "127.0.0.1:70000"}, "is no address"),
        ({"token_file": "/nowhere/token"}, "cannot be read"),
        ({"max_body": 3}, "at least 1024"),
        ({"entities": None}, "neither `entities` nor `like`"),
        ({"like": {"make": "cover"}}, "one of them"),
        ({"entities": None, "like": {"kwargs": {}}}, "like: .*expected"),
        ({"entities": {}}, "no mapping"),
        ({"entities": {"a": {"observation": {"box": {"shape": [1]}}}}}, r"entities\.a: "),
        ({"entities": {"a": {"observation": {"bx": {"shape": [1]}}, "action": {}}}}, "did you mean 'box'"),
        ({"entities": {"a": {"observation": {"box": {}}, "action": {}}}}, "is no space: box lacks 'shape'"),
        (
            {"entities": {"a": {"observation": {"box": {"shap": [2]}}, "action": {}}}},
            "'shap' of box; did you mean 'shape'",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SocketGames(**{"entities": entities_of(ONE), **options})


def test_spaces_without_a_fixed_layout_are_refused_by_name() -> None:
    interface = Interface(("hero",), (Sequence(Box(0, 1, (2,))),), (Discrete(2),), (0,))
    with pytest.raises(ConfigError, match=r"games over sockets: 'hero': .* no fixed layout"):
        EntityCodec(interface, 0)


def test_spaces_may_be_written_short_and_taken_from_another_environment() -> None:
    written = {"hero": {"observation": {"box": {"shape": [4]}}, "action": {"discrete": {"n": 2}}, "masks": True}}
    interface = SocketGames(entities=written).interface
    assert interface.observation_spaces == (Box(-np.inf, np.inf, (4,), np.float32),)
    assert interface.action_spaces == (Discrete(2),) and interface.mask_sizes == (2,)
    like = SocketGames(like={"make": "gymnasium:CartPole-v1"}).interface
    assert like.entities == ("agent_0",) and like.action_spaces == (Discrete(2),)
    parts = {"dict": {"near": {"multi_discrete": {"nvec": [2, 3]}}, "far": {"tuple": [{"multi_binary": {"n": 2}}]}}}
    nested = {"hero": {"observation": parts, "action": {"discrete": {"n": 2, "start": 1}}}}
    assert "Dict" in str(SocketGames(entities=nested).interface.observation_spaces[0])


# --- the client -----------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_closed_and_can_be_made_again() -> None:
    first = served()
    with Playing(first, 1) as playing:
        client = PolicyClient(first.address)
        client.start_episode("a")
        address = first.address
    for _ in range(2):
        with pytest.raises(ExternalClosed, match="over"):
            client.get_action("a", np.zeros(2, np.float32))
    assert client.closed and playing.error is None
    again = threading.Timer(0.2, lambda: begun.append(Playing(served(address=address), 1).__enter__()))
    begun: list[Playing] = []
    again.start()
    client.reconnect()
    again.join()
    with pytest.raises(ExternalError, match="unknown_game"):
        client.get_action("a", np.zeros(2, np.float32))
    play_episode(client, client.interface, "a", 2)
    client.close()
    begun[0].__exit__()


def test_a_client_waits_for_a_server_that_does_not_listen_yet() -> None:
    address = f"127.0.0.1:{free_port()}"
    later = threading.Timer(0.2, lambda: begun.append(Playing(served(address=address), 1).__enter__()))
    begun: list[Playing] = []
    later.start()
    with PolicyClient(address) as client:
        play_episode(client, client.interface, "a", 2)
    begun[0].__exit__()


def test_a_client_without_a_server_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ExternalClosed, match=f"no server at 127.0.0.1:{port}"):
        PolicyClient(f"127.0.0.1:{port}", timeout_s=0.2)
    with pytest.raises(ValueError, match="no address"):
        PolicyClient("nowhere")


def test_the_client_refuses_before_it_sends(playing: Playing) -> None:
    with PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        seen = np.zeros(2, np.float32)
        wrong: dict[str, Any] = {
            "bad_observation": lambda: client.get_action("a", np.full(2, np.nan)),
            "bad_mask": lambda: client.get_action("a", seen, mask=[0, 0, 0]),
            "bad_action": lambda: client.log_action("a", seen, 3),
            "bad_reward": lambda: client.log_returns("a", math.nan),
            "unknown_entity": lambda: client.get_action("a", seen, entity="villain"),
            "unknown_game": lambda: client.get_action("b", seen),
            "already_started": lambda: client.start_episode("a"),
            "bad_frame": lambda: client.start_episode("a b"),
            "bad_body": lambda: client.end_episode("a", info={"outcome": "won"}),
        }
        for code, call in wrong.items():
            with pytest.raises(ExternalError) as raised:
                call()
            assert raised.value.code == code
        assert client.get_action("a", [0, 1]) == 2
        client.log_action("a", seen, 1)
        client.log_returns("a", 3.0, {"hint": 1})
        client.end_episode("a", seen, truncated=True, info={"outcome": "draw"})
    assert playing.table.counts.refused == 0
    game = playing.account()
    assert game.outcomes == {0: "draw"} and game.lengths.tolist() == [2] and game.returns.tolist() == [3.0]


@pytest.mark.slow
def test_the_client_imports_no_mpi_and_no_torch() -> None:
    program = (
        "import sys, arena.external.client\n"
        "print(*[name for name in ('mpi4py', 'torch', 'yaml', 'pettingzoo', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_end_that_is_refused_lets_the_episode_go_on() -> None:
    choices = Interface(("hero",), (Discrete(5),), (Discrete(3),), (0,))
    with Playing(served(choices), 1) as playing, PolicyClient(playing.games.address) as client:
        episode = client.start_episode()
        with pytest.raises(ExternalError) as caught:
            client.end_episode(episode, np.int64(7))
        assert caught.value.code == "bad_observation"
        assert client.get_action(episode, np.int64(3)) in range(3)
        client.end_episode(episode, np.int64(3))


def test_client_learns_of_a_drop_before_its_request_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with Playing(served(), 1) as playing, PolicyClient(playing.games.address, timeout_s=0.5) as client:
        episode = client.start_episode()
        ask = client._ask

        def ask_late(*arguments: Any, **options: Any) -> Any:
            frame = ask(*arguments, **options)
            playing.stop()
            playing.games.drop(0, "timeout")
            while episode in client._episodes:
                time.sleep(0.01)
            return frame

        monkeypatch.setattr(client, "_ask", ask_late)
        with pytest.raises(ExternalError) as caught:
            client.get_action(episode, np.zeros(2, np.float32))
        assert caught.value.code == "timeout"


@pytest.mark.slow
def test_time_before_a_request_is_not_server_silence() -> None:
    with Playing(served(), 1) as playing, PolicyClient(playing.games.address, timeout_s=0.5) as client:
        episode = client.start_episode()
        time.sleep(1.2)
        playing.stop()  # pings are answered, requests are not
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.get_action(episode, np.zeros(2, np.float32))))
        thread.start()
        time.sleep(0.8)
        assert thread.is_alive()
        playing.resume()
        thread.join(60)
        assert len(answers) == 1
        client.end_episode(episode)


def test_client_between_episodes_learns_of_the_end_of_the_run() -> None:
    with Playing(served(), 1) as playing:
        client = PolicyClient(playing.games.address)
    with pytest.raises(ExternalClosed, match="over"):
        client.start_episode()
    client.close()


def test_client_is_refused_new_episodes_and_finishes_its_own() -> None:
    with Playing(served(), 2) as playing, PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        playing.table.most = 1
        with pytest.raises(ExternalClosed, match="no game may begin any more"):
            client.start_episode("b")
        wire = Wire(playing.games.address)
        wire.say("start", "c", None, True)
        assert wire.hear() == ["error", "c", "draining", "no game may begin any more"]
        wire.ask("c")
        assert wire.hear() == ["error", "c", "unknown_game", "never"]
        wire.close()
        client.get_action("a", np.zeros(2, np.float32))
        client.end_episode("a")
        assert playing.account().name == "a"


def test_an_unknown_outcome_is_refused_and_the_game_goes_on(playing: Playing) -> None:
    wire = Wire(playing.games.address)
    wire.start()
    wire.say("end", "a", None, 0.0, None, False, {"outcome": "won"})
    assert wire.hear() == ["error", "a", "bad_body", "outcome: 'won'; expected win, loss or draw"]
    wire.say("end", "a", None, 0.0, None, False, {"outcome": "loss"})
    assert wire.hear() == ["ended", "a"]
    wire.close()
    assert playing.account().outcomes == {0: "loss"}


def test_client_at_an_http_server_gets_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ExternalError, match="speaks HTTP; `make: socket` is expected"):
            PolicyClient(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_surplus_client_gets_a_clear_error(tmp_path: Path) -> None:
    with Playing(served(address=f"unix:{tmp_path}/s"), 1) as playing:
        clients = [PolicyClient(playing.games.address) for _ in range(4)]
        with pytest.raises(ExternalError, match="there are 4 connections already"):
            PolicyClient(playing.games.address)
        for client in clients:
            client.close()


def test_long_names_close_the_connection(playing: Playing) -> None:
    for name, entity in (("x" * 300, "hero"), ("a", "x" * 300)):
        wire = Wire(playing.games.address)
        wire.start("a")
        wire.say("pay", name, entity, 1.0)
        assert wire.hear()[:3] == ["error", None, "bad_frame"]
        wire.close()
        playing.until(lambda: playing.table.held == 0)


def test_each_entity_ends_with_its_own_info() -> None:
    with Playing(served(TWO), 1) as playing, PolicyClient(playing.games.address) as client:
        episode = client.start_episode()
        client.log_returns(episode, 1.0, {"outcome": "win"}, entity="hero")
        client.log_returns(episode, -1.0, {"outcome": "loss"}, entity="rival")
        client.end_episode(episode)
        assert playing.account().outcomes == {0: "win", 1: "loss"}


def test_client_is_accepted_once_descriptors_are_free(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, tries = socket.socket.accept, []

    def accept_at_third(listener: socket.socket) -> Any:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise OSError(errno.EMFILE, "too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_at_third)
    wire = Wire(playing.games.address)
    assert wire.welcome[0] == "hello" and len(tries) == 3, "no more tries than pauses"
    assert tries[2] - tries[0] >= 0.05
    wire.close()


def test_recreated_games_are_played_at_once() -> None:
    described = MatchConfig(env="live", seats=("blue",))
    match = MatchPlan(0, 0, 0, described, EnvConfig(make="socket"), (SeatPlan(0, "blue", ("hero",)),))
    connection = Connection(served, match, seed=0)
    try:
        connection.remake()
        wire = Wire(connection.games.address)
        wire.say("start", "a", None, True)
        while not connection.table.held:
            connection.games.poll(connection.table)
        assert wire.hear()[:2] == ["started", "a"]
        wire.close()
    finally:
        connection.close("over")
