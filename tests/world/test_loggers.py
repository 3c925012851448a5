"""Loggers and callbacks get results and evaluations; a logger that fails does not end the run."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
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
        ("csvv", "loggers[1]", "unknown logger 'csvv'; did you mean 'csv'? known: csv, mlflow, tensorboard, wandb"),
        ("nothing_here:Logger", "loggers[1]", "there is no module 'nothing_here'"),
        ("recorders:Nothing", "loggers[1]", "Nothing"),
        ({"class": "recorders:RecordsAll", "options": {"nam": 1}}, "loggers[1].options.nam", "did you mean 'name'?"),
        ({"class": "wandb", "options": {"api_key": "x"}}, "loggers[1].options", "a key does not belong into a config"),
        ({"class": "wandb", "options": {"projct": "x"}}, "loggers[1].options", "did you mean 'project'?"),
        (
            {"class": "wandb", "options": {"artifacts": ["video"]}},
            "loggers[1].options",
            "and 'videos'; found ['video']",
        ),
        ({"class": "mlflow", "options": {"artifacts": "videos"}}, "loggers[1].options", "`artifacts` is a list"),
        (
            {"class": "mlflow", "options": {"artifacts": ["videos"]}},
            "loggers",
            "`artifacts: [videos]` needs `record: replays`",
        ),
        (
            {"class": "wandb", "options": {"settings": {"api_key": "x"}}},
            "loggers[1].options",
            "a key does not belong into a config",
        ),
        (
            {"class": "mlflow", "options": {"tracking_uri": "https://me:hidden@host"}},
            "loggers[1].options",
            "a password in `tracking_uri` does not belong into a configuration; set MLFLOW_TRACKING_USERNAME and",
        ),
        ({"class": "mlflow", "options": {"uri": "x"}}, "loggers[1].options.uri", "Mlflow has no option 'uri'"),
    ],
)
def test_wrong_logger_is_refused(entry: Any, path: str, words: str) -> None:
    config = parse_config({"name": "test", **DUEL, "loggers": ["csv", entry]}, source="test")
    with pytest.raises(ConfigError) as caught:
        checked_plan(config, ranks=1)
    assert caught.value.path == path
    assert words in caught.value.message and "hidden" not in caught.value.message


def test_videos_without_their_packages_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = {"class": "mlflow", "options": {"artifacts": ["videos"]}}
    config = parse_config({"name": "test", **DUEL, "record": "replays", "loggers": [logger]}, source="test")
    checked_plan(config, ranks=1)
    monkeypatch.setattr("arena.replay.video._PACKAGES", {"no_such_module": "imageio-ffmpeg"})
    with pytest.raises(ConfigError, match="a video needs imageio-ffmpeg; the extra 'video' brings them"):
        checked_plan(config, ranks=1)


MLFLOW = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}  # a database takes 20 s to create


def train_in_two_parts(tmp_path: Path, logger: Any, **more: Any) -> Path:
    """Trains 80 ticks, and 40 more after a resume, each in a process without torch; returns the run folder."""
    for name, ticks in (("first", 80), ("second", 120)):
        data = {**DUEL, "name": "w", "results": {"every": 20}, "loggers": ["csv", logger], **more, "ticks": ticks}
        program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]!r}
from test_results_in_runs import train
train({data!r}, {str(tmp_path / "run")!r}, resume={name == "second"})
assert "torch" not in sys.modules
"""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
        environment |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= MLFLOW
        (tmp_path / f"{name}.py").write_text(program)
        ended = subprocess.run(
            [sys.executable, str(tmp_path / f"{name}.py")],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in (tmp_path / "run" / "logs" / "rank-0000.log").read_text()
    return tmp_path / "run"


@pytest.mark.slow
def test_wandb_records_offline_and_a_resumed_run_as_a_whole(tmp_path: Path) -> None:
    logger = {"class": "wandb", "options": {"artifacts": ["checkpoints", "videos"], "project": "p"}}
    run = train_in_two_parts(tmp_path, logger, record="replays")
    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    identity = (run / "wandb_id").read_text()
    assert [file.name for file in files] == [f"run-{identity}.wandb"] * 2
    expected = {line["ticks"]: line["episodes_total"] for line in json_lines(run / "result.json")}
    assert logged(files[0]) == {tick: total for tick, total in expected.items() if tick <= 80}
    assert logged(files[1]) == expected, "`wandb sync` replaces a run by its later recording"
    sent = [
        record.request.log_artifact.artifact
        for record in records(files[1])
        if record.request.log_artifact.artifact.name
    ]
    sent += [record.artifact for record in records(files[1]) if record.artifact.name]
    assert {(one.name, one.type) for one in sent} == {(f"{identity}-blue", "model")}
    assert list(files[1].parent.glob("files/media/videos/*.mp4"))


@pytest.mark.slow
def test_mlflow_continues_a_resumed_run_as_one_run(tmp_path: Path) -> None:
    options = {"tracking_uri": "file:store", "artifacts": ["checkpoints", "videos"], "tags": {"of": "test"}}
    logger = {"class": "mlflow", "options": options}
    run = train_in_two_parts(tmp_path, logger, record="replays")
    lines = {line["ticks"]: line for line in json_lines(run / "result.json")}
    program = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient("file:store")
(experiment,) = (one for one in client.search_experiments() if one.name == "w")
(run,) = client.search_runs([experiment.experiment_id])
history = client.get_metric_history(run.info.run_id, "episodes_total")
files = [file.path for place in ("checkpoints/blue", "videos")
    for file in client.list_artifacts(run.info.run_id, place)]
json.dump([run.info.run_id, run.info.status, run.info.run_name, run.data.tags["of"], run.data.params["seed"],
    [[one.step, one.value] for one in history], files, [one for one in run.data.params if "logger" in one]], sys.stdout)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, **MLFLOW},
        capture_output=True,
        text=True,
        check=True,
    )
    identity, status, name, tag, seed, history, files, of_loggers = json.loads(ended.stdout)
    assert (identity, status, name) == ((run / "mlflow_id").read_text(), "FINISHED", "run")
    assert (tag, seed, of_loggers) == ("test", "5", [])
    assert history == [[tick, line["episodes_total"]] for tick, line in lines.items()]
    assert {f"checkpoints/blue/{tick:012d}.ckpt" for tick in (40, 80, 120)} <= set(files)
    assert files[-1] == "videos/newest_episode.mp4"


def logged(file: Path) -> dict[int, int]:
    """By step what was logged as `episodes_total`."""
    found: dict[int, int] = {}
    for record in records(file):
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "episodes_total" in items:
            found[record.history.step.num or json.loads(items["_step"])] = json.loads(items["episodes_total"])
    return found


def records(file: Path) -> Iterator[Any]:
    """What `wandb` has recorded: the file is a log of LevelDB with one protocol buffer per record."""
    from wandb.proto import wandb_internal_pb2

    for data in leveldb_records(file.read_bytes()[7:], offset=7):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


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
