"""The examples of external games play short runs, each with its own configuration and its own program."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import readme
from arena.cli.main import main
from arena.config.schema import TickRules
from arena.external.http import HttpGames
from arena.records.journal import JournalReader
from external_actors import HttpWire
from external_connections import Playing, free_port
from working_folder import working_directory

CONFIGS = Path(__file__).parents[2] / "configs"
EXAMPLES = CONFIGS / "examples" / "external"
ENDED = "the run has ended"

pytestmark = pytest.mark.slow


def train(file: str, run: Path, *changes: str, ticks: int = 120) -> list[dict[str, Any]]:
    """Trains in the folder of the configuration; the episodes."""
    small = ["policies.learner.options.n_steps=16"] if "learner" in (EXAMPLES / file).read_text() else []
    given = [part for change in (*small, *changes) for part in ("--set", change)]
    with working_directory(EXAMPLES):
        assert main(["train", file, "--ranks", "1", "--ticks", str(ticks), "--run-dir", str(run), *given]) == 0
    return list(JournalReader(run / "episodes.jsonl"))


def beside(command: Sequence[object]) -> subprocess.Popen[str]:
    """A program that plays while a run goes on."""
    words = [str(word) for word in command]
    return subprocess.Popen(words, cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(program: subprocess.Popen[str]) -> list[str]:
    """The output of a program, once it has ended."""
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (0, "")
    return out.splitlines()


def returns_of(lines: Sequence[str]) -> list[float]:
    return sorted(float(found[1]) for line in lines if (found := re.match(r"game \d+: return (\S+)", line)))


def recorded(episodes: Sequence[dict[str, Any]]) -> list[float]:
    """The returns of the games that ended themselves."""
    return sorted(round(line["seats"][0]["return"], 1) for line in episodes if not line.get("lost"))


FILES = ("../../external_cartpole.yaml", "corridor.yaml", "my_actor.yaml", "thread.yaml")


def test_all_examples_are_tested_here() -> None:
    assert {(EXAMPLES / file).resolve() for file in FILES} == {
        file for file in CONFIGS.rglob("*.yaml") if "external" in str(file.relative_to(CONFIGS))
    }


def test_client_of_http_plays_cartpole(tmp_path: Path) -> None:
    port = free_port()
    client = beside([sys.executable, "client.py", f"http://127.0.0.1:{port}/step", "--games", 4])
    file = "../../external_cartpole.yaml"
    episodes = train(file, tmp_path / "run", f"envs.live.kwargs.port={port}")
    lines = printed(client)
    assert returns_of(lines) == recorded(episodes)
    assert lines[-1].startswith(f"{len(lines) - 1} games; mean return of the last ")
    assert len(lines) > 4


@pytest.mark.parametrize("language", ["c", "javascript"])
def test_program_plays_the_corridor(language: str, tmp_path: Path) -> None:
    port, game = free_port(), tmp_path / "game"
    changes = [f"envs.live.kwargs.port={port}"]
    if language == "c":
        flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-O2"]
        subprocess.run(["cc", *flags, "-o", str(game), "game.c"], cwd=EXAMPLES, check=True)
        program = beside([game, port])
    else:
        program = beside(["node", "game.js", f"http://127.0.0.1:{port}/step"])
        changes.append("envs.live.kwargs.actor=json")
    episodes = train("corridor.yaml", tmp_path / "run", *changes)
    lines = printed(program)
    assert lines[-1] == ENDED
    assert returns_of(lines) == recorded(episodes)
    assert len(lines) > 2


def test_users_actor_heats_rooms(tmp_path: Path) -> None:
    """By the command in the file's comment."""
    port, folder = free_port(), tmp_path / "run"
    (command,) = re.findall(r"^# python (.*)$", (EXAMPLES / "my_actor.yaml").read_text(), re.MULTILINE)
    words = ["train", "my_actor.yaml", "--ranks", "1", "--run-dir", folder, "--set", f"envs.rooms.kwargs.port={port}"]
    run = beside([sys.executable, "-m", "arena", *words])
    games = beside([sys.executable, *shlex.split(command), "--url", f"http://127.0.0.1:{port}/step"])
    assert printed(games)[-1] == "4 starts, 400 ticks, 4 ends, 0 errors"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    episodes = list(JournalReader(folder / "episodes.jsonl"))
    assert [line["length"] for line in episodes] == [100] * 4
    # 99 times the reward of 19.5 degrees, and that of 20.5 at the end
    assert [round(line["seats"][0]["return"], 3) for line in episodes] == [-99 * 0.15 - 0.05] * 4


def test_policy_client_plays_cartpole(tmp_path: Path) -> None:
    port = free_port()
    client = beside([sys.executable, "policy_client.py", f"http://127.0.0.1:{port}/step"])
    change = f"envs.live.kwargs.port={port}"
    episodes = train("../../external_cartpole.yaml", tmp_path / "run", change, ticks=600)  # a game has at most 500
    lines = printed(client)
    assert lines[-1].startswith("no more games: ")
    assert returns_of(lines) == recorded(episodes)
    assert len(lines) >= 2


def test_threads_of_the_run_play_cartpole(tmp_path: Path) -> None:
    assert len(recorded(train("thread.yaml", tmp_path / "run"))) > 4


PAGE = readme.PAGES["docs/http-games.md"]
(DUEL,) = [body.encode().splitlines() for body in PAGE.blocks("") if body.startswith("Game started.")]
CURL: list[tuple[str, tuple[int, ...], list[bytes], list[float]]] = [
    ("http_match.yaml", (1,), [b"Game started.", b'{"action":1}', b'{"action":1}', b"{}"], [2.0]),
    ("duel_match.yaml", (1, 2), DUEL, [1.5, -1.5]),
]


@pytest.mark.parametrize(("number", "case"), [*enumerate(CURL)])
def test_curl_plays_as_the_page_says(number: int, case: Any) -> None:
    file, actions, expected, returns = case
    (env,) = yaml.safe_load(PAGE.files()[file])["envs"].values()
    block = [body for body in PAGE.blocks("sh") if "curl" in body][number]
    with Playing(HttpGames(**{**env["kwargs"], "port": 0}), 8, TickRules(max_delay_s=0.0), actions) as playing:
        answers = []
        for line in block.splitlines():
            *words, url = shlex.split(line)
            assert url == "http://127.0.0.1:8000/step"
            done = subprocess.run([*words, "--silent", playing.games.address], capture_output=True, check=True)
            answers.append(done.stdout)
        assert answers == expected
        game = playing.account()
    assert (game.returns.tolist(), list(game.outcomes.values())) == (returns, ["win", "loss"][: 2 * number])


def test_actor_of_the_page_plays(tmp_path: Path) -> None:
    (tmp_path / "thermostat.py").write_text(PAGE.files()["thermostat.py"])
    kwargs = yaml.safe_load(PAGE.files()["rooms.yaml"])["envs"]["rooms"]["kwargs"]
    with working_directory(tmp_path):
        games = HttpGames(**{**kwargs, "port": 0})
        with Playing(games, 1, TickRules(max_delay_s=0.0), (1,)) as playing, HttpWire(games.address) as wire:
            replies = [wire.step("start"), *(wire.step("tick", data=b"19.5") for _ in range(3)), wire.step("end")]
            assert [reply.body for reply in replies] == [b"Game started.", b"on", b"on", b"on", b"bye"]
            game = playing.account()
    assert (game.lengths.tolist(), game.truncated, game.returns.round(6).tolist()) == ([3], True, [-0.45])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_pole_is_learned_exported_verified_and_served(tmp_path: Path) -> None:
    run, port = tmp_path / "run", free_port()
    command = [sys.executable, "client.py", f"http://127.0.0.1:{port}/step"]
    client = beside(command)
    with working_directory(EXAMPLES):
        options = ["--ranks", "1", "--run-dir", str(run), "--set", f"envs.live.kwargs.port={port}"]
        assert main(["train", "../../external_cartpole.yaml", *options]) == 0
    assert len(printed(client)) > 200
    assert main(["export", f"{run}:learner"]) == 0
    assert main(["export", "--verify", str(run / "models" / "learner" / "15000")]) == 0
    server = beside([sys.executable, "-m", "arena", "serve", run, "--engine", "onnx", "--games", 20])
    *_, last = printed(beside(command))
    found = re.fullmatch(r"20 games; mean return of the last 20: (\S+)", last)
    assert found is not None, last
    assert float(found[1]) >= 475.0
    assert any(line.startswith("learner at tick 15000: 20 episodes, return ") for line in printed(server))
