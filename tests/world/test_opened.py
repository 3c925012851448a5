"""Run folders as data: `arena.open_run`, and `arena.evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.records.faults import FaultKind, log_fault
from arena.records.journal import JournalReader
from arena.records.lock import FAILED
from arena.records.metrics import UPDATE_FIELDS
from command import Command
from in_process import one_match, play

PPO = {"algorithm": "ppo", "options": {"n_steps": 5, "minibatch_size": 10, "hidden_sizes": [4]}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose blue learns and has checkpoints at 0 and 20."""
    game = {"make": "touchdown", "kwargs": {"max_steps": 5}}
    data: dict[str, Any] = one_match(game, {"blue": PPO, "red": {"algorithm": "random"}}, ticks=20, match={"lanes": 2})
    return play(data, tmp_path).folder.path


def test_rows_are_those_of_the_files(run: Path) -> None:
    opened = arena.open_run(run)
    lines = list(JournalReader(run / "episodes.jsonl"))
    rows = opened.episodes()
    assert len(rows) == 2 * len(lines)
    written = [(line["tick"], seat) for line in lines for seat in line["seats"]]
    for row, (tick, seat) in zip(rows, written, strict=True):
        assert row["tick"] == tick
        assert {**row, "entities": list(row["entities"])}.items() >= seat.items()
    assert opened.metrics() == list(JournalReader(run / "metrics.jsonl"))
    assert [result["ticks"] for result in opened.results()][-1] == 20
    assert (opened.config.policies["blue"].algorithm, opened.folder) == ("ppo", run)


def test_evaluations_and_best_result_are_those_of_the_files(run: Path, tmp_path: Path) -> None:
    data = yaml.safe_load((run / "config.yaml").read_text())
    more = {"evaluation": {"every": 10_000, "episodes": 4}, "best": {"metric": "episode_len_mean"}}
    path = arena.train({**data, **more}, tmp_path / "evaluated", ranks=1).run_dir
    opened, before = arena.open_run(path), arena.open_run(run)
    rows = opened.evaluations()
    assert rows == list(JournalReader(path / "evaluations.jsonl"))
    assert [(row["ticks"], row["policy"]) for row in rows] == [(20, "blue"), (20, "red")]
    assert json.dumps(opened.best) == json.dumps(json.loads((path / "best.json").read_text()))
    assert (before.evaluations(), before.best) == ([], None)
    assert [*before.evaluations().to_pandas().columns] == [*rows[0]]


def test_frames_have_a_row_for_each_row(run: Path) -> None:
    rows = arena.open_run(run).episodes()
    pandas, polars = rows.to_pandas(), rows.to_polars()
    assert pandas["return"].tolist() == polars["return"].to_list() == [row["return"] for row in rows]
    assert pandas[pandas["policy"] == "blue"]["return"].sum() == pytest.approx(
        sum(row["return"] for row in rows if row["policy"] == "blue")
    )
    assert len(arena.Table()) == len(arena.Table().to_pandas()) == len(arena.Table().to_polars()) == 0


def test_slices_of_tables_are_tables_with_the_columns(run: Path) -> None:
    opened = arena.open_run(run)
    for table in (opened.episodes(), opened.payoffs()):
        first, none = table[:1], table[:0]
        assert isinstance(first, arena.Table)
        assert (first, table[-1]) == ([table[0]], [*table][-1])
        for frame in (first.to_pandas(), none.to_pandas(), first.to_polars(), none.to_polars()):
            assert [*frame.columns] == [*table[0]]


@pytest.mark.parametrize("name", ["episodes", "metrics", "standings", "payoffs"])
def test_tables_without_rows_have_their_columns(name: str, run: Path) -> None:
    def table() -> arena.Table:
        found: arena.Table = getattr(arena.open_run(run), name)()
        return found

    logged = [] if name != "metrics" else [key for key in table()[0] if key not in UPDATE_FIELDS]
    columns = [key for key in table()[0] if key not in logged]
    for file in ("episodes.jsonl", "metrics.jsonl"):
        (run / file).unlink()
        (run / "checksums" / file).unlink()
    empty = table()
    assert empty == []
    assert [*empty.to_pandas().columns] == [*empty.to_polars().columns] == [*empty[:0].to_pandas().columns] == columns


def test_standings_are_those_of_the_command(run: Path, command: Command) -> None:
    printed = json.loads(command("standings", run, "--json").out)
    assert json.loads(json.dumps(arena.open_run(run).standings())) == printed["players"]
    first, second = arena.open_run(run).payoffs()
    assert (first["player"], first["wins"], first["draws"]) == (second["opponent"], second["losses"], second["draws"])
    assert (
        first["games"]
        == first["wins"] + first["draws"] + first["losses"]
        == arena.open_run(run).standings()[0]["games"]
    )
    assert first["score"] + second["score"] == pytest.approx(1) and first["low"] < first["score"] < first["high"]
    assert printed["payoffs"] == [first, second]
    with pytest.raises(arena.ConfigError, match="found 10000, but its games are from tick"):
        arena.open_run(run).standings(at=10_000)
    with pytest.raises(arena.ConfigError, match="not a run folder: it does not exist"):
        arena.open_run(run / "nothing")


def test_standings_of_a_failed_run_say_so(run: Path, command: Command) -> None:
    assert "failed" not in command("standings", run).out
    log_fault(run / "faults.jsonl", FaultKind.RUN, {"hosts": (), "who": "root", "error": "ValueError: odd"})
    (run / "lock").write_text(FAILED)
    said = "the run has failed; root: ValueError: odd; the whole message is in logs/rank-0000.log"
    assert command("standings", run).out.splitlines()[-1] == said
    assert json.loads(command("standings", run, "--json").out)["contradictions"] == []


def test_evaluation_is_that_of_the_command(run: Path, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    rows = arena.evaluate(run, 4, checkpoints=["first", 20], against="random")
    assert tuple(capsys.readouterr()) == ("", "")
    assert [(row["checkpoint"], row["policy"], row["against"]) for row in rows] == [
        *(("first", "blue", "random"), ("20", "blue", "random"))
    ]
    command("evaluate", run, "--checkpoints", "first", "--episodes", "4", "--against", "random")
    own, other = (
        [episode for episode in JournalReader(folder / "episodes.jsonl") if not episode.get("cut")]
        for folder in (rows[0]["folder"], rows[0]["folder"].with_name(f"{rows[0]['folder'].name}-2"))
    )
    assert own == other
    assert rows[0]["episodes"] == len(own)
    assert rows[0]["return"] == pytest.approx(sum(episode["seats"][0]["return"] for episode in own) / len(own))


def test_a_configuration_made_in_python_is_evaluated(run: Path, tmp_path: Path) -> None:
    config = arena.open_run(run).config
    rows = arena.evaluate(config, 2, run_dir=tmp_path / "records")
    assert [(row["policy"], row["checkpoint"]) for row in rows] == [("blue", ""), ("red", "")]


def test_mistakes_of_an_evaluation_leave_nothing(run: Path) -> None:
    before = {path for path in run.rglob("*") if "evaluations" in path.parts}
    for wrong, message in (
        ({"checkpoints": ["second"]}, "there is no checkpoint 'second'"),
        ({"checkpoints": "second"}, "there is no checkpoint 'second'"),
        ({"against": "stranger"}, "stranger"),
        ({"episodes": 0}, "found 0; expected a whole number, at least 1"),
        ({"episodes": "10"}, "found '10'; expected a whole number, at least 1"),
        ({"episodes": float("nan")}, "found nan; expected a whole number, at least 1"),
    ):
        with pytest.raises(arena.ConfigError, match=message):
            arena.evaluate(run, **{"episodes": 4, **wrong})  # type: ignore[arg-type]
    assert {path for path in run.rglob("*") if path.is_file() and "evaluations" in path.parts} == before
