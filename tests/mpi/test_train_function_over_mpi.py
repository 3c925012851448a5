"""`arena.train` with several processes: the same run as in one, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arena
import run_cli
from in_process import one_match

RANDOM = {"algorithm": "random"}


def config(**changes: Any) -> dict[str, Any]:
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    policies = {"blue": RANDOM, "red": RANDOM}
    return one_match(game, policies, ticks=40, match={"lanes": 2}, name="duel", seed=1) | changes


def test_three_processes_play_the_run_of_one_and_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events: list[arena.Event] = []
    one = arena.train(config(), tmp_path / "one", ranks=1)
    three = arena.train(config(), tmp_path / "three", ranks=3, on_event=events.append)
    assert tuple(capfd.readouterr()) == ("", "")
    assert three == one._replace(run_dir=tmp_path / "three")
    assert run_cli.episodes(one.run_dir) == run_cli.episodes(three.run_dir)
    assert [event.kind for event in events if event.kind != "progress"] == ["message", "start"]
    assert events[-1].data["ticks"] == 40
    assert len([*(tmp_path / "three" / "logs").iterdir()]) == 3


def test_hosts_are_named_as_for_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ranks in (1, 2):
        result = arena.train(config(), tmp_path / str(ranks), ranks=ranks, hosts="localhost:2")
        assert result.finished and len([*(tmp_path / str(ranks) / "logs").iterdir()]) == ranks
    with pytest.raises(arena.ConfigError, match="cannot take 3 ranks"):
        arena.train(config(), tmp_path / "three", ranks=3, hosts="localhost:2")
    with pytest.raises(arena.ConfigError, match="hosts: expected hosts and their slots"):
        arena.train(config(), tmp_path / "three", ranks=3, hosts="localhost:x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_failures_and_late_mistakes_of_processes_are_raised(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", run_cli.environment()["PYTHONPATH"])
    failing = {"blue": {"algorithm": "faulty_workers:FailsAtStep"}, "red": RANDOM}
    with pytest.raises(arena.RunFailed, match=r"^worker of policy 'blue'"):
        arena.train(config(policies=failing), tmp_path / "failed", ranks=2)
    wrong = {"blue": {"algorithm": "ppo", "options": {"hidden_sizes": "wide"}}, "red": RANDOM}
    with pytest.raises(arena.ConfigError, match="hidden_sizes"):
        arena.train(config(policies=wrong), tmp_path / "refused", ranks=2)
    assert tuple(capfd.readouterr()) == ("", "")


def test_processes_find_the_modules_that_the_program_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "own_games.py").write_text("from games import Countdown\nclass Mine(Countdown): pass\n")
    (tmp_path / "programs" / "queue.py").write_text("raise RuntimeError('hides the module of Python')\n")
    monkeypatch.syspath_prepend(tmp_path / "programs")
    monkeypatch.chdir(tmp_path)
    matches = [{"env": "game", "seats": ["blue"]}]
    alone = config(envs={"game": {"make": "own_games:Mine"}}, policies={"blue": RANDOM}, matches=matches)
    assert arena.train(alone, tmp_path / "trained", ranks=2).finished
    with arena.Trainer(alone, run_dir=tmp_path / "held", ranks=2) as trainer:
        assert trainer.train()["ticks"] == 40


def test_a_line_of_a_game_that_looks_like_an_event_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", run_cli.environment()["PYTHONPATH"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prints.py").write_text(
        "import sys\nfrom games import Countdown\n"
        "class Prints(Countdown):\n"
        "    def reset(self, **settings):\n"
        '        sys.stderr.write("arena-event: [1]\\n")\n'
        "        return super().reset(**settings)\n"
    )
    events: list[arena.Event] = []
    matches = [{"env": "game", "seats": ["blue"]}]
    alone = config(envs={"game": {"make": "prints:Prints"}}, policies={"blue": RANDOM}, matches=matches)
    result = arena.train(alone, tmp_path / "run", ranks=2, on_event=events.append)
    assert len(run_cli.episodes(result.run_dir)) > 0
    assert "[1]" in [event.data.get("text", "").strip() for event in events if event.kind == "message"]
