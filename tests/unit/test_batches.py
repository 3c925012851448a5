"""Batches of samples: recorded episodes as columns of the published names, and episodes from elsewhere as samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena.dataset import Batch, open_dataset, write_samples
from arena.errors import ConfigError
from arena.game.spaces import flatten
from recorded_samples import record

BOX, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


def recorded(home: Path, **changes: Any) -> Path:
    def act(seen: Any) -> Any:
        return (np.arange(len(seen)) % 4).astype(np.int64)

    return record(home, BOX, CHOICE, act, reward=lambda seen, actions: seen[:, 0] * 2.0, **changes)


def test_a_batch_has_the_rows_of_all_episodes_in_their_order(tmp_path: Path) -> None:
    recorded(tmp_path, ticks=22, lanes=3, length=5, match=0)
    recorded(tmp_path, ticks=12, lanes=2, length=4, match=1, policy="red")
    samples = open_dataset(tmp_path)
    batches = samples.batches()
    assert {*batches} == {"blue", "red"} and batches["blue"] == samples.batch("blue")
    for policy, batch in batches.items():
        episodes = [*samples.episodes(policy)]
        assert len(batch) == sum(len(one.tick) for one in episodes)
        parts = batch.split_by_episode()
        assert len(parts) == len(episodes) == len({int(part["eps_id"][0]) for part in parts})
        for part, one in zip(parts, episodes, strict=True):
            assert np.array_equal(part["obs"], one.observations) and np.array_equal(part["actions"], one.actions)
            assert np.array_equal(part["new_obs"], [*one.observations[1:], one.final_observation])
            assert np.array_equal(part["rewards"], one.rewards) and part["t"].tolist() == [*range(len(part))]
            assert part["terminateds"].tolist() == [False] * (len(part) - 1) + [one.terminated]
            assert np.array_equal(part["dones"], part["terminateds"] | part["truncateds"])
    ids = [{*batch["eps_id"].tolist()} for batch in batches.values()]
    assert not ids[0] & ids[1] and all(batch["eps_id"].dtype == np.int64 for batch in batches.values())


def test_parts_of_composite_spaces_are_columns_and_masks_too(tmp_path: Path) -> None:
    seen = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))
    masks = np.array([[1, 0, 1, 1]], np.int8).repeat(2, axis=0)
    record(tmp_path, seen, CHOICE, lambda *_: np.zeros(2, np.int64), lanes=2, masks=lambda tick: masks)
    batch = open_dataset(tmp_path).batch("blue")
    assert {"obs.a", "obs.b.0", "obs.b.1", "new_obs.a", "new_obs.b.0", "actions", "action_mask"} < {*batch}
    first = next(open_dataset(tmp_path).episodes())
    for name, leaf in zip(("obs.a", "obs.b.0", "obs.b.1"), flatten(seen, first.observations), strict=True):
        assert np.array_equal(batch[name][: len(leaf)], leaf)
    assert (batch["action_mask"] == masks[0]).all()


def test_cut_episodes_are_included_only_on_request(tmp_path: Path) -> None:
    import yaml

    from arena.cli.main import main
    from working_folder import working_directory

    config = {
        "ticks": 21, "checkpoint_every": 11, "record": "samples", "loggers": [],
        "envs": {"game": {"make": "games:Countdown", "kwargs": {"length": 4}}},
        "policies": {"a": {"algorithm": "learners:GymLearner"}},
        "matches": [{"env": "game", "seats": ["a"]}],
    }  # fmt: skip
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    with working_directory(tmp_path):
        assert main(["train", "c.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    samples = open_dataset(tmp_path / "run")
    whole, all_of_them = samples.batch("a"), samples.batch("a", cut=True)
    assert len(whole) == 16 and len(all_of_them) == 21
    assert {*whole["eps_id"].tolist()} < {*all_of_them["eps_id"].tolist()}, "an episode keeps its number"


def test_rows_are_shuffled_split_and_joined_together() -> None:
    rng = np.random.default_rng(0)
    batch = Batch({"a": np.arange(10), "b": np.arange(10)[:, None] * [1, 2]})
    mixed = batch.shuffled(rng)
    assert sorted(mixed["a"].tolist()) == [*range(10)] and mixed["a"].tolist() != [*range(10)]
    assert np.array_equal(mixed["b"], mixed["a"][:, None] * [1, 2]), "one permutation for all columns"
    parts = [*batch.minibatches(4, rng)]
    assert [len(part) for part in parts] == [4, 4, 2]
    assert sorted(np.concatenate([part["a"] for part in parts]).tolist()) == [*range(10)]
    assert Batch.concat([batch.slice(0, 3), batch.slice(3, 10)]) == batch
    assert [*batch.rows()][3]["b"].tolist() == [3, 6]
    assert len(Batch({})) == 0 and len(Batch.concat([])) == 0


def test_wrong_columns_are_named() -> None:
    with pytest.raises(ValueError, match="equal lengths; found a 3, b 2"):
        Batch({"a": np.zeros(3), "b": np.zeros(2)})
    with pytest.raises(ValueError, match="equal lengths; found a 3, b is no array"):
        Batch({"a": np.zeros(3), "b": 1.0})
    with pytest.raises(ValueError, match="batches 0 and 1 have other columns: b is not in both"):
        Batch.concat([Batch({"a": np.zeros(3)}), Batch({"a": np.zeros(3), "b": np.zeros(3)})])


def test_a_batch_is_saved_without_pickle(tmp_path: Path) -> None:
    batch = Batch({"a": np.arange(4), "b": np.array([True, False, True, True])})
    batch.save(tmp_path / "batch.npz")
    assert Batch.load(tmp_path / "batch.npz") == batch
    with np.load(tmp_path / "batch.npz", allow_pickle=False) as held:
        assert np.array_equal(held["a"], batch["a"])
    with pytest.raises(ValueError, match="column 'c' holds objects"):
        Batch({"c": np.array([None, 1], object)}).save(tmp_path / "other.npz")
    (tmp_path / "batch.npz").write_bytes(b"PK")
    with pytest.raises(ConfigError, match="damaged"):
        Batch.load(tmp_path / "batch.npz")


# episodes from elsewhere


def episode(length: int, rng: np.random.Generator, **changes: Any) -> dict[str, Any]:
    seen = rng.uniform(-1, 1, (length + 1, 3)).astype(np.float32)
    ended = np.arange(length) == length - 1
    return {
        "obs": seen[:-1], "new_obs": seen[1:], "actions": rng.integers(4, size=length),
        "rewards": rng.normal(size=length), "terminateds": ended, "truncateds": np.zeros(length, bool), **changes,
    }  # fmt: skip


def test_written_episodes_are_read_back_across_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.dataset.batch.ticks_of_part", lambda *_, **__: 7)
    rng = np.random.default_rng(1)
    given = [episode(length, rng) for length in (3, 4, 1, 9, 7, 20)]
    write_samples(tmp_path / "samples", "teacher", BOX, CHOICE, given)
    assert len([*(tmp_path / "samples").glob("*/*.npz")]) == 7
    batch = open_dataset(tmp_path / "samples").batch("teacher")
    for name in ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds"):
        assert np.array_equal(batch[name], np.concatenate([one[name] for one in given])), name
    assert [len(part) for part in batch.split_by_episode()] == [3, 4, 1, 9, 7, 20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": None}, "episode 1 lacks rewards"),
        ({"obs": np.zeros((3, 2), np.float32)}, "episode 1: obs has rows of the shape (2,), the space (3,)"),
        ({"new_obs": np.zeros((3, 3), np.float32)}, "episode 1: new_obs of a row is not obs of the next one"),
        ({"terminateds": np.zeros(3, bool)}, "episode 1 does not end at its last row"),
        ({"truncateds": np.ones(3, bool)}, "episode 1 does not end at its last row"),
        ({"rewards": np.zeros(2)}, "columns of a batch have equal lengths"),
    ],
)
def test_wrong_episodes_are_refused_and_nothing_is_written(tmp_path: Path, changes: Any, message: str) -> None:
    rng = np.random.default_rng(3)
    wrong = {name: value for name, value in {**episode(3, rng), **changes}.items() if value is not None}
    with pytest.raises(ValueError) as caught:
        write_samples(tmp_path / "samples", "teacher", BOX, CHOICE, [episode(3, rng), wrong])
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "samples").exists()


def test_existing_samples_are_not_overwritten(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    write_samples(tmp_path, "teacher", BOX, CHOICE, [episode(3, rng)])
    with pytest.raises(ConfigError, match="holds samples already"):
        write_samples(tmp_path, "teacher", BOX, CHOICE, [episode(3, rng)])
