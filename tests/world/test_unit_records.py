"""Samples and replays of games with units: records equal the played games, and damaged files are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from arena import ConfigError, Ragged
from arena.cli.main import main
from arena.dataset import open_dataset
from arena.replay.format import Chunk
from arena.replay.reader import read_replays
from arena.replay.verify import verify
from crowd import SPACE, FailingCrowd
from in_process import Played, one_match, play
from tampered_replays import tamper


def run_of(record: str, *, make: str = "crowd:Crowd", **more: Any) -> dict[str, Any]:
    """Two policies in legs of 20 ticks, whose units carry the marks 1 and 2."""
    policies = {
        name: {"algorithm": "unit_workers:VectorSampler", "options": {"mark": number + 1, "name": name}}
        for number, name in enumerate("pq")
    }
    game = {"make": make, "kwargs": {"alone": True}}
    given = {"seed": 5, "checkpoint_every": 20, "record": record, "match": {"lanes": 3}}
    return one_match(game, policies, ticks=60, **given) | more


def differences(played: Played | Path) -> list[Any]:
    path = played if isinstance(played, Path) else played.folder.path
    return [one for match in read_replays(path).matches for _, found in verify(match) for one in found]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(run_of("replays"), tmp_path_factory.mktemp("replays")).folder.path


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(run_of("samples"), tmp_path_factory.mktemp("samples")).folder.path


def test_replays_of_units_have_version_2_and_play_the_same(replayed: Path) -> None:
    assert differences(replayed) == []
    (match,) = read_replays(replayed).matches
    assert match.manifest.version == 2
    assert len(match.episodes()) > 10


def rewritten(folder: Path, target: Path, change: Callable[[Chunk], Chunk]) -> Path:
    shutil.copytree(folder, target)
    tamper(target / "replays/round-0000/match-0000/000000000000.lane-0000.replay", change)
    return target


def test_a_tampered_decision_is_found_at_its_tick(replayed: Path, tmp_path: Path) -> None:
    places = []

    def change(chunk: Chunk) -> Chunk:
        lengths = np.frombuffer(chunk.actions[0], np.uint32).reshape(chunk.ticks, chunk.lanes)
        walks = np.frombuffer(chunk.actions[1], np.uint8).copy()
        row, lane = np.argwhere(lengths)[3]
        begin = int(lengths.ravel()[: row * chunk.lanes + lane].sum())
        walks[begin] = (walks[begin] + 1) % 3
        places.append((chunk.tick + int(row) + 1, int(lane)))
        return msgspec.structs.replace(chunk, actions=[chunk.actions[0], walks.tobytes(), *chunk.actions[2:]])

    found = differences(rewritten(replayed, tmp_path / "run", change))
    assert [(one.tick, one.lane) for one in found] == places


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda actions: [actions[0], actions[1] + b"\0", *actions[2:]], "lengths ask for"),
        (lambda actions: [np.full(180, 2**32 - 1, np.uint32).tobytes(), *actions[1:]], "lengths ask for"),
        (lambda actions: [actions[0][:-4], *actions[1:]], "lengths for 60 ticks of 3 lanes"),
        (lambda actions: [actions[0][:-2], *actions[1:]], "do not fit"),
        (lambda actions: actions[:-1], "a column is missing"),
        (lambda actions: [*actions, b""], "too many columns"),
    ],
)
def test_replays_with_wrong_lengths_are_refused(change: Any, words: str, replayed: Path, tmp_path: Path) -> None:
    def wrong(chunk: Chunk) -> Chunk:
        return msgspec.structs.replace(chunk, actions=change(list(chunk.actions)))

    run = rewritten(replayed, tmp_path / "run", wrong)
    with pytest.raises(ConfigError, match=f"is damaged.*{words}"):
        differences(run)
    assert main(["replay", str(run), "--verify"]) == 2


def test_decisions_are_described_in_words(replayed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(replayed), "--match", "0", "--episode", "1", "--lane", "1"]) == 0
    told = capsys.readouterr().out
    assert "p0 walk: " in told
    assert any(f"walk: Zebra {number}: {label}" in told for number in range(6) for label in ("left", "right", "wait"))
    assert "bite: " in told and ("end: yes" in told or "end: no" in told)


def test_recorded_samples_equal_observations_and_actions(sampled: Path) -> None:
    (match,) = open_dataset(sampled).matches
    manifest = json.loads((match.path / "manifest.json").read_text())
    assert manifest["version"] == 2
    ragged = [name for name, column in manifest["columns"].items() if column.get("ragged")]
    assert "0/observation/1" in ragged and "0/observation/1/lengths" in manifest["columns"]
    assert match.entities[0].observation_space == SPACE and match.entities[0].action_space == SPACE.action_space
    ticks = 0
    for part in match.parts():
        ticks += len(part.tick)
        for entity in range(2):
            zebras = part.observations[entity][1]
            assert isinstance(zebras, Ragged) and len(zebras) == len(part.tick) * 3
            assert ((zebras.values >= entity + 1) & (zebras.values < entity + 2)).all()
            assert not part.actions[entity][0].lengths[~part.active[:, :, entity].ravel()].any()
            assert part.observations[entity][0].shape == (len(part.tick), 3, 1)
    assert ticks == 60


def test_episodes_of_samples_have_one_choice_per_actor(sampled: Path) -> None:
    episodes = list(open_dataset(sampled).episodes("q"))
    assert len(episodes) > 10
    for episode in episodes:
        steps = len(episode.tick)
        assert len(episode.observations["units"]["Zebra"]) == steps == len(episode.actions["walk"])
        assert episode.observations["globals"].shape == (steps, 1)
        for name, choices in episode.actions.items():
            assert choices.lengths.tolist() == episode.observations["actions"][name]["actors"].lengths.tolist()
        assert episode.final_observation in SPACE
        # Globals tell the tick of the episode: nothing is shifted, and the last observation follows the last action.
        assert episode.observations["globals"][:, 0].tolist() == list(range(steps))
        assert episode.final_observation["globals"][0] == steps


def test_a_part_ends_where_its_units_need_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.dataset.writer._MOST_BYTES", 20_000)
    monkeypatch.setattr("arena.dataset.writer.ticks_of_part", lambda *_, **__: 100)
    played = play(run_of("samples", checkpoint_every=60), tmp_path)
    (match,) = open_dataset(played.folder.path).matches
    assert len(list(match.path.glob("*.npz"))) > 2
    assert sum(len(part.tick) for part in match.parts()) == 60
    assert all(
        episode.observations["globals"][:, 0].tolist() == list(range(len(episode.tick))) for episode in match.episodes()
    )


def changed(sampled: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The samples with changed columns in the first part."""
    shutil.copytree(sampled, target)
    path = target / "samples/match-0000/000000000000.lane-0000.npz"
    arrays = dict(np.load(path))
    change(arrays)
    np.savez(path, **arrays)
    return target


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("0/observation/1/lengths", lambda lengths: -lengths, "negative length"),
        ("0/observation/1/lengths", lambda lengths: lengths + 1, "add up to"),
        ("0/observation/1/lengths", lambda lengths: lengths.ravel(), "has the shape"),
        ("0/observation/1/lengths", lambda lengths: lengths.astype(np.int64), "type int64"),
        ("0/observation/1/lengths", lambda lengths: lengths.astype(str), "is of the type <U"),
        ("0/observation/1", lambda items: items[:-1], "add up to"),
        ("0/observation/1", lambda items: items[:, :1], "expected items"),
        ("0/observation/1", lambda items: items * np.nan, "feature 'mark' of Zebra"),
        ("0/action/0", lambda items: items + 5, "not in its space"),
        ("0/observation/5", lambda items: items + 10_000, "is no unit"),
        ("0/observation/2", lambda items: np.zeros((2**27, 0), np.float32), "add up to"),
    ],
)
def test_samples_with_wrong_lengths_are_refused(
    name: str, change: Any, words: str, sampled: Path, tmp_path: Path
) -> None:
    def wrong(arrays: dict[str, Any]) -> None:
        arrays[name] = change(arrays[name])

    with pytest.raises(ConfigError, match=f"is damaged.*{words}"):
        open_dataset(changed(sampled, tmp_path / "run", wrong)).check()


def test_featureless_units_cannot_claim_memory_beyond_the_file(sampled: Path, tmp_path: Path) -> None:
    def wrong(arrays: dict[str, Any]) -> None:
        lengths = np.zeros_like(arrays["0/observation/2/lengths"])
        lengths[0, 0] = 2**27
        arrays["0/observation/2"], arrays["0/observation/2/lengths"] = np.zeros((2**27, 0), np.float32), lengths

    with pytest.raises(ConfigError, match="items without features"):
        open_dataset(changed(sampled, tmp_path / "run", wrong)).check()


@pytest.mark.parametrize("record", ["samples", "replays"])
def test_recording_continues_after_a_restart(record: str, tmp_path: Path) -> None:
    FailingCrowd.failed = False
    played = play(run_of(record, make="crowd:FailingCrowd", on_env_error="restart"), tmp_path)
    assert FailingCrowd.failed
    assert len(played.episodes) > 10
    if record == "replays":
        assert differences(played) == []
    else:
        open_dataset(played.folder.path).check()
