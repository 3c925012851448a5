"""A user's callbacks are called for all records of a run, and can end it, in one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from arena.cli.main import main
from arena.config import yaml
from arena.records import boundary
from arena.records.journal import JournalReader
from arena.roles.protocol import Failed
from in_process import NOTES, one_match, train

TICKS, LEG = 300, 100


def duel(*callbacks: Any, **changes: Any) -> dict[str, Any]:
    game = {"make": "touchdown", "kwargs": {"max_steps": 15}}
    policies = {"blue": {"algorithm": "workers:Counts"}, "red": {"algorithm": "random"}}
    data = one_match(game, policies, ticks=TICKS, checkpoint_every=LEG, match={"lanes": 2, "copies": 2})
    return {"name": "test", **data, "callbacks": list(callbacks), **changes}


def told(kind: str) -> list[Any]:
    """The calls of callbacks of a kind."""
    return [note[1] for note in NOTES if note[0] == kind]


def test_callbacks_are_called_once_and_in_order(tmp_path: Path) -> None:
    folder = train(duel("recorders:RecordsAll"), tmp_path / "run")
    assert told("episode") == list(JournalReader(folder.episodes))
    assert told("update") == list(JournalReader(folder.metrics))
    assert told("checkpoint") == [100, 200, 300]
    kinds = [note[0] for note in NOTES]
    assert (kinds[0], kinds[-4:]) == ("start", ["checkpoint", "round", "result", "end"])
    assert [note[2] for note in NOTES if note[0] == "checkpoint"][-1] == {
        "blue": folder.checkpoints_path("blue") / "000000000300.ckpt"
    }
    (run,) = told("start")
    assert (run.folder, run.resumed, run.plan["processes"]) == (folder.path, False, 1)


def test_callbacks_do_not_change_the_run(tmp_path: Path) -> None:
    heard, silent = (
        train(duel(*callbacks), tmp_path / name) for name, callbacks in (("a", ["recorders:RecordsAll"]), ("b", []))
    )
    assert heard.episodes.read_bytes() == silent.episodes.read_bytes()


@pytest.mark.parametrize(("where", "nth"), [("start", 1), ("episode", 20), ("update", 12), ("checkpoint", 2)])
def test_stopping_callback_ends_the_run_normally(
    where: str, nth: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry = {"class": "recorders:Stops", "options": {"where": where, "nth": nth}}
    data = duel(entry, ticks=100_000, checkpoint_every=50_000 if nth != 2 else LEG)
    folder = train(data, tmp_path / "run")
    found = boundary.newest(folder)
    assert found is not None
    assert 0 < found.tick < 50_000
    if where == "checkpoint":
        assert found.tick == 2 * LEG
    assert told("checkpoint")[-1] == found.tick
    assert [note[0] for note in NOTES][-1] == "end"
    assert told("round") == []
    words = f"stopped at tick {found.tick}, asked to stop by callback recorders:Stops; --resume goes on from there"
    assert words in capfd.readouterr().err


def test_resumed_run_is_announced_to_callbacks(tmp_path: Path) -> None:
    train(duel("recorders:RecordsAll"), tmp_path / "run")
    folder = train(duel("recorders:RecordsAll", ticks=TICKS + LEG), tmp_path / "run", resume=True)
    (run,) = told("start")
    assert run.resumed
    every = list(JournalReader(folder.episodes))
    assert told("episode") == [line for line in every if line["tick"] > TICKS]
    assert 0 < len(told("episode")) < len(every)


@pytest.mark.parametrize("where", ["start", "episode", "checkpoint", "end"])
def test_failing_callback_ends_the_run_and_is_named(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Failed] = []
    monkeypatch.setattr("arena.run.console.write_failure", failures.append)
    entry = {"class": "recorders:Fails", "options": {"where": where}}
    folder = train(duel(entry), tmp_path / "run", code=1)
    (failure,) = failures
    assert failure.who == "callback recorders:Fails"
    assert re.search(rf"ZeroDivisionError: fails at {where} \(.*recorders\.py, line \d+\)\Z", failure.message)
    if where == "episode":
        assert next(iter(JournalReader(folder.episodes))) == told(where)[0], "it is on record"


def test_evaluation_has_no_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blue = {"algorithm": "workers:Counts"}
    Path("c.yaml").write_text(yaml.dump(duel("recorders:RecordsAll", policies={"blue": blue, "red": blue})))
    assert main(["train", "c.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    NOTES.clear()
    assert main(["evaluate", "run", "--episodes", "4"]) == 0
    assert {note[0] for note in NOTES} == {"loaded"}, "only by the players"
