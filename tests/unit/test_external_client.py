"""`PolicyClient`: the methods of `ExternalEnv` over HTTP, servers that come and go, and refusals."""

from __future__ import annotations

import http.client
import math
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.config.schema import TickRules
from arena.external import ExternalClosed, ExternalError, PolicyClient
from arena.external.http import HttpGames
from arena.game.api import Interface
from arena.game.infos import warn_no_mask
from arena.testing import Played, check_external_games
from external_actors import HttpWire
from external_connections import INTERFACE, Playing, entities_of, free_port, play_episode

ONE = Interface(("hero",), (Box(-np.inf, np.inf, (2,), np.float32),), (Discrete(3),), (3,))
TWO = Interface(("hero", "rival"), ONE.observation_spaces * 2, ONE.action_spaces * 2, (0, 0))
SEEN = np.zeros(2, np.float32)


def served(interface: Interface = ONE, port: int = 0, **options: Any) -> HttpGames:
    return HttpGames(port=port, entities=entities_of(interface), **options)


@pytest.fixture
def playing() -> Iterator[Playing]:
    with Playing(served(), 2, actions=(2,)) as one:
        yield one


def refused(call: Callable[[], Any]) -> str:
    """The code with which a call is refused."""
    with pytest.raises(ExternalError) as raised:
        call()
    return raised.value.code


@pytest.mark.slow
def test_clients_keep_the_contract_of_connections() -> None:
    def play(games: HttpGames, name: str, requests: int) -> Played:
        with PolicyClient(games.address) as client:
            return play_episode(client, client.interface, name, requests)

    check_external_games(lambda: served(INTERFACE), play, limit_s=60.0)


def test_a_client_knows_the_spaces_and_the_policies() -> None:
    with Playing(served(INTERFACE), 1) as playing, PolicyClient(playing.games.address) as client:
        assert (client.interface, client.policies) == (INTERFACE, ("blue", "red"))


def test_request_without_a_mask_warns_once(playing: Playing, caplog: pytest.LogCaptureFixture) -> None:
    warn_no_mask.cache_clear()
    with PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        client.get_action("a", SEEN, mask=[1, 1, 1])
        assert not caplog.messages
        client.get_action("a", SEEN)
        client.get_action("a", SEEN)
    (line,) = caplog.messages
    assert line.startswith("the game gave 'hero' no action mask, though its interface has masks: everything is allowed")


def test_a_wrong_call_is_refused_by_its_code_and_the_episode_goes_on(playing: Playing) -> None:
    with PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        assert client.get_action("a", [0, 1]) == 2
        client.log_returns("a", 3.0, {"hint": 1})
        wrong: dict[str, list[Callable[[], Any]]] = {
            "bad_observation": [
                lambda: client.get_action("a", np.full(2, np.nan)),
                lambda: client.end_episode("a", np.zeros(3, np.float32)),
            ],
            "bad_mask": [lambda: client.get_action("a", SEEN, mask=[0, 0, 0])],
            "bad_action": [lambda: client.log_action("a", SEEN, 3)],
            "bad_reward": [lambda: client.log_returns("a", math.nan), lambda: client.log_returns("a", "much")],
            "unknown_entity": [
                lambda: client.get_action("a", SEEN, entity="villain"),
                lambda: client.start_episode("b", entities=["villain"]),
            ],
            "unknown_game": [lambda: client.get_action("b", SEEN)],
            "already_started": [lambda: client.start_episode("a")],
            "bad_game_id": [lambda: client.start_episode("a" * 257)],
            "bad_body": [
                lambda: client.start_episode("a b"),
                lambda: client.end_episode("a", info={"outcome": "won"}),
            ],
        }
        for code, calls in wrong.items():
            assert [refused(call) for call in calls] == [code] * len(calls)
        with pytest.raises(
            ExternalError, match=r"entities\.\w+\.outcome: 'won'; did you mean 'win'\? known: draw, loss, win"
        ):
            client.end_episode("a", info={"outcome": "won"})
        client.log_action("a", SEEN, 1)
        client.end_episode("a", SEEN, truncated=True, info={"outcome": "draw"})
        assert refused(lambda: client.get_action("a", SEEN)) == "unknown_game"
    assert playing.table.counts.refused_by == {}
    game = playing.account()
    assert game.outcomes == {0: "draw"} and game.lengths.tolist() == [2] and game.returns.tolist() == [3.0]


def test_each_entity_ends_with_its_own_info_and_reward() -> None:
    with Playing(served(TWO), 1) as playing, PolicyClient(playing.games.address) as client:
        episode = client.start_episode()
        client.log_returns(episode, 1.0, {"outcome": "win"}, entity="hero")
        client.log_returns(episode, -1.0, {"outcome": "loss"}, entity="rival")
        assert refused(lambda: client.get_action(episode, SEEN)) == "unknown_entity"
        assert refused(lambda: client.end_episode(episode, SEEN)) == "bad_observation"
        client.end_episode(episode, SEEN, entity="rival")
        assert refused(lambda: client.get_action(episode, SEEN, entity="rival")) == "ended"
        client.end_episode(episode)
        game = playing.account()
        assert (game.outcomes, game.returns.tolist()) == ({0: "win", 1: "loss"}, [1.0, -1.0])


def test_an_episode_of_a_part_of_the_entities_from_which_no_algorithm_learns() -> None:
    with Playing(served(TWO), 1) as playing, PolicyClient(playing.games.address) as client:
        episode = client.start_episode(entities=["rival"], training_enabled=False)
        assert refused(lambda: client.get_action(episode, SEEN, entity="hero")) == "ended"
        client.get_action(episode, SEEN, entity="rival")
        client.end_episode(episode)
        game = playing.account()
        assert (game.takes_part.tolist(), game.training) == ([False, True], False)


def test_a_token_may_be_read_from_its_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    games = served(token_file=str(file))
    with Playing(games, 1) as playing, PolicyClient(playing.games.address, token=file.read_text()) as client:
        assert client.interface == ONE
    with pytest.raises(ValueError, match="the token has characters") as raised:
        PolicyClient(games.address, token="sec\nret")
    assert "ret" not in str(raised.value)


def test_a_server_at_all_interfaces_names_its_host() -> None:
    with Playing(served(host="0.0.0.0", insecure=True), 1) as playing:
        name, _, port = playing.games.address.removeprefix("http://").partition("/")[0].partition(":")
        assert name == socket.gethostname() and int(port) > 0
        request = http.client.HTTPConnection(f"127.0.0.1:{port}")
        request.request("GET", "/interface", headers={"host": f"{name}:{port}"})  # as a client of this address sends it
        assert request.getresponse().status == 200
        request.close()


def test_an_actor_other_than_json_and_another_server_are_named() -> None:
    with Playing(served(actor="raw"), 1) as playing, pytest.raises(ExternalError, match="the actor raw; `actor: json`"):
        PolicyClient(playing.games.address)
    for status, message in (
        (b"404 Not Found", "not_found: 404 from GET /interface: this is no server of games"),
        (b"200 OK", "not_found: no server of games: it sent b'no'"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer(server: socket.socket = listener, status: bytes = status) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\n\r\nno")

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(ExternalError, match=message):
                PolicyClient(f"127.0.0.1:{listener.getsockname()[1]}")
            thread.join()


def test_a_client_without_a_server_says_so() -> None:
    port = free_port()
    with pytest.raises(ExternalClosed, match=f"no server at 127.0.0.1:{port}") as raised:
        PolicyClient(f"127.0.0.1:{port}", timeout_s=0.2)
    assert raised.value.code == pickle.loads(pickle.dumps(raised.value)).code == "unreachable"
    assert len(raised.traceback) == 3, "this test, the constructor, and the method that connects"
    with pytest.raises(ValueError, match="no address"):
        PolicyClient("nowhere")


def test_a_client_waits_for_a_server_that_does_not_listen_yet() -> None:
    port, begun = free_port(), []
    later = threading.Timer(0.2, lambda: begun.append(Playing(served(port=port), 1).__enter__()))
    later.start()
    with PolicyClient(f"127.0.0.1:{port}") as client:
        play_episode(client, client.interface, "a", 2)
    begun[0].__exit__()


def test_the_end_of_the_run_closes_a_client_which_can_connect_again() -> None:
    with Playing(served(), 1) as playing:
        client = PolicyClient(playing.games.address)
        client.start_episode("a")
        port = int(playing.games.address.split(":")[2].partition("/")[0])
    for _ in range(2):
        with pytest.raises(ExternalClosed, match="no server at"):
            client.get_action("a", SEEN)
    assert client.closed and playing.error is None
    with Playing(served(port=port), 1):
        client.reconnect()
        assert refused(lambda: client.get_action("a", SEEN)) == "unknown_game"
        play_episode(client, client.interface, "a", 2)
        client.close()


def test_a_client_is_told_that_no_game_may_begin_while_others_go_on() -> None:
    with Playing(served(), 2) as playing, PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        playing.games.drain()
        with pytest.raises(ExternalClosed) as raised:
            client.start_episode("b")
        assert (raised.value.code, client.closed) == ("draining", False)
        assert client.get_action("a", SEEN) is not None


def test_a_call_that_waits_is_told_the_end() -> None:
    for end, match in (("run", "over"), ("client", "closed")):
        with Playing(served(), 1, TickRules(max_delay_s=60.0, min_asking=2)) as playing:
            client = PolicyClient(playing.games.address)
            client.start_episode("a")
            told: list[ExternalClosed] = []

            def ask(client: PolicyClient = client, told: list[ExternalClosed] = told) -> None:
                try:
                    client.get_action("a", SEEN)
                except ExternalClosed as closed:
                    told.append(closed)

            playing.stop()
            thread = threading.Thread(target=ask)
            thread.start()
            while playing.games.idle:
                time.sleep(0.005)
            if end == "client":
                client.close()
            else:
                playing.games.close("over")
            thread.join(60)
            assert [(str(error), error.code) for error in told] == [(match, "over")]
            client.close()


def test_a_closed_client_leaves_its_slots() -> None:
    with Playing(served(), 1) as playing:
        with PolicyClient(playing.games.address) as client:
            client.get_action(client.start_episode("a"), SEEN)
        game = playing.account()
        assert (game.name, game.truncated, game.lost) == ("a", True, "")


def test_an_episode_that_is_given_up_says_why() -> None:
    rules = TickRules(max_delay_s=60.0, min_asking=2, answer_s=0.05)
    with Playing(served(), 2, rules) as playing, PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        assert [refused(lambda: client.get_action("a", SEEN)) for _ in range(2)] == ["timeout"] * 2
    with Playing(served(), 1, TickRules(idle_s=0.05)) as playing, PolicyClient(playing.games.address) as client:
        client.start_episode("a")
        playing.until(lambda: playing.table.running == 0)
        assert [refused(lambda: client.get_action("a", SEEN)) for _ in range(2)] == ["expired"] * 2


def test_start_waits_for_a_free_slot() -> None:
    with Playing(served(), 1) as playing, PolicyClient(playing.games.address, timeout_s=0.2) as client:
        client.start_episode("a")
        assert refused(lambda: client.start_episode("b")) == "no_slot"
        waiting = threading.Timer(0.1, lambda: client.end_episode("a"))
        waiting.start()
        client._timeout_s = 60.0
        assert client.start_episode("b") == "b"


def test_a_server_that_pauses_is_not_taken_for_dead() -> None:
    with Playing(served(), 1) as playing, PolicyClient(playing.games.address, timeout_s=0.1) as client:
        client.start_episode("a")
        playing.stop()
        playing.games.pause(True)
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.get_action("a", SEEN)))
        thread.start()
        while len(client._idle) + len(client._busy) < 2:  # it has asked whether the server is alive
            time.sleep(0.005)
        playing.games.pause(False)
        playing.resume()
        thread.join(60)
        assert len(answers) == 1


def test_idle_connections_that_the_server_has_closed_are_made_again() -> None:
    with (
        Playing(served(keep_alive_s=0.1), 1) as playing,
        PolicyClient(playing.games.address) as client,
        HttpWire(playing.games.address) as other,
    ):
        client.start_episode("a")
        assert other.at_end()  # so the client's connection is closed, too
        time.sleep(0.05)
        assert client.get_action("a", SEEN) == 0


@pytest.mark.slow
def test_the_client_imports_no_mpi_and_no_torch() -> None:
    program = (
        "import sys, arena.external.client\n"
        "print(*[name for name in ('mpi4py', 'torch', 'yaml', 'pettingzoo', 'rich', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
