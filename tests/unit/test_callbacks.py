"""Callbacks are found and checked before anything starts, told in order, and cost nothing where they do not listen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from arena.callbacks import Callbacks, made
from arena.cli.main import main
from arena.config import parse_config, resolved_yaml, yaml
from arena.config.schema import CallbackEntry
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.roles.stop import Stop
from in_process import NOTES

DATA: dict[str, Any] = {
    "name": "test",
    "ticks": 20,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "blue"]}],
}


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    NOTES.clear()


def planned(*entries: Any) -> tuple[str | CallbackEntry, ...]:
    return parse_config({**DATA, "callbacks": list(entries)}, source="test").callbacks


def of(name: str, /, **options: Any) -> CallbackEntry:
    return CallbackEntry(class_=f"recorders:{name}", options=options)


# --------------------------------------------------------------------------------------------- the configuration


def test_an_entry_is_a_name_or_a_name_with_options() -> None:
    entries = ["a.b:C", {"class": "d:E"}, {"class": "d:E", "options": {"x": 1}}]
    data = {**DATA, "callbacks": entries}
    config = parse_config(data, source="test", overrides=["callbacks[2].options.x=[2]"])
    assert config.callbacks == ("a.b:C", CallbackEntry(class_="d:E"), CallbackEntry(class_="d:E", options={"x": [2]}))
    again = parse_config(yaml.load(resolved_yaml(config), source="again"), source="test")
    assert again.callbacks == config.callbacks


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({"clas": "a:B"}, r"callbacks\[0\]\.clas", "did you mean 'class'"),
        ({"options": {}}, r"callbacks\[0\]", "'class' is missing"),
        (5, r"callbacks\[0\]", "found 5"),
    ],
)
def test_an_entry_of_another_form_is_refused(entry: Any, path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"{path}: .*{words}"):
        planned(entry)


# ------------------------------------------------------------------------------------------- before anything starts

WRONG: list[tuple[str | CallbackEntry, str]] = [
    ("listener:RecordsAll", r"callbacks\[0\]: .*no module 'listener'"),
    ("recorders:RecordAll", r"callbacks\[0\]: .*did you mean 'RecordsAll'"),
    ("RecordsAll", r"callbacks\[0\]: 'RecordsAll' is not of the form"),
    ("recorders:NOTES", r"callbacks\[0\]: .* is a list; it has to be a class"),
    (of("Misspelled"), r"callbacks\[0\]: Misspelled.on_epsiode\(\) is never called; did you mean 'on_episode'"),
    (
        of("Empty"),
        r"callbacks\[0\]: Empty has no method that is ever called; known: on_start, on_round",
    ),
    (of("WrongSignature"), r"callbacks\[0\]: WrongSignature.on_update cannot be called with \(line\): .*'number'"),
    (of("RecordsAll", nam="x"), r"callbacks\[0\].options.nam: .*'nam'; did you mean 'name'"),
    (of("Stops"), r"callbacks\[0\].options: Stops needs the option 'where', .* It takes: where, nth"),
    (of("Stops", were=1), r"callbacks\[0\].options.were: .*no option 'were'; did you mean 'where'\? known: nth, where"),
    (of("RecordsUpdates", x=1), r"callbacks\[0\].options.x: .*'x'; known: none"),
    (of("RefusesOptions", error="config"), r"callbacks\[0\].options: RefusesOptions: not like this"),
    (of("RefusesOptions", error="value"), r"callbacks\[0\].options: RefusesOptions: ValueError: not like this \(.*py"),
    (of("RefusesOptions", error="other"), r"callbacks\[0\].options: RefusesOptions: ZeroDivisionError: not like"),
]


@pytest.mark.parametrize(("plan", "words"), WRONG, ids=lambda value: getattr(value, "class_", ""))
def test_class_without_callback_methods_is_refused(plan: str | CallbackEntry, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made([plan])


@pytest.mark.slow
@pytest.mark.parametrize("command", [*(pytest.param(it, marks=pytest.mark.long) for it in ("plan", "check")), "train"])
def test_mistake_is_reported_before_the_start(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(yaml.dump({**DATA, "callbacks": ["recorders:Misspelled"]}))
    assert main([command, "c.yaml"]) == 2
    told = capsys.readouterr().err
    assert "c.yaml: callbacks[0]: Misspelled.on_epsiode() is never called; did you mean 'on_episode'?" in told
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_check_lists_the_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"class": "recorders:RecordsAll", "options": {"name": "a"}}
    (tmp_path / "c.yaml").write_text(yaml.dump({**DATA, "callbacks": [entry]}))
    assert main(["check", "c.yaml"]) == 0
    assert "callback recorders:RecordsAll: 1 option\n" in capsys.readouterr().out
    assert NOTES == []


# ------------------------------------------------------------------------------------------------------------- calls


# ------------------------------------------------------------------------------------------------ lines on record


def episode(number: int, *, tick: int, return_: float = 1.0) -> EpisodeRecord:
    seats = (SeatRecord("blue", (0,), return_, "win"), SeatRecord("red", ("x",), -1.0, "loss", 3))
    return EpisodeRecord(0, 0, "game", 0, number, tick, 5, True, False, seats, number == 1)


def recorded(path: Path, told: Callbacks | None) -> RunFolder:
    folder = RunFolder.open(path / "run")
    with Recorder(folder, {0: 0, 1: 0}, callbacks=told) as recorder:
        recorder.episodes(0, 7, [episode(0, tick=5), episode(1, tick=7, return_=math.nan)])
        assert NOTES == [], "match 1 may have earlier ones, so nothing is recorded yet"
        recorder.episodes(1, 6, [])
        assert [line["episode"] for _, line in NOTES] == ([0] if told is not None and told.needs_episodes else [])
        recorder.episodes(1, 8, [])
        recorder.update(UpdateRecord("blue", 1, 8, 16, 0.5, {"loss": math.inf, "kl": 0.1}))
    return folder


def test_callback_is_called_after_the_files_are_written(tmp_path: Path) -> None:
    folder = recorded(tmp_path, Callbacks([of("RecordsAll")], Stop().ask))
    assert [line for kind, line in NOTES if kind == "episode"] == list(JournalReader(folder.episodes))
    assert [line for kind, line in NOTES if kind == "update"] == list(JournalReader(folder.metrics))
    assert [kind for kind, _ in NOTES] == ["episode", "episode", "update"]
    assert NOTES[1][1]["seats"][0]["return"] is None
    assert NOTES[2][1]["loss"] is None


def test_callback_needs_no_base_class() -> None:
    told = Callbacks([of("RecordsUpdates")], Stop().ask)
    told.update({"update": 4})
    told.round(0, 10)
    told.end()
    assert NOTES == [("update alone", 4)]
