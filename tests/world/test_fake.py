"""`arena fake actor` and `benchmarks/http_games.py`: each side of games over HTTP alone, and against each other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.cli.main import main
from external_actors import HttpWire

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # benchmarks are scripts: their folder is where they find each other

import http_games  # noqa: E402


class FakeActor:
    """`arena fake actor` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "arena", "fake", "actor", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def end(self) -> int:
        self.process.communicate(timeout=600)
        return self.process.returncode


@pytest.fixture(scope="module")
def actor() -> Iterator[str]:
    one = FakeActor()
    yield one.address
    one.process.terminate()
    assert one.end() == 0


def play(url: str, *arguments: str, ticks: int = 3, games: int = 1, code: int = 0) -> None:
    options = ["--url", url, "--pause", "0", "--ticks", str(ticks), "--games", str(games), *arguments]
    assert http_games.main(options) == code


@pytest.mark.slow
def test_both_sides_play_with_each_other(actor: str, capsys: pytest.CaptureFixture[str]) -> None:
    play(actor, "--connections", "new", ticks=10, games=4)
    speed, statuses, counts = capsys.readouterr().out.splitlines()
    assert counts == "4 starts, 40 ticks, 4 ends, 0 errors"
    assert statuses == "200: 48"
    assert [word for word in speed.split() if word[0].isalpha()] == ["requests/s,", "p50", "ms,", "p99", "ms"]


@pytest.mark.slow
def test_actor_answers_its_bytes_and_drains_at_sigterm() -> None:
    one = FakeActor("--tick-reply", "grün", "--set", "drain_s=30", "--set", "dialect=later")
    with HttpWire(one.address) as wire:
        assert wire.step("start", "a", b"\0\xff").body == b"Game started."
        assert wire.step("tick", "a", b"\xff" * 1000).body == "grün".encode()
        one.process.send_signal(signal.SIGTERM)
        while (reply := wire.step("start", "b")).status == 200:
            wire.step("end", "b")
        assert (reply.status, reply.error) == (503, "draining")
        assert wire.step("tick", "a").status == 200
        assert wire.step("stop", "a").body == b"fake_actor_end_return"
    assert one.end() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["actor", "--set", "queues=3"], "did you mean 'queue'?"),
        (["actor", "--set", "host=0.0.0.0"], "token_file"),
        (["actor", "--set", "queue"], "expected key.path=value"),
    ],
)
def test_mistakes_are_reported_before_play(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fake", *arguments]) == 2
    assert message in capsys.readouterr().err
