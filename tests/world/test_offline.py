"""From a record to what is learnt and estimated from it, with the policies' own weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.dataset.reader import Samples, open_dataset
from arena.errors import ConfigError
from arena.records import checkpoint
from arena.serving.policy import load_policy
from fakes import all_equal
from in_process import Played, play
from policies.offline.importance_sampling import estimate

SIZES = {"hidden_sizes": [16]}
PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, **SIZES}}
RANDOM = {"algorithm": "random"}


def duel(blue: Any, red: Any = RANDOM, *, ticks: int = 60, **more: Any) -> dict[str, Any]:
    return {
        "seed": 5,
        "ticks": ticks,
        "checkpoint_every": 20,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 12}}},
        "policies": {"blue": blue, "red": red},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4}],
        **more,
    }


def demonstrated(path: Path) -> str:
    """A run of a script, recorded; its folder."""
    path.mkdir()
    script = {"algorithm": "scripted", "options": {"function": "policies.scripts:run"}}
    return str(play(duel(script, record="samples", ticks=200), path, given=True).folder.path)


def cloning(data: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": "bc", "options": {"data": data, "policy": "blue", "train_every": 8, **SIZES, **options}}


def test_a_script_is_imitated_in_the_game(tmp_path: Path) -> None:
    data = demonstrated(tmp_path / "data")
    clone = cloning(data, gradient_steps=30, learning_rate=0.003, hidden_sizes=[64])
    played = play(duel(clone, ticks=80), tmp_path)
    assert played.updates[-1]["agreement"] > 0.95
    samples = open_dataset(data)
    spaces = samples.entity("blue").observation_space, samples.entity("blue").action_space
    act = load_policy(played.folder.path, "blue", *spaces).actor(greedy=True)
    agreed = [(act(e.observations, {}) == e.actions).mean() for e in samples.episodes("blue")]
    assert np.mean(agreed) > 0.95


def test_a_clone_that_is_interrupted_is_the_one_that_never_was(tmp_path: Path) -> None:
    data = demonstrated(tmp_path / "data")
    clone = cloning(data, gradient_steps=3, train_every=7)
    matches = [{"env": "game", "seats": ["blue", "red"], "lanes": 2, "copies": 2}]
    whole = play(duel(clone, ticks=40, matches=matches), tmp_path / "whole", given=True)
    play(duel(clone, ticks=20, matches=matches), tmp_path / "parted", given=True)
    parted = play(duel(clone, ticks=40, matches=matches), tmp_path / "parted", resume=True)
    left, right = (checkpoint.load(played.folder.checkpoints_path("blue")) for played in (whole, parted))
    assert left.state["updates"] == 5
    assert left.boundary == right.boundary == 40
    assert all_equal(left.state, right.state)
    assert whole.folder.episodes.read_bytes() == parted.folder.episodes.read_bytes()


def countdown(blue: Any, *, ticks: int, **more: Any) -> dict[str, Any]:
    """Five steps, each of which pays the number of the action: uniform play earns 5, the best 10."""
    return {
        "seed": 5,
        "ticks": ticks,
        "checkpoint_every": 1000,
        "envs": {"game": {"make": "games:Countdown"}},
        "policies": {"blue": blue},
        "matches": [{"env": "game", "seats": ["blue"], "lanes": 8}],
        **more,
    }


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A run with a policy whose checkpoints others play with."""
    return play(countdown(PPO, ticks=100), tmp_path_factory.mktemp("learnt"))


@pytest.fixture(scope="module")
def samples(learnt: Played, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What its last checkpoint has played, unchanged."""
    frozen = {**PPO, "frozen": True, "load": str(learnt.folder.path)}
    played = play(countdown(frozen, ticks=1000, record="samples"), tmp_path_factory.mktemp("played"))
    return open_dataset(played.folder.path)


def policy(samples: Samples) -> Any:
    """Who has played them."""
    return load_policy(samples.path.parent, "blue", *spaces_of(samples))


def spaces_of(samples: Samples) -> tuple[Any, Any]:
    entity = samples.entity("blue")
    return entity.observation_space, entity.action_space


def test_who_has_played_is_estimated_at_what_was_earned(samples: Samples) -> None:
    blue = policy(samples)
    found = estimate(samples.episodes("blue"), target=blue.log_prob, behaviour=blue.log_prob)
    returns = [episode.undiscounted for episode in samples.episodes("blue")]
    assert found.episodes == len(returns) == 1600
    assert np.mean(returns) > 5.5, "it has learnt"
    for value in (found.ordinary.value, found.per_decision.value, found.weighted.value):
        assert value == pytest.approx(np.mean(returns), abs=1e-12)


def test_another_policy_is_estimated_at_what_it_earns(samples: Samples, tmp_path: Path) -> None:
    """Uniform actions are asked about."""
    uniform = load_policy(play(countdown(RANDOM, ticks=5), tmp_path).folder.path, "blue", *spaces_of(samples))
    found = estimate(samples.episodes("blue"), target=uniform.log_prob, behaviour=policy(samples).log_prob)
    for estimated in (found.ordinary, found.per_decision, found.weighted):
        assert abs(estimated.value - 5.0) < 4 * estimated.standard_error < 1.0


def test_a_policy_that_learnt_while_it_was_recorded_is_no_behaviour_policy(tmp_path: Path) -> None:
    samples = open_dataset(play(countdown(PPO, ticks=40, record="samples"), tmp_path).folder.path)
    blue = policy(samples)
    with pytest.raises(ConfigError, match=r"the policy 'blue' learnt while it was recorded.*`frozen: true`"):
        estimate(samples.episodes("blue"), target=blue.log_prob, behaviour=blue.log_prob)


def test_a_policy_that_remembers_is_asked_episode_by_episode(tmp_path: Path) -> None:
    remembers = {"algorithm": "ppo", "options": {**PPO["options"], "recurrent": "gru", "hidden_size": 8}}
    learnt = play(countdown(remembers, ticks=64), tmp_path)
    frozen = {**remembers, "frozen": True, "load": str(learnt.folder.path)}
    samples = open_dataset(play(countdown(frozen, ticks=40, record="samples"), tmp_path).folder.path)
    blue = policy(samples)
    for episode in samples.episodes("blue"):
        act, chosen = blue.actor(greedy=True), []
        for t in range(len(episode.tick)):
            chosen.append(act(episode.observations[t : t + 1], {})[0])
        each = [
            blue.log_prob(episode.observations, np.array([*chosen[:t], a, *chosen[t + 1 :]]), None)[t]
            for t in range(5)
            for a in range(3)
        ]
        assert np.array(each).reshape(5, 3).argmax(axis=1).tolist() == chosen
        break


def test_a_checkpoint_is_found_by_its_tick(learnt: Played, samples: Samples) -> None:
    first = load_policy(learnt.folder.path, "blue", *spaces_of(samples), boundary=0)
    last = load_policy(learnt.folder.path, "blue", *spaces_of(samples))
    assert (first.updates, last.updates) == (0, 6)
    seen, actions = np.full((3, 1), 4, np.float32), np.arange(3)
    assert first.log_prob(seen, actions, None) == pytest.approx(-np.log(3), abs=0.05), "close to uniform"
    assert np.exp(last.log_prob(seen, actions, None)).sum() == pytest.approx(1)
    assert last.log_prob(seen, actions, None)[2] > first.log_prob(seen, actions, None)[2]


def test_what_is_not_there_is_named(learnt: Played, samples: Samples) -> None:
    with pytest.raises(ConfigError, match=r"no policy 'bleu' in this run; did you mean 'blue'"):
        load_policy(learnt.folder.path, "bleu", *spaces_of(samples))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(learnt.folder.path, "blue", *spaces_of(samples), boundary=7)
    with pytest.raises(ConfigError, match="no such file"):
        load_policy(learnt.folder.path / "gone", "blue", *spaces_of(samples))


def test_a_restored_policy_has_no_game(samples: Samples) -> None:
    with pytest.raises(RuntimeError, match="no game to play"):
        policy(samples).env.reset()
