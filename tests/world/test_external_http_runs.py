"""Whole runs with games over HTTP: learning, records, lost games and refusals."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box, Discrete

from arena import registry
from arena.cli.main import main
from arena.config import Config, parse_config
from arena.external import ExternalClosed, PolicyClient
from arena.game.api import Interface
from arena.records import checkpoint
from arena.records.checksums import check_folder
from arena.records.folder import RunFolder
from arena.records.formats import ExternalPlace
from arena.records.journal import JournalReader
from arena.roles.root.progress import record_place
from arena.run.prepare import begin, prepare
from arena.run.resume import _differences
from external_actors import HttpWire, request
from external_connections import entities_of
from external_games import play_poles, played_from_outside
from in_process import one_match, play

POLE = "gymnasium:CartPole-v1"
TICTACTOE = "pettingzoo:classic.tictactoe_v3"
PPO = {"algorithm": "ppo", "options": {"n_steps": 64, "minibatch_size": 64}}
LINE = Interface(("walker",), (Box(-1.0, 1e6, (1,), np.float32),), (Discrete(3),), (0,))


def config(*, lanes: int = 1, ticks: int = 512, external: Any = None, **kwargs: Any) -> dict[str, Any]:
    game = {"make": "http", "kwargs": {"port": 0, **kwargs}, "external": external or {}}
    return one_match(game, {"blue": PPO}, ticks=ticks, seed=5, match={"lanes": lanes})


def network(folder: RunFolder, policy: str = "blue", *, first: bool = False) -> dict[str, Any]:
    files = checkpoint.list_checkpoints(folder.checkpoints_path(policy))
    state: dict[str, Any] = checkpoint.load(files[0 if first else -1]).state["network"]
    return state


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(64, marks=pytest.mark.long)])
def test_lockstep_games_learn_the_same_bits_as_ordinary_lanes(count: int, tmp_path: Path) -> None:
    lanes = play({**config(lanes=count), "envs": {"game": {"make": POLE}}}, tmp_path / "ordinary")
    seeds = [lanes.run.environment_seed(lanes.run.plan.matches[0], lane) for lane in range(count)]

    def outside(address: str) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(PolicyClient(address)) for _ in seeds]
            play_poles(clients, [gymnasium.make("CartPole-v1") for _ in seeds], seeds)

    external = {"min_asking": count, "max_delay_s": 60.0}
    with played_from_outside(tmp_path / "run", outside):
        found = play(config(lanes=count, external=external, like={"make": POLE}), tmp_path)
    assert equal(network(found.folder), network(lanes.folder))
    assert not equal(network(found.folder), network(found.folder, first=True))
    lengths = [line["length"] for line in lanes.episodes if not line.get("cut")]
    assert sorted(line["length"] for line in found.episodes if not line.get("cut")) == sorted(lengths)
    assert len(lengths) > 10


@pytest.mark.slow
def test_turn_based_game_trains_the_same_bits_as_an_ordinary_one(tmp_path: Path) -> None:
    both = {
        "policies": {"blue": PPO, "red": PPO},
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
    }
    ordinary = play({**config(ticks=256), **both, "envs": {"game": {"make": TICTACTOE}}}, tmp_path / "ordinary")
    external = {"max_delay_s": 60.0}
    with played_from_outside(tmp_path / "run", play_tictactoe):
        found = play({**config(ticks=256, external=external, like={"make": TICTACTOE}), **both}, tmp_path)
    for policy in ("blue", "red"):
        assert equal(network(found.folder, policy), network(ordinary.folder, policy))
        assert not equal(network(found.folder, policy), network(found.folder, policy, first=True))
    assert len(found.episodes) > 20
    moves = [(-(-line["length"] // 2), returns_of(line)) for line in ordinary.episodes]  # of the player that begins
    assert [(line["length"], returns_of(line)) for line in found.episodes] == moves[: len(found.episodes)]


def returns_of(line: dict[str, Any]) -> list[float]:
    return [seat["return"] for seat in line["seats"]]


def play_tictactoe(address: str) -> None:
    """Plays games until the run ends; the players take turns."""
    env: Any = registry.environment_factory(TICTACTOE)()
    with HttpWire(address) as wire:

        def step(kind: str, **entities: Any) -> Any:
            reply = wire.step(kind, name, json.dumps({"entities": entities} if entities else {}).encode())
            if reply.status == 503 and reply.error in ("over", "draining"):
                raise ExternalClosed
            return reply

        number = 0
        try:
            while True:
                number += 1
                name = f"game-{number}"
                while step("start").status != 200:
                    pass
                env.reset()
                while not env.terminations[env.agent_selection]:
                    agent = env.agent_selection
                    seen = env.observe(agent)
                    mask = seen["action_mask"].tolist()
                    said = {"observation": seen["observation"].tolist(), "mask": mask, "reward": 0.0}
                    env.step(json.loads(step("tick", **{agent: said}).body)["entities"][agent]["action"])
                step("end", **{agent: {"reward": float(reward)} for agent, reward in env.rewards.items()})
        except (ExternalClosed, EOFError, ConnectionError):
            return


def walk(address: str, steps: int = 80, games: int = 3) -> None:
    """The observation is the number of the step, the reward of a step its number."""
    with PolicyClient(address) as client, suppress(ExternalClosed):
        for number in range(games):
            client.start_episode(f"walk-{number}")
            for step in range(steps):
                client.get_action(f"walk-{number}", np.array([step]))
                client.log_returns(f"walk-{number}", float(step))
            client.end_episode(f"walk-{number}", np.array([steps]), info={"outcome": "win"})
        client.start_episode("rest")
        while True:
            client.get_action("rest", np.array([0.0]))


@pytest.mark.slow
def test_games_of_vanished_clients_are_recorded_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the clients vanish after an answer, half between a request and its answer; then no client plays."""
    vanish = 10
    monkeypatch.setattr("arena.roles.environment.environment._COUNT_SECONDS", 5.0)
    folder = RunFolder(tmp_path / "run")

    told: list[dict[str, Any]] = []  # lines of `games.jsonl` before the next game begins

    def lines(name: Path) -> list[dict[str, Any]]:
        return list(JournalReader(name)) if name.exists() else []

    def outside(address: str) -> None:
        for number in range(vanish):
            with HttpWire(address) as wire:
                while wire.step("start", f"game-{number}").status == 503:
                    pass
                assert wire.step("tick", f"game-{number}", b'{"observation": [0]}').status == 200
                if number % 2:
                    wire.send(request("tick", f"game-{number}", b'{"observation": [1], "reward": 3}'))
        with HttpWire(address) as wire:
            expected = f'arena_games_lost_total{{reason="expired"}} {vanish}\n'.encode()
            while expected not in get(wire, "/metrics"):
                time.sleep(0.05)
            assert wire.step("tick", "game-0", b"{").error == "unknown_game"
        until = time.monotonic() + 60
        while time.monotonic() < until and not told:
            recorded = sum("lost" in one for one in lines(folder.episodes))
            told.extend(one for one in lines(folder.games) if one["lost"] == recorded == vanish)
            time.sleep(0.05)
        walk(address, steps=10, games=10)

    external = {"idle_s": 1.0}
    with played_from_outside(tmp_path / "run", outside):
        found = play(config(ticks=200, lanes=vanish, external=external, entities=entities_of(LINE)), tmp_path)
    assert [line["held"] for line in told] == [0]
    lost = {line["game"]: line for line in found.episodes if line.get("lost")}
    played = {name: (line["length"], line["seats"][0]["return"]) for name, line in lost.items() if "game" in name}
    assert played == {f"game-{number}": (2, 3.0) if number % 2 else (1, 0.0) for number in range(vanish)}
    (*_, last) = JournalReader(found.folder.games)
    assert last["begun"] == last["ended"] + last["lost"] + last["held"]
    assert (last["lost"], last["lost_by"], last["ended"]) == (vanish, {"expired": vanish}, 10)
    assert last["refused"] == sum(last["refused_by"].values()) and last["refused_by"]["unknown_game"] == 1
    assert (
        found.shown.count("match 0: a request of the game 'game-0' is refused: unknown_game: this game is over: ") == 1
    )
    assert " refused request" in found.scoreboard.games[0] and "1 unknown_game" in found.scoreboard.games[0]
    assert {line["lost"] for line in lost.values()} == {"expired"}


def get(wire: HttpWire, path: str) -> bytes:
    wire.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return wire.read().body


def refused(data: dict[str, Any], path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a run that is refused with exit code 2."""
    (path / "match.yaml").write_text(yaml.safe_dump(data))
    code = main(["train", str(path / "match.yaml"), "--ranks", "1", "--run-dir", str(path / "run")])
    error = capsys.readouterr().err
    assert code == 2, error
    assert len(error.splitlines()) == 1
    return error


def test_occupied_port_ends_the_run_before_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(config(port=port, entities=entities_of(LINE)), tmp_path, capsys)
    assert f": envs.game.kwargs.port: cannot listen at 127.0.0.1:{port}" in error


def test_sockets_name_their_successor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    socket_config = {**config(), "envs": {"game": {"make": "socket", "kwargs": {"address": "127.0.0.1:0"}}}}
    assert "envs.game.make: 'socket' is no longer supported: set `http`" in refused(socket_config, tmp_path, capsys)
    assert main(["serve", str(tmp_path / "match.yaml"), "--socket", "127.0.0.1:0"]) == 2
    assert "--socket: is no longer supported: use --http [HOST:]PORT" in capsys.readouterr().err


def outside(address: str) -> None:
    with PolicyClient(address) as client:
        play_poles([client], [gymnasium.make("CartPole-v1")], [1])


def test_a_run_is_resumed_where_its_games_are_reached_otherwise(tmp_path: Path) -> None:
    data = config(like={"make": POLE})
    del data["envs"]["game"]["external"]
    with played_from_outside(tmp_path / "run", outside):
        play({**data, "ticks": 100}, tmp_path, given=True)
    (tmp_path / "run" / "external.json").unlink()  # the client is to wait for the next one
    data = config(like={"make": POLE}, host="localhost", queue=3, external={"idle_s": 61})
    data["matches"][0]["env_kwargs"] = {"max_body": 1000}
    with played_from_outside(tmp_path / "run", outside):
        found = play({**data, "ticks": 200}, tmp_path, resume=True)
    assert found.run.text == ()
    rules = [line for line in JournalReader(found.folder.resumes) if "external" in line["key"]]
    assert [[line[key] for key in ("key", "was", "now")] for line in rules] == [
        ["envs.game.external.idle_s", "60.0", "61.0"]
    ], "the other defaults are in force before and after"
    (place,) = json.loads(found.folder.external.read_text())
    assert place["address"].startswith("http://localhost:")
    assert [line["ticks"] for line in JournalReader(found.folder.metrics)] == [64, 128, 192]


def test_clients_of_a_run_that_begins_again_wait_for_its_new_address(tmp_path: Path) -> None:
    parsed = parse_config(config(), source="test")
    run = prepare(parsed, ranks=1, run_dir=str(tmp_path / "run"), resume=False)
    begin(run, resumable=True)
    record_place(run.folder, ExternalPlace(0, 0, "http", "http://127.0.0.1:1/step", 1, "host", 1))
    assert run.folder.external.exists()
    begin(prepare(parsed, ranks=1, run_dir=str(tmp_path / "run"), resume=True), resumable=True)
    assert not run.folder.external.exists()
    check_folder(run.path)


PROGRAM = {"command": ["{python}", "-c", "pass"], "groups": {"walker": {"agents": 1, "observations": [[1]]}}}


@pytest.mark.parametrize(
    ("make", "kwargs", "operates", "plays"),
    [
        (
            "http",
            {"entities": entities_of(LINE)},
            {"port": 1, "host": "::1", "token_file": "t", "insecure": True, "allowed_hosts": ["a"], "drain_s": 1.0},
            {"entities": {}, "like": {"make": POLE}, "actor": "raw", "config": 3},
        ),
        (
            "shared_memory",
            PROGRAM,
            {"command": ["other"], "attach": "name", "restarts": 2, "step_s": 9.0, "folder": "/tmp", "simulators": 2},
            {"groups": None, "split": {"walker": 2}, "parameters": {"gravity": 1}, "action_range": [-2.0, 2.0]},
        ),
    ],
)
def test_resume_tells_a_game_from_how_it_is_reached(make: str, kwargs: Any, operates: Any, plays: Any) -> None:
    options = registry.environment_factory(make).Options  # type: ignore[attr-defined]
    assert set(options.GAME) < set(options.__struct_fields__)

    def configured(changes: dict[str, Any], match: dict[str, Any]) -> Config:
        data = one_match({"make": make, "kwargs": {**kwargs, **changes}}, {"blue": PPO}, ticks=100, match=match)
        return parse_config({"name": "test", **data}, source="test")

    before = configured({}, {})
    for key, value in operates.items():
        assert [*_differences(before, configured({key: value}, {}))] == [], key
        assert [*_differences(before, configured({}, {"env_kwargs": {key: value}}))] == [], key
    for key, value in plays.items():
        assert [*_differences(before, configured({key: value}, {}))], key
        assert [*_differences(before, configured({}, {"env_kwargs": {key: value}}))], key


def test_wrong_argument_is_named_with_its_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(config(entities=entities_of(LINE), host="0.0.0.0"), tmp_path, capsys)
    assert ": envs.game.kwargs.host: 0.0.0.0 can be reached" in error
    error = refused(config(entities=entities_of(LINE), queu=1), tmp_path, capsys)
    assert ": envs.game.kwargs.queu: unknown key 'queu'; did you mean 'queue'?" in error
    error = refused(config(entities={"walker": {"observation": {"box": {}}, "action": {}}}), tmp_path, capsys)
    assert ": envs.game.kwargs.entities.walker.observation: {'box': {}} is no space: box lacks 'shape'" in error
    assert ": envs.game.kwargs.entities: is missing, and `like` too" in refused(config(), tmp_path, capsys)
    data = config(entities=entities_of(LINE))
    data["matches"][0]["env_kwargs"] = {"port": 70000}
    assert ": matches[0].env_kwargs.port: found 70000" in refused(data, tmp_path, capsys)


def test_polled_environment_plays_a_run(tmp_path: Path) -> None:
    polled = {"game": {"make": "external_connections:PolledLines", "kwargs": {"games": 2}}}
    found = play({**config(ticks=200, lanes=2), "checkpoint_every": 70, "envs": polled}, tmp_path)
    lines = [(line["game"], line["length"], line["seats"][0]["return"]) for line in found.episodes]
    assert set(lines) == {("0", 5, 10.0), ("1", 5, 10.0)}
    assert len(lines) > 30
