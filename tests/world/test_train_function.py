"""`arena.train` in this process: the run of `arena train --ranks 1`, without output, and its result."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.cli.main import main
from arena.run import mpirun
from in_process import one_match

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}


def config(**changes: Any) -> dict[str, Any]:
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    policies = {"blue": PPO, "red": {"algorithm": "random"}}
    given = {"name": "duel", "seed": 1, "checkpoint_every": 20, "match": {"lanes": 2}}
    return one_match(game, policies, ticks=40, **given) | changes


def test_function_plays_the_run_of_the_command_silently(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handlers, interrupt = [*logging.getLogger().handlers], signal.getsignal(signal.SIGINT)
    result = arena.train(config(), tmp_path / "run", ranks=1)
    assert tuple(capfd.readouterr()) == ("", "")
    assert (logging.getLogger().handlers, signal.getsignal(signal.SIGINT)) == (handlers, interrupt)
    (tmp_path / "duel.yaml").write_text(yaml.safe_dump(config(), sort_keys=False))
    command = ["train", str(tmp_path / "duel.yaml"), "--ranks", "1", "--run-dir", str(tmp_path / "command")]
    assert main(command) == 0
    for name in ("episodes.jsonl", "config.yaml"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    assert (result.run_dir, result.finished, result.ticks) == (tmp_path / "run", True, 40)
    blue, red = result.scores["blue"], result.scores["red"]
    assert blue.episodes == red.episodes == 8  # 40 ticks of two lanes, ten to an episode
    assert blue.mean_return is not None
    assert blue.mean_return == pytest.approx(-(red.mean_return or 0))


def test_events_have_folder_progress_and_evaluations(tmp_path: Path) -> None:
    events: list[arena.Event] = []
    data = config(evaluation={"every": 20, "episodes": 2})
    result = arena.train(data, tmp_path / "run", ranks=1, on_event=events.append)
    starts = [event.data for event in events if event.kind == "start"]
    assert starts == [{"run_dir": str(tmp_path / "run"), "round": 0, "tick": tick} for tick in (0, 20)]
    last = [event.data for event in events if event.kind == "progress"][-1]
    assert (last["ticks"], last["total"]) == (40, 40)
    assert last["policies"] == {name: score._asdict() for name, score in result.scores.items()}
    told = [event.data["text"] for event in events if event.kind == "message"]
    assert [line.partition(":")[0] for line in told if "evaluation" in line] == [
        f"tick {tick}, evaluation of {name}" for tick in (20, 40) for name in ("blue", "red")
    ]


def test_a_mistake_is_raised_with_its_place_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(arena.ConfigError, match="matches") as caught:
        arena.train(config(matches=[{"env": "game", "seats": ["blue", "green"]}]), tmp_path / "run", ranks=1)
    assert "green" in str(caught.value)
    late = {"blue": {"algorithm": "ppo", "options": {"n_steps": 16, "hidden_sizes": "wide"}}, "red": PPO}
    with pytest.raises(arena.ConfigError, match="hidden_sizes"):
        arena.train(config(policies=late), tmp_path / "run", ranks=1)
    assert not (tmp_path / "run").exists()


def test_a_failure_of_the_run_is_raised(tmp_path: Path) -> None:
    failing = {"blue": {"algorithm": "faulty_workers:FailsAtStep"}, "red": {"algorithm": "random"}}
    with pytest.raises(arena.RunFailed, match="blue"):
        arena.train(config(policies=failing), tmp_path / "run", ranks=1)


def test_an_error_of_on_event_is_raised_after_the_run(tmp_path: Path) -> None:
    def refuse(event: arena.Event) -> None:
        raise LookupError(event.kind)

    with pytest.raises(LookupError, match="message"):
        arena.train(config(), tmp_path / "run", ranks=1, on_event=refuse)
    assert (tmp_path / "run" / "episodes.jsonl").exists()


def test_signal_ends_the_run_early_and_saves_it(tmp_path: Path) -> None:
    def interrupt(event: arena.Event) -> None:
        if event.kind == "progress":
            signal.raise_signal(signal.SIGINT)

    result = arena.train(config(ticks=100_000), tmp_path / "run", ranks=1, on_event=interrupt)
    assert not result.finished
    assert 0 < result.ticks < 100_000


def test_ranks_of_a_launcher_are_sent_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mpirun._UNDER_A_LAUNCHER[0], "0")
    with pytest.raises(arena.ConfigError, match="`arena train`"):
        arena.train(config(), tmp_path / "run")
