"""Loggers and callbacks get results and evaluations; a logger that fails does not end the run."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_results_in_runs import DUEL, train

import in_process
from arena.config import parse_config
from arena.errors import ConfigError
from arena.records import read_results
from arena.run.planning import checked_plan
from arena.terminal.display import PlainDisplay
from in_process import NOTES
from slow_results import json_lines


def test_callback_gets_results_after_the_episodes_they_cover(tmp_path: Path) -> None:
    data = {**DUEL, "results": {"every": 20}, "evaluation": {"every": 80, "episodes": 2}}
    run = train({**data, "callbacks": ["recorders:RecordsAll"]}, tmp_path / "run")
    results = [note[1] for note in NOTES if note[0] == "result"]
    assert repr(results) == repr(read_results(run)), "as text: nan is equal to nan"
    episodes = updates = 0
    for note in NOTES:
        if note[0] == "result":
            assert episodes >= note[1]["episodes_total"]
            assert updates >= note[1]["info"]["learner"].get("blue", {"update": 0})["update"]
        episodes += note[0] == "episode" and not note[1].get("cut")
        updates += note[0] == "update"
    told = [note[1:3] for note in NOTES if note[0] == "evaluation"]
    lines = json_lines(run / "evaluations.jsonl")
    assert told == [(tick, [line for line in lines if line["ticks"] == tick]) for tick in (80, 120)]
    kinds = [note[0] for note in NOTES]
    assert kinds[-3:] == ["result", "evaluation", "end"]
    assert kinds.index("start") < min(kinds.index("result"), kinds.index("evaluation"))


@pytest.mark.parametrize("where", ["start", "result", "end"])
def test_logger_that_raises_is_dropped_with_one_warning(where: str, tmp_path: Path) -> None:
    logger = {"class": "recorders:Fails", "options": {"where": where}}
    data = {**DUEL, "results": {"every": 10}, "loggers": ["csv", logger, "recorders:RecordsAll"]}
    shown = io.StringIO()
    folder = in_process.train(data, tmp_path / "run", display=PlainDisplay(shown, total_ticks=1))
    said = shown.getvalue()
    words = f"logger recorders:Fails is not called any more: on_{where} has raised ZeroDivisionError: fails at {where}"
    assert said.count("is not called any more") == 1
    assert words in said
    assert "ZeroDivisionError" in folder.log_path(0).read_text()
    assert len((folder.path / "progress.csv").read_text().splitlines()) == 13
    assert len([note for note in NOTES if note[0] == "end"]) == 1 + (where == "end")


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ("csvv", "loggers[1]", "unknown logger 'csvv'; did you mean 'csv'? known: csv, tensorboard, wandb"),
        ("nothing_here:Logger", "loggers[1]", "there is no module 'nothing_here'"),
        ("recorders:Nothing", "loggers[1]", "Nothing"),
        ({"class": "recorders:RecordsAll", "options": {"nam": 1}}, "loggers[1].options.nam", "did you mean 'name'?"),
        ({"class": "wandb", "options": {"api_key": "x"}}, "loggers[1].options", "a key does not belong into a config"),
        ({"class": "wandb", "options": {"projct": "x"}}, "loggers[1].options", "did you mean 'project'?"),
    ],
)
def test_wrong_logger_is_refused(entry: Any, path: str, words: str) -> None:
    config = parse_config({"name": "test", **DUEL, "loggers": ["csv", entry]}, source="test")
    with pytest.raises(ConfigError) as caught:
        checked_plan(config, ranks=1)
    assert caught.value.path == path
    assert words in caught.value.message


def test_wandb_records_offline_without_torch_in_the_process(tmp_path: Path) -> None:
    data: Mapping[str, Any] = {
        **DUEL,
        "name": "w",
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    }
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]!r}
from test_results_in_runs import train
train({ {**data, "loggers": ["wandb"], "results": {"every": 20}}!r}, {str(tmp_path / "run")!r})
assert "torch" not in sys.modules
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "program.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    run = tmp_path / "run"
    (recorded,) = (run / "wandb").glob("offline-run-*")
    (file,) = recorded.glob("*.wandb")
    assert (run / "wandb_id").read_text() in file.name
    assert logged(file) == {line["ticks"]: line["episodes_total"] for line in json_lines(run / "result.json")}


def logged(file: Path) -> dict[int, int]:
    """By step what was logged as `episodes_total`; the file is a log of LevelDB with one protocol buffer per record."""
    from wandb.proto import wandb_internal_pb2

    found: dict[int, int] = {}
    for data in leveldb_records(file.read_bytes()[7:], offset=7):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "episodes_total" in items:
            found[record.history.step.num or json.loads(items["_step"])] = json.loads(items["episodes_total"])
    return found


def leveldb_records(content: bytes, *, offset: int) -> Iterator[bytes]:
    """The records: parts of crc u32, length u16, kind u8 (1 whole, 2 first, 3 middle, 4 last) in blocks of 32 KiB."""
    place, parts = 0, b""
    while place < len(content):
        left = 32768 - (place + offset) % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""
