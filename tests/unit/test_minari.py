"""Data sets of Minari: recorded samples become one, and are read back as they were, by Minari and by the arena."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import minari
import minari.data_collector
import numpy as np
import pytest
from gymnasium import spaces

from arena.dataset import open_dataset, to_minari
from arena.errors import ConfigError
from arena.game.spaces import flatten
from recorded_samples import record

BOX, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
NESTED = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))
PICTURES = spaces.Box(0, 255, (8, 8, 3), np.uint8)
ABOUT = {"author": "the authors", "author_email": "x@example.org", "code_permalink": "x", "algorithm_name": "none"}
pytestmark = pytest.mark.filterwarnings("ignore:.*(is set to None|env_spec is None).*:UserWarning")


@pytest.fixture(autouse=True)
def _data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def act(seen: Any, masks: Any = None) -> Any:
    return (np.arange(4) % (4 if masks is None else 3)).astype(np.int64)


@pytest.mark.parametrize("space", [BOX, NESTED, PICTURES], ids=["box", "nested", "pictures"])
@pytest.mark.parametrize("masked", [False, True])
def test_samples_come_back_from_minari_as_they_were(tmp_path: Path, space: Any, masked: bool) -> None:
    masks = np.array([[1, 1, 1, 0]], np.int8).repeat(4, axis=0)
    record(
        tmp_path / "run",
        space,
        CHOICE,
        act,
        ticks=22,
        reward=lambda seen, actions: actions * 0.5,
        masks=(lambda tick: masks) if masked else None,
    )
    before = open_dataset(tmp_path / "run").batch("blue")
    written = to_minari(tmp_path / "run", "blue", "game/blue-v0", **ABOUT)
    assert (written.total_episodes, written.total_steps) == (16, len(before)) and len(before) == 80
    again = minari.load_dataset("game/blue-v0")
    for episode, rows in zip(again.iterate_episodes(), before.split_by_episode(), strict=True):
        assert np.array_equal(flatten(space, episode.observations)[0][:-1], rows[next(iter(rows))])
        assert np.array_equal(episode.actions, rows["actions"]) and np.array_equal(episode.rewards, rows["rewards"])
        assert np.array_equal(episode.terminations, rows["terminateds"])
    samples = open_dataset("minari:game/blue-v0")
    assert samples.policies == ("minari",)
    after = samples.batch("minari")
    assert after.keys() == before.keys() and ("action_mask" in after) == masked
    for name in before.keys() - {"eps_id"}:
        assert np.array_equal(before[name], after[name]), name


def test_episode_without_an_end_is_truncated_and_wrong_actions_are_refused(tmp_path: Path) -> None:
    for name, worst in (("open", 3), ("wrong", 4)):
        buffer = minari.data_collector.EpisodeBuffer(
            observations=np.zeros((4, 3), np.float32),
            actions=np.array([0, 1, worst]),
            rewards=[0.0, 0.0, 1.0],
            terminations=[False] * 3,
            truncations=[False] * 3,
        )
        minari.create_dataset_from_buffers(f"{name}-v0", [buffer], observation_space=BOX, action_space=CHOICE, **ABOUT)
    batch = open_dataset("minari:open-v0").batch("minari")
    assert batch["truncateds"].tolist() == [False, False, True] and not batch["terminateds"].any()
    with pytest.raises(ConfigError, match="not in its space"):
        open_dataset("minari:wrong-v0").check()


def test_what_minari_cannot_hold_or_find_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no such data set of Minari; fetch it: minari download no/such-v0"):
        open_dataset("minari:no/such-v0")
    record(tmp_path / "run", BOX, CHOICE, act, ticks=3)
    with pytest.raises(ConfigError, match="no whole episode of the policy 'blue'"):
        to_minari(tmp_path / "run", "blue", "game/blue-v0")
    with pytest.raises(ConfigError, match="no samples of the policy 'red'"):
        to_minari(tmp_path / "run", "red", "game/blue-v0")
    with pytest.raises(ConfigError, match="'game/blue'; names of Minari end with a version, as game/blue-v0"):
        to_minari(tmp_path / "run", "blue", "game/blue")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigError, match=r"need the package 'minari'.*mpi-policy-arena\[minari\]"):
        to_minari(tmp_path / "run", "blue", "game/blue-v0")
