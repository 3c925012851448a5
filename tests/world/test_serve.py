"""`arena serve`: policies of runs answer games, as they would be evaluated."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import external_actors
import readme
from arena.cli import serve
from arena.cli.main import main
from arena.errors import ConfigError
from arena.external.slots import Answers
from arena.opened import open_run
from arena.records import checkpoint
from arena.records.journal import JournalReader
from arena.records.lock import RunLock
from arena.serving import load_policy
from arena.serving.models import PureModel
from external_actors import HttpWire, request
from in_process import one_match, play
from run_cli import wait_for

POLE = "gymnasium:CartPole-v1"


def trained(
    folder: Path, algorithm: str, make: str = POLE, *, kwargs: Any = None, seats: Any = ("blue",), **options: Any
) -> Path:
    """The folder of a short run."""
    game, policies = {"make": make, "kwargs": kwargs or {}}, {"blue": {"algorithm": algorithm, "options": options}}
    given = {"seats": seats, "match": {"lanes": 2}, "seed": 3, "checkpoint_every": 20}
    return play(one_match(game, policies, ticks=40, **given), folder).folder.path


@pytest.fixture(scope="module")
def pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO on CartPole, with checkpoints at the ticks 0, 20 and 40."""
    return trained(tmp_path_factory.mktemp("pole"), "ppo", n_steps=10)


class Serving:
    """A server in a thread."""

    def __init__(self, *arguments: object) -> None:
        parser = argparse.ArgumentParser()
        serve.add_arguments(parser)
        self.served = serve.prepare(
            parser.parse_args(["--drain", "0", "--engine", "torch", *(str(one) for one in arguments)])
        )
        self.server = self.served.server
        self.address = self.server._connection.games.address
        self.thread = threading.Thread(target=self.served.run, name="server", daemon=True)

    def __enter__(self) -> Serving:
        self.thread.start()
        if self.address.startswith("http"):
            with HttpWire(self.address) as wire:
                wait_for(lambda: wire.get("/readyz").status == 200)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.thread.join(600)
        assert not self.thread.is_alive()


SMALL = {"learning_starts": 8, "batch_size": 8, "training_intensity": 8, "hidden_sizes": [16]}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", POLE, {"n_steps": 10}),
    "ppo, numbers": ("ppo", "gymnasium:Pendulum-v1", {"n_steps": 10}),
    "lstm": ("ppo", POLE, {"n_steps": 10, "recurrent": "lstm"}),
    "gru": ("a2c", POLE, {"n_steps": 10, "recurrent": "gru"}),
    "dqn": ("dqn", POLE, SMALL),
    "sac": ("sac", "gymnasium:Pendulum-v1", SMALL),
    "td3": ("td3", "gymnasium:Pendulum-v1", SMALL),
    "hppo": ("hppo", POLE, {"n_steps": 10}),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.long] * (case in ("ppo, numbers", "gru", "dqn", "td3"))) for case in CASES],
)
def test_served_actions_equal_evaluated_ones(case: str, tmp_path: Path) -> None:
    """Bit for bit, for batches of all sizes; rows remember their own games."""
    algorithm, make, options = CASES[case]
    run = trained(tmp_path, algorithm, make, **options)
    policy = load_policy(f"{run}:blue")
    server = Serving(run, "--http", 0, "--slots", 5, "--actor", "raw")
    (player,) = server.served.players
    expected = policy.actor(5, greedy=True)
    space, random = policy.observation_space, np.random.default_rng(0)
    actions = [np.zeros((5, *policy.action_space.shape), policy.action_space.dtype)]  # type: ignore[misc]
    for slot in range(5):
        player.begin(slot, f"game {slot}")
    for tick in range(6):
        asks = np.ones((5, 1), np.bool_) if tick % 2 == 0 else random.random((5, 1)) < 0.7
        seen = random.normal(size=(5, *space.shape)).astype(space.dtype)  # type: ignore[misc]
        wanted = expected(seen, {"active": asks[:, 0]})
        rows = asks[:, 0]
        assert player.act(asks, [seen], [None], actions) == []
        exact = 0.0 if rows.all() else 1e-5  # a batch of other rows may differ in the last bits
        np.testing.assert_allclose(actions[0][rows], wanted[rows], rtol=0, atol=exact)
    server.server.close()


def tick(*numbers: float) -> bytes:
    return json.dumps({"observation": numbers}).encode()


def test_games_are_answered_recorded_and_counted(pole: Path, tmp_path: Path) -> None:
    best = load_policy(f"{pole}:blue")
    serving = Serving(pole, "--http", 0, "--records", tmp_path / "records")
    with serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        seen = [0.1, -0.2, 0.3, 0.4]
        answer = json.loads(wire.step("tick", "a", tick(*seen)).body)
        assert answer["action"] == best.act(np.array(seen, np.float32))
        wire.step("end", "a", b'{"reward": 2.5}')
        wire.step("start", "b")
        assert wire.step("tick", "b", tick(*seen)).status == 200
    (line,) = [line for line in JournalReader(tmp_path / "records" / "episodes.jsonl") if not line.get("lost")]
    assert (line["game"], line["length"], line["seats"][0]["return"]) == ("a", 1, 2.5)
    (*_, counts) = JournalReader(tmp_path / "records" / "games.jsonl")
    assert counts["begun"] == counts["ended"] + counts["lost"] + counts["held"] == 2


def test_refused_requests_and_games_with_two_winners_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run", "ppo", "touchdown", kwargs={"max_steps": 20}, seats=("blue", "blue"), n_steps=10)
    serving = Serving(run, "--http", 0, "--games", 4, "--slots", 1, "--records", tmp_path / "records")
    seen = json.dumps({"entities": {name: {"observation": [0, 0, 0, 0]} for name in ("blue_0", "red_0")}}).encode()
    with serving, HttpWire(serving.address) as wire:
        for name, ends in (("a", ("win", "win")), ("b", ("win", "loss")), ("c", ("loss", "loss"))):
            assert wire.step("start", name).status == 200
            assert wire.step("start", "late").error == "no_slot"
            assert wire.step("tick", name, b'{"entities": {"green": {}}}').error == "unknown_entity"
            assert wire.step("tick", name, seen).status == 200
            stated = {entity: {"outcome": end} for entity, end in zip(("blue_0", "red_0"), ends, strict=True)}
            assert wire.step("end", name, json.dumps({"entities": stated}).encode()).status == 200
    (*_, counts) = JournalReader(tmp_path / "records" / "games.jsonl")
    assert (counts["begun"], counts["ended"], counts["refused"]) == (3, 3, 6)
    assert counts["refused_by"] == {"no_slot": 3, "unknown_entity": 3}
    out = capsys.readouterr().out
    assert "0 lost, 6 refused requests (3 no_slot, 3 unknown_entity); " in out
    assert out.count("a request of the game 'a' is refused: unknown_entity: unknown entity 'green'; ") == 1
    assert "is refused: no_slot" not in out, "clients ask again"
    assert "not rated: 2 games of 'game' in which both sides won, both lost, or only one side has" in out


def test_games_in_which_one_side_states_an_outcome_count_for_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = Serving(configured(tmp_path, "touchdown", "blue", "red"), "--http", 0, "--games", 3)
    with serving, HttpWire(serving.address) as wire:
        seen = {name: {"observation": [0, 0, 0, 0]} for name in ("blue_0", "red_0")}
        for name, ends in (("a", {"red_0": "win"}), ("b", {"blue_0": "win", "red_0": "loss"}), ("c", {"red_0": "win"})):
            wire.step("start", name)
            assert wire.step("tick", name, json.dumps({"entities": seen}).encode()).status == 200
            stated = {entity: {"outcome": end} for entity, end in ends.items()}
            assert wire.step("end", name, json.dumps({"entities": stated}).encode()).status == 200
    serving.served.show_results(3)
    blue, red = [line for line in capsys.readouterr().out.splitlines() if ", as configured: " in line]
    assert ": 3 episodes, won 100.0 %" in blue and ": 3 episodes, won 0.0 %" in red


@pytest.mark.parametrize(
    ("policies", "text"), [(("blue", "blue"), "against itself, "), (("blue", "red"), "won 100.0 %")]
)
def test_games_of_one_policy_against_itself_have_no_win_rate(
    policies: tuple[str, str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = Serving(configured(tmp_path, "touchdown", *policies), "--http", 0, "--games", 1)
    with serving, HttpWire(serving.address) as wire:
        seen = {name: {"observation": [0, 0, 0, 0]} for name in ("blue_0", "red_0")}
        wire.step("start")
        wire.step("tick", data=json.dumps({"entities": seen}).encode())
        ends = {"blue_0": {"outcome": "win"}, "red_0": {"outcome": "loss"}}
        wire.step("end", data=json.dumps({"entities": ends}).encode())
    serving.served.show_results(1)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("blue, as configured: ")]
    assert f": 1 episode, {text}" in line


def test_records_name_entities_and_losses_as_a_run_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serving = Serving(configured(tmp_path, "touchdown", "blue", "red"), "--http", 0, "--records", tmp_path)
    serving.served.players[0].model = Failing()
    with serving, HttpWire(serving.address) as wire:
        for name, seen in (("whole", 0), ("half", 0), ("broken", 1)):
            entities = ("blue_0",) if name == "half" else ("blue_0", "red_0")
            wire.step("start", name, json.dumps({"entities": entities}).encode())
            body = {"entities": {entity: {"observation": [seen, 0, 0, 0]} for entity in entities}}
            assert wire.step("tick", name, json.dumps(body).encode()).status == (500 if seen else 200)
            wire.step("end", name, b"{}")
    lines = {line["game"]: line for line in JournalReader(tmp_path / "episodes.jsonl")}
    seats = {name: [seat["entities"] for seat in line["seats"]] for name, line in lines.items()}
    assert seats == {"whole": [[0], [1]], "half": [[0]], "broken": [[0], [1]]}
    reasons = {name: line.get("lost") for name, line in lines.items()}
    assert reasons == {"whole": None, "half": None, "broken": "policy_error"}
    rows = open_run(tmp_path).episodes()
    expected = {(name, reason is not None, reason) for name, reason in reasons.items()}
    for told in (rows, rows.to_polars().to_dicts()):
        assert {(one["game"], one["lost"], one["lost_reason"]) for one in told} == expected
    frame = rows.to_pandas()
    assert frame["lost"].dtype == bool and [*frame.loc[frame["lost"], "lost_reason"]] == ["policy_error"] * 2
    assert frame.loc[~frame["lost"], "lost_reason"].isna().all()
    (*_, counts) = JournalReader(tmp_path / "games.jsonl")
    assert (counts["lost"], counts["lost_by"]) == (1, {"policy_error": 1})
    assert (
        "3 games begun, 2 ended, 1 lost (1 policy_error), 2 refused requests (1 policy_error, 1 unknown_game); "
        in capsys.readouterr().out
    )


def test_records_are_read_as_those_of_a_run(pole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, records = configured(tmp_path, "touchdown", "blue", "red"), tmp_path / "records"
    serving = Serving(path, "--http", 0, "--records", records, "--slots", 3, "--drain", 9)
    seen = json.dumps({"entities": {name: {"observation": [0, 0, 0, 0]} for name in ("blue_0", "red_0")}}).encode()
    outcomes = {"blue_0": {"outcome": "win"}, "red_0": {"outcome": "loss"}}
    with serving, HttpWire(serving.address) as wire:
        for name in ("a", "b"):
            wire.step("start", name)
        for name in ("a", "b"):
            assert wire.step("tick", name, seen).status == 200
            assert wire.step("end", name, json.dumps({"entities": outcomes}).encode()).status == 200
    capsys.readouterr()
    assert main(["standings", str(records), "--json"]) == 0
    players = json.loads(capsys.readouterr().out)["players"]
    assert {one["player"]: (one["wins"], one["losses"]) for one in players} == {"blue": (2, 0), "red": (0, 2)}
    assert main(["report", str(records)]) == 0
    assert [row["game"] for row in open_run(records).episodes()] == ["a", "a", "b", "b"]
    for target, folder in ((pole, records), (pole, pole)):
        assert main(["serve", str(target), "--http", "0", "--records", str(folder)]) == 2
        assert "--records: holds a run, or records of another configuration" in capsys.readouterr().err


def test_records_of_a_second_server_go_on_with_the_numbers(
    pole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "new" / "records"
    for slots, which, names in ((3, "first", "abc"), (2, "20", "de"), (3, "last", "f")):
        with (
            Serving(pole, "--http", 0, "--slots", slots, "--checkpoint", which, "--records", records) as serving,
            HttpWire(serving.address) as wire,
        ):
            for name in names[:2]:  # at the same time, in two lanes
                wire.step("start", name)
                assert wire.step("tick", name, tick(0, 0, 0, 0)).status == 200
            for name in names[:2]:
                wire.step("end", name, b"{}")
            for name in names[2:]:
                wire.step("start", name)
                assert wire.step("tick", name, tick(0, 0, 0, 0)).status == 200
                wire.step("end", name, b"{}")
        with (records / "episodes.jsonl").open("ab") as file:
            file.write(b'{"round":0,"match":0,"en')  # of a write that was killed
    assert re.findall("goes on after .*", capsys.readouterr().out) == [
        "goes on after 3 recorded games",
        "goes on after 5 recorded games",
    ]
    rows = open_run(records).episodes()
    assert [(row["game"], row["checkpoint"]) for row in rows] == [*zip("abcdef", (0, 0, 0, 20, 20, 40), strict=True)]
    numbers: dict[int, list[int]] = {}
    for row in rows:
        numbers.setdefault(row["lane"], []).append(row["episode"])
    assert all(found == [*range(len(found))] for found in numbers.values())
    ticks = [row["tick"] for row in rows]
    assert ticks == sorted(ticks)
    assert main(["report", str(records)]) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "cannot be made, or written to: .*File exists"),
        ("file/records", "cannot be made, or written to: .*File exists"),
        ("held", "another run writes into this folder: process "),
        ("damaged", "episodes.jsonl: was changed or damaged after the arena wrote it: "),
    ],
)
def test_records_are_refused_before_policies_are_loaded(
    name: str,
    message: str,
    pole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "held").mkdir()
    (tmp_path / "damaged" / "checksums").mkdir(parents=True)
    (tmp_path / "damaged" / "checksums" / "episodes.jsonl").write_text("000000000009 00000000\n" * 2)
    monkeypatch.setattr(serve, "_model", None)
    with RunLock.take(tmp_path / "held"):
        assert main(["serve", str(pole), "--http", "0", "--records", str(tmp_path / name)]) == 2
    assert re.search(f"--records: .*{message}", capsys.readouterr().err)


def test_a_missing_simulator_is_told_by_its_option(pole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(pole), "--simulator", "no-such-program"]) == 2
    assert ": --simulator: there is no program 'no-such-program' in PATH" in capsys.readouterr().err


def test_a_second_match_with_exchanged_seats_rates_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, records = tmp_path / "c.yaml", tmp_path / "records"
    game = {"make": "http", "kwargs": {"port": 0, "like": {"make": "touchdown"}}, "outcome": "zero_sum"}
    matches = [{"env": "game", "seats": seats} for seats in (["blue", "red"], ["red", "blue"])]
    policies = {name: {"algorithm": "random"} for name in ("blue", "red")}
    path.write_text(json.dumps({"ticks": 10, "envs": {"game": game}, "policies": policies, "matches": matches}))
    seen = json.dumps({"entities": {name: {"observation": [0, 0, 0, 0]} for name in ("blue_0", "red_0")}}).encode()
    outcomes = {"blue_0": {"outcome": "win"}, "red_0": {"outcome": "loss"}}
    told = []
    for match in (0, 1):
        serving = Serving(path, "--match", match, "--records", records, "--drain", 9)
        with serving, HttpWire(serving.address) as wire:
            wire.step("start", "a")
            assert wire.step("tick", "a", seen).status == 200
            assert wire.step("end", "a", json.dumps({"entities": outcomes}).encode()).status == 200
        capsys.readouterr()
        assert main(["standings", str(records)]) == 0
        told.append("; list a second match with exchanged seats" in capsys.readouterr().out)
    assert told == [True, False]


def test_draws_depend_on_the_name_of_the_game_alone(pole: Path) -> None:
    def draws(name: str, others: int) -> list[int]:
        found = []
        with Serving(pole, "--http", 0, "--sample", "--seed", 7, "--max-delay", 1) as serving:
            wires = [HttpWire(serving.address) for _ in range(others + 1)]
            for number, wire in enumerate(wires):
                wire.step("start", f"other {number}".replace(" ", "-") if number else name)
            for _ in range(20):
                for wire, number in zip(wires[1:], range(1, others + 1), strict=True):
                    wire.step("tick", f"other-{number}", tick(0, 0, 0, 0))
                found.append(json.loads(wires[0].step("tick", name, tick(0, 0, 0, 0)).body)["action"])
            for wire in wires:
                wire.socket.close()
        return found

    alone = draws("a", 0)
    assert alone == draws("a", 2)
    assert len({*alone}) == 2
    assert alone != draws("b", 0)


def test_n_games_are_served_to_their_ends(pole: Path) -> None:
    serving = Serving(pole, "--http", 0, "--games", 3)
    with serving, HttpWire(serving.address) as wire:
        for number in range(3):
            assert wire.step("start", str(number)).status == 200
        late = wire.step("start", "late")
        assert (late.status, late.error) == (503, "draining")
        for number in range(3):
            wire.step("tick", str(number), tick(0, 0, 0, 0))
            wire.step("end", str(number), b'{"reward": %d}' % number)
        serving.thread.join(600)
        assert not serving.thread.is_alive(), "it ends by itself"
    assert serving.server.scoreboard.policies["blue"].episodes == 3


class Constant:
    """A model whose actions are its version."""

    engine, memory_size = "test", 0

    def __init__(self, version: int = 7) -> None:
        self.version = version

    def begin(self, row: int) -> None:
        pass

    def act(self, rows: Any, observations: Any, masks: Any, memory: Any, random: Any) -> Any:
        time.sleep(0.0005)
        return np.full(len(rows), self.version % 2, np.int64), memory


class Failing(Constant):
    """A model that fails where an observation is 1."""

    def act(self, rows: Any, observations: Any, masks: Any, memory: Any, random: Any) -> Any:
        if (observations[:, 0] == 1.0).any():
            raise RuntimeError("secret")
        return super().act(rows, observations, masks, memory, random)


def test_error_of_one_row_fails_only_that_row(pole: Path) -> None:
    serving = Serving(pole, "--http", 0, "--max-delay", 200)
    serving.served.players[0].model = Failing()
    with serving:
        wires = [HttpWire(serving.address) for _ in range(3)]
        for number, wire in enumerate(wires):
            wire.step("start", str(number))
        for number, wire in enumerate(wires):
            wire.send(request("tick", str(number), tick(float(number == 1), 0, 0, 0)))
        replies = [wire.read() for wire in wires]
        assert [reply.status for reply in replies] == [200, 500, 200]
        assert (replies[1].error, b"secret" in replies[1].body) == ("policy_error", False)
        assert json.loads(wires[1].step("tick", "1", tick(0, 0, 0, 0)).body)["reason"] == "failed"
        assert wires[0].step("tick", "0", tick(0, 0, 0, 0)).status == 200
        for wire in wires:
            wire.socket.close()


def test_a_game_on_which_two_policies_fail_is_lost_once(tmp_path: Path) -> None:
    path = configured(tmp_path, "touchdown", "blue", "red")
    serving = Serving(path, "--http", 0, "--max-delay", 100)
    for player in serving.served.players:
        player.model = Failing()
    body = json.dumps({"entities": {name: {"observation": [1, 0, 0, 0]} for name in ("blue_0", "red_0")}}).encode()
    with serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        assert wire.step("tick", "a", body).error == "policy_error"
        assert wire.step("start", "a").status == 200


def test_versions_are_swapped_between_batches_and_never_fall(pole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serving = Serving(pole, "--http", 0)
    (player,) = serving.served.players
    player.model = Constant(0)
    answered: list[tuple[int, list[int]]] = []  # version, actions
    games: Any = serving.server._connection.games
    passed = games.answer

    def answer(actions: Answers) -> None:
        answered.append((actions.versions[0], actions.actions[0][actions.slots].tolist()))
        passed(actions)

    games.answer = answer
    with serving:
        ends = threading.Event()

        def load(name: str) -> None:
            with HttpWire(serving.address) as wire:
                wire.step("start", name)
                while not ends.is_set():
                    assert wire.step("tick", name, tick(0, 0, 0, 0)).status == 200

        threads = [threading.Thread(target=load, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for version in range(1, 101):
            before = len(answered)
            serving.server.call(lambda version=version: player.take(Constant(version)))  # type: ignore[misc]
            while len(answered) < before + 2:
                time.sleep(0.001)
        ends.set()
        for thread in threads:
            thread.join(600)
    versions = [version for version, _ in answered]
    assert versions == sorted(versions)
    assert versions[-1] == 100
    serving.served.show_results(1)
    assert f"blue at ticks {versions[0]} to 100: " in capsys.readouterr().out
    assert all({*actions} == {version % 2} for version, actions in answered)


def test_follow_loads_newer_checkpoints_and_skips_damaged_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "ppo", n_steps=10)
    home = run / "checkpoints" / "blue"
    newest = checkpoint.list_checkpoints(home)[-1]
    serving = Serving(run, "--http", 0, "--checkpoint", "follow")
    (player,), (follower,) = serving.served.players, serving.served.followers
    assert player.model.version == 40
    held = checkpoint.load(newest)
    path = checkpoint.path_of(home, 60)
    path.write_bytes(newest.read_bytes()[:-100])
    with serving:
        follower.look()
        assert "the checkpoint of tick 60 is passed over" in capsys.readouterr().out
        checkpoint.write(checkpoint.path_of(home, 80), replace(held, boundary=80))
        deadline = time.monotonic() + 600
        while player.model.version == 40 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert player.model.version == 80
    assert isinstance(player.model, PureModel)


def test_followed_policies_begin_at_a_tick_that_all_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As while the run saves a boundary: one policy has a newer checkpoint than the other one."""
    learns = {"algorithm": "ppo", "options": {"n_steps": 10}}
    policies = {"blue": learns, "red": learns, "green": {"algorithm": "random"}}
    seats = {"seats": ["blue", "blue", "red", "green"], "checkpoint_every": 20}
    config = one_match({"make": "touchdown", "kwargs": {"team_size": 2}}, policies, ticks=40, **seats)
    run = play(config, tmp_path).folder
    for folder in (run.boundaries, run.checksums):
        shutil.rmtree(folder)
    checkpoint.path_of(run.checkpoints_path("red"), 40).unlink()

    def versions(*options: object) -> list[int]:
        serving = Serving(run.path, "--http", 0, *options)
        serving.server.close()
        return [player.model.version for player in serving.served.players]

    assert versions() == [40, 20, -1]
    assert versions("--checkpoint", "follow") == [20, 20, -1]
    shown = capsys.readouterr().out
    assert "begins at tick 20, the newest of which all policies have a checkpoint\n" in shown
    assert shown.count("a run keeps the first and the last 3 checkpoints of a policy") == 1


def test_an_actor_asks_older_versions(pole: Path) -> None:
    older = load_policy(f"{pole}:blue@20").act(np.zeros(4, np.float32))
    serving = Serving(pole, "--http", 0, "--actor", "external_actors:PoleBalancer")
    with serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        assert wire.step("tick", "a", b"older 39").body == f"20 {older}".encode()
        assert wire.step("tick", "a", b"older -1").body.startswith(b"40 ")
        assert wire.step("tick", "a", b"older -2").error == "actor_error"


@pytest.mark.slow
def test_sigterm_lets_running_games_end_and_exits_with_0(pole: Path) -> None:
    command = [sys.executable, "-m", "arena", "serve", str(pole), "--http", "0", "--drain", "600", "--engine", "torch"]
    command += ["--games", "100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"loading {pole}\n"
    assert process.stdout.readline() == "serving blue at tick 40 (torch)\n"
    address = process.stdout.readline().split()[-1]
    begin = f"curl -H 'game_id: one' -H 'step_kind: start' -d '' {address}"
    assert process.stdout.readline() == f"a game begins with: {begin}; Ctrl-C ends the server\n"
    assert process.stdout.readline() == (
        "limits: 256 games at the same time (--slots); 1088 connections, 544 of one address; "
        "a game is lost after 60 s without a request (idle_s), or 30 s without an answer (answer_s)\n"
    )
    with HttpWire(address) as wire:
        wire.step("start", "a")
        process.send_signal(signal.SIGTERM)
        while (reply := wire.step("start", "b")).status == 200:
            wire.step("end", "b")
        assert reply.error == "draining"
        assert wire.step("tick", "a", tick(0, 0, 0, 0)).status == 200
        assert wire.step("end", "a").status == 200
    output, _ = process.communicate(timeout=600)
    assert "; 1 action in 1 batch" in output, "ends of games are no batches"
    assert re.search(r"^asked to stop: [12] running games? may go on for 600 s, none may begin$", output, re.MULTILINE)
    assert re.search(r"^blue at tick 40: \d+ episodes?, .*; \d+ of 100000 games have ended$", output, re.MULTILINE)
    assert process.returncode == 0


@pytest.mark.slow
def test_time_in_which_the_server_is_stopped_does_not_count(tmp_path: Path) -> None:
    """A game between two requests, one whose request waits in its socket, and one whose actor is at work go on."""
    live = {"make": "http", "kwargs": {"port": 0, "actor": "external_actors:Balancer"}}
    live["external"] = {"idle_s": 4, "answer_s": 4}
    path = tmp_path / "http.yaml"
    path.write_text(json.dumps(one_match(live, {"blue": {"algorithm": "random"}}, ticks=1, match={"lanes": 3})))
    environment = {**os.environ, "PYTHONPATH": str(Path(external_actors.__file__).parent)}
    command = [sys.executable, "-m", "arena", "serve", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if line.startswith("listening"))
        with HttpWire(address) as wire, HttpWire(address) as other, HttpWire(address) as working:
            for one, name in ((wire, "a"), (other, "b"), (working, "c")):
                assert one.step("start", name).status == 200
            working.send(request("tick", "c", b"sleep 1"))
            process.send_signal(signal.SIGSTOP)
            wire.send(request("tick", "a", b"ask 1"))
            time.sleep(5)
            process.send_signal(signal.SIGCONT)
            assert [wire.read().status, working.read().status] == [200, 200]
            assert other.step("tick", "b", b"ask 1").status == 200
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_client_of_the_page_plays(tmp_path: Path) -> None:
    page = readme.PAGES["docs/serving.md"]
    (tmp_path / "ask.py").write_text(page.files()["ask.py"])
    run = trained(tmp_path, "ppo", "touchdown", kwargs={"team_size": 1}, n_steps=10, seats=["blue", "blue"])
    with Serving(run, "--http", 0) as serving:
        client = subprocess.run(
            [sys.executable, "ask.py", serving.address], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        (block,) = [body for body in page.blocks("sh") if "curl" in body]
        requests = block.replace("http://127.0.0.1:8000/step", serving.address)
        requests = requests.replace("http://127.0.0.1:8000", serving.address.removesuffix("/step"))
        curl = subprocess.run(["sh", "-ec", requests], capture_output=True, text=True, timeout=600, check=True)
        assert re.search(r'"blue_0".*\}Game started\.\{"entities":\{"blue_0":\{"action":\d\}\}\}$', curl.stdout)
    assert client.returncode == 0, client.stderr
    first, second = client.stdout.splitlines()
    assert first == "b'Game started.'"
    assert "red_0" in second
    (code,) = [body for body in page.blocks("python") if "load_policy" in body]
    found: dict[str, Any] = {}
    exec(compile(code.replace("runs/duel", str(run)), page.path, "exec"), found)
    assert found["action"] in found["blue"].action_space


@pytest.mark.slow
def test_exported_models_take_over_when_they_are_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, "ppo", n_steps=10)
    best = load_policy(f"{run}:blue")
    serving = Serving(run, "--http", 0, "--engine", "auto")
    (player,) = serving.served.players
    with serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        assert player.model.engine == "torch"
        deadline = time.monotonic() + 600
        while player.model.engine == "torch" and time.monotonic() < deadline:
            assert wire.step("tick", "a", tick(0, 0, 0, 0)).status == 200
            time.sleep(0.05)
        assert (player.model.engine, player.model.version) == ("onnx", 40)
        for seen in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
            assert json.loads(wire.step("tick", "a", tick(*map(float, seen))).body)["action"] == best.act(seen)
    model = run / "models" / "blue" / "40" / "model.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    assert main(["serve", str(run), "--http", "0", "--engine", "onnx"]) == 2
    assert "model.onnx: is damaged" in capsys.readouterr().err


def test_taken_ports_are_named_by_option_or_key(pole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "http.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        live = {"make": "http", "kwargs": {"port": int(port), "like": {"make": POLE}}}
        path.write_text(json.dumps(one_match(live, {"blue": {"algorithm": "random"}}, ticks=1)))
        for target, options in ((pole, ["--http", port]), (path, ["--http", port]), (path, [])):
            assert main(["serve", str(target), *options]) == 2
            key = "--http" if options else "envs.game.kwargs.port"
            assert f": {key}: cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_policies_of_a_configuration_need_no_run(tmp_path: Path) -> None:
    path = configured(tmp_path, "'pettingzoo:classic.tictactoe_v3'", "blue", "red")
    with Serving(path, "--http", 0) as serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        seen = {"observation": np.zeros((3, 3, 2)).tolist(), "mask": [0, 0, 0, 0, 1, 0, 0, 0, 0]}
        body = json.dumps({"entities": {"player_1": seen}}).encode()
        assert json.loads(wire.step("tick", "a", body).body) == {"entities": {"player_1": {"action": 4}}}
    with Serving(f"{path}:red", "--http", 0, "--actor", "raw") as serving, HttpWire(serving.address) as wire:
        wire.step("start", "a")
        data = struct.pack("<d", 0.0) + bytes(18) + bytes([0, 0, 0, 1, 0, 0, 0, 0, 0])
        assert wire.step("tick", "a", data).body == struct.pack("<q", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--match", "3"], "there is no match 3"),
        ([":red"], "there is no policy 'red'"),
        ([":blue@30"], "there is no checkpoint '30'"),
        ([":blue@20", "--checkpoint", "20"], "says it already"),
        ([":blue", "--match", "0"], "is for a run or configuration alone"),
        (["--checkpoint", "30"], "last; a run keeps the first and the last 3 checkpoints of a policy; copy a file"),
        (["--actor", "external_actors:Nothing"], "Nothing"),
        (["--http", "x"], "expected [HOST:]PORT"),
        (["--http", "0.0.0.0:0"], "token_file"),
        (["--actor-config", "nowhere"], "--actor-config: nowhere: there is no such file"),
    ],
)
def test_mistakes_are_reported_before_serving(
    arguments: list[str], message: str, pole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named, *more = arguments if arguments[0].startswith(":") else ["", *arguments]
    assert main(["serve", f"{pole}{named}", "--http", "0", *more]) == 2
    assert message in capsys.readouterr().err


def configured(folder: Path, env: str, *policies: str, algorithm: str = "random") -> Path:
    """The file of a configuration whose policies, one in each seat, have this algorithm."""
    (folder / "c.yaml").write_text(
        f"ticks: 10\nenvs: {{game: {{make: {env}}}}}\n"
        f"policies: {{{', '.join(f'{name}: {{algorithm: {algorithm}}}' for name in {*policies})}}}\n"
        f"matches: [{{env: game, seats: [{', '.join(policies)}]}}]\n"
    )
    return folder / "c.yaml"


def test_a_policy_that_learns_needs_a_checkpoint(tmp_path: Path) -> None:
    path = configured(tmp_path, f"'{POLE}'", "blue", algorithm="ppo")
    with pytest.raises(ConfigError, match="learns and has no checkpoint"):
        Serving(path, "--http", 0)
    with pytest.raises(ConfigError, match="a configuration has no checkpoints"):
        Serving(path, "--http", 0, "--checkpoint", "last")
